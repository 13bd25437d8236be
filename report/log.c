/* The summary that a run prints at its end. */
#include "report/report.h"

#include "report/run.h"

#include <math.h>
#include <string.h>

/* True for the main losses of a stream: its bits or codes, and its text if the stream is text,
 * pictures read or clips read. Text of other streams and MTP are not main losses. */
static bool is_main(const struct json *loss)
{
    const char *stream = json_string(json_get(loss, "stream"), ""), *target = json_string(json_get(loss, "target"), "");
    bool says_words = strcmp(stream, "text") == 0 || strcmp(stream, "image-in") == 0 || strcmp(stream, "video-in") == 0;
    return strcmp(target, "mtp") != 0 && (strcmp(target, "text") != 0 || says_words);
}

static void log_heldout(const char *stage, const struct json *heldout)
{
    struct buffer line = {0};
    const struct json *start = json_get(heldout, "start"), *end = json_get(heldout, "end");
    for (i64 i = 0; i < json_count(end); i++) {
        const struct json *after = json_at(end, i), *before = same_target(start, after);
        if (before && is_main(after))
            buffer_printf(&line, "%s %s %.2f to %.2f (%.2f)", line.length ? "," : "",
                          json_string(json_get(after, "stream"), ""), json_number(json_get(before, "loss"), 0),
                          json_number(json_get(after, "loss"), 0), json_number(json_get(after, "unigram"), 0));
    }
    if (line.length)
        log_info("%-8s held-out loss, before to after (unigram entropy):%s", stage, line.data);
    buffer_release(&line);
}

static void put_share(struct buffer *line, const char *key, const struct json *set, const char *share,
                      const char *baseline)
{
    if (!isfinite(number_at(set, share)))
        return;
    buffer_printf(line, "%s %s %.0f %%", line->length ? "," : "", key, 100 * number_at(set, share));
    if (isfinite(number_at(set, baseline)))
        buffer_printf(line, " (%.0f)", 100 * number_at(set, baseline));
}

static void log_samples(const char *stage, const struct json *samples)
{
    struct buffer near = {0}, said = {0}, words = {0};
    struct json_iterator it;
    for (bool more = json_first(&it, samples); more; more = json_next(&it, samples)) {
        const struct json *aligned = json_get(it.value, "aligned");
        put_share(&near, it.key, aligned ? aligned : it.value, "pair", "retrieval");
        put_share(&words, it.key, it.value, "words", "words_fixed");
        if (json_integer(json_get(it.value, "exact"), 0) > 0)
            buffer_printf(&said, "%s %s %lld of %lld", said.length ? "," : "", it.key,
                          (long long)json_integer(json_get(it.value, "exact"), 0),
                          (long long)json_integer(json_get(it.value, "media"), 0));
    }
    if (near.length)
        log_info("%-8s made from words, nearer to its own original than to another's (training medium of the nearest "
                 "caption; chance 50 %%; speech at equal length):%s",
                 stage, near.data);
    if (said.length)
        log_info("%-8s word for word:%s", stage, said.data);
    if (words.length)
        log_info("%-8s words right (best fixed answer):%s", stage, words.data);
    buffer_release(&near);
    buffer_release(&said);
    buffer_release(&words);
}

static double reward_of(const struct json *rl, const char *when)
{
    return json_number(json_get(json_get(json_get(json_get(rl, "heldout"), when), "sampled"), "reward"), NAN);
}

static void log_rl(const char *stage, const struct json *rl)
{
    if (isfinite(reward_of(rl, "end")))
        log_info("%-8s mean reward on held-out prompts: %.2f before, %.2f after", stage, reward_of(rl, "start"),
                 reward_of(rl, "end"));
}

static void log_stage(const struct run_stage *s)
{
    static const struct {
        const char *file;
        void (*say)(const char *, const struct json *);
    } kinds[] = {{"heldout.json", log_heldout}, {"samples.json", log_samples}, {"rl.json", log_rl}};
    for (i64 k = 0; strcmp(stage_kind(s), "sft") != 0 && k < COUNT_OF(kinds); k++) {
        struct json *j = stage_json(s, kinds[k].file);
        if (j)
            kinds[k].say(s->name, j);
        json_free(j);
    }
}

/* The first finished stage of a kind, or NULL. */
static const char *stage_of_kind(const struct run *run, const char *kind)
{
    for (i64 i = 0; i < run->count; i++)
        if (run->stages[i].finished && strcmp(stage_kind(&run->stages[i]), kind) == 0)
            return run->stages[i].name;
    return NULL;
}

static void log_next_commands(const struct run *run)
{
    const char *base = stage_of_kind(run, "pretrain"), *shards = stage_of_kind(run, "prepare");
    if (!base)
        return;
    log_info("try:     weft generate %s/%s --prompt \"red apple\" --to image --greedy -o apple.png", run->path, base);
    log_info("         weft generate %s/%s --prompt \"seven\" --to audio -o seven.wav", run->path, base);
    if (shards)
        log_info("         weft grid %s/%s --data %s/%s", run->path, base, run->path, shards);
}

int report_log(const char *path, const char *page)
{
    struct run run;
    struct buffer made = {0};
    int status = run_open(&run, path);
    for (i64 i = 0; i < run.count && status == 0; i++)
        if (run.stages[i].finished) {
            log_stage(&run.stages[i]);
            buffer_printf(&made, "%s%s", made.length ? ", " : "", run.stages[i].name);
        }
    if (status == 0) {
        log_info("made:    %s in %s", made.length ? made.data : "nothing yet", path);
        log_info("look at: %s", page);
        log_next_commands(&run);
    }
    buffer_release(&made);
    run_close(&run);
    return status;
}
