/* Fixture for tests of shards that are prepared while they are read: a small corpus, shard folders
 * and streams made from it, and the rows of a step as a line of text. Include it before cmocka. */
#ifndef WEFT_TESTS_STREAM_FIXTURE_H
#define WEFT_TESTS_STREAM_FIXTURE_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/json.h"
#include "data/loader/mixer.h"
#include "data/loader/plan.h"
#include "data/stream/stream.h"
#include "kernels/kernels.h"
#include "tests/weft_process.h"
#include "tokenizers/text/text.h"

enum { FILES = 7, ROWS = 3, LENGTH = 96, STEPS = 90, LINES_MOST = 160 };
static char *folder, *corpus, *tokenizer;
static struct device device;
static struct arena arena;
static const char *const filler[] = {WEFT_PROGRAM, "serve-tokens", NULL};
static i64 steps_at[3] = {0, 7, 40};
static double some_rows[] = {ROWS}, some_lengths[] = {LENGTH, 32, 128}, one_length[] = {LENGTH};

static inline char *in_folder(const char *name)
{
    return path_join(folder, name);
}

static inline void make_corpus(void)
{
    assert_int_equal(directory_make(corpus), 0);
    for (i64 i = 0; i < FILES; i++) {
        struct buffer lines = {0};
        char *path = string_format("%s/f%02lld.jsonl", corpus, (long long)i);
        for (i64 k = 0; k < 12 + 2 * i; k++) {
            buffer_printf(&lines, "{\"text\": \"line %lld of file %lld", (long long)k, (long long)i);
            for (i64 word = 0; word < (k * 7 + i) % 60; word++)
                buffer_printf(&lines, " %lld", (long long)((word * k + i) % 97));
            buffer_printf(&lines, "\"}\n");
        }
        assert_int_equal(file_replace(path, lines.data, lines.length), 0);
        memory_free(path);
        buffer_release(&lines);
    }
}

static inline void make_tokenizer(void)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 300, .special_tokens = grammar_special_tokens});
    assert_int_equal(text_trainer_feed(trainer, "line of file line of file 1 2 3 4 5", 34), 0);
    struct text_tokenizer *made = text_trainer_finish(trainer);
    assert_int_equal(directory_make(tokenizer) || text_tokenizer_save(made, tokenizer), 0);
    text_tokenizer_free(made);
}

/* Prepares the corpus into the folder `name`; parts 0: an
 * ordinary folder with all files, else a stream. */
static inline int prepare(const char *name, const char *part, i64 parts, i64 ahead, i64 bytes)
{
    struct prepare_settings s = {.data = corpus,
                                 .tokenizer[TOKENIZER_TEXT] = tokenizer,
                                 .bad_share = 0.05,
                                 .validation = 0.1,
                                 .dropout = 0.2,
                                 .dropout_copies = 2,
                                 .audio_seconds = 30,
                                 .shard_bytes = 4096,
                                 .part = (char *)part,
                                 .pictures = {.background = "ffffff", .most_pixels = 1 << 20},
                                 .filter = {.memory_bytes = 1 << 20, .against_words = 13, .script_share = 1},
                                 .stream = {parts > 0, max_i64(1, parts), ahead, bytes, false}};
    char *out = in_folder(name);
    assert_int_equal(directory_remove(out) || directory_make(out), 0);
    int status = prepare_stage(&s, out, 5, &device, DTYPE_F32);
    memory_free(out);
    return status;
}

static inline int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-stream-%ld", (long)getpid());
    directory_remove(folder);
    corpus = in_folder("corpus");
    tokenizer = in_folder("bpe");
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 30);
    log_set_level(LOG_QUIET);
    make_corpus();
    make_tokenizer();
    assert_int_equal(prepare("whole", NULL, 0, 0, 0), 0);
    assert_int_equal(prepare("parts/0", "0/3", 0, 0, 0), 0);
    assert_int_equal(prepare("parts/1", "1/3", 0, 0, 0), 0);
    assert_int_equal(prepare("parts/2", "2/3", 0, 0, 0), 0);
    assert_int_equal(prepare("stream", NULL, 1, 2, 0), 0);
    assert_int_equal(prepare("streams", NULL, 3, 1, 0), 0);
    return 0;
}

static inline int clear(void **state)
{
    (void)state;
    arena_close(&arena);
    device_close(&device);
    directory_remove(folder);
    memory_free(folder);
    memory_free(corpus);
    memory_free(tokenizer);
    return 0;
}

/* ---- Rows, as lines ---- */

struct loader_variant {
    i64 shuffle_shards;
    bool lengths; /* the row length changes by schedule */
    double mixture;
};

/* Opens a loader; `words` is the command that fills its ring. */
static inline struct loader *open_reader(const char *name, const char *ring, const struct loader_variant *v,
                                         const char *const *words)
{
    char *data = in_folder(name), *directory = ring ? in_folder(ring) : NULL;
    struct loader_settings s = {.rows = {steps_at, some_rows, 1},
                                .length = {steps_at, v->lengths ? some_lengths : one_length, v->lengths ? 3 : 1},
                                .micro_rows = ROWS,
                                .mixture = {v->mixture, 1, 1, 1, 1, 1, 1, 1},
                                .condition[MODALITY_TEXT] = 1,
                                .shuffle_shards = v->shuffle_shards,
                                .ring = {directory, words}};
    struct loader *l = loader_open(data, "train", &s, 9);
    if (!l)
        fail_msg("%s", error_text());
    memory_free(data);
    memory_free(directory);
    return l;
}

static inline struct loader *open_data(const char *name, const char *ring, const struct loader_variant *v)
{
    return open_reader(name, ring, v, filler);
}

/* Returns the samples of a step, the keys of their draws, and a hash of the batch's ids;
 * memory_free. */
static inline char *line_of(struct loader *l, i64 step)
{
    struct batch b;
    struct buffer out = {0};
    const struct step_plan *plan = plan_step(l, step);
    if (!plan)
        fail_msg("step %lld: %s", (long long)step, error_text());
    for (i64 i = 0; i < plan->rows.entries.count; i++) {
        const struct plan_entry *e = &plan->rows.entries.data[i];
        buffer_printf(&out, "%s %u %u %lld+%lld ", strrchr(shards_name(&l->shards, e->sample), '/'), entry_identity(e),
                      entry_showing(e), (long long)e->first, (long long)e->count);
    }
    arena_reset(&arena, 0);
    if (loader_batch(l, step, 0, &b, &arena) < 0)
        fail_msg("step %lld: %s", (long long)step, error_text());
    buffer_printf(&out, "%016llx",
                  (unsigned long long)hash_bytes(b.inputs[INPUT_TEXT].ids, b.inputs[INPUT_TEXT].n * 4, (u64)b.n));
    return out.data;
}

static inline void expect_lines(struct loader *l, char *const *lines, i64 first, i64 end)
{
    for (i64 step = first; step < end; step++) {
        char *line = line_of(l, step);
        if (strcmp(line, lines[step]) != 0)
            fail_msg("step %lld:\n%s\nwhere it was\n%s", (long long)step, line, lines[step]);
        memory_free(line);
    }
}

static inline char **lines_of(const char *name, const struct loader_variant *v)
{
    char **lines = memory_alloc(STEPS * (i64)sizeof *lines);
    struct loader *l = open_data(name, NULL, v);
    for (i64 step = 0; step < STEPS; step++)
        lines[step] = line_of(l, step);
    assert_true(l->stream_plan->next.pass == 1 || v->mixture > 1); /* the steps span more than 1 epoch */
    loader_close(l);
    return lines;
}

static inline void clear_ring(void)
{
    char *ring = in_folder("ring");
    assert_int_equal(directory_remove(ring), 0);
    memory_free(ring);
}

/* ---- The whole program ---- */

static inline char *write_recipe(const char *name, const char *stream, const char *more)
{
    char *path = string_format("%s/%s.yaml", folder, name);
    struct buffer t = {0};
    buffer_printf(&t,
                  "run: %s/run-%s\nseed: 3\nprecision: f32\nstages:\n"
                  "  shards: {kind: prepare, data: %s, text: %s, shard_bytes: 4096%s}\n"
                  "  base: {kind: pretrain, data: shards, steps: 20, checkpoint_steps: 2, heldout: %s/whole, "
                  "heldout_rows: 1, shuffle_shards: 1, batch: {rows: 4, length: 64, micro_rows: 1}, elastic: "
                  "{slice_rows: 1}, model: {width: 16, layers: 2, heads: 1, kv_heads: 1, head_width: 16, experts: 4, "
                  "expert_width: 16, vit_layers: 0}%s}\n",
                  folder, name, corpus, tokenizer, stream, folder, more);
    assert_int_equal(file_replace(path, t.data, t.length), 0);
    buffer_release(&t);
    return path;
}

static inline u64 hash_of_model(const char *name)
{
    struct file_view view;
    char *path = string_format("%s/run-%s/base/model.safetensors", folder, name);
    if (file_map(&view, path) < 0)
        fail_msg("%s", error_text());
    u64 hash = hash_bytes(view.data, view.bytes, 0);
    file_unmap(&view);
    memory_free(path);
    return hash;
}

#endif
