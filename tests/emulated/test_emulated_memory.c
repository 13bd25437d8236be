/* The program on an emulated GPU with little memory: commands that load a model or code media
 * estimate their memory before they start, and use exactly that, up to the granularity of arenas.
 * Daily runs cover text, a picture and a stage, nightly runs everything else. */
#include <stdlib.h>
#include "tests/cli_fixture.h"

static char *picture, *film, *noise, *out;

static void limit(const char *variable, i64 bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    setenv(variable, text, 1);
}

static int run_within(i64 bytes, const char *const *words)
{
    const char *argv[32];
    int count = 0;
    for (; words[count]; count++)
        argv[count] = words[count];
    argv[count++] = "--device";
    argv[count++] = "cuda";
    argv[count] = NULL;
    limit("WEFT_EMU_MEMORY", bytes);
    int status = run("", argv);
    unsetenv("WEFT_EMU_MEMORY");
    return status;
}

/* Also removes the partial output of failed runs. */
static void remove_outputs(void)
{
    char **names;
    i64 count;
    assert_int_equal(directory_list(&names, &count, shards), 0);
    for (i64 i = 0; i < count; i++) {
        char *path = in_folder(names[i]);
        if (strncmp(names[i], "out", 3) == 0)
            assert_int_equal(directory_remove(path), 0);
        memory_free(path);
    }
    string_list_free(names, count);
}

/* Requires one message that names the memory left; returns the estimate in it. */
static i64 expect_refused(i64 bytes, const char *const *words, const char *more)
{
    static const char takes[] = " takes ";
    char left[64];
    int status = run_within(bytes, words);
    const char *at = complained.data ? strstr(complained.data, takes) : NULL;
    snprintf(left, sizeof left, " MB of GPU memory, %.1f are left; ", (double)bytes * 1e-6);
    if (status != 1 || !at || !strstr(at, left) || !strstr(at, more) || strstr(complained.data, "the GPU has no"))
        fail_msg("%s within %lld bytes: status %d, expected \"%s\" and \"%s\": %s", words[0], (long long)bytes, status,
                 left, more, complained.data ? complained.data : "(nothing)");
    expect_absent(out);
    return (i64)(strtod(at + sizeof takes - 1, NULL) * 1e6 / GROW_BYTES + 0.5) * GROW_BYTES;
}

/* Requires that the command is refused with 1 byte less than the estimate and succeeds with the
 * estimate. With 1 byte less on a GPU that reports more memory, it runs out halfway. */
static i64 expect_exact(const char *const *words, const char *more)
{
    i64 bytes = expect_refused(1, words, more);
    assert_int_equal(expect_refused(bytes - 1, words, more), bytes);
    limit("WEFT_EMU_LEFT", (i64)1 << 40);
    int status = run_within(bytes - 1, words);
    unsetenv("WEFT_EMU_LEFT");
    if (status != 1 || !strstr(complained.data, "weft: the GPU has no "))
        fail_msg("%s takes less than %lld: status %d, %s", words[0], (long long)bytes, status, complained.data);
    remove_outputs();
    if (run_within(bytes, words))
        fail_msg("%s within %lld bytes: %s", words[0], (long long)bytes, complained.data);
    print_message("%s %s: %lld\n", words[0], words[2], (long long)bytes);
    remove_outputs();
    return bytes;
}
#define EXACT(more, ...) expect_exact((const char *const[]){__VA_ARGS__, NULL}, more)

TEST(answers_take_what_is_estimated)
{
    i64 words = EXACT("", "generate", model_folder, "--prompt", "a", "--max-tokens", "4", "-o", out);
    assert_true(words > 4 * (i64)GROW_BYTES);
    if (!is_nightly())
        return;
    i64 narrow = EXACT("", "generate", model_folder, "--prompt", "a", "--weights", "int8", "-o", out);
    i64 made = EXACT("", "generate", model_folder, "--prompt", "a", "--to", "image", "-o", out);
    i64 moves = EXACT("", "generate", model_folder, "--prompt", "a", "--to", "video", "-o", out);
    i64 heard = EXACT("", "generate", model_folder, "--prompt", "a", "--to", "audio", "-o", out);
    i64 seen = EXACT("", "generate", model_folder, "--image", picture, "--max-tokens", "4", "-o", out);
    i64 told = EXACT("", "generate", model_folder, "--audio", noise, "--max-tokens", "4", "-o", out);
    assert_true(narrow <= words && words <= made && words <= moves);
    assert_true(words <= heard && words < seen && words < told);
}

/* Sounds of 40 s need blocks of their own; shorter ones would fit. */
TEST(long_answers_say_which_shorter_ones_fit)
{
    const char *const words[] = {"generate",     model_folder, "--prompt", "a",  "--to", "audio",
                                 "--max-tokens", "512",        "--greedy", "-o", out,    NULL};
    nightly_only();
    i64 bytes = expect_refused(1, words, "");
    assert_int_equal(run_within(bytes, words), 0);
    remove_outputs();
    expect_refused(bytes - 1, words, "; --max-tokens 256 would take ");
    expect_refused(1, words, "; nothing smaller would do, not even ");
}

/* A wide tokenizer, whose pixels need more memory than the decoding steps. The estimate assumes a
 * whole clip, which may end early. */
TEST(large_clips_take_what_is_estimated)
{
    struct vision_config config = {.stride = 8, .bits = 6, .channels = {512, 5}, .blocks = {1, 1}, .inflated = true};
    struct vision vision;
    char *folder = path_join(model_folder, "weft/vision"), *kept = in_folder("kept");
    const i64 sides[] = {1, 4, 8, 16};
    nightly_only();
    assert_int_equal(vision_add_shape(&config, 1, 32, 32, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 9, 128, 128, 8, sides, COUNT_OF(sides)), 0);
    assert_int_equal(rename(folder, kept), 0);
    assert_int_equal(directory_make(folder), 0);
    vision_open(&vision, &device, &config, DTYPE_F32, false);
    vision_init(&vision, 1);
    assert_int_equal(vision_save(&vision, folder), 0);
    vision_close(&vision);
    const char *const still[] = {"generate", model_folder, "--prompt", "a", "--to", "image", "-o", out, NULL};
    const char *const clip[] = {"generate", model_folder, "--prompt", "a", "--to", "video", "-o", out, NULL};
    i64 bytes = expect_refused(1, clip, "");
    assert_true(bytes > expect_refused(1, still, "") + 2 * (i64)GROW_BYTES);
    assert_int_equal(expect_refused(bytes - 1, clip, ""), bytes);
    assert_int_equal(run_within(bytes, clip), 0);
    remove_outputs();
    assert_int_equal(directory_remove(folder), 0);
    assert_int_equal(rename(kept, folder), 0);
    memory_free(folder);
    memory_free(kept);
}

TEST(reconstructions_take_what_is_estimated)
{
    i64 still = EXACT("a smaller --shape", "reconstruct", model_folder, picture, "-o", out);
    assert_true(still > GROW_BYTES);
    if (!is_nightly())
        return;
    i64 clip = EXACT("fewer --frames", "reconstruct", model_folder, film, "-o", out);
    i64 sound = EXACT("a shorter sound", "reconstruct", model_folder, noise, "-o", out);
    assert_true(clip > GROW_BYTES && sound > 2 * GROW_BYTES);
    i64 all = EXACT("take fewer files", "reconstruct", model_folder, noise, picture, film, "-o", out);
    assert_int_equal(all, still + sound);
}

static char *write_ids(const char *name, i64 rows, i64 length)
{
    char *path = in_folder(name);
    i32 *values = memory_alloc(rows * length * 4);
    const struct tensor_source tensor = {
        .name = "input_ids", .dtype = DTYPE_I32, .rank = 2, .shape = {rows, length}, .data = values};
    assert_int_equal(safetensors_save(path, &tensor, 1, NULL), 0);
    memory_free(values);
    return path;
}

TEST(logits_take_what_is_estimated)
{
    char *few = write_ids("few.safetensors", 1, 8), *many = write_ids("many.safetensors", 1024, 64);
    const char *const narrow[] = {"logits", model_folder, "--ids", few, "--weights", "int8", "-o", out, NULL};
    const char *const rows[] = {"logits", model_folder, "--ids", many, "-o", out, NULL};
    i64 least = EXACT("; nothing smaller would do, not even ", "logits", model_folder, "--ids", few, "-o", out);
    if (!is_nightly()) {
        memory_free(few);
        memory_free(many);
        return;
    }
    assert_int_equal(expect_exact(narrow, ""), least);
    i64 all = expect_refused(1, rows, ""); /* to run them would take minutes */
    assert_true(all > least);
    expect_refused(all - 1, rows, "; ids of [512,64] would take 100.7 MB");
    expect_refused(1, rows, "; nothing smaller would do, not even ");
    memory_free(few);
    memory_free(many);
}

#define ROWS(command, ...) command, model_folder, "--data", shards, "--part", "train", "--rows", "2", __VA_ARGS__

TEST(held_out_rows_take_what_is_estimated)
{
    nightly_only(); /* a stage covers the same in daily runs */
    i64 rows = EXACT("; nothing smaller would do, not even ", ROWS("eval", "--length", "64"));
    assert_int_equal(EXACT("", ROWS("eval", "--length", "64", "--weights", "int4")), rows);
    assert_int_equal(EXACT("", ROWS("routing", "--length", "64", "-o", out)), rows);
    assert_true(EXACT("; nothing smaller would do, not even ", ROWS("grid", "--length", "64", "--decode-tokens", "1")) >
                rows);
}

TEST(shorter_rows_that_fit_are_named)
{
    char *wide = write_wide_model(TOY_MEDIA);
#define WIDE_ROWS(command, ...)                                                                                        \
    command, wide, "--data", shards, "--part", "train", "--rows", "2", "--length", "2048", __VA_ARGS__
    const char *const rows[] = {WIDE_ROWS("eval", NULL)};
    const char *const looked[] = {WIDE_ROWS("routing", "-o", out, NULL)};
    i64 bytes = expect_refused(1, rows, "; nothing smaller would do, not even ");
    expect_refused(bytes - 1, rows, "; length=1024 would take ");
    expect_refused(expect_refused(1, looked, "") - 1, looked, "; length=1024 would take ");
    memory_free(wide);
}

/* Prompts are read after the model is loaded. */
TEST(weights_are_estimated_before_prompts_are_read)
{
    char *prompts = in_folder("prompts.jsonl");
    static const char one[] = "{\"prompt\":\"a\",\"ground_truth\":\"b\"}\n";
    assert_int_equal(file_replace(prompts, one, (i64)strlen(one)), 0);
    const char *const words[] = {"eval", model_folder, "--data", prompts, NULL};
    const char *const narrow[] = {"eval", model_folder, "--data", prompts, "--weights", "int8", NULL};
    static const char nothing[] = "; nothing smaller would do, not even --weights int4: take a smaller model";
    assert_int_equal(expect_refused(GROW_BYTES - 1, words, nothing), GROW_BYTES);
    assert_int_equal(expect_refused(GROW_BYTES - 1, narrow, nothing), GROW_BYTES);
    memory_free(prompts);
}

/* ---- Stages ---- */

static void write_data(void)
{
    static const char captions[] = "{\"image\":\"a.png\",\"text\":\"a\"}\n{\"video\":\"a.mp4\",\"text\":\"b\"}\n"
                                   "{\"audio\":\"a.wav\",\"text\":\"c\"}\n";
    const char *const names[] = {"a.png", "a.mp4", "a.wav"};
    const char *const from[] = {picture, film, noise};
    char *folder = in_folder("data/train"), *list = path_join(folder, "captions.jsonl");
    assert_int_equal(directory_make(folder), 0);
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *path = path_join(folder, names[i]);
        assert_int_equal(file_copy(path, from[i]), 0);
        memory_free(path);
    }
    assert_int_equal(file_replace(list, captions, (i64)strlen(captions)), 0);
    memory_free(folder);
    memory_free(list);
}

TEST(stages_take_what_is_estimated)
{
    char *path = in_folder("stages.yaml"), *partial = in_folder("out.run/made.partial");
    char *recipe = string_format(
        "run: %s.run\nstages:\n"
        "  made: {kind: generate, from: %s, data: %s/data, pictures: 1, clips: 1, sounds: 1, texts: 1}\n"
        "  scored: {kind: eval, from: %s, data: %s, part: train, rows: 2, length: 64}\n"
        "  coded: {kind: prepare, data: %s/data, text: %s/text, vision: %s/weft/vision, audio: %s/weft/audio}\n",
        out, model_folder, shards, model_folder, shards, shards, shards, model_folder, model_folder);
    write_data();
    assert_int_equal(file_replace(path, recipe, (i64)strlen(recipe)), 0);
    EXACT("; nothing smaller would do, not even ", "run", path, "scored");
    if (is_nightly()) {
        i64 bytes = EXACT("", "run", path, "made");
        expect_refused(bytes - 1, (const char *const[]){"run", path, "made", NULL}, "sounds=0 would take ");
        assert_false(file_exists(partial));
        EXACT("take tokenizers of smaller shapes", "run", path, "coded");
    }
    memory_free(path);
    memory_free(partial);
    memory_free(recipe);
}

TEST(refused_stages_leave_nothing)
{
    char *path = in_folder("refused.yaml"), *partial = in_folder("out.run/trained.partial");
    char *recipe = string_format("run: %s.run\nstages:\n"
                                 "  trained: {kind: pretrain, data: %s, from: %s, batch: {rows: 2, length: 128}}\n",
                                 out, shards, model_folder);
    assert_int_equal(file_replace(path, recipe, (i64)strlen(recipe)), 0);
    assert_int_equal(run_within(1, (const char *const[]){"run", path, NULL}), 1);
    expect_complaint("stage trained: a step takes ");
    assert_false(file_exists(partial));
    remove_outputs();
    memory_free(path);
    memory_free(partial);
    memory_free(recipe);
}

static int make_media(void **state)
{
    make(state);
    picture = in_folder("picture.png");
    film = in_folder("film.mp4");
    noise = in_folder("noise.wav");
    out = in_folder("out");
    return 0;
}

static int clear_media(void **state)
{
    char *all[] = {picture, film, noise, out};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
    return clear(state);
}

int main(void)
{
    return tests_run(make_media, clear_media);
}
