/* Fuzz target: what another site may send. Bytes of one that does not know the key are no message; messages that were
 * changed on their way arrive whole up to the change and not behind it; a record that is taken fits the model, and its
 * shares are shares.
 *
 *     0 | piece | bytes of a stranger                1 | place of the change, 2 bytes | kind, bytes, ...
 *     2 | bytes of a record */
#include <math.h>
#include <string.h>

#include "sites/link.h"
#include "sites/merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STRANGER, CHANGED, RECORD, WAYS, BYTES_MOST = 1 << 14, USES = 2, NUMBERS = 4 };
static const u8 key[LINK_KEY_BYTES] = {1};

static void feed_stranger(const u8 *data, i64 bytes)
{
    struct link *link = link_open(key, true);
    struct link_head head;
    struct buffer payload;
    i64 piece = 1 + data[0];
    for (i64 at = 1; at < bytes; at += piece)
        link_feed(link, data + at, min_i64(piece, bytes - at));
    require(!link_proven(link) && !link_next(&head, &payload, link), "a message without the key");
    link_close(link);
}

static void carry(struct link *to, struct link *from)
{
    i64 bytes;
    const char *data = link_output(from, &bytes);
    link_feed(to, data, bytes);
    link_sent(from, bytes);
}

/* Messages of a kind and so many bytes each. Returns how many. */
static i64 send_all(struct link *link, const u8 *data, i64 bytes)
{
    i64 count = 0;
    for (i64 at = 0, here; at + 2 <= bytes; at += 2 + here, count++) {
        here = min_i64(data[at + 1] * 7, bytes - at - 2);
        link_send(link, &(struct link_head){1 + data[at] % (LINK_KINDS - 1), 0, count, 0, here}, data + at + 2);
    }
    return count;
}

static void feed_changed(const u8 *data, i64 bytes)
{
    struct link *one = link_open(key, false), *other = link_open(key, true);
    struct link_head head;
    struct buffer payload, sent = {0};
    i64 heard = 0, length;
    carry(other, one);
    carry(one, other);
    carry(other, one);
    for (enum link_kind kind = LINK_HELLO; kind < LINK_KINDS; kind++)
        link_allow(other, kind, BYTES_MOST);
    i64 count = send_all(one, data + 2, bytes - 2), change = data[0] + 256 * data[1];
    const char *out = link_output(one, &length);
    buffer_append(&sent, out, length);
    bool changed = change < length;
    if (changed)
        sent.data[change] ^= 1;
    link_feed(other, sent.data, sent.length);
    for (; link_next(&head, &payload, other); heard++) {
        require(head.number == heard && head.bytes == payload.length, "message %lld of %lld", (long long)head.number,
                (long long)heard);
        buffer_release(&payload);
    }
    require(changed ? heard < count : heard == count, "%lld of %lld messages", (long long)heard, (long long)count);
    buffer_release(&sent);
    link_close(one);
    link_close(other);
}

static void read_record(const u8 *data, i64 bytes)
{
    static const struct part_sizes sizes = {USES, {[4] = 4, [8] = 6, [16] = 8, [32] = 16}};
    static double shares[SITES_MOST];
    struct record record;
    float change[NUMBERS], scratch[NUMBERS];
    if (record_read(&record, data, bytes, &sizes))
        return;
    require(record.count >= 1 && record.count <= SITES_MOST, "%lld sites", (long long)record.count);
    bool whole = true;
    for (i64 i = 0; i < record.count; i++) {
        require(site_name_is_good(record.parts[i].head.name), "a name");
        whole &= !record.parts[i].head.omitted;
    }
    for (i64 use = -1; use < USES; use++) {
        double sum = 0;
        record_shares(shares, &record, use);
        for (i64 i = 0; i < record.count; i++)
            sum += shares[i];
        require(sum == 0 || fabs(sum - 1) < 1e-9 || !isfinite(sum), "shares of %g", sum);
    }
    if (whole)
        record_change(change, scratch, &record, &(struct share_runs){0, INT64_MAX / 2, shares}, (i64[33]){0}, false,
                      NUMBERS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || size > BYTES_MOST)
        return 0;
    if (data[0] % WAYS == STRANGER)
        feed_stranger(data + 1, (i64)size - 1);
    else if (data[0] % WAYS == CHANGED)
        feed_changed(data + 1, (i64)size - 1);
    else
        read_record(data + 1, (i64)size - 1);
    return 0;
}
