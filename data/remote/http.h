/* Sends one GET request. http.c is the only file that uses libcurl; http_head.c reads the heads of
 * answers. Neither retries; remote_fetch.c does. */
#ifndef WEFT_DATA_HTTP_H
#define WEFT_DATA_HTTP_H
#include "core/core.h"

#include <stdatomic.h>

/* URL and credentials of a request. */
struct http_target {
    char *url;
    /* Credentials for s3://; signing is libcurl's AWS_SIGV4 string; user NULL: anonymous. */
    char *user, *secret, *token, *signing;
    bool s3;
};
struct http_request {
    const struct http_target *target;
    i64 first, last;     /* byte range; last -1: to the end; 0 and -1: no range */
    const char *only_as; /* ETag for If-Match, or NULL */
    double stall_s;      /* fail if less than 1 KiB/s arrives for this long */
    /* Of a server of this program: further headers, as "NAME: VALUE", NULL-terminated. It is asked without a
     * proxy, ~/.netrc and redirections, and the connection is kept however long it is idle. NULL: a file. */
    const char *const *headers;
    const atomic_bool *stop; /* true cancels the request; NULL: never */
};
enum { COMPLAINT_BYTES = 4096, HEAD_BYTES = 1 << 15 };
struct http_answer {
    int status;                          /* HTTP status; 0: no answer */
    i64 first, total;                    /* first byte of the range; size of the file; -1: not stated */
    char *version;                       /* ETag, else Last-Modified; NULL: neither */
    char *region;                        /* region of a bucket hosted elsewhere, or NULL */
    double retry_s;                      /* Retry-After; 0: not stated */
    struct buffer head;                  /* all header lines, at most HEAD_BYTES */
    char complaint[COMPLAINT_BYTES + 1]; /* begin of an error's body */
    char problem[256];                   /* error of the connection, or "" */
};
enum http_result {
    HTTP_DONE,    /* an answer with its whole body */
    HTTP_STOPPED, /* stopped by the taker, `stop` or interrupted() */
    HTTP_BROKEN,
    HTTP_UNREACHED, /* no connection: unknown host, connection refused, or no response for 10 s */
    HTTP_NEVER      /* a retry cannot help: unsupported protocol, untrusted certificate */
};
/* Receives the body of an answer with status 200 or 206, piece by piece. Returning false stops the
 * transfer. */
typedef bool http_taker(void *context, const struct http_answer *answer, const u8 *bytes, i64 count);

struct http;
/* Keeps connections alive between requests. NULL with a message: built without libcurl. */
struct http *http_open(void);
enum http_result http_get(struct http *http, struct http_answer *answer, const struct http_request *request,
                          http_taker *take, void *context);
void http_answer_release(struct http_answer *answer);
char *http_answer_header(const struct http_answer *answer, const char *name); /* memory_free; NULL: absent */
/* Reads a line of an answer's head. A status line starts the answer anew: after redirections the
 * last head counts. */
void http_answer_line(struct http_answer *answer, const char *line, i64 length);
/* Appends bytes of an error's body to the complaint while there is room. */
void http_answer_complaint(struct http_answer *answer, const char *bytes, i64 count);
void http_close(struct http *http);

#endif
