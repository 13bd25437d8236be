/* Snapshots in memory: how often they are taken. That runs go on from them is in test_launch. */
#define _GNU_SOURCE /* memfd_create */
#include "dist/snapshot.h"
#include "tests/test.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct snapshots *open_one(int descriptor)
{
    struct snapshots *s = snapshots_open(&(struct snapshot_file){
        .descriptor = descriptor, .ranks = parallel_alone(), .tables = NULL, .count = 0, .run = 7});
    require(s != NULL, "no snapshots");
    return s;
}

TEST(copies_take_a_hundredth_of_the_time_without_deaths)
{
    assert_float_equal(snapshots_pause_s(0.02, 0, 500), 2, 1e-12);
}

TEST(deaths_shorten_the_pause)
{
    assert_float_equal(snapshots_pause_s(0.02, 10, 250), 1, 1e-12); /* sqrt(2 * 0.02 * 25) */
    assert_float_equal(snapshots_pause_s(0.02, 1, 1e6), 2, 1e-12);  /* a rare one does not lengthen it */
}

TEST(worlds_that_end_without_a_close_are_deaths)
{
    int descriptor = memfd_create("snapshots", MFD_CLOEXEC), status;
    struct snapshots *s = open_one(descriptor);
    assert_int_equal(snapshots_deaths(s), 0);
    snapshots_close(s, true);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            open_one(descriptor);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    s = open_one(descriptor);
    assert_int_equal(snapshots_deaths(s), 2);
    snapshots_close(s, false);
    close(descriptor);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
