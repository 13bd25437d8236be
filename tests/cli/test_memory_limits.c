/* Models and stages that do not fit into a limit of memory are refused before they begin, and what the
 * message names fits. */
#include "kernels/isa.h"
#include "tests/cli_fixture.h"
#include "tests/control_group.h"
#include "tests/sanitized.h"

static char *wide; /* a model of 4.2 M parameters, stored in f32: 16.9 MB */
enum { WIDE_BYTES = 16800000 };

/* Private memory of this process, which its forks begin with. */
static i64 own_bytes(void)
{
    struct buffer text = {0};
    succeed(file_read(&text, "/proc/self/status"));
    const char *at = strstr(text.data, "RssAnon:");
    assert_non_null(at);
    i64 bytes = strtoll(at + 8, NULL, 10) * 1024;
    buffer_release(&text);
    return bytes;
}

static void allow(i64 bytes)
{
    char *text = string_format("%lld", (long long)(own_bytes() + bytes));
    setenv("WEFT_MEMORY_LIMIT", text, 1);
    memory_free(text);
}

static double number_after(const char *mark)
{
    const char *at = complained.data ? strstr(complained.data, mark) : NULL;
    if (!at)
        fail_msg("no \"%s\" in: %s", mark, complained.data ? complained.data : "");
    return strtod(at + strlen(mark), NULL);
}

#define GENERATE "generate", wide, "--prompt", "a", "--max-tokens", "4"

/* The sanitizers multiply private memory, so no limit in bytes fits them. */
static void skip_sanitized(void)
{
    if (is_sanitized())
        skip();
}

/* The estimate is the weights and at most 20 MB for all else; with it the program fits. */
TEST(a_model_is_refused_before_its_weights_are_read)
{
    skip_sanitized();
    allow(4 << 20);
    assert_int_equal(WEFT(GENERATE), 1);
    double all = number_after("takes ") * 1e6;
    if (!(all > WIDE_BYTES && all < WIDE_BYTES + 24e6))
        fail_msg("%.1f MB: %s", all * 1e-6, complained.data);
    expect_complaint("that WEFT_MEMORY_LIMIT allows; nothing smaller would do, not even --max-tokens 1 --weights int4");
    allow((i64)all - (2 << 20));
    assert_int_equal(WEFT(GENERATE), 1);
    expect_complaint("; --weights bf16 would take ");
    assert_int_equal(WEFT(GENERATE, "--weights", "bf16"), 0);
    allow((i64)all + (8 << 20));
    if (WEFT(GENERATE))
        fail_msg("%s", complained.data);
    unsetenv("WEFT_MEMORY_LIMIT");
}

/* Neither the model and what is cut out of it, nor two forms of either, lie in memory at once. */
TEST(what_is_cut_out_takes_the_place_of_the_whole)
{
    char *out = in_folder("cut");
    skip_sanitized();
    allow(WIDE_BYTES + (26 << 20));
    if (WEFT("extract", wide, "-o", out, "--experts", "0-14"))
        fail_msg("%s", complained.data);
    succeed(directory_remove(out));
    unsetenv("WEFT_MEMORY_LIMIT");
    if (WEFT("extract", wide, "-o", out, "--experts", "0-2", "--topk", "1")) /* fewer than the whole's top-4 */
        fail_msg("%s", complained.data);
    succeed(directory_remove(out));
    assert_int_equal(WEFT("extract", wide, "-o", out, "--experts", "0-2"), 2);
    expect_complaint("fewer than top-k 4");
    memory_free(out);
}

/* How much a process grows that loads the model. */
static i64 grown_by_loading(int bits)
{
    const struct model_source source = {.directory = wide, .dtype = DTYPE_OTHER, .bits = bits};
    int ends[2], status;
    i64 grown = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct device cpu;
        struct model model;
        int peak = open("/proc/self/clear_refs", O_WRONLY);
        bool begun = write(peak, "5", 1) == 1; /* the peak begins anew */
        i64 before = memory_peak_bytes();
        device_open_cpu(&cpu);
        if (!begun || model_load_source(&model, &cpu, &source))
            _exit(1);
        grown = memory_peak_bytes() - before;
        _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &grown, sizeof grown), sizeof grown);
    close(ends[0]);
    close(ends[1]);
    return grown;
}

/* The file's pages leave when they were read: its checksum, then its weights. With 4 bits a weight the
 * file is six times as large as what is kept. */
TEST(a_model_lies_in_memory_once_while_it_is_read)
{
    skip_sanitized();
    i64 stored = grown_by_loading(0), four = grown_by_loading(4);
    print_message("%.1f MB, with 4 bits %.1f\n", (double)stored * 1e-6, (double)four * 1e-6);
    assert_in_range(stored, 0, WIDE_BYTES + (10 << 20));
    assert_in_range(four, 0, WIDE_BYTES * 3 / 4);
}

/* A sub-model with a name is exported in the place of the whole; each form takes a few rows at a time. */
TEST(what_is_exported_lies_in_memory_once)
{
    char *named = string_format("%s@most", wide), *hf = in_folder("hf"), *gguf = in_folder("most.gguf");
    skip_sanitized();
    if (WEFT("extract", wide, "--experts", "0-14", "--name", "most"))
        fail_msg("%s", complained.data);
    allow(WIDE_BYTES + (30 << 20));
    if (WEFT("export", named, "-o", hf) || WEFT("export", named, "-o", gguf, "--to", "gguf"))
        fail_msg("%s", complained.data);
    unsetenv("WEFT_MEMORY_LIMIT");
    memory_free(named);
    memory_free(hf);
    memory_free(gguf);
}

/* The comparison of logits counts, too: with the estimate the work fits, and what is said is the weights
 * and at most 24 MB. */
TEST(exports_and_extractions_are_estimated_before_weights_are_read)
{
    char *made = in_folder("made");
    const char *const cases[][8] = {{"export", wide, "-o", made, "--to", "gguf", NULL}, /* compares no logits */
                                    {"export", wide, "-o", made, NULL},
                                    {"extract", wide, "-o", made, "--experts", "0-14", NULL}};
    double alone = 0;
    skip_sanitized();
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        const char *argv[9];
        memcpy(argv, cases[i], sizeof cases[i]);
        argv[8] = NULL;
        allow(4 << 20);
        assert_int_equal(run("", argv), 1);
        double all = number_after("takes ") * 1e6;
        assert_false(file_exists(made));
        alone = i ? alone : all;
        print_message("%s: %.1f MB\n", cases[i][0], all * 1e-6);
        if (!(all > (i ? alone + 0.4e6 : WIDE_BYTES) && all < WIDE_BYTES + 24e6))
            fail_msg("%.1f MB: %s", all * 1e-6, complained.data);
        allow((i64)all + (8 << 20));
        if (run("", argv))
            fail_msg("%s", complained.data);
        succeed(directory_remove(made));
    }
    unsetenv("WEFT_MEMORY_LIMIT");
    memory_free(made);
}

/* Nothing is read: the damage to a weight is not found. */
TEST(a_damaged_model_that_does_not_fit_is_not_looked_at)
{
    struct buffer content = {0};
    char *path = path_join(wide, "model.safetensors"), *kept = in_folder("kept");
    skip_sanitized();
    assert_int_equal(rename(path, kept), 0);
    succeed(file_read(&content, kept));
    content.data[content.length - 1000] ^= 1;
    succeed(file_replace(path, content.data, content.length));
    assert_int_equal(WEFT(GENERATE), 1);
    expect_complaint("checksum");
    allow(4 << 20);
    assert_int_equal(WEFT(GENERATE), 1);
    expect_complaint(" are left of the ");
    unsetenv("WEFT_MEMORY_LIMIT");
    assert_int_equal(rename(kept, path), 0);
    buffer_release(&content);
    memory_free(path);
    memory_free(kept);
}

static void write_recipe(const char *micro_rows)
{
    char *path = in_folder("r.yaml"),
         *text =
             string_format("run: %s/run\nstages:\n"
                           "  base: {kind: pretrain, data: %s, steps: 1, heldout_rows: 2, elastic: {on: false},\n"
                           "         batch: {rows: 32, length: 512, micro_rows: %s},\n"
                           "         model: {width: 128, layers: 4, heads: 4, kv_heads: 2, head_width: "
                           "32, experts: 4, topk: 2, expert_width: 64, vit_layers: 1, vit_width: 16, vit_heads: 2}}\n",
                           shards, shards, micro_rows);
    succeed(file_replace(path, text, (i64)strlen(text)));
    memory_free(path);
    memory_free(text);
}

TEST(a_stage_is_refused_before_its_first_step)
{
    char *recipe = in_folder("r.yaml"), *metrics = in_folder("run/base.partial/metrics.jsonl");
    skip_sanitized();
    write_recipe("32");
    allow(80 << 20);
    assert_int_equal(WEFT("run", recipe), 1);
    double all = number_after("a step takes ") * 1e6;
    allow((i64)all - (4 << 20));
    assert_int_equal(WEFT("run", recipe), 1);
    expect_complaint("stage base: a step takes ");
    expect_complaint("; batch.micro_rows=16 would take ");
    assert_false(file_exists(metrics));
    assert_int_equal(WEFT("run", recipe, "base.batch.micro_rows=16"), 0);
    unsetenv("WEFT_MEMORY_LIMIT");
    memory_free(recipe);
    memory_free(metrics);
}

static int run_in_group(const char *group, const char *const *words)
{
    char *err = in_folder("stderr");
    const char *argv[32] = {"weft"};
    int status;
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        control_group_enter(group);
        open_as(2, err, O_WRONLY | O_CREAT | O_TRUNC);
        weft_become((char **)(uintptr_t)argv);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    read_output(&complained, "stderr");
    memory_free(err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What a fork touches of its parent's memory counts in the parent's group. */
TEST(in_a_control_group_the_message_comes_in_place_of_the_signal)
{
    char *recipe = in_folder("r.yaml"), *other = string_format("run=%s/grouped", shards);
    const char *const train[] = {"run", recipe, other, NULL}, *const say[] = {GENERATE, NULL};
    const struct {
        i64 bytes;
        const char *const *words;
    } cases[] = {{80 << 20, train}, {24 << 20, say}};
    skip_sanitized();
    write_recipe("32");
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *group = control_group_make(cases[i].bytes);
        if (!group)
            skip();
        int status = run_in_group(group, cases[i].words);
        control_group_remove(group);
        if (status != 1)
            fail_msg("%s: status %d: %s", cases[i].words[0], status, complained.data);
        expect_complaint("that its control group allows");
    }
    memory_free(recipe);
    memory_free(other);
}

/* Not taken for the highest level that there is, whose bits differ. */
TEST(a_level_that_the_cpu_lacks_is_refused)
{
    assert_int_equal(cpu_isa_check("v4", CPU_ISA_V3), -1);
    assert_string_equal(error_text(), "the environment variable WEFT_CPU is \"v4\", which this CPU lacks: expected v3");
    assert_int_equal(cpu_isa_check("pairs", CPU_ISA_VNNI), -1);
    assert_non_null(strstr(error_text(), "\"pairs\", which this CPU lacks: expected one of v3, v4, vnni"));
    assert_int_equal(cpu_isa_check("vnni", CPU_ISA_VNNI), 0);
    assert_int_equal(cpu_isa_check("pairs", CPU_ISA_AMX), 0);
    assert_int_equal(cpu_isa_check("", CPU_ISA_V3), 0);
}

static int make_all(void **state)
{
    make(state);
    char *validation = in_folder("validation");
    require(symlink("train", validation) == 0, "cannot link %s", validation);
    memory_free(validation);
    wide = write_wide_model(0);
    return 0;
}

int main(void)
{
    return tests_run(make_all, clear);
}
