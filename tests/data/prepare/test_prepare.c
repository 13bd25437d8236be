/* Preparing: a small corpus of every kind becomes shards whose records match the tokenizers'
 * output, in both directions; conversations keep their layout and weights; unreadable files are
 * counted; the packer reads everything back. */
#define _GNU_SOURCE /* memmem */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/media/subtitles.h"
#include "data/media/media.h"
#include "data/loader/packer.h"
#include "data/prepare/prepare.h"
#include "tests/files.h"
#include "kernels/kernels.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"

static char *folder, *corpus, *text_folder, *vision_folder, *audio_folder, *out;
static struct device device;
static struct text_tokenizer *tokenizer;

static void put_image(const char *name, u8 shade)
{
    u8 pixels[20 * 24 * 3];
    char *path = path_join(corpus, name);
    for (i64 i = 0; i < (i64)sizeof pixels; i++)
        pixels[i] = (u8)(shade + i % 97);
    assert_int_equal(image_write_png(path, pixels, 20, 24), 0);
    memory_free(path);
}

static void put_clip(const char *name, i64 frames)
{
    struct clip clip;
    char *path = path_join(corpus, name);
    clip_init(&clip, frames, 32, 32, 8);
    for (i64 i = 0; i < frames * 32 * 32 * 3; i++)
        clip.pixels[i] = (u8)(i / 3072 * 20 + i % 50);
    assert_int_equal(clip_write_mp4(path, &clip), 0);
    clip_release(&clip);
    memory_free(path);
}

static void put_sound(const char *name, i64 samples)
{
    struct sound sound;
    char *path = path_join(corpus, name);
    sound_init(&sound, samples, 16000);
    for (i64 i = 0; i < samples; i++)
        sound.values[i] = 0.3f * (float)((i * i / 37) % 200 - 100) / 100;
    assert_int_equal(sound_write_wav(path, &sound), 0);
    sound_release(&sound);
    memory_free(path);
}

static void make_tokenizers(void)
{
    struct vision_config config = {.stride = 8, .bits = 4, .channels = {8, 16}, .blocks = {1, 1}};
    struct audio_config sound = {.width = 16, .latent = 8, .levels = 2, .codes = 8};
    struct vision vision;
    struct audio_tokenizer audio;
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 330, .special_tokens = grammar_special_tokens});
    assert_int_equal(text_trainer_feed(trainer, "red apple, a clip goes on, seven eight, user assistant", 54), 0);
    tokenizer = text_trainer_finish(trainer);
    assert_int_equal(text_tokenizer_save(tokenizer, text_folder), 0);
    assert_int_equal(vision_add_shape(&config, 1, 32, 32, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 9, 16, 16, 8, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 9, 16, 32, 8, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 1, 24, 40, 0, NULL, 0), 0);
    config.shapes[3].crop = 0.1;
    vision_open(&vision, &device, &config, DTYPE_F32, false);
    vision_init(&vision, 1);
    vision_inflate(&vision);
    assert_int_equal(vision_save(&vision, vision_folder), 0);
    vision_close(&vision);
    audio_open(&audio, &device, &sound, DTYPE_F32, false);
    weights_init(&audio.weights, 1);
    assert_int_equal(audio_save(&audio, audio_folder), 0);
    audio_close(&audio);
}

static void make_corpus(void)
{
    text_in(corpus, "captions.jsonl",
            "{\"image\": \"a.png\", \"text\": \"red apple\"}\n"
            "{\"video\": \"b.mp4\", \"text\": \"a clip goes on\"}\n"
            "{\"audio\": \"c.wav\", \"text\": \"seven\"}\n"
            "{\"image\": \"d.png\", \"text\": \"another\"}\n"
            "{\"video\": \"short.mp4\", \"text\": \"short\"}\n");
    text_in(corpus, "text.jsonl", "{\"text\": \"some plain text\"}\n{\"text\": \"more of it\"}\n");
    text_in(
        corpus, "chat.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": \"a.png\"}, {\"type\": "
        "\"text\", \"text\": \"what?\"}]}, {\"role\": \"assistant\", \"content\": \"an apple\"}]}\n");
    put_image("a.png", 10);
    put_image("d.png", 90);
    put_clip("b.mp4", 9);
    put_clip("short.mp4", 3);
    put_sound("c.wav", 5000);
}

static int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-prepare-%ld", (long)getpid());
    corpus = path_join(folder, "corpus/train");
    text_folder = path_join(folder, "bpe");
    vision_folder = path_join(folder, "vis");
    audio_folder = path_join(folder, "aud");
    out = path_join(folder, "shards");
    char *all[] = {corpus, text_folder, vision_folder, audio_folder, out};
    directory_remove(folder);
    for (i64 i = 0; i < COUNT_OF(all); i++)
        assert_int_equal(directory_make(all[i]), 0);
    device_open_cpu(&device);
    make_tokenizers();
    make_corpus();
    return 0;
}

static int clear(void **state)
{
    (void)state;
    text_tokenizer_free(tokenizer);
    device_close(&device);
    directory_remove(folder);
    char *all[] = {folder, corpus, text_folder, vision_folder, audio_folder, out};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
    return 0;
}

static struct prepare_settings settings_of(char *data)
{
    return (struct prepare_settings){.data = data,
                                     .tokenizer[TOKENIZER_TEXT] = text_folder,
                                     .tokenizer[TOKENIZER_VISION] = vision_folder,
                                     .tokenizer[TOKENIZER_AUDIO] = audio_folder,
                                     .bad_share = 0.05,
                                     .dropout_copies = 1,
                                     .audio_seconds = 30,
                                     .shard_bytes = 1 << 20};
}

static void run(const struct prepare_settings *settings)
{
    if (prepare_stage(settings, out, 1, &device, DTYPE_F32) != 0)
        fail_msg("%s", error_text());
}

/* The record of a direction whose name contains `name`. */
static const struct shard_part *find(const struct shards *s, enum direction direction, const char *name)
{
    for (i64 i = 0; i < s->sample_count; i++)
        if (s->folders[0].samples[i].direction == direction && strstr(shards_name(s, i), name))
            return s->folders[0].parts + s->folders[0].samples[i].first_part;
    fail_msg("no %s of %s", direction_rows[direction].name, name);
    return NULL;
}

static const void *payload(struct shards *s, const struct shard_part *part)
{
    const void *data = shards_payload(s, part - s->folders[0].parts);
    assert_non_null(data);
    return data;
}

static void assert_text(struct shards *s, const struct shard_part *part, bool condition, const char *expected)
{
    struct buffer text = {0};
    assert_int_equal(part->kind, STREAM_TEXT);
    assert_int_equal(part->condition, condition);
    assert_int_equal(text_decode(tokenizer, &text, payload(s, part), part->count, false), 0);
    assert_string_equal(text.data, expected);
    buffer_release(&text);
}

TEST(captions_go_both_ways)
{
    char *data = path_join(folder, "corpus");
    struct prepare_settings settings = settings_of(data);
    struct shards s;
    run(&settings);
    if (shards_open(&s, out, "train") < 0)
        fail_msg("%s", error_text());
    assert_int_equal(shards_verify(&s), 0);
    assert_int_equal(s.sample_count, 5 * 2 + 2 + 1);
    const struct shard_part *p = find(&s, DIRECTION_IMAGE_IN, "captions.jsonl:1");
    assert_true(p[0].kind == STREAM_IMAGE_IN && p[0].condition && p[0].height == 4 && p[0].width == 4);
    assert_text(&s, p + 1, false, " red apple");
    assert_true(p[2].kind == PART_NOTE && memcmp(payload(&s, p + 2), "red apple", 9) == 0);
    p = find(&s, DIRECTION_IMAGE_OUT, "captions.jsonl:1");
    assert_text(&s, p, true, " red apple");
    assert_true(p[1].kind == STREAM_IMAGE_OUT && !p[1].condition && p[1].shape == 0);
    p = find(&s, DIRECTION_VIDEO_OUT, "captions.jsonl:2");
    assert_true(p[1].kind == STREAM_VIDEO_OUT && p[1].shape == 1 && p[1].frames == 3);
    p = find(&s, DIRECTION_VIDEO_IN, "captions.jsonl:5");
    assert_true(p[0].kind == STREAM_VIDEO_IN && p[0].frames == 2 && p[0].height == 2); /* 3 frames, padded to 5 */
    p = find(&s, DIRECTION_AUDIO_IN, "captions.jsonl:3");
    assert_true(p[0].kind == STREAM_AUDIO && p[0].condition && p[0].count == 4);
    const struct shard_part *made = find(&s, DIRECTION_AUDIO_OUT, "captions.jsonl:3");
    assert_true(made[1].offset == p[0].offset && made[1].shard == p[0].shard); /* one payload for both */
    assert_text(&s, find(&s, DIRECTION_TEXT, "text.jsonl:2"), false, "more of it");
    shards_close(&s);
    memory_free(data);
}

TEST(records_hold_what_the_tokenizers_say)
{
    struct shards s;
    struct vision vision;
    struct clip stored, clip;
    struct buffer bytes = {0};
    char *path = path_join(corpus, "a.png");
    float latent[16 * 4], features[16 * 16];
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(vision_load(&vision, &device, vision_folder, DTYPE_F32, false), 0);
    assert_int_equal(file_read(&bytes, path), 0);
    assert_int_equal(image_read(&stored, bytes.data, bytes.length, path), 0);
    clip_resize(&clip, &stored, 32, 32);
    vision_encode(&vision, latent, features, clip.pixels, 1, 1, 32, 32);
    const bf16 *given = payload(&s, find(&s, DIRECTION_IMAGE_IN, "captions.jsonl:1"));
    const bf16 *made = payload(&s, find(&s, DIRECTION_IMAGE_OUT, "captions.jsonl:1") + 1);
    for (i64 i = 0; i < 16 * 16; i++)
        assert_float_equal(bf16_to_f32(given[i]), features[i], 0.05);
    for (i64 i = 0; i < 16 * 4; i++)
        assert_float_equal(bf16_to_f32(made[i]), latent[i], 0.05);
    assert_memory_equal(given + 16 * 16, clip.pixels, 32 * 32 * 3);
    clip_release(&clip);
    clip_release(&stored);
    buffer_release(&bytes);
    vision_close(&vision);
    shards_close(&s);
    memory_free(path);
}

TEST(conversations_keep_their_layout)
{
    struct shards s;
    assert_int_equal(shards_open(&s, out, "train"), 0);
    const struct shard_part *p = find(&s, DIRECTION_CHAT, "chat.jsonl:1");
    assert_text(&s, p, true, "<|im_start|>user\n");
    assert_true(p[1].kind == STREAM_IMAGE_IN);
    assert_text(&s, p + 2, true, "what?<|im_end|>\n<|im_start|>assistant\n");
    assert_text(&s, p + 3, false, "an apple<|im_end|>");
    shards_close(&s);
}

TEST(the_packer_reads_it)
{
    static i64 zero[1];
    static double rows[] = {4}, length[] = {256};
    struct loader_settings settings = {.rows = {zero, rows, 1},
                                       .length = {zero, length, 1},
                                       .micro_rows = 4,
                                       .mixture = {1, 1, 1, 1, 1, 1, 1, 1},
                                       .condition[MODALITY_TEXT] = 1,
                                       .flip_most = 0.2};
    struct loader *loader = loader_open(out, "train", &settings, 1);
    struct loader_step step;
    struct batch batch;
    struct arena arena;
    if (!loader)
        fail_msg("%s", error_text());
    arena_open(&arena, (i64)1 << 30);
    for (i64 i = 0; i < 3; i++) {
        assert_int_equal(loader_step(loader, i, &step), 0);
        if (loader_batch(loader, i, 0, &batch, &arena) < 0)
            fail_msg("%s", error_text());
        for (int kind = 0; kind <= TARGET_AUDIO; kind++)
            assert_true(step.totals[kind] > 0);
        for (int kind = 0; kind <= INPUT_AUDIO; kind++)
            assert_true(batch.inputs[kind].n > 0);
    }
    assert_true((double)step.positions >= 0.95 * (double)(step.rows * step.length));
    arena_close(&arena);
    loader_close(loader);
}

TEST(the_same_corpus_gives_the_same_bytes)
{
    char *data = path_join(folder, "corpus"), *index = path_join(out, "train/index");
    struct prepare_settings settings = settings_of(data);
    struct buffer first = {0}, second = {0};
    assert_int_equal(file_read(&first, index), 0);
    run(&settings);
    assert_int_equal(file_read(&second, index), 0);
    assert_true(first.length == second.length && memcmp(first.data, second.data, (size_t)first.length) == 0);
    buffer_release(&first);
    buffer_release(&second);
    memory_free(data);
    memory_free(index);
}

/* Sizes of media are known before they are encoded: what is estimated from all samples is what is written, up to
 * the headers of files. */
TEST(media_are_estimated_to_the_byte)
{
    char *data = path_join(folder, "corpus"), *index = path_join(out, "train/index"),
         *shard = path_join(out, "train/00000.shard");
    struct prepare_settings settings = settings_of(data);
    struct prepare_estimate e;
    run(&settings);
    assert_int_equal(prepare_estimate(&e, &settings, &device), 0);
    i64 made = file_bytes(index) + file_bytes(shard);
    assert_in_range((i64)e.made, made - 300, made);
    memory_free(data);
    memory_free(index);
    memory_free(shard);
}

/* Pictures whose folders are their captions, too. */
TEST(media_with_names_are_estimated)
{
    char *data = path_join(folder, "classes"), *inside = path_join(data, "cat"), *index = path_join(out, "train/index"),
         *shard = path_join(out, "train/00000.shard");
    struct prepare_settings settings = settings_of(data);
    struct prepare_estimate e;
    u8 pixels[32 * 32 * 3] = {0};
    assert_int_equal(directory_make(inside), 0);
    for (i64 i = 0; i < 5; i++) {
        char *path = string_format("%s/%lld.png", inside, (long long)i);
        assert_int_equal(image_write_png(path, pixels, 32, 32), 0);
        memory_free(path);
    }
    settings.columns.captions = CAPTIONS_FOLDER;
    run(&settings);
    assert_int_equal(prepare_estimate(&e, &settings, &device), 0);
    assert_int_equal(e.samples, 5);
    i64 made = file_bytes(index) + file_bytes(shard);
    assert_in_range((i64)e.made, made - 300, made);
    void *all[] = {data, inside, index, shard};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

TEST(chosen_directions_and_copies)
{
    char *data = path_join(folder, "corpus"), *names[] = {"text", "image-in"};
    struct prepare_settings settings = settings_of(data);
    struct shards s;
    settings.directions = (struct string_list){names, 2};
    settings.dropout = 0.5;
    settings.dropout_copies = 3;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(s.sample_count, 2 + 2 * 3);
    for (i64 i = 0; i < s.sample_count; i++)
        if (s.folders[0].samples[i].direction == DIRECTION_TEXT && strstr(shards_name(&s, i), ":2"))
            assert_text(&s, s.folders[0].parts + s.folders[0].samples[i].first_part, false, "more of it");
    shards_close(&s);
    names[1] = "imag-in";
    assert_int_equal(prepare_stage(&settings, out, 1, &device, DTYPE_F32), -1);
    assert_non_null(strstr(error_text(), "imag-in"));
    memory_free(data);
}

TEST(unreadable_files_are_counted)
{
    struct prepare_settings settings = settings_of(corpus);
    struct shards s;
    text_in(
        corpus, "captions.jsonl",
        "{\"image\": \"a.png\", \"text\": \"red apple\"}\n{\"image\": \"missing.png\", \"text\": \"x\"}\nrubbish\n");
    assert_int_equal(prepare_stage(&settings, out, 1, &device, DTYPE_F32), -1);
    assert_non_null(strstr(error_text(), "2 of 6"));
    settings.bad_share = 0.5;
    settings.validation = 0;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(s.sample_count, 2 + 2 + 1);
    shards_close(&s);
    make_corpus();
}

TEST(without_tokenizers_media_are_left_out)
{
    struct prepare_settings settings = settings_of(corpus);
    struct shards s;
    settings.tokenizer[TOKENIZER_VISION] = settings.tokenizer[TOKENIZER_AUDIO] = "";
    settings.validation = 0.5;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    i64 train = s.sample_count;
    assert_int_equal(s.meta.bits, 0);
    shards_close(&s);
    assert_int_equal(shards_open(&s, out, "validation"), 0);
    assert_int_equal(train + s.sample_count, 2);
    shards_close(&s);
}

/* A truncated archive is one bad sample, and the files after it are read; a share of bad bytes
 * above bad_share is an error. */
TEST(damaged_files_are_counted)
{
    char *data = path_join(folder, "torn"), *kept = corpus;
    struct prepare_settings settings = settings_of(data);
    struct buffer lines = {0};
    struct shards s;
    assert_int_equal(directory_make(data), 0);
    corpus = data;
    for (i64 i = 0; i < 200; i++)
        buffer_printf(&lines, "{\"text\": \"some text %lld\"}\n", (long long)i);
    text_in(corpus, "z.jsonl", lines.data);
    text_in(corpus, "a.tar", "no archive");
    char *link = path_join(data, "b.jsonl");
    assert_int_equal(symlink("nowhere", link), 0);
    settings.validation = 0;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(s.sample_count, 200);
    shards_close(&s);
    settings.bad_share = 0.005;
    assert_int_equal(prepare_stage(&settings, out, 1, &device, DTYPE_F32), -1);
    assert_non_null(strstr(error_text(), "2 of 202"));
    text_in(corpus, "c.tar", lines.data);
    settings.bad_share = 0.05;
    assert_int_equal(prepare_stage(&settings, out, 1, &device, DTYPE_F32), -1);
    assert_non_null(strstr(error_text(), "of the bytes are damaged"));
    corpus = kept;
    buffer_release(&lines);
    memory_free(data);
    memory_free(link);
}

TEST(pictures_of_a_table_are_made)
{
    char *data = path_join(folder, "table"), *to = path_join(data, "png.parquet");
    struct prepare_settings settings = settings_of(data);
    struct shards s;
    assert_int_equal(directory_make(data) || file_copy(to, GOLDEN "/tables/forms/png.parquet"), 0);
    settings.columns = (struct source_columns){.modality = {[MODALITY_IMAGE] = "picture", [MODALITY_TEXT] = "alt"}};
    settings.bad_share = 0.5;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(s.sample_count, 2);
    const struct shard_part *p = find(&s, DIRECTION_IMAGE_IN, "png.parquet:1");
    assert_true(p[0].kind == STREAM_IMAGE_IN && p[0].condition);
    assert_text(&s, p + 1, false, " red apple");
    p = find(&s, DIRECTION_IMAGE_OUT, "png.parquet:1");
    assert_true(p[1].kind == STREAM_IMAGE_OUT && !p[1].condition);
    shards_close(&s);
    settings.columns.modality[MODALITY_TEXT] = "title";
    assert_int_equal(prepare_stage(&settings, out, 1, &device, DTYPE_F32), -1);
    memory_free(data);
    memory_free(to);
}

/* Conversations without an answer to learn are written and counted. Answers of weight 0 are read
 * only. */
TEST(conversations_without_an_answer_are_counted)
{
    char *data = path_join(folder, "asked"), *kept = corpus, *log = path_join(folder, "asked.log");
    struct prepare_settings settings = settings_of(data);
    struct buffer said = {0};
    struct shards s;
    assert_int_equal(directory_make(data), 0);
    corpus = data;
    text_in(
        corpus, "a.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"what?\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"what?\"}, {\"role\": \"assistant\", \"content\": \"an "
        "apple\", "
        "\"weight\": 0}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"what?\"}, {\"role\": \"assistant\", \"content\": \"red\", "
        "\"weight\": 0}, {\"role\": \"user\", \"content\": \"what?\"}, {\"role\": \"assistant\", \"content\": \"an "
        "apple\"}]}\n"
        "{\"text\": \"some plain text\"}\n");
    int before = dup(2), file = open(log, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(before >= 0 && file >= 0 && dup2(file, 2) == 2);
    run(&settings);
    assert_int_equal(dup2(before, 2), 2);
    close(before);
    close(file);
    assert_int_equal(file_read(&said, log), 0);
    assert_non_null(strstr(said.data, "2 conversations have no answer to learn"));
    assert_int_equal(shards_open(&s, out, "train"), 0);
    const struct shard_part *p = find(&s, DIRECTION_CHAT, "a.jsonl:2");
    assert_text(&s, p, true, "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\nan apple<|im_end|>");
    p = find(&s, DIRECTION_CHAT, "a.jsonl:3");
    assert_text(&s, p, true,
                "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\nred<|im_end|>\n<|im_start|>user\nwhat?"
                "<|im_end|>\n<|im_start|>assistant\n");
    assert_text(&s, p + 1, false, "an apple<|im_end|>");
    shards_close(&s);
    corpus = kept;
    buffer_release(&said);
    memory_free(data);
    memory_free(log);
}

TEST(a_long_text_is_several_samples_with_one_end)
{
    char *data = path_join(folder, "long"), *kept = corpus;
    struct prepare_settings settings = settings_of(data);
    struct buffer lines = {0};
    struct shards s;
    assert_int_equal(directory_make(data), 0);
    corpus = data;
    for (i64 i = 0; i < 8000; i++)
        buffer_printf(&lines, "line %lld\n\n", (long long)i);
    text_in(corpus, "a.txt", lines.data);
    settings.validation = 0;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_in_range(s.sample_count, 2, 10);
    for (i64 i = 0; i < s.sample_count; i++)
        assert_int_equal(s.folders[0].samples[i].goes_on, i + 1 < s.sample_count);
    shards_close(&s);
    corpus = kept;
    buffer_release(&lines);
    memory_free(data);
}

static void assert_samples(const char *part, i64 count, const char *only)
{
    struct shards s;
    assert_int_equal(shards_open(&s, out, part), 0);
    assert_int_equal(s.sample_count, count);
    for (i64 i = 0; i < count; i++)
        assert_non_null(strstr(shards_name(&s, i), only));
    shards_close(&s);
}

TEST(held_out_folders_stay_out_of_train)
{
    char *data = path_join(folder, "unnamed"), *other = path_join(data, "books"), *held = path_join(data, "validation"),
         *kept = corpus;
    struct prepare_settings settings = settings_of(data);
    settings.validation = settings.test = 0.5; /* no random split: the folders exist */
    assert_int_equal(directory_make(other) || directory_make(held), 0);
    corpus = data;
    text_in(corpus, "books/b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
    text_in(corpus, "d.jsonl", "{\"text\": \"d\"}\n");
    text_in(corpus, "validation/v.jsonl", "{\"text\": \"e\"}\n{\"text\": \"f\"}\n");
    run(&settings);
    assert_samples("train", 4, ".jsonl:");
    assert_samples("validation", 2, "validation/v.jsonl:");
    assert_samples("test", 0, "");
    corpus = kept;
    memory_free(data);
    memory_free(other);
    memory_free(held);
}

TEST(long_sounds_are_left_out_not_bad)
{
    struct prepare_settings settings = settings_of(corpus);
    settings.validation = settings.bad_share = 0;
    settings.audio_seconds = 0.35;
    put_sound("long.wav", 16000);
    text_in(corpus, "captions.jsonl",
            "{\"audio\": \"c.wav\", \"text\": \"seven\"}\n{\"audio\": \"long.wav\", \"text\": \"x\"}\n");
    run(&settings);
    assert_samples("train", 2 + 2 + 1, ".jsonl:");
    settings.audio_seconds = 2;
    run(&settings);
    assert_samples("train", 2 * 2 + 2 + 1, ".jsonl:");
    make_corpus();
}

/* 40 frames at 8 Hz are 5 s, a window has 9 frames; the beginning is a window too. */
TEST(windows_of_a_long_clip_are_samples)
{
    struct prepare_settings settings = settings_of(corpus);
    struct shards s;
    struct clip window;
    struct file_view file;
    char *path = path_join(corpus, "long.mp4");
    /* 5 s, and a window of 9 frames at 8 Hz: the last one begins at 3.875 s. */
    static const struct {
        i64 most;
        double every_s;
        i64 windows;
        const char *last;
    } cases[] = {{2, 0, 2, ":1@3.875"},   {5, 0, 5, ":1@3.875"},     {2, 1.5, 2, ":1@1.500"},
                 {9, 1.5, 3, ":1@3.000"}, {0, 3.875, 2, ":1@3.875"}, {0, 1.5, 3, ":1@3.000"}};
    settings.validation = settings.bad_share = 0;
    put_clip("long.mp4", 40);
    text_in(corpus, "captions.jsonl", "{\"video\": \"long.mp4\", \"text\": \"a clip goes on\"}\n");
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        settings.windows.most = cases[i].most;
        settings.windows.every_s = cases[i].every_s;
        run(&settings);
        assert_samples("train", cases[i].windows * 2 + 2 + 1, ".jsonl:");
        assert_int_equal(shards_open(&s, out, "train"), 0);
        assert_non_null(find(&s, DIRECTION_VIDEO_IN, cases[i].last));
        shards_close(&s);
    }
    assert_int_equal(shards_open(&s, out, "train"), 0);
    const struct shard_part *part = find(&s, DIRECTION_VIDEO_IN, "captions.jsonl:1@1.500");
    assert_non_null(part);
    assert_text(&s, part + 1, false, " a clip goes on");
    assert_int_equal(file_map(&file, path), 0);
    assert_int_equal(clip_read(&window, file.data, file.bytes, path,
                               &(struct clip_request){8, 9, part->height * 8, part->width * 8, .from_s = 1.5}),
                     0);
    i64 pixels = 9 * window.height * window.width * 3, features = (i64)part->frames * part->height * part->width * 16;
    assert_memory_equal((const u8 *)payload(&s, part) + features * 2, window.pixels, pixels);
    clip_release(&window);
    file_unmap(&file);
    shards_close(&s);
    memory_free(path);
    make_corpus();
}

TEST(a_long_sound_is_cut_into_samples)
{
    struct prepare_settings settings = settings_of(corpus);
    settings.validation = settings.bad_share = 0;
    settings.audio_seconds = 0.35;
    settings.cut_sounds = true;
    put_sound("long.wav", 16000); /* 1 s: at least 3 pieces, each in and out */
    text_in(corpus, "captions.jsonl",
            "{\"audio\": \"c.wav\", \"text\": \"seven\"}\n{\"audio\": \"long.wav\", \"text\": \"x\"}\n");
    run(&settings);
    struct shards s;
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_non_null(find(&s, DIRECTION_AUDIO_IN, "captions.jsonl:2@0.000"));
    i64 pieces = 0;
    for (i64 i = 0; i < s.sample_count; i++)
        pieces += strstr(shards_name(&s, i), "captions.jsonl:2@") != NULL;
    assert_in_range(pieces, 2 * 3, 2 * 6);
    shards_close(&s);
    make_corpus();
}

TEST(subtitles_are_the_text_of_their_window)
{
    struct prepare_settings settings = settings_of(corpus);
    struct shards s;
    settings.validation = settings.bad_share = 0;
    settings.windows.every_s = 1.5; /* 0, 1.5, 3, of 1.125 s each */
    put_clip("talk.mp4", 40);
    text_in(corpus, "talk.srt",
            "1\r\n00:00:00,200 --> 00:00:00,900\r\n<i>red</i> apple\r\n\r\n2\r\n00:00:00,950 --> 00:00:01,600\r\n"
            "goes on\r\n\r\n3\r\n00:01:00,000 --> 00:01:02,000\r\nnever\r\n");
    text_in(corpus, "captions.jsonl", "{\"image\": \"a.png\", \"text\": \"red apple\"}\n");
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_text(&s, find(&s, DIRECTION_VIDEO_IN, "talk.mp4") + 1, false, " red apple goes on");
    assert_text(&s, find(&s, DIRECTION_VIDEO_IN, "talk.mp4@1.500") + 1, false, " goes on");
    for (i64 i = 0; i < s.sample_count; i++)
        assert_null(strstr(shards_name(&s, i), "talk.mp4@3.000")); /* no speech there */
    shards_close(&s);
    char *paths[] = {path_join(corpus, "talk.srt"), path_join(corpus, "talk.mp4")};
    for (i64 i = 0; i < COUNT_OF(paths); i++) {
        directory_remove(paths[i]);
        memory_free(paths[i]);
    }
    make_corpus();
}

TEST(times_of_subtitles_are_read)
{
    static const char vtt[] =
        "WEBVTT\n\nNOTE 1:00 is no time\n\n00:01.000 --> 00:02.5 align:start\n{\\an8}a <b>b</b>\nc < d\n\n"
        "x\n01:00:00.000 --> 01:00:01.000\nlate\n\n5 --> 6\nno times\n";
    struct buffer words = {0};
    assert_int_equal(subtitles_words(&words, vtt, sizeof vtt - 1, 0, 1e9), 2);
    assert_string_equal(words.data, "a b c < d late");
    buffer_clear(&words);
    assert_int_equal(subtitles_words(&words, vtt, sizeof vtt - 1, 2.5, 3600), 2);
    assert_int_equal(words.length, 0);
    assert_int_equal(subtitles_words(&words, vtt, sizeof vtt - 1, 2.4, 3600.1), 2);
    assert_string_equal(words.data, "a b c < d late");
    buffer_clear(&words);
    assert_int_equal(subtitles_words(&words, "no cue", 6, 0, 1), 0);
    buffer_release(&words);
}

/* The matrix of the only track stretches pixels: 44 bytes
 * after the box type (ISO/IEC 14496-12, 8.3.2). */
TEST(clips_have_the_shape_that_is_shown)
{
    struct prepare_settings settings = settings_of(corpus);
    struct shards s;
    struct buffer mp4 = {0};
    char *path = path_join(corpus, "b.mp4");
    settings.validation = 0;
    assert_int_equal(file_read(&mp4, path), 0);
    char *type = memmem(mp4.data, (size_t)mp4.length, "tkhd", 4);
    assert_non_null(type);
    memcpy(type + 44, "\0\x02\0\0", 4);
    assert_int_equal(file_replace(path, mp4.data, mp4.length), 0);
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(find(&s, DIRECTION_VIDEO_OUT, "captions.jsonl:2")[1].shape, 2);
    assert_int_equal(find(&s, DIRECTION_VIDEO_OUT, "captions.jsonl:5")[1].shape, 1);
    shards_close(&s);
    buffer_release(&mp4);
    memory_free(path);
    make_corpus();
}

/* Writes a 60 x 110 picture; returns it cropped to 5 : 3. */
static struct clip put_long(const char *train)
{
    char *path = path_join(train, "a.png"), *captions = path_join(train, "captions.jsonl");
    const char *line = "{\"image\": \"a.png\", \"text\": \"red apple\"}\n";
    struct clip stored, clip;
    clip_init(&stored, 1, 60, 110, 0);
    for (i64 i = 0; i < 60 * 110 * 3; i++)
        stored.pixels[i] = (u8)(i % 330 / 3 * 2 + i / 330);
    assert_int_equal(directory_make(train), 0);
    assert_int_equal(image_write_png(path, stored.pixels, 60, 110), 0);
    assert_int_equal(file_replace(captions, line, (i64)strlen(line)), 0);
    clip_fill(&clip, &stored, 24, 40, 0.1);
    clip_release(&stored);
    memory_free(path);
    memory_free(captions);
    return clip;
}

/* Scales 1x1, 2x3, 2x4, 3x5; inputs hold all but the first, and the whole. */
static void assert_long_pictures_are_packed(void)
{
    static i64 zero[1];
    static double rows[] = {1}, length[] = {128};
    struct loader_settings packing = {
        .rows = {zero, rows, 1}, .length = {zero, length, 1}, .micro_rows = 1, .mixture = {1, 1, 1, 1, 1, 1, 1, 1}};
    struct loader *loader = loader_open(out, "train", &packing, 1);
    struct loader_step step;
    struct batch batch;
    struct arena arena;
    if (!loader || loader_step(loader, 0, &step) < 0)
        fail_msg("%s", error_text());
    arena_open(&arena, (i64)1 << 26);
    assert_int_equal(loader_batch(loader, 0, 0, &batch, &arena), 0);
    i64 tokens = 1 + 2 * 3 + 2 * 4 + 3 * 5, pictures = batch.targets[TARGET_VISION].n / tokens;
    assert_true(pictures > 0 && batch.targets[TARGET_VISION].n == pictures * tokens);
    assert_int_equal(batch.inputs[INPUT_VISION_OUT].n, pictures * tokens);
    assert_true(batch.inputs[INPUT_VISION_IN].n % (2 * 3) == 0 && batch.inputs[INPUT_VISION_IN].n > 0);
    arena_close(&arena);
    loader_close(loader);
}

TEST(long_pictures_are_encoded_in_a_long_shape)
{
    char *data = path_join(folder, "long"), *train = path_join(data, "train");
    struct prepare_settings settings = settings_of(data);
    struct clip clip = put_long(train);
    struct shards s;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    const struct shard_part *given = find(&s, DIRECTION_IMAGE_IN, "captions"),
                            *made = find(&s, DIRECTION_IMAGE_OUT, "captions") + 1;
    assert_true(given->height == 3 && given->width == 5 && made->shape == 3);
    assert_true(s.meta.shapes[3].h == 3 && s.meta.shapes[3].w == 5);
    assert_true(clip.cut > 0 && clip.inner_height == 24 && clip.inner_width == 40);
    assert_memory_equal((const bf16 *)payload(&s, given) + 15 * 16, clip.pixels, 24 * 40 * 3);
    shards_close(&s);
    assert_long_pictures_are_packed();
    clip_release(&clip);
    memory_free(data);
    memory_free(train);
}

/* Texts of `text` in all training samples that hold marks of control; none is a control token. */
static i64 spelled_marks(const char *at)
{
    struct shards s;
    i64 found = 0;
    assert_int_equal(shards_open(&s, at, "train"), 0);
    for (i64 i = 0; i < s.sample_count; i++)
        for (i64 k = 0; k < s.folders[0].samples[i].parts; k++) {
            const struct shard_part *part = s.folders[0].parts + s.folders[0].samples[i].first_part + k;
            struct buffer text = {0};
            if (part->kind != STREAM_TEXT)
                continue;
            const i32 *ids = payload(&s, part);
            for (u32 n = 0; n < part->count; n++)
                if (text_token_is_special(tokenizer, ids[n]))
                    fail_msg("%s: id %d is a control token", shards_name(&s, i), (int)ids[n]);
            assert_int_equal(text_decode(tokenizer, &text, ids, part->count, true), 0);
            found += strstr(text.data, "<|endoftext|> and <|im_end|>") != NULL;
            buffer_release(&text);
        }
    shards_close(&s);
    return found;
}

/* Marks that stand in a text, a caption or what is said are text there: only conversations and the
 * grammar of media write control tokens. */
TEST(marks_spelled_out_in_texts_are_text)
{
    char *whole = corpus, *spelled = path_join(folder, "spelled/train"), *data = path_join(folder, "spelled");
    struct prepare_settings settings = settings_of(data);
    assert_int_equal(directory_make(spelled), 0);
    corpus = spelled;
    text_in(corpus, "text.jsonl", "{\"text\": \"one <|endoftext|> and <|im_end|> more\"}\n");
    text_in(corpus, "plain.txt", "two <|endoftext|> and <|im_end|> more\n");
    text_in(corpus, "captions.jsonl",
            "{\"image\": \"a.png\", \"text\": \"three <|endoftext|> and <|im_end|>\"}\n"
            "{\"video\": \"b.mp4\", \"text\": \"four <|endoftext|> and <|im_end|>\"}\n"
            "{\"audio\": \"c.wav\", \"text\": \"five <|endoftext|> and <|im_end|>\"}\n");
    put_image("a.png", 10);
    put_clip("b.mp4", 9);
    put_sound("c.wav", 5000);
    run(&settings);
    assert_int_equal(spelled_marks(out), 2 + 3 * 2); /* media both ways */
    settings.dropout = 0.1;
    settings.dropout_copies = 2;
    run(&settings);
    assert_int_equal(spelled_marks(out), 2 * 2 + 3 * 2);
    corpus = whole;
    memory_free(spelled);
    memory_free(data);
}

/* A sound whose record names its speaker and in which something is heard has a speaker vector before the
 * text that it is spoken from. */
TEST(sounds_with_a_speaker_have_a_vector)
{
    char *whole = corpus, *spoken = path_join(folder, "spoken/train"), *data = path_join(folder, "spoken");
    struct prepare_settings settings = settings_of(data);
    struct shards s;
    struct mel_distance mel;
    struct sound sound;
    struct buffer bytes = {0};
    float vector[VOICE_VALUES];
    assert_int_equal(directory_make(spoken), 0);
    corpus = spoken;
    text_in(corpus, "captions.jsonl",
            "{\"audio\": \"a.wav\", \"text\": \"seven\", \"speaker\": \"ann\"}\n"
            "{\"audio\": \"b.wav\", \"text\": \"eight\", \"speaker\": \"ann\"}\n"
            "{\"audio\": \"c.wav\", \"text\": \"seven\", \"speaker\": \"bob\"}\n"
            "{\"audio\": \"d.wav\", \"text\": \"seven eight\"}\n"
            "{\"audio\": \"e.wav\", \"text\": \"seven apple\", \"speaker\": \"bob\"}\n");
    put_sound("a.wav", 5000);
    put_sound("b.wav", 7000);
    put_sound("c.wav", 9000);
    put_sound("d.wav", 8000);
    put_sound("e.wav", 600); /* too short */
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(s.folders[0].voice_count + s.meta.voice, 0);
    shards_close(&s);
    settings.voices = true;
    run(&settings);
    assert_int_equal(shards_open(&s, out, "train"), 0);
    assert_int_equal(shards_verify(&s), 0);
    assert_int_equal(s.meta.voice, VOICE_VALUES);
    assert_int_equal(s.folders[0].voice_count, 3);
    const struct shard_part *a = find(&s, DIRECTION_AUDIO_OUT, ":1"), *b = find(&s, DIRECTION_AUDIO_OUT, ":2"),
                            *c = find(&s, DIRECTION_AUDIO_OUT, ":3");
    assert_true(a->kind == PART_VOICE && a->condition && a->frames == b->frames && a->frames != c->frames);
    assert_text(&s, a + 1, true, " seven");
    assert_int_equal(find(&s, DIRECTION_AUDIO_OUT, ":4")->kind, STREAM_TEXT);
    assert_int_equal(find(&s, DIRECTION_AUDIO_OUT, ":5")->kind, STREAM_TEXT);
    assert_int_equal(find(&s, DIRECTION_AUDIO_IN, ":1")->kind, STREAM_AUDIO);
    i64 own = a - s.folders[0].parts;
    assert_int_equal(shards_other_voice(&s, own, 0.9), b - s.folders[0].parts);
    assert_int_equal(shards_other_voice(&s, c - s.folders[0].parts, 0.9), -1);
    char *path = path_join(corpus, "a.wav");
    assert_int_equal(file_read(&bytes, path), 0);
    assert_int_equal(sound_read(&sound, bytes.data, bytes.length, path, AUDIO_RATE_HZ), 0);
    mel_distance_open(&mel, &device, AUDIO_RATE_HZ);
    assert_int_equal(voice_of(vector, &mel, sound.values, sound.samples), 0);
    assert_memory_equal(payload(&s, a), vector, sizeof vector);
    mel_distance_close(&mel);
    sound_release(&sound);
    buffer_release(&bytes);
    shards_close(&s);
    settings.tokenizer[TOKENIZER_AUDIO] = "";
    assert_int_equal(prepare_check_settings(&settings), -1);
    assert_non_null(strstr(error_text(), "voices: sounds need an audio tokenizer"));
    corpus = whole;
    memory_free(path);
    memory_free(spoken);
    memory_free(data);
}

int main(void)
{
    return tests_run(make, clear);
}
