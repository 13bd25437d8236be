/* What remote.c, which reads addresses, and remote_fetch.c, which asks for them until they are there, share. */
#ifndef WEFT_DATA_REMOTE_INSIDE_H
#define WEFT_DATA_REMOTE_INSIDE_H
#include "data/remote/remote.h"

#include <pthread.h>

enum { BLOCKS = 16 };
struct block {
    i64 number, bytes, used; /* used: when it was last; 0: holds nothing */
    u8 *data;
};
struct stream;
struct remote {
    char *address;
    struct http_target target;
    struct http *http; /* of what is not streamed */
    pthread_mutex_t lock;
    bool known; /* the next two, which every answer has to agree with; under `lock` */
    i64 total;
    char *version;
    struct stream *stream;
    struct block blocks[BLOCKS];
    i64 uses;
};

enum verdict { VERDICT_NONE, VERDICT_TAKE, VERDICT_ENDED, VERDICT_AGAIN, VERDICT_NEVER };
struct fetch {
    struct remote *remote;
    struct http *http;
    const atomic_bool *stop;
    i64 at, end; /* the byte that is wanted next, and the one behind the last; -1: all that there are */
    i64 pass;    /* bytes of the answer at hand before `at` */
    bool (*take)(void *context, const u8 *bytes, i64 count); /* false: enough; NULL: the head is all that is wanted */
    void *context;
    enum verdict verdict; /* of the answer at hand */
    bool enough, said;    /* said: that a server begins anew */
};
int fetch_run(struct fetch *fetch); /* 0: all that was wanted came, or the taker had enough; -1 */

#endif
