/* Failing calls of the system (inject.h): whichever call of prepare, a training, extract or export
 * fails, the program ends with one message and leaves no half-written output, or with the right
 * one; the same command then makes what an undisturbed run makes. The daily test takes some calls
 * of each kind, the nightly one takes them all up to a limit, then steps.
 *
 *   test_faults                       all commands
 *   test_faults PART PARTS            the calls whose number is PART modulo PARTS
 *   test_faults COMMAND KIND NUMBER   one call, and where it is (COMMAND: a number from 0) */
#define _GNU_SOURCE /* unshare */
#include "tests/bad_input.h"
#include "tests/faults/inject.h"

#include <errno.h>
#include <sys/mman.h>

static const char *const sharding_few = "run: run\nprecision: f32\nstages:\n  shards: {kind: prepare, data: "
                                        "../few.txt, text: ../model, shard_bytes: 4096}\n";
static const char *const training_short =
    "run: run\nseed: 5\nprecision: f32\nstages:\n"
    "  base: {kind: pretrain, data: ../shards, steps: 2, checkpoint_steps: 1, heldout_rows: 1,\n"
    "         batch: {rows: 1, length: 32, micro_rows: 1}, elastic: {start: 0, slice_rows: 1},\n"
    "         model: {width: 16, layers: 4, heads: 1, kv_heads: 1, head_width: 16, experts: 2, expert_width: 16,\n"
    "                 vit_layers: 1, vit_width: 16, vit_heads: 1}}\n";

static const struct faults_command {
    const char *words[WORDS_MOST];
    const char *out; /* in work: there if the command was successful, and then whole */
} commands[] = {
    {{"run", "../sharding-few.yaml"}, "run/shards"},
    {{"run", "../training-short.yaml"}, "run/base"},
    {{"extract", "../model", "-o", "out", "--topk", "1"}, "out"},
    {{"export", "../model", "-o", "out"}, "out"},
    {{"export", "../model", "--to", "gguf", "-o", "out.gguf"}, "out.gguf"},
};
static const struct faults_kind {
    enum fault_kind kind;
    const char *name;
    int error;
    bool lasts; /* tried with all later calls failing too, as on a full or broken disk */
} kinds[] = {
    {FAULT_OPEN, "open", EIO, true},           {FAULT_READ, "read", EIO, false},
    {FAULT_WRITE, "write", ENOSPC, true},      {FAULT_SHORT, "short write", 0, false},
    {FAULT_SYNC, "fsync", EIO, true},          {FAULT_CLOSE, "close", EIO, false},
    {FAULT_RENAME, "rename", ENOSPC, true},    {FAULT_REMOVE, "remove", EIO, false},
    {FAULT_DIRECTORY, "mkdir", ENOSPC, false}, {FAULT_TRUNCATE, "ftruncate", EIO, false},
    {FAULT_STATUS, "stat", EIO, false},        {FAULT_MAP, "mmap", ENOMEM, false},
    {FAULT_MEMORY, "memory", ENOMEM, false},   {FAULT_LIBRARY, "memory of libraries", ENOMEM, false},
};

static i64 calls_part, calls_parts = 1; /* shares of the work */
static i64 only_command, only_number;   /* one call; only_number 0: all */
static const char *only_kind;

static int run_planned(const struct faults_command *c, enum fault_kind kind, i64 number, bool lasts, int error)
{
    *fault_plan = (struct fault_plan){
        .kind = kind, .number = number, .lasts = lasts, .error = error, .shown = number && only_number};
    return run_set(c->words, &(struct setting_of_run){.begin = faults_begin, .signals = true});
}

/* ---- What is left ---- */

/* Files that hold times, host names and paths, and those of a finished run that a resumed one
 * need not repeat. */
static bool is_compared(const char *name)
{
    static const char *const ends[] = {".safetensors", ".gguf",          ".shard",      "index",
                                       "shards.json",  "tokenizer.json", "config.json", ".bin"};
    for (i64 i = 0; i < COUNT_OF(ends); i++) {
        size_t length = strlen(name), end = strlen(ends[i]);
        if (length >= end && strcmp(name + length - end, ends[i]) == 0)
            return true;
    }
    return false;
}

/* Appends name, size and hash of the compared files below a path. */
static void describe(struct buffer *out, const char *path)
{
    struct buffer content = {0};
    char **names;
    i64 count;
    if (!file_is_directory(path)) {
        const char *slash = strrchr(path, '/');
        if (!is_compared(slash + 1) || file_read(&content, path) < 0)
            return;
        buffer_printf(out, "%s %lld %016llx\n", slash + 1, (long long)content.length,
                      (unsigned long long)hash_bytes(content.data, content.length, 0));
        buffer_release(&content);
        return;
    }
    require(directory_list(&names, &count, path) == 0, "%s", error_text());
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(path, names[i]);
        describe(out, below);
        memory_free(below);
    }
    string_list_free(names, count);
}

static void describe_output(struct buffer *out, const struct faults_command *c)
{
    char *path = path_join(work, c->out);
    buffer_clear(out);
    buffer_append(out, "", 0);
    if (file_exists(path))
        describe(out, path);
    memory_free(path);
}

/* ---- One failure ---- */

TEST(a_disk_that_fails_does_not_say_that_a_file_is_absent)
{
    for (int folder = 0; folder < 2; folder++) {
        int status;
        *fault_plan = (struct fault_plan){.kind = FAULT_STATUS, .number = 1, .error = EIO};
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            if (!freopen("/dev/null", "w", stderr))
                _exit(99);
            faults_begin();
            _exit((folder ? file_is_directory(root) : file_exists(root)) ? 3 : 2);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_FAILED);
    }
}

static i64 wrong; /* faults with which a command did wrong */

static void report(const struct faults_command *c, const struct faults_kind *kind, i64 number, bool lasts,
                   const char *what)
{
    struct buffer run = {0}, left = {0};
    name_run(&run, c->words);
    buffer_append(&left, "", 0);
    list_tree(&left, work);
    fprintf(stderr, "%s, where %s %lld fails%s: %s\n%s%s\n", run.data, kind->name, (long long)number,
            lasts ? " and all after it" : "", what, complained.data, left.data);
    buffer_release(&run);
    buffer_release(&left);
    wrong++;
}

/* Returns false if the command needs fewer calls of the kind. */
static bool try_fault(const struct faults_command *c, const struct faults_kind *kind, i64 number, bool lasts,
                      const char *whole)
{
    struct buffer made = {0};
    char *path = path_join(work, c->out);
    clear_work();
    int status = run_planned(c, kind->kind, number, lasts, kind->error);
    bool failed = fault_plan->failed > 0;
    describe_output(&made, c);
    if (status != 0 && (status != 1 || !only_message() || strstr(complained.data, "internal error")))
        report(c, kind, number, lasts, status == 1 ? "expected one message at the end" : "expected status 0 or 1");
    if (status == 0 && strcmp(made.data, whole) != 0)
        report(c, kind, number, lasts, "status 0, but another output");
    if (status != 0 && file_exists(path) && strcmp(made.data, whole) != 0)
        report(c, kind, number, lasts, "half an output is left");
    if (!failed || (file_exists(path) && strcmp(c->words[0], "run") != 0)) { /* whole; a second call is refused */
        buffer_release(&made);
        memory_free(path);
        return failed;
    }
    status = run_planned(c, kind->kind, 0, false, 0);
    describe_output(&made, c);
    if (status != 0 || strcmp(made.data, whole) != 0)
        report(c, kind, number, lasts, "the next run makes something else");
    buffer_release(&made);
    memory_free(path);
    return failed;
}

/* Every call up to `each`, then every `step`th. */
static void try_all(const struct faults_command *c, const struct faults_kind *kind, i64 each, i64 most,
                    const char *whole)
{
    i64 calls = fault_plan->calls[kind->kind], step = max_i64(1, (calls - each) / max_i64(1, most - each));
    for (i64 number = 1; number <= calls; number += number < each ? 1 : step)
        for (int lasts = 0; number % calls_parts == calls_part && lasts < (is_nightly() && kind->lasts ? 2 : 1);
             lasts++)
            if (!try_fault(c, kind, number, lasts, whole))
                break;
}

TEST(a_failing_call_leaves_nothing_half_made)
{
    struct buffer whole = {0};
    for (i64 i = 0; i < COUNT_OF(commands); i++) {
        if (only_number && i != only_command)
            continue;
        clear_work();
        if (run_planned(&commands[i], 0, 0, false, 0))
            fail_msg("%s", complained.data);
        const struct fault_plan counted = *fault_plan;
        describe_output(&whole, &commands[i]);
        assert_true(whole.length > 0);
        for (i64 k = 0; k < COUNT_OF(kinds); k++) {
            *fault_plan = counted;
            if (only_number) {
                if (strcmp(only_kind, kinds[k].name) == 0)
                    try_fault(&commands[i], &kinds[k], only_number, false, whole.data);
                continue;
            }
            double begin_s = clock_s();
            bool files = kinds[k].kind < FAULT_MEMORY; /* memory is asked for tens of thousands of times */
            try_all(&commands[i], &kinds[k],
                    !is_nightly() ? 0
                    : files       ? 200
                                  : 50,
                    !is_nightly() ? 2
                    : files       ? 250
                                  : 150,
                    whole.data);
            if (is_nightly())
                print_message("weft %s: %lld calls of %s, %.0f s\n", commands[i].words[0],
                              (long long)counted.calls[kinds[k].kind], kinds[k].name, clock_s() - begin_s);
        }
    }
    buffer_release(&whole);
    if (only_number)
        print_message("%s", complained.data);
    if (wrong)
        fail_msg("%lld failing calls were met wrongly", (long long)wrong);
}

static int make_faults(void **state)
{
    static const char *const names[] = {"few.txt", "sharding-few.yaml", "training-short.yaml"};
    struct buffer words = {0};
    fault_plan = mmap(NULL, sizeof *fault_plan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fault_plan == MAP_FAILED || make(state))
        return -1;
    for (i64 i = 0; i < 60; i++)
        buffer_printf(&words, "word %lld and others\n\n", (long long)(i * i % 977));
    const char *const texts[] = {words.data, sharding_few, training_short};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *path = path_join(root, names[i]);
        put_file(path, texts[i], (i64)strlen(texts[i]));
        memory_free(path);
    }
    buffer_release(&words);
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 3) {
        calls_part = atoll(arguments[1]);
        calls_parts = max_i64(1, atoll(arguments[2]));
    }
    if (count == 4) {
        only_command = atoll(arguments[1]);
        only_kind = arguments[2];
        only_number = atoll(arguments[3]);
    }
    return tests_run(make_faults, clear);
}
