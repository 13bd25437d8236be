/* Ranks meet over TCP whatever strangers do at their port: silent, talking, lying, many. What came
 * and was refused is named on both sides. */
#include "core/secret.h"
#include "dist/greeting.h"
#include "tests/ranks.h"

#include <errno.h>
#include <sys/mman.h>

enum { RANKS = 3, SILENT = 300, FLOOD = 2000 };
static const char *const none = NULL, *const ours = "a secret of this run", *const theirs = "another secret";
static int port;

/* ---- Ranks ---- */

struct meeting_rank {
    pid_t process;
    FILE *said;
};

/* Every pair of ranks exchanges a byte. */
static void check_sockets(const int *sockets, i64 rank, i64 size)
{
    for (i64 r = 0; r < size; r++) {
        char byte = (char)('a' + rank);
        if (r != rank && send(sockets[r], &byte, 1, 0) != 1)
            _exit(4);
    }
    for (i64 r = 0; r < size; r++) {
        char byte;
        struct pollfd ready = {.fd = sockets[r], .events = POLLIN};
        if (r != rank && (poll(&ready, 1, -1) != 1 || recv(sockets[r], &byte, 1, 0) != 1 || byte != (char)('a' + r)))
            _exit(5);
    }
}

static struct meeting_rank start(i64 rank, i64 size, const char *secret)
{
    struct meeting_rank r = {.said = tmpfile()};
    assert_non_null(r.said);
    r.process = fork();
    if (r.process)
        return r;
    int sockets[16];
    struct launch_info launch = {
        .rank = rank, .size = size, .local_rank = rank, .local_size = size, .master = "127.0.0.1", .port = port};
    alarm(TEST_SECONDS_MOST);
    dup2(fileno(r.said), 2);
    if (secret)
        setenv("WEFT_SECRET", secret, 1);
    else
        unsetenv("WEFT_SECRET");
    if (rendezvous(sockets, &launch)) {
        fprintf(stderr, "%s\n", error_text());
        _exit(1);
    }
    check_sockets(sockets, rank, size);
    _exit(0);
}

static void expect_words(struct meeting_rank *r, const char *words)
{
    char text[8192];
    rewind(r->said);
    text[fread(text, 1, sizeof text - 1, r->said)] = 0;
    if (words && !strstr(text, words))
        fail_msg("\"%s\" is not in:\n%s", words, text);
}

static void expect_end(struct meeting_rank *r, int expected, const char *words)
{
    int status;
    assert_int_equal(waitpid(r->process, &status, 0), r->process);
    expect_words(r, WIFEXITED(status) && WEXITSTATUS(status) == expected ? words : "a different exit status");
    fclose(r->said);
}

/* Starts the ranks after 0, and expects that all meet; words: in the first rank's output. */
static void expect_meeting(struct meeting_rank *first, const char *secret, const char *words)
{
    struct meeting_rank others[RANKS];
    for (i64 r = 1; r < RANKS; r++)
        others[r] = start(r, RANKS, secret);
    for (i64 r = 1; r < RANKS; r++)
        expect_end(&others[r], 0, NULL);
    expect_end(first, 0, words);
}

/* ---- Strangers ---- */

struct stranger_hello { /* as in dist/greeting.h */
    char magic[8];
    i64 rank, size, port;
    u8 nonce[32];
};

/* Connects once the first rank listens. */
static int connect_stranger(const struct meeting_rank *first)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((u16)port)};
    for (;; usleep(10000)) {
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(s >= 0);
        if (connect(s, (struct sockaddr *)&at, sizeof at) == 0)
            return s;
        close(s);
        assert_int_equal(waitpid(first->process, NULL, WNOHANG), 0);
    }
}

static int say(const struct meeting_rank *first, const void *data, i64 bytes)
{
    int s = connect_stranger(first);
    assert_int_equal(send(s, data, (size_t)bytes, MSG_NOSIGNAL), bytes);
    return s;
}

TEST(silent_strangers_delay_nobody)
{
    int silent[SILENT];
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, none);
    for (int i = 0; i < SILENT; i++)
        silent[i] = connect_stranger(&first);
    expect_meeting(&first, none, NULL);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
}

static void wait_for_end(int s) /* until the other side hangs up */
{
    char bytes[256];
    while (recv(s, bytes, sizeof bytes, 0) > 0)
        ;
    close(s);
}

/* The other side says what it thinks of the proof, and hangs up. */
static void expect_secret_refused(int s)
{
    i64 verdict;
    assert_int_equal(recv(s, &verdict, sizeof verdict, MSG_WAITALL), sizeof verdict);
    assert_int_equal(verdict, 1);
    wait_for_end(s);
}

static struct stranger_hello hello_of(i64 rank, i64 size)
{
    return (struct stranger_hello){.magic = "weft-3", .rank = rank, .size = size, .port = 1};
}

/* Goes through the whole greeting as a rank, without WEFT_SECRET, and says nothing more. */
static int take_place(const struct meeting_rank *first, i64 rank)
{
    struct rendezvous_proven proven = {greeting_hello(rank, RANKS, 1)};
    struct rendezvous_challenge challenge;
    struct secret secret;
    u8 proof[SECRET_BYTES];
    i64 verdict;
    unsetenv("WEFT_SECRET");
    secret_load(&secret);
    int s = say(first, &proven.hello, sizeof proven.hello);
    assert_int_equal(recv(s, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    assert_int_equal(greeting_prove(proof, &proven, &challenge, &secret), 0);
    assert_int_equal(send(s, proof, sizeof proof, MSG_NOSIGNAL), sizeof proof);
    assert_int_equal(recv(s, &verdict, sizeof verdict, MSG_WAITALL), sizeof verdict);
    assert_int_equal(verdict, VERDICT_COME);
    return s;
}

/* One says nothing, one sends half of an answer, and one hangs up. */
TEST(who_takes_a_place_and_is_silent_keeps_no_rank_out)
{
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, none);
    close(take_place(&first, 1));
    int silent = take_place(&first, 1), half = take_place(&first, 2);
    assert_int_equal(send(half, "\1\0\0", 3, MSG_NOSIGNAL), 3);
    expect_meeting(&first, none, NULL);
    close(silent);
    close(half);
    first = start(0, RANKS, none);
    silent = take_place(&first, 1);
    expect_meeting(&first, none, "the process that came before it with the same RANK does not answer and is dropped");
    close(silent);
}

TEST(who_takes_the_last_place_and_is_silent_is_named)
{
    port = ranks_free_port();
    setenv("WEFT_WAIT_S", "2", 1);
    struct meeting_rank first = start(0, RANKS, none), second = start(1, RANKS, none);
    int silent = take_place(&first, 2);
    expect_end(&first, 1, "; what came as rank 2 does not answer");
    expect_end(&second, 1, NULL);
    setenv("WEFT_WAIT_S", "120", 1);
    close(silent);
}

TEST(strangers_that_talk_are_named)
{
    const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n", tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    u8 noise[4096];
    struct stranger_hello half = hello_of(1, RANKS);
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, none);
    secret_draw(noise, sizeof noise);
    wait_for_end(say(&first, http, sizeof http - 1));
    wait_for_end(say(&first, tls, sizeof tls - 1));
    wait_for_end(say(&first, noise, sizeof noise));
    int held = say(&first, &half, sizeof half / 2);
    int slow = say(&first, "w", 1); /* and a byte more now and then */
    for (int i = 0; i < 100; i++)
        close(connect_stranger(&first));
    assert_int_equal(send(slow, "e", 1, MSG_NOSIGNAL), 1);
    expect_meeting(&first, none, "rank 0 ignores a connection from 127.0.0.1: it sends no greeting of a rank");
    close(held);
    close(slow);
}

/* Opens connections that say nothing, each for a while, until the ranks have met. */
static _Noreturn void flood_port(_Atomic int *made)
{
    int open[SILENT] = {0};
    for (;; ++*made) {
        int *s = &open[*made % SILENT];
        struct sockaddr_in at = {
            .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((u16)port)};
        if (*s)
            close(*s);
        *s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(*s, (struct sockaddr *)&at, sizeof at) && *made > FLOOD)
            _exit(0);
    }
}

TEST(a_flood_of_strangers_keeps_no_rank_away)
{
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, ours);
    _Atomic int *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(made != MAP_FAILED);
    pid_t flood = fork();
    if (flood == 0)
        flood_port(made);
    while (*made < FLOOD)
        usleep(1000);
    expect_meeting(&first, ours, NULL);
    kill(flood, SIGKILL);
    assert_int_equal(waitpid(flood, NULL, 0), flood);
    munmap((void *)made, sizeof *made);
}

TEST(without_the_secret_nobody_takes_a_place)
{
    struct stranger_hello lie = hello_of(1, RANKS);
    u8 challenge[72], proof[32] = {0};
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, ours);
    int s = say(&first, &lie, sizeof lie);
    assert_int_equal(recv(s, challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    assert_int_equal(send(s, challenge + 40, 32, MSG_NOSIGNAL), 32); /* the other side's own proof */
    expect_secret_refused(s);
    s = say(&first, &lie, sizeof lie);
    assert_int_equal(recv(s, challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    assert_int_equal(send(s, proof, 32, MSG_NOSIGNAL), 32);
    expect_secret_refused(s);
    setenv("WEFT_WAIT_S", "1", 1);
    struct meeting_rank other = start(1, RANKS, theirs), plain = start(2, RANKS, none);
    setenv("WEFT_WAIT_S", "120", 1);
    expect_end(&other, 1, "has another WEFT_SECRET than this rank");
    expect_end(&plain, 1, "has another WEFT_SECRET than this rank");
    expect_meeting(&first, ours, "it does not know WEFT_SECRET");
}

/* A rank with another secret leaves without a proof of its own, and may be the one that is missed. */
TEST(another_secret_is_named_by_the_first_rank)
{
    port = ranks_free_port();
    setenv("WEFT_WAIT_S", "2", 1);
    struct meeting_rank first = start(0, 2, ours), other = start(1, 2, theirs);
    setenv("WEFT_WAIT_S", "120", 1);
    expect_end(&other, 1, "has another WEFT_SECRET than this rank");
    expect_end(&first, 1,
               "(WEFT_WAIT_S); rank 1 came and left: it has another WEFT_SECRET, or only one of both has any");
}

/* Starts rank 1 twice. Returns the admitted one, which waits for others once the other is refused. */
static struct meeting_rank start_twins(void)
{
    struct meeting_rank twins[2] = {start(1, RANKS, ours), start(1, RANKS, ours)};
    int status, which = -1;
    while (which < 0) {
        for (int i = 0; i < 2 && which < 0; i++)
            which = waitpid(twins[i].process, &status, WNOHANG) ? i : -1;
        usleep(1000);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    expect_words(&twins[which], "has met another process with this RANK");
    fclose(twins[which].said);
    return twins[!which];
}

TEST(ranks_of_other_runs_are_refused)
{
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, ours);
    struct meeting_rank larger = start(1, RANKS + 1, ours), outside = start(7, RANKS, ours);
    expect_end(&larger, 1, "has another WORLD_SIZE");
    expect_end(&outside, 1, "expects other ranks");
    expect_words(&first, "it came as rank 7 of 3, this is rank 0 of 3");
    struct meeting_rank admitted = start_twins();
    struct meeting_rank last = start(2, RANKS, ours);
    expect_end(&last, 0, NULL);
    expect_end(&admitted, 0, NULL);
    expect_end(&first, 0, "that rank is there already");
}

/* A rank that was killed before all had come may come again. */
TEST(a_rank_may_come_again)
{
    port = ranks_free_port();
    struct meeting_rank first = start(0, RANKS, ours), killed = start(1, RANKS, ours);
    usleep(300000); /* it may have been admitted by then */
    kill(killed.process, SIGKILL);
    assert_int_equal(waitpid(killed.process, NULL, 0), killed.process);
    fclose(killed.said);
    struct meeting_rank admitted = start_twins(), last = start(2, RANKS, ours);
    expect_end(&last, 0, NULL);
    expect_end(&admitted, 0, NULL);
    expect_end(&first, 0, NULL);
}

TEST(a_stranger_in_place_of_the_first_is_named)
{
    port = ranks_free_port();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((u16)port)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 8) == 0);
    setenv("WEFT_WAIT_S", "2", 1);
    struct meeting_rank rank = start(1, RANKS, ours);
    expect_end(&rank, 1, "no rank 0 was found at 127.0.0.1:");
    setenv("WEFT_WAIT_S", "120", 1);
    close(listener);
}

/* The loopback address alone, as MASTER_ADDR says. */
TEST(the_first_rank_listens_at_its_address)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK + 1)}, .sin_port = htons((u16)port)};
    port = ranks_free_port();
    at.sin_port = htons((u16)port);
    struct meeting_rank first = start(0, RANKS, none);
    close(connect_stranger(&first));
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(connect(s, (struct sockaddr *)&at, sizeof at) && errno == ECONNREFUSED); /* 127.0.0.2 */
    close(s);
    expect_meeting(&first, none, NULL);
}

int main(void)
{
    setenv("WEFT_WAIT_S", "120", 1); /* ends a test in which ranks do not meet */
    return tests_run(NULL, NULL);
}
