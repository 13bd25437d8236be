/* The program with whole stages: recipes, plans, the folders of stages, the page. */
#include <string.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "kernels/cuda/device.h"
#include "kernels/isa.h"
#include "core/json.h"
#include "tests/cli_fixture.h"
#include "tokenizers/vision/refiner.h"

static void write_recipe(const char *path, const char *name, const char *stages)
{
    char *recipe = string_format("run: %s/%s\nstages:\n%s", shards, name, stages);
    assert_int_equal(file_replace(path, recipe, (i64)strlen(recipe)), 0);
    memory_free(recipe);
}

/* Such as a stage that was skipped, since its data held no conversations, before its settings were checked. */
TEST(a_finished_stage_is_not_checked_again)
{
    static const char good[] = "  first: {kind: command, argv: [sh, -c, 'touch $OUT/file']}\n",
                      bad[] = "  first: {kind: command, argv: []}\n  b: {kind: command, argv: [true]}\n";
    char *path = in_folder("finished.yaml"), *second = in_folder("finished/b");
    write_recipe(path, "finished", good);
    assert_int_equal(WEFT("run", path), 0);
    write_recipe(path, "finished", bad);
    assert_int_equal(WEFT("plan", path), 2);
    expect_complaint("only those are planned");
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("was made with other settings");
    assert_int_equal(WEFT("run", path, "--redo"), 2); /* it may be run again */
    expect_complaint("argv is empty");
    assert_false(file_exists(second));
    memory_free(second);
    memory_free(path);
}

TEST(a_refiner_is_planned_once_its_tokenizer_is_there)
{
    char *path = in_folder("refined.yaml");
    write_recipe(path, "refined", "  a: {kind: refiner, data: ./none, vision: ./nowhere}\n");
    assert_int_equal(WEFT("plan", path), 1);
    expect_complaint("stage a is not planned: its tokenizer, ./nowhere, is not there yet");
    memory_free(path);
}

TEST(a_pipe_in_place_of_the_timings_holds_no_run_up)
{
    char *path = in_folder("piped.yaml"), *timings = in_folder("piped/timings.jsonl");
    write_recipe(path, "piped", "  a: {kind: command, argv: [sh, -c, 'touch $OUT/file']}\n");
    assert_int_equal(WEFT("run", path), 0);
    assert_int_equal(unlink(timings), 0);
    assert_int_equal(mkfifo(timings, 0600), 0);
    assert_int_equal(WEFT("run", path, "--redo"), 0);
    memory_free(timings);
    memory_free(path);
}

TEST(rows_that_ranks_do_not_share_are_refused_before_any_stage_runs)
{
    char *path = in_folder("shared.yaml");
    write_recipe(path, "shared",
                 "  first: {kind: command, argv: [sh, -c, 'touch $OUT/file']}\n"
                 "  b: {kind: pretrain, data: first, steps: 9, batch: {rows: [[0, 4], [8, 3]]}}\n");
    assert_int_equal(WEFT("plan", path, "--ranks", "2", "--layout", "expert=2"), 2);
    expect_complaint("shared.yaml:4: stage b: batch.rows is 3 at step 8: ");
    memory_free(path);
}

TEST(stages_that_were_not_chosen_must_be_done)
{
    static const char stages[] = "  a: {kind: command, argv: [sh, -c, 'touch $OUT/file']}\n"
                                 "  b: {kind: command, argv: [sh, -c, 'touch $OUT/file']}\n"
                                 "  c: {kind: export, from: b}\n";
    char *path = in_folder("chosen.yaml"), *first = in_folder("chosen/a");
    write_recipe(path, "chosen", stages);
    assert_int_equal(WEFT("run", path, "a", "c"), 1);
    expect_complaint("chosen.yaml:5: stage c: from: it reads b, which is not done: run that stage first");
    assert_false(file_exists(first));
    assert_int_equal(WEFT("plan", path, "c"), 2); /* what a plan leaves out may be made elsewhere */
    expect_complaint("only those are planned");
    assert_int_equal(WEFT("run", path, "b"), 0);
    assert_int_equal(WEFT("run", path, "a", "c"), 1); /* a file is no model */
    assert_true(file_exists(first));
    memory_free(first);
    memory_free(path);
}

/* ---- Commands that write folders ---- */

/* Saves a refiner of the shapes of the model's tokenizer. */
static void put_refiner(const char *folder)
{
    struct refiner_config config = {
        .channels = {4, 4, 4}, .blocks = 1, .noise = 0.5, .temperature = 1, .steps = 2, .size_count = 0};
    struct vision_config vision;
    struct refiner refiner;
    char *tokenizer = path_join(model_folder, "weft/vision");
    require(vision_config_load(&vision, tokenizer) == 0, "%s", error_text());
    for (i64 i = 0; i < vision.shape_count; i++)
        config.sizes[config.size_count++] = (struct refiner_size){vision.shapes[i].height, vision.shapes[i].width};
    refiner_open(&refiner, &device, &config, DTYPE_F32, false);
    weights_init(&refiner.weights, 2);
    require(!directory_make(folder) && !refiner_save(&refiner, folder), "%s", error_text());
    refiner_close(&refiner);
    memory_free(tokenizer);
}

/* Each of the two sides is twice as high and wide. */
TEST(reconstruct_refines_pictures_and_clips)
{
    char *picture = in_folder("picture.png"), *film = in_folder("film.mp4"), *noise = in_folder("noise.wav"),
         *out = in_folder("back"), *refiner = in_folder("refiner"), *made = path_join(out, "picture.png");
    struct clip plain, refined;
    struct file_view view;
    put_refiner(refiner);
    for (int i = 0; i < 2; i++) {
        struct clip *clip = i ? &refined : &plain;
        if (i ? WEFT("reconstruct", model_folder, picture, film, "-o", out, "--refine", refiner)
              : WEFT("reconstruct", model_folder, picture, film, "-o", out))
            fail_msg("%s", complained.data);
        assert_int_equal(file_map(&view, made), 0);
        assert_int_equal(image_read(clip, view.data, view.bytes, made), 0);
        file_unmap(&view);
        assert_int_equal(directory_remove(out), 0);
    }
    assert_int_equal(refined.height, 2 * plain.height);
    assert_int_equal(refined.width, 2 * plain.width);
    assert_int_equal(WEFT("reconstruct", model_folder, picture, "-o", out, "--refine", shards), 1);
    expect_absent(out);
    assert_int_equal(WEFT("reconstruct", model_folder, noise, "-o", out, "--refine", refiner), 2);
    expect_complaint("--refine is for pictures and clips");
    clip_release(&plain);
    clip_release(&refined);
    memory_free(picture);
    memory_free(film);
    memory_free(noise);
    memory_free(out);
    memory_free(refiner);
    memory_free(made);
}

TEST(reconstruct_puts_media_side_by_side)
{
    static const char *const made[] = {"picture.png", "film.mp4", "noise.wav", "noise-original.wav"};
    char *picture = in_folder("picture.png"), *film = in_folder("film.mp4"), *noise = in_folder("noise.wav"),
         *out = in_folder("back");
    if (WEFT("reconstruct", model_folder, picture, film, noise, "-o", out, "--json"))
        fail_msg("%s", complained.data);
    for (i64 i = 0; i < COUNT_OF(made); i++) {
        char *path = path_join(out, made[i]);
        assert_true(file_exists(path));
        memory_free(path);
    }
    assert_non_null(strstr(said.data, "PSNR"));
    assert_non_null(strstr(said.data, "log-mel"));
    assert_int_equal(directory_remove(out), 0);
    assert_int_equal(WEFT("reconstruct", model_folder, picture, SOURCE_TREE "/LICENSE", "-o", out), 1);
    expect_absent(out);
    assert_int_equal(WEFT("reconstruct", shards, picture, "-o", out), 1);
    expect_complaint("no vision tokenizer");
    assert_int_equal(WEFT("reconstruct", model_folder, noise, "-o", out, "--levels", "1"), 0);
    assert_int_equal(directory_remove(out), 0);
    assert_int_equal(WEFT("reconstruct", model_folder, noise, "-o", out, "--levels", "16"), 2);
    expect_complaint("the audio tokenizer has");
    assert_int_equal(WEFT("reconstruct", model_folder, noise, "-o", out, "--chunk", "0.1"), 2);
    expect_complaint("causal: true");
    memory_free(picture);
    memory_free(film);
    memory_free(noise);
    memory_free(out);
}

TEST(grid_prints_one_object_a_sub_model)
{
    if (WEFT("grid", model_folder, "--data", shards, "--part", "train", "--length", "128", "--rows", "4",
             "--decode-tokens", "4", "--json"))
        fail_msg("%s", complained.data);
    char *end = strchr(said.data, '\n');
    struct json *first = json_parse(said.data, end - said.data, "stdout");
    assert_string_equal(json_string(json_get(first, "name"), ""), "full");
    assert_true(json_number(json_get(json_get(first, "loss"), "text"), 0) > 0);
    json_free(first);
}

static char *losses_of_length(const char *length)
{
    if (WEFT("eval", model_folder, "--data", shards, "--part", "train", "--length", length, "--json"))
        fail_msg("%s", complained.data);
    struct buffer losses = {0};
    struct json *j = json_parse(said.data, said.length, "stdout");
    json_print(&losses, json_get(j, "losses"), 0);
    json_free(j);
    return losses.data;
}

TEST(no_row_is_longer_than_what_is_measured)
{
    char *some = losses_of_length("65536"), *most = losses_of_length("1048576");
    assert_string_equal(some, most);
    memory_free(some);
    memory_free(most);
}

/* Without shards or data: the recipe determines the tokenizers. */
TEST(plan_knows_a_stage_that_has_not_run)
{
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    double bytes[2];
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--ranks", ranks == 1 ? "1" : "2", "--json"))
            fail_msg("%s", complained.data);
        struct json *plan = json_parse(said.data, (i64)strcspn(said.data, "\n"), "stdout");
        assert_string_equal(json_string(json_get(plan, "stage"), ""), "base");
        assert_true(json_number(json_get(plan, "flops"), 0) > 0);
        assert_true((json_number(json_get(plan, "traffic"), 0) > 0) == (ranks > 1));
        double snapshots = ranks > 1 ? 24 * json_number(json_get(plan, "parameters"), 0) : 0; /* two in f32 */
        assert_float_equal(json_number(json_get(plan, "snapshots"), -1), snapshots, 0);
        bytes[ranks - 1] = json_number(json_get(json_get(plan, "bytes"), "moments"), 0);
        json_free(plan);
    }
    assert_true(bytes[1] < 0.51 * bytes[0]);
    assert_int_equal(WEFT("plan", recipe, "bpe"), 2);
    expect_complaint("pretrain, sft or rl");
    assert_int_equal(WEFT("plan", recipe, "more", "run=/nowhere/at-all"), 0); /* a sub-model with half of base */
    assert_non_null(strstr(said.data, "more: "));
    assert_int_equal(WEFT("plan", recipe, "more", "run=/nowhere/at-all", "half.topk=99"), 2);
    expect_complaint("--topk 99");
    assert_int_equal(WEFT("plan", recipe, "base", "--ranks", "3", "--layout", "data=2"), 2);
}

/* A GPU's memory does not depend on the instructions of this host's CPU: neither the dtype, nor
 * the images that its tiles would read. */
TEST(plans_of_a_gpu_are_the_same_on_every_host)
{
    static const char *const levels[] = {"v3", "v4", "vnni", ""}; /* empty: the highest of this CPU */
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml", *before = getenv("WEFT_CPU");
    char *first = NULL, *own = before ? string_copy(before) : NULL;
    for (i64 i = 0; i < COUNT_OF(levels); i++) {
        if (cpu_isa_check(levels[i], cpu_isa_highest()))
            continue; /* a level that this CPU lacks is refused */
        setenv("WEFT_CPU", levels[i], 1);
        if (WEFT("plan", recipe, "vis", "aud", "base", "sft", "run=/nowhere/at-all", "--gpu", "--ranks", "2",
                 "--layout", "expert=2", "base.batch.micro_rows=1", "sft.batch.micro_rows=1", "--json"))
            fail_msg("%s", complained.data);
        char *verdict = strstr(said.data, "{\"verdict\""); /* it also says what is free on the disk */
        assert_non_null(verdict);
        *verdict = 0;
        if (first)
            assert_string_equal(first, said.data);
        else
            first = string_copy(said.data);
    }
    if (own)
        setenv("WEFT_CPU", own, 1);
    else
        unsetenv("WEFT_CPU");
    memory_free(first);
    memory_free(own);
}

/* A checkpoint takes 16 bytes of disk per parameter (master, both moments and the model in f32); 2
 * are kept and 1 is being written, and the result takes 4 more. The time is that of one rank's
 * share. */
TEST(plan_counts_disk_and_time)
{
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (WEFT("plan", recipe, "base", "run=/nowhere/at-all", "precision=f32", "base.keep=2", "base.steps=1000",
                 "--ranks", ranks == 1 ? "1" : "2", "--gflops", "50", "--json"))
            fail_msg("%s", complained.data);
        struct json *plan = json_parse(said.data, (i64)strcspn(said.data, "\n"), "stdout");
        double parameters = json_number(json_get(plan, "parameters"), 0),
               flops = json_number(json_get(plan, "flops"), 0);
        assert_true(parameters > 0 && flops > 0);
        assert_float_equal(json_number(json_get(plan, "disk"), 0), parameters * (16 * 3 + 4), 1);
        assert_float_equal(json_number(json_get(plan, "seconds"), 0) / (flops * 1000 / 50e9), 1.0 / ranks, 1e-9);
        json_free(plan);
    }
}

/* The verdict of the last plan as JSON, from stdout. */
static struct json *verdict_of_plan(void)
{
    const char *line = strstr(said.data, "{\"verdict\"");
    assert_non_null(line);
    struct json *all = json_parse(line, (i64)strcspn(line, "\n"), "plan"), *verdict;
    assert_non_null(all);
    verdict = json_copy(json_get(all, "verdict"));
    json_free(all);
    return verdict;
}

/* Both sides of the edge: a machine with a little more, and with a little less, than base needs. */
TEST(a_plan_ends_with_a_verdict)
{
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    char more[32], less[32], both[32];
    struct statvfs disk;
    assert_int_equal(statvfs("/", &disk), 0);
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--json"), 0);
    struct json *plan = json_parse(said.data, (i64)strcspn(said.data, "\n"), "stdout"), *verdict = verdict_of_plan();
    double needs = json_number(json_get(json_get(plan, "bytes"), "total"), 0);
    double written = json_number(json_get(plan, "disk"), 0);
    assert_true(needs > 1e8 && needs == json_number(json_get(verdict, "memory"), 0));
    assert_true(written == json_number(json_get(verdict, "disk"), 0));
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    assert_true(fabs(json_number(json_get(verdict, "disk_there"), 0) - room) < 0.2 * room); /* others write too */
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    assert_true(json_number(json_get(verdict, "memory_there"), 0) <= machine);
    json_free(verdict);
    json_free(plan);
    snprintf(more, sizeof more, "%.6f", needs * 1.001e-9);
    snprintf(less, sizeof less, "%.6f", needs * 0.999e-9);
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--memory", more), 0);
    assert_non_null(strstr(said.data, "\nverdict: fits\n"));
    assert_non_null(strstr(said.data, " GB, most of all for base; a machine has "));
    assert_null(strstr(said.data, " MB"));
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--memory", less), 0);
    assert_non_null(strstr(said.data, "\nverdict: does not fit\n"));
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--memory", less, "--json"), 0);
    verdict = verdict_of_plan();
    assert_false(json_bool(json_get(verdict, "fits"), true));
    json_free(verdict);
    /* Ranks of one machine share its memory, and GPUs have their own. */
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--ranks", "2", "--json"), 0);
    verdict = verdict_of_plan();
    double of_two = json_number(json_get(verdict, "memory"), 0);
    json_free(verdict);
    snprintf(both, sizeof both, "%.6f", of_two * 1.5e-9);
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--ranks", "2", "--memory", both), 0);
    assert_non_null(strstr(said.data, ": fits, with 1 of the 2 ranks on a machine at most\n"));
    assert_non_null(strstr(said.data, " GB of snapshots of all ranks, with `weft launch`\n"));
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--gpu"), 0);
    if (cuda_count() == 0)
        assert_non_null(strstr(said.data, "\nverdict: not known without the memory of a GPU\n"));
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--gpu", "--memory", "80"), 0);
    assert_non_null(strstr(said.data, "; a GPU has 80.000 GB: fits\n"));
    /* A disk that is too small: so many checkpoints fit on none. */
    assert_int_equal(WEFT("plan", recipe, "base", "run=/nowhere/at-all", "base.keep=1000000"), 0);
    assert_non_null(strstr(said.data, " GB are free where /nowhere/at-all will be: does not fit\n"));
    assert_non_null(strstr(said.data, "\nverdict: does not fit\n"));
}

TEST(plan_knows_tokenizers)
{
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    const char *const stages[] = {"vis", "aud"};
    for (i64 i = 0; i < COUNT_OF(stages); i++) {
        if (WEFT("plan", recipe, stages[i], "run=/nowhere/at-all", "--gflops", "100", "--json"))
            fail_msg("%s", complained.data);
        struct json *plan = json_parse(said.data, (i64)strcspn(said.data, "\n"), "stdout");
        assert_string_equal(json_string(json_get(plan, "stage"), ""), stages[i]);
        assert_true(json_number(json_get(json_get(plan, "bytes"), "activations"), 0) > 1e6);
        assert_true(json_number(json_get(plan, "seconds"), 0) > 0);
        json_free(plan);
    }
    assert_int_equal(WEFT("plan", recipe, "vis", "aud", "run=/nowhere/at-all"), 0);
    assert_non_null(strstr(said.data, "vis: "));
    assert_non_null(strstr(said.data, "aud: "));
    assert_int_equal(WEFT("plan", recipe, "vis", "vis.size=60"), 2);
    expect_complaint("multiples of the stride");
    assert_int_equal(WEFT("plan", recipe, "vis", "vis.frames=1"), 2);
    expect_complaint("a clip has 5, 9, 13, ... frames");
    assert_int_equal(WEFT("plan", recipe, "vis", "vis.frames=1", "vis.clip_steps=0"), 0);
}

TEST(plan_looks_behind_dedup)
{
    char *path = in_folder("unique.yaml");
    static const char recipe[] = "run: /nowhere/at-all\nstages:\n"
                                 "  bpe: {kind: tokenizer-text, data: /nowhere, vocabulary: 500}\n"
                                 "  a: {kind: prepare, data: /nowhere, text: bpe, part: 0/2}\n"
                                 "  b: {kind: prepare, data: /nowhere, text: bpe, part: 1/2}\n"
                                 "  unique: {kind: dedup, data: [a, b]}\n"
                                 "  base: {kind: pretrain, data: unique}\n";
    assert_int_equal(file_replace(path, recipe, (i64)sizeof recipe - 1), 0);
    if (WEFT("plan", path, "base"))
        fail_msg("%s", complained.data);
    assert_non_null(strstr(said.data, "base: "));
    memory_free(path);
}

TEST(plan_names_what_cannot_be_known)
{
    char *path = in_folder("unknown.yaml");
    struct buffer recipe = {0};
    buffer_printf(&recipe,
                  "run: %s/unknown\nstages:\n"
                  "  made: {kind: command, argv: [make-a-model]}\n"
                  "  base: {kind: pretrain, data: %s}\n"
                  "  more: {kind: pretrain, from: made, data: %s}\n",
                  shards, shards, shards);
    assert_int_equal(file_replace(path, recipe.data, recipe.length), 0);
    assert_int_equal(WEFT("plan", path), 0);
    assert_non_null(strstr(said.data, "base: "));
    expect_complaint("stage more is not planned");
    assert_null(strstr(complained.data, "warning")); /* of a run that has not begun it is no fault */
    assert_int_equal(WEFT("plan", path, "more"), 1);
    expect_complaint("what stage made makes");
    assert_int_equal(WEFT("plan", path, "more", "more.from=more"), 2);
    expect_complaint("is not an earlier stage");
    buffer_release(&recipe);
    memory_free(path);
}

TEST(a_folder_of_others_is_no_stage)
{
    char *path = in_folder("others.yaml"), *folder = in_folder("others/half"), *mine = in_folder("others/half/mine");
    struct buffer recipe = {0};
    buffer_printf(&recipe, "run: %s/others\nstages:\n  half: {kind: extract, from: %s}\n", shards, model_folder);
    assert_int_equal(file_replace(path, recipe.data, recipe.length), 0);
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(file_replace(mine, "", 0), 0);
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("weft run did not create it");
    assert_int_equal(WEFT("run", path, "--redo"), 1);
    expect_complaint("weft run did not create it");
    assert_true(file_exists(mine));
    buffer_release(&recipe);
    memory_free(folder);
    memory_free(mine);
    memory_free(path);
}

static void the_page_shows_what_stages_left(void)
{
    static const char *const words[] = {"held-out loss against active parameters", ">full</text>",
                                        "which experts each stream chooses"};
    char *run_folder = in_folder("run"), *timings = path_join(run_folder, "timings.jsonl");
    char *alone = path_join(run_folder, "report.html"), *both = in_folder("both.html");
    struct buffer page = {0}, clock = {0};
    assert_int_equal(file_read(&clock, timings), 0);
    assert_null(strstr(clock.data, "matrix_peak_gflops")); /* none of these stages measures it */
    assert_int_equal(WEFT("report", run_folder), 0);
    assert_int_equal(WEFT("report", run_folder, run_folder, "-o", both), 0);
    assert_int_equal(file_read(&page, alone), 0);
    for (i64 i = 0; i < COUNT_OF(words); i++)
        if (!strstr(page.data, words[i]))
            fail_msg("the page does not show \"%s\"", words[i]);
    assert_null(strstr(page.data, "GFLOP/s"));
    assert_int_equal(file_read(&page, both), 0);
    assert_non_null(strstr(page.data, "2 runs"));
    void *blocks[] = {run_folder, timings, alone, both};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    buffer_release(&page);
    buffer_release(&clock);
}

TEST(a_recipe_runs_extract_grid_routing_and_eval)
{
    static const char *const made[] = {"half/config.json", "grid/grid.json", "look/routing.html", "scored/eval.json"};
    char *path = in_folder("small.yaml");
    struct buffer recipe = {0};
    buffer_printf(&recipe,
                  "run: %s/run\nstages:\n"
                  "  half: {kind: extract, from: %s, experts: 4, layers: 0-3}\n"
                  "  grid: {kind: grid, from: half, data: %s, part: train, length: 128, rows: 4, decode_tokens: 4}\n"
                  "  look: {kind: routing, from: half, data: %s, part: train, length: 128}\n"
                  "  scored: {kind: eval, from: half, data: %s, part: train, length: 24}\n",
                  shards, model_folder, shards, shards, shards);
    assert_int_equal(file_replace(path, recipe.data, recipe.length), 0);
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    for (i64 i = 0; i < COUNT_OF(made); i++) {
        char *file = string_format("%s/run/%s", shards, made[i]);
        assert_true(file_exists(file));
        memory_free(file);
    }
    expect_complaint("train: samples longer than a row of 24 positions were not measured: ");
    expect_complaint("\nstream     target         loss       +-    unigram      targets\ntext       text ");
    expect_complaint(" bits per byte of text\nscored: done in ");
    assert_null(strstr(complained.data, "{\""));
    buffer_release(&recipe);
    memory_free(path);
    the_page_shows_what_stages_left();
}

/* A sample counts once, although it is stored in several directions. */
TEST(few_held_out_samples_are_warned_of)
{
    char *few = in_folder("few");
    struct shard_writer *writer = shard_writer_open(few, &fixture_meta, 20000);
    assert_non_null(writer);
    for (i64 i = 0; i < 3; i++)
        fixture_sample(writer, i, 40);
    fixture_sample(writer, 2, 40);
    assert_int_equal(shard_writer_close(writer), 0);
    if (WEFT("eval", model_folder, "--data", shards, "--part", "few", "--length", "128"))
        fail_msg("%s", complained.data);
    expect_complaint("few: 3 samples are fewer than 20");
    if (WEFT("grid", model_folder, "--data", shards, "--part", "few", "--length", "128", "--decode-tokens", "4"))
        fail_msg("%s", complained.data);
    expect_complaint("few: 3 samples are fewer than 20");
    if (WEFT("eval", model_folder, "--data", shards, "--part", "train", "--length", "128"))
        fail_msg("%s", complained.data);
    assert_null(strstr(complained.data, "fewer than 20"));
    memory_free(few);
}

/* The first call leaves a file and fails; the second would fail if it found it. */
TEST(a_command_begins_in_an_empty_folder)
{
    char *path = in_folder("command.yaml"), *made = in_folder("command/one/file");
    struct buffer recipe = {0};
    buffer_printf(&recipe,
                  "run: %s/command\nstages:\n"
                  "  one: {kind: command, argv: [sh, -c, 'test ! -e $OUT/file && touch $OUT/file && test -e %s/go']}\n",
                  shards, shards);
    assert_int_equal(file_replace(path, recipe.data, recipe.length), 0);
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("sh exited with status 1");
    char *go = in_folder("go"), *partial = in_folder("command/one.partial");
    assert_int_equal(file_replace(go, "", 0), 0);
    int lock = open(partial, O_RDONLY | O_DIRECTORY); /* like a run in progress */
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("in use by another weft run");
    close(lock);
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    assert_true(file_exists(made));
    buffer_release(&recipe);
    memory_free(go);
    memory_free(partial);
    memory_free(made);
    memory_free(path);
}

int main(void)
{
    return tests_run(make, clear);
}
