#include "report/media.h"

#include <math.h>
#include <string.h>

i64 picture_width(const struct run_stage *stage, const char *file)
{
    char *path = stage_file(stage, file);
    struct file_view view;
    i64 width = 0;
    if (path && file_map(&view, path) == 0) {
        if (view.bytes > 24 && memcmp(view.data + 12, "IHDR", 4) == 0)
            width = (i64)view.data[16] << 24 | view.data[17] << 16 | view.data[18] << 8 | view.data[19];
        file_unmap(&view);
    }
    memory_free(path);
    return width;
}

void put_sound(struct page *p, const struct run_stage *stage, const struct sound_card *card, const char *about)
{
    char *seen = string_format("Spectrogram: %s", about);
    text_printf(&p->html, "<div class='sound'>");
    html_element(&p->html, "small", NULL, "%s", card->title);
    if (picture_width(stage, card->picture)) {
        text_printf(&p->html, "<div class='box' style='width:%.1f%%'>", 100 * fmin(fmax(card->share, 0.05), 1));
        put_medium(p, stage, card->picture, seen);
        text_printf(&p->html, "</div>");
    }
    if (!put_medium(p, stage, card->sound, about))
        text_printf(&p->html, "<span class='soft'>silence</span>");
    text_printf(&p->html, "</div>");
    memory_free(seen);
}
