/* A small shard folder with every kind of sample, from random
 * draws, for tests of shards and of the packer. */
#ifndef WEFT_TESTS_SHARD_FIXTURE_H
#define WEFT_TESTS_SHARD_FIXTURE_H
#include "data/shards/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct rng_key fixture_key = {11, RNG_TEST};
static struct shard_meta fixture_meta = {
    .bits = 6,
    .cell_features = 5,
    .stride = 8,
    .levels = 2,
    .codes = 16,
    .shape_count = 2,
    .shapes = {{{.scale_count = 3, .scales = {{1, 1}, {2, 2}, {4, 4}}, .frames = 1}, 4, 4, {0.5f, 0.4f, 0.3f}},
               {{.scale_count = 2, .scales = {{1, 1}, {2, 2}}, .video = true, .frames = 3}, 2, 2, {0.5f, 0.4f}}}};

static inline void fixture_tokenizer(const char *folder)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 320, .special_tokens = grammar_special_tokens});
    char *path = path_join(folder, "text");
    require(text_trainer_feed(trainer, "the words of this text, and these words again", 45) == 0, "%s", error_text());
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    require(directory_make(path) == 0 && text_tokenizer_save(tokenizer, path) == 0, "%s", error_text());
    fixture_meta.vocabulary = text_vocabulary(tokenizer);
    text_tokenizer_free(tokenizer);
    memory_free(path);
}

static inline i64 fixture_below(i64 bound, i64 sample, i64 draw)
{
    return rng_below(fixture_key, bound, (u32)sample, (u32)draw, 0, 0);
}

/* Text ids are in [100, 132); no special token is among them. */
static inline struct shard_part fixture_text(struct shard_writer *writer, i64 sample, i64 count)
{
    struct shard_part part = {.kind = STREAM_TEXT, .count = (u32)count};
    i32 *ids = memory_alloc(count * 4 + 4);
    for (i64 i = 0; i < count; i++)
        ids[i] = 100 + (i32)((sample + 7 * i) % 32);
    shard_write_payload(writer, &part, ids, count * 4);
    memory_free(ids);
    return part;
}

static inline struct shard_part fixture_medium(struct shard_writer *writer, i64 sample, enum stream kind)
{
    bool clip = stream_rows[kind].moves;
    struct shard_part part = {.kind = (u8)kind,
                              .shape = clip,
                              .frames = clip ? 3 : 1,
                              .height = 3,
                              .width = 4,
                              .count = (u32)(1 + fixture_below(30, sample, 1))};
    bool made = stream_rows[kind].form == FORM_SCALES, codes = stream_rows[kind].form == FORM_CODES;
    i64 bytes = shard_payload_bytes(&fixture_meta, &part), features = part.frames * 12 * 5;
    u8 *payload = memory_alloc(bytes);
    u16 *wide = (u16 *)payload;
    for (i64 i = 0; i < bytes; i++)
        payload[i] = (u8)fixture_below(256, sample, 100 + i);
    for (i64 i = 0; codes && i < bytes / 2; i++)
        wide[i] = (u16)(wide[i] % 16);
    for (i64 i = 0; !codes && i < (made ? bytes / 2 : features); i++)
        wide[i] = bf16_from_f32((float)rng_normal(fixture_key, (u32)sample, (u32)i, 1, 0));
    shard_write_payload(writer, &part, payload, bytes);
    memory_free(payload);
    return part;
}

enum { FIXTURE_DIRECTIONS = DIRECTION_CHAT + 1 };
/* Writes sample i; the directions up to that of chats take turns. Texts have up to `longest`
 * ids. */
static inline void fixture_sample(struct shard_writer *writer, i64 i, i64 longest)
{
    static const enum stream media[DIRECTIONS] = {STREAM_TEXT,      STREAM_IMAGE_IN, STREAM_IMAGE_OUT, STREAM_VIDEO_IN,
                                                  STREAM_VIDEO_OUT, STREAM_AUDIO,    STREAM_AUDIO,     STREAM_TEXT};
    enum direction direction = (enum direction)(i % FIXTURE_DIRECTIONS);
    bool given = direction != DIRECTION_TEXT && direction != DIRECTION_CHAT && !direction_rows[direction].makes;
    struct shard_part parts[3], words = fixture_text(writer, i, 1 + fixture_below(longest, i, 0));
    char name[32];
    i64 count = 0;
    if (direction != DIRECTION_TEXT)
        parts[count++] = direction == DIRECTION_CHAT ? fixture_text(writer, i + 3, 5)
                         : given                     ? fixture_medium(writer, i, media[direction])
                                                     : words;
    if (count)
        parts[0].condition = 1;
    parts[count++] = direction == DIRECTION_TEXT || given || direction == DIRECTION_CHAT
                         ? words
                         : fixture_medium(writer, i, media[direction]);
    parts[count] = (struct shard_part){.kind = PART_NOTE};
    shard_write_payload(writer, &parts[count++], "a note", 6);
    snprintf(name, sizeof name, "sample:%lld", (long long)i);
    shard_write_sample(writer, direction, name, parts, count);
    shard_write_break(writer);
}

/* Writes `count` samples to folder/train; returns the folder, memory_free. */
static inline char *fixture_shards(const char *name, i64 count, i64 longest)
{
    char *folder = string_format("/dev/shm/weft-%s-%ld", name, (long)getpid());
    char *train = path_join(folder, "train");
    require(directory_remove(folder) == 0 && directory_make(folder) == 0, "%s", error_text());
    fixture_tokenizer(folder);
    require(shard_meta_save(&fixture_meta, folder) == 0, "%s", error_text());
    struct shard_writer *writer = shard_writer_open(train, &fixture_meta, 20000);
    require(writer, "%s", error_text());
    for (i64 i = 0; i < count; i++)
        fixture_sample(writer, i, longest);
    require(shard_writer_close(writer) == 0, "%s", error_text());
    memory_free(train);
    return folder;
}

/* Makes the samples of train those of validation, too. */
static inline void fixture_validation(const char *folder)
{
    char *validation = path_join(folder, "validation");
    require(symlink("train", validation) == 0, "cannot link %s", validation);
    memory_free(validation);
}

#endif
