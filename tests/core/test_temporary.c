/* Temporaries of processes that signals end, of killed ones and of live ones; outputs that two
 * processes make at once. */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "core/temporary.h"
#include "tests/scratch.h"

static void assert_lists(const char *folder, const char *expected)
{
    char **names;
    i64 count;
    struct buffer all = {0};
    succeed(directory_list(&names, &count, path_of(folder)));
    buffer_append(&all, "", 0);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&all, "%s%s", i ? " " : "", names[i]);
    assert_string_equal(all.data, expected);
    string_list_free(names, count);
    buffer_release(&all);
}

static i64 count_in(const char *folder)
{
    char **names;
    i64 count;
    succeed(directory_list(&names, &count, path_of(folder)));
    string_list_free(names, count);
    return count;
}

/* ---- A process in the middle of its outputs ---- */

struct half_made {
    struct file_writer file, below;
    char *folder;
};

/* PLACE/out and PLACE/folder, with a file in the latter. */
static void begin_outputs(struct half_made *h, const char *place)
{
    char *file = path_join(path_of(place), "out"), *folder = path_join(path_of(place), "folder");
    require(file_writer_open(&h->file, file) == 0, "%s", error_text());
    h->folder = directory_make_beside(folder);
    require(h->folder, "%s", error_text());
    char *deep = path_join(h->folder, "a/b"), *whole = path_join(deep, "whole"), *below = path_join(deep, "half");
    require(directory_make(deep) == 0 && file_replace(whole, "1", 1) == 0, "%s", error_text());
    require(file_writer_open(&h->below, below) == 0, "%s", error_text());
    char *all[] = {file, folder, deep, whole, below};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* Starts a process that has begun its outputs and waits for a signal. */
static pid_t start_writer(const char *place, void (*signals)(void))
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct half_made h;
        signal(SIGHUP, SIG_DFL); /* the tests may run below nohup */
        signals();
        begin_outputs(&h, place);
        if (write(ready[1], "r", 1) != 1)
            _exit(99);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static int end_by(pid_t child, int number)
{
    int status;
    assert_int_equal(kill(child, number), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void write_there(const char *place, const char *name)
{
    char *path = path_join(path_of(place), name);
    succeed(file_replace(path, "1", 1));
    memory_free(path);
}

TEST(signals_leave_nothing)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    succeed(directory_make(path_of("signals")));
    for (i64 i = 0; i < COUNT_OF(numbers); i++) {
        pid_t child = start_writer("signals", signals_end);
        assert_int_equal(count_in("signals"), 2);
        assert_int_equal(end_by(child, numbers[i]), 128 + numbers[i]);
        assert_lists("signals", "");
    }
    pid_t child = start_writer("signals", signals_catch); /* the first one is polled, the second ends it */
    assert_int_equal(kill(child, SIGTERM), 0);
    for (int status; waitpid(child, &status, WNOHANG) == 0;)
        kill(child, SIGINT);
    assert_lists("signals", "");
}

TEST(an_ignored_hangup_stays_ignored)
{
    struct sigaction now;
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGHUP, SIG_IGN);
        signals_end();
        _exit(sigaction(SIGHUP, NULL, &now) || now.sa_handler != SIG_IGN);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- Leftovers ---- */

TEST(what_a_killed_process_left_is_swept)
{
    succeed(directory_make(path_of("killed")));
    assert_int_equal(end_by(start_writer("killed", signals_end), SIGKILL), 128 + SIGKILL);
    assert_int_equal(count_in("killed"), 2);
    write_there("killed", "another"); /* any output in the same place */
    assert_lists("killed", "another");
}

TEST(what_a_live_process_makes_stays)
{
    succeed(directory_make(path_of("live")));
    pid_t child = start_writer("live", signals_end);
    write_there("live", "out");
    temporaries_sweep(path_of("live"), "out");
    assert_int_equal(count_in("live"), 3);
    assert_int_equal(end_by(child, SIGTERM), 128 + SIGTERM);
    assert_lists("live", "out");
}

/* In a container, the number of a live process means nothing here; its lock does. */
TEST(a_lock_protects_whatever_the_number_says)
{
    struct half_made h;
    succeed(directory_make(path_of("locked")));
    begin_outputs(&h, "locked");
    char *file = path_join(path_of("locked"), "out.tmp-999999999-weft0"),
         *folder = path_join(path_of("locked"), "folder.tmp-999999999-weft1");
    assert_int_equal(rename(h.file.temporary, file), 0);
    assert_int_equal(rename(h.folder, folder), 0);
    temporaries_sweep(path_of("locked"), "out");
    assert_int_equal(count_in("locked"), 2);
    temporary_forget(h.file.temporary);
    close(h.file.descriptor);
    temporary_forget(h.folder);
    temporaries_sweep(path_of("locked"), "out");
    assert_lists("locked", "");
    memory_free(file);
    memory_free(folder);
}

/* Names that others may have given stay. Older programs' are known beside their target only. */
TEST(the_sweep_knows_its_own)
{
    static const char *const kept = "a.tmp b.tmp-1-weft0 c.tmp-999999999-0 d.tmp-999999999-weft e.tmp-999999999-weft01 "
                                    "f.tmp-0-weft0 g.tmp-2024-11 h-weft3 out out.tmp-999999999-00 out.tmp-999999999-x";
    char *names = string_copy(kept), *rest = names;
    succeed(directory_make(path_of("own")));
    for (char *name; (name = strsep(&rest, " "));) {
        char *path = path_join(path_of("own"), name);
        memory_free(put_text(path + strlen(directory) + 1, ""));
        memory_free(path);
    }
    char *old = path_join(path_of("own"), "out.tmp-999999999-3"), *today = path_join(old, "x.tmp-999999999-weft0");
    succeed(directory_make(today));
    assert_int_equal(symlink("/tmp", path_of("own/link.tmp-999999999-weft0")), 0);
    temporaries_sweep(path_of("own"), "out");
    assert_int_equal(unlink(path_of("own/link.tmp-999999999-weft0")), 0);
    assert_lists("own", kept);
    memory_free(names);
    memory_free(old);
    memory_free(today);
}

TEST(more_temporaries_than_the_table_holds)
{
    enum { MANY = 200 };
    static struct file_writer writers[MANY];
    succeed(directory_make(path_of("many")));
    for (i64 i = 0; i < MANY; i++) {
        char *path = string_format("%s/%03lld", path_of("many"), (long long)i);
        succeed(file_writer_open(&writers[i], path));
        memory_free(path);
    }
    temporaries_sweep(path_of("many"), NULL);
    assert_int_equal(count_in("many"), MANY);
    for (i64 i = 0; i < MANY; i++)
        succeed(file_writer_commit(&writers[i]));
    assert_int_equal(count_in("many"), MANY);
    succeed(file_writer_open(&writers[0], path_of("many/last")));
    assert_int_equal(count_in("many"), MANY + 1);
    temporaries_remove();
    assert_int_equal(count_in("many"), MANY);
    file_writer_abandon(&writers[0]);
}

/* ---- Two processes with one output ---- */

/* Makes renameat2 fail as on a file system without its flags. */
static void refuse_renameat2(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = COUNT_OF(code), .filter = code};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
            "no filter of system calls: %s", strerror(errno));
}

static void expect_taken(int status)
{
    assert_int_equal(status, -1);
    assert_says("exists: another process made it in the meantime");
}

static void make_outputs_twice(const char *place)
{
    struct file_writer first, second;
    struct buffer content = {0};
    char *file = path_join(path_of(place), "file"), *folder = path_join(path_of(place), "folder");
    char *one = directory_make_beside(folder), *two = directory_make_beside(folder);
    succeed(file_writer_open_new(&first, file));
    succeed(file_writer_open_new(&second, file));
    file_write(&first, "first", 5);
    file_write(&second, "second", 6);
    succeed(file_writer_commit(&first));
    expect_taken(file_writer_commit(&second));
    assert_int_equal(file_writer_open_new(&second, file), -1);
    assert_says("exists: choose another name");
    succeed(file_read(&content, file));
    assert_int_equal(content.length, 5);
    succeed(directory_rename_new(one, folder)); /* also when it is empty, it is not replaced */
    expect_taken(directory_rename_new(two, folder));
    succeed(directory_remove(two));
    assert_lists(place, "file folder");
    buffer_release(&content);
    char *all[] = {file, folder, one, two};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

TEST(the_second_output_is_refused)
{
    int status;
    succeed(directory_make(path_of("twice")));
    make_outputs_twice("twice");
    succeed(directory_make(path_of("in-steps")));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        refuse_renameat2();
        make_outputs_twice("in-steps");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_lists("in-steps", "file folder");
}

TEST(a_removed_file_is_noticed)
{
    succeed(directory_make(path_of("gone")));
    memory_free(put_text("gone/file", "1"));
    int file = open(path_of("gone/file"), O_RDONLY), folder = open(path_of("gone"), O_RDONLY);
    succeed(file_check_there(file, path_of("gone/file")));
    succeed(file_check_there(folder, path_of("gone")));
    memory_free(put_text("gone/file", "2")); /* another file of this name */
    assert_int_equal(file_check_there(file, path_of("gone/file")), -1);
    assert_says("gone/file: it was removed, moved or replaced");
    succeed(directory_remove(path_of("gone")));
    assert_int_equal(file_check_there(folder, path_of("gone")), -1);
    assert_int_equal(directory_make_one(path_of("gone/deep")), -1);
    assert_null(directory_make_temporary(path_of("gone/deep")));
    assert_false(file_exists(path_of("gone")));
    close(file);
    close(folder);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
