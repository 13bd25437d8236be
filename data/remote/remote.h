/* Files at addresses: http://HOST/PATH, https://HOST/PATH, s3://BUCKET/KEY.
 *
 * What stands behind a `?` (a presigned address) is sent as it is given and stands nowhere else: address_query.c.
 *
 * s3:// is asked as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN say, without them anonymously; in
 * AWS_REGION (us-east-1), at AWS_ENDPOINT_URL (Amazon). Credentials of other hosts stand in ~/.netrc: an address holds
 * none, for it is written into what is made of the file.
 *
 * A connection that breaks or stands still is made again and goes on at the byte that comes next, with growing pauses,
 * so many times (fewer to a host that this process has had no answer from); the file must still be the same (ETag, or
 * when it was modified last, and size). What will not be otherwise the next time (404, 403) is not tried again. */
#ifndef WEFT_DATA_REMOTE_H
#define WEFT_DATA_REMOTE_H
#include "data/remote/http.h"

struct remote_patience {
    int tries;                             /* without 1 MiB between them */
    int tries_unknown;                     /* while no connection comes about to a host that has not answered yet */
    double pause_s, pause_most_s, stall_s; /* the first pause, each one doubles; see http_request */
};
extern struct remote_patience remote_patience; /* tests have less */

struct remote;
struct remote *remote_open(const char *address);
i64 remote_bytes(struct remote *remote); /* -1: the server does not say; -2: error */
/* The first call starts a thread that reads ahead; 0: the end; -1. */
i64 remote_read(struct remote *remote, void *out, i64 most);
/* Through blocks of 4 MiB, of which the last few are kept: several columns are read side by side. */
int remote_read_at(struct remote *remote, void *out, i64 offset, i64 bytes);
void remote_close(struct remote *remote);
/* How often this thread was told that an address cannot be read (or was interrupted there): what of a file is damaged
 * stays so, this may be otherwise tomorrow. */
i64 remote_failures(void);

/* ---- what is there ---- */

struct remote_object {
    char *address;
    i64 bytes;     /* 0: the server does not say */
    char *version; /* changes when the file does; NULL: the server does not say */
};
struct remote_list {
    struct remote_object *objects; /* ordered as the files of a folder and of those below it */
    i64 count, capacity;
    char *folder; /* of all of them, without the slash behind it */
};
/* What an address names: {000..127} stands for all numbers of as many digits, {a,b} for either; what `is_file` does not
 * know by its name is the beginning of a folder's names at s3://. */
int remote_list(struct remote_list *list, const char *address, bool (*is_file)(const char *address));
void remote_list_release(struct remote_list *list);

void remote_list_add(struct remote_list *list, char *address, i64 bytes, char *version); /* bytes -1: to be asked for */

/* remote_hosts.c: of the host of an address, since the program began */
void remote_host_answers(const char *url);
bool remote_host_has_answered(const char *url);

/* address.c */
int address_check(const char *address);
int address_expand(char ***out, i64 *count, const char *pattern); /* string_list_free */
/* address_query.c: the address or pattern without what stands behind `?`, which is remembered; of s3:// nothing does.
 * memory_free. */
int address_hide(char **out, const char *pattern);
void address_share_query(const char *to, const char *from); /* where the first has none */
char *address_whole(const char *address);                   /* memory_free; not to be shown */
/* For a process that this one starts: all that is remembered, in a file that stands nowhere and is closed where another
 * program begins (fcntl); -1: nothing is. The other process takes it from there, and closes it: 0, or -1 and a message.
 */
int address_queries_file(void);
int address_queries_take(int descriptor);
/* s3.c */
int http_target_init(struct http_target *target, const char *address);
void http_target_release(struct http_target *target);
/* The address of a listing of what begins like this one; token: where the one before ended; NULL. */
int s3_listing_init(struct http_target *target, const char *address, const char *token);
/* What a page of a listing says; *token: there is more behind it; NULL. */
int s3_listing_read(struct remote_list *list, char **token, const struct text *page, const char *address);
/* remote.c: the whole body, of at most so many bytes; what it is about is called `address`. */
int remote_ask(struct text *out, i64 most, const struct http_target *target, const char *address);
int remote_stat(struct remote_object *object, struct http *http); /* fills in bytes and version */

#endif
