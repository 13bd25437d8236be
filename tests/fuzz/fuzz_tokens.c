/* Fuzz target: any bytes as the target of a request to a shard server, or as the reply of one (its
 * version and checksum fixed up, so that the code behind them is reached), are accepted or refused with
 * a message. A reply is header lines up to an empty one, and a body. */
#include "data/stream/tokens.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MOST = 1 << 15 };

static void ask(const char *text)
{
    struct token_request r, again;
    enum token_part part, same;
    if (token_target_read(&r, &part, text) < 0) {
        require(*error_text(), "a refused target leaves no message");
        return;
    }
    char *target = token_target(&r, part);
    require(token_target_read(&again, &same, target) == 0 && same == part && memcmp(&again, &r, sizeof r) == 0,
            "a target that differs when it is written and read");
    require(token_request_check(&r, r.stream, 3) == 0 || *error_text(), "a refused request leaves no message");
    memory_free(target);
}

/* The length of the line at `at`, with its end. */
static i64 line_bytes(const char *at, const char *end)
{
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    return line_end ? line_end + 1 - at : end - at;
}

static void add_line(struct http_answer *a, const char *format, unsigned long long value)
{
    char line[64];
    snprintf(line, sizeof line, format, value);
    http_answer_line(a, line, (i64)strlen(line));
}

static void answer(const char *data, i64 size, enum token_part part, bool repaired)
{
    static char path[64];
    const struct token_request r = token_request(7, &(struct ring_name){.readers = 1}, 1, 3, 0, 5);
    struct secret secret = {.given = false};
    struct buffer index = {0};
    struct http_answer a = {.first = -1, .total = -1};
    const char *at = data, *end = data + size;
    char *target = token_target(&r, part);
    i64 number, bytes;
    snprintf(path, sizeof path, "/dev/shm/weft-fuzz-tokens-%ld", (long)getpid());
    struct token_delivery d = {
        .part = part, .target = target, .nonce = "", .secret = &secret, .path = path, .body = &index};
    for (bytes = 0; at < end && (bytes = line_bytes(at, end)) > 1; at += bytes)
        http_answer_line(&a, at, bytes);
    at += at < end;
    if (repaired) { /* the first of two lines counts, so these come first */
        http_answer_release(&a);
        add_line(&a, "HTTP/1.1 %llu Status", size % 2 ? 200 : size % 4 ? 404 : 202);
        add_line(&a, "Weft-Tokens: %llu", TOKENS_VERSION);
        add_line(&a, "Content-Length: %llu", (u64)(end - at));
        bool text = a.status != 200;
        i64 hashed = text ? min_i64((i64)strnlen(at, (size_t)(end - at)), COMPLAINT_BYTES) : end - at;
        add_line(&a, "Weft-Hash: %016llx", token_reply_hash(a.status, target, at, hashed));
    }
    bool goes_on = true;
    for (; at < end && goes_on; at += bytes) {
        bytes = min_i64(end - at, 777);
        if (a.status == 200 || a.status == 206)
            goes_on = token_delivery_take(&d, &a, (const u8 *)at, bytes);
        else
            http_answer_complaint(&a, at, bytes);
    }
    int kind = token_delivery_end(&d, &a, &number);
    require(kind >= 0 || *error_text(), "a refused answer leaves no message");
    require(kind == RING_SHARD || !file_exists(path), "a refused answer leaves a file");
    require(kind != RING_ENDED || number >= 0, "a part of %lld shards", (long long)number);
    unlink(path);
    http_answer_release(&a);
    buffer_release(&index);
    memory_free(target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer text = {0};
    buffer_append(&text, data, size > BYTES_MOST ? BYTES_MOST : (i64)size);
    buffer_append(&text, "", 1);
    ask(text.data);
    for (int part = 0; part < TOKENS_PARTS; part++)
        for (int repaired = 0; repaired < 2; repaired++)
            answer(text.data, text.length - 1, (enum token_part)part, repaired);
    buffer_release(&text);
    return 0;
}
