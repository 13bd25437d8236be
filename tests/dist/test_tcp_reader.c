/* Memory for a frame of a peer follows what has arrived of it, and not what its head says. */
#include <string.h>

#include "dist/tcp_reader.h"
#include "tests/test.h"

enum { LONG_BYTES = 3 * TCP_EARLY_BYTES + 5, PIECE = 1 << 20 };

static u8 value_of(i64 i)
{
    return (u8)(i * 2654435761 >> 13);
}

/* Puts up to `bytes` bytes from byte `first` of the data on; header: at its beginning. Returns those put. */
static i64 put(struct tcp_reader *r, const struct tcp_header *header, i64 first, i64 bytes)
{
    i64 room;
    u8 *to = tcp_reader_space(r, &room);
    assert_true(room > 0);
    room = min_i64(room, bytes);
    for (i64 i = 0; i < room; i++)
        to[i] = header ? ((const u8 *)header)[i] : value_of(first + i);
    assert_int_equal(tcp_reader_advance(r, room), 0);
    return room;
}

TEST(a_head_alone_allocates_little)
{
    struct tcp_kept *spare = NULL;
    struct tcp_reader r = {.spare = &spare};
    struct tcp_header head = {.comm = 7, .tag = 1, .bytes = TCP_KEPT_BYTES - TCP_KEPT_HEAD_BYTES};
    put(&r, &head, 0, sizeof head);
    assert_true(r.kept && r.kept->capacity <= TCP_EARLY_BYTES);
    put(&r, NULL, 0, 100);
    assert_true(r.kept->capacity <= TCP_EARLY_BYTES);
    tcp_reader_release(&r);
}

TEST(a_long_frame_arrives_whole_before_its_receive)
{
    struct tcp_kept *spare = NULL;
    struct tcp_reader r = {.spare = &spare};
    struct tcp_header head = {.comm = 7, .tag = 1, .bytes = LONG_BYTES};
    u8 *data = memory_alloc(LONG_BYTES);
    struct tcp_receive w = {.expected = head, .data = data};
    for (int times = 0; times < 2; times++) { /* the second one reuses the memory */
        put(&r, &head, 0, sizeof head);
        for (i64 done = 0; done < LONG_BYTES;) {
            done += put(&r, NULL, done, min_i64(PIECE, LONG_BYTES - done));
            assert_true(!r.kept || times || r.kept->capacity <= max_i64(TCP_EARLY_BYTES, 2 * done));
        }
        memset(data, 0, LONG_BYTES);
        assert_int_equal(tcp_reader_post(&r, &w), 0);
        assert_true(w.done);
        for (i64 i = 0; i < LONG_BYTES; i++)
            if (data[i] != value_of(i))
                fail_msg("byte %lld", (long long)i);
        w.done = false;
    }
    assert_true(spare && !spare->next);
    tcp_reader_release(&r);
    tcp_kept_free(spare);
    memory_free(data);
}

TEST(what_cannot_be_read_on_is_named)
{
    struct tcp_header heads[] = {{7, 1, -1}, {7, 1, tcp_frame_most_bytes + 1}, {7, LOWEST_TAG - 1, 0}, {7, 2, 9}};
    char data[8];
    for (i64 i = 0; i < COUNT_OF(heads); i++) {
        struct tcp_kept *spare = NULL;
        struct tcp_reader r = {.spare = &spare};
        struct tcp_receive w = {.expected = {7, 2, 8}, .from = 3, .data = data};
        i64 room;
        assert_int_equal(tcp_reader_post(&r, &w), 0);
        memcpy(tcp_reader_space(&r, &room), &heads[i], sizeof heads[i]);
        assert_int_equal(tcp_reader_advance(&r, sizeof heads[i]), -1);
        assert_non_null(strstr(error_text(), heads[i].tag == 2 ? "a message of 9 bytes from rank 3, 8 were expected"
                                                               : "what is no frame"));
        assert_true(r.unfit == (heads[i].tag == 2 ? &w : NULL));
        tcp_reader_release(&r);
        tcp_kept_free(spare);
    }
}

/* A kept frame counts with its head until its receive takes it. */
TEST(frames_for_nobody_are_bounded)
{
    struct tcp_kept *spare = NULL;
    struct tcp_reader r = {.spare = &spare, .kept_bytes = TCP_KEPT_BYTES - TCP_KEPT_HEAD_BYTES - 8};
    struct tcp_header fits = {.comm = 7, .tag = 1, .bytes = 8}, empty = {.comm = 9, .tag = 1};
    i64 data, room;
    struct tcp_receive w = {.expected = fits, .data = &data};
    put(&r, &fits, 0, sizeof fits);
    put(&r, NULL, 0, 8);
    assert_int_equal(tcp_reader_post(&r, &w), 0);
    assert_true(w.done);
    put(&r, &fits, 0, sizeof fits);
    put(&r, NULL, 0, 8);
    memcpy(tcp_reader_space(&r, &room), &empty, sizeof empty);
    assert_int_equal(tcp_reader_advance(&r, sizeof empty), -1);
    assert_non_null(strstr(error_text(), "more than 1024 MiB that this rank does not ask for"));
    tcp_reader_release(&r);
    tcp_kept_free(spare);
}

TEST(signs_of_life_are_not_kept)
{
    struct tcp_kept *spare = NULL;
    struct tcp_reader r = {.spare = &spare};
    struct tcp_header beat = {.comm = 0, .tag = BEAT_TAG}, head = {.comm = 7, .tag = 1, .bytes = 8};
    i64 data;
    struct tcp_receive w = {.expected = head, .data = &data};
    assert_int_equal(tcp_reader_post(&r, &w), 0);
    for (int i = 0; i < 3; i++)
        put(&r, &beat, 0, sizeof beat);
    assert_true(!r.arrived && !r.kept && r.kept_bytes == 0 && !w.done);
    put(&r, &head, 0, sizeof head);
    put(&r, NULL, 0, 8);
    assert_true(w.done);
    tcp_kept_free(spare);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
