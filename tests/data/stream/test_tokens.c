/* Shards over TCP: rings filled by servers have the rows of the folder, whichever server is killed;
 * both ends refuse malformed requests or replies with a reason, and keep running. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "data/shards/shard_layout.h"
#include "data/stream/tokens.h"
#include "tests/ranks.h"
#include "tests/stream_fixture.h"

enum { SERVERS = 2 };
static const struct loader_variant in_turns = {2, true, 1};
static const struct ring_name only = {.run = 3, .reader = 0, .readers = 1};

/* ---- Servers ---- */

struct tokens_server {
    pid_t process;
    char address[64];
};

static char *read_stderr(const char *path)
{
    struct buffer said = {0};
    if (file_exists(path))
        assert_int_equal(file_read(&said, path), 0);
    return said.data ? said.data : string_copy("");
}

/* Starts at its previous address, or at any. */
static void start(struct tokens_server *s, const char *stream, i64 number)
{
    char *data = in_folder(stream), *ring = string_format("%s/served-%lld", folder, (long long)number);
    char *err = string_format("%s/stderr-%lld", folder, (long long)number);
    unlink(err);
    s->process = fork();
    if (s->process == 0) {
        int descriptor = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (descriptor < 0 || dup2(descriptor, 2) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL))
            _exit(9);
        weft_become(
            (char *[]){"weft", "serve-tokens", data, "--ring", ring, "--listen", *s->address ? s->address : "0", NULL});
    }
    for (bool told = false; !told; usleep(2000)) {
        char *said = read_stderr(err), *at = strstr(said, ", at ");
        told = at && strchr(at, '\n') && sscanf(at, ", at %63s", s->address) == 1;
        assert_int_equal(waitpid(s->process, NULL, WNOHANG), 0);
        memory_free(said);
    }
    memory_free(data);
    memory_free(ring);
    memory_free(err);
}

static void end(struct tokens_server *s, int signal)
{
    assert_true(kill(s->process, signal) == 0 && waitpid(s->process, NULL, 0) == s->process);
}

static void put_addresses(const struct tokens_server *servers, i64 count)
{
    struct buffer all = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&all, "%s%s", i ? ", " : "", servers[i].address);
    assert_int_equal(setenv("WEFT_TOKENS", all.data, 1), 0);
    buffer_release(&all);
}

static void a_killed_server_is_replaced_by_another(void **state)
{
    struct tokens_server servers[SERVERS] = {{0}};
    (void)state;
    char **lines = lines_of("parts", &in_turns);
    clear_ring();
    for (i64 i = 0; i < SERVERS; i++)
        start(&servers[i], "streams", i);
    put_addresses(servers, SERVERS);
    struct loader *l = open_data("streams", "ring", &in_turns);
    for (i64 step = 0; step < STEPS; step++) {
        if (step == 12 || step == 60)
            end(&servers[step == 60], SIGKILL); /* first one, then the other */
        if (step == 36)
            start(&servers[0], "streams", 0);
        expect_lines(l, lines, step, step + 1);
        struct loader_cursor cursor = loader_cursor(l);
        assert_int_equal(loader_passed(l, &cursor), 0);
    }
    assert_int_equal(loader_restarts(l), 0);
    loader_close(l);
    end(&servers[0], SIGTERM);
    string_list_free(lines, STEPS);
}

/* ---- Several readers ---- */

/* Forks one of two readers of a run, with a ring of its own,
 * starting after `done` steps; it exits with 0. */
static pid_t begin_reader(i64 number, const struct loader_cursor *cursor, i64 done, char *const *lines)
{
    pid_t child = fork();
    if (child)
        return child;
    const char *const words[] = {WEFT_PROGRAM, "serve-tokens", "--as", number ? "5:1/2" : "5:0/2", NULL};
    struct loader *l = open_reader("streams", number ? "ring-1" : "ring-0", &in_turns, words);
    if (cursor)
        loader_begin_at(l, cursor);
    for (i64 step = done; step < STEPS; step++) {
        expect_lines(l, lines, step, step + 1);
        struct loader_cursor now = loader_cursor(l);
        if (loader_passed(l, &now) < 0)
            _exit(1);
        usleep(number ? 3000 : 0);
        char *at = string_format("%s/reader-%lld", folder, (long long)number),
             *said = string_format("%lld", (long long)step);
        if (file_replace(at, said, (i64)strlen(said)) < 0)
            _exit(1);
    }
    loader_close(l);
    _exit(0);
}

static i64 step_of_reader(i64 number)
{
    struct buffer said = {0};
    char *path = string_format("%s/reader-%lld", folder, (long long)number);
    i64 step = file_exists(path) && file_read(&said, path) == 0 ? strtoll(said.data, NULL, 10) : -1;
    buffer_release(&said);
    memory_free(path);
    return step;
}

static struct loader_cursor cursor_behind(i64 done)
{
    struct loader *l = open_data("parts", NULL, &in_turns);
    for (i64 step = 0; step < done; step++)
        assert_non_null(plan_step(l, step));
    struct loader_cursor cursor = loader_cursor(l);
    loader_close(l);
    return cursor;
}

static void expect_good_end(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Ranks on two machines: one is killed with its disk and resumes from an older checkpoint, then the
 * server is killed. */
static void readers_of_a_run_have_the_rows_of_the_folder(void **state)
{
    struct tokens_server server = {0};
    pid_t readers[2];
    (void)state;
    char **lines = lines_of("parts", &in_turns), *lost = in_folder("ring-1"), *said = in_folder("reader-1");
    start(&server, "streams", 20);
    put_addresses(&server, 1);
    for (i64 i = 0; i < 2; i++)
        readers[i] = begin_reader(i, NULL, 0, lines);
    while (step_of_reader(1) < 40)
        usleep(1000);
    assert_true(kill(readers[1], SIGKILL) == 0 && waitpid(readers[1], NULL, 0) == readers[1]);
    assert_int_equal(directory_remove(lost), 0);
    struct loader_cursor cursor = cursor_behind(12);
    assert_int_equal(unlink(said), 0);
    readers[1] = begin_reader(1, &cursor, 12, lines);
    while (step_of_reader(1) < 30)
        usleep(1000);
    end(&server, SIGKILL);
    start(&server, "streams", 20);
    for (i64 i = 0; i < 2; i++)
        expect_good_end(readers[i]);
    end(&server, SIGTERM);
    string_list_free(lines, STEPS);
    memory_free(lost);
    memory_free(said);
}

/* Two runs at one server are independent. */
static void runs_do_not_wait_for_each_other(void **state)
{
    const char *const words[2][5] = {{WEFT_PROGRAM, "serve-tokens", "--as", "a:0/1"},
                                     {WEFT_PROGRAM, "serve-tokens", "--as", "b:0/1"}};
    struct tokens_server server = {0};
    (void)state;
    char **lines = lines_of("parts", &in_turns);
    start(&server, "streams", 21);
    put_addresses(&server, 1);
    struct loader *ahead = open_reader("streams", "ring-a", &in_turns, words[0]);
    struct loader *behind = open_reader("streams", "ring-b", &in_turns, words[1]);
    expect_lines(ahead, lines, 0, STEPS);
    expect_lines(behind, lines, 0, STEPS);
    loader_close(ahead);
    loader_close(behind);
    end(&server, SIGTERM);
    string_list_free(lines, STEPS);
}

static u64 hash_of_shard(const char *directory)
{
    struct buffer bytes = {0};
    char *path = path_join(directory, "00000.shard");
    if (file_read(&bytes, path) < 0)
        fail_msg("%s", error_text());
    u64 hash = hash_bytes(bytes.data, bytes.length, 0);
    buffer_release(&bytes);
    memory_free(path);
    return hash;
}

static u64 hash_of_number(struct ring *r, i64 number)
{
    char *directory;
    assert_int_equal(ring_shard(&directory, r, 0, 0, number), 0);
    u64 hash = hash_of_shard(directory);
    memory_free(directory);
    return hash;
}

static void expect_gone(const char *part, i64 number)
{
    while (ring_has(part, number))
        usleep(1000);
}

static void shards_go_once_the_slowest_is_past_them(void **state)
{
    const char *const words[] = {WEFT_PROGRAM, "serve-tokens", "--readers", "2", NULL};
    char *ring = in_folder("ring-of-two"), *stream = in_folder("stream"), *part = path_join(ring, "0");
    struct ring *r[2];
    u64 hashes[8];
    (void)state;
    unsetenv("WEFT_TOKENS");
    for (i64 i = 0; i < 2; i++) {
        r[i] = ring_open(ring, stream, words);
        ring_read_as(r[i], i);
    }
    for (i64 number = 0; number < 4; number++)
        hashes[number] = hash_of_number(r[0], number);
    assert_true(ring_has(part, 0)); /* the other reader has not connected yet */
    for (i64 number = 0; number < 3; number++)
        assert_true(hash_of_number(r[1], number) == hashes[number]);
    expect_gone(part, 1);
    assert_true(ring_has(part, 2));
    ring_close(r[0]); /* also stops the filler of the ring */
    for (i64 number = 3; number < 6; number++)
        hashes[number] = hash_of_number(r[1], number);
    usleep(50000);
    assert_true(ring_has(part, 3) && !ring_has(part, 6)); /* position of the first reader, and 2 ahead */
    r[0] = ring_open(ring, stream, words);
    ring_read_as(r[0], 0);
    for (i64 number = 1; number < 6; number++) /* the first two are made again */
        assert_true(hash_of_number(r[0], number) == hashes[number]);
    hashes[6] = hash_of_number(r[1], 6);
    assert_true(hash_of_number(r[0], 6) == hashes[6]);
    expect_gone(part, 5);
    for (i64 i = 0; i < 2; i++)
        ring_close(r[i]);
    memory_free(ring);
    memory_free(stream);
    memory_free(part);
}

/* ---- Ranks ---- */

enum { RANKS = 4 };

/* Starts rank `rank`; every two ranks share a disk. */
static pid_t begin_rank(const char *recipe, int rank, int port, bool disks)
{
    char *at = string_format("%d", port), *disk = string_format("%s/disk-%d", folder, rank / 2),
         *err = string_format("%s/stderr-of-%d", folder, rank), number[2] = {(char)('0' + rank), 0};
    pid_t child = fork();
    if (child == 0) {
        int descriptor = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (descriptor < 0 || dup2(descriptor, 2) < 0 || setenv("RANK", number, 1) || setenv("WORLD_SIZE", "4", 1) ||
            setenv("MASTER_ADDR", "127.0.0.1", 1) || setenv("MASTER_PORT", at, 1) || setenv("WEFT_THREADS", "1", 1) ||
            (disks && setenv("WEFT_RING", disk, 1)))
            _exit(9);
        weft_become((char *[]){"weft", "run", (char *)(uintptr_t)recipe, NULL});
    }
    memory_free(at);
    memory_free(disk);
    memory_free(err);
    return child;
}

/* Kills the ranks once the file `until` exists (NULL: never). Returns how many exited with 0. */
static int run_ranks(const char *recipe, bool disks, const char *until)
{
    pid_t ranks[RANKS];
    int port = ranks_free_port(), ended = 0, well = 0;
    for (int r = 0; r < RANKS; r++)
        ranks[r] = begin_rank(recipe, r, port, disks);
    while (ended < RANKS) {
        bool is_there = until && file_exists(until);
        for (int r = 0, how; r < RANKS; r++) {
            if (ranks[r] && is_there)
                kill(ranks[r], SIGKILL);
            if (ranks[r] && waitpid(ranks[r], &how, WNOHANG) == ranks[r]) {
                ranks[r] = 0;
                ended++;
                well += WIFEXITED(how) && WEXITSTATUS(how) == 0;
            }
        }
        usleep(500);
    }
    for (int r = 0; r < RANKS && !until && well < RANKS; r++) {
        char *err = string_format("%s/stderr-of-%d", folder, r), *said = read_stderr(err);
        print_message("rank %d: %s\n", r, said);
        memory_free(err);
        memory_free(said);
    }
    return well;
}

static i64 entries_of(const char *name)
{
    char *path = in_folder(name), **names;
    i64 count = 0;
    if (file_exists(path)) {
        assert_int_equal(directory_list(&names, &count, path), 0);
        string_list_free(names, count);
    }
    memory_free(path);
    return count;
}

/* Shards from servers, then prepared on each disk; ranks are killed and one disk is lost. */
static void ranks_with_disks_of_their_own_make_the_same_model(void **state)
{
    static const char *const names[] = {"served", "alone"};
    struct tokens_server server = {0};
    (void)state;
    unsetenv("WEFT_TOKENS");
    char *before = write_recipe("before", "", ""), *lost = in_folder("disk-1");
    assert_int_equal(run_ranks(before, false, NULL), RANKS);
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *recipe = write_recipe(names[i], ", stream: {on: true, shards: 2}", "");
        char *shards = string_format("run-%s/shards", names[i]), *stage = in_folder(shards);
        if (i == 0) {
            char *first = string_format("%s run %s shards > /dev/null 2>&1", WEFT_PROGRAM, recipe);
            assert_int_equal(system(first), 0);
            memory_free(first);
            start(&server, shards, 22);
            put_addresses(&server, 1);
        } else {
            unsetenv("WEFT_TOKENS");
        }
        char *until = string_format("%s/run-%s/base.partial/checkpoints/step-000012", folder, names[i]);
        char *last = string_format("%s/run-%s/base.partial/checkpoints/step-000020", folder, names[i]);
        bool was_over = run_ranks(recipe, true, until) == RANKS || file_exists(last);
        assert_int_equal(directory_remove(lost), 0);
        assert_int_equal(run_ranks(recipe, true, NULL), RANKS);
        assert_true(hash_of_model("before") == hash_of_model(names[i]));
        assert_true(entries_of("disk-0") == 0 && entries_of("disk-1") == 0);
        assert_true(was_over || file_exists(lost));
        memory_free(recipe);
        memory_free(shards);
        memory_free(stage);
        memory_free(until);
        memory_free(last);
    }
    end(&server, SIGTERM);
    memory_free(before);
    memory_free(lost);
}

static void without_servers_it_is_said_which_were_asked(void **state)
{
    (void)state;
    char *ring = in_folder("ring"), *stream = in_folder("stream"), *err = in_folder("filler"), *directory;
    assert_int_equal(setenv("WEFT_TOKENS", "127.0.0.1:1 localhost:1", 1) || setenv("WEFT_WAIT_S", "1", 1), 0);
    clear_ring();
    int kept = dup(2), descriptor = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(kept >= 0 && descriptor >= 0 && dup2(descriptor, 2) == 2);
    struct ring *r = ring_open(ring, stream, filler);
    int status = ring_shard(&directory, r, 0, 0, 0);
    assert_true(dup2(kept, 2) == 2 && close(kept) == 0 && close(descriptor) == 0);
    assert_int_equal(status, -1);
    assert_non_null(strstr(error_text(), "see its messages above"));
    char *said = read_stderr(err);
    assert_non_null(strstr(said, "no server has given a shard for 1 s"));
    assert_non_null(strstr(said, "127.0.0.1:1: Connection refused"));
    ring_close(r);
    assert_int_equal(unsetenv("WEFT_WAIT_S"), 0);
    memory_free(said);
    memory_free(ring);
    memory_free(stream);
    memory_free(err);
}

/* ---- Requests ---- */

static u64 identity_of(const char *name)
{
    struct shard_stream stream;
    u64 identity = 0;
    char *data = in_folder(name);
    assert_int_equal(shard_stream_load(&stream, data) || tokens_identity(&identity, &stream, data), 0);
    shard_stream_release(&stream);
    memory_free(data);
    return identity;
}

/* The server's refusal of the first `bytes` of a request, or "" if it hangs up. */
static char *refusal_of(const struct tokens_server *s, const struct token_request *r, i64 bytes)
{
    struct token_request sane = *r;
    struct buffer index = {0};
    i64 number;
    int socket = tokens_connect(s->address);
    assert_true(socket >= 0 && tokens_send(socket, r, bytes) == 0);
    if (bytes < (i64)sizeof *r)
        assert_int_equal(shutdown(socket, SHUT_WR), 0);
    char *path = in_folder("answer");
    assert_int_equal(tokens_answer(socket, &sane, path, &index, &number), -1);
    assert_false(file_exists(path));
    close(socket);
    buffer_release(&index);
    memory_free(path);
    return string_copy(error_text());
}

static void expect_refusal(const struct tokens_server *s, const struct token_request *r, const char *words)
{
    char *said = refusal_of(s, r, sizeof *r);
    if (!strstr(said, words))
        fail_msg("\"%s\" is not in: %s", words, said);
    memory_free(said);
}

static void nonsense_is_refused_and_serving_goes_on(void **state)
{
    struct tokens_server server = {0};
    (void)state;
    unsetenv("WEFT_TOKENS");
    start(&server, "stream", 7);
    assert_int_equal(strncmp(server.address, "127.0.0.1:", 10), 0); /* loopback only */
    const struct token_request sane = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    struct token_request r = sane;
    memset(r.magic, 'x', 8);
    expect_refusal(&server, &r, "not a request for shards");
    r = sane;
    r.version++;
    expect_refusal(&server, &r, "version 3 of the protocol");
    r = sane;
    r.identity++;
    expect_refusal(&server, &r, "another stream is served here");
    r = sane;
    r.partition = 1;
    expect_refusal(&server, &r, "cannot be");
    r = sane;
    r.number = ~(u64)0;
    expect_refusal(&server, &r, "cannot be");
    r = sane;
    r.reader = 1;
    expect_refusal(&server, &r, "reader 1 of 1 cannot be");
    r.readers = TOKENS_READERS_MOST + 1;
    expect_refusal(&server, &r, "of 65537 cannot be");
    r = sane;
    r.version = 1; /* requests of version 1 have 56 bytes */
    char *said = refusal_of(&server, &r, 56);
    assert_non_null(strstr(said, "asked in version 1 of the protocol, and this is version 2"));
    memory_free(said);
    for (i64 bytes = 0; bytes < (i64)sizeof sane; bytes += 11)
        memory_free(refusal_of(&server, &sane, bytes));
    assert_true(identity_of("stream") != identity_of("streams"));

    struct buffer index = {0};
    char *path = in_folder("answer");
    i64 number;
    int socket = tokens_connect(server.address);
    assert_true(socket >= 0 && tokens_send(socket, &sane, sizeof sane) == 0);
    if (tokens_answer(socket, &sane, path, &index, &number) != REPLY_SHARD)
        fail_msg("%s", error_text());
    assert_true(index.length > 64 && file_bytes(path) >= 4096);
    close(socket);
    end(&server, SIGTERM);
    buffer_release(&index);
    memory_free(path);
}

/* ---- Strangers ---- */

/* Asks for the first shard. Returns the connection on which it came. */
static int ask_well(const struct tokens_server *server, const struct token_request *request)
{
    struct secret secret;
    struct buffer index = {0};
    char *path = in_folder("answer");
    i64 number;
    int socket = tokens_connect(server->address);
    secret_load(&secret);
    if (socket < 0 || tokens_greet(socket, &secret) < 0 || tokens_send(socket, request, sizeof *request) < 0 ||
        tokens_answer(socket, request, path, &index, &number) != REPLY_SHARD)
        fail_msg("%s", error_text());
    assert_int_equal(unlink(path), 0);
    buffer_release(&index);
    memory_free(path);
    return socket;
}

static int say(const struct tokens_server *server, const void *data, i64 bytes)
{
    int socket = tokens_connect(server->address);
    if (socket < 0 || (bytes && tokens_send(socket, data, bytes) < 0))
        fail_msg("%s", error_text());
    return socket;
}

/* Waits until the other side hangs up; far longer than its limit of time. */
static void expect_hang_up(int socket)
{
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    char bytes[4096];
    ssize_t got = 1;
    while (got > 0) {
        assert_int_equal(poll(&ready, 1, 30 * TOKENS_GUEST_MS), 1);
        got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    }
    close(socket);
}

static void strangers_keep_no_reader_away(void **state)
{
    enum { SILENT = 300, FLOOD = 2000, FLOOD_NIGHTLY = 10000 };
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    struct tokens_server server = {0};
    const struct token_request request = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    u8 noise[4096];
    int silent[SILENT];
    (void)state;
    unsetenv("WEFT_TOKENS");
    start(&server, "stream", 8);
    for (int i = 0; i < SILENT; i++)
        silent[i] = say(&server, NULL, 0);
    close(ask_well(&server, &request));
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    secret_draw(noise, sizeof noise);
    expect_hang_up(say(&server, http, sizeof http - 1));
    expect_hang_up(say(&server, noise, sizeof noise));
    pid_t flood = fork();
    if (flood == 0) {
        for (i64 i = 0; i < (is_nightly() ? FLOOD_NIGHTLY : FLOOD); i++)
            close(tokens_connect(server.address));
        _exit(0);
    }
    for (int i = 0; i < 20; i++)
        close(ask_well(&server, &request));
    assert_int_equal(waitpid(flood, NULL, 0), flood);
    int half = say(&server, &request, sizeof request / 2), quiet = say(&server, NULL, 0);
    pid_t drips = fork(); /* a request, byte by byte, that would take a minute */
    if (drips == 0) {
        int socket = say(&server, &request, 1);
        for (i64 at = 1; at < (i64)sizeof request; at++, usleep(800000))
            if (send(socket, (const char *)&request + at, 1, MSG_NOSIGNAL) < 0)
                _exit(0);
        _exit(1);
    }
    close(ask_well(&server, &request));
    expect_hang_up(half);
    expect_hang_up(quiet);
    expect_good_end(drips);
    int last = ask_well(&server, &request); /* a reader may be idle for longer */
    assert_int_equal(tokens_send(last, &request, sizeof request), 0);
    close(last);
    end(&server, SIGTERM);
}

/* The text with which a connection was refused, "" for another answer, NULL for none yet. */
static const char *heard_refusal(int socket)
{
    static struct {
        struct token_reply reply;
        char text[TOKENS_MESSAGE_MOST + 1];
    } heard;
    ssize_t got = recv(socket, &heard, sizeof heard - 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < (ssize_t)sizeof heard.reply)
        return NULL;
    *((char *)&heard + got) = 0;
    return heard.reply.kind == REPLY_REFUSED ? heard.text : "";
}

/* One reader is served, others wait for it, and the last one to come is refused. */
static void one_address_leaves_room_for_others(void **state)
{
    enum { MOST = 192 };
    struct tokens_server server = {0};
    const struct token_request request = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    int sockets[MOST + 1];
    (void)state;
    unsetenv("WEFT_TOKENS");
    start(&server, "stream", 9);
    for (int i = 0; i <= MOST; i++)
        sockets[i] = say(&server, &request, sizeof request);
    bool refused = false;
    for (int tries = 0; !refused; tries++, usleep(1000)) {
        assert_true(tries < 100000);
        for (int i = 0; i <= MOST && !refused; i++) {
            const char *text = heard_refusal(sockets[i]);
            refused = text && strstr(text, "192 of them from this address: no more are served");
            assert_true(!text || !*text || refused);
        }
    }
    for (int i = 0; i <= MOST; i++)
        close(sockets[i]);
    end(&server, SIGTERM);
}

static void expect_no_greeting(const struct tokens_server *server, const char *words)
{
    struct secret secret;
    int socket = tokens_connect(server->address);
    secret_load(&secret);
    assert_int_equal(tokens_greet(socket, &secret), -1);
    if (!strstr(error_text(), words))
        fail_msg("\"%s\" is not in: %s", words, error_text());
    close(socket);
}

static void readers_and_servers_prove_the_secret(void **state)
{
    struct tokens_server server = {0}, plain = {0};
    const struct token_request request = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    struct token_greeting greeting = token_greeting();
    struct token_challenge challenge;
    struct secret secret;
    u8 proof[SECRET_BYTES];
    (void)state;
    unsetenv("WEFT_TOKENS");
    start(&plain, "stream", 10);
    setenv("WEFT_SECRET", "a secret of this run", 1);
    start(&server, "stream", 11);
    close(ask_well(&server, &request));
    expect_no_greeting(&plain, "it has another WEFT_SECRET than this reader, or none");
    secret_load(&secret);
    for (int again = 0; again < 2; again++) { /* the same proof twice: the server's nonce differs */
        int socket = say(&server, &greeting, sizeof greeting);
        assert_int_equal(tokens_receive(socket, &challenge, sizeof challenge, -1), 0);
        if (!again)
            assert_int_equal(token_challenge_check(proof, &challenge, &greeting, &secret), 0);
        struct buffer index = {0};
        char *path = in_folder("answer");
        i64 number;
        assert_true(tokens_send(socket, proof, sizeof proof) == 0 &&
                    tokens_send(socket, &request, sizeof request) == 0);
        int kind = tokens_answer(socket, &request, path, &index, &number);
        assert_int_equal(kind, again ? -1 : REPLY_SHARD);
        assert_true(again || unlink(path) == 0);
        close(socket);
        buffer_release(&index);
        memory_free(path);
    }
    put_addresses(&server, 1); /* and the whole reader */
    char **lines = lines_of("whole", &in_turns);
    clear_ring();
    struct loader *l = open_data("stream", "ring", &in_turns);
    expect_lines(l, lines, 0, 3);
    loader_close(l);
    setenv("WEFT_SECRET", "another secret", 1);
    expect_no_greeting(&server, "it has another WEFT_SECRET than this reader, or none");
    unsetenv("WEFT_SECRET");
    unsetenv("WEFT_TOKENS");
    expect_refusal(&server, &request, "this server expects WEFT_SECRET of its readers");
    close(ask_well(&plain, &request));
    end(&server, SIGTERM);
    end(&plain, SIGTERM);
    string_list_free(lines, STEPS);
}

/* ---- Replies ---- */

struct tokens_answer {
    struct token_reply reply;
    char bytes[80];
    i64 count; /* number of bytes sent */
};

static struct tokens_answer sane_answer(const struct token_request *r)
{
    struct tokens_answer a = {.reply = token_reply(r, REPLY_SHARD), .count = 80};
    for (i64 i = 0; i < a.count; i++)
        a.bytes[i] = (char)i;
    a.reply.index_bytes = 64;
    a.reply.shard_bytes = 16;
    a.reply.hash = hash_bytes(a.bytes + 64, 16, hash_bytes(a.bytes, 64, token_reply_hash(&a.reply)));
    return a;
}

static int tell(const struct tokens_answer *a, i64 header_bytes, const struct token_request *r)
{
    int pair[2];
    struct buffer index = {0};
    i64 number;
    char *path = in_folder("told");
    assert_int_equal(directory_remove(path) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(tokens_send(pair[0], &a->reply, header_bytes) || tokens_send(pair[0], a->bytes, a->count), 0);
    close(pair[0]);
    int kind = tokens_answer(pair[1], r, path, &index, &number);
    close(pair[1]);
    if (kind == REPLY_SHARD)
        assert_true(index.length == 64 && file_bytes(path) == 16);
    buffer_release(&index);
    memory_free(path);
    return kind;
}

static void an_answer_is_believed_once_all_of_it_fits(void **state)
{
    const struct token_request r = token_request(7, &only, 1, 3, 0, 5);
    const i64 whole = sizeof(struct token_reply);
    (void)state;
    struct tokens_answer a = sane_answer(&r);
    assert_int_equal(tell(&a, whole, &r), REPLY_SHARD);
    for (i64 byte = 0; byte < whole + a.count; byte++) { /* every damaged bit is detected */
        struct tokens_answer damaged = a;
        u8 *at = byte < whole ? (u8 *)&damaged.reply + byte : (u8 *)damaged.bytes + byte - whole;
        *at ^= (u8)(1 << byte % 8);
        assert_int_equal(tell(&damaged, whole, &r), -1);
    }
    for (i64 count = 0; count < a.count; count += 7) { /* and every truncation */
        struct tokens_answer cut = a;
        cut.count = count;
        assert_int_equal(tell(&cut, whole, &r), -1);
        assert_non_null(strstr(error_text(), "it ended"));
    }
    a.reply.shard_bytes = (u64)1 << 60;
    assert_int_equal(tell(&a, whole, &r), -1);
    assert_non_null(strstr(error_text(), "cannot be"));
    a = (struct tokens_answer){.reply = token_reply(&r, REPLY_REFUSED)}; /* a refusal without text */
    a.reply.hash = hash_bytes("", 0, token_reply_hash(&a.reply));
    assert_int_equal(tell(&a, whole, &r), -1);
    assert_non_null(strstr(error_text(), "refused without a message"));
    a = sane_answer(&r);
    a.reply.number = 6;
    assert_int_equal(tell(&a, whole, &r), -1);
}

static void addresses_are_read(void **state)
{
    static const char *const bad[] = {"", "here", "here:", "here:x", "1:2:70000", ":-1"};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(tokens_listen(bad[i]), -1);
        assert_non_null(strstr(error_text(), "expected HOST:PORT"));
    }
    int s = tokens_listen("localhost:0");
    assert_true(s >= 0);
    char *name = tokens_name(s, false);
    int other = tokens_connect(name);
    assert_true(other >= 0);
    close(s);
    close(other);
    memory_free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses_are_read),
                                       cmocka_unit_test(an_answer_is_believed_once_all_of_it_fits),
                                       cmocka_unit_test(nonsense_is_refused_and_serving_goes_on),
                                       cmocka_unit_test(strangers_keep_no_reader_away),
                                       cmocka_unit_test(one_address_leaves_room_for_others),
                                       cmocka_unit_test(readers_and_servers_prove_the_secret),
                                       cmocka_unit_test(shards_go_once_the_slowest_is_past_them),
                                       cmocka_unit_test(readers_of_a_run_have_the_rows_of_the_folder),
                                       cmocka_unit_test(runs_do_not_wait_for_each_other),
                                       cmocka_unit_test(ranks_with_disks_of_their_own_make_the_same_model),
                                       cmocka_unit_test(without_servers_it_is_said_which_were_asked),
                                       cmocka_unit_test(a_killed_server_is_replaced_by_another)};
    setenv("WEFT_THREADS", "1", 1);
    return cmocka_run_group_tests(tests, make, clear);
}
