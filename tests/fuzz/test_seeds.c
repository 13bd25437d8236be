/* Stored inputs of the fuzz targets: tests/fuzz/NAME holds those of fuzz_NAME.c. Each is tried once
 * here; scripts/fuzz begins with them. Every target has some, and every folder has its target. */
#include "core/core.h"
#include "tests/test.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TARGET(name) int name(const uint8_t *data, size_t size);
#include "fuzz_targets.h"
#undef TARGET

static const struct seeds_target {
    const char *name;
    int (*run)(const uint8_t *data, size_t size);
} targets[] = {
#define TARGET(name) {#name, name},
#include "fuzz_targets.h"
};
enum { PREFIX = 5 /* length of "fuzz_" */, SEEDS_MOST = 20, SEED_BYTES_MOST = 16 << 10 };

static char *trying; /* the input that a child tries; shared with it */

static void try_seeds(const struct seeds_target *target, const char *folder, char *const *names, i64 count)
{
    struct buffer seed = {0};
    log_set_level(LOG_SILENT);
    alarm(TEST_SECONDS_MOST);
    for (i64 i = 0; i < count; i++) {
        snprintf(trying, 256, "%s", names[i]);
        char *path = path_join(folder, names[i]);
        require(file_read(&seed, path) == 0, "%s", error_text());
        require(seed.length <= SEED_BYTES_MOST, "%s: %lld bytes, more than %d", path, (long long)seed.length,
                SEED_BYTES_MOST);
        u8 *exact = malloc((size_t)max_i64(seed.length, 1)); /* no byte more, so that sanitizers see reads beyond */
        require(exact, "no memory");
        memcpy(exact, seed.data, (size_t)seed.length);
        target->run(exact, (size_t)seed.length);
        free(exact);
        memory_free(path);
    }
    buffer_release(&seed);
    fflush(NULL);
    _exit(0);
}

TEST(the_seeds_of_all_targets_pass)
{
    trying = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(trying != MAP_FAILED);
    for (i64 i = 0; i < COUNT_OF(targets); i++) {
        char **names, *folder = path_join(SOURCE_TREE "/tests/fuzz", targets[i].name + PREFIX);
        i64 count = 0;
        int status;
        if (directory_list(&names, &count, folder) < 0 || count == 0)
            fail_msg("%s has no stored inputs: put some into tests/fuzz/%s", targets[i].name, targets[i].name + PREFIX);
        if (count > SEEDS_MOST)
            fail_msg("%s: %lld inputs, expected at most %d", folder, (long long)count, SEEDS_MOST);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            try_seeds(&targets[i], folder, names, count);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            fail_msg("%s fails on %s/%s (%s %d)", targets[i].name, folder, trying,
                     WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        string_list_free(names, count);
        memory_free(folder);
    }
}

static bool is_target(const char *folder)
{
    for (i64 i = 0; i < COUNT_OF(targets); i++)
        if (strcmp(targets[i].name + PREFIX, folder) == 0)
            return true;
    return false;
}

TEST(every_folder_of_seeds_has_its_target)
{
    char **names;
    i64 count;
    assert_int_equal(directory_list(&names, &count, SOURCE_TREE "/tests/fuzz"), 0);
    for (i64 i = 0; i < count; i++)
        if (!strchr(names[i], '.') && !is_target(names[i]))
            fail_msg("tests/fuzz/%s belongs to no target", names[i]);
    string_list_free(names, count);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
