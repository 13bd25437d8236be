#include "train/report.h"

#include "core/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const colours[] = {"#2563eb", "#d97706", "#059669", "#dc2626",
                                      "#7c3aed", "#0891b2", "#be185d", "#4d7c0f"};
static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#1f2937;background:#f8fafc}"
    "main{max-width:1080px;margin:0 auto;padding:16px}h1{margin:.2em 0}h2{margin:1.8em 0 .4em;border-bottom:1px solid "
    "#cbd5e1}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:14px}"
    ".card{background:#fff;border:1px solid #e2e8f0;border-radius:8px;padding:10px}"
    "table{border-collapse:collapse;width:100%;background:#fff;font-size:14px}td,th{padding:4px 8px;text-align:right;"
    "border-bottom:1px solid #e2e8f0}td:first-child,th:first-child{text-align:left}.wide{overflow-x:auto}"
    "svg{width:100%;height:auto;background:#fff}svg .g{stroke:#e2e8f0}svg .t{font:12px "
    "system-ui,sans-serif;fill:#475569}"
    "svg .h{font:bold 14px system-ui,sans-serif;fill:#1f2937}svg .e{text-anchor:end}svg .m{text-anchor:middle}"
    "svg .l{fill:none;stroke-width:1.6}code{background:#e2e8f0;border-radius:4px;padding:1px 5px;font-size:13px;"
    "overflow-wrap:anywhere}.media{display:flex;flex-wrap:wrap;gap:12px}figure{margin:0;width:150px;font-size:13px}"
    "figure img,figure video{width:72px;height:72px;image-rendering:auto;border:1px solid #e2e8f0;border-radius:4px}"
    "audio{width:148px;height:32px}img.sheet{max-width:100%;max-height:420px}.muted{color:#64748b;font-size:14px}"
    "@media(prefers-color-scheme:dark){body{background:#0f172a;color:#e2e8f0}.card,table,svg{background:#f8fafc;color:#"
    "1f2937}"
    "code{background:#334155}}";

struct page {
    const char *run;
    struct text html;
};

static void escaped(struct text *out, const char *text)
{
    for (; text && *text; text++)
        switch (*text) {
        case '<':
            text_printf(out, "&lt;");
            break;
        case '>':
            text_printf(out, "&gt;");
            break;
        case '&':
            text_printf(out, "&amp;");
            break;
        case '"':
            text_printf(out, "&quot;");
            break;
        default:
            text_append(out, text, 1);
        }
}

static void base64(struct text *out, const u8 *data, i64 n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (i64 i = 0; i < n; i += 3) {
        u32 v = (u32)data[i] << 16 | (i + 1 < n ? (u32)data[i + 1] << 8 : 0) | (i + 2 < n ? data[i + 2] : 0);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        text_append(out, four, 4);
    }
}

/* ---- What a run left behind ---- */

static struct json *load(const struct page *p, const char *stage, const char *name)
{
    char *path = string_format("%s/%s/%s", p->run, stage, name);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    memory_free(path);
    return j;
}

struct table { /* columns of a metrics.jsonl */
    struct json **lines;
    i64 count, capacity;
};

static void table_push(struct table *t, struct json *line)
{
    if (t->count == t->capacity) {
        i64 next = max_i64(256, 2 * t->capacity);
        t->lines = memory_resize(t->lines, t->capacity * 8, next * 8);
        t->capacity = next;
    }
    t->lines[t->count++] = line;
}

static void table_release(struct table *t)
{
    for (i64 i = 0; i < t->count; i++)
        json_free(t->lines[i]);
    memory_free(t->lines);
    *t = (struct table){0};
}

static struct table load_lines(const char *path)
{
    struct table t = {0};
    struct text content = {0};
    if (file_exists(path) && file_read(&content, path) == 0)
        for (char *line = content.data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
            struct json *j = json_parse(line, end - line, path);
            if (j)
                table_push(&t, j);
        }
    text_release(&content);
    return t;
}

static double *column(const struct table *t, const char *name)
{
    double *out = memory_alloc(max_i64(t->count, 1) * 8);
    for (i64 i = 0; i < t->count; i++)
        out[i] = json_number(json_get(t->lines[i], name), NAN);
    return out;
}

static bool has_column(const struct table *t, const char *name)
{
    for (i64 i = 0; i < t->count; i++)
        if (json_get(t->lines[i], name))
            return true;
    return false;
}

static void chart_of(struct page *p, const struct table *t, const char *title, const char *y_label,
                     const char *const *names, const char *const *labels)
{
    struct chart_line lines[8];
    int n = 0;
    double *x = column(t, "step"), *ys[8];
    for (int i = 0; names[i] && n < 8; i++)
        if (has_column(t, names[i])) {
            ys[n] = column(t, names[i]);
            lines[n] = (struct chart_line){labels[i], colours[i % 8], x, ys[n], t->count};
            n++;
        }
    if (n) {
        text_printf(&p->html, "<div class='card'>");
        chart_svg(&p->html, &(struct chart){title, "step", y_label, lines, n, false});
        text_printf(&p->html, "</div>");
    }
    for (int i = 0; i < n; i++)
        memory_free(ys[i]);
    memory_free(x);
}

static void section(struct page *p, const char *title, const char *command)
{
    text_printf(&p->html, "<h2>%s</h2>", title);
    if (command) {
        text_printf(&p->html, "<p class='muted'>made by <code>");
        escaped(&p->html, command);
        text_printf(&p->html, "</code></p>");
    }
}

static void data_uri(struct page *p, const char *path, const char *type)
{
    struct file_view view;
    if (file_map(&view, path))
        return;
    text_printf(&p->html, "data:%s;base64,", type);
    base64(&p->html, view.data, view.bytes);
    file_unmap(&view);
}

static void medium(struct page *p, const char *stage, const char *name)
{
    char *path = string_format("%s/%s/%s", p->run, stage, name);
    const char *end = strrchr(name, '.');
    if (!file_exists(path) || !end) {
        memory_free(path);
        return;
    }
    bool sound = strcmp(end, ".wav") == 0, video = strcmp(end, ".mp4") == 0;
    text_printf(&p->html, sound   ? "<audio controls preload='none' src='"
                          : video ? "<video autoplay loop muted playsinline src='"
                                  : "<img alt='' src='");
    data_uri(p, path, sound ? "audio/wav" : video ? "video/mp4" : "image/png");
    text_printf(&p->html, sound ? "'></audio>" : video ? "'></video>" : "'>");
    memory_free(path);
}

/* ---- Sections ---- */

static void timings(struct page *p)
{
    char *path = path_join(p->run, "timings.jsonl");
    struct table t = load_lines(path);
    double total = 0;
    if (t.count) {
        section(p, "Stages", NULL);
        text_printf(&p->html, "<div class='wide'><table><tr><th>stage</th><th>kind</th><th>seconds</th><th>peak "
                              "memory, MiB</th><th>matrix peak, GFLOP/s</th></tr>");
        for (i64 i = 0; i < t.count; i++) {
            const struct json *j = t.lines[i];
            total += json_number(json_get(j, "seconds"), 0);
            text_printf(&p->html, "<tr><td>%s</td><td>%s</td><td>%.0f</td><td>%.0f</td><td>%.0f</td></tr>",
                        json_string(json_get(j, "stage"), ""), json_string(json_get(j, "kind"), ""),
                        json_number(json_get(j, "seconds"), 0), json_number(json_get(j, "peak_bytes"), 0) / (1 << 20),
                        json_number(json_get(j, "matrix_peak_gflops"), 0));
        }
        text_printf(&p->html, "<tr><th>all</th><td></td><th>%.0f</th><td></td><td></td></tr></table></div>", total);
    }
    table_release(&t);
    memory_free(path);
}

static void training(struct page *p, const char *stage)
{
    static const char *const losses[] = {"loss/text", "loss/mtp", "loss/vision", "loss/audio", NULL};
    static const char *const loss_labels[] = {"text", "mtp", "vision", "audio", NULL};
    static const char *const speed[] = {"tokens_per_s", NULL}, *const speed_labels[] = {"tokens/s", NULL};
    static const char *const share[] = {"peak_share", NULL}, *const share_labels[] = {"share of the matrix peak", NULL};
    static const char *const norm[] = {"grad_norm", NULL}, *const norm_labels[] = {"gradient norm", NULL};
    char *path = string_format("%s/%s/metrics.jsonl", p->run, stage), *title = string_format("Training: %s", stage);
    char *command = string_format("weft run RECIPE %s", stage);
    struct table t = load_lines(path);
    if (t.count && has_column(&t, "loss/text")) {
        section(p, title, command);
        text_printf(&p->html, "<div class='grid'>");
        chart_of(p, &t, "Loss by target kind", "nats", losses, loss_labels);
        chart_of(p, &t, "Speed", "tokens/s", speed, speed_labels);
        chart_of(p, &t, "Share of the matrix peak", "", share, share_labels);
        chart_of(p, &t, "Gradient norm", "", norm, norm_labels);
        text_printf(&p->html, "</div>");
    }
    table_release(&t);
    memory_free(path);
    memory_free(title);
    memory_free(command);
}

static double loss_at(const struct json *list, const char *stream, const char *target, const char *key)
{
    for (i64 i = 0; i < json_count(list); i++) {
        const struct json *j = json_at(list, i);
        if (strcmp(json_string(json_get(j, "stream"), ""), stream) == 0 &&
            strcmp(json_string(json_get(j, "target"), ""), target) == 0)
            return json_number(json_get(j, key), NAN);
    }
    return NAN;
}

static void heldout(struct page *p, const char *stage)
{
    struct json *j = load(p, stage, "heldout.json");
    const struct json *end = json_get(j, "end"), *start = json_get(j, "start");
    if (end) {
        text_printf(&p->html,
                    "<h3>Held-out loss: %s</h3><div "
                    "class='wide'><table><tr><th>stream</th><th>target</th><th>start</th><th>end</th><th>unigram "
                    "entropy</th></tr>",
                    stage);
        for (i64 i = 0; i < json_count(end); i++) {
            const struct json *e = json_at(end, i);
            const char *stream = json_string(json_get(e, "stream"), ""),
                       *target = json_string(json_get(e, "target"), "");
            text_printf(&p->html, "<tr><td>%s</td><td>%s</td><td>%.3f</td><td><b>%.3f</b></td><td>%.3f</td></tr>",
                        stream, target, loss_at(start, stream, target, "loss"), json_number(json_get(e, "loss"), NAN),
                        json_number(json_get(e, "unigram"), NAN));
        }
        text_printf(&p->html, "</table></div>");
    }
    json_free(j);
}

/* Any list of flat objects as a table: the columns of its first row. */
static void plain_table(struct page *p, const struct json *list)
{
    struct json_iterator it;
    struct text cell = {0};
    text_printf(&p->html, "<div class='wide'><table><tr>");
    for (bool more = json_first(&it, json_at(list, 0)); more; more = json_next(&it, json_at(list, 0)))
        text_printf(&p->html, "<th>%s</th>", it.key);
    text_printf(&p->html, "</tr>");
    for (i64 i = 0; i < json_count(list); i++) {
        text_printf(&p->html, "<tr>");
        for (bool more = json_first(&it, json_at(list, i)); more; more = json_next(&it, json_at(list, i))) {
            text_clear(&cell);
            if (json_kind(it.value) == JSON_REAL)
                text_printf(&cell, "%.4g", json_number(it.value, 0));
            else if (json_kind(it.value) == JSON_STRING)
                text_printf(&cell, "%s", json_string(it.value, ""));
            else
                json_print(&cell, it.value, 0);
            text_printf(&p->html, "<td>");
            escaped(&p->html, cell.data);
            text_printf(&p->html, "</td>");
        }
        text_printf(&p->html, "</tr>");
    }
    text_printf(&p->html, "</table></div>");
    text_release(&cell);
}

static void grid(struct page *p, const char *stage)
{
    struct json *j = load(p, stage, "grid.json");
    const struct json *points = json_kind(j) == JSON_ARRAY ? j : json_get(j, "points");
    if (json_count(points)) {
        section(p, "Sub-models", "weft grid MODEL --data SHARDS");
        plain_table(p, points);
    }
    json_free(j);
}

static void routing(struct page *p, const char *stage)
{
    char *folder = path_join(p->run, stage), **names;
    i64 count;
    struct json *j = load(p, stage, "routing.json");
    if (j && directory_list(&names, &count, folder) == 0) {
        section(p, "Routing: which experts each stream uses", "weft routing MODEL --data SHARDS -o DIR");
        text_printf(&p->html, "<div class='grid'>");
        for (i64 i = 0; i < count; i++) {
            const char *end = strrchr(names[i], '.');
            struct text svg = {0};
            char *path = path_join(folder, names[i]);
            if (end && strcmp(end, ".svg") == 0 && file_read(&svg, path) == 0) {
                const char *begin = strstr(svg.data, "<svg");
                text_printf(&p->html, "<div class='card'>%s</div>", begin ? begin : "");
            }
            text_release(&svg);
            memory_free(path);
        }
        text_printf(&p->html, "</div>");
        string_list_free(names, count);
    }
    json_free(j);
    memory_free(folder);
}

static void shown_items(struct page *p, const char *stage, const struct json *shown)
{
    text_printf(&p->html, "<div class='media'>");
    for (i64 i = 0; i < json_count(shown); i++) {
        const struct json *one = json_at(shown, i);
        text_printf(&p->html, "<figure>");
        if (json_get(one, "made")) {
            medium(p, stage, json_string(json_get(one, "original"), ""));
            text_printf(&p->html, " ");
            medium(p, stage, json_string(json_get(one, "made"), ""));
        }
        text_printf(&p->html, "<figcaption>");
        escaped(&p->html, json_string(json_get(one, "text"), ""));
        if (json_get(one, "said")) {
            text_printf(&p->html, " &rarr; <b>");
            escaped(&p->html, json_string(json_get(one, "said"), ""));
            text_printf(&p->html, "</b>");
        }
        text_printf(&p->html, "</figcaption></figure>");
    }
    text_printf(&p->html, "</div>");
}

static void samples(struct page *p, const char *stage)
{
    struct json *j = load(p, stage, "samples.json");
    struct json_iterator it;
    if (!j)
        return;
    section(p, "Samples: original above, made from its caption below",
            "weft generate MODEL --prompt TEXT --to image -o FILE");
    for (bool more = json_first(&it, j); more; more = json_next(&it, j)) {
        const struct json *v = it.value;
        if (json_kind(v) == JSON_ARRAY) {
            for (i64 i = 0; i < json_count(v); i++) {
                text_printf(&p->html, "<p><i>");
                escaped(&p->html, json_string(json_get(json_at(v, i), "prompt"), ""));
                text_printf(&p->html, "</i> ");
                escaped(&p->html, json_string(json_get(json_at(v, i), "said"), ""));
                text_printf(&p->html, "</p>");
            }
            continue;
        }
        text_printf(&p->html, "<h3>%s</h3><p class='muted'>", it.key);
        if (json_get(v, "pair"))
            text_printf(&p->html, "nearer to its own original than to another's: %.1f %%; nearest of all %lld: %lld",
                        100 * json_number(json_get(v, "pair"), 0), (long long)json_integer(json_get(v, "captions"), 0),
                        (long long)json_integer(json_get(v, "first"), 0));
        else
            text_printf(&p->html, "word for word: %lld of %lld", (long long)json_integer(json_get(v, "exact"), 0),
                        (long long)json_integer(json_get(v, "media"), 0));
        text_printf(&p->html, "</p>");
        shown_items(p, stage, json_get(v, "shown"));
    }
    json_free(j);
}

static void tokenizer(struct page *p, const char *stage)
{
    char *folder = string_format("%s/%s/samples", p->run, stage), **names,
         *title = string_format("Tokenizer: %s", stage);
    struct json *j = load(p, stage, "report.json");
    struct text dump = {0};
    i64 count;
    if (j && file_is_directory(folder) && directory_list(&names, &count, folder) == 0) {
        section(p, title, "weft reconstruct MODEL FILE... -o DIR");
        json_print(&dump, j, 2);
        text_printf(&p->html, "<details><summary>report.json</summary><pre>");
        escaped(&p->html, dump.data);
        text_printf(&p->html, "</pre></details><div class='media'>");
        for (i64 i = 0, sounds = 0; i < count; i++) {
            char *inside = path_join("samples", names[i]);
            const char *end = strrchr(names[i], '.');
            bool picture = end && strcmp(end, ".png") == 0, sound = end && strcmp(end, ".wav") == 0;
            char *path = string_format("%s/%s", folder, names[i]);
            if (picture) {
                text_printf(&p->html, "<div><div class='muted'>%s</div><img class='sheet' alt='' src='", names[i]);
                data_uri(p, path, "image/png");
                text_printf(&p->html, "'></div>");
            } else if (sound && sounds++ < 12) {
                text_printf(&p->html, "<figure>");
                medium(p, stage, inside);
                text_printf(&p->html, "<figcaption>%s</figcaption></figure>", names[i]);
            }
            memory_free(path);
            memory_free(inside);
        }
        text_printf(&p->html, "</div>");
        string_list_free(names, count);
    }
    text_release(&dump);
    json_free(j);
    memory_free(folder);
    memory_free(title);
}

static void reinforcement(struct page *p, const char *stage)
{
    static const char *const reward[] = {"reward", "eval_reward", NULL}, *const reward_labels[] = {"reward", "held-out",
                                                                                                   NULL};
    static const char *const others[] = {"entropy", "clipped", NULL}, *const other_labels[] = {"entropy",
                                                                                               "clipped share", NULL};
    char *path = string_format("%s/%s/metrics.jsonl", p->run, stage);
    struct table t = load_lines(path);
    struct json *j = load(p, stage, "rl.json");
    if (j || has_column(&t, "reward")) {
        section(p, "Reinforcement learning", "weft run RECIPE rl");
        if (j) {
            struct text line = {0};
            json_print(&line, j, 0);
            text_printf(&p->html, "<p class='muted'>");
            escaped(&p->html, line.data);
            text_printf(&p->html, "</p>");
            text_release(&line);
        }
        text_printf(&p->html, "<div class='grid'>");
        chart_of(p, &t, "Mean reward", "", reward, reward_labels);
        chart_of(p, &t, "Entropy and clipped share", "", others, other_labels);
        text_printf(&p->html, "</div>");
    }
    json_free(j);
    table_release(&t);
    memory_free(path);
}

static void for_stages(struct page *p, char **names, i64 count, void (*write)(struct page *, const char *))
{
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(p->run, names[i]);
        if (file_is_directory(path) && !strstr(names[i], ".partial"))
            write(p, names[i]);
        memory_free(path);
    }
}

int report_write(const char *run, const char *out)
{
    static void (*const parts[])(struct page *, const char *) = {samples,       training, heldout,  grid,
                                                                 reinforcement, routing,  tokenizer};
    struct page p = {.run = run};
    char **names;
    i64 count;
    char *made = path_join(run, "run.json");
    bool is_run = file_exists(made);
    memory_free(made);
    if (!is_run)
        return error_set("%s: no run.json there: expected the folder of a run", run);
    if (directory_list(&names, &count, run))
        return -1;
    text_printf(&p.html,
                "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' "
                "content='width=device-width,initial-scale=1'>"
                "<title>Weft: %s</title><style>%s</style><main><h1>Weft</h1><p>media &rarr; tokens &rarr; one elastic "
                "mixture of experts "
                "&rarr; sub-models &rarr; reinforcement learning &rarr; a look at the routing. Run folder <code>",
                run, style);
    escaped(&p.html, run);
    text_printf(&p.html, "</code></p>");
    timings(&p);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        for_stages(&p, names, count, parts[i]);
    text_printf(&p.html, "</main></html>\n");
    string_list_free(names, count);
    int status = file_replace(out, p.html.data, p.html.length);
    text_release(&p.html);
    return status;
}
