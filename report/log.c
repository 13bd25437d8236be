/* The summary that a run prints at its end. */
#include "report/report.h"

#include "report/arms.h"

#include <math.h>
#include <string.h>

/* True for the main losses of a stream: its bits or codes, and its text if the stream is text,
 * pictures read, clips read or conversations. Text of other streams and MTP are not main losses. */
static bool is_main(const struct json *loss)
{
    const char *stream = json_string(json_get(loss, "stream"), ""), *target = json_string(json_get(loss, "target"), "");
    bool says_words = strcmp(stream, "text") == 0 || strcmp(stream, "image-in") == 0 ||
                      strcmp(stream, "video-in") == 0 || strcmp(stream, "chat") == 0;
    return strcmp(target, "mtp") != 0 && (strcmp(target, "text") != 0 || says_words);
}

/* A model that begins above a uniform guess has more to unlearn than to learn. */
static void put_unigram(struct buffer *out, const struct json *before, const struct json *after)
{
    double start = json_number(json_get(before, "loss"), 0), uniform = json_number(json_get(after, "uniform"), NAN);
    buffer_printf(out, " (%.2f", json_number(json_get(after, "unigram"), 0));
    if (start > uniform)
        buffer_printf(out, "; a uniform guess has %.2f", uniform);
    buffer_printf(out, ")");
}

static void log_heldout(const char *stage, const struct json *heldout)
{
    struct buffer line = {0};
    const struct json *start = json_get(heldout, "start"), *end = json_get(heldout, "end");
    for (i64 i = 0; i < json_count(end); i++) {
        const struct json *after = json_at(end, i), *before = same_target(start, after);
        if (!before || !is_main(after))
            continue;
        buffer_printf(&line, "%s %s %.2f to %.2f", line.length ? "," : "", json_string(json_get(after, "stream"), ""),
                      json_number(json_get(before, "loss"), 0), json_number(json_get(after, "loss"), 0));
        put_unigram(&line, before, after);
    }
    if (line.length)
        log_info("%-8s held-out loss, before to after (by frequency alone):%s", stage, line.data);
    buffer_clear(&line);
    put_streams(&line, json_get(heldout, "left_out"));
    if (line.length)
        log_info("%-8s samples longer than a row, left out of training: %s", stage, line.data);
    buffer_release(&line);
}

/* The better one of two baselines stands behind the share. */
static void put_share(struct buffer *line, const char *key, const struct json *set, const char *share,
                      const char *baseline, const char *other)
{
    double best = fmax(number_at(set, baseline), number_at(set, other));
    if (!isfinite(number_at(set, share)))
        return;
    buffer_printf(line, "%s %s %.0f %%", line->length ? "," : "", key, 100 * number_at(set, share));
    if (isfinite(best))
        buffer_printf(line, " (%.0f)", 100 * best);
}

static void log_samples(const char *stage, const struct json *samples)
{
    struct buffer near = {0}, said = {0}, words = {0};
    struct json_iterator it;
    for (bool more = json_first(&it, samples); more; more = json_next(&it, samples)) {
        const struct json *aligned = json_get(it.value, "aligned");
        put_share(&near, it.key, aligned ? aligned : it.value, "pair", "retrieval", "ridge");
        put_share(&words, it.key, it.value, "words", "words_fixed", "words_nearest");
        if (json_integer(json_get(it.value, "exact"), 0) > 0)
            buffer_printf(&said, "%s %s %lld of %lld", said.length ? "," : "", it.key,
                          (long long)json_integer(json_get(it.value, "exact"), 0),
                          (long long)json_integer(json_get(it.value, "media"), 0));
    }
    if (near.length)
        log_info("%-8s made from words, nearer to its own original than to another's (without a network, by the "
                 "nearest caption or ridge regression; chance 50 %%; speech at equal length):%s",
                 stage, near.data);
    if (said.length)
        log_info("%-8s word for word:%s", stage, said.data);
    if (words.length)
        log_info("%-8s words right (without a network, best fixed answer or caption of the nearest medium):%s", stage,
                 words.data);
    buffer_release(&near);
    buffer_release(&said);
    buffer_release(&words);
}

static double score_of(const struct json *rl, const char *when, const char *key)
{
    return json_number(json_get(json_get(json_get(json_get(rl, "heldout"), when), "sampled"), key), NAN);
}

static void log_rl(const char *stage, const struct json *rl)
{
    if (!isfinite(score_of(rl, "end", "reward")))
        return;
    log_info("%-8s mean reward on held-out prompts: %.2f before, %.2f after", stage, score_of(rl, "start", "reward"),
             score_of(rl, "end", "reward"));
    if (isfinite(score_of(rl, "end", "reordered")))
        log_info("%-8s answers that are right but for the order of their characters: %.0f %% before, %.0f %% after",
                 stage, 100 * score_of(rl, "start", "reordered"), 100 * score_of(rl, "end", "reordered"));
}

static void log_stage(const struct run_stage *s)
{
    static const struct {
        const char *file;
        void (*say)(const char *, const struct json *);
    } kinds[] = {{"heldout.json", log_heldout}, {"samples.json", log_samples}, {"rl.json", log_rl}};
    for (i64 k = 0; k < COUNT_OF(kinds); k++) {
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

/* The last finished stage whose model was trained on conversations, or NULL. */
static const char *chat_stage(const struct run *run)
{
    for (i64 i = run->count - 1; i >= 0; i--) {
        const char *kind = stage_kind(&run->stages[i]);
        if (run->stages[i].finished && (strcmp(kind, "sft") == 0 || strcmp(kind, "rl") == 0))
            return run->stages[i].name;
    }
    return NULL;
}

static const struct {
    const char *kind, *rest;
} media_commands[] = {{"image", "--to image --greedy -o picture.png"},
                      {"video", "--to video --greedy -o clip.mp4"},
                      {"audio", "--to audio -o sound.wav"}};

/* A short caption from which the stage `generate` made a medium of that kind (memory_free). NULL:
 * the run made none, so its model may be unable to. */
static char *caption_of(const struct run *run, const char *kind)
{
    const char *stage = stage_of_kind(run, "generate");
    struct json *samples = stage ? stage_json(run_find(run, stage), "samples.json") : NULL;
    char *set = string_format("train/%s", kind), *caption = NULL;
    const struct json *shown = json_get(json_get(samples, set), "shown");
    for (i64 i = 0; i < json_count(shown); i++) {
        const char *text = json_string(json_get(json_at(shown, i), "text"), "");
        if (!strchr(text, '\n') && (!caption || strlen(text) < strlen(caption))) {
            memory_free(caption);
            caption = string_copy(text);
        }
    }
    json_free(samples);
    memory_free(set);
    return caption;
}

/* A prompt that the stage `generate` continued (memory_free), or a word. */
static char *prompt_of(const struct run *run)
{
    const char *stage = stage_of_kind(run, "generate");
    struct json *samples = stage ? stage_json(run_find(run, stage), "samples.json") : NULL;
    char *prompt = string_copy(json_string(json_get(json_at(json_get(samples, "text"), 0), "prompt"), "Once"));
    json_free(samples);
    return prompt;
}

/* One line of commands to try. The first has the label. */
struct next_commands {
    const struct run *run;
    i64 count;
};

/* Appends the folder of a stage as a word for a shell. */
static void put_stage_word(struct buffer *out, const struct run *run, const char *stage)
{
    char *path = path_join(run->path, stage);
    shell_word(out, path);
    memory_free(path);
}

/* Logs "PROGRAM NAME FOLDER": the program as it was called, a command, and a stage; then `option`, its value as
 * a word, and `rest`. */
static void log_next(struct next_commands *next, const char *name, const char *stage, const char *option,
                     const char *value, const char *rest)
{
    struct buffer line = {0};
    shell_word(&line, program_name());
    buffer_printf(&line, " %s ", name);
    put_stage_word(&line, next->run, stage);
    if (option)
        buffer_printf(&line, " %s ", option);
    if (option)
        shell_word(&line, value);
    log_info("%s%s%s%s", next->count++ ? "         " : "try:     ", line.data, *rest ? " " : "", rest);
    buffer_release(&line);
}

/* Prompts are captions of the run's own samples. Without any, text is continued. */
static void log_next_commands(const struct run *run)
{
    const char *base = stage_of_kind(run, "pretrain"), *shards = stage_of_kind(run, "prepare");
    const char *chat = chat_stage(run);
    struct next_commands next = {run, 0};
    if (chat)
        log_next(&next, "chat", chat, NULL, NULL, "");
    if (!base)
        return;
    bool makes_media = false;
    for (i64 i = 0; i < COUNT_OF(media_commands); i++) {
        char *caption = caption_of(run, media_commands[i].kind);
        if (caption)
            log_next(&next, "generate", base, "--prompt", caption, media_commands[i].rest);
        makes_media |= caption != NULL;
        memory_free(caption);
    }
    if (!makes_media) {
        char *start = prompt_of(run);
        log_next(&next, "generate", base, "--prompt", start, "");
        memory_free(start);
    }
    if (shards) {
        char *data = path_join(run->path, shards);
        log_next(&next, "grid", base, "--data", data, "");
        memory_free(data);
    }
}

/* Of the runs in the folder of a recipe with arms or seeds: how many there are, and what differs. */
static int log_arms(const char *path)
{
    struct run_list list;
    struct arms arms = {0};
    int status = run_list_open(&list, &path, 1);
    if (status == 0) {
        status = arms_open(&arms, &list, NULL);
        if (status == 0)
            arms_log(&arms);
        log_info("made:    %lld run%s of %lld in %s", (long long)list.count, list.count == 1 ? "" : "s",
                 (long long)(list.count + list.missing.count), path);
        arms_close(&arms);
    }
    run_list_close(&list);
    return status;
}

int report_log(const char *path, const char *page)
{
    struct run run;
    struct buffer made = {0};
    int status = run_open(&run, path);
    if (status == 0 && json_count(json_get(run.about, "runs"))) {
        run_close(&run);
        status = log_arms(path);
        if (status == 0)
            log_info("look at: %s", page);
        return status;
    }
    for (i64 i = 0; i < run.count && status == 0; i++)
        if (run.stages[i].finished) {
            log_stage(&run.stages[i]);
            buffer_printf(&made, "%s%s", made.length ? ", " : "", run.stages[i].name);
        }
    if (status == 0) {
        struct buffer skipped = {0};
        run_put_skipped(&skipped, &run);
        log_info("made:    %s in %s", made.length ? made.data : "nothing yet", path);
        if (skipped.length)
            log_info("skipped: %s", skipped.data);
        buffer_release(&skipped);
        log_info("look at: %s", page);
        log_next_commands(&run);
    }
    buffer_release(&made);
    run_close(&run);
    return status;
}
