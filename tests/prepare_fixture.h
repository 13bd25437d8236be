/* Runs texts through prepare into shards, and lists the samples of the shards. */
#ifndef WEFT_TESTS_PREPARE_FIXTURE_H
#define WEFT_TESTS_PREPARE_FIXTURE_H
#include "data/prepare/prepare.h"
#include "kernels/kernels.h"
#include "sequence/grammar.h"
#include "tests/scratch.h"
#include "tokenizers/text/text.h"

/* Makes a folder with a text tokenizer of little more than the 256 bytes. */
static inline void prepare_tokenizer(const char *path)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 320, .special_tokens = grammar_special_tokens});
    succeed(text_trainer_feed(trainer, "some words, some other words", 28));
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    succeed(directory_make(path));
    succeed(text_tokenizer_save(tokenizer, path));
    text_tokenizer_free(tokenizer);
}

static inline struct prepare_settings prepare_text_settings(char *data, char *text)
{
    return (struct prepare_settings){.data = data,
                                     .tokenizer[TOKENIZER_TEXT] = text,
                                     .bad_share = 0.05,
                                     .dropout_copies = 1,
                                     .audio_seconds = 30,
                                     .shard_bytes = 1 << 20,
                                     .filter = {.memory_bytes = 1 << 20}};
}

static inline void prepare_in(const struct prepare_settings *settings, const char *out, const char *part,
                              const char *seen)
{
    struct prepare_settings all = *settings;
    struct device device;
    all.part = (char *)(uintptr_t)part;
    all.filter.seen = (char *)(uintptr_t)seen;
    device_open_cpu(&device);
    succeed(directory_make(out));
    succeed(prepare_stage(&all, out, 1, &device, DTYPE_F32));
    device_close(&device);
}

static inline int prepare_by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the ids of all training samples, one sample per line, lines sorted; memory_free. */
static inline char *samples_of(const char *folders)
{
    struct shards shards;
    struct buffer all = {0};
    succeed(shards_open(&shards, folders, "train"));
    char **list = memory_alloc(max_i64(1, shards.sample_count) * (i64)sizeof *list);
    for (i64 i = 0; i < shards.sample_count; i++) {
        struct buffer line = {0};
        i64 part = (i64)shards_sample(&shards, i).first_part;
        const i32 *ids = shards_payload(&shards, part);
        for (u32 k = 0; k < shards_part(&shards, part)->count; k++)
            buffer_printf(&line, "%d ", ids[k]);
        list[i] = line.data;
    }
    qsort(list, (size_t)shards.sample_count, sizeof *list, prepare_by_text);
    for (i64 i = 0; i < shards.sample_count; i++)
        buffer_printf(&all, "%s\n", list[i]);
    string_list_free(list, shards.sample_count);
    shards_close(&shards);
    return all.data;
}
#endif
