/* Speaker vectors in shards and in batches: a sample is shown that of another recording of the same
 * speaker in the same shard, at its first position, or none. */
#include "data/loader/plan.h"
#include "tests/scratch.h"
#include "tests/shard_fixture.h"

enum { SAMPLES = 240, SPEAKERS = 5, VALUES = 3, LENGTH = 96 };
static char *folder;
static struct arena arena;
static i64 zero_step[1];
static double some_rows[] = {8}, some_length[] = {LENGTH};

/* Speaker 0 speaks once in all. The others' recordings are spread over the shards. */
static i64 speaker_of(i64 sample)
{
    return sample == 7 ? 0 : 1 + sample % (SPEAKERS - 1);
}

static void write_sample(struct shard_writer *w, i64 sample)
{
    struct shard_part parts[3];
    const float vector[VALUES] = {(float)sample, (float)speaker_of(sample), 0.5f};
    parts[0] = (struct shard_part){.kind = PART_VOICE, .condition = 1, .count = 1, .frames = (u32)speaker_of(sample)};
    shard_write_payload(w, &parts[0], vector, sizeof vector);
    parts[1] = fixture_text(w, sample, 3);
    parts[1].condition = 1;
    parts[2] = fixture_medium(w, sample, STREAM_AUDIO);
    shard_write_sample(w, DIRECTION_AUDIO_OUT, "sound", parts, 3);
    shard_write_break(w);
}

static int make(void **state)
{
    (void)state;
    fixture_meta.voice = VALUES;
    folder = string_format("/dev/shm/weft-voices-%ld", (long)getpid());
    char *train = path_join(folder, "train");
    require(directory_remove(folder) == 0 && directory_make(folder) == 0, "%s", error_text());
    fixture_tokenizer(folder);
    require(shard_meta_save(&fixture_meta, folder) == 0, "%s", error_text());
    struct shard_writer *w = shard_writer_open(train, &fixture_meta, 8192);
    for (i64 i = 0; i < SAMPLES; i++)
        write_sample(w, i);
    require(shard_writer_close(w) == 0, "%s", error_text());
    memory_free(train);
    arena_open(&arena, (i64)1 << 30);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    arena_close(&arena);
    directory_remove(folder);
    memory_free(folder);
    return 0;
}

static struct loader *open_with(double drop, bool in_order)
{
    struct loader_settings s = {.rows = {zero_step, some_rows, 1},
                                .length = {zero_step, some_length, 1},
                                .micro_rows = 8,
                                .voice_drop = drop,
                                .in_order = in_order,
                                .condition[MODALITY_TEXT] = 1};
    s.mixture[DIRECTION_AUDIO_OUT] = 1;
    struct loader *l = loader_open(folder, "train", &s, 5);
    if (!l)
        fail_msg("%s", error_text());
    return l;
}

struct seen {
    i64 samples, voices;
    bool drawn[SAMPLES][SAMPLES]; /* [sample][whose vector it was shown] */
};

/* Checks the entries of a step against its batch. */
static void see_step(struct seen *seen, struct loader *l, i64 step)
{
    struct batch b;
    arena_reset(&arena, 0);
    succeed(loader_batch(l, step, 0, &b, &arena));
    const struct packed_rows *rows = &plan_step(l, step)->rows;
    const struct input_list *list = &b.inputs[INPUT_VOICE];
    i64 next = 0;
    for (i64 row = 0; row < rows->count; row++)
        for (i64 i = rows->offset[row], at = row * LENGTH; i < rows->offset[row + 1]; i++) {
            const struct plan_entry *entry = &rows->entries.data[i];
            seen->samples++;
            if (next < list->n && list->position[next] == at) {
                const float *vector = list->features + next++ * VALUES;
                i64 other = (i64)vector[0];
                seen->voices++;
                seen->drawn[entry->sample][other] = true;
                assert_int_not_equal(other, entry->sample);
                assert_int_equal((i64)vector[1], speaker_of(entry->sample));
                assert_float_equal(vector[2], 0.5f, 0);
                assert_int_equal(shards_part(&l->shards, 3 * other)->shard,
                                 shards_part(&l->shards, 3 * entry->sample)->shard);
            }
            at += entry->length;
        }
    assert_int_equal(next, list->n); /* none but at the beginning of a sample */
}

TEST(another_recording_of_the_speaker_is_shown)
{
    struct seen *seen = memory_alloc(sizeof *seen);
    struct loader *l = open_with(0.25, false);
    assert_true(l->shards.shard_count > 2);
    for (i64 step = 0; step < 60; step++)
        see_step(seen, l, step);
    double share = (double)seen->voices / (double)seen->samples;
    assert_true(share > 0.70 && share < 0.80);
    i64 most = 0;
    for (i64 i = 0; i < SAMPLES; i++) {
        i64 others = 0;
        for (i64 k = 0; k < SAMPLES; k++)
            others += seen->drawn[i][k];
        assert_true(i != 7 || others == 0); /* the speaker has no other recording */
        most = max_i64(most, others);
    }
    assert_true(most > 2); /* drawn anew for each showing */
    loader_close(l);
    memory_free(seen);
}

TEST(evaluation_shows_every_voice)
{
    struct seen *seen = memory_alloc(sizeof *seen);
    struct loader *l = open_with(1, true);
    struct loader_step s;
    for (i64 step = 0; loader_step(l, step, &s) == 0 && s.rows; step++)
        see_step(seen, l, step);
    assert_int_equal(seen->samples, SAMPLES);
    assert_int_equal(seen->voices, SAMPLES - 1);
    loader_close(l);
    memory_free(seen);
}

/* The other recordings have equal shares, in whatever order they stand. */
TEST(others_are_drawn_alike)
{
    struct shards s;
    succeed(shards_open(&s, folder, "train"));
    i64 count[SAMPLES] = {0}, others = 0;
    for (i64 i = 0; i < 1000; i++) {
        i64 other = shards_other_voice(&s, 3 * 20, (double)i / 1000);
        assert_true(other >= 0 && other % 3 == 0);
        count[other / 3]++;
    }
    for (i64 i = 0; i < SAMPLES; i++) {
        bool fits = i != 20 && speaker_of(i) == speaker_of(20) &&
                    shards_part(&s, 3 * i)->shard == shards_part(&s, 3 * 20)->shard;
        assert_int_equal(count[i] > 0, fits);
        others += fits;
    }
    for (i64 i = 0; i < SAMPLES; i++)
        assert_true(count[i] == 0 || (count[i] >= 1000 / others && count[i] <= 1000 / others + 1));
    shards_close(&s);
}

/* Without speaker vectors the files are as they were before there were any. */
TEST(sizes_without_voices_name_none)
{
    struct shard_meta meta = fixture_meta, read;
    struct buffer text = {0};
    char *path = path_join(folder, "shards.json");
    succeed(file_read(&text, path));
    buffer_append(&text, "", 1);
    assert_non_null(strstr(text.data, "\"voice\": 3"));
    meta.voice = 0;
    char *other = path_join(folder, "other"), *there = path_join(other, "shards.json");
    succeed(directory_make(other));
    succeed(shard_meta_save(&meta, other));
    buffer_clear(&text);
    succeed(file_read(&text, there));
    buffer_append(&text, "", 1);
    assert_null(strstr(text.data, "voice"));
    succeed(shard_meta_load(&read, other));
    assert_int_equal(read.voice, 0);
    char *difference = shard_meta_difference(&meta, &fixture_meta);
    assert_string_equal(difference, "audio: voice 0 and 3");
    memory_free(difference);
    memory_free(path);
    memory_free(other);
    memory_free(there);
    buffer_release(&text);
}

int main(void)
{
    return tests_run(make, clear);
}
