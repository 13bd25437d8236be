/* Fuzz target: any bytes as a request to a shard server, or as its reply (magic and checksum fixed
 * up, so that the code behind them is reached), are accepted or refused with a message. */
#include "data/shards/shard_layout.h"
#include "data/stream/tokens.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MOST = 1 << 15 }; /* fits a socket buffer without a reader */

static void ask(const uint8_t *data, size_t size)
{
    struct token_request r = token_request(7, &(struct ring_name){.readers = 1}, 0, 3, 0, 0);
    size_t kept = sizeof r.magic + sizeof r.version; /* kept: wrong ones would refuse all other inputs */
    if (size >= sizeof r)
        memcpy((u8 *)&r + kept, data + kept, sizeof r - kept);
    require(token_request_check(&r, r.identity, 3) == 0 || *error_text(), "a refused request leaves no message");
}

/* Fixes up a header whose payload matches; leaves the bytes unchanged otherwise. */
static void repair(u8 *bytes, i64 size, const struct token_request *asked)
{
    struct token_reply r, sane = token_reply(asked, REPLY_SHARD);
    if (size < (i64)sizeof r)
        return;
    memcpy(&r, bytes, sizeof r);
    memcpy(&r, &sane, sizeof r.magic + sizeof r.version);
    r.kind %= REPLY_KINDS + 1;
    r.partition = sane.partition;
    r.pass = sane.pass;
    r.number = sane.number;
    r.index_bytes %= 512;
    r.shard_bytes = r.kind == REPLY_SHARD ? r.shard_bytes % 512 : 0;
    i64 index = (i64)r.index_bytes, shard = (i64)r.shard_bytes, head = sizeof r;
    if (head + index + shard <= size)
        r.hash = hash_bytes(bytes + head, index, token_reply_hash(&r));
    if (head + index + shard <= size && r.kind == REPLY_SHARD)
        r.hash = hash_bytes(bytes + head + index, shard, r.hash);
    memcpy(bytes, &r, sizeof r);
}

static void answer(const uint8_t *data, i64 size, bool repaired)
{
    static char path[64];
    const struct token_request r = token_request(7, &(struct ring_name){.readers = 1}, 1, 3, 0, 5);
    struct buffer index = {0}, bytes = {0};
    i64 end;
    int pair[2];
    snprintf(path, sizeof path, "/dev/shm/weft-fuzz-tokens-%ld", (long)getpid());
    buffer_append(&bytes, data, size);
    if (repaired && size)
        repair((u8 *)bytes.data, size, &r);
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && tokens_send(pair[0], bytes.data, size) == 0,
            "no sockets");
    close(pair[0]);
    int kind = tokens_answer(pair[1], &r, path, &index, &end);
    require(kind >= 0 || *error_text(), "a refused answer leaves no message");
    close(pair[1]);
    unlink(path);
    buffer_release(&index);
    buffer_release(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size = size > BYTES_MOST ? BYTES_MOST : size;
    ask(data, size);
    answer(data, (i64)size, false);
    answer(data, (i64)size, true);
    return 0;
}
