#include "data/remote/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REDIRECTS_MOST = 8, LEAST_BYTES_A_SECOND = 1024, CONNECT_MOST_S = 10, YEAR_S = 366 * 24 * 3600 };

struct http {
    CURL *curl;
};
struct http_transfer {
    const struct http_request *request;
    struct http_answer *answer;
    http_taker *take;
    void *context;
    /* since_s, bytes: begin of the current stall window, and the bytes received in it. */
    double since_s;
    i64 bytes;
    bool stopped, stalled;
};

/* ---- Head and body of an answer ---- */

static size_t on_header(char *line, size_t one, size_t length, void *context)
{
    struct http_transfer *t = context;
    http_answer_line(t->answer, line, (i64)length);
    return one * length;
}

/* Passes the body on. Time spent in the taker does not count as a stall. */
static size_t on_body(char *bytes, size_t one, size_t count, void *context)
{
    struct http_transfer *t = context;
    if (t->answer->status != 200 && t->answer->status != 206) {
        http_answer_complaint(t->answer, bytes, (i64)count);
        return count;
    }
    double begin_s = clock_s();
    t->bytes += (i64)count;
    if (!t->take(t->context, t->answer, (const u8 *)bytes, (i64)count)) {
        t->stopped = true;
        return CURL_WRITEFUNC_ERROR;
    }
    t->since_s += clock_s() - begin_s;
    return one * count;
}

/* Checks for a stop and for stalls. libcurl calls it at least once a second, also while nothing
 * arrives. */
static int on_progress(void *context, curl_off_t all, curl_off_t now, curl_off_t all_up, curl_off_t now_up)
{
    struct http_transfer *t = context;
    const struct http_request *r = t->request;
    double time_s = clock_s() - t->since_s;
    (void)all, (void)now, (void)all_up, (void)now_up;
    if (interrupted() || (r->stop && atomic_load(r->stop))) {
        t->stopped = true;
        return 1;
    }
    if (time_s < r->stall_s)
        return 0;
    t->stalled = (double)t->bytes < time_s * LEAST_BYTES_A_SECOND;
    t->since_s = clock_s();
    t->bytes = 0;
    return t->stalled;
}

/* ---- Requests ---- */

static void start_library(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct http *http_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_library);
    struct http *http = memory_alloc(sizeof *http);
    http->curl = curl_easy_init();
    require_memory(http->curl, "a connection");
    return http;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    curl_easy_cleanup(http->curl);
    memory_free(http);
}

/* Sets URL, credentials and redirections. s3:// follows no redirections; other schemes do, but
 * never from TLS to plain HTTP. */
static void set_target(CURL *curl, const struct http_target *t)
{
    const char *certificates = getenv("SSL_CERT_FILE");
    bool plain = strncmp(t->url, "http:", 5) == 0;
    curl_easy_setopt(curl, CURLOPT_URL, t->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, plain ? "http,https" : "https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, t->s3 ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MOST);
    if (certificates && *certificates)
        curl_easy_setopt(curl, CURLOPT_CAINFO, certificates);
    if (t->user) {
        curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, t->signing);
        curl_easy_setopt(curl, CURLOPT_USERNAME, t->user);
        curl_easy_setopt(curl, CURLOPT_PASSWORD, t->secret);
    } else if (!t->s3) {
        curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    }
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    char *line = value ? string_format("%s: %s", name, value) : NULL;
    list = line ? curl_slist_append(list, line) : list;
    memory_free(line);
    return list;
}

static struct curl_slist *set_own(CURL *curl, const char *const *lines, struct curl_slist *list)
{
    for (; *lines; lines++)
        list = curl_slist_append(list, *lines);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXAGE_CONN, (long)YEAR_S);
    return list;
}

/* SHA-256 of an empty body. S3 requires it, and libcurl before 8 does not send it. */
static const char nothing_sha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

static struct curl_slist *set_request(CURL *curl, const struct http_request *r)
{
    char range[64];
    struct curl_slist *headers = add_header(NULL, "If-Match", r->only_as);
    headers = add_header(headers, "x-amz-security-token", r->target->token);
    headers = add_header(headers, "x-amz-content-sha256", r->target->user ? nothing_sha256 : NULL);
    if (r->headers)
        headers = set_own(curl, r->headers, headers);
    snprintf(range, sizeof range, r->last < 0 ? "%lld-" : "%lld-%lld", (long long)r->first, (long long)r->last);
    if (r->first > 0 || r->last >= 0)
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "weft");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                     r->stall_s < CONNECT_MOST_S ? (long)(1000 * r->stall_s) + 1 : 1000L * CONNECT_MOST_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    return headers;
}

static void set_transfer(CURL *curl, struct http_transfer *t)
{
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 1L << 18);
}

static enum http_result result_of(CURL *curl, const struct http_transfer *t, CURLcode code, const char *said)
{
    struct http_answer *a = t->answer;
    long number = 0;
    if (t->stopped || interrupted())
        return HTTP_STOPPED;
    if (code == CURLE_OK)
        return HTTP_DONE;
    if (t->stalled)
        snprintf(a->problem, sizeof a->problem, "less than 1 KiB a second came for %g s", t->request->stall_s);
    else if (code == CURLE_COULDNT_CONNECT && curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &number) == CURLE_OK && number)
        snprintf(a->problem, sizeof a->problem, "no connection: %s", strerror((int)number));
    else
        snprintf(a->problem, sizeof a->problem, "%s", *said ? said : curl_easy_strerror(code));
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_NOT_BUILT_IN:
        return HTTP_NEVER;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_UNREACHED;
    default:
        return HTTP_BROKEN;
    }
}

enum http_result http_get(struct http *http, struct http_answer *answer, const struct http_request *request,
                          http_taker *take, void *context)
{
    char said[CURL_ERROR_SIZE] = "";
    struct http_transfer t = {
        .request = request, .answer = answer, .take = take, .context = context, .since_s = clock_s()};
    *answer = (struct http_answer){.first = -1, .total = -1};
    curl_easy_reset(http->curl);
    set_target(http->curl, request->target);
    set_transfer(http->curl, &t);
    curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, said);
    struct curl_slist *headers = set_request(http->curl, request);
    CURLcode code = curl_easy_perform(http->curl);
    enum http_result result = result_of(http->curl, &t, code, said);
    curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return result;
}
