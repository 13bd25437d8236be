/* Scratch: an op takes at most the CPU scratch that the meta backend estimates, each op in a fresh
 * process. For ops without products, the estimate covers what grows beyond one row or one
 * column. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "op_cases/op_cases.h"
#include "tests/test.h"

enum { WORKERS = 2, SMALL = 4 << 10 /* lists of groups, of tiles */, LINES = 8 /* per worker */ };

static const char *wanted; /* name of an op; NULL: all */

static i64 held_after(const struct op_case *c, struct op_run *run, struct device *device)
{
    i64 before = device_held_bytes(device);
    op_put(run, device);
    c->call(device, run);
    return device_held_bytes(device) - before;
}

static int compare(const struct op_case *c, struct op_run *run, void *context)
{
    struct device meta, cpu;
    i64 estimated = 0, taken = 0;
    int ends[2], status = 0;
    struct device *none = context;
    if (run->gap > 0) /* part of a matrix needs the same as a whole one */
        return 0;
    op_open(run, c);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        workers_start(WORKERS);
        device_open_meta(&meta);
        estimated = held_after(c, run, &meta);
        device_open_cpu(&cpu);
        taken = held_after(c, run, &cpu);
        _exit(write(ends[1], (i64[]){estimated, taken}, 16) == 16 ? 0 : 1);
    }
    close(ends[1]); /* the read ends if a child dies */
    i64 both[2] = {0, 1};
    i64 count = read(ends[0], both, sizeof both);
    waitpid(child, &status, 0);
    close(ends[0]);
    op_release(run, none);
    assert_int_equal(status, 0);
    assert_int_equal(count, sizeof both);
    i64 lines = c->multiplies ? 0 : SMALL + LINES * WORKERS * max_i64(run->rows, run->columns) * 4;
    if (both[1] > both[0] + SMALL + lines)
        return error_set(
            "%s variant %d, %s, rows %lld, columns %lld, depth %lld, gap %lld: takes %lld bytes, estimated are "
            "%lld",
            c->name, run->variant, dtype_name(run->dtype), (long long)run->rows, (long long)run->columns,
            (long long)run->depth, (long long)run->gap, (long long)both[1], (long long)both[0]);
    return 0;
}

TEST(ops_take_what_is_estimated)
{
    struct device none;
    device_open_cpu(&none);
    workers_stop();
    const struct check_scope scope = {.small_shapes = !is_nightly()};
    const struct op_case *c;
    for (i64 i = 0; (c = case_at(i)); i++)
        if ((!wanted || strcmp(wanted, c->name) == 0) && case_each(c, &scope, compare, &none) != 0)
            fail_msg("%s", error_text());
}

void *cpu_v3_scratch(int worker, int slot, i64 bytes);

TEST(as_many_workers_as_there_can_be_have_scratch)
{
    char *last = cpu_v3_scratch(WORKERS_MOST - 1, 0, 64), *other = cpu_v3_scratch(WORKERS_MOST - 2, 0, 64);
    memset(last, 1, 64);
    memset(other, 2, 64);
    assert_true(last[0] == 1 && last[63] == 1);
    assert_ptr_equal(cpu_v3_scratch(WORKERS_MOST - 1, 0, 64), last);
}

int main(int argc, char **argv)
{
    wanted = argc > 1 ? argv[1] : NULL;
    return tests_run(NULL, NULL);
}
