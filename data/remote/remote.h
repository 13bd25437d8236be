/* Reads files at addresses: http://HOST/PATH, https://HOST/PATH, s3://BUCKET/KEY.
 *
 * Query strings (presigned addresses) are sent as given, but are never written or shown: see
 * address_query.c.
 *
 * s3:// uses AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or is anonymous
 * without them. It reads AWS_REGION (default us-east-1) and AWS_ENDPOINT_URL (default Amazon).
 * Credentials of other hosts come from ~/.netrc: an address must not hold any, because it is
 * written into the files that are made from it.
 *
 * A connection that breaks or stalls is reopened and continues at the next byte, after pauses that
 * double, for a limited number of tries (fewer if the host never answered this process). The file
 * must still be the same: its ETag or Last-Modified and its size are compared. Permanent failures
 * (404, 403) are not retried.
 *
 * In: an address. Out: bytes, sizes and lists of files. The caller closes what it opens and
 * frees lists; an open remote owns its connection, its thread and its cache of blocks.
 *
 * Where is what: blob.h reads a file wherever it is, and most callers include only that;
 * address.c checks and expands addresses, address_query.c keeps their secrets; remote.c reads
 * ahead and at offsets; remote_fetch.c retries, remote_hosts.c bounds the tries; http.c is the
 * one user of libcurl, http_head.c reads heads of answers; s3.c makes URLs and credentials and
 * reads listings; remote_list.c lists folders. */
#ifndef WEFT_DATA_REMOTE_H
#define WEFT_DATA_REMOTE_H
#include "data/remote/http.h"

struct remote_retry {
    int tries;         /* consecutive tries with less than 1 MiB of progress */
    int tries_unknown; /* the same while a host that never answered is unreachable */
    /* pause_s: first pause, doubled each time; pause_most_s: its maximum; stall_s: see
     * http_request. */
    double pause_s, pause_most_s, stall_s;
};
extern struct remote_retry remote_retry; /* tests lower the limits */
struct remote_buffers {
    i64 block_bytes; /* of a block in the cache of remote_read_at */
    i64 ring_bytes;  /* read ahead by remote_read */
};
extern struct remote_buffers remote_buffers; /* tests lower them, before they open anything */

struct remote;
struct remote *remote_open(const char *address);
i64 remote_bytes(struct remote *remote); /* -1: unknown; -2: a message */
/* Reads sequentially. The first call starts a thread that reads ahead. Returns the bytes read, 0 at
 * the end, -1 with a message. */
i64 remote_read(struct remote *remote, void *out, i64 most);
/* Reads at any offset through a cache of 16 blocks of 4 MiB, so that several columns can be read
 * side by side. 0, or -1 with a message. */
int remote_read_at(struct remote *remote, void *out, i64 offset, i64 bytes);
void remote_close(struct remote *remote);
/* Number of failed or interrupted reads of addresses on this thread. Transient failures: unlike a
 * corrupt file they may succeed on retry. */
i64 remote_failures(void);

/* ---- Listings ---- */

struct remote_object {
    char *address;
    i64 bytes;     /* 0: unknown */
    char *version; /* changes when the file does; NULL: unknown */
};
struct remote_list {
    struct remote_object *objects; /* sorted like a recursive walk through folders */
    i64 count, capacity;
    char *folder; /* common folder, without its trailing slash */
};
/* Lists the files that an address names. {000..127} expands to all numbers with as many digits,
 * {a,b} to either. If `is_file` does not recognize a name, an s3:// address is listed as a folder;
 * other schemes are an error. */
int remote_list(struct remote_list *list, const char *address, bool (*is_file)(const char *address));
void remote_list_release(struct remote_list *list);

/* Takes both strings. bytes -1: the size is yet to be asked for. */
void remote_list_add(struct remote_list *list, char *address, i64 bytes, char *version);

/* remote_hosts.c: records and asks whether a URL's host has answered this process. */
void remote_host_answers(const char *url);
bool remote_host_has_answered(const char *url);

/* address.c */
int address_check(const char *address);
/* Expands {000..127} and {a,b}. Release with string_list_free. */
int address_expand(char ***out, i64 *count, const char *pattern);
/* address_query.c: removes the query strings from an address or pattern and remembers them in this
 * process. s3:// addresses are left unchanged. Release with memory_free. */
int address_hide(char **out, const char *pattern);
/* Gives `to` the query of `from`, unless it has one already. */
void address_share_query(const char *to, const char *from);
/* The address with its query string, which is a secret. Release with memory_free. */
char *address_with_query(const char *address);
/* Pass the remembered query strings to a child process, in an anonymous file. It is close-on-exec;
 * clear that with fcntl. address_queries_file returns a descriptor, or -1 if there is nothing to
 * pass. address_queries_take reads and closes it in the child: 0, or -1 with a message. */
int address_queries_file(void);
int address_queries_take(int descriptor);
/* s3.c */
int http_target_init(struct http_target *target, const char *address);
void http_target_release(struct http_target *target);
/* The URL that lists the keys with this address as their prefix. token: the continuation token of
 * the page before, or NULL. */
int s3_listing_init(struct http_target *target, const char *address, const char *token);
/* Parses one page of a listing. *token: the continuation token of the next page, or NULL after the
 * last. */
int s3_listing_read(struct remote_list *list, char **token, const struct buffer *page, const char *address);
/* remote.c: fetches a whole body of at most `most` bytes. `address` names it in messages. */
int remote_ask(struct buffer *out, i64 most, const struct http_target *target, const char *address);
int remote_stat(struct remote_object *object, struct http *http); /* fills in bytes and version */

#endif
