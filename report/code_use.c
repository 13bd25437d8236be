/* How evenly a media tokenizer used its code over the steps of its training: bits by scale, codes by
 * level. */
#include "report/page.h"

#include <stdio.h>

enum { LINES_MOST = 17 };

static const struct {
    const char *kind, *of, *group, *figure, *title, *dead;
} kinds[] = {{"stills", "pictures", "scale", "entropy", "Entropy of a bit", "Dead bits"},
             {"clips", "clips", "scale", "entropy", "Entropy of a bit", "Dead bits"},
             {"codes", "sounds", "level", "perplexity", "Codes in even use", "Dead codes"}};
static const struct {
    const char *key, *name;
} sets[] = {{"heldout", "new"}, {"training", "training"}};

/* A chart of one figure, a line for each scale or level; nothing if it was not measured. */
static void put_lines(struct page *p, const struct run_stage *s, i64 kind, i64 set, bool dead)
{
    struct metric_series all[LINES_MOST];
    struct chart_line lines[LINES_MOST];
    char names[LINES_MOST][24];
    const char *figure = dead ? "dead" : kinds[kind].figure;
    i64 count = 0;
    for (i64 g = 0; g < LINES_MOST; g++) { /* scales count from 1, levels from 0 */
        char *key = string_format("use/%s/%s/%lld/%s", kinds[kind].kind, sets[set].key, (long long)g, figure);
        struct metric_series one = series_of(&s->metrics, key);
        memory_free(key);
        if (one.n == 0) {
            series_release(&one);
            continue;
        }
        snprintf(names[count], sizeof names[0], "%s %lld", kinds[kind].group, (long long)g);
        all[count] = one;
        lines[count] = (struct chart_line){names[count], (int)(count % CHART_COLOURS), one.x, one.y, one.n};
        count++;
    }
    char *title =
        string_format("%s, %s %s", dead ? kinds[kind].dead : kinds[kind].title, sets[set].name, kinds[kind].of);
    char *about = string_format("%s of %s over steps, a line for each %s", title, s->name, kinds[kind].group);
    if (count)
        figure_chart(p, title,
                     &(struct chart){.about = about,
                                     .x_name = "step",
                                     .y_name = dead       ? "number"
                                               : kind < 2 ? "bits"
                                                          : "codes",
                                     .lines = lines,
                                     .line_count = count,
                                     .from_zero = true});
    for (i64 i = 0; i < count; i++)
        series_release(&all[i]);
    memory_free(title);
    memory_free(about);
}

void put_code_use(struct page *p, const struct run_stage *s)
{
    group_open(p, "%s: how evenly its code is used, over steps", s->name);
    i64 begin = p->html.length;
    put_note(
        p,
        "Of the same media at each measurement. Scales count from the coarsest. The entropy of a bit is 1 if half of "
        "its values are 1; it is dead if more than 99\u00a0%% of them are equal. Codes in even use: so many codes, "
        "each used as often as the others, would have the same entropy. A code is dead if no frame with sound has it.");
    buffer_printf(&p->html, "<div class='charts'>");
    i64 inside = p->html.length;
    for (i64 kind = 0; kind < COUNT_OF(kinds); kind++)
        for (i64 set = 0; set < COUNT_OF(sets); set++)
            for (int dead = 0; dead < 2; dead++)
                put_lines(p, s, kind, set, dead);
    if (p->html.length == inside)
        truncate_text(&p->html, begin);
    else
        buffer_printf(&p->html, "</div>");
    group_close(p, NULL);
}
