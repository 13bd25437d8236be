#include "train/report.h"

#include "core/json.h"

#include <math.h>
#include <string.h>

const struct setting report_table[] = {{0}};

static struct json *load(const char *run, const char *stage, const char *name)
{
    char *path = string_format("%s/%s/%s", run, stage, name);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    memory_free(path);
    return j;
}

static const struct json *same_target(const struct json *list, const struct json *as)
{
    for (i64 i = 0; i < json_count(list); i++)
        if (strcmp(json_string(json_get(json_at(list, i), "stream"), ""), json_string(json_get(as, "stream"), "")) ==
                0 &&
            strcmp(json_string(json_get(json_at(list, i), "target"), ""), json_string(json_get(as, "target"), "")) == 0)
            return json_at(list, i);
    return NULL;
}

/* Of every stream what it is there for: captions of what is looked at, bits of pictures, codes of sound; not the words
 * around these, nor the second next token.
 */
static bool is_main(const struct json *loss)
{
    const char *stream = json_string(json_get(loss, "stream"), ""), *target = json_string(json_get(loss, "target"), "");
    bool says_words = strcmp(stream, "text") == 0 || strcmp(stream, "image-in") == 0 || strcmp(stream, "video-in") == 0;
    return strcmp(target, "mtp") != 0 && (strcmp(target, "text") != 0 || says_words);
}

static void say_heldout(const char *stage, const struct json *heldout)
{
    struct text line = {0};
    const struct json *start = json_get(heldout, "start"), *end = json_get(heldout, "end");
    for (i64 i = 0; i < json_count(end); i++) {
        const struct json *after = json_at(end, i), *before = same_target(start, after);
        if (before && is_main(after))
            text_printf(&line, "%s %s %.2f to %.2f (%.2f)", line.length ? "," : "",
                        json_string(json_get(after, "stream"), ""), json_number(json_get(before, "loss"), 0),
                        json_number(json_get(after, "loss"), 0), json_number(json_get(after, "unigram"), 0));
    }
    if (line.length)
        log_info("%-8s held-out loss, before to after (unigram entropy):%s", stage, line.data);
    text_release(&line);
}

static void say_samples(const char *stage, const struct json *samples)
{
    struct text near = {0}, said = {0};
    struct json_iterator it;
    for (bool more = json_first(&it, samples); more; more = json_next(&it, samples)) {
        if (json_get(it.value, "pair"))
            text_printf(&near, "%s %s %.0f %%", near.length ? "," : "", it.key,
                        100 * json_number(json_get(it.value, "pair"), 0));
        if (json_integer(json_get(it.value, "exact"), 0) > 0)
            text_printf(&said, "%s %s %lld of %lld", said.length ? "," : "", it.key,
                        (long long)json_integer(json_get(it.value, "exact"), 0),
                        (long long)json_integer(json_get(it.value, "media"), 0));
    }
    if (near.length)
        log_info("%-8s made from words, nearer to its own original than to another's:%s", stage, near.data);
    if (said.length)
        log_info("%-8s word for word:%s", stage, said.data);
    text_release(&near);
    text_release(&said);
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
    struct text made = {0};
    for (i64 i = 0; i < count; i++) {
        struct json *done = strstr(names[i], ".partial") ? NULL : load(run, names[i], "done.json");
        const char *kind = json_string(json_get(json_get(done, "identity"), "kind"), "");
        for (i64 k = 0; done && strcmp(kind, "sft") != 0 && k < COUNT_OF(kinds); k++) {
            struct json *j = load(run, names[i], kinds[k].file);
            if (j)
                kinds[k].say(names[i], j);
            json_free(j);
        }
        if (done)
            text_printf(&made, "%s%s", made.length ? ", " : "", names[i]);
        json_free(done);
    }
    string_list_free(names, count);
    log_info("made:    %s in %s", made.length ? made.data : "nothing yet", run);
    log_info("look at: %s", page);
    log_info("try:     weft generate %s/base --prompt \"red apple\" --to image --greedy -o apple.png", run);
    log_info("         weft generate %s/base --prompt \"seven\" --to audio -o seven.wav", run);
    log_info("         weft grid %s/base --data %s/shards", run, run);
    text_release(&made);
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
