/* Renders every glyph as a PNG on white, captioned with its name, form and colours. */
#include "corpus/corpus.h"

struct corpus_pictures {
    const struct corpus *corpus;
    struct glyph_list *list;
    struct font *fonts; /* one per worker */
};

static int make_picture(void *context, i64 item, int worker)
{
    const struct corpus_pictures *pictures = context;
    struct glyph *glyph = &pictures->list->items[item];
    struct clip drawn, small;
    struct buffer png = {0}, looks = {0};
    if (pictures->corpus->talk && glyph->split != SPLIT_TRAIN)
        return 0; /* no conversation shows it */
    if (font_picture(&drawn, &looks, &pictures->fonts[worker], glyph->index) < 0)
        return -1;
    glyph->looks = looks.data;
    clip_resize(&small, &drawn, pictures->corpus->size, pictures->corpus->size);
    image_encode_png(&png, small.pixels, small.height, small.width);
    char *name = path_join("image", glyph->file);
    int status = corpus_save(pictures->corpus, glyph->split, name, png.data, png.length);
    memory_free(name);
    buffer_release(&png);
    clip_release(&drawn);
    clip_release(&small);
    return status;
}

int make_pictures(struct corpus *corpus, struct glyph_list *list, const struct font_file *file)
{
    struct corpus_pictures pictures = {.corpus = corpus, .list = list};
    int status = fonts_open(&pictures.fonts, file);
    if (status == 0)
        status = run_items("pictures", list->count, make_picture, &pictures);
    fonts_close(pictures.fonts);
    for (i64 i = 0; i < list->count && status == 0; i++) {
        const struct glyph *glyph = &list->items[i];
        char *caption = string_format("%s, %s", glyph->caption, glyph->looks);
        corpus_caption(corpus, glyph->split, IMAGE, glyph->file, caption, NULL);
        memory_free(caption);
    }
    return status;
}
