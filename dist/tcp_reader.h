/* What one peer sends over TCP, from its bytes to receives. Frames are read from memory here and not
 * from sockets, so that tests can try any bytes.
 *
 *     head: comm, tag, bytes | data | head ...
 *
 * The data of a frame goes straight to the posted receive that it is for, which must be of the same
 * size. Without such a receive the data is kept until one is posted. Memory for it follows what has
 * arrived: a head alone makes this rank allocate at most TCP_EARLY_BYTES. No rank is ahead of another
 * by more than TCP_KEPT_BYTES, so a peer that sends more than that to nobody is no rank. Only the calling thread
 * of the transport reads. */
#ifndef WEFT_TCP_READER_H
#define WEFT_TCP_READER_H
#include "core/core.h"

/* FAREWELL_TAG: the last frame of a rank that ends with a message. BEAT_TAG: a sign of life, without
 * data, which nobody receives. */
enum {
    COLLECTIVE_TAG = -1,
    BARRIER_TAG = -2,
    TRANSFER_TAG = -3,
    FAREWELL_TAG = -4,
    BEAT_TAG = -5,
    LOWEST_TAG = BEAT_TAG
};
enum { TCP_EARLY_BYTES = 16 << 20 };                          /* allocated for a frame of which no data has come */
enum { TCP_KEPT_BYTES = 1 << 30, TCP_KEPT_HEAD_BYTES = 128 }; /* kept of one peer; what a frame without data counts */
static const i64 tcp_frame_most_bytes = (i64)1 << 40;         /* a longer one is no frame */

struct tcp_header {
    u64 comm; /* id of a comm; one that this rank has not split yet is kept for */
    i64 tag, bytes;
};
struct tcp_receive { /* a posted receive; of its caller, who waits until it is done */
    struct tcp_receive *next;
    struct comm *comm;
    struct tcp_header expected;
    i64 from; /* rank in the comm */
    void *data;
    bool done;
};
struct tcp_kept { /* a frame that no receive has asked for */
    struct tcp_kept *next;
    struct tcp_header header;
    char *buffer;
    i64 capacity;
};
struct tcp_reader {           /* begins as zeros but for `spare` */
    struct tcp_header header; /* of the frame being read */
    i64 done_bytes;           /* its header and data bytes read */
    struct tcp_receive *into; /* where its data goes; NULL: to `kept` */
    struct tcp_kept *kept;
    i64 kept_bytes;                  /* of all kept frames, and their heads */
    struct tcp_kept *arrived;        /* kept frames in order of arrival */
    struct tcp_receive *posted;      /* posted receives in order */
    struct tcp_kept **spare;         /* list of free frames, which readers of one thread share */
    const struct tcp_receive *unfit; /* the receive that a refused frame does not fit; NULL: it is no frame */
};

/* Where the next bytes of the peer belong, and how many at most; never 0. */
void *tcp_reader_space(struct tcp_reader *reader, i64 *bytes);
/* Goes on after `bytes` bytes have been put there. Returns -1 and a message if the peer sends what is
 * no frame or does not fit its receive: nothing can be read behind it. */
int tcp_reader_advance(struct tcp_reader *reader, i64 bytes);
/* Posts a receive, which a kept frame may end at once. Returns as tcp_reader_advance. */
int tcp_reader_post(struct tcp_reader *reader, struct tcp_receive *receive);
void tcp_reader_release(struct tcp_reader *reader); /* frees kept frames */
void tcp_kept_free(struct tcp_kept *list);
#endif
