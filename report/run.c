#include "report/run.h"

#include "core/inventory.h"
#include "core/safetensors.h"
#include "report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Files ---- */

/* A file may be looked at several times. */
static void warn_once(void)
{
    static char *told;
    if (told && strcmp(told, error_text()) == 0)
        return;
    memory_free(told);
    told = string_copy(error_text());
    log_warn("%s: left out of the page", told);
}

static struct json *load(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    if (!j && file_exists(path))
        warn_once();
    memory_free(path);
    return j;
}

static void push_line(struct json_lines *all, struct json *line)
{
    if (all->count == all->capacity) {
        i64 next = max_i64(256, 2 * all->capacity);
        all->list = memory_resize(all->list, all->capacity * 8, next * 8);
        all->capacity = next;
    }
    all->list[all->count++] = line;
}

/* Reads a .jsonl file. Damaged lines are named. A writer at work may have written a part of its last line;
 * complete: there is none. */
static struct json_lines load_lines(const char *folder, const char *name, bool complete)
{
    struct json_lines all = {0};
    struct buffer content = {0};
    char *path = path_join(folder, name);
    i64 number = 0;
    if (file_exists(path) && file_read(&content, path) < 0)
        warn_once();
    char *line = content.data;
    for (char *end; line && (end = strchr(line, '\n')); line = end + 1) {
        struct json *j = json_parse_line(line, end - line, path, ++number);
        if (j && json_unseal(j, path) == 0) {
            push_line(&all, j);
            continue;
        }
        log_warn("%s (line %lld): left out of the page", error_text(), (long long)number);
        json_free(j);
    }
    if (complete && line && line < content.data + content.length)
        log_warn("%s: line %lld is incomplete: left out of the page", path, (long long)number + 1);
    buffer_release(&content);
    memory_free(path);
    return all;
}

static void lines_release(struct json_lines *all)
{
    for (i64 i = 0; i < all->count; i++)
        json_free(all->list[i]);
    memory_free(all->list);
}

struct json *stage_json(const struct run_stage *stage, const char *file)
{
    return load(stage->folder, file);
}

bool run_leaves_folder(const char *name)
{
    size_t n = strlen(name);
    return *name == 0 || *name == '/' || strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 ||
           strstr(name, "/../") || (n > 2 && strcmp(name + n - 3, "/..") == 0);
}

char *stage_file(const struct run_stage *stage, const char *name)
{
    char *path = name && !run_leaves_folder(name) ? path_join(stage->folder, name) : NULL;
    if (path && file_exists(path) && !file_is_directory(path))
        return path;
    memory_free(path);
    return NULL;
}

/* ---- Stages ---- */

/* begun: what is known of a stage whose folder does not say what it is; NULL: nothing. */
static bool add_stage(struct run *run, const char *name, const char *folder, bool finished, const struct json *begun)
{
    struct run_stage s = {.finished = finished,
                          .seconds = NAN,
                          .peak_gflops = NAN,
                          .peak_bytes = NAN,
                          .begun_at = NAN,
                          .ended_at = NAN,
                          .seen_at = NAN};
    struct json *about = load(folder, finished ? "done.json" : "identity.json");
    if (finished && inventory_check(folder) < 0)
        warn_once();
    if (!about && begun)
        about = json_copy(begun);
    if (!about)
        return false;
    if (finished && json_get(about, "skipped")) {
        json_set(run->skipped, name, json_copy(json_get(about, "skipped")));
        json_free(about);
        return true;
    }
    s.identity = json_copy(finished ? json_get(about, "identity") : about);
    if (!finished && strcmp(stage_kind(&s), "report") == 0) { /* the report being written now */
        json_free(about);
        json_free(s.identity);
        return false;
    }
    s.name = string_copy(name);
    s.folder = string_copy(folder);
    s.metrics = load_lines(folder, "metrics.jsonl", finished);
    json_free(about);
    run->stages = memory_resize(run->stages, run->count * (i64)sizeof s, (run->count + 1) * (i64)sizeof s);
    run->stages[run->count++] = s;
    return true;
}

/* Adds NAME/ if it is finished, else NAME.partial/, else a stage that `begun` says was begun. */
static void find_stage(struct run *run, const char *name, const struct json *begun)
{
    char *folder = path_join(run->path, name), *partial = string_format("%s.partial", folder);
    if (!run_find(run, name) && !add_stage(run, name, folder, true, NULL))
        add_stage(run, name, partial, false, begun);
    memory_free(folder);
    memory_free(partial);
}

/* Adds a line of timings.jsonl. An interrupted and resumed stage has several lines, which are
 * summed; a line after a finished one means that the stage was run again. */
static void add_timing(struct run *run, const struct json *line)
{
    const char *name = json_string(json_get(line, "stage"), "");
    for (i64 i = 0; i < run->count; i++) {
        struct run_stage *s = &run->stages[i];
        if (strcmp(s->name, name) != 0)
            continue;
        if (s->anew)
            s->seconds = s->peak_bytes = NAN;
        s->anew = json_bool(json_get(line, "finished"), false);
        if (json_get(line, "begun"))
            continue;
        double peak = json_number(json_get(line, "matrix_peak_gflops"), 0);
        s->seconds = json_number(json_get(line, "seconds"), NAN) + (isfinite(s->seconds) ? s->seconds : 0);
        s->peak_bytes = fmax(s->peak_bytes, json_number(json_get(line, "peak_bytes"), NAN));
        s->peak_gflops = peak > 0 ? peak : NAN;
    }
}

/* The stage's last line of timings.jsonl, NULL if that line finished the stage. A stage that fails
 * before it writes anything has no folder, but such a line. */
static const struct json *line_of_begun(const struct json_lines *timings, const char *name)
{
    const struct json *last = NULL;
    for (i64 i = 0; i < timings->count; i++)
        if (strcmp(json_string(json_get(timings->list[i], "stage"), ""), name) == 0)
            last = timings->list[i];
    return json_bool(json_get(last, "finished"), false) ? NULL : last;
}

/* Stages in timings.jsonl come first, in its order, then the others by name. */
static int find_stages(struct run *run)
{
    struct json_lines timings = load_lines(run->path, "timings.jsonl", true);
    char **names;
    i64 count;
    for (i64 i = 0; i < timings.count; i++) {
        const char *name = json_string(json_get(timings.list[i], "stage"), "");
        if (!run_leaves_folder(name))
            find_stage(run, name, line_of_begun(&timings, name));
    }
    int status = directory_list(&names, &count, run->path);
    for (i64 i = 0; i < count && status == 0; i++) {
        char *dot = strstr(names[i], ".partial");
        if (dot && dot[8] == 0)
            *dot = 0;
        find_stage(run, names[i], NULL);
    }
    if (status == 0)
        string_list_free(names, count);
    if (timings.count == 0 && run->count)
        log_warn("%s/timings.jsonl: no lines there: the page has no times", run->path);
    for (i64 i = 0; i < timings.count; i++)
        add_timing(run, timings.list[i]);
    for (i64 i = 0; i < run->count; i++)
        stage_find_state(&run->stages[i], &timings);
    lines_release(&timings);
    return status;
}

static char *last_part(const char *path)
{
    char *full = realpath(path, NULL), *slash = full ? strrchr(full, '/') : NULL;
    char *name = string_copy(slash && slash[1] ? slash + 1 : path);
    free(full);
    return name;
}

int run_open(struct run *run, const char *path)
{
    *run = (struct run){.path = string_copy(path), .name = last_part(path), .skipped = json_object()};
    char *file = path_join(path, "run.json");
    int status = file_exists(file) ? 0 : error_set("%s: no run.json there: expected the folder of a run", path);
    run->about = status ? NULL : load(path, "run.json");
    if (json_get(run->about, "arm"))
        run->arm = string_copy(json_string(json_get(run->about, "arm"), ""));
    run->has_seed = json_get(run->about, "seed") != NULL;
    run->seed = json_integer(json_get(run->about, "seed"), 0);
    if (status == 0)
        status = find_stages(run);
    memory_free(file);
    return status;
}

void runs_tell_apart(struct run *runs, i64 count)
{
    char **names = memory_alloc(max_i64(count, 1) * (i64)sizeof *names);
    for (i64 i = 0; i < count; i++) {
        bool shared = false;
        for (i64 k = 0; k < count; k++)
            shared |= k != i && strcmp(runs[i].name, runs[k].name) == 0;
        names[i] = shared ? string_format("%s (%lld)", runs[i].name, (long long)i + 1) : string_copy(runs[i].name);
    }
    for (i64 i = 0; i < count; i++) {
        memory_free(runs[i].name);
        runs[i].name = names[i];
    }
    memory_free(names);
}

void run_close(struct run *run)
{
    for (i64 i = 0; i < run->count; i++) {
        struct run_stage *s = &run->stages[i];
        json_free(s->identity);
        lines_release(&s->metrics);
        memory_free(s->name);
        memory_free(s->folder);
        memory_free(s->error);
        memory_free(s->host);
    }
    json_free(run->about);
    json_free(run->skipped);
    memory_free(run->stages);
    memory_free(run->path);
    memory_free(run->name);
    memory_free(run->arm);
    *run = (struct run){0};
}

void run_put_skipped(struct buffer *out, const struct run *run)
{
    struct json_iterator it;
    for (bool more = json_first(&it, run->skipped); more; more = json_next(&it, run->skipped))
        buffer_printf(out, "%s%s (%s)", out->length ? ", " : "", it.key, json_string(it.value, ""));
}

void put_streams(struct buffer *out, const struct json *counts)
{
    const char *between = "";
    struct json_iterator it;
    for (bool more = json_first(&it, counts); more; more = json_next(&it, counts)) {
        buffer_printf(out, "%s%lld %s", between, (long long)json_integer(it.value, 0), it.key);
        between = ", ";
    }
}

/* Elements of the tensors of a model directory: the backbone's, then encoders and heads of media. */
static i64 parameters_in(const char *folder)
{
    char *extra = path_join(folder, "weft/extra.safetensors");
    struct safetensors set;
    i64 sum = 0;
    for (int k = 0; k < 2; k++) {
        if (k && !file_exists(extra))
            continue;
        if (k ? safetensors_open(&set, extra) : safetensors_open_model(&set, folder)) {
            log_warn("%s: its parameters are not counted", error_text());
            continue;
        }
        for (i64 i = 0; i < set.count; i++)
            sum += tensor_view_elements(&set.tensors[i]);
        safetensors_close(&set);
    }
    memory_free(extra);
    return sum;
}

bool run_put_model(struct buffer *out, const struct run *run, const struct run_stage *stage)
{
    const struct run_stage *s = stage;
    struct json *config = stage_json(s, "config.json"), *heldout;
    /* Each step leads to an earlier stage of a sane run; the bound ends circles of other folders. */
    for (i64 i = 0; i < run->count && !json_get(config, "num_hidden_layers"); i++) {
        json_free(config);
        s = run_find(run, json_string(json_get(json_get(s->identity, "settings"), "from"), ""));
        config = s ? stage_json(s, "config.json") : NULL;
        if (!s)
            break;
    }
    double layers = number_at(config, "num_hidden_layers"), experts = number_at(config, "moe_num_experts");
    if (isfinite(layers)) {
        buffer_printf(out, "%.0f layers", layers);
        if (experts > 0)
            buffer_printf(out, ", %.0f experts, top-%.0f", experts, fmax(number_at(config, "moe_k"), 1));
        heldout = stage_json(s, "heldout.json");
        double parameters = number_at(heldout, "parameters");
        if (!isfinite(parameters))
            parameters = (double)parameters_in(s->folder);
        if (parameters > 0) {
            buffer_printf(out, ", ");
            put_figure(out, parameters, UNIT_COUNT, 0);
            buffer_printf(out, " parameters");
        }
        json_free(heldout);
    }
    json_free(config);
    return isfinite(layers);
}

const struct run_stage *run_find(const struct run *run, const char *name)
{
    for (i64 i = 0; i < run->count; i++)
        if (strcmp(run->stages[i].name, name) == 0)
            return &run->stages[i];
    return NULL;
}

const char *stage_kind(const struct run_stage *stage)
{
    return json_string(json_get(stage->identity, "kind"), "");
}

/* ---- Values ---- */

double number_at(const struct json *object, const char *key)
{
    return json_number(json_get(object, key), NAN);
}

static bool same_string(const struct json *a, const struct json *b, const char *key)
{
    return strcmp(json_string(json_get(a, key), ""), json_string(json_get(b, key), "")) == 0;
}

const struct json *same_target(const struct json *list, const struct json *as)
{
    for (i64 i = 0; i < json_count(list); i++)
        if (same_string(json_at(list, i), as, "stream") && same_string(json_at(list, i), as, "target"))
            return json_at(list, i);
    return NULL;
}

void share_interval(double *low, double *high, double share, double n)
{
    const double z = 1.96;
    double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
    double reach = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
    *low = n > 0 ? fmax(middle - reach, 0) : NAN;
    *high = n > 0 ? fmin(middle + reach, 1) : NAN;
}

struct metric_series series_of(const struct json_lines *lines, const char *key)
{
    struct metric_series s = {memory_alloc(max_i64(lines->count, 1) * 8), memory_alloc(max_i64(lines->count, 1) * 8),
                              0};
    for (i64 i = 0; i < lines->count; i++) {
        double x = json_number(json_get(lines->list[i], "step"), NAN);
        double y = json_number(json_get(lines->list[i], key), NAN);
        if (isfinite(x) && isfinite(y)) {
            s.x[s.n] = x;
            s.y[s.n++] = y;
        }
    }
    return s;
}

void series_release(struct metric_series *s)
{
    memory_free(s->x);
    memory_free(s->y);
    *s = (struct metric_series){0};
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double series_median(const struct metric_series *s)
{
    if (s->n == 0)
        return NAN;
    double *sorted = memory_alloc(s->n * 8);
    memcpy(sorted, s->y, (size_t)s->n * 8);
    qsort(sorted, (size_t)s->n, 8, by_size);
    double median = s->n % 2 ? sorted[s->n / 2] : (sorted[s->n / 2 - 1] + sorted[s->n / 2]) / 2;
    memory_free(sorted);
    return median;
}

double stage_gflops(const struct run_stage *s)
{
    struct metric_series gflops = series_of(&s->metrics, "gflops_per_s"), share = series_of(&s->metrics, "peak_share");
    double median = gflops.n ? series_median(&gflops) : series_median(&share) * s->peak_gflops;
    series_release(&gflops);
    series_release(&share);
    return median;
}
