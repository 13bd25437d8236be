/* The emoji font: FreeType provides its colour bitmaps, HarfBuzz maps a character sequence to
 * one. */
#include "corpus/corpus.h"
#include <ft2build.h>
#include FT_FREETYPE_H
#include <hb.h>
#include <string.h>

int font_file_open(struct font_file *file)
{
    return file_map(&file->view, "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf");
}

void font_file_close(struct font_file *file)
{
    file_unmap(&file->view);
}

int font_open(struct font *font, const struct font_file *file)
{
    FT_Library library = NULL;
    FT_Face face = NULL;
    require(FT_Init_FreeType(&library) == 0, "FreeType cannot start");
    *font = (struct font){.library = library};
    int code = FT_New_Memory_Face(library, file->view.data, (FT_Long)file->view.bytes, 0, &face);
    font->face = face;
    if (code || face->num_fixed_sizes < 1 || FT_Select_Size(face, 0))
        return error_set("NotoColorEmoji.ttf: no colour bitmaps in it (FreeType's error %d); install the package "
                         "fonts-noto-color-emoji anew",
                         code);
    return 0;
}

void font_close(struct font *font)
{
    if (font->face)
        FT_Done_Face(font->face);
    if (font->library)
        FT_Done_FreeType(font->library);
    *font = (struct font){0};
}

int fonts_open(struct font **fonts, const struct font_file *file)
{
    int status = 0;
    *fonts = memory_alloc(workers_count() * (i64)sizeof **fonts);
    for (int i = 0; i < workers_count() && status == 0; i++)
        status = font_open(&(*fonts)[i], file);
    return status;
}

void fonts_close(struct font *fonts)
{
    for (int i = 0; i < workers_count(); i++)
        font_close(&fonts[i]);
    memory_free(fonts);
}

/* Draws the bitmap on white, and adds the pixels that are more than half opaque to the looks. Pixels
 * are BGRA with premultiplied alpha, so the result is colour + 255 - alpha. */
static void place_bitmap(struct clip *out, struct looks *looks, const FT_Bitmap *bitmap)
{
    i64 top = (out->height - bitmap->rows) / 2, left = (out->width - bitmap->width) / 2;
    memset(out->pixels, 255, (size_t)(out->height * out->width * 3));
    for (i64 y = 0; y < bitmap->rows; y++) {
        const u8 *from = bitmap->buffer + y * bitmap->pitch;
        u8 *to = out->pixels + ((top + y) * out->width + left) * 3;
        for (i64 x = 0; x < bitmap->width; x++, from += 4, to += 3) {
            for (int c = 0; c < 3; c++)
                to[c] = (u8)min_i64(from[2 - c] + 255 - from[3], 255);
            if (from[3] > 127)
                looks_add(looks, y, x,
                          colour_of(255 * from[2] / from[3], 255 * from[1] / from[3], 255 * from[0] / from[3]));
        }
    }
}

int font_picture(struct clip *out, struct buffer *looks, const struct font *font, u32 index)
{
    FT_Face face = font->face;
    int code = FT_Load_Glyph(face, index, FT_LOAD_COLOR);
    const FT_Bitmap *bitmap = &face->glyph->bitmap;
    struct looks seen = {0};
    if (code || bitmap->pixel_mode != FT_PIXEL_MODE_BGRA || !bitmap->rows || !bitmap->width)
        return error_set("NotoColorEmoji.ttf: glyph %u has no colour bitmap (FreeType's error %d)", index, code);
    i64 side = max_i64(bitmap->rows, bitmap->width);
    clip_init(out, 1, side, side, 0);
    place_bitmap(out, &seen, bitmap);
    if (looks)
        describe_looks(looks, &seen);
    return 0;
}

/* The single glyph of a sequence; 0 if the font draws it as several glyphs or not at all. */
static u32 shape(hb_font_t *font, hb_buffer_t *buffer, const struct glyph *glyph)
{
    hb_buffer_clear_contents(buffer);
    hb_buffer_add_utf32(buffer, glyph->code_points, glyph->length, 0, glyph->length);
    hb_buffer_guess_segment_properties(buffer);
    hb_buffer_set_flags(buffer, HB_BUFFER_FLAG_REMOVE_DEFAULT_IGNORABLES);
    hb_shape(font, buffer, NULL, 0);
    unsigned count = 0;
    const hb_glyph_info_t *shaped = hb_buffer_get_glyph_infos(buffer, &count);
    return count == 1 ? shaped[0].codepoint : 0;
}

void font_find(struct glyph_list *list, const struct font_file *file)
{
    hb_blob_t *blob =
        hb_blob_create((const char *)file->view.data, (unsigned)file->view.bytes, HB_MEMORY_MODE_READONLY, NULL, NULL);
    hb_face_t *face = hb_face_create(blob, 0);
    hb_font_t *font = hb_font_create(face);
    hb_buffer_t *buffer = hb_buffer_create();
    for (i64 i = 0; i < list->count; i++)
        list->items[i].index = shape(font, buffer, &list->items[i]);
    hb_buffer_destroy(buffer);
    hb_font_destroy(font);
    hb_face_destroy(face);
    hb_blob_destroy(blob);
}
