#define _GNU_SOURCE /* memmem */
/* Encrypted links without sockets: what arrives, and what is refused. And rounds: who is merged when. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sites/link.h"
#include "sites/rounds.h"
#include "tests/scratch.h"

static const u8 key[LINK_KEY_BYTES] = {1, 2, 3}, other_key[LINK_KEY_BYTES] = {1, 2, 4};
static struct link *ends[2]; /* that connects, that accepts */

/* All that an end has to send. */
static struct buffer output(struct link *link)
{
    struct buffer out = {0};
    i64 bytes;
    const char *data = link_output(link, &bytes);
    buffer_append(&out, data, bytes);
    link_sent(link, bytes);
    return out;
}

static void carry(int from)
{
    struct buffer out = output(ends[from]);
    link_feed(ends[1 - from], out.data, out.length);
    buffer_release(&out);
}

static void open_ends(const u8 *one, const u8 *two)
{
    ends[0] = link_open(one, false);
    ends[1] = link_open(two, true);
    carry(0);
    carry(1);
    carry(0);
}

static void close_ends(void)
{
    link_close(ends[0]);
    link_close(ends[1]);
}

static void say(int from, enum link_kind kind, i64 number, const char *text)
{
    link_send(ends[from], &(struct link_head){(i32)kind, 0, number, 0, (i64)strlen(text)}, text);
}

static void expect_heard(int by, enum link_kind kind, i64 number, const char *text)
{
    struct link_head head;
    struct buffer payload;
    assert_true(link_next(&head, &payload, ends[by]));
    assert_int_equal(head.kind, kind);
    assert_int_equal(head.number, number);
    assert_int_equal(payload.length, strlen(text));
    assert_memory_equal(payload.data ? payload.data : "", text, strlen(text));
    buffer_release(&payload);
}

TEST(messages_arrive_in_both_directions_and_in_pieces)
{
    open_ends(key, key);
    say(0, LINK_HELLO, 1, "{}");
    say(0, LINK_COUNT, 2, "");
    struct buffer out = output(ends[0]);
    assert_null(memmem(out.data, (size_t)out.length, "{}", 2)); /* encrypted */
    for (i64 i = 0; i < out.length; i++)
        assert_true(link_feed(ends[1], out.data + i, 1));
    buffer_release(&out);
    expect_heard(1, LINK_HELLO, 1, "{}");
    expect_heard(1, LINK_COUNT, 2, "");
    say(1, LINK_WELCOME, 3, "welcome");
    carry(1);
    expect_heard(0, LINK_WELCOME, 3, "welcome");
    assert_true(link_proven(ends[0]) && link_proven(ends[1]));
    close_ends();
}

TEST(long_messages_arrive_whole)
{
    enum { BYTES = 3 * LINK_FRAME_BYTES + 17 };
    char *data = memory_alloc(BYTES);
    struct link_head head;
    struct buffer payload;
    open_ends(key, key);
    link_allow(ends[1], LINK_PART, BYTES);
    for (i64 i = 0; i < BYTES; i++)
        data[i] = (char)(i * 7 / 3);
    link_send(ends[0], &(struct link_head){LINK_PART, 2, 9, 0, BYTES}, data);
    carry(0);
    assert_true(link_next(&head, &payload, ends[1]));
    assert_int_equal(payload.length, BYTES);
    assert_memory_equal(payload.data, data, BYTES);
    buffer_release(&payload);
    memory_free(data);
    close_ends();
}

TEST(another_key_is_refused_by_both)
{
    open_ends(key, other_key);
    say(0, LINK_HELLO, 0, "{}");
    say(1, LINK_COUNT, 1, "");
    carry(0);
    carry(1);
    assert_int_equal(link_fault(ends[0]), LINK_KEY);
    assert_int_equal(link_fault(ends[1]), LINK_KEY);
    struct link_head head;
    struct buffer payload;
    assert_false(link_next(&head, &payload, ends[1]));
    close_ends();
}

/* Changes one thing about what the first end sends; the other must not take it. */
static void expect_damaged(void (*damage)(struct buffer *first, struct buffer *second))
{
    open_ends(key, key);
    say(0, LINK_HELLO, 0, "first");
    carry(0);
    expect_heard(1, LINK_HELLO, 0, "first");
    say(0, LINK_COUNT, 1, "");
    struct buffer first = output(ends[0]);
    say(0, LINK_COUNT, 2, "");
    struct buffer second = output(ends[0]);
    damage(&first, &second);
    bool taken = link_feed(ends[1], first.data, first.length) && link_feed(ends[1], second.data, second.length);
    assert_false(taken);
    assert_int_equal(link_fault(ends[1]), LINK_DAMAGED);
    assert_false(link_feed(ends[1], "x", 1)); /* and nothing behind it */
    buffer_release(&first);
    buffer_release(&second);
    close_ends();
}

static void flip(struct buffer *first, struct buffer *second)
{
    (void)second;
    first->data[first->length - 3] ^= 4;
}

static void repeat(struct buffer *first, struct buffer *second)
{
    buffer_clear(second);
    buffer_append(second, first->data, first->length);
}

static void swap(struct buffer *first, struct buffer *second)
{
    struct buffer other = *first;
    *first = *second;
    *second = other;
}

static void leave_out(struct buffer *first, struct buffer *second)
{
    (void)second;
    first->length = 0;
}

TEST(frames_that_were_changed_repeated_swapped_or_left_out_are_refused)
{
    expect_damaged(flip);
    expect_damaged(repeat);
    expect_damaged(swap);
    expect_damaged(leave_out);
}

/* What was said in one connection is worth nothing in another with the same key. */
TEST(a_recorded_connection_cannot_be_replayed)
{
    struct buffer recorded = {0};
    ends[0] = link_open(key, false);
    ends[1] = link_open(key, true);
    struct buffer out = output(ends[0]);
    buffer_append(&recorded, out.data, out.length);
    link_feed(ends[1], out.data, out.length);
    buffer_release(&out);
    carry(1);
    say(0, LINK_HELLO, 0, "{}");
    out = output(ends[0]);
    buffer_append(&recorded, out.data, out.length);
    buffer_release(&out);
    close_ends();
    ends[0] = NULL;
    ends[1] = link_open(key, true);
    assert_false(link_feed(ends[1], recorded.data, recorded.length));
    assert_int_equal(link_fault(ends[1]), LINK_KEY);
    buffer_release(&recorded);
    close_ends();
}

TEST(strangers_and_long_messages_are_refused)
{
    struct link *link = link_open(key, true);
    assert_false(link_feed(link, "GET / HTTP/1.1\r\n", 16));
    assert_int_equal(link_fault(link), LINK_STRANGE);
    link_close(link);
    open_ends(key, key);
    say(0, LINK_PART, 0, "not allowed before the welcome");
    carry(0);
    assert_int_equal(link_fault(ends[1]), LINK_LARGE);
    close_ends();
}

/* ---- Key files ---- */

static void expect_key(const char *text, int mode, const char *why)
{
    u8 loaded[LINK_KEY_BYTES];
    const char *path = path_of("key");
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    assert_int_equal(chmod(path, (mode_t)mode), 0);
    assert_int_equal(link_key_load(loaded, path), why ? -1 : 0);
    if (why && !strstr(error_text(), why))
        fail_msg("expected \"%s\", found: %s", why, error_text());
}

TEST(key_files_are_long_and_private)
{
    u8 loaded[LINK_KEY_BYTES], again[LINK_KEY_BYTES];
    const char text[] = "0123456789abcdef0123456789abcdef";
    expect_key(text, 0600, NULL);
    expect_key(text, 0644, "others can read or change");
    expect_key(text, 0620, "others can read or change");
    expect_key("short\n", 0600, "has 5 bytes, expected at least 32");
    assert_int_equal(link_key_load(loaded, path_of("no-key")), -1);
    assert_non_null(strstr(error_text(), "No such file"));
    assert_int_equal(link_key_load(loaded, path_of(".")), -1);
    expect_key(text, 0600, NULL);
    assert_int_equal(link_key_load(loaded, path_of("key")), 0);
    expect_key("0123456789abcdef0123456789abcdef\n", 0600, NULL); /* an editor's last newline */
    assert_int_equal(link_key_load(again, path_of("key")), 0);
    assert_memory_equal(loaded, again, sizeof again);
}

/* ---- Rounds ---- */

static struct rounds rounds;

static void begin_rounds(i64 least, double grace_s)
{
    rounds_release(&rounds);
    rounds = (struct rounds){.fragments = 1, .least = least, .grace_s = grace_s};
}

static i64 join(const char *name, i64 version)
{
    return rounds_join(&rounds, name, (i64[ROUNDS_FRAGMENTS]){version});
}

static enum rounds_verdict add(i64 site, i64 round, double now_s)
{
    struct part_head head = {.bits = 4};
    strcpy(head.name, rounds.sites[site].name);
    return rounds_add(&rounds, site, 0, round, &head, sizeof head, now_s);
}

TEST(a_round_closes_when_all_sites_that_are_here_have_sent)
{
    begin_rounds(2, 0);
    i64 a = join("a", 0), b = join("b", 0), c = join("c", 0);
    assert_int_equal(join("b", 0), -1);
    assert_non_null(strstr(error_text(), "a site of the name b is here already"));
    assert_int_equal(add(a, 1, 0), ROUNDS_TAKEN);
    assert_int_equal(add(a, 1, 0), ROUNDS_TWICE);
    assert_int_equal(add(b, 1, 0), ROUNDS_TAKEN);
    assert_false(rounds_closes(&rounds, 0, 1e9)); /* c is here */
    rounds_leave(&rounds, c);
    assert_true(rounds_closes(&rounds, 0, 0)); /* one that leaves costs nothing */
    rounds_close(&rounds, 0);
    rounds_done(&rounds, 0);
    assert_int_equal(add(b, 1, 0), ROUNDS_LATE);
    assert_int_equal(add(b, 3, 0), ROUNDS_STRANGE);
    assert_int_equal(add(b, 2, 0), ROUNDS_TAKEN);
    assert_int_equal(rounds.sites[a].version[0], 1);
    rounds_leave(&rounds, a);
    assert_false(rounds_closes(&rounds, 0, 1e9)); /* two are needed */
    assert_int_equal(join("a", 1), a);
    assert_int_equal(add(a, 2, 0), ROUNDS_TAKEN);
    assert_true(rounds_closes(&rounds, 0, 0));
    rounds_release(&rounds);
}

TEST(a_round_goes_on_without_a_late_site)
{
    begin_rounds(2, 10);
    i64 a = join("a", 4), b = join("b", 4);
    rounds.of[0].version = 4;
    assert_int_equal(add(a, 5, 100), ROUNDS_TAKEN);
    assert_false(rounds_closes(&rounds, 0, 109.9));
    assert_true(rounds_closes(&rounds, 0, 110));
    rounds_close(&rounds, 0);
    rounds_done(&rounds, 0);
    assert_int_equal(rounds.sites[b].version[0], 5); /* it takes the change */
    assert_int_equal(add(b, 5, 111), ROUNDS_LATE);
    assert_int_equal(add(b, 6, 200), ROUNDS_TAKEN);
    assert_false(rounds_closes(&rounds, 0, 209)); /* counted from the first part of this round */
    rounds_release(&rounds);
}

TEST(a_site_that_is_behind_is_not_waited_for)
{
    begin_rounds(1, 0);
    i64 a = join("a", 7);
    rounds.of[0].version = 7;
    join("b", 3);
    assert_int_equal(add(a, 8, 0), ROUNDS_TAKEN);
    assert_true(rounds_closes(&rounds, 0, 0));
    rounds_close(&rounds, 0);
    rounds_done(&rounds, 0);
    assert_int_equal(rounds.sites[1].version[0], 3);
    join("c", 9); /* ahead: it repeats its part */
    assert_int_equal(add(a, 9, 0), ROUNDS_TAKEN);
    assert_false(rounds_closes(&rounds, 0, 0));
    rounds_release(&rounds);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
