/* One GET; http.c is the only file that knows libcurl. Nothing is tried again here: remote.c does. */
#ifndef WEFT_DATA_HTTP_H
#define WEFT_DATA_HTTP_H
#include "core/core.h"

#include <stdatomic.h>

/* Where to ask, and as whom. */
struct http_target {
    char *url;
    char *user, *secret, *token, *signing; /* of s3://, signing as libcurl writes it; user NULL: anonymous */
    bool s3;
};
struct http_request {
    const struct http_target *target;
    i64 first, last;         /* bytes; last -1: to the end; 0 and -1: no range is asked for */
    const char *only_as;     /* an ETag: nothing, if it is another; NULL */
    double stall_s;          /* in so many seconds at least 1 KiB a second has to come */
    const atomic_bool *stop; /* NULL; true: it need not go on */
};
enum { COMPLAINT_BYTES = 4096 };
struct http_answer {
    int status;                          /* 0: none came */
    i64 first, total;                    /* of a range: its first byte; of the file: its bytes; -1: not said */
    char *version;                       /* ETag, else when it was modified last; NULL */
    char *region;                        /* of a bucket that is elsewhere; NULL */
    double retry_s;                      /* Retry-After; 0: not said */
    char complaint[COMPLAINT_BYTES + 1]; /* begin of a body that is no success */
    char problem[256];                   /* of the connection; "": none */
};
enum http_result {
    HTTP_DONE,    /* an answer, and all of its body */
    HTTP_STOPPED, /* by the taker, by `stop`, or interrupted() */
    HTTP_BROKEN,
    HTTP_UNREACHED, /* no connection: the host is not known, refuses it, or says nothing for 10 s */
    HTTP_NEVER      /* it would not be otherwise the next time: no such protocol, a certificate that is not trusted */
};
/* What comes of a body of status 200 or 206; false: enough. */
typedef bool http_taker(void *context, const struct http_answer *answer, const u8 *bytes, i64 count);

struct http;
struct http *http_open(void); /* keeps connections between requests; NULL: this program was built without libcurl */
enum http_result http_get(struct http *http, struct http_answer *answer, const struct http_request *request,
                          http_taker *take, void *context);
void http_answer_release(struct http_answer *answer);
void http_close(struct http *http);

#endif
