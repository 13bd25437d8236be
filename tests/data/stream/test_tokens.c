/* Shards over HTTP: rings filled by servers have the rows of the folder, whichever server is killed;
 * both ends refuse malformed requests or replies with a reason, and keep running. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "data/shards/shard_layout.h"
#include "data/stream/tokens.h"
#include "dist/sockets.h"
#include "tests/ranks.h"
#include "tests/stream_fixture.h"

enum { SERVERS = 2 };
static const struct loader_variant in_turns = {2, true, 1};
static const struct ring_name only = {.run = 3, .reader = 0, .readers = 1};

/* ---- Servers ---- */

struct started_server {
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
static void start(struct started_server *s, const char *stream, i64 number)
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

static void end(struct started_server *s, int signal)
{
    assert_true(kill(s->process, signal) == 0 && waitpid(s->process, NULL, 0) == s->process);
}

static void put_addresses(const struct started_server *servers, i64 count)
{
    struct buffer all = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&all, "%s%s", i ? ", " : "", servers[i].address);
    assert_int_equal(setenv("WEFT_TOKENS", all.data, 1), 0);
    buffer_release(&all);
}

/* ---- Readers ---- */

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

enum { RANKS = 4 };

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

/* ---- Raw requests ---- */

static int connect_to(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0 && inet_pton(AF_INET, "127.0.0.1", &at.sin_addr) == 1);
    at.sin_port = htons((u16)atoi(strchr(address, ':') + 1));
    if (connect(s, (struct sockaddr *)&at, sizeof at) != 0)
        fail_msg("%s: %s", address, strerror(errno));
    return s;
}

static void send_all(int s, const void *data, i64 bytes)
{
    for (i64 at = 0; at < bytes;) {
        ssize_t count = send(s, (const char *)data + at, (size_t)(bytes - at), MSG_NOSIGNAL);
        assert_true(count > 0);
        at += count;
    }
}

static int say(const struct started_server *server, const void *data, i64 bytes)
{
    int s = connect_to(server->address);
    send_all(s, data, bytes);
    return s;
}

/* Reads one reply, whose head states the length of its body; memory_free. */
static char *hear(int s)
{
    struct buffer said = {0};
    const char *body = NULL, *length = NULL;
    char piece[4096];
    while (!body || said.length < body - said.data + strtoll(length + 15, NULL, 10)) {
        ssize_t got = recv(s, piece, sizeof piece, 0);
        if (got <= 0)
            break;
        buffer_append(&said, piece, got);
        length = strcasestr(said.data, "content-length:");
        body = length ? strstr(said.data, "\r\n\r\n") : NULL;
        body = body ? body + 4 : NULL;
    }
    return said.data ? said.data : string_copy("");
}

static char *text_of(const struct token_request *r, const char *headers)
{
    char *target = token_target(r, TOKENS_INDEX);
    char *text = string_format("GET %s HTTP/1.1\r\nHost: here\r\n%s\r\n", target, headers);
    memory_free(target);
    return text;
}

/* Waits until the other side hangs up; far longer than its limit of time. */
static void expect_hang_up(int s)
{
    struct pollfd ready = {.fd = s, .events = POLLIN};
    char bytes[4096];
    ssize_t got = 1;
    while (got > 0) {
        assert_int_equal(poll(&ready, 1, 30 * TOKENS_GUEST_MS), 1);
        got = recv(s, bytes, sizeof bytes, MSG_DONTWAIT);
    }
    close(s);
}

/* ---- Requests ---- */

/* Asks for a shard. Returns as token_reader_get. */
static int ask(struct token_reader *reader, const struct token_request *request, i64 *shard_bytes)
{
    struct buffer index = {0};
    char *path = in_folder("answer");
    i64 end;
    assert_int_equal(directory_remove(path), 0);
    int kind = token_reader_get(reader, request, path, &index, &end);
    assert_true(file_exists(path) == (kind == RING_SHARD));
    *shard_bytes = kind == RING_SHARD ? file_bytes(path) : 0;
    assert_true(kind != RING_SHARD || index.length > 64);
    buffer_release(&index);
    memory_free(path);
    return kind;
}

/* Asks for the first shard. Returns the reader to which it came. */
static struct token_reader *ask_well(const struct started_server *server, const struct token_request *request)
{
    struct token_reader *reader = token_reader_open(server->address);
    i64 bytes;
    if (ask(reader, request, &bytes) != RING_SHARD || bytes < 4096)
        fail_msg("%s", error_text());
    return reader;
}

static void expect_refusal(const struct started_server *server, const struct token_request *request, const char *words)
{
    struct token_reader *reader = token_reader_open(server->address);
    i64 bytes;
    assert_int_equal(ask(reader, request, &bytes), -1);
    if (!strstr(error_text(), words))
        fail_msg("\"%s\" is not in: %s", words, error_text());
    token_reader_close(reader);
}

/* ---- Replies ---- */

enum { BODY = 80 };
struct sane_reply {
    int status;
    i64 count, stated; /* bytes of the body that come, and that its head states */
    u64 hash;
    const char *proof;
    char body[BODY + 1];
};

static struct sane_reply sane_reply(const struct token_delivery *d)
{
    struct sane_reply a = {.status = 200, .count = BODY, .stated = BODY, .proof = ""};
    for (int i = 0; i < BODY; i++)
        a.body[i] = (char)('0' + i % 64);
    a.hash = token_reply_hash(a.status, d->target, a.body, BODY);
    return a;
}

TEST(addresses_are_read)
{
    static const char *const bad[] = {"", "here", "here:", "here:x", "1:2:70000", ":-1"};
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(socket_listen(bad[i]), -1);
        assert_non_null(strstr(error_text(), "expected HOST:PORT"));
        assert_null(token_reader_open(bad[i]));
        assert_non_null(strstr(error_text(), "expected HOST:PORT"));
    }
    int s = socket_listen("localhost:0");
    assert_true(s >= 0);
    char *name = socket_name(s, false);
    assert_null(strstr(name, ":0"));
    close(s);
    memory_free(name);
}

/* Gives a delivery this reply, in two pieces. Returns as token_delivery_end. */
static int tell(struct token_delivery d, const struct sane_reply *a, i64 *end)
{
    struct http_answer answer = {.first = -1, .total = -1};
    char *head = string_format("HTTP/1.1 %d Status\nContent-Length: %lld\nweft-tokens: %d\nWeft-Hash: %016llx\n%s%s",
                               a->status, (long long)a->stated, TOKENS_VERSION, (unsigned long long)a->hash,
                               *a->proof ? "Weft-Proof: " : "", a->proof);
    for (char *at = head; *at; at += strcspn(at, "\n"), at += *at == '\n')
        http_answer_line(&answer, at, (i64)strcspn(at, "\n"));
    i64 half = a->count / 2;
    bool goes_on = true;
    if (a->status != 200)
        http_answer_complaint(&answer, a->body, a->count);
    else if (a->count)
        goes_on = token_delivery_take(&d, &answer, (const u8 *)a->body, half) &&
                  token_delivery_take(&d, &answer, (const u8 *)a->body + half, a->count - half);
    int kind = token_delivery_end(&d, &answer, end);
    assert_true(goes_on || kind == -1);
    assert_true(!d.path || file_exists(d.path) == (kind == RING_SHARD));
    if (d.path)
        assert_int_equal(directory_remove(d.path), 0);
    buffer_clear(d.body);
    http_answer_release(&answer);
    memory_free(head);
    return kind;
}

TEST(an_answer_is_believed_once_all_of_it_fits)
{
    const struct token_request r = token_request(7, &only, 1, 3, 0, 5);
    struct secret none = {.given = false}, secret;
    struct buffer index = {0};
    char *target = token_target(&r, TOKENS_INDEX), *path = in_folder("told");
    struct token_delivery d = {.target = target, .nonce = "", .secret = &none, .body = &index};
    i64 end = 0;
    for (int part = 0; part < TOKENS_PARTS; part++) {
        struct token_request changed = r;
        d.part = (enum token_part)part;
        d.path = part == TOKENS_SHARD ? path : NULL;
        struct sane_reply a = sane_reply(&d);
        assert_int_equal(tell(d, &a, &end), RING_SHARD);
        for (int bit = 0; bit < 8 * BODY; bit++) { /* every damaged bit is detected */
            struct sane_reply damaged = a;
            damaged.body[bit / 8] ^= (char)(1 << bit % 8);
            assert_int_equal(tell(d, &damaged, &end), -1);
        }
        for (int bit = 0; bit < 64; bit++) {
            struct sane_reply damaged = a;
            damaged.hash ^= (u64)1 << bit;
            assert_int_equal(tell(d, &damaged, &end), -1);
            assert_non_null(strstr(error_text(), "damaged on its way"));
        }
        for (i64 count = 0; count < BODY; count += 7) { /* and every truncation */
            struct sane_reply cut = a;
            cut.count = count;
            assert_int_equal(tell(d, &cut, &end), -1);
        }
        for (i64 stated = -1; stated < 8; stated++) {
            struct sane_reply odd = a;
            odd.stated = stated;
            assert_int_equal(tell(d, &odd, &end), -1);
            assert_non_null(strstr(error_text(), "cannot be"));
        }
        changed.number++; /* a reply to another request */
        struct token_delivery other = d;
        char *others = token_target(&changed, (enum token_part)part);
        other.target = others;
        assert_int_equal(tell(other, &a, &end), -1);
        a.stated = (i64)1 << 60;
        assert_int_equal(tell(d, &a, &end), -1);
        memory_free(others);
    }
    struct sane_reply a = {.status = 404, .count = 33, .body = "no such shard: the part has 12345", .proof = ""};
    a.hash = token_reply_hash(404, target, a.body, a.count);
    assert_true(tell(d, &a, &end) == RING_ENDED && end == 12345);
    a.body[32]++;
    assert_int_equal(tell(d, &a, &end), -1);
    a = (struct sane_reply){.status = 202, .proof = ""};
    a.hash = token_reply_hash(202, target, "", 0);
    assert_int_equal(tell(d, &a, &end), RING_MAKING);
    a.hash++;
    assert_int_equal(tell(d, &a, &end), -1);
    a = (struct sane_reply){.status = 409, .proof = ""}; /* a refusal without text */
    a.hash = token_reply_hash(409, target, "", 0);
    assert_int_equal(tell(d, &a, &end), -1);
    assert_non_null(strstr(error_text(), "refused without a message"));
    setenv("WEFT_SECRET", "a secret", 1);
    secret_load(&secret);
    unsetenv("WEFT_SECRET");
    char proof[TOKENS_HEX + 1];
    d.part = TOKENS_INDEX;
    d.path = NULL;
    d.secret = &secret;
    d.nonce = "a fresh number";
    a = sane_reply(&d);
    assert_int_equal(tell(d, &a, &end), -1);
    assert_non_null(strstr(error_text(), "it has another WEFT_SECRET than this reader, or none"));
    token_server_proof(proof, &secret, "an older number", a.hash);
    a.proof = proof;
    assert_int_equal(tell(d, &a, &end), -1);
    token_server_proof(proof, &secret, d.nonce, a.hash);
    assert_int_equal(tell(d, &a, &end), RING_SHARD);
    buffer_release(&index);
    memory_free(target);
    memory_free(path);
}

/* Blocks are hashed and written as they come, however they are cut. */
TEST(a_shard_of_many_blocks_arrives_in_pieces)
{
    static const i64 sizes[] = {5 << 19, TOKENS_BLOCK_BYTES, 3 * TOKENS_BLOCK_BYTES, TOKENS_BLOCK_BYTES + 1};
    static const i64 pieces[] = {16384, 777777, TOKENS_BLOCK_BYTES, 5 << 19};
    struct secret none = {.given = false};
    struct buffer rest = {0}, bytes = {0}, written = {0};
    char *path = in_folder("told"), head[128];
    i64 end;
    for (i64 i = 0; i < 3 * TOKENS_BLOCK_BYTES / 8; i++)
        buffer_append(&bytes, &(u64){(u64)i * 0x9e3779b97f4a7c15}, 8);
    for (i64 k = 0; k < COUNT_OF(sizes) * COUNT_OF(pieces); k++) {
        i64 size = sizes[k % COUNT_OF(sizes)], piece = pieces[k / COUNT_OF(sizes)];
        struct http_answer a = {.status = 200, .total = size};
        struct token_delivery d = {TOKENS_SHARD, "/shard", "", &none, path, &rest, .writing = false};
        snprintf(head, sizeof head, "Weft-Hash: %016llx",
                 (unsigned long long)token_reply_hash(200, d.target, bytes.data, size));
        http_answer_line(&a, "Weft-Tokens: 3", 14);
        http_answer_line(&a, head, (i64)strlen(head));
        a.total = size;
        for (i64 at = 0; at < size; at += piece)
            assert_true(token_delivery_take(&d, &a, (const u8 *)bytes.data + at, min_i64(piece, size - at)));
        if (token_delivery_end(&d, &a, &end) != RING_SHARD)
            fail_msg("%lld bytes in pieces of %lld: %s", (long long)size, (long long)piece, error_text());
        buffer_clear(&written);
        assert_int_equal(file_read(&written, path), 0);
        assert_true(written.length == size && memcmp(written.data, bytes.data, (size_t)size) == 0);
        http_answer_release(&a);
    }
    assert_int_equal(unlink(path), 0);
    buffer_release(&rest);
    buffer_release(&bytes);
    buffer_release(&written);
    memory_free(path);
}

/* ---- Strange servers ---- */

/* Answers each connection with the next of these texts, once its request has come; the last one stays. */
static pid_t begin_strange(struct started_server *server, const char *const *texts, const i64 *bytes, i64 count)
{
    int listener = socket_listen("0");
    char *name = socket_name(listener, false);
    snprintf(server->address, sizeof server->address, "%s", name);
    memory_free(name);
    pid_t child = fork();
    for (i64 i = 0; child == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        char request[4096];
        poll(&ready, 1, -1);
        int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (s < 0 || recv(s, request, sizeof request, 0) <= 0)
            continue;
        (void)!send(s, texts[i], (size_t)bytes[i], MSG_NOSIGNAL);
        close(s);
        i = min_i64(i + 1, count - 1);
    }
    close(listener);
    return child;
}

TEST(what_answers_strangely_is_said)
{
    static const char old[64 + 12] = "WEFTGIVE\2\0\0\0\3"; /* a refusal of version 2 */
    static const struct {
        const char *text;
        i64 bytes;
        const char *words;
    } cases[] = {
        {old, sizeof old, "speaks another protocol"},
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nwhere", 0, "is no weft serve-tokens"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhere", 0, "is no weft serve-tokens"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, "is no weft serve-tokens"},
        {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 0,
         "is no weft serve-tokens"},
        {"HTTP/1.1 200 OK\r\nWeft-Tokens: 4\r\nContent-Length: 5\r\n\r\nwhere", 0, "it answers in version 4"},
        {"HTTP/1.1 200 OK\r\nWeft-Tokens: 3\r\nContent-Length: 5\r\n\r\nwhere", 0, "cannot be: no hash"},
        {"HTTP/1.1 200 OK\r\nWeft-Tokens: 3\r\nWeft-Hash: 0123456789abcdef\r\n\r\nwhere", 0, "cannot be"},
        {"HTTP/1.1 200 OK\r\nWeft-Tokens: 3\r\nWeft-Hash: 0123456789abcdef\r\nContent-Length: 2147483649\r\n\r\nw", 0,
         "cannot be"},
        {"HTTP/1.1 200 OK\r\nWeft-Tokens: 3\r\nWeft-Hash: 0123456789abcdef\r\nContent-Length: 200\r\n\r\nwhere", 0,
         "bytes remaining to read"}, /* of libcurl, for a body that ends early */
        {"", 0, "Empty reply from server"}};
    const struct token_request request = token_request(7, &only, 0, 1, 0, 0);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct started_server server;
        i64 bytes = cases[i].bytes ? cases[i].bytes : (i64)strlen(cases[i].text);
        pid_t child = begin_strange(&server, &cases[i].text, &bytes, 1);
        expect_refusal(&server, &request, cases[i].words);
        assert_true(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    }
}

/* A server whose first replies are damaged, or of a stranger, is asked again; another one has the shard. */
TEST(a_damaged_shard_is_asked_for_again)
{
    static const char *const texts[] = {
        "HTTP/1.1 200 OK\r\nWeft-Tokens: 3\r\nWeft-Hash: 0123456789abcdef\r\nContent-Length: 70\r\n\r\n"
        "0123456789012345678901234567890123456789012345678901234567890123456789",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnever"};
    const i64 bytes[] = {(i64)strlen(texts[0]), (i64)strlen(texts[1])};
    struct started_server servers[2] = {{0}};
    pid_t child = begin_strange(&servers[0], texts, bytes, 2);
    start(&servers[1], "stream", 12);
    put_addresses(servers, 2);
    char **lines = lines_of("whole", &in_turns);
    clear_ring();
    struct loader *l = open_data("stream", "ring", &in_turns);
    expect_lines(l, lines, 0, 3);
    loader_close(l);
    assert_true(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    end(&servers[1], SIGTERM);
    unsetenv("WEFT_TOKENS");
    string_list_free(lines, STEPS);
}

static void expect_said(const struct started_server *server, const char *text, int status, const char *words)
{
    int s = say(server, text, (i64)strlen(text)), said_status = 0;
    char *said = hear(s);
    if (sscanf(said, "HTTP/1.1 %d", &said_status) != 1 || said_status != status || !strstr(said, words))
        fail_msg("%d, \"%s\" are not in: %s", status, words, said);
    expect_hang_up(s);
    memory_free(said);
}

TEST(nonsense_is_refused_and_serving_goes_on)
{
    struct started_server server = {0};
    unsetenv("WEFT_TOKENS");
    start(&server, "stream", 7);
    assert_int_equal(strncmp(server.address, "127.0.0.1:", 10), 0); /* loopback only */
    const struct token_request sane = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    expect_said(&server, "GET /other HTTP/1.1\r\nHost: here\r\n\r\n", 400, "not a request for shards");
    expect_said(&server, "GET /index?version=3 HTTP/1.1\r\nHost: here\r\n\r\n", 400, "its stream is no number");
    expect_said(&server, "GET /index?version=-3 HTTP/1.1\r\nHost: here\r\n\r\n", 400, "its version is no number");
    char *text = text_of(&sane, ""), *post = string_format("POST%s", text + 3);
    expect_said(&server, post, 405, "POST is no request for shards");
    struct token_request r = sane;
    r.version++;
    expect_refusal(&server, &r, "asked in version 4 of the protocol, and this is version 3");
    r = sane;
    r.stream++;
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
    for (i64 bytes = 0; bytes < (i64)strlen(text); bytes += 11) {
        int s = say(&server, text, bytes);
        assert_int_equal(shutdown(s, SHUT_WR), 0);
        expect_hang_up(s);
    }
    assert_true(identity_of("stream") != identity_of("streams"));
    struct token_reader *reader = ask_well(&server, &sane);
    i64 bytes;
    r = sane;
    r.run = 4;
    assert_int_equal(ask(reader, &r, &bytes), -1); /* on the connection of another run */
    assert_non_null(strstr(error_text(), "one connection, one part"));
    token_reader_close(reader);
    reader = ask_well(&server, &sane);
    r = sane;
    r.number = 1000;
    assert_int_equal(ask(reader, &r, &bytes), RING_ENDED);
    token_reader_close(reader);
    end(&server, SIGTERM);
    memory_free(text);
    memory_free(post);
}

/* ---- Strangers ---- */

TEST(strangers_keep_no_reader_away)
{
    enum { SILENT = 300, FLOOD = 2000, FLOOD_NIGHTLY = 10000 };
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    static const char old[72] = "WEFTASKS\2"; /* a request of version 2 */
    struct started_server server = {0};
    const struct token_request request = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    const struct token_request idle = token_request(identity_of("stream"), &(struct ring_name){4, 0, 1}, 0, 1, 0, 0);
    char *text = text_of(&request, ""), *idle_text = text_of(&idle, "");
    u8 noise[4096];
    int silent[SILENT];
    unsetenv("WEFT_TOKENS");
    start(&server, "stream", 8);
    for (int i = 0; i < SILENT; i++)
        silent[i] = say(&server, NULL, 0);
    token_reader_close(ask_well(&server, &request));
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    secret_draw(noise, sizeof noise);
    expect_hang_up(say(&server, http, sizeof http - 1));
    expect_hang_up(say(&server, noise, sizeof noise));
    pid_t flood = fork();
    if (flood == 0) {
        for (i64 i = 0; i < (is_nightly() ? FLOOD_NIGHTLY : FLOOD); i++)
            close(connect_to(server.address));
        _exit(0);
    }
    for (int i = 0; i < 20; i++)
        token_reader_close(ask_well(&server, &request));
    assert_int_equal(waitpid(flood, NULL, 0), flood);
    int half = say(&server, text, (i64)strlen(text) / 2), quiet = say(&server, NULL, 0);
    int reader = say(&server, idle_text, (i64)strlen(idle_text)), reader_of_old = say(&server, old, sizeof old);
    char *said = hear(reader);
    assert_int_equal(strncmp(said, "HTTP/1.1 200", 12), 0);
    memory_free(said);
    pid_t drips = fork(); /* a request, byte by byte, that would take minutes */
    if (drips == 0) {
        int s = say(&server, text, 1);
        for (i64 at = 1; at < (i64)strlen(text); at++, usleep(800000))
            if (send(s, text + at, 1, MSG_NOSIGNAL) < 0)
                _exit(0);
        _exit(1);
    }
    token_reader_close(ask_well(&server, &request));
    expect_hang_up(half);
    expect_hang_up(quiet);
    expect_good_end(drips);
    char head[64] = "";
    assert_int_equal(recv(reader_of_old, head, sizeof head, MSG_WAITALL), sizeof head); /* the size of its reply */
    assert_int_equal(strncmp(head, "HTTP/1.1 408", 12), 0);
    close(reader_of_old);
    send_all(reader, idle_text, (i64)strlen(idle_text)); /* a reader may be idle for longer */
    said = hear(reader);
    assert_int_equal(strncmp(said, "HTTP/1.1 200", 12), 0);
    close(reader);
    end(&server, SIGTERM);
    memory_free(said);
    memory_free(text);
    memory_free(idle_text);
}

/* The text with which a connection was refused, "" for another answer, NULL for none yet. */
static const char *heard_refusal(int s)
{
    static char heard[4096];
    ssize_t got = recv(s, heard, sizeof heard - 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 12)
        return NULL;
    heard[got] = 0;
    return strncmp(heard, "HTTP/1.1 5", 10) == 0 ? heard : "";
}

/* One reader is served, others wait for it, and the last one to come is refused. */
TEST(one_address_leaves_room_for_others)
{
    enum { MOST = 192 };
    struct started_server server = {0};
    const struct token_request request = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    char *request_text = text_of(&request, "");
    int sockets[MOST + 1];
    unsetenv("WEFT_TOKENS");
    start(&server, "stream", 9);
    for (int i = 0; i <= MOST; i++)
        sockets[i] = say(&server, request_text, (i64)strlen(request_text));
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
    memory_free(request_text);
}

/* ---- The secret ---- */

/* Sends a request with these headers. Returns its status, and the server's nonce. */
static int status_of(int s, const struct token_request *request, const char *headers, char nonce[TOKENS_HEX + 1])
{
    char *text = text_of(request, headers);
    int status = 0;
    send_all(s, text, (i64)strlen(text));
    char *said = hear(s), *at = strcasestr(said, "WWW-Authenticate: ");
    assert_true(sscanf(said, "HTTP/1.1 %d", &status) == 1);
    if (nonce)
        assert_true(at && sscanf(at + 18, "Weft %64s", nonce) == 1);
    memory_free(said);
    memory_free(text);
    return status;
}

/* The headers that prove the secret; memory_free. */
static char *proof_headers(const struct token_request *request, const char *server_nonce)
{
    struct secret secret;
    char nonce[TOKENS_HEX + 1], proof[TOKENS_HEX + 1], *target = token_target(request, TOKENS_INDEX);
    secret_load(&secret);
    token_nonce(nonce);
    token_reader_proof(proof, &secret, target, server_nonce, nonce);
    memory_free(target);
    return string_format("Weft-Nonce: %s\r\nAuthorization: Weft %s %s\r\n", nonce, server_nonce, proof);
}

TEST(readers_and_servers_prove_the_secret)
{
    struct started_server server = {0}, plain = {0};
    const struct token_request request = token_request(identity_of("stream"), &only, 0, 1, 0, 0);
    struct token_request next = request;
    char nonce[TOKENS_HEX + 1], later[TOKENS_HEX + 1];
    unsetenv("WEFT_TOKENS");
    start(&plain, "stream", 10);
    setenv("WEFT_SECRET", "a secret of this run", 1);
    start(&server, "stream", 11);
    token_reader_close(ask_well(&server, &request));
    expect_refusal(&plain, &request, "it has another WEFT_SECRET than this reader, or none");
    int s = say(&server, NULL, 0), other = say(&server, NULL, 0);
    assert_int_equal(status_of(s, &request, "", nonce), 401);
    char *headers = proof_headers(&request, nonce);
    assert_int_equal(status_of(s, &request, headers, later), 200);
    assert_string_not_equal(nonce, later);
    assert_int_equal(status_of(s, &request, headers, NULL), 401);      /* the same request again */
    assert_int_equal(status_of(other, &request, headers, later), 401); /* and on another connection */
    memory_free(headers);
    headers = proof_headers(&request, later);
    next.number = 1;
    assert_int_equal(status_of(other, &next, headers, NULL), 403); /* its proof is of another request */
    memory_free(headers);
    close(other);
    assert_int_equal(status_of(s, &request, "", nonce), 401);
    headers = proof_headers(&request, nonce);
    headers[strlen(headers) - 3] ^= 1;
    assert_int_equal(status_of(s, &request, headers, NULL), 403);
    expect_hang_up(s);
    memory_free(headers);
    put_addresses(&server, 1); /* and the whole reader */
    char **lines = lines_of("whole", &in_turns);
    clear_ring();
    struct loader *l = open_data("stream", "ring", &in_turns);
    expect_lines(l, lines, 0, 3);
    loader_close(l);
    setenv("WEFT_SECRET", "another secret", 1);
    expect_refusal(&server, &request, "it has another WEFT_SECRET than this reader, or none");
    unsetenv("WEFT_SECRET");
    unsetenv("WEFT_TOKENS");
    expect_refusal(&server, &request, "this server expects WEFT_SECRET of its readers");
    token_reader_close(ask_well(&plain, &request));
    end(&server, SIGTERM);
    end(&plain, SIGTERM);
    string_list_free(lines, STEPS);
}

/* ---- Several readers ---- */

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

TEST(shards_go_once_the_slowest_is_past_them)
{
    const char *const words[] = {WEFT_PROGRAM, "serve-tokens", "--readers", "2", NULL};
    char *ring = in_folder("ring-of-two"), *stream = in_folder("stream"), *part = path_join(ring, "0");
    struct ring *r[2];
    u64 hashes[8];
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

/* Ranks on two machines: one is killed with its disk and resumes from an older checkpoint, then the
 * server is killed. */
TEST(readers_of_a_run_have_the_rows_of_the_folder)
{
    struct started_server server = {0};
    pid_t readers[2];
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
TEST(runs_do_not_wait_for_each_other)
{
    const char *const words[2][5] = {{WEFT_PROGRAM, "serve-tokens", "--as", "a:0/1"},
                                     {WEFT_PROGRAM, "serve-tokens", "--as", "b:0/1"}};
    struct started_server server = {0};
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

/* ---- Ranks ---- */

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
TEST(ranks_with_disks_of_their_own_make_the_same_model)
{
    static const char *const names[] = {"served", "alone"};
    struct started_server server = {0};
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

TEST(without_servers_it_is_said_which_were_asked)
{
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
    assert_non_null(strstr(said, "127.0.0.1:1: "));
    assert_non_null(strstr(said, "Connection refused"));
    ring_close(r);
    assert_int_equal(unsetenv("WEFT_WAIT_S"), 0);
    memory_free(said);
    memory_free(ring);
    memory_free(stream);
    memory_free(err);
}

TEST(a_killed_server_is_replaced_by_another)
{
    struct started_server servers[SERVERS] = {{0}};
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

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* readers use no proxy */
    return tests_run(make, clear);
}
