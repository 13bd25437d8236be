/* Reads the head of an answer line by line, and keeps the begin of an error's body. */
#include "data/remote/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The trimmed value of a header line with this name, or NULL if the name differs. Release with
 * memory_free. */
static char *value_of(const char *line, size_t length, const char *name)
{
    size_t n = strlen(name);
    if (length <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
        return NULL;
    const char *begin = line + n + 1, *end = line + length;
    while (begin < end && strchr(" \t", *begin))
        begin++;
    while (end > begin && strchr(" \t\r\n", end[-1]))
        end--;
    return string_format("%.*s", (int)(end - begin), begin);
}

/* Parses Content-Range, "bytes FIRST-LAST/TOTAL", in which FIRST-LAST or TOTAL may be an
 * asterisk. */
static void read_range(struct http_answer *a, const char *value)
{
    const char *slash = strchr(value, '/');
    if (strncasecmp(value, "bytes ", 6) != 0 || !slash)
        return;
    char *end;
    i64 first = strtoll(value + 6, &end, 10), total = strtoll(slash + 1, NULL, 10);
    a->first = end > value + 6 ? first : -1;
    a->total = slash[1] >= '0' && slash[1] <= '9' ? total : -1;
}

void http_answer_release(struct http_answer *a)
{
    memory_free(a->version);
    memory_free(a->region);
    buffer_release(&a->head);
    *a = (struct http_answer){0};
}

/* Resets the answer at a status line. After redirections the last head counts. */
static void begin_answer(struct http_answer *a, const char *line)
{
    int status = 0;
    http_answer_release(a);
    sscanf(line, "HTTP/%*s %d", &status);
    a->status = status;
    a->first = a->total = -1;
}

char *http_answer_header(const struct http_answer *a, const char *name)
{
    char *value = NULL;
    for (const char *line = a->head.data; line && *line && !value; line += strspn(line, "\n")) {
        size_t length = strcspn(line, "\n");
        value = value_of(line, length, name);
        line += length;
    }
    return value;
}

static void read_header(struct http_answer *a, const char *line, size_t length)
{
    char *value;
    if (a->head.length + (i64)length < HEAD_BYTES)
        buffer_printf(&a->head, "%.*s\n", (int)strcspn(line, "\r\n"), line);
    if ((value = value_of(line, length, "etag")) != NULL) {
        memory_free(a->version);
        a->version = value;
        return;
    }
    if ((value = value_of(line, length, "last-modified")) != NULL) {
        if (!a->version)
            a->version = string_copy(value);
    } else if ((value = value_of(line, length, "content-range")) != NULL) {
        read_range(a, value);
    } else if ((value = value_of(line, length, "content-length")) != NULL) {
        a->total = a->status == 200 ? strtoll(value, NULL, 10) : a->total;
    } else if ((value = value_of(line, length, "retry-after")) != NULL) {
        a->retry_s = strtod(value, NULL);
    } else if ((value = value_of(line, length, "x-amz-bucket-region")) != NULL && !a->region) {
        a->region = string_copy(value);
    }
    memory_free(value);
}

void http_answer_line(struct http_answer *a, const char *line, i64 length)
{
    char *copy = string_format("%.*s", (int)length, line);
    if (strncmp(copy, "HTTP/", 5) == 0)
        begin_answer(a, copy);
    else
        read_header(a, copy, strlen(copy));
    memory_free(copy);
}

void http_answer_complaint(struct http_answer *a, const char *bytes, i64 count)
{
    i64 there = (i64)strlen(a->complaint), kept = min_i64(count, COMPLAINT_BYTES - there);
    memcpy(a->complaint + there, bytes, (size_t)kept);
    a->complaint[there + kept] = 0;
}
