/* The grid of sub-models: loss against active parameters, and a table. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Value at KEY, which may name a target of "loss": "loss/text". */
static double value_of(const struct json *point, const char *key)
{
    return strncmp(key, "loss/", 5) == 0 ? number_at(json_get(point, "loss"), key + 5) : number_at(point, key);
}

/* Index of the full model: the point with the most active parameters. */
static i64 full_of(const struct json *points)
{
    i64 full = 0;
    for (i64 i = 1; i < json_count(points); i++)
        if (number_at(json_at(points, i), "active") > number_at(json_at(points, full), "active"))
            full = i;
    return full;
}

struct grid_metric {
    const char *key, *title, *unit;
    int colour;
};

/* Marks sub-models by their number in the table; with several runs, by color. */
static i64 add_marks(struct chart_mark *marks, char (*names)[24], const struct json *points, const char *key,
                     int colour, bool numbered)
{
    i64 full = full_of(points);
    for (i64 i = 0; i < json_count(points); i++) {
        const struct json *point = json_at(points, i);
        if (i == full && numbered)
            snprintf(names[i], sizeof names[i], "full");
        else if (numbered)
            snprintf(names[i], sizeof names[i], "%lld", (long long)(i + 1));
        marks[i] = (struct chart_mark){names[i], number_at(point, "active"), value_of(point, key), colour, i == full};
    }
    return json_count(points);
}

static void put_plot(struct page *p, struct json *const *files, const struct grid_metric *plotted)
{
    i64 most = 1, count = 0;
    for (i64 r = 0; r < p->run_count; r++)
        most += json_count(files[r]);
    struct chart_mark *marks = memory_alloc(most * (i64)sizeof *marks);
    char(*names)[24] = memory_alloc(most * (i64)sizeof *names);
    for (i64 r = 0; r < p->run_count; r++)
        count += add_marks(marks + count, names + count, files[r], plotted->key,
                           p->run_count > 1 ? (int)r : plotted->colour, p->run_count == 1);
    char *about = string_format("%s of sub-models against their active parameters%s", plotted->title,
                                p->run_count > 1 ? "" : "; the table has the numbers");
    figure_chart(p, plotted->title,
                 &(struct chart){.about = about,
                                 .x_name = "active parameters",
                                 .y_name = plotted->unit,
                                 .marks = marks,
                                 .mark_count = count});
    memory_free(about);
    memory_free(marks);
    memory_free(names);
}

static void put_choice(struct page *p, const struct json *sub)
{
    const struct json *layers = json_get(sub, "layers"), *experts = json_get(sub, "experts");
    buffer_printf(&p->html, "<td>");
    if (json_count(layers))
        buffer_printf(&p->html, "%lld", (long long)json_count(layers));
    buffer_printf(&p->html, "</td><td>");
    if (json_kind(experts) == JSON_INTEGER)
        buffer_printf(&p->html, "%lld", (long long)json_integer(experts, 0));
    else if (json_count(experts))
        buffer_printf(&p->html, "%lld", (long long)json_count(json_at(experts, json_count(experts) - 1)));
    buffer_printf(&p->html, "</td>");
    cell_figure(p, number_at(sub, "topk"), UNIT_NUMBER, 0);
}

/* "1.85 (1.81\u20131.90)": the median of the rounds and their quartiles. */
static void put_ratio(struct page *p, const struct json *speed)
{
    buffer_printf(&p->html, "<td>%.2f (%.2f\u2013%.2f)</td>", number_at(speed, "ratio"), number_at(speed, "ratio_low"),
                  number_at(speed, "ratio_high"));
}

static void put_point(struct page *p, const struct json *point, i64 number, bool full, double rest, bool ratios)
{
    static const char *const losses[] = {"loss/text", "loss/vision", "loss/audio"};
    buffer_printf(&p->html, "<tr><td>%lld</td><td class='w'>%s", (long long)number, full ? "<b>" : "");
    html_text(&p->html, json_string(json_get(point, "name"), ""));
    buffer_printf(&p->html, "%s</td>", full ? "</b>" : "");
    put_choice(p, json_get(point, "submodel"));
    cell_figure(p, number_at(point, "parameters") + rest, UNIT_COUNT, 0);
    cell_figure(p, number_at(point, "active"), UNIT_COUNT, 0);
    for (i64 k = 0; k < COUNT_OF(losses); k++)
        cell_figure(p, value_of(point, losses[k]), UNIT_NUMBER, 3);
    cell_figure(p, number_at(point, "loss_all"), UNIT_NUMBER, 3);
    cell_figure(p, number_at(point, "tokens_per_s"), UNIT_COUNT, 0);
    if (ratios) {
        put_ratio(p, json_get(point, "decode"));
        cell_figure(p, number_at(json_get(point, "prefill"), "per_s"), UNIT_COUNT, 0);
        put_ratio(p, json_get(point, "prefill"));
    }
    buffer_printf(&p->html, "</tr>");
}

/* Grids of older programs leave encoders and heads of media out: the parameters of the model that the
 * grid measures tell how many these are. */
static double parameters_left_out(const struct run *run, const struct run_stage *grid, const struct json *full)
{
    const struct run_stage *from =
        run_find(run, json_string(json_get(json_get(grid->identity, "settings"), "from"), ""));
    struct json *heldout = from ? stage_json(from, "heldout.json") : NULL;
    double all = number_at(heldout, "parameters"), counted = number_at(full, "parameters");
    json_free(heldout);
    return all > counted ? all - counted : 0;
}

/* How layers and experts were chosen. Older programs did not write it. */
static void put_chosen(struct page *p, const struct json *points)
{
    const char *on = NULL;
    bool use = false, order = false;
    for (i64 i = 0; i < json_count(points); i++) {
        const char *chosen = json_string(json_get(json_at(points, i), "chosen"), "");
        use |= strcmp(chosen, "use") == 0;
        order |= strcmp(chosen, "order") == 0;
        if (strcmp(chosen, "data") == 0)
            on = json_string(json_get(json_at(points, i), "chosen_on"), "");
    }
    if (on) {
        buffer_printf(&p->html, "<p>Layers and experts that stay: those that samples of the part ");
        html_text(&p->html, on);
        buffer_printf(&p->html, " need most.</p>");
    } else if (use || order)
        buffer_printf(&p->html, "<p>Experts that stay: %s; layers: evenly spread.</p>",
                      use ? "those that training used most" : "the first of the order in which they were trained");
}

static void put_points(struct page *p, const struct run_stage *grid, const struct json *points)
{
    static const char *const heads[] = {"no.",          "<sub-model",       "layers",   "experts",       "top\u2011k",
                                        "parameters",   "active",           "all text", "vision",        "audio",
                                        "weighted sum", "decoded tokens/s", "of full",  "read tokens/s", "of full"};
    bool ratios = json_get(json_at(points, 0), "decode") != NULL; /* older programs measured none */
    i64 full = full_of(points);
    double rest = parameters_left_out(p->runs, grid, json_at(points, full));
    put_chosen(p, points);
    table_open(p, heads, COUNT_OF(heads) - (ratios ? 0 : 3));
    for (i64 i = 0; i < json_count(points); i++)
        put_point(p, json_at(points, i), i + 1, i == full, rest, ratios);
    table_close(p);
}

/* A row for each sub-model, a column for each loss that the full model has. */
static void put_losses_by_stream(struct page *p, const struct json *points)
{
    enum { COLUMNS_MOST = 24 };
    const char *heads[COLUMNS_MOST + 2] = {"no.", "<sub-model"};
    const struct json *full = json_get(json_at(points, full_of(points)), "streams");
    struct json_iterator it;
    i64 count = 2;
    for (bool more = json_first(&it, full); more && count < COUNT_OF(heads); more = json_next(&it, full))
        heads[count++] = it.key;
    if (count == 2) /* older programs wrote none */
        return;
    buffer_printf(&p->html, "<p>By stream: nats for each id of text, bit of a picture, or code of sound.</p>");
    table_open(p, heads, count);
    for (i64 i = 0; i < json_count(points); i++) {
        const struct json *point = json_at(points, i);
        buffer_printf(&p->html, "<tr><td>%lld</td><td class='w'>", (long long)(i + 1));
        html_text(&p->html, json_string(json_get(point, "name"), ""));
        buffer_printf(&p->html, "</td>");
        for (i64 k = 2; k < count; k++)
            cell_figure(p, number_at(json_get(point, "streams"), heads[k]), UNIT_NUMBER, 3);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
}

/* The colours of several runs. */
static void put_key(struct page *p)
{
    buffer_printf(&p->html, "<div class='key'>");
    for (i64 r = 0; r < p->run_count; r++) {
        buffer_printf(&p->html, "<span class='c%lld'><i></i>", (long long)(r % CHART_COLOURS));
        html_text(&p->html, p->runs[r].name);
        buffer_printf(&p->html, "</span>");
    }
    buffer_printf(&p->html, "</div>");
}

static void put_grid(struct page *p, const char *stage, struct json *const *files)
{
    static const struct grid_metric plots[] = {
        {"loss_all", "Weighted sum of losses", "nats", 4},
        {"loss/text", "Loss on text, captions and marks included", "nats a token", 0},
        {"loss/vision", "Loss on bits of pictures", "nats a bit", 1},
        {"loss/audio", "Loss on codes of sound", "nats a code", 2},
        {"tokens_per_s", "Speed of decoding one token after another", "tokens/s", 5}};
    const struct run_stage *s = NULL;
    for (i64 r = p->run_count - 1; r >= 0; r--)
        s = files[r] ? run_find(&p->runs[r], stage) : s;
    group_open(p, "%s: held-out loss against active parameters", stage);
    if (p->run_count > 1)
        put_key(p);
    buffer_printf(&p->html, "<div class='charts'>");
    for (i64 i = 0; i < COUNT_OF(plots); i++)
        put_plot(p, files, &plots[i]);
    buffer_printf(&p->html, "</div>");
    if (p->run_count == 1) {
        put_points(p, s, files[0]);
        put_losses_by_stream(p, files[0]);
    }
    group_close(p, s);
}

void put_submodels(struct page *p)
{
    struct json **files = memory_alloc(p->run_count * (i64)sizeof *files);
    section_open(
        p, "sub-models", "Sub-models",
        p->run_count > 1
            ? "One set of weights, run with fewer layers, fewer experts or a smaller top-k. Full models are ringed. "
              "Active parameters work on each token, without the embedding."
            : "One set of weights, run with fewer layers, fewer experts or a smaller top-k. The full model is ringed; "
              "numbers are those of the table. Active parameters work on each token, without the embedding. Losses are "
              "of held-out samples, in nats.");
    for (i64 i = 0; i < p->stage_count; i++) {
        i64 points = 0;
        for (i64 r = 0; r < p->run_count; r++) {
            const struct run_stage *s = run_find(&p->runs[r], p->stages[i]);
            files[r] = s ? stage_json(s, "grid.json") : NULL;
            points += json_kind(files[r]) == JSON_ARRAY ? json_count(files[r]) : 0;
        }
        if (points)
            put_grid(p, p->stages[i], files);
        for (i64 r = 0; r < p->run_count; r++)
            json_free(files[r]);
    }
    section_close(p);
    memory_free(files);
}
