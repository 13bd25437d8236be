/* Replaces http.c in a build without libcurl. */
#include "data/remote/http.h"

struct http *http_open(void)
{
    error_set(
        "addresses and token servers are read by libcurl, 7.87 or newer, which this program was built without: install "
        "libcurl4-openssl-dev and build again");
    return NULL;
}

enum http_result http_get(struct http *http, struct http_answer *answer, const struct http_request *request,
                          http_taker *take, void *context)
{
    (void)http, (void)answer, (void)request, (void)take, (void)context;
    panic("a request without libcurl");
}

void http_close(struct http *http)
{
    (void)http;
}
