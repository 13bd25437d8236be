/* Output files, and running many items in parallel. */
#include "corpus/corpus.h"
#include <pthread.h>
#include <stdio.h>

i64 split_count(i64 total, enum split split)
{
    i64 held_out = max_i64(total / 10, 1);
    return split == SPLIT_TRAIN ? total - 2 * held_out : held_out;
}

char *corpus_path(const struct corpus *corpus, enum split split, const char *name)
{
    return string_format("%s/%s/%s", corpus->directory, split_names[split], name);
}

int corpus_save(const struct corpus *corpus, enum split split, const char *name, const void *data, i64 bytes)
{
    char *path = corpus_path(corpus, split, name);
    int status = 0;
    FILE *file = fopen(path, "wbe");
    if (!file || fwrite(data, 1, (size_t)bytes, file) != (size_t)bytes)
        status = error_errno("%s: cannot be written", path);
    if (file && fclose(file) != 0 && status == 0)
        status = error_errno("%s: cannot be written", path);
    memory_free(path);
    return status;
}

void append_line(struct buffer *out, struct json *object)
{
    json_print(out, object, 0);
    buffer_append(out, "\n", 1);
    json_free(object);
}

struct json *corpus_message(const char *role, struct json *content)
{
    struct json *out = json_object();
    json_set(out, "role", json_of_string(role));
    json_set(out, "content", content);
    return out;
}

const char *const medium_names[MEDIA] = {"image", "video", "audio"};

/* A prompt that asks rl for the medium: `weft-corpus judge` scores pictures and clips, a model sounds. */
static void append_prompt(struct buffer *out, enum medium medium, const char *caption)
{
    struct json *line = json_object(), *reward = json_object();
    json_set(reward, "style", json_of_string(medium == AUDIO ? "model" : "program"));
    json_set(reward, "ground_truth", json_of_string(caption));
    json_set(line, "prompt", json_of_string(caption));
    json_set(line, "to", json_of_string(medium_names[medium]));
    json_set(line, "reward_model", reward);
    append_line(out, line);
}

void corpus_caption(struct corpus *corpus, enum split split, enum medium medium, const char *file, const char *caption,
                    const char *speaker)
{
    char *path = path_join(medium_names[medium], file);
    struct json *line = json_object();
    json_set(line, medium_names[medium], json_of_string(path));
    json_set(line, "text", json_of_string(caption));
    if (speaker)
        json_set(line, "speaker", json_of_string(speaker));
    append_line(&corpus->captions[split], line);
    append_prompt(&corpus->prompts[split][medium], medium, caption);
    memory_free(path);
}

static int save_lines(const struct corpus *corpus, enum split split, const char *name, const struct buffer *lines)
{
    return corpus_save(corpus, split, name, lines->data, lines->length);
}

int corpus_save_captions(const struct corpus *corpus)
{
    int status = 0;
    for (enum split split = 0; split < SPLITS && status == 0; split++) {
        status = save_lines(corpus, split, "captions.jsonl", &corpus->captions[split]);
        for (enum medium medium = 0; medium < MEDIA && status == 0; medium++) {
            char *name = string_format("%s_rl.jsonl", medium_names[medium]);
            status = save_lines(corpus, split, name, &corpus->prompts[split][medium]);
            memory_free(name);
        }
    }
    return status;
}

void corpus_release(struct corpus *corpus)
{
    for (enum split split = 0; split < SPLITS; split++) {
        buffer_release(&corpus->captions[split]);
        for (enum medium medium = 0; medium < MEDIA; medium++)
            buffer_release(&corpus->prompts[split][medium]);
    }
}

struct write_items {
    item_fn *run;
    void *context;
    i64 first;
    pthread_mutex_t lock;
    i64 failed; /* smallest failed item, or -1 */
    char *problem;
};

/* Runs one item. Error messages are per thread, so the first failed item's message is copied for
 * the caller. */
static void run_item(void *context, i64 tile, int worker)
{
    struct write_items *items = context;
    i64 item = items->first + tile;
    if (interrupted() || items->run(items->context, item, worker) == 0)
        return;
    pthread_mutex_lock(&items->lock);
    if (items->failed < 0 || item < items->failed) {
        items->failed = item;
        memory_free(items->problem);
        items->problem = string_copy(error_text());
    }
    pthread_mutex_unlock(&items->lock);
}

int run_items(const char *label, i64 count, item_fn *run, void *context)
{
    struct write_items items = {.run = run, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER, .failed = -1};
    struct progress progress;
    i64 step = 16 * (i64)workers_count();
    progress_init(&progress, label, count);
    while (items.first < count && items.failed < 0 && !interrupted()) {
        i64 tiles = min_i64(step, count - items.first);
        workers_run(tiles, run_item, &items);
        items.first += tiles;
        progress_update(&progress, items.first, "%s", "");
    }
    progress_close(&progress);
    int status = items.failed >= 0 ? error_set("%s", items.problem) : interrupted() ? error_set("interrupted") : 0;
    memory_free(items.problem);
    return status;
}
