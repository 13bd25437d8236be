/* Fuzz target: any bytes as what a server sends. The first byte selects: a listing of S3 (the
 * address has a key or none), or the answers to the requests of a reader, which are heads of lines
 * up to an empty one and bodies up to a line "%%". What is read are bytes of bodies, in their
 * order, and reading ends. This file takes the place of http.c. */
#include "data/remote/remote.h"
#include "tokenizers/text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- The server ---- */

struct http {
    int unused;
};
static const char *sent, *sent_end; /* what the server has not sent yet */
static i64 body_bytes;              /* sent in bodies of answers with status 200 or 206 */

struct http *http_open(void)
{
    return memory_alloc(sizeof(struct http));
}

void http_close(struct http *http)
{
    memory_free(http);
}

/* The next line without its end; the bytes after the last line end form a line too. */
static const char *take_line(i64 *length)
{
    const char *line = sent, *end = memchr(sent, '\n', (size_t)(sent_end - sent));
    *length = (end ? end : sent_end) - line;
    sent = end ? end + 1 : sent_end;
    return line;
}

enum http_result http_get(struct http *http, struct http_answer *answer, const struct http_request *request,
                          http_taker *take, void *context)
{
    i64 length;
    (void)http, (void)request;
    *answer = (struct http_answer){.first = -1, .total = -1};
    if (sent == sent_end)
        return HTTP_BROKEN;
    for (const char *line = take_line(&length); length; line = take_line(&length))
        http_answer_line(answer, line, length);
    answer->retry_s = 0; /* reading does not pause */
    while (sent < sent_end) {
        const char *line = take_line(&length);
        if (length == 2 && memcmp(line, "%%", 2) == 0)
            return HTTP_DONE;
        if (answer->status != 200 && answer->status != 206) {
            http_answer_complaint(answer, line, sent - line);
            continue;
        }
        body_bytes += sent - line;
        if (!take(context, answer, (const u8 *)line, sent - line))
            return HTTP_STOPPED;
    }
    return HTTP_BROKEN;
}

/* ---- The readers ---- */

static void list(const char *address, const char *bucket)
{
    struct buffer page = {0};
    struct remote_list objects = {0};
    char *token = NULL;
    buffer_append(&page, sent, sent_end - sent);
    int status = s3_listing_read(&objects, &token, &page, address);
    require(status == 0 || strstr(error_text(), address), "a refused listing leaves no message");
    require(status == 0 || objects.count == 0, "files of a refused listing");
    for (i64 i = 0; i < objects.count; i++) {
        const char *name = objects.objects[i].address;
        require(text_invalid_utf8(page.data, page.length) >= 0 || text_invalid_utf8(name, (i64)strlen(name)) < 0,
                "a file called %s", name);
        require(strncmp(name, bucket, strlen(bucket)) == 0 && name[strlen(name) - 1] != '/', "a file called %s", name);
    }
    memory_free(token);
    buffer_release(&page);
    remote_list_release(&objects);
}

static void read_through(bool by_ranges)
{
    static u8 bytes[1 << 16];
    struct remote *remote = remote_open("http://fuzz/a.tar");
    i64 total = remote_bytes(remote), all = 0, count = 0;
    require(total >= -2 && (total != -2 || *error_text()), "a size of %lld", (long long)total);
    if (by_ranges) {
        int status = remote_read_at(remote, bytes, 2, 5);
        require(status == 0 || *error_text(), "a failed read leaves no message");
        require(status < 0 || body_bytes >= 5, "bytes out of nothing");
    } else {
        while ((count = remote_read(remote, bytes, sizeof bytes)) > 0)
            all += count;
        require(count == 0 || *error_text(), "a failed read leaves no message");
        require(all <= body_bytes, "%lld bytes of %lld", (long long)all, (long long)body_bytes);
    }
    remote_close(remote);
}

static void ask(void)
{
    struct buffer body = {0};
    struct http_target target = {.url = (char *)(uintptr_t) "http://fuzz/"};
    int status = remote_ask(&body, 64, &target, "http://fuzz/");
    require(status == 0 ? body.length <= 64 : *error_text() != 0, "a body of %lld bytes", (long long)body.length);
    buffer_release(&body);
}

static void stat_one(void)
{
    struct remote_object object = {.address = (char *)(uintptr_t) "http://fuzz/a.tar"};
    struct http *http = http_open();
    require(remote_stat(&object, http) < 0 || object.bytes >= 0, "a size of %lld", (long long)object.bytes);
    memory_free(object.version);
    http_close(http);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LIST, LIST_KEY, STREAM, RANGES, ASK, STAT, KINDS };
    if (size == 0)
        return 0;
    log_set_level(LOG_SILENT);
    remote_retry = (struct remote_retry){.tries = 3, .tries_unknown = 2, .stall_s = 1};
    remote_buffers =
        (struct remote_buffers){.block_bytes = 64, .ring_bytes = 64}; /* large ones take most of the time */
    sent = (const char *)data + 1;
    sent_end = (const char *)data + size;
    body_bytes = 0;
    int kind = data[0] % KINDS;
    if (kind == LIST || kind == LIST_KEY)
        list(kind == LIST ? "s3://bucket" : "s3://bucket/folder/", "s3://bucket/");
    else if (kind == ASK)
        ask();
    else if (kind == STAT)
        stat_one();
    else
        read_through(kind == RANGES);
    return 0;
}
