/* `weft launch`: ranks that are killed, stopped or fail, launchers that join and die, and bad calls. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "dist/dist.h"
#include "tests/files.h"
#include "tests/ranks.h"
#include "tests/scratch.h"
#include "tests/shard_fixture.h"
#include "tests/weft_process.h"

/* A launcher of this test. */
struct launch {
    char file[32]; /* of what it says */
    pid_t id;
    struct buffer said;
};
enum { STEPS_MOST = 20000 };  /* that no test waits for */
static char *shards, *others; /* two folders with other shards */
static int port;

static int setup(void **state)
{
    setenv("WEFT_THREADS", "1", 1);
    setenv("WEFT_SILENCE_S", "1", 1); /* so that stopped ranks are found soon */
    setenv("WEFT_WAIT_S", "120", 1);
    if (make_directory(state))
        return -1;
    for (int i = 0; i < 2; i++) {
        char *made = fixture_shards(i ? "launch-others" : "launch", 80 - i, 40);
        fixture_validation(made);
        *(i ? &others : &shards) = made;
    }
    return 0;
}

static int teardown(void **state)
{
    directory_remove(shards);
    directory_remove(others);
    memory_free(shards);
    memory_free(others);
    return remove_directory(state);
}

/* Writes a recipe of `steps` steps, whose run is in the folder `run` of the test. */
static char *recipe_of(const char *run, int steps, const char *data)
{
    char *name = string_format("%s.yaml", run);
    char *text = string_format(
        "run: %s/%s\nprecision: f32\nstages:\n  base: {kind: pretrain, data: %s, steps: %d, checkpoint_steps: 2, "
        "heldout_rows: 0, batch: {rows: 4, length: 64, micro_rows: 1}, elastic: {start: 0, slice_rows: 1}, model: "
        "{width: 32, layers: 4, heads: 2, kv_heads: 2, head_width: 16, experts: 4, expert_width: 16, vit_layers: 1, "
        "vit_width: 16, vit_heads: 2}, optimizer: {warmup: 1}}\n",
        directory, run, data, steps);
    char *path = put_text(name, text);
    memory_free(name);
    memory_free(text);
    return path;
}

/* ---- Launchers as processes ---- */

/* Starts `weft launch` with words divided by spaces, in a folder (NULL: here). */
static struct launch start_in(const char *folder, const char *name, const char *format, ...) PRINTF(3, 4);
static struct launch start_in(const char *folder, const char *name, const char *format, ...)
{
    char *words[32] = {"weft", "launch"};
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_vprintf(&text, format, arguments);
    va_end(arguments);
    weft_add_words(words, COUNT_OF(words), text.data);
    struct launch l = {0};
    snprintf(l.file, sizeof l.file, "%s.said", name);
    fflush(NULL);
    l.id = fork();
    if (l.id == 0) {
        int err = open(path_of(l.file), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644),
            out = open("/dev/null", O_WRONLY);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (err < 0 || out < 0 || dup2(err, 2) < 0 || dup2(out, 1) < 0 || (folder && chdir(folder)))
            _exit(99);
        weft_become(words);
    }
    buffer_release(&text);
    return l;
}
#define START(name, ...) start_in(NULL, name, __VA_ARGS__)

static const char *said_by(struct launch *l)
{
    buffer_release(&l->said);
    if (file_exists(path_of(l->file)))
        succeed(file_read(&l->said, path_of(l->file)));
    buffer_append(&l->said, "", 0);
    return l->said.data;
}

static int times_said(struct launch *l, const char *text)
{
    int times = 0;
    for (const char *at = said_by(l); (at = strstr(at, text)); at++)
        times++;
    return times;
}

static bool is_there(const struct launch *l)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)l->id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid;
}

/* Waits until it has said `text` so many times. */
static void await(struct launch *l, const char *text, int times)
{
    for (double begin_s = clock_s(); times_said(l, text) < times; usleep(5000))
        if ((!is_there(l) && times_said(l, text) < times) || clock_s() - begin_s > TEST_SECONDS_MOST)
            fail_msg("%s: expected \"%s\" %d times in: %s", l->file, text, times, l->said.data);
}

/* Its exit status. All that it started has ended too. */
static void expect_end(struct launch *l, int expected, const char *text)
{
    int status;
    while (waitpid(l->id, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    said_by(l);
    if (status != expected || (text && !strstr(l->said.data, text)))
        fail_msg("%s: status %d, expected %d and \"%s\" in: %s", l->file, status, expected, text ? text : "",
                 l->said.data);
    buffer_release(&l->said);
}

/* The process of a rank: a child of the launcher. 0: there is none now. */
static pid_t rank_of(const struct launch *l, int number)
{
    DIR *all = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry; !found && (entry = readdir(all));) {
        char path[300], name[32] = "", wanted[32];
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        snprintf(wanted, sizeof wanted, "weft-rank-%d)", number);
        FILE *file = atoi(entry->d_name) > 0 ? fopen(path, "re") : NULL;
        char state = 0;
        if (file && fscanf(file, "%*d (%31s %c %d", name, &state, &parent) == 3 && parent == l->id &&
            strcmp(name, wanted) == 0 && state != 'Z')
            found = atoi(entry->d_name);
        if (file)
            fclose(file);
    }
    closedir(all);
    return found;
}

static void send_to_rank(const struct launch *l, int number, int signal_number)
{
    pid_t rank;
    while ((rank = rank_of(l, number)) == 0)
        usleep(1000);
    assert_int_equal(kill(rank, signal_number), 0);
}

static i64 steps_of(const char *run)
{
    char *path = string_format("%s/%s/base.partial/metrics.jsonl", directory, run);
    struct buffer text = {0};
    i64 lines = 0;
    if (file_exists(path) && file_read(&text, path) == 0)
        for (i64 i = 0; i < text.length; i++)
            lines += text.data[i] == '\n';
    buffer_release(&text);
    memory_free(path);
    return lines;
}

static void await_steps(struct launch *l, const char *run, i64 steps)
{
    for (double begin_s = clock_s(); steps_of(run) < steps; usleep(2000))
        if (!is_there(l) || clock_s() - begin_s > TEST_SECONDS_MOST)
            fail_msg("%s: no step %lld: %s", run, (long long)steps, said_by(l));
}

static void interrupt(struct launch *l)
{
    assert_int_equal(kill(l->id, SIGINT), 0);
}

/* ---- Deaths ---- */

TEST(a_run_goes_on_with_the_ranks_that_are_left)
{
    char *recipe = recipe_of("left", STEPS_MOST, shards);
    struct launch l = START("left", "-n 3 run %s", recipe);
    await_steps(&l, "left", 3);
    send_to_rank(&l, 1, SIGKILL);
    await(&l, "launch: 1 of 3 ranks left at step ", 1);
    await(&l, "(rank 1: killed, signal 9, ", 1);
    await(&l, " GB); 2 go on from step ", 1);
    send_to_rank(&l, 1, SIGSEGV);
    await(&l, "launch: 1 of 2 ranks left at step ", 1);
    await(&l, "(rank 1: signal 11, Segmentation fault, ", 1);
    await(&l, "; 1 goes on from step ", 1);
    send_to_rank(&l, 0, SIGSTOP);
    await(&l, "launch: 1 of 1 rank left at step ", 1);
    await(&l, "(rank 0: stopped for ", 1);
    await(&l, "; 3 go on from step ", 1); /* too few were left: all places are filled again */
    interrupt(&l);
    expect_end(&l, 130, "interrupted and saved");
    memory_free(recipe);
}

static const char *const results[] = {"base/model.safetensors", "base/weft/extra.safetensors"};

static void expect_same_results(const char *a, const char *b)
{
    for (i64 i = 0; i < COUNT_OF(results); i++)
        expect_same_file(path_of(a), path_of(b), results[i]);
}

/* The memory in which ranks of a launcher leave snapshots. */
static int open_memory(const struct launch *l)
{
    for (int number = 3; number < 64; number++) {
        char path[64], name[64] = "";
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)l->id, number);
        if (readlink(path, name, sizeof name - 1) > 0 && strstr(name, "weft-snapshots"))
            return open(path, O_RDWR | O_CLOEXEC);
    }
    fail_msg("no memory for snapshots");
    return -1;
}

/* Flips a bit in each page behind the head. */
static void damage_memory(const struct launch *l)
{
    enum { PAGE = 4096, HEAD = 64 << 10 };
    int memory = open_memory(l);
    off_t bytes = lseek(memory, 0, SEEK_END);
    char byte;
    assert_true(bytes > HEAD);
    for (off_t at = HEAD; at < bytes; at += PAGE) {
        assert_int_equal(pread(memory, &byte, 1, at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(memory, &byte, 1, at), 1);
    }
    close(memory);
}

/* With places that are filled again the ranks are the same, so the bits are. */
TEST(deaths_at_random_moments_change_no_bit)
{
    enum { STEPS = 30 };
    static const struct {
        const char *name, *words;
        bool in_memory, damaged;
    } cases[] = {{"killed", "", false, false},
                 {"in-memory", "base.checkpoint_steps=1000", true, false},
                 {"damaged", "", false, true}};
    const i64 kills = is_nightly() ? 30 : 3;
    const struct rng_key key = {7, RNG_TEST};
    char *recipe = recipe_of("whole", STEPS, shards);
    struct launch whole = START("whole", "-n 2 --least 2 run %s", recipe);
    expect_end(&whole, 0, "base: done");
    for (i64 c = 0; c < COUNT_OF(cases); c++) {
        const char *name = cases[c].name;
        struct launch l = START(name, "-n 2 --least 2 run %s run=%s/%s %s", recipe, directory, name, cases[c].words);
        for (i64 i = 0; i < kills; i++) {
            await_steps(&l, name, 3 + i * (STEPS - 6) / kills);
            usleep((useconds_t)rng_below(key, STEPS_MOST, (u32)i, 0, 0, 0));
            send_to_rank(&l, (int)rng_below(key, 2, (u32)i, 1, 0, 0), cases[c].damaged ? SIGSTOP : SIGKILL);
            if (cases[c].damaged)
                damage_memory(&l);
            await(&l, "; 2 go on from step ", (int)i + 1);
        }
        await(&l, "base: done", 1);
        if (cases[c].in_memory)
            assert_int_equal(times_said(&l, ", which is in memory"), kills);
        if (cases[c].damaged)
            assert_int_equal(times_said(&l, ", which is in memory"), 0);
        expect_end(&l, 0, "base: done");
        expect_same_results("whole", name);
    }
    memory_free(recipe);
}

TEST(a_run_goes_on_without_memory_for_snapshots)
{
    struct rlimit before, small;
    char *recipe = recipe_of("small", 3, shards);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct launch l = START("small", "-n 2 run %s", recipe);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    await(&l, "base: done", 1);
    assert_int_equal(times_said(&l, "no snapshots in memory: 0.01 GB are needed: File too large; "), 1);
    expect_end(&l, 0, "base: done");
    memory_free(recipe);
}

/* ---- Replays ---- */

static char *journal_of(const char *run)
{
    return string_format("%s/%s/base/members.jsonl", directory, run);
}

/* Ranks die until one is left. Sums over other ranks have other bits, so a replay with other ranks or other
 * steps would too. */
TEST(a_replay_has_the_bits_of_the_run)
{
    static const struct {
        const char *name, *words, *again;
        int worlds;
    } cases[] = {{"replay", "-n 3", "replay-again", 3}, {"turned", "-n 4 --layout tensor=2", "turned-again", 2}};
    char *recipe = recipe_of("replayed", 40, shards); /* without checkpoints on disk: worlds begin from memory */
    struct device device;
    device_open_cpu(&device);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        const char *name = cases[i].name, *more = i && device.has_bf16 ? "precision=bf16 base.checkpoint_steps=1000"
                                                                       : "seed=3 base.checkpoint_steps=1000";
        struct buffer text = {0};
        struct launch l = START(name, "%s run %s %s run=%s/%s", cases[i].words, recipe, more, directory, name);
        for (int death = 1; death < cases[i].worlds; death++) {
            await_steps(&l, name, 1 + 12 * death);
            send_to_rank(&l, 1, SIGKILL);
            await(&l, " on from step ", death);
        }
        expect_end(&l, 0, "base: done");
        char *journal = journal_of(name);
        succeed(file_read(&text, journal));
        assert_non_null(strstr(text.data, "\"ranks\":[{\"rank\":1,\"how\":\"killed, signal 9, "));
        assert_non_null(strstr(text.data, "\"left\":{\"how\":\"done\",\"step\":40}"));
        l = START(cases[i].again, "--replay %s run %s %s run=%s/%s", journal, recipe, more, directory, cases[i].again);
        if (i == 0) { /* an interrupted replay goes on */
            await(&l, "launch: replay of stage base: ", 2);
            await_steps(&l, cases[i].again, 1);
            interrupt(&l);
            expect_end(&l, 130, NULL);
            l = START(cases[i].again, "--replay %s run %s %s run=%s/%s", journal, recipe, more, directory,
                      cases[i].again);
        }
        expect_end(&l, 0, "base: done");
        expect_same_results(name, cases[i].again);
        buffer_release(&text);
        memory_free(journal);
    }
    memory_free(recipe);
}

/* ---- Deals ---- */

static struct buffer text_of(const char *path)
{
    struct buffer text = {0};
    succeed(file_read(&text, path));
    buffer_append(&text, "", 1);
    return text;
}

static void expect_in_file(const char *path, const char *words)
{
    struct buffer text = text_of(path);
    if (!strstr(text.data, words))
        fail_msg("%s: expected %s in: %s", path, words, text.data);
    buffer_release(&text);
}

/* A journal of an even run, with deals written into it: the replay takes them, its own journal has them, and a
 * replay of that has the same bits, also after an interrupt between two deals. */
TEST(a_replay_deals_as_its_journal)
{
    static const char deals[] = "\"deals\":[{\"step\":3,\"parts\":[1000,333]},{\"step\":9,\"parts\":[333,1000]}]";
    char *recipe = recipe_of("even", 12, shards), *journal = journal_of("even"), *own = journal_of("dealt");
    struct launch l = START("even", "-n 2 run %s", recipe);
    expect_end(&l, 0, "base: done");
    struct buffer text = text_of(journal), edited = {0};
    char *at = strstr(text.data, "\"deal\":\"even\"");
    assert_non_null(at);
    buffer_printf(&edited, "%.*s\"deal\":\"speed\",%s%s", (int)(at - text.data), text.data, deals, at + 13);
    char *path = put_text("dealt.jsonl", edited.data);
    l = START("dealt", "--replay %s run %s run=%s/dealt", path, recipe, directory);
    await(&l, "base: from step 10 on data ranks take 1 : 3 of 4 micro-batches", 1);
    assert_int_equal(times_said(&l, "base: from step 4 on data ranks take 3 : 1 of 4 micro-batches"), 1);
    assert_int_equal(times_said(&l, " on data ranks take "), 2);
    expect_end(&l, 0, "base: done");
    expect_in_file(own, "\"deal\":\"speed\"");
    expect_in_file(own, deals);
    struct buffer even = text_of(path_of("even/base/model.safetensors"));
    struct buffer dealt = text_of(path_of("dealt/base/model.safetensors"));
    assert_true(even.length == dealt.length && memcmp(even.data, dealt.data, (size_t)even.length) != 0);
    l = START("dealt-again", "--replay %s run %s run=%s/dealt-again", own, recipe, directory);
    await_steps(&l, "dealt-again", 5);
    interrupt(&l);
    expect_end(&l, 130, NULL);
    l = START("dealt-again", "--replay %s run %s run=%s/dealt-again base.deal=speed", own, recipe, directory);
    expect_end(&l, 0, "base: done");
    expect_same_results("dealt", "dealt-again");
    buffer_release(&text);
    buffer_release(&edited);
    buffer_release(&even);
    buffer_release(&dealt);
    memory_free(recipe);
    memory_free(journal);
    memory_free(own);
    memory_free(path);
}

/* ---- Experts on expert ranks ---- */

/* The placements of a journal, one behind the other: what follows "experts" in its lines. */
static struct buffer experts_of(const char *run)
{
    char *journal = journal_of(run);
    struct buffer text = text_of(journal), out = {0};
    for (const char *at = text.data; (at = strstr(at, "\"experts\":[[")); at++)
        buffer_printf(&out, "%.*s\n", (int)(strstr(at, "]]") - at), at);
    buffer_append(&out, "", 1);
    buffer_release(&text);
    memory_free(journal);
    return out;
}

static void expect_same_experts(const char *a, const char *b)
{
    struct buffer x = experts_of(a), y = experts_of(b);
    if (strcmp(x.data, y.data) != 0)
        fail_msg("%s: experts %sexpected those of %s: %s", b, y.data, a, x.data);
    buffer_release(&x);
    buffer_release(&y);
}

/* Each world places the experts by their use so far, also one that begins from a snapshot of ranks which held others.
 */
TEST(experts_are_placed_by_their_use_at_each_start)
{
    static const char more[] = "base.checkpoint_steps=1000";
    char *recipe = recipe_of("placed", 40, shards), *journal = journal_of("placed");
    struct launch l = START("placed", "-n 4 --least 4 --layout expert=2 run %s %s", recipe, more);
    for (int death = 1; death <= 2; death++) {
        await_steps(&l, "placed", 1 + 12 * death);
        send_to_rank(&l, 1, SIGKILL);
        await(&l, "; 4 go on from step ", death);
        await(&l, "base: the experts are placed by their use so far: the busiest of 2 expert ranks takes ", death);
    }
    await(&l, "base: done", 1);
    assert_int_equal(times_said(&l, ", which is in memory"), 2);
    expect_end(&l, 0, NULL);
    struct buffer placed = experts_of("placed");
    i64 worlds = 0;
    for (const char *at = placed.data; (at = strstr(at, "experts")); at++)
        worlds++;
    assert_int_equal(worlds, 2); /* the first had no counts */
    l = START("placed-again", "--replay %s run %s %s run=%s/placed-again", journal, recipe, more, directory);
    expect_end(&l, 0, "base: done");
    expect_same_results("placed", "placed-again");
    expect_same_experts("placed", "placed-again");
    buffer_release(&placed);
    memory_free(recipe);
    memory_free(journal);
}

/* A journal of experts in a row, with a placement written into it. An interrupted replay has the placement of its
 * world, although the counts say another one by then. */
TEST(a_replay_places_experts_as_its_journal)
{
    static const char experts[] = ",\"experts\":[[0,3,1,2],[1,2,0,3],[0,1,2,3],[2,3,0,1]]";
    char *recipe = recipe_of("row", 8, shards), *journal = journal_of("row"), *own = journal_of("moved");
    struct launch l = START("row", "-n 2 --layout expert=2 run %s", recipe);
    expect_end(&l, 0, "base: done");
    struct buffer text = text_of(journal), edited = {0};
    assert_null(strstr(text.data, "experts"));
    char *at = strstr(text.data, ",\"device\":");
    assert_non_null(at);
    buffer_printf(&edited, "%.*s%s%s", (int)(at - text.data), text.data, experts, at);
    char *path = put_text("moved.jsonl", edited.data);
    l = START("moved", "--replay %s run %s run=%s/moved", path, recipe, directory);
    await_steps(&l, "moved", 3);
    interrupt(&l);
    expect_end(&l, 130, NULL);
    l = START("moved", "--replay %s run %s run=%s/moved", path, recipe, directory);
    expect_end(&l, 0, "base: resuming from step ");
    buffer_release(&text);
    text = text_of(own);
    i64 worlds = 0;
    for (at = text.data; (at = strstr(at, experts)); at++)
        worlds++;
    assert_int_equal(worlds, 2);
    l = START("moved-model", "--replay %s run %s run=%s/moved-model base.model.layers=5", path, recipe, directory);
    expect_end(&l, 2, "its ranks hold 4 layers of 4 experts, the model here has 5 of 4: expected the journal of");
    buffer_release(&text);
    buffer_release(&edited);
    memory_free(recipe);
    memory_free(journal);
    memory_free(own);
    memory_free(path);
}

/* SIGALRM of any launcher: the same ranks begin again, with the experts placed anew. */
TEST(a_launcher_begins_again_when_it_is_asked)
{
    char *recipe = recipe_of("again", STEPS_MOST, shards);
    port = ranks_free_port();
    struct launch first = START("again", "-n 1 --layout expert=2 --meet 127.0.0.1:%d run %s", port, recipe);
    await(&first, "waiting for more machines", 1);
    struct launch second = START("again-second", "-n 1 --layout expert=2 --meet 127.0.0.1:%d run %s", port, recipe);
    await_steps(&first, "again", 3);
    assert_int_equal(kill(first.id, SIGALRM), 0);
    await(&first, "launch: the ranks are asked to begin again; 2 go on from step ", 1);
    await(&first, "base: the experts are placed by their use so far: ", 1);
    assert_int_equal(kill(second.id, SIGALRM), 0);
    await(&first, "launch: the ranks are asked to begin again; 2 go on from step ", 2);
    await(&first, "base: the experts are placed by their use so far: ", 2);
    assert_int_equal(times_said(&first, " left at step"), 0);
    interrupt(&first);
    expect_end(&first, 130, "interrupted and saved");
    expect_end(&second, 130, NULL);
    memory_free(recipe);
}

/* With groups of neighbouring experts, of which sub-models draw equal shares, experts stay in a row. */
TEST(groups_of_experts_stay_where_they_are)
{
    char *recipe = recipe_of("groups", STEPS_MOST, shards);
    struct launch l = START("groups", "-n 2 --layout expert=2 run %s base.elastic.expert_groups=2", recipe);
    await_steps(&l, "groups", 3);
    assert_int_equal(kill(l.id, SIGALRM), 0);
    await(&l, "; 2 go on from step ", 1);
    interrupt(&l);
    expect_end(&l, 130, "interrupted and saved");
    assert_int_equal(times_said(&l, "the experts are placed"), 0);
    buffer_release(&l.said);
    memory_free(recipe);
}

/* Lets a rank run a tenth of the time, until it or this process ends: less than its share of a busy machine. */
static pid_t slow_down(pid_t rank)
{
    enum { RUN_US = 2000 };
    pid_t slower = fork();
    if (slower)
        return slower;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (kill(rank, SIGSTOP) == 0) {
        usleep(9 * RUN_US);
        kill(rank, SIGCONT);
        usleep(RUN_US);
    }
    _exit(0);
}

/* A rank that is slow gets less, dies, and is started again; the replay, where none is slow, has the bits. */
TEST(a_slow_rank_gets_less_and_a_replay_has_the_bits)
{
    enum { STEPS = 40 };
    char *recipe = recipe_of("slow", STEPS, shards), *journal = journal_of("slow");
    static const char more[] = "base.deal=speed base.batch.rows=8 base.batch.length=128";
    struct launch l = START("slow", "-n 2 --least 2 run %s %s", recipe, more);
    await_steps(&l, "slow", 1);
    pid_t slower = slow_down(rank_of(&l, 1));
    await(&l, " on data ranks take ", 1);
    i64 step = steps_of("slow");
    await_steps(&l, "slow", min_i64(step + 3, STEPS - 1));
    send_to_rank(&l, 1, SIGKILL);
    await(&l, "; 2 go on from step ", 1);
    expect_end(&l, 0, "base: done");
    assert_int_equal(waitpid(slower, NULL, 0), slower);
    expect_in_file(journal, "\"deal\":\"speed\"");
    expect_in_file(journal, "\"parts\":[1000,");
    expect_in_file(path_of("slow/base/metrics.jsonl"), "\"rank_s/1\":");
    l = START("slow-again", "--replay %s run %s %s run=%s/slow-again", journal, recipe, more, directory);
    expect_end(&l, 0, "base: done");
    expect_same_results("slow", "slow-again");
    memory_free(recipe);
    memory_free(journal);
}

static bool are_same_files(const char *a, const char *b)
{
    struct buffer x = text_of(a), y = text_of(b);
    bool same = x.length == y.length && memcmp(x.data, y.data, (size_t)x.length) == 0;
    buffer_release(&x);
    buffer_release(&y);
    return same;
}

/* Two launchers as two machines, whose sums go within each first; a rank dies. The replay on one machine has the bits,
 * and has others where its journal does not say who was where. */
TEST(a_replay_sums_by_the_machines_of_the_run)
{
    char *recipe = recipe_of("apart", 16, shards), *journal = journal_of("apart"), *own = journal_of("apart-again");
    port = ranks_free_port();
    setenv("WEFT_MACHINE", "first", 1);
    struct launch first = START("apart", "-n 2 --layout data=4 --meet 127.0.0.1:%d run %s", port, recipe);
    await(&first, "waiting for more machines", 1);
    setenv("WEFT_MACHINE", "second", 1);
    struct launch second = START("apart-second", "-n 2 --layout data=4 --meet 127.0.0.1:%d run %s", port, recipe);
    unsetenv("WEFT_MACHINE");
    await_steps(&first, "apart", 5);
    send_to_rank(&first, 1, SIGKILL);
    await(&first, "; 4 go on from step ", 1); /* fewer do not fit: all places are filled again */
    expect_end(&first, 0, "base: done");
    expect_end(&second, 0, NULL);
    expect_in_file(journal, ",\"machines\":[0,0,1,1],");
    first = START("apart-again", "--replay %s run %s run=%s/apart-again", journal, recipe, directory);
    expect_end(&first, 0, "base: done");
    expect_same_results("apart", "apart-again");
    expect_in_file(own, ",\"machines\":[0,0,1,1],");
    struct buffer text = text_of(journal), without = {0};
    for (char *at = text.data, *end; at; at = end) {
        end = strstr(at, ",\"machines\":[");
        buffer_printf(&without, "%.*s", (int)(end ? end - at : (i64)strlen(at)), at);
        end = end ? strchr(end, ']') + 1 : NULL;
    }
    char *path = put_text("together.jsonl", without.data);
    first = START("together", "--replay %s run %s run=%s/together", path, recipe, directory);
    expect_end(&first, 0, "base: done");
    char *a = string_copy(path_of("apart/base/model.safetensors")), *b = path_of("together/base/model.safetensors");
    assert_false(are_same_files(a, b));
    buffer_release(&text);
    buffer_release(&without);
    memory_free(recipe);
    memory_free(journal);
    memory_free(own);
    memory_free(path);
    memory_free(a);
}

static void put_journal(const char *name, const char *of, i64 lines, const char *more)
{
    struct buffer text = {0};
    char *journal = journal_of(of), *at;
    succeed(file_read(&text, journal));
    for (at = text.data; lines > 0; lines--)
        at = strchr(at, '\n') + 1;
    text.length = at - text.data;
    buffer_append(&text, more, (i64)strlen(more));
    memory_free(put_text(name, text.data));
    buffer_release(&text);
    memory_free(journal);
}

TEST(journals_of_other_runs_are_refused)
{
    enum { STEPS = 3 };
    static const struct {
        const char *journal, *more, *why;
        int status;
    } cases[] = {
        {"own", "seed=4 run=NEW", "is the journal of another run, which differs from stage base here in seed: expected",
         2},
        {"own", "base.steps=2 run=NEW", "differs from stage base here in recipe: expected", 2},
        {"own", "base.data=OTHERS run=NEW", "differs from stage base here in inputs: expected", 2},
        {"own", "", "nothing was repeated: stage base of ", 1},
        {"missing.jsonl", "", "missing.jsonl", 1},
        {"empty.jsonl", "", "empty.jsonl: it is empty: expected a line for each world", 1},
        {"cut.jsonl", "", "cut.jsonl:2: the line is cut", 1},
        {"torn.jsonl", "", "torn.jsonl:2", 1},
        {"other.jsonl", "", "other.jsonl:1: no world of ranks (step, ranks, layout)", 1},
        {"deal.jsonl", "", "deal.jsonl:1: the deal of samples is \"odd\", expected \"even\" or \"speed\"", 1},
        {"no-deals.jsonl", "", "no-deals.jsonl:1: the deals cannot be read: expected, with", 1},
        {"even-deals.jsonl", "",
         "even-deals.jsonl:1: the deals cannot be read: expected, with \"deal\": \"speed\" only", 1},
        {"late-deals.jsonl", "", "late-deals.jsonl:1: the deals cannot be read: expected, with", 1},
        {"groups.jsonl", "",
         "groups.jsonl:1: the deals cannot be read: expected, with \"deal\": \"speed\" only, ascending "
         "steps and for each 2 parts from 1 to 1000",
         1},
        {"parts.jsonl", "", "parts.jsonl:1: the deals cannot be read: expected, with", 1},
        {"missing-machines.jsonl", "",
         "missing-machines.jsonl:1: the machines cannot be read: expected a number for each of the 2 ranks, which "
         "count "
         "from 0",
         1},
        {"skipped-machines.jsonl", "", "skipped-machines.jsonl:1: the machines cannot be read: expected a number", 1},
        {"turned-machines.jsonl", "", "turned-machines.jsonl:1: the machines cannot be read: expected a number", 1},
        {"twice.jsonl", "",
         "twice.jsonl:1: the experts cannot be read: expected for each layer the number of each expert once, in the "
         "order of the 2 ranks that hold as many each",
         1},
        {"falling.jsonl", "", "falling.jsonl:1: the experts cannot be read: expected", 1},
        {"ragged.jsonl", "", "ragged.jsonl:1: the experts cannot be read: expected", 1},
        {"odd.jsonl", "", "odd.jsonl:1: the experts cannot be read: expected", 1},
        {"no-list.jsonl", "", "no-list.jsonl:1: the experts cannot be read: expected", 1},
        {"layout.jsonl", "", "layout.jsonl:1: 3 data x 1 tensor x 1 pipeline ranks are 3, but 2 were", 2},
        {"middle.jsonl", "", "middle.jsonl:1: the journal begins in the middle of a run, at step 2", 1},
        {"lost.jsonl", " run=NEW", "its ranks computed on \"\", these do on ", 2},
        {"two.jsonl", "", "two.jsonl:2: of stage sft, the lines before are of base", 1},
    };
    char *recipe = recipe_of("own", STEPS, shards), *own = journal_of("own");
    struct launch l = START("own", "-n 2 run %s", recipe);
    expect_end(&l, 0, "base: done");
    put_journal("empty.jsonl", "own", 0, "");
    put_journal("cut.jsonl", "own", 1, "{\"step\":");
    put_journal("torn.jsonl", "own", 1, "{\"step\":\n");
    put_journal("other.jsonl", "own", 0, "{\"step\":1,\"loss\":3}\n");
    put_journal("deal.jsonl", "own", 0, "{\"step\":0,\"ranks\":2,\"layout\":\"\",\"deal\":\"odd\"}\n");
    static const struct {
        const char *name, *deals;
    } deals[] = {{"no-deals.jsonl", "\"deal\":\"speed\""},
                 {"even-deals.jsonl", "\"deal\":\"even\",\"deals\":[{\"step\":1,\"parts\":[1000,2]}]"},
                 {"late-deals.jsonl", "\"deal\":\"speed\",\"deals\":[{\"step\":2,\"parts\":[1000,2]},"
                                      "{\"step\":2,\"parts\":[1000,3]}]"},
                 {"groups.jsonl", "\"deal\":\"speed\",\"deals\":[{\"step\":1,\"parts\":[1000]}]"},
                 {"parts.jsonl", "\"deal\":\"speed\",\"deals\":[{\"step\":1,\"parts\":[0,1000]}]"},
                 {"missing-machines.jsonl", "\"deal\":\"even\",\"machines\":[0]"},
                 {"skipped-machines.jsonl", "\"deal\":\"even\",\"machines\":[0,2]"},
                 {"turned-machines.jsonl", "\"deal\":\"even\",\"machines\":[1,0]"},
                 {"twice.jsonl", "\"deal\":\"even\",\"experts\":[[0,1,2,3],[0,3,1,1]]"},
                 {"falling.jsonl", "\"deal\":\"even\",\"experts\":[[3,0,1,2]]"},
                 {"ragged.jsonl", "\"deal\":\"even\",\"experts\":[[0,1,2,3],[0,1]]"},
                 {"odd.jsonl", "\"deal\":\"even\",\"experts\":[[0,1,2]]"},
                 {"no-list.jsonl", "\"deal\":\"even\",\"experts\":7"}};
    for (i64 i = 0; i < COUNT_OF(deals); i++) {
        char *line = string_format("{\"step\":0,\"ranks\":2,\"layout\":\"%s\",%s}\n",
                                   strstr(deals[i].deals, "experts") ? "expert=2" : "", deals[i].deals);
        put_journal(deals[i].name, "own", 0, line);
        memory_free(line);
    }
    put_journal("layout.jsonl", "own", 0, "{\"step\":0,\"ranks\":2,\"layout\":\"data=3\",\"deal\":\"even\"}\n");
    put_journal("middle.jsonl", "own", 0, "{\"step\":2,\"ranks\":2,\"layout\":\"\",\"deal\":\"even\"}\n");
    put_journal("two.jsonl", "own", 1,
                "{\"step\":2,\"ranks\":2,\"layout\":\"\",\"deal\":\"even\",\"stage\":\"sft\"}\n");
    put_journal("lost.jsonl", "own", 1,
                "{\"step\":1,\"ranks\":3,\"layout\":\"\",\"deal\":\"even\",\"stage\":\"base\"}\n"
                "{\"step\":1,\"ranks\":1,\"layout\":\"\",\"deal\":\"even\",\"stage\":\"base\"}\n");
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *journal =
            strcmp(cases[i].journal, "own") == 0 ? string_copy(own) : path_join(directory, cases[i].journal);
        const char *more = cases[i].more;
        char *where =
            strstr(more, "run=NEW") ? string_format("run=%s/new-%lld", directory, (long long)i) : string_copy("");
        char *words = strstr(more, "OTHERS") ? string_format("base.data=%s", others)
                                             : string_format("%.*s", (int)strcspn(more, " "), more);
        l = START("refused-journal", "--replay %s run %s %s %s", journal, recipe, words, where);
        expect_end(&l, cases[i].status, cases[i].why);
        bool lost = strstr(journal, "lost.jsonl"); /* its second world made no step that was kept */
        assert_int_equal(times_said(&l, "replay of stage base: 1 rank from step 1 to the end"), lost);
        assert_int_equal(times_said(&l, ": 3 ranks from"), 0);
        buffer_release(&l.said);
        memory_free(journal);
        memory_free(where);
        memory_free(words);
    }
    memory_free(recipe);
    memory_free(own);
}

/* Rank 0 runs a command that kills it: the topmost process of that name above the command. */
TEST(ranks_that_die_at_once_each_time_are_given_up)
{
    static const char climb[] = "p=$$\nwhile [ $p -gt 1 ]; do\n    read -r name </proc/$p/comm\n"
                                "    [ \"$name\" != weft-rank-0 ] || rank=$p\n"
                                "    p=$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$p/stat)\ndone\nkill -9 $rank\n";
    char *script = put_text("die.sh", climb);
    char *recipe = string_format("run: %s/once\nstages:\n  one: {kind: command, argv: [sh, %s]}\n", directory, script);
    char *path = put_text("once.yaml", recipe);
    struct launch l = START("once", "-n 2 run %s", path);
    expect_end(&l, 1, "ended at once 5 times in a row, the last time for this: rank 0: killed, signal 9");
    memory_free(script);
    memory_free(recipe);
    memory_free(path);
}

/* A launcher that dies takes its ranks along; Ctrl-C saves once; the same call resumes. */
TEST(launchers_end_with_their_ranks_and_resume)
{
    char *recipe = recipe_of("ends", STEPS_MOST, shards);
    struct launch l = START("ends", "-n 2 run %s", recipe);
    await_steps(&l, "ends", 5);
    pid_t ranks[] = {rank_of(&l, 0), rank_of(&l, 1)};
    kill(l.id, SIGKILL);
    expect_end(&l, 128 + SIGKILL, NULL);
    for (int i = 0; i < 2; i++)
        for (double begin_s = clock_s(); kill(ranks[i], 0) == 0; usleep(1000))
            assert_true(clock_s() - begin_s < TEST_SECONDS_MOST);
    l = START("ends-again", "-n 2 run %s", recipe);
    await(&l, "base: resuming from step ", 1);
    await_steps(&l, "ends", 9);
    interrupt(&l);
    expect_end(&l, 130, "interrupted and saved");
    assert_int_equal(times_said(&l, "interrupted and saved"), 1);
    assert_int_equal(times_said(&l, "left at step"), 0);
    assert_int_equal(rank_of(&l, 0) + rank_of(&l, 1), 0);
    memory_free(recipe);
}

/* ---- Layouts ---- */

TEST(a_layout_has_the_most_ranks_that_fit)
{
    static const struct {
        const char *text;
        i64 least, most, ranks;
    } cases[] = {{NULL, 1, 5, 5},       {"tensor=2", 1, 5, 4},  {"expert=2", 1, 5, 4}, {"tensor=2,expert=2", 1, 7, 4},
                 {"data=3", 1, 5, 3},   {"data=3", 4, 5, 0},    {"tensor=2", 5, 5, 0}, {"pipeline=3", 1, 2, 0},
                 {"expert=1", 2, 2, 2}, {"tensor=two", 1, 4, 0}};
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(layout_fit(cases[i].text, cases[i].least, cases[i].most), cases[i].ranks);
}

TEST(fixed_axes_stay_when_ranks_die)
{
    char *recipe = recipe_of("axes", STEPS_MOST, shards);
    struct launch l = START("axes", "-n 4 --layout expert=2 run %s", recipe);
    await_steps(&l, "axes", 3);
    send_to_rank(&l, 3, SIGKILL);
    await(&l, "; 2 go on from step ", 1); /* three are left, of which two fit */
    interrupt(&l);
    expect_end(&l, 130, "interrupted and saved");
    memory_free(recipe);
}

/* ---- Several launchers ---- */

static struct launch start_first(const char *name, const char *recipe)
{
    port = ranks_free_port();
    return START(name, "-n 1 --meet 127.0.0.1:%d run %s", port, recipe);
}

TEST(machines_join_and_leave)
{
    char *recipe = recipe_of("joins", STEPS_MOST, shards);
    struct launch first = start_first("joins", recipe);
    await_steps(&first, "joins", 3);
    struct launch second = START("second", "-n 2 --meet 127.0.0.1:%d run %s", port, recipe);
    await(&first, " joins with 2 ranks; 3 go on from step ", 1);
    await(&second, " joins with 2 ranks; 3 go on from step ", 1);
    assert_int_equal(times_said(&first, "saved, so that other ranks go on"), 1);
    send_to_rank(&second, 2, SIGKILL);
    await(&first, "launch: 1 of 3 ranks left at step ", 1);
    await(&first, "(rank 2: killed, signal 9, ", 1);
    await(&first, "; 2 go on from step ", 1);
    kill(second.id, SIGSTOP); /* as if the machine were gone */
    await(&first, ": silent for ", 1);
    await(&first, "; 1 goes on from step ", 1);
    kill(second.id, SIGCONT);
    expect_end(&second, 1, "is gone (its launcher has ended)");
    second = START("third", "-n 1 --meet 127.0.0.1:%d run %s", port, recipe);
    await(&first, " joins with 1 rank; 2 go on from step ", 1);
    interrupt(&second);
    expect_end(&second, 130, NULL);
    expect_end(&first, 130, "interrupted and saved");
    memory_free(recipe);
}

/* The others end with the first launcher. The same calls resume. */
TEST(a_run_ends_with_its_first_machine)
{
    char *recipe = recipe_of("lost", STEPS_MOST, shards);
    struct launch first = start_first("lost", recipe);
    await_steps(&first, "lost", 1); /* before that the second could be first */
    struct launch second = START("lost-second", "-n 1 --meet 127.0.0.1:%d run %s", port, recipe);
    await(&first, "; 2 go on from step ", 1);
    kill(first.id, SIGKILL);
    expect_end(&first, 128 + SIGKILL, NULL);
    expect_end(&second, 1, "is gone (its launcher has ended)");
    first = START("lost-first", "-n 1 --meet 127.0.0.1:%d run %s", port, recipe);
    await(&first, "resuming from step ", 1);
    interrupt(&first);
    expect_end(&first, 130, "interrupted and saved");
    memory_free(recipe);
}

static void expect_refused(struct launch *first, const char *folder, const char *words, const char *why)
{
    struct launch l = start_in(folder, "refused", "-n 1 --meet 127.0.0.1:%d run %s", port, words);
    expect_end(&l, 1, why);
    await(first, why, 1);
}

TEST(machines_that_differ_are_refused)
{
    char *here = path_join(directory, "here"), *there = path_join(directory, "there");
    const char *const targets[] = {shards, others};
    char *const folders[] = {here, there};
    for (int i = 0; i < 2; i++) {
        char *link = path_join(folders[i], "shards");
        succeed(directory_make(folders[i]));
        require(symlink(targets[i], link) == 0, "cannot link %s", link);
        memory_free(link);
    }
    char *recipe = recipe_of("differ", STEPS_MOST, "./shards"), *words = string_format("%s base.steps=9", recipe);
    port = ranks_free_port();
    struct launch first = start_in(here, "differ", "-n 1 --meet 127.0.0.1:%d run %s", port, recipe);
    await_steps(&first, "differ", 2);
    expect_refused(&first, here, words, "it differs from the first machine in the arguments (\"base.steps=9\", on ");
    char *other = recipe_of("differ-other", STEPS_MOST, "./shards");
    expect_refused(&first, here, other, "it differs from the first machine in the recipe's content");
    setenv("WEFT_SECRET", "another", 1);
    expect_refused(&first, here, recipe, "its WEFT_SECRET is not that of the first machine");
    unsetenv("WEFT_SECRET");
    assert_int_equal(times_said(&first, "go on"), 0); /* nobody disturbed it */
    expect_refused(&first, there, recipe, "this rank and the first differ in inputs");
    await(&first, "1 goes on from step ", 1);
    interrupt(&first);
    expect_end(&first, 130, "interrupted and saved");
    memory_free(here);
    memory_free(there);
    memory_free(recipe);
    memory_free(words);
    memory_free(other);
}

/* ---- A doctor ---- */

TEST(a_doctor_measures_the_ranks)
{
    char *recipe = recipe_of("doctor", 10, shards);
    struct launch l = START("doctor", "-n 2 doctor --ranks %s base -o %s", recipe, path_of("cluster.yaml"));
    expect_end(&l, 0, "cluster.yaml: written");
    struct buffer text = {0};
    succeed(file_read(&text, path_of("cluster.yaml")));
    buffer_append(&text, "", 1);
    const char *rank = strstr(text.data, "- {host: ");
    assert_true(rank && strstr(rank + 1, "- {host: "));
    buffer_release(&text);
    memory_free(recipe);
}

TEST(a_doctor_ends_with_the_first_rank_that_dies)
{
    char *recipe = recipe_of("death", 10, shards);
    struct launch l = START("death", "-n 2 doctor --ranks %s base -o %s", recipe, path_of("none.yaml"));
    send_to_rank(&l, 1, SIGKILL);
    expect_end(&l, 1, "rank 1: killed, signal 9");
    assert_int_equal(times_said(&l, "a command that needs all ranks ends with it"), 1);
    assert_false(file_exists(path_of("none.yaml")));
    memory_free(recipe);
}

/* ---- Bad calls ---- */

TEST(bad_calls_end_at_once)
{
    char *recipe = recipe_of("bad", 10, shards);
    static const struct {
        const char *words, *why;
        int status;
    } cases[] = {
        {"-n 2 --least 3 run RECIPE", "--least 3 is above -n 2: expected at most", 2},
        {"-n 2 --layout tensor=3 run RECIPE", "--layout tensor=3 fits no number of ranks from 1 to 2: ", 2},
        {"-n 4 --least 3 --layout data=2 run RECIPE", "fits no number of ranks from 3 to 4: ", 2},
        {"-n 2 --layout tensr=2 run RECIPE", "did you mean tensor", 2},
        {"-n 2 run RECIPE --layout expert=2", "--layout stands behind `run`", 2},
        {"-n 2 --replay members.jsonl run RECIPE", "--replay takes the ranks and their layouts from the file", 2},
        {"-n 2", "expected `run` and what follows it", 2},
        {"-n 2 run", "expected `run` and what follows it", 2},
        {"-n 2 doctor", "it starts doctor --ranks RECIPE alone", 2},
        {"-n 2 --least 2 doctor --ranks RECIPE", "-n ranks of this machine, all or none", 2},
        {"-n 2 --meet localhost:1 doctor --ranks RECIPE", "-n ranks of this machine, all or none", 2},
        {"-n 2 doctor --ranks", "expected a recipe whose step is measured", 2},
        {"-n 2 grid MODEL", "unexpected argument \"grid\"", 2},
        {"-n 0 run RECIPE", "-n 0: expected a whole number from 1 ", 2},
        {"-n 1 --meet host:port run RECIPE", "expected HOST:PORT", 2},
        {"-n 2 run missing.yaml", "nothing is started again before a first step", 1},
        {"-n 2 run RECIPE nostage", "nostage", 2},
        {"-n 2 --layout tensor=2 run RECIPE base.model.kv_heads=1", "key-value heads on tensor ranks", 2},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char words[512];
        const char *at = strstr(cases[i].words, "RECIPE");
        snprintf(words, sizeof words, "%.*s%s%s", at ? (int)(at - cases[i].words) : 500, cases[i].words,
                 at ? recipe : "", at ? at + 6 : "");
        struct launch l = START("bad", "%s", words);
        expect_end(&l, cases[i].status, cases[i].why);
        assert_int_equal(times_said(&l, "nothing is started again") > 1, false);
    }
    memory_free(recipe);
}

int main(void)
{
    return tests_run(setup, teardown);
}
