#include "report/media.h"

#include <math.h>
#include <string.h>

static u32 word_at(const u8 *bytes)
{
    return bytes[0] | (u32)bytes[1] << 8 | (u32)bytes[2] << 16 | (u32)bytes[3] << 24;
}

/* Reads the 44-byte header of the WAV files that stages write: bytes per second at offset 28, bytes
 * of samples at offset 40. */
double sound_seconds(const struct run_stage *stage, const char *file)
{
    char *path = stage_file(stage, file);
    struct file_view view;
    double seconds = 0;
    if (path && file_map(&view, path) == 0) {
        if (view.bytes >= 44 && memcmp(view.data + 8, "WAVE", 4) == 0 && word_at(view.data + 28) > 0)
            seconds = (double)word_at(view.data + 40) / word_at(view.data + 28);
        file_unmap(&view);
    }
    memory_free(path);
    return seconds;
}

void put_sound(struct page *p, const struct run_stage *stage, const struct sound_card *card, const char *about)
{
    char *seen = string_format("Spectrogram: %s", about);
    buffer_printf(&p->html, "<div class='sound'>");
    double seconds = sound_seconds(stage, card->sound);
    if (seconds > 0)
        html_element(&p->html, "small", NULL, "%s, %.2f s", card->title, seconds);
    else
        html_element(&p->html, "small", NULL, "%s", card->title);
    i64 begin = p->html.length;
    buffer_printf(&p->html, "<div class='box' style='width:%.1f%%'>", 100 * fmin(fmax(card->share, 0.05), 1));
    if (put_medium(p, stage, card->picture, seen))
        buffer_printf(&p->html, "</div>");
    else
        truncate_text(&p->html, begin);
    if (!put_medium(p, stage, card->sound, about))
        buffer_printf(&p->html, "<span class='soft'>silence</span>");
    buffer_printf(&p->html, "</div>");
    memory_free(seen);
}

void put_titled_medium(struct page *p, const struct run_stage *s, const char *title, const char *file,
                       const char *about)
{
    buffer_printf(&p->html, "<div><small>%s</small>", title);
    if (!put_medium(p, s, file, about))
        buffer_printf(&p->html, "<span class='nothing'>no output</span>");
    buffer_printf(&p->html, "</div>");
}

void put_media_sets(struct page *p, const struct run_stage *stage, const struct media_set *sets, i64 count,
                    const char *class, i64 row, int kind,
                    void (*put)(struct page *page, const struct run_stage *stage, const struct json *item, int kind))
{
    struct buffer folded = {0}; /* what the fold holds */
    i64 first = 0, shown;
    while (first < count && json_count(sets[first].list) == 0)
        first++;
    if (first == count)
        return;
    shown = min_i64(row, json_count(sets[first].list));
    html_element(&p->html, "h4", NULL, "%s", sets[first].title);
    row_open(p, class);
    for (i64 i = 0; i < shown; i++)
        put(p, stage, json_at(sets[first].list, i), kind);
    buffer_printf(&p->html, "</div>");
    if (shown < json_count(sets[first].list))
        buffer_printf(&folded, "%lld more", (long long)(json_count(sets[first].list) - shown));
    for (i64 k = first + 1; k < count; k++)
        if (json_count(sets[k].list))
            buffer_printf(&folded, "%s%s: %lld", folded.length ? ". " : "", sets[k].title,
                          (long long)json_count(sets[k].list));
    if (folded.length) {
        fold_open(p, "%s", folded.data);
        for (i64 k = first; k < count; k++) {
            i64 begin = k == first ? shown : 0;
            if (begin == json_count(sets[k].list))
                continue;
            if (k > first)
                html_element(&p->html, "h4", NULL, "%s", sets[k].title);
            buffer_printf(&p->html, "<div class='%s'>", class);
            for (i64 i = begin; i < json_count(sets[k].list); i++)
                put(p, stage, json_at(sets[k].list, i), kind);
            buffer_printf(&p->html, "</div>");
        }
        fold_close(p);
    }
    buffer_release(&folded);
}
