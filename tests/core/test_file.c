/* files: replacement is atomic; full disks and wrong paths are reported. */
#include "tests/scratch.h"

#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static void put(const char *path, const char *text)
{
    succeed(file_replace(path, text, (i64)strlen(text)));
}

static void assert_holds(const char *path, const char *expected)
{
    struct buffer text = {0};
    succeed(file_read(&text, path));
    assert_string_equal(text.data, expected);
    buffer_release(&text);
}

static void read_byte(void *context, i64 tile, int worker)
{
    volatile const u8 *byte = context;
    (void)tile;
    if (worker == 0 && workers_count() > 1)
        usleep(1000); /* leaves it to another thread */
    else
        (void)*byte;
}

/* Returns the status of a process that shortens a mapped file to a page and reads byte `at` in a
 * thread of its workers. What it says is in the file "said". */
static int read_of_shortened(i64 bytes, i64 at)
{
    char *content = memory_alloc(bytes);
    memset(content, 'x', (size_t)bytes);
    succeed(file_replace(path_of("shrinks"), content, bytes));
    memory_free(content);
    pid_t child = fork();
    if (child == 0) {
        struct file_view other, view;
        workers_start(2);
        bool ready = freopen(path_of("said"), "w", stderr) && file_map(&view, path_of("shrinks")) == 0 &&
                     file_map(&other, path_of("target")) == 0 &&
                     truncate(path_of("shrinks"), sysconf(_SC_PAGESIZE)) == 0;
        if (ready)
            workers_run(100, read_byte, (void *)(view.data + at));
        _exit(ready ? 0 : 99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* First: file_map sets its handler once, and cmocka sets its own in front of each test. */
TEST(a_mapped_file_that_shrinks_is_reported)
{
    const i64 page_bytes = sysconf(_SC_PAGESIZE);
    struct buffer said = {0};
    char *byte = string_format("byte %lld cannot be read", (long long)(2 * page_bytes + 5));
    put(path_of("target"), "stays");
    assert_int_equal(read_of_shortened(3 * page_bytes - 7, page_bytes - 1), 0);
    assert_int_equal(read_of_shortened(3 * page_bytes - 7, 2 * page_bytes + 5), STATUS_FAILED);
    succeed(file_read(&said, path_of("said")));
    assert_non_null(strstr(said.data, path_of("shrinks")));
    assert_non_null(strstr(said.data, byte));
    assert_non_null(strstr(said.data, "made shorter"));
    buffer_release(&said);
    memory_free(byte);
}

/* Checks the names in a directory, joined by spaces. */
static void assert_lists(const char *path, const char *expected)
{
    char **names;
    i64 count;
    struct buffer text = {0};
    succeed(directory_list(&names, &count, path));
    buffer_append(&text, "", 0);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&text, "%s%s", i ? " " : "", names[i]);
    assert_string_equal(text.data, expected);
    buffer_release(&text);
    string_list_free(names, count);
}

TEST(a_file_is_replaced_and_leaves_nothing_beside)
{
    succeed(directory_make(path_of("replace")));
    put(path_of("replace/x"), "one");
    put(path_of("replace/x"), "two");
    assert_holds(path_of("replace/x"), "two");
    assert_int_equal(file_bytes(path_of("replace/x")), 3);
    assert_lists(path_of("replace"), "x");
    put(path_of("replace/x"), "");
    assert_holds(path_of("replace/x"), "");
}

/* Bytes of the mapping at `data` that this process has in memory. */
static i64 mapped_bytes(const void *data)
{
    struct buffer text = {0};
    char *name = string_format("%llx-", (unsigned long long)(uintptr_t)data);
    succeed(file_read(&text, "/proc/self/smaps"));
    const char *at = strstr(text.data, name), *rss = at ? strstr(at, "Rss:") : NULL;
    assert_non_null(rss);
    i64 bytes = strtoll(rss + 4, NULL, 10) * 1024;
    buffer_release(&text);
    memory_free(name);
    return bytes;
}

TEST(what_was_read_of_a_mapping_leaves_memory)
{
    enum { BYTES = 16 << 20, PIECE = 3 << 18 }; /* a piece: no whole number of windows */
    struct file_view view;
    u8 *content = memory_alloc(BYTES);
    i64 sum = 0, again = 0;
    for (i64 i = 0; i < BYTES; i++)
        content[i] = (u8)(i * 7 + i / 4096);
    char *path = put_file("mapped", content, BYTES);
    succeed(file_map(&view, path));
    for (i64 i = 0; i < BYTES; i++)
        sum += view.data[i];
    assert_in_range(mapped_bytes(view.data), BYTES / 2, BYTES);
    for (i64 at = 0; at < BYTES; at += PIECE) {
        i64 n = min_i64(PIECE, BYTES - at);
        for (i64 i = 0; i < n; i++)
            again += view.data[at + i];
        file_pass(view.data + at, n);
    }
    assert_in_range(mapped_bytes(view.data), 0, 3 << 20);
    assert_int_equal(sum, again);
    assert_memory_equal(view.data, content, BYTES);
    file_pass(content, BYTES); /* no mapping */
    assert_memory_equal(view.data, content, BYTES);
    file_unmap(&view);
    memory_free(content);
    memory_free(path);
}

TEST(readers_see_the_old_file_until_commit)
{
    struct file_writer writer;
    put(path_of("old"), "old");
    succeed(file_writer_open(&writer, path_of("old")));
    file_write(&writer, "new", 3);
    assert_holds(path_of("old"), "old");
    assert_int_equal(writer.written_bytes, 3);
    succeed(file_writer_commit(&writer));
    assert_holds(path_of("old"), "new");
}

TEST(an_abandoned_file_leaves_the_old_one)
{
    struct file_writer writer;
    succeed(directory_make(path_of("abandon")));
    put(path_of("abandon/x"), "old");
    succeed(file_writer_open(&writer, path_of("abandon/x")));
    file_write(&writer, "new", 3);
    file_writer_abandon(&writer);
    assert_holds(path_of("abandon/x"), "old");
    assert_lists(path_of("abandon"), "x");
    file_writer_abandon(&writer);
}

TEST(long_streams_arrive_whole)
{
    const i64 count = 3000000;
    char *bytes = memory_alloc(count);
    struct file_writer writer;
    struct file_view view;
    for (i64 i = 0; i < count; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    succeed(file_writer_open(&writer, path_of("long")));
    for (i64 begin = 0, piece = 1; begin < count; begin += piece, piece = min_i64(3 * piece, count - begin))
        file_write(&writer, bytes + begin, min_i64(piece, count - begin));
    assert_int_equal(writer.written_bytes, count);
    succeed(file_writer_commit(&writer));
    succeed(file_map(&view, path_of("long")));
    assert_int_equal(view.bytes, count);
    assert_memory_equal(view.data, bytes, (size_t)count);
    file_unmap(&view);
    file_unmap(&view);
    memory_free(bytes);
}

TEST(a_link_stays_a_link)
{
    put(path_of("target"), "old");
    assert_int_equal(symlink("target", path_of("link")), 0);
    put(path_of("link"), "new");
    assert_holds(path_of("target"), "new");
    struct stat status;
    assert_int_equal(lstat(path_of("link"), &status), 0);
    assert_true(S_ISLNK(status.st_mode));
}

TEST(devices_are_written_as_they_are)
{
    struct stat status;
    put("/dev/null", "x");
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    assert_int_equal(file_replace("/dev/full", "x", 1), -1);
    assert_says("/dev/full: cannot be written (1 byte); free disk space and run again: No space left");
}

TEST(a_full_disk_keeps_the_old_file)
{
    const char *disk = path_of("disk");
    succeed(directory_make(disk));
    if (mount("tmpfs", disk, "tmpfs", 0, "size=256k") != 0) {
        print_message("skipped: a small tmpfs cannot be mounted here\n");
        skip();
    }
    char *bytes = memory_alloc(1 << 20);
    char *path = path_join(disk, "x");
    put(path, "old");
    int status = file_replace(path, bytes, 1 << 20);
    char *message = string_copy(error_text());
    assert_holds(path, "old");
    assert_lists(disk, "x");
    memory_free(bytes);
    memory_free(path);
    assert_int_equal(umount(disk), 0);
    assert_int_equal(status, -1);
    assert_non_null(strstr(message, "No space left"));
    memory_free(message);
}

TEST(wrong_paths_are_reported)
{
    struct file_view view;
    struct buffer text = {0};
    char **names;
    i64 count;
    put(path_of("plain"), "x");
    assert_int_equal(file_map(&view, path_of("absent")), -1);
    assert_says("absent: cannot be opened: No such file");
    assert_int_equal(file_map(&view, directory), -1);
    assert_says("expected a file, found a directory");
    assert_int_equal(file_read(&text, directory), -1);
    assert_null(text.data);
    assert_int_equal(file_bytes(path_of("absent")), -1);
    assert_int_equal(file_replace(path_of("absent/x"), "x", 1), -1);
    assert_int_equal(file_replace(directory, "x", 1), -1);
    assert_int_equal(directory_list(&names, &count, path_of("plain")), -1);
    assert_null(names);
    assert_int_equal(directory_make(path_of("plain/below")), -1);
    assert_says("plain");
    assert_int_equal(directory_make(path_of("plain")), -1);
    assert_int_equal(directory_make(""), -1);
    assert_int_equal(directory_sync(path_of("absent")), -1);
    assert_int_equal(directory_replace(path_of("absent"), path_of("other")), -1);
    assert_false(file_exists(path_of("absent")));
    assert_true(file_exists(path_of("plain")) && !file_is_directory(path_of("plain")));
    assert_true(file_is_directory(directory));
}

TEST(directories_are_made_listed_and_removed)
{
    succeed(directory_make(path_of("a//b/c/")));
    succeed(directory_make(path_of("a/b/c")));
    put(path_of("a/b/z"), "1");
    put(path_of("a/b/B"), "2");
    put(path_of("a/b/.hidden"), "3");
    assert_lists(path_of("a/b"), ".hidden B c z");
    assert_lists(path_of("a/b/c"), "");
    put(path_of("kept"), "4");
    assert_int_equal(symlink("../kept", path_of("a/link")), 0);
    succeed(directory_sync(path_of("a")));
    succeed(directory_remove(path_of("a")));
    assert_false(file_exists(path_of("a")));
    assert_holds(path_of("kept"), "4");
    succeed(directory_remove(path_of("a")));
}

TEST(a_directory_replaces_what_stood_there)
{
    succeed(directory_make(path_of("swap/new/below")));
    put(path_of("swap/new/below/x"), "1");
    succeed(directory_replace(path_of("swap/new"), path_of("swap/out")));
    assert_lists(path_of("swap"), "out");
    succeed(directory_make(path_of("swap/new")));
    put(path_of("swap/new/y"), "2");
    succeed(directory_replace(path_of("swap/new"), path_of("swap/out")));
    assert_lists(path_of("swap"), "out");
    assert_lists(path_of("swap/out"), "y");
    put(path_of("swap/file"), "3");
    succeed(directory_replace(path_of("swap/out"), path_of("swap/file")));
    assert_lists(path_of("swap"), "file");
    assert_holds(path_of("swap/file/y"), "2");
}

TEST(paths_join_with_one_slash)
{
    static const char *const cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *path = path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        memory_free(path);
    }
}

TEST(what_killed_writers_left_is_swept_away)
{
    static const char *const left[] = {"sweep/a.json.tmp-12-3", "sweep/deep/step-000004.tmp", "sweep/deep/x.tmp-1-0"};
    static const char *const kept[] = {"sweep/a.json", "sweep/deep/tmp", "sweep/deep/b.tmp.txt", "sweep/c.tmp-12-x"};
    succeed(directory_make(path_of("sweep/deep/step-000004.tmp")));
    put(path_of("sweep/deep/step-000004.tmp/half"), "");
    put(path_of(left[0]), "");
    put(path_of(left[2]), "");
    for (i64 i = 0; i < COUNT_OF(kept); i++)
        put(path_of(kept[i]), "");
    succeed(directory_sweep(path_of("sweep")));
    for (i64 i = 0; i < COUNT_OF(left); i++)
        assert_false(file_exists(path_of(left[i])));
    for (i64 i = 0; i < COUNT_OF(kept); i++)
        assert_true(file_exists(path_of(kept[i])));
}

TEST(sweeping_follows_no_link)
{
    succeed(directory_make(path_of("sweep-links")));
    succeed(directory_make(path_of("of-others")));
    put(path_of("of-others/mine.tmp"), "1");
    assert_int_equal(symlink("../of-others", path_of("sweep-links/there")), 0);
    assert_int_equal(symlink("../of-others", path_of("sweep-links/link.tmp")), 0);
    succeed(directory_sweep(path_of("sweep-links")));
    assert_lists(path_of("sweep-links"), "there");
    assert_holds(path_of("of-others/mine.tmp"), "1");
}

TEST(a_folder_beside_is_fresh)
{
    succeed(directory_make(path_of("beside/out.tmp")));
    char *first = directory_make_beside(path_of("beside/out")),
         *second = directory_make_beside(path_of("beside/out//"));
    assert_non_null(first);
    assert_non_null(second);
    assert_string_not_equal(first, second);
    assert_lists(first, "");
    succeed(directory_replace(first, path_of("beside/out")));
    succeed(directory_remove(second));
    assert_lists(path_of("beside"), "out out.tmp");
    put(path_of("beside/plain"), "");
    assert_null(directory_make_beside(path_of("beside/plain/out")));
    assert_says("plain");
    memory_free(first);
    memory_free(second);
}

static void put_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(descriptor, (const struct sockaddr *)&address, sizeof address), 0);
    close(descriptor);
}

/* No writer ever opens the pipe: an open that waits for one ends the test by SIGALRM. */
TEST(only_files_are_opened_by_name)
{
    static const char *const names[][2] = {{"pipe", "found a named pipe"}, {"to-pipe", "found a named pipe"},
                                           {"socket", "found a socket"},   {"to-socket", "found a socket"},
                                           {"to-zero", "found a device"},  {"to-folder", "found a directory"},
                                           {"loop", "symbolic links"},     {"to-stdin", "found a named pipe"}};
    static const char *const links[][2] = {{"pipe", "to-pipe"},      {"socket", "to-socket"},
                                           {"/dev/zero", "to-zero"}, {"/dev/shm", "to-folder"},
                                           {"loop", "loop"},         {"/dev/fd/0", "to-stdin"}};
    struct file_view view;
    struct buffer text = {0};
    int pipe_ends[2], stdin_before = dup(STDIN_FILENO);
    alarm(TEST_SECONDS_MOST);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(dup2(pipe_ends[0], STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    put_socket(path_of("socket"));
    for (i64 i = 0; i < COUNT_OF(links); i++)
        assert_int_equal(symlink(links[i][0], path_of(links[i][1])), 0);
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(file_map(&view, path_of(names[i][0])), -1);
        assert_says(names[i][1]);
        assert_int_equal(file_read(&text, path_of(names[i][0])), -1);
        assert_says(names[i][1]);
        assert_int_equal(file_copy(path_of("copied"), path_of(names[i][0])), -1);
        assert_says(names[i][1]);
    }
    assert_int_equal(file_read(&text, "/dev/zero"), -1);
    assert_says("/dev/zero: expected a file, found a device");
    assert_false(file_exists(path_of("copied")));
    assert_int_equal(dup2(stdin_before, STDIN_FILENO), STDIN_FILENO);
    close(stdin_before);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    alarm(0);
}

/* The child writes later than the parent opens, so that a read that does not wait finds nothing. */
TEST(a_pipe_is_read_by_its_number)
{
    struct buffer text = {0};
    struct file_view view;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(100000);
        _exit(write(ends[1], "piped", 5) == 5 ? 0 : 1);
    }
    close(ends[1]);
    char *path = string_format("/dev/fd/%d", ends[0]), *wrong = string_format("/dev/fd/%d/", ends[0]);
    assert_int_equal(file_map(&view, path), -1);
    assert_says("found a named pipe");
    succeed(file_read(&text, path));
    assert_string_equal(text.data, "piped");
    assert_int_equal(file_read(&text, wrong), -1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    memory_free(path);
    memory_free(wrong);
    buffer_release(&text);
}

TEST(whole_reads_are_bounded)
{
    struct buffer text = {0};
    int ends[2];
    put(path_of("ten"), "0123456789");
    succeed(file_read_most(&text, path_of("ten"), 10));
    assert_int_equal(text.length, 10);
    assert_int_equal(file_read_most(&text, path_of("ten"), 9), -1);
    assert_says("ten: more than 9 bytes");
    assert_null(text.data);
    put(path_of("huge"), "");
    assert_int_equal(truncate(path_of("huge"), (off_t)1 << 40), 0); /* takes no disk */
    assert_int_equal(file_read(&text, path_of("huge")), -1);
    assert_says("huge: more than 4294967296 bytes");
    assert_int_equal(pipe(ends), 0); /* a stream states no size */
    assert_int_equal(write(ends[1], "0123456789", 10), 10);
    close(ends[1]);
    char *path = string_format("/dev/fd/%d", ends[0]);
    assert_int_equal(file_read_most(&text, path, 9), -1);
    assert_says("more than 9 bytes");
    close(ends[0]);
    memory_free(path);
}

static int walk(struct folder_visits *visits, const char *path)
{
    char **names;
    i64 count;
    int seen = folder_visit(visits, path);
    if (!seen)
        return 0;
    if (strlen(path) > 100)
        fail_msg("%s: the walk does not end", path);
    succeed(directory_list(&names, &count, path));
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(path, names[i]);
        seen += file_is_directory(below) ? walk(visits, below) : 0;
        memory_free(below);
    }
    string_list_free(names, count);
    return seen;
}

/* a/b, a/.hidden and elsewhere/c, and links to all of them: what is hidden or elsewhere is entered by
 * the first of its links, what has a name of its own by that. */
TEST(links_lead_to_a_folder_once)
{
    static const char *const links[][2] = {
        {"../a", "a/b/back"},       {"b", "a/1-to-b"},        {".", "a/self"},
        {".hidden", "a/h1"},        {".hidden", "a/h2"},      {"../elsewhere", "a/e1"},
        {"../elsewhere/c", "a/e0"}, {"../elsewhere", "a/e2"}, {"../a", "elsewhere/up"}};
    struct folder_visits visits = {0};
    succeed(directory_make(path_of("visits/a/b")));
    succeed(directory_make(path_of("visits/a/.hidden")));
    succeed(directory_make(path_of("visits/elsewhere/c")));
    for (i64 i = 0; i < COUNT_OF(links); i++) {
        char *name = string_format("%s/visits/%s", directory, links[i][1]);
        assert_int_equal(symlink(links[i][0], name), 0);
        memory_free(name);
    }
    assert_int_equal(walk(&visits, path_of("visits/a")), 5);
    folder_visits_release(&visits);
    assert_true(folder_visit(&visits, path_of("visits/a")));
    assert_false(folder_visit(&visits, path_of("visits/a/1-to-b")));
    assert_true(folder_visit(&visits, path_of("visits/a/b")));
    assert_false(folder_visit(&visits, path_of("visits/a/b")));
    folder_visits_release(&visits);
    assert_true(folder_visit(&visits, path_of("visits/a/self"))); /* the root may be a link */
    assert_false(folder_visit(&visits, path_of("visits/a")));
    folder_visits_release(&visits);
    visits = (struct folder_visits){.depth_most = 1}; /* a walk that does not get to its own name */
    assert_true(folder_visit(&visits, path_of("visits")));
    assert_true(folder_visit(&visits, path_of("visits/a/1-to-b")));
    folder_visits_release(&visits);
}

TEST(many_folders_are_told_apart)
{
    struct folder_visits visits = {0};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 200; i++) {
            char *path = string_format("%s/many/%d", directory, i);
            succeed(directory_make(path));
            assert_int_equal(folder_visit(&visits, path), round == 0);
            memory_free(path);
        }
    folder_visits_release(&visits);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
