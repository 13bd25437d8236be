/* Bad data and full disks (bad_input.h): in a data set of thousands a bad file is skipped, named
 * and counted, a damaged checkpoint is replaced by the previous one, and a full disk leaves no
 * partial output. */
#define _GNU_SOURCE /* unshare */
#include "tests/bad_input.h"

/* ---- Data sets ---- */

static void expect_words(const char *part)
{
    if (!strstr(complained.data, part))
        fail_msg("expected \"%s\" in:\n%s", part, complained.data);
}

static const char beside[] = "beside.png"; /* cut short, with its caption in a file of the same name */
static const char *const bad_files[] = {"empty.png", "half.png",  "other.png",  "missing.png",
                                        "empty.mp4", "half.mp4",  "other.mp4",  "empty.wav",
                                        "half.wav",  "other.wav", "silent.wav", "missing.wav"};

/* Makes data/ with 10 good files of each kind, and the bad ones. */
static void make_data_set(void)
{
    static const char *const keys[] = {"image", "video", "audio"};
    struct buffer captions = {0};
    struct buffer words = {0};
    clear_work();
    char *folder = path_join(work, "data"), *list = path_join(folder, "captions.jsonl");
    require(directory_make(folder) == 0, "%s", error_text());
    for (i64 i = 0; i < COUNT_OF(media); i++) {
        const struct damaged_medium *m = &media[i];
        const struct {
            const char *stem, *from;
            enum how how;
        } files[] = {{"good", m->good, AS_IT_IS},
                     {"empty", NULL, EMPTY},
                     {"half", m->good, HALF},
                     {"other", m->other, AS_IT_IS}};
        for (i64 f = 0; f < COUNT_OF(files); f++) {
            char *name = string_format("data/%s.%s", files[f].stem, m->extension);
            do_damage(&(struct damage){name, files[f].how, files[f].from});
            memory_free(name);
        }
        for (i64 k = 0; k < 10; k++)
            buffer_printf(&captions, "{\"%s\":\"good.%s\",\"text\":\"a thing to see or hear\"}\n", keys[i],
                          m->extension);
    }
    do_damage(&(struct damage){"data/silent.wav", AS_IT_IS, "../silent.wav"});
    for (i64 i = 0; i < COUNT_OF(bad_files); i++) {
        const char *extension = strchr(bad_files[i], '.') + 1;
        buffer_printf(&captions, "{\"%s\":\"%s\",\"text\":\"x\"}\n",
                      strcmp(extension, "png") == 0   ? "image"
                      : strcmp(extension, "mp4") == 0 ? "video"
                                                      : "audio",
                      bad_files[i]);
    }
    buffer_printf(&captions,
                  "rubbish\n{\"image\":\"good.png\",\"text\":\"\xff\"}\n{\"audio\":\"good.wav\",\"text\":\"cut");
    put_file(list, captions.data, captions.length);
    do_damage(&(struct damage){"data/beside.png", HALF, media[0].good});
    do_damage(&(struct damage){"data/beside.txt", TEXT, NULL, "a caption"});
    for (i64 i = 0; i < 400; i++) /* a page: a short text among captioned media is left out */
        buffer_printf(&words, "good words\n");
    buffer_printf(&words, "\xff\xfe and others\n");
    do_damage(&(struct damage){"data/words.txt", TEXT, NULL, words.data});
    buffer_release(&words);
    buffer_release(&captions);
    memory_free(folder);
    memory_free(list);
}

/* Lines 43, 44 and 45 of captions.jsonl are not JSON. */
static const char *const bad_lines[] = {"captions.jsonl:43:7: not valid JSON",
                                        "captions.jsonl:44:", "captions.jsonl:45:"};

static void expect_skipped(const char *const *names, i64 count, const char *extension)
{
    for (i64 i = 0; i < count; i++)
        if (!extension || strstr(names[i], extension)) {
            char *place = string_format("/%s", names[i]), *line = strstr(complained.data, place);
            if (!line)
                fail_msg("%s is not named:\n%s", names[i], complained.data);
            while (line > complained.data && line[-1] != '\n')
                line--;
            assert_memory_equal(line, "warning: skipped: ", 18);
            const char *again = strstr(strstr(line, place) + 1, place), *end = strchr(line, '\n');
            if (again && (!end || again < end))
                fail_msg("%s is named twice in a line:\n%s", names[i], complained.data);
            memory_free(place);
        }
}

TEST(bad_files_of_a_data_set_are_skipped_and_counted)
{
    static const struct {
        const char *name, *skips[3], *counted;
    } stages[] = {
        {"bpe", {NULL}, "4 of 47 samples"},
        {"vis", {".png", ".mp4"}, "11 of 31 pictures and clips"},
        {"aud", {".wav"}, "8 of 18 recordings"},
        {"shards", {".png", ".mp4", ".wav"}, "17 of 47 samples"},
    };
    static const char *const recipe =
        "run: run\nprecision: f32\nstages:\n"
        "  bpe: {kind: tokenizer-text, data: ./data, vocabulary: 300}\n"
        "  vis: {kind: tokenizer-vision, data: ./data, steps: 1, clip_steps: 0, size: 32, channels: [8, 8]}\n"
        "  aud: {kind: tokenizer-audio, data: ./data, steps: 1}\n"
        "  shards: {kind: prepare, data: ./data, text: ../model, vision: ../model/weft/vision,\n"
        "           audio: ../model/weft/audio}\n";
    make_data_set();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, recipe});
    for (i64 i = 0; i < COUNT_OF(stages); i++) {
        char *patient = string_format("%s.bad_share=0.5", stages[i].name), *run = path_join(work, "run"),
             *made = path_join(run, stages[i].name);
        const char *const words[] = {"run", "r.yaml", stages[i].name, NULL};
        const char *const says[] = {stages[i].name, "./data", stages[i].counted, NULL};
        int status = run_set(words, &(struct setting_of_run){0});
        expect_failure(words, status, 1, says);
        expect_words("bad");
        assert_false(file_exists(made));
        require(directory_remove(run) == 0, "%s", error_text());
        if (WEFT("run", "r.yaml", stages[i].name, patient))
            fail_msg("%s", complained.data);
        for (i64 k = 0; k < 3 && stages[i].skips[k]; k++)
            expect_skipped(bad_files, COUNT_OF(bad_files), stages[i].skips[k]);
        if (stages[i].skips[0] && strcmp(stages[i].skips[0], ".png") == 0)
            expect_skipped(&(const char *const){beside}, 1, NULL);
        expect_skipped(bad_lines, COUNT_OF(bad_lines), NULL);
        assert_true(file_exists(made));
        memory_free(patient);
        memory_free(run);
        memory_free(made);
    }
}

/* ---- Precision ---- */

TEST(precision_that_the_device_is_slow_in_is_refused)
{
    static const char *const words[] = {"run", "r.yaml", "precision=fp8", NULL};
    static const char *const says[] = {"this run uses fp8", "8 bits are computed in bf16", "precision=f32", NULL};
    clear_work();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    setenv("WEFT_CPU", "v3", 1);
    int status = run_set(words, &(struct setting_of_run){0});
    unsetenv("WEFT_CPU");
    expect_failure(words, status, 1, says);
}

/* ---- Checkpoints ---- */

/* Makes ROOT/trained, a run interrupted after its last checkpoint; model: the expected result. */
static void train(struct buffer *model)
{
    char *run = path_join(work, "run"), *to = path_join(root, "trained"), *made = path_join(to, "base"),
         *partial = path_join(to, "base.partial");
    clear_work();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    if (WEFT("run", "r.yaml"))
        fail_msg("%s", complained.data);
    assert_int_equal(rename(run, to), 0);
    assert_int_equal(rename(made, partial), 0);
    char *done = path_join(partial, "done.json"), *weights = path_join(partial, "model.safetensors");
    require(file_read(model, weights) == 0, "%s", error_text());
    assert_int_equal(unlink(weights) | unlink(done), 0);
    char *all[] = {run, to, made, partial, done, weights};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static void damage_and_go_on(const struct damage *damages, i64 count)
{
    char *run = path_join(work, "run"), *from = path_join(root, "trained");
    clear_work();
    copy_tree(run, from);
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    for (i64 i = 0; i < count; i++)
        do_damage(&damages[i]);
    memory_free(run);
    memory_free(from);
}

#define NEWEST "run/base.partial/checkpoints/step-000006/"
#define BEFORE "run/base.partial/checkpoints/step-000004/"

TEST(a_damaged_checkpoint_gives_way_to_the_one_before)
{
    static const struct damage damages[] = {
        {NEWEST "model.safetensors", HALF}, {NEWEST "weft/optimizer.safetensors", FLIPPED},
        {NEWEST "weft/state.json", EMPTY},  {NEWEST "weft/extra.safetensors", GONE},
        {NEWEST "config.json", RUBBISH},    {NEWEST "weft/state.json", FLIPPED},
    };
    static const struct damage both[] = {{NEWEST "model.safetensors", FLIPPED},
                                         {BEFORE "weft/optimizer.safetensors", HALF}};
    static const char *const words[] = {"run", "r.yaml", NULL};
    static const char *const says[] = {"stage base", "step-000004/weft/optimizer.safetensors", "of 2", "remove", NULL};
    struct buffer expected = {0}, got = {0}, before = {0};
    char *made = path_join(work, "run/base/model.safetensors"),
         *checkpoints = path_join(work, "run/base.partial/checkpoints");
    train(&expected);
    for (i64 i = 0; i < COUNT_OF(damages); i++) {
        damage_and_go_on(&damages[i], 1);
        if (run_set(words, &(struct setting_of_run){0}))
            fail_msg("%s: %s", damages[i].name, complained.data);
        expect_words("warning: ");
        expect_words(strrchr(damages[i].name, '/') + 1);
        expect_words("falling back to the checkpoint before it");
        expect_words("resuming from step 4");
        require(file_read(&got, made) == 0, "%s", error_text());
        assert_int_equal(got.length, expected.length);
        assert_memory_equal(got.data, expected.data, (size_t)expected.length);
    }
    damage_and_go_on(both, COUNT_OF(both));
    list_tree(&before, checkpoints);
    expect_failure(words, run_set(words, &(struct setting_of_run){0}), 1, says);
    buffer_clear(&got);
    list_tree(&got, checkpoints); /* kept, so that it may be repaired by hand */
    assert_string_equal(got.data, before.data);
    buffer_release(&expected);
    buffer_release(&got);
    buffer_release(&before);
    memory_free(made);
    memory_free(checkpoints);
}

/* ---- Settings that only data or the model show to be wrong ---- */

TEST(training_that_cannot_be_done_ends_with_an_error)
{
    static const struct {
        const char *words[WORDS_MOST];
        int status;
        const char *says[3];
    } rows[] = {
        {{"run", "r.yaml", "base.elastic.expert_groups=3"}, 2, {"elastic.expert_groups is 3", "divisor", "4 experts"}},
        {{"run", "r.yaml", "base.model.topk=9"}, 1, {"9", "experts 4"}},
        {{"run", "r.yaml", "base.mixture.text=0", "base.mixture.image_in=0", "base.mixture.image_out=0",
          "base.mixture.video_in=0", "base.mixture.video_out=0", "base.mixture.audio_in=0", "base.mixture.audio_out=0",
          "base.mixture.chat=0"},
         1,
         {"../shards", "no sample of a mixture above 0"}},
    };
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        const char *const says[] = {"stage base", rows[i].says[0], rows[i].says[1], rows[i].says[2], NULL};
        clear_work();
        do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
        expect_failure(rows[i].words, run_set(rows[i].words, &(struct setting_of_run){0}), rows[i].status, says);
    }
}

TEST(samples_that_fit_no_row_are_counted)
{
    clear_work();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    if (WEFT("run", "r.yaml", "base.batch.length=8"))
        fail_msg("%s", complained.data);
    expect_words("validation: samples longer than a row of 8 positions were not measured: ");
    expect_words("base: samples longer than a row of 8 positions (batch.length) are left out of training: ");
}

/* ---- Full disks ---- */

static const struct full_disk_case {
    i64 room_bytes; /* size of the disk */
    const char *words[WORDS_MOST];
    const char *says[3];
} writings[] = {
    {0, {"generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png"}, {"out.png"}},
    {0, {"generate", "../model", "--prompt", "a", "--to", "audio", "-o", "out.wav"}, {"out.wav"}},
    {0, {"generate", "../model", "--prompt", "a", "--to", "video", "-o", "out.mp4"}, {"out.mp4"}},
    {0, {"reconstruct", "../model", "../picture.png", "-o", "out"}, {"picture.png"}},
    {0, {"export", "../model", "--to", "gguf", "-o", "out.gguf"}, {"out.gguf"}},
    {8192, {"export", "../model", "-o", "out"}, {"model.safetensors"}},
    {8192, {"extract", "../model", "-o", "out", "--topk", "1"}, {"model.safetensors"}},
    {0, {"logits", "../model", "--ids", "../ids.safetensors", "-o", "out"}, {"out"}},
    {0, {"routing", "../model", "--data", "../shards", "--length", "128", "-o", "out"}, {"out.tmp-"}},
    {32768, {"run", "../training.yaml"}, {"stage base", "cannot save the checkpoint of step 2"}},
    {65536, {"run", "../sharding.yaml"}, {"stage shards", "train/00000.shard"}},
};

/* A run keeps what a resume needs, and no partial files. */
static void expect_nothing_half_made(const struct full_disk_case *w, const struct buffer *before)
{
    struct buffer after = {0};
    if (strcmp(w->words[0], "run") != 0) {
        expect_same_tree(w->words, before);
        return;
    }
    list_tree(&after, work);
    static const char *const half[] = {".tmp", "step-", "run/base ", "run/shards ", ".shard", "index"};
    for (i64 i = 0; i < COUNT_OF(half); i++)
        if (strstr(after.data, half[i]))
            fail_msg("%s left %s behind:\n%s", w->words[1], half[i], after.data);
    buffer_release(&after);
}

static void check_writing(const struct full_disk_case *w, i64 file_bytes_most, const char *reason)
{
    struct buffer before = {0};
    const char *const says[] = {w->says[0], w->says[1] ? w->says[1] : reason, reason, NULL};
    buffer_append(&before, "", 0);
    list_tree(&before, work);
    int status = run_set(w->words, &(struct setting_of_run){.file_bytes_most = file_bytes_most});
    expect_failure(w->words, status, 1, says);
    expect_nothing_half_made(w, &before);
    buffer_release(&before);
}

TEST(a_file_size_limit_leaves_nothing_half_written)
{
    for (i64 i = 0; i < COUNT_OF(writings); i++) {
        clear_work();
        check_writing(&writings[i], max_i64(500, writings[i].room_bytes), "File too large");
    }
}

TEST(output_that_cannot_be_printed_is_a_failure)
{
    static const char *const says[] = {"stdout", NULL};
    static const char *const runs[][WORDS_MOST] = {
        {"inspect", "../shards"},
        {"inspect", "../model", "--json"},
        {"generate", "../model", "--prompt", "a", "--max-tokens", "2"},
        {"eval", "../model", "--data", "../shards", "--length", "128", "--rows", "2"},
        {"tokenize", "../model"},
        {"run", "--kinds"},
        {"man"},
        {"--help"},
    };
    clear_work();
    for (i64 i = 0; i < COUNT_OF(runs); i++) {
        const struct setting_of_run s = {.input = "{\"text\":\"a\"}\n", .out = "/dev/full"};
        expect_failure(runs[i], run_set(runs[i], &s), 1, says);
    }
}

TEST(a_full_disk_leaves_nothing_half_written)
{
    clear_work();
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        print_message("no disk can be mounted here (%s): not tested on a full one\n", strerror(errno));
        skip();
    }
    setenv("WEFT_SPARE_BYTES", "off", 1);
    for (i64 i = 0; i < COUNT_OF(writings); i++) {
        char *room = string_format("size=%lld", (long long)writings[i].room_bytes + 4096);
        assert_int_equal(mount("none", work, "tmpfs", 0, room), 0);
        do_damage(&(struct damage){"filler", RUBBISH}); /* takes one page */
        check_writing(&writings[i], 0, "No space left on device");
        assert_int_equal(umount2(work, MNT_DETACH), 0);
        memory_free(room);
    }
}

int main(void)
{
    return tests_run(make, clear);
}
