/* Shared by remote.c, which reads addresses, and remote_fetch.c, which repeats requests until the
 * bytes have arrived. */
#ifndef WEFT_DATA_REMOTE_INSIDE_H
#define WEFT_DATA_REMOTE_INSIDE_H
#include "data/remote/remote.h"

#include <pthread.h>

enum { BLOCKS = 16 };
struct remote_block {
    i64 number, bytes, used; /* used: stamp of the last use; 0: empty */
    u8 *data;
};
struct remote_stream;
struct remote {
    char *address;
    struct http_target target;
    struct http *http; /* for everything but the stream */
    pthread_mutex_t lock;
    bool known; /* total and version are set; later answers must agree; under `lock` */
    i64 total;
    char *version;
    struct remote_stream *stream;
    struct remote_block blocks[BLOCKS];
    i64 uses;
};

/* Judgement of an answer: none yet; take its body; the file has ended; retry; permanent failure. */
enum verdict { VERDICT_NONE, VERDICT_TAKE, VERDICT_ENDED, VERDICT_AGAIN, VERDICT_NEVER };
/* A range of bytes being fetched, with retries. */
struct fetch {
    struct remote *remote;
    struct http *http;
    const atomic_bool *stop;
    i64 at, end; /* next byte wanted; end of the range, -1: of the file */
    i64 pass;    /* bytes to skip in the current answer before `at` */
    /* Receives the bytes; false: enough. NULL: only the head is wanted. */
    bool (*take)(void *context, const u8 *bytes, i64 count);
    void *context;
    enum verdict verdict; /* on the current answer */
    bool enough, said;    /* said: the log has told that the server resends from byte 0 */
};
/* 0: all bytes arrived, or the taker had enough; -1: a message. */
int fetch_run(struct fetch *fetch);

#endif
