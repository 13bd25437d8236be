/* Films become samples of a clip and its sound, from single files, archives, tables and
 * conversations; films without sound or with damaged sound are counted. */
#include "tokenizer_training/audio_step.h"
#include "data/curate/dedup.h"
#include "data/media/media.h"
#include "data/loader/packer.h"
#include "data/prepare/prepare.h"
#include "kernels/kernels.h"
#include "tests/scratch.h"
#include "tests/tar_text.h"
#include "tokenizers/vision/vision.h"

#define FILMS SOURCE_TREE "/tests/media/films/"
static struct device device;

static void make_tokenizers(void)
{
    struct vision_config config = {.stride = 8, .bits = 4, .channels = {8, 16}, .blocks = {1, 1}};
    struct audio_config sizes = {.width = 16, .latent = 8, .levels = 2, .codes = 8};
    struct vision vision;
    struct audio_tokenizer audio;
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 330, .special_tokens = grammar_special_tokens});
    succeed(text_trainer_feed(trainer, "a film goes on, user assistant", 30));
    struct text_tokenizer *text = text_trainer_finish(trainer);
    succeed(directory_make(path_of("bpe")));
    succeed(directory_make(path_of("vis")));
    succeed(directory_make(path_of("aud")));
    succeed(text_tokenizer_save(text, path_of("bpe")));
    text_tokenizer_free(text);
    assert_int_equal(vision_add_shape(&config, 9, 16, 16, 8, NULL, 0), 0);
    vision_open(&vision, &device, &config, DTYPE_F32, false);
    vision_init(&vision, 1);
    vision_inflate(&vision);
    succeed(vision_save(&vision, path_of("vis")));
    vision_close(&vision);
    audio_open(&audio, &device, &sizes, DTYPE_F32, false);
    weights_init(&audio.weights, 1);
    succeed(audio_save(&audio, path_of("aud")));
    audio_close(&audio);
}

static int make(void **state)
{
    if (make_directory(state) < 0)
        return -1;
    device_open_cpu(&device);
    workers_start(2);
    make_tokenizers();
    return 0;
}

static int clear(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

/* Makes an empty folder `in`, where `put` writes. */
static void begin(void)
{
    directory_remove(path_of("in"));
    succeed(directory_make(path_of("in/train")));
}

static void put(const char *name, const char *bytes, i64 count)
{
    char *path = string_format("%s/%s", path_of("in/train"), name);
    succeed(file_replace(path, bytes, count));
    memory_free(path);
}

static void put_words(const char *name, const char *text)
{
    put(name, text, (i64)strlen(text));
}

static void put_film(const char *name, const char *film)
{
    struct buffer bytes = {0};
    char *path = string_format(FILMS "%s", film);
    succeed(file_read(&bytes, path));
    put(name, bytes.data, bytes.length);
    buffer_release(&bytes);
    memory_free(path);
}

static struct prepare_settings settings_of(enum film_sound film_sound)
{
    static char paths[4][128];
    static const char *const names[] = {"in", "bpe", "vis", "aud"};
    for (i64 i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", directory, names[i]);
    return (struct prepare_settings){.data = paths[0],
                                     .tokenizer[TOKENIZER_TEXT] = paths[1],
                                     .tokenizer[TOKENIZER_VISION] = paths[2],
                                     .tokenizer[TOKENIZER_AUDIO] = paths[3],
                                     .bad_share = 0,
                                     .dropout_copies = 1,
                                     .audio_seconds = 30,
                                     .film_sound = film_sound,
                                     .shard_bytes = 1 << 20};
}

static void run(struct shards *shards, const struct prepare_settings *settings)
{
    directory_remove(path_of("out"));
    succeed(directory_make(path_of("out")));
    succeed(prepare_stage(settings, path_of("out"), 1, &device, DTYPE_F32));
    succeed(shards_open(shards, path_of("out"), "train"));
    succeed(shards_verify(shards));
}

static const struct shard_part *find(const struct shards *s, enum direction direction, const char *name, i64 *count)
{
    for (i64 i = 0; i < s->sample_count; i++) {
        const char *end = strstr(shards_name(s, i), name);
        if (end && end[strlen(name)] == 0 && s->folders[0].samples[i].direction == direction) {
            *count = s->folders[0].samples[i].parts;
            return s->folders[0].parts + s->folders[0].samples[i].first_part;
        }
    }
    fail_msg("no %s of %s", direction_rows[direction].name, name);
    return NULL;
}

/* kinds: one letter per part, as in enum stream: T, V (video-in), W (video-out), A, N (note). */
static const struct shard_part *assert_parts(const struct shards *s, enum direction direction, const char *name,
                                             const char *kinds)
{
    i64 count;
    const struct shard_part *part = find(s, direction, name, &count);
    for (i64 i = 0; i < count && kinds[i]; i++) {
        int kind = kinds[i] == 'T'   ? STREAM_TEXT
                   : kinds[i] == 'V' ? STREAM_VIDEO_IN
                   : kinds[i] == 'W' ? STREAM_VIDEO_OUT
                   : kinds[i] == 'A' ? STREAM_AUDIO
                                     : PART_NOTE;
        assert_int_equal(part[i].kind, kind);
    }
    assert_int_equal(count, strlen(kinds));
    return part;
}

/* Compares with the audio codes of a clip's 9 frames at 8 Hz. */
static void assert_sound(struct shards *s, const struct shard_part *part, const char *film, double from_s)
{
    struct audio_tokenizer audio;
    struct file_view file;
    struct sound sound;
    char *path = string_format(FILMS "%s", film);
    const u16 *stored = shards_payload(s, part - s->folders[0].parts);
    succeed(file_map(&file, path));
    succeed(film_sound_read(&sound, file.data, file.bytes, film, AUDIO_RATE_HZ, from_s, 9.0 / 8));
    assert_int_equal(part->count, audio_frames(AUDIO_RATE_HZ, sound.samples));
    i32 *codes = memory_alloc(part->count * 2 * 4);
    succeed(audio_load(&audio, &device, path_of("aud")));
    audio_encode(&audio, &(struct audio_item){sound.values, sound.samples, codes}, 1);
    for (i64 i = 0; i < part->count * 2; i++)
        assert_int_equal(stored[i], codes[i]);
    audio_close(&audio);
    memory_free(codes);
    sound_release(&sound);
    file_unmap(&file);
    memory_free(path);
}

TEST(each_window_has_its_sound)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_TAKE);
    struct shards s;
    begin();
    put_film("long.mkv", "long.mkv");
    put_words("long.txt", "a film goes on");
    settings.windows.every_s = 6.5;
    run(&s, &settings);
    assert_int_equal(s.sample_count, 2 * 6); /* at 0, 6.5, ..., 32.5; a window at 39 would be incomplete */
    for (i64 k = 0; k < 6; k++) {
        char name[32] = "long.mkv";
        if (k)
            snprintf(name, sizeof name, "long.mkv@%.3f", 6.5 * (double)k);
        const struct shard_part *in = assert_parts(&s, DIRECTION_VIDEO_IN, name, "VATN");
        const struct shard_part *out = assert_parts(&s, DIRECTION_VIDEO_OUT, name, "TWAN");
        assert_true(in[0].condition && in[1].condition && !in[2].condition);
        assert_true(out[0].condition && !out[1].condition && !out[2].condition);
        assert_int_equal(in[1].offset, out[2].offset); /* stored once */
        assert_sound(&s, &in[1], "long.mkv", 6.5 * (double)k);
    }
    shards_close(&s);
}

/* Training rows have positions of clip, sound and words in this order. */
TEST(the_packer_reads_it)
{
    i64 rows = 1, step = 0;
    double length = 512, one = 1;
    struct loader_settings settings = {
        .rows = {&step, &one, 1, false}, .length = {&step, &length, 1, false}, .micro_rows = rows, .in_order = true};
    struct arena arena = {0};
    struct batch b;
    for (int d = 0; d < DIRECTIONS; d++)
        settings.mixture[d] = 1;
    struct loader *l = loader_open(path_of("out"), "train", &settings, 1);
    assert_non_null(l);
    arena_open(&arena, 1 << 28);
    succeed(loader_batch(l, 0, 0, &b, &arena));
    i64 heard = b.inputs[INPUT_AUDIO].n, seen = b.inputs[INPUT_VISION_IN].n;
    assert_in_range(heard, 1, 512);
    assert_in_range(seen, 1, 512);
    assert_true(b.inputs[INPUT_VISION_IN].position[0] < b.inputs[INPUT_AUDIO].position[0]);
    assert_int_equal(b.sample[b.inputs[INPUT_VISION_IN].position[0]], b.sample[b.inputs[INPUT_AUDIO].position[0]]);
    arena_close(&arena);
    loader_close(l);
}

static void put_all_kinds(void)
{
    begin();
    put_film("good.mp4", "later.mp4");
    put_film("mute.mp4", "mute.mp4");
    put_film("damaged.mp4", "damaged.mp4");
    put_words("captions.jsonl",
              "{\"video\": \"good.mp4\", \"text\": \"a\"}\n{\"video\": \"mute.mp4\", \"text\": \"b\"}\n"
              "{\"video\": \"damaged.mp4\", \"text\": \"c\"}\n");
}

TEST(films_without_a_sound_stand_alone)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_TAKE);
    struct shards s;
    put_all_kinds();
    run(&s, &settings);
    assert_int_equal(s.sample_count, 2 * 3);
    assert_parts(&s, DIRECTION_VIDEO_IN, "captions.jsonl:1", "VTN"); /* its sound begins after the end of the clip */
    assert_parts(&s, DIRECTION_VIDEO_IN, "captions.jsonl:2", "VTN");
    assert_parts(&s, DIRECTION_VIDEO_OUT, "captions.jsonl:3", "TWN");
    shards_close(&s);
    settings.film_sound = FILM_SOUND_NONE;
    settings.windows.every_s = 1.25;
    run(&s, &settings);
    assert_parts(&s, DIRECTION_VIDEO_IN, "captions.jsonl:1@2.500", "VTN");
    shards_close(&s);
}

TEST(sounds_may_be_demanded)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_DEMAND);
    struct shards s;
    put_all_kinds();
    settings.windows.every_s = 1.25; /* 0, 1.25, 2.5, 3.75; 0 and 1.25 for the mute ones */
    directory_remove(path_of("out"));
    succeed(directory_make(path_of("out")));
    assert_int_equal(prepare_stage(&settings, path_of("out"), 1, &device, DTYPE_F32), -1);
    assert_says("1 of 3 samples could not be read"); /* the damaged one */
    settings.bad_share = 0.5;
    run(&s, &settings);
    assert_int_equal(s.sample_count, 2 * 3);
    assert_sound(&s, assert_parts(&s, DIRECTION_VIDEO_IN, "captions.jsonl:1@1.250", "VATN") + 1, "later.mp4", 1.25);
    assert_sound(&s, assert_parts(&s, DIRECTION_VIDEO_IN, "captions.jsonl:1@2.500", "VATN") + 1, "later.mp4", 2.5);
    shards_close(&s);
    settings.tokenizer[TOKENIZER_AUDIO] = NULL;
    assert_int_equal(prepare_stage(&settings, path_of("out"), 1, &device, DTYPE_F32), -1);
    assert_says("film_sound: sounds need an audio tokenizer");
}

TEST(longer_sounds_are_cut_or_left_out)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_TAKE);
    struct shards s;
    begin();
    put_film("long.mkv", "long.mkv");
    put_words("long.txt", "a film goes on");
    put_words("other.txt", "a text");
    settings.columns.lone_texts = LONE_TEXTS_READ;
    settings.audio_seconds = 0.5;
    run(&s, &settings);
    assert_int_equal(s.sample_count, 1);
    shards_close(&s);
    settings.cut_sounds = true; /* 1.125 s in pieces of 0.25 to 0.5 s */
    run(&s, &settings);
    i64 count, samples = 0;
    const struct shard_part *part = find(&s, DIRECTION_VIDEO_IN, "long.mkv", &count);
    assert_in_range(count, 3 + 3, 3 + 5);
    for (i64 i = 1; i < count - 2; i++) {
        assert_int_equal(part[i].kind, STREAM_AUDIO);
        assert_in_range(part[i].count, 1, audio_frames(AUDIO_RATE_HZ, AUDIO_RATE_HZ / 2));
        samples += part[i].count * AUDIO_FRAME_SAMPLES;
    }
    assert_in_range(samples, AUDIO_RATE_HZ * 9 / 8, AUDIO_RATE_HZ * 3 / 2);
    shards_close(&s);
}

/* Recordings of the audio tokenizer: in memory, or read again when drawn. */
TEST(tokenizers_hear_films)
{
    struct audio_media kept, again, sounds;
    struct media_request from = {.data = path_of("in"), .kinds = 1 << MODALITY_VIDEO}, none = {.data = path_of("in")};
    float drawn[2][4 * 8000], response[4 * 16];
    struct audio_draw draw = {.n = 4, .samples = 8000, .bins = 16, .augment = 0.5, .seed = 3};
    put_all_kinds();
    put_film("sound.m4a", "sound.mp4");
    succeed(audio_media_load(&kept, &from, &(struct audio_media_request){0.5, 100}));
    succeed(audio_media_load(&again, &from, &(struct audio_media_request){0.5, 0}));
    succeed(audio_media_load(&sounds, &none, &(struct audio_media_request){0, 100}));
    assert_int_equal(kept.count, 2); /* good.mp4 and sound.m4a; damaged.mp4 is bad */
    assert_int_equal(kept.mute, 1);
    assert_int_equal(sounds.count, 1);
    assert_true(kept.clips[0].values && !again.clips[0].values && again.bytes == 0);
    for (draw.step = 0; draw.step < 4; draw.step++) {
        succeed(audio_media_draw(drawn[0], response, &kept, &draw));
        succeed(audio_media_draw(drawn[1], response, &again, &draw));
        assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
    }
    audio_media_release(&kept);
    audio_media_release(&again);
    audio_media_release(&sounds);
}

static void assert_words(struct shards *s, const struct shard_part *note, const char *words)
{
    assert_int_equal(note->bytes, strlen(words));
    assert_memory_equal(shards_payload(s, note - s->folders[0].parts), words, strlen(words));
}

TEST(windows_say_what_is_said_in_them)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_NONE);
    struct buffer tar = {0}, film = {0};
    struct shards s;
    begin();
    succeed(file_read(&film, FILMS "mov_text.mp4"));
    tar_member_of(&tar, "one.mp4", film.data, film.length);
    tar_end(&tar);
    put("all.tar", tar.data, tar.length);
    put_film("film.mkv", "ass.mkv");
    settings.windows.every_s = 2;
    run(&s, &settings);
    assert_words(&s, assert_parts(&s, DIRECTION_VIDEO_IN, "all.tar:one", "VTN") + 2, "second 0 second 1");
    assert_words(&s, assert_parts(&s, DIRECTION_VIDEO_IN, "all.tar:one@2.000", "VTN") + 2, "second 2 second 3");
    assert_words(&s, assert_parts(&s, DIRECTION_VIDEO_OUT, "film.mkv@2.000", "TWN") + 2, "second 2");
    assert_int_equal(s.sample_count, 2 * (3 + 2)); /* film.mkv's third window has no words */
    shards_close(&s);
    buffer_release(&tar);
    buffer_release(&film);
}

TEST(films_may_stand_in_archives_and_messages)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_TAKE);
    struct shards s;
    struct buffer tar = {0}, film = {0};
    begin();
    succeed(file_read(&film, FILMS "long.mkv"));
    tar_member_of(&tar, "one.mkv", film.data, film.length);
    tar_member(&tar, "one.txt", "a film");
    tar_end(&tar);
    put("all.tar", tar.data, tar.length);
    put_film("film.mkv", "long.mkv");
    put_words("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"video\", \"video\": "
                            "\"film.mkv\"}, {\"type\": \"text\", \"text\": \"what?\"}]}, {\"role\": \"assistant\", "
                            "\"content\": \"a film\"}]}\n");
    run(&s, &settings);
    assert_sound(&s, assert_parts(&s, DIRECTION_VIDEO_IN, "all.tar:one", "VATN") + 1, "long.mkv", 0);
    i64 count, at = 0;
    const struct shard_part *part = find(&s, DIRECTION_CHAT, "chat.jsonl:1", &count);
    while (at < count && part[at].kind != STREAM_VIDEO_IN)
        at++;
    assert_true(at + 1 < count && part[at + 1].kind == STREAM_AUDIO && part[at + 1].condition);
    assert_sound(&s, &part[at + 1], "long.mkv", 0);
    shards_close(&s);
    buffer_release(&tar);
    buffer_release(&film);
}

TEST(what_is_said_is_masked_as_other_texts_are)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_NONE);
    struct shards s;
    begin();
    put_film("a.mp4", "mute.mp4");
    put_words("a.srt", "1\n00:00:00,000 --> 00:00:01,900\nwrite to me@example.com\n\n");
    settings.filter.personal = PERSONAL_MASK;
    settings.filter.memory_bytes = 4096;
    run(&s, &settings);
    assert_words(&s, assert_parts(&s, DIRECTION_VIDEO_IN, "a.mp4", "VTN") + 2, "write to <email>");
    shards_close(&s);
}

static i64 count_named(const struct shards *s, const char *name)
{
    i64 count = 0;
    for (i64 i = 0; i < s->sample_count; i++)
        count += strstr(shards_name(s, i), name) != NULL;
    return count;
}

static i64 left_out(const char *rule)
{
    struct json *j = json_load(path_of("out/curation.json"));
    const struct json *rules = json_get(j, "rules");
    i64 count = 0;
    for (i64 i = 0; i < json_count(rules); i++)
        if (strcmp(json_string(json_get(json_at(rules, i), "rule"), ""), rule) == 0)
            count = json_integer(json_get(json_at(rules, i), "count"), 0);
    json_free(j);
    return count;
}

/* A film with a dark beginning has bright windows; a copy of it has none. */
TEST(each_window_is_judged_by_itself)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_NONE);
    struct shards s;
    begin();
    put_film("a.mkv", "long.mkv");
    put_words("a.txt", "a film goes on");
    put_film("b.mkv", "long.mkv");
    put_words("b.txt", "a film goes on");
    settings.windows.every_s = 6.5;
    settings.filter.memory_bytes = 4096;
    settings.filter.duplicates = DUPLICATES_EXACT;
    settings.filter.dark = 0.2; /* 62 of 255 in second 14, 41 in second 7 */
    run(&s, &settings);
    assert_int_equal(s.sample_count, 2 * 4);
    assert_int_equal(count_named(&s, "a.mkv@6.500"), 0);
    assert_int_equal(count_named(&s, "a.mkv@13.000"), 2);
    assert_int_equal(left_out("dark throughout"), 2);
    assert_int_equal(left_out("duplicates"), 1);
    shards_close(&s);
}

static void prepare_as(const char *out, const struct prepare_settings *settings)
{
    struct shards s;
    run(&s, settings);
    shards_close(&s);
    directory_remove(path_of(out));
    assert_int_equal(rename(path_of("out"), path_of(out)), 0);
}

static void dedup(struct shards *s, i64 caption_times)
{
    char *data = string_format("%s/one\n%s/two", directory, directory);
    directory_remove(path_of("out"));
    succeed(directory_make(path_of("out")));
    succeed(dedup_stage(&(struct dedup_settings){.data = data, .caption_times = caption_times, .memory_bytes = 4096},
                        path_of("out")));
    succeed(shards_open(s, path_of("out"), "train"));
    succeed(shards_verify(s));
    memory_free(data);
}

/* All windows of a film are kept, or none, and both directions of each. */
TEST(films_of_parts_are_told_by_all_their_windows)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_NONE);
    struct shards s;
    settings.windows.every_s = 1.25;
    settings.filter =
        (struct curate_settings){.duplicates = DUPLICATES_EXACT, .caption_times = 2, .memory_bytes = 4096};
    settings.columns.lone_texts = LONE_TEXTS_READ;
    begin();
    put_film("a.mkv", "varying.mp4");
    put_words("a.txt", "a film");
    put_film("b.mp4", "later.mp4");
    put_words("b.txt", "a tone");
    prepare_as("one", &settings);
    begin();
    put_film("c.mp4", "later.mp4");
    put_words("c.txt", "a tone");
    put_film("d.mkv", "earlier.mkv");
    put_words("d.txt", "a film");
    put_words("e.txt", "a text");
    prepare_as("two", &settings);
    dedup(&s, 0);
    assert_int_equal(count_named(&s, "b.mp4"), 2 * 4);
    assert_int_equal(count_named(&s, "c.mp4"), 0);
    assert_true(count_named(&s, "d.mkv@") > 0 && count_named(&s, "e.txt") == 1);
    assert_int_equal(left_out("duplicates of other folders"), 1);
    shards_close(&s);
    dedup(&s, 1);
    assert_true(count_named(&s, "a.mkv") > 0);
    assert_int_equal(count_named(&s, "d.mkv"), 0);
    assert_int_equal(count_named(&s, "e.txt"), 1);
    shards_close(&s);
}

/* Tones at half of full scale (-9 dB) begin 2.25 s after the picture. */
TEST(sounds_of_clips_are_judged_as_others_are)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_TAKE);
    struct shards s;
    begin();
    put_film("a.mp4", "later.mp4");
    put_words("a.txt", "a film");
    settings.windows.every_s = 1.25;
    settings.filter.memory_bytes = 4096;
    settings.filter.silence_db = -30;
    run(&s, &settings);
    assert_int_equal(s.sample_count, 2 * 4);
    shards_close(&s);
    settings.filter.silence_db = -3;
    run(&s, &settings); /* a missing sound does not count as quiet */
    assert_int_equal(s.sample_count, 2);
    assert_int_equal(count_named(&s, "a.mp4@"), 0);
    assert_int_equal(left_out("silent throughout"), 3);
    shards_close(&s);
}

/* Writes 3 s of a tone, 3 s at -46 dB, 3 s of the tone. */
static void put_tones(const char *name)
{
    struct sound sound = {.rate_hz = AUDIO_RATE_HZ, .samples = 9 * AUDIO_RATE_HZ};
    struct buffer wav = {0};
    sound.values = memory_alloc(sound.samples * 4);
    for (i64 i = 0; i < sound.samples; i++)
        sound.values[i] = (i / (3 * AUDIO_RATE_HZ) == 1 ? 0.005f : 0.5f) * ((i / 20) % 2 ? 1 : -1);
    sound_encode_wav(&wav, &sound);
    put(name, wav.data, wav.length);
    buffer_release(&wav);
    sound_release(&sound);
}

TEST(pieces_of_a_sound_are_judged_by_themselves)
{
    struct prepare_settings settings = settings_of(FILM_SOUND_NONE);
    struct shards s;
    begin();
    put_tones("a.wav");
    put_words("a.txt", "tones");
    put_tones("b.wav");
    put_words("b.txt", "tones");
    settings.cut_sounds = true;
    settings.audio_seconds = 1;
    run(&s, &settings);
    i64 all = s.sample_count / 2;
    shards_close(&s);
    settings.filter.memory_bytes = 4096;
    settings.filter.duplicates = DUPLICATES_EXACT;
    run(&s, &settings);
    assert_int_equal(s.sample_count, all);
    assert_int_equal(count_named(&s, "b.wav"), 0);
    shards_close(&s);
    settings.filter.silence_db = -40;
    run(&s, &settings);
    i64 silent = left_out("silent throughout");
    assert_in_range(silent, 2, 5);
    assert_int_equal(s.sample_count, all - 2 * silent);
    assert_int_equal(left_out("duplicates"), 1);
    shards_close(&s);
}

int main(void)
{
    return tests_run(make, clear);
}
