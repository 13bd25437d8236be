#include "train/report.h"

#include "core/json.h"

#include <math.h>
#include <string.h>

const struct setting report_table[] = {SETTING(struct report_settings, after, "after", STRINGS, "", 0, 0, NULL,
                                               "stages it speaks of, for the reader; all are looked for"),
                                       {0}};

static struct json *load(const char *run, const char *stage, const char *name)
{
    char *path = string_format("%s/%s/%s", run, stage, name);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    memory_free(path);
    return j;
}

static void say_heldout(const char *stage, const struct json *heldout)
{
    struct text line = {0};
    const struct json *end = json_get(heldout, "end");
    for (i64 i = 0; i < json_count(end); i++) {
        const struct json *e = json_at(end, i);
        text_printf(&line, "%s %s/%s %.2f", i ? "," : "", json_string(json_get(e, "stream"), ""),
                    json_string(json_get(e, "target"), ""), json_number(json_get(e, "loss"), 0));
    }
    log_info("%-8s held-out loss:%s", stage, line.data ? line.data : "");
    text_release(&line);
}

static void say_samples(const char *stage, const struct json *samples)
{
    struct text line = {0};
    struct json_iterator it;
    for (bool more = json_first(&it, samples); more; more = json_next(&it, samples))
        if (json_get(it.value, "pair"))
            text_printf(&line, "%s %s %.0f %%", line.length ? "," : "", it.key,
                        100 * json_number(json_get(it.value, "pair"), 0));
    log_info("%-8s nearer to its own original than to another's:%s", stage, line.data ? line.data : "");
    text_release(&line);
}

static double reward_of(const struct json *rl, const char *when)
{
    return json_number(json_get(json_get(json_get(json_get(rl, "heldout"), when), "sampled"), "reward"), NAN);
}

static void say_rl(const char *stage, const struct json *rl)
{
    log_info("%-8s mean reward on held-out prompts: %.2f before, %.2f after", stage, reward_of(rl, "start"),
             reward_of(rl, "end"));
}

/* What a person wants to know when a run is over, in few lines. */
static void say_summary(const char *run, const char *page)
{
    static const struct {
        const char *file;
        void (*say)(const char *, const struct json *);
    } kinds[] = {{"heldout.json", say_heldout}, {"samples.json", say_samples}, {"rl.json", say_rl}};
    char **names;
    i64 count;
    if (directory_list(&names, &count, run))
        return;
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; k < COUNT_OF(kinds) && !strstr(names[i], ".partial"); k++) {
            struct json *j = load(run, names[i], kinds[k].file);
            if (j)
                kinds[k].say(names[i], j);
            json_free(j);
        }
    string_list_free(names, count);
    log_info("look at: %s", page);
    log_info("try:     weft generate %s/base --prompt \"red apple\" --to image --greedy -o apple.png", run);
    log_info("         weft grid %s/base --data %s/shards      weft generate %s/base --prompt \"seven\" --to audio -o "
             "seven.wav",
             run, run, run);
}

int report_stage(const void *settings, const struct stage *stage)
{
    char *run = string_copy(stage->out), *slash = strrchr(run, '/');
    (void)settings;
    if (slash)
        *slash = 0;
    const char *folder = slash ? run : ".";
    char *inside = path_join(stage->out, "report.html"), *beside = path_join(folder, "report.html");
    int status = report_write(folder, inside);
    if (status == 0)
        status = report_write(folder, beside);
    if (status == 0)
        say_summary(folder, beside);
    memory_free(inside);
    memory_free(beside);
    memory_free(run);
    return status;
}
