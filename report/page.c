#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Sections and groups ---- */

void truncate_text(struct buffer *text, i64 length)
{
    text->length = length;
    if (text->data)
        text->data[length] = 0;
}

void section_open(struct page *p, const char *id, const char *title, const char *lede)
{
    p->section_begin = p->html.length;
    p->section_id = string_copy(id);
    p->section_title = string_copy(title);
    buffer_printf(&p->html, "<section id='%s'>", id);
    html_element(&p->html, "h2", NULL, "%s", title);
    if (lede)
        html_element(&p->html, "p", "lede", "%s", lede);
    p->section_body = p->html.length;
}

void section_close(struct page *p)
{
    if (p->html.length == p->section_body)
        truncate_text(&p->html, p->section_begin);
    else {
        buffer_printf(&p->html, "</section>\n");
        buffer_printf(&p->contents, "<a href='#%s'>", p->section_id);
        html_text(&p->contents, p->section_title);
        buffer_printf(&p->contents, "</a>");
    }
    memory_free(p->section_id);
    memory_free(p->section_title);
}

void group_open(struct page *p, const char *format, ...)
{
    char title[512];
    va_list list;
    va_start(list, format);
    vsnprintf(title, sizeof title, format, list);
    va_end(list);
    p->group_begin = p->html.length;
    html_element(&p->html, "h3", NULL, "%s", title);
    p->group_body = p->html.length;
}

void put_made_by(struct page *p, const char *command)
{
    buffer_printf(&p->html, "<p class='made'>Made by%s ", p->run_count > 1 ? ", in the first run," : "");
    html_element(&p->html, "code", NULL, "%s", command);
    buffer_printf(&p->html, "</p>");
}

static const struct run *run_of(const struct page *p, const struct run_stage *stage)
{
    for (i64 r = 0; r < p->run_count; r++)
        if (stage >= p->runs[r].stages && stage < p->runs[r].stages + p->runs[r].count)
            return &p->runs[r];
    return NULL;
}

void group_close(struct page *p, const struct run_stage *maker)
{
    if (p->html.length == p->group_body)
        truncate_text(&p->html, p->group_begin);
    else if (maker) {
        char *command = command_of(run_of(p, maker), maker);
        put_made_by(p, command);
        memory_free(command);
    }
}

void put_note(struct page *p, const char *format, ...)
{
    char note[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(note, sizeof note, format, list);
    va_end(list);
    html_element(&p->html, "p", "soft", "%s", note);
}

void put_long_samples(struct page *p, const char *stage, const char *file, const char *key, const char *done)
{
    for (i64 r = 0; r < p->run_count; r++) {
        const struct run_stage *s = run_find(&p->runs[r], stage);
        struct json *j = s ? stage_json(s, file) : NULL;
        struct buffer streams = {0};
        put_streams(&streams, json_get(j, key));
        if (streams.length && p->run_count > 1)
            put_note(p, "%s: samples longer than a row, %s: %s.", p->runs[r].name, done, streams.data);
        else if (streams.length)
            put_note(p, "Samples longer than a row, %s: %s.", done, streams.data);
        buffer_release(&streams);
        json_free(j);
    }
}

/* The folder that a recipe names: without those of the arm and the seed. */
static char *folder_of_all(const struct run *run)
{
    char *path = string_copy(run->path);
    for (int i = (json_get(run->about, "arm") != NULL) + run->has_seed; i > 0; i--) {
        size_t length = strlen(path);
        while (length > 1 && path[length - 1] == '/')
            path[--length] = 0;
        char *slash = strrchr(path, '/');
        if (slash && slash > path && strcmp(slash, "/..") != 0 && strcmp(slash, "/.") != 0) {
            *slash = 0;
        } else {
            char *above = string_format("%s/..", path);
            memory_free(path);
            path = above;
        }
    }
    return path;
}

char *command_of(const struct run *run, const struct run_stage *stage)
{
    struct buffer out = {0};
    const char *arm = json_string(json_get(run->about, "arm"), NULL);
    char *root = folder_of_all(run), *place = string_format("run=%s", root);
    memory_free(root);
    buffer_printf(&out, "weft run ");
    shell_word(&out, json_string(json_get(run->about, "recipe"), "RECIPE"));
    buffer_printf(&out, " ");
    shell_word(&out, place);
    if (arm) {
        buffer_printf(&out, " --arm ");
        shell_word(&out, arm);
    }
    if (run->has_seed)
        buffer_printf(&out, " --seed %lld", (long long)run->seed);
    else if (json_get(stage->identity, "seed"))
        buffer_printf(&out, " seed=%lld", (long long)json_integer(json_get(stage->identity, "seed"), 0));
    buffer_printf(&out, " ");
    shell_word(&out, stage->name);
    memory_free(place);
    return out.data;
}

/* ---- Figures ---- */

void figure_open(struct page *p, const char *class, const char *title)
{
    buffer_printf(&p->html, "<figure class='%s'><figcaption>", class);
    html_text(&p->html, title);
    buffer_printf(&p->html, "</figcaption>");
}

void figure_close(struct page *p)
{
    buffer_printf(&p->html, "</figure>");
}

void figure_chart(struct page *p, const char *title, const struct chart *chart)
{
    i64 begin = p->html.length;
    figure_open(p, "chart", title);
    if (chart_draw(&p->html, chart))
        figure_close(p);
    else
        truncate_text(&p->html, begin);
}

char *short_name(const char *name)
{
    const char *end = name + strlen(name);
    if (end - name <= 16)
        return string_copy(name);
    for (end -= 14; (*end & 0xc0) == 0x80; end++) /* within a character of several bytes */
        ;
    return string_format("..%s", end);
}

/* Final value of a metric: the mean of the last 1 % of its steps. */
static char *last_value(const struct metric_series *s, bool percent)
{
    double sum = 0;
    i64 begin = s->n - max_i64(min_i64(s->n, 1), s->n / 100);
    for (i64 i = begin; i < s->n; i++)
        sum += s->y[i] / (double)(s->n - begin);
    if (s->n == 0)
        return string_copy("");
    int exponent = sum == 0 ? 0 : (int)floor(log10(fabs(sum)));
    if (exponent < -3 && !percent)
        return string_format("%.2fe%d", sum / pow(10, exponent), exponent);
    return sum == 0              ? string_copy(percent ? "0\u00a0%" : "0")
           : percent             ? string_format("%.*f\u00a0%%", fabs(sum) < 0.0995 ? 1 : 0, 100 * sum)
           : fabs(sum) >= 9999.5 ? string_format("%.1f\u00a0k", sum * 1e-3)
           : fabs(sum) >= 99.95  ? string_format("%.0f", sum)
                                 : string_format("%#.3g", sum);
}

static char *about_panel(const struct page *p, const char *stage, const struct panel *panel,
                         const struct metric_series *all)
{
    struct buffer about = {0};
    buffer_printf(&about, "%s of %s over steps", panel->title, stage);
    for (i64 r = 0; r < p->run_count; r++)
        if (all[r].n)
            buffer_printf(&about, "; %s%sfrom %.4g to %.4g %s", p->run_count > 1 ? p->runs[r].name : "",
                          p->run_count > 1 ? " " : "", all[r].y[0], all[r].y[all[r].n - 1], panel->unit);
    return about.data;
}

enum { HELDOUT_COLOUR = 3 };

void figure_panel(struct page *p, const char *stage, const struct panel *panel)
{
    i64 most = p->run_count + 1, count = p->run_count;
    struct metric_series *all = memory_alloc(most * (i64)sizeof *all);
    struct chart_line *lines = memory_alloc(most * (i64)sizeof *lines);
    char **names = memory_alloc(most * (i64)sizeof *names);
    for (i64 r = 0; r < p->run_count; r++) {
        const struct run_stage *s = run_find(&p->runs[r], stage);
        all[r] = series_of(s ? &s->metrics : &(struct json_lines){0}, panel->key);
        for (i64 i = 0; i < all[r].n && panel->per > 0; i++)
            all[r].y[i] /= panel->per;
        names[r] = p->run_count > 1 ? short_name(p->runs[r].name) : last_value(&all[r], panel->percent);
        lines[r] =
            (struct chart_line){names[r], p->run_count > 1 ? (int)r : panel->colour, all[r].x, all[r].y, all[r].n};
    }
    char *about = about_panel(p, stage, panel, all);
    for (i64 i = 0; p->run_count == 1 && i < COUNT_OF(panel->heldout) && panel->heldout[i] && count == 1; i++) {
        const struct run_stage *s = run_find(&p->runs[0], stage);
        struct metric_series held = series_of(s ? &s->metrics : &(struct json_lines){0}, panel->heldout[i]);
        if (held.n && all[0].n) {
            char *value = last_value(&held, false), *training = names[0], *before = about;
            names[0] = string_format("training %s", training);
            names[1] = string_format("held-out %s", value);
            about = string_format("%s; on held-out rows from %.4g to %.4g %s", before, held.y[0], held.y[held.n - 1],
                                  panel->unit);
            lines[0].name = names[0];
            lines[1] = (struct chart_line){names[1], HELDOUT_COLOUR, held.x, held.y, held.n};
            all[count++] = held;
            memory_free(value);
            memory_free(training);
            memory_free(before);
        } else
            series_release(&held);
    }
    figure_chart(p, panel->title,
                 &(struct chart){.about = about,
                                 .x_name = "step",
                                 .y_name = panel->unit,
                                 .lines = lines,
                                 .line_count = count,
                                 .from_zero = panel->from_zero,
                                 .percent = panel->percent});
    for (i64 i = 0; i < count; i++) {
        series_release(&all[i]);
        memory_free(names[i]);
    }
    memory_free(about);
    memory_free(all);
    memory_free(lines);
    memory_free(names);
}

bool stage_trained(const struct page *p, const char *stage)
{
    for (i64 r = 0; r < p->run_count; r++) {
        const struct run_stage *s = run_find(&p->runs[r], stage);
        if (s && s->metrics.count)
            return true;
    }
    return false;
}

int line_colour(const char *name)
{
    static const char *const names[][2] = {{"text", "0"},     {"vision", "1"},    {"audio", "2"},
                                           {"mtp", "7"},      {"image-out", "1"}, {"video-out", "6"},
                                           {"image-in", "4"}, {"video-in", "5"}};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strcmp(name, names[i][0]) == 0)
            return names[i][1][0] - '0';
    return 3;
}

/* ---- Tables ---- */

void table_open(struct page *p, const char *const *heads, i64 count)
{
    buffer_printf(&p->html, "<div class='wide' tabindex='0'><table><tr>");
    for (i64 i = 0; i < count; i++)
        html_element(&p->html, "th", *heads[i] == '<' ? "w" : NULL, "%s", heads[i] + (*heads[i] == '<'));
    buffer_printf(&p->html, "</tr>");
}

void cell_words(struct page *p, const char *format, ...)
{
    char words[512];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    html_element(&p->html, "td", NULL, "%s", words);
}

void cell_figure(struct page *p, double value, enum unit unit, int digits)
{
    buffer_printf(&p->html, "<td>");
    if (isfinite(value))
        put_figure(&p->html, value, unit, digits);
    buffer_printf(&p->html, "</td>");
}

void cell_interval(struct page *p, double low, double high)
{
    buffer_printf(&p->html, "<td>");
    if (isfinite(low) && isfinite(high))
        buffer_printf(&p->html, "%.0f to %.0f\u00a0%%", 100 * low, 100 * high);
    buffer_printf(&p->html, "</td>");
}

void table_close(struct page *p)
{
    buffer_printf(&p->html, "</table></div>");
}

/* ---- Folds and rows ---- */

void fold_open(struct page *p, const char *format, ...)
{
    char summary[512];
    va_list list;
    va_start(list, format);
    vsnprintf(summary, sizeof summary, format, list);
    va_end(list);
    buffer_printf(&p->html, "<details class='more'>");
    html_element(&p->html, "summary", NULL, "%s", summary);
}

void fold_close(struct page *p)
{
    buffer_printf(&p->html, "</details>");
}

void row_open(struct page *p, const char *class)
{
    buffer_printf(&p->html, "<div class='%s row' tabindex='0'>", class);
}

/* ---- Media ---- */

bool put_medium(struct page *p, const struct run_stage *stage, const char *file, const char *about)
{
    char *path = stage_file(stage, file);
    const char *end = path ? strrchr(path, '.') : NULL;
    bool video = end && strcmp(end, ".mp4") == 0, sound = end && strcmp(end, ".wav") == 0;
    i64 begin = p->html.length;
    buffer_printf(&p->html, "<%s", video ? "video autoplay loop muted playsinline" : sound ? "audio controls" : "img");
    buffer_printf(&p->html, video || sound ? " aria-label='" : " alt='");
    html_text(&p->html, about);
    buffer_printf(&p->html, "' src='");
    bool there = path && html_data_uri(&p->html, path) == 0;
    if (there)
        buffer_printf(&p->html, video ? "'></video>" : sound ? "'></audio>" : "'>");
    else
        truncate_text(&p->html, begin);
    memory_free(path);
    return there;
}
