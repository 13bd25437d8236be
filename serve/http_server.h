/* An HTTP/1.1 server for this program's own services: one thread, any number of services' requests
 * side by side. It knows nothing of what is served.
 *
 *   service -> http_server_open -> http_server_step, again and again -> http_server_close
 *
 * A step accepts connections, reads requests and calls service->answer for each whole one. The answer
 * fills the reply: a status, headers, and a body from memory or from an open file, which the kernel
 * sends. If it is not ready it returns false, and the request is held: later steps call it again, every
 * HTTP_LOOKS_MS, until it is ready or the peer hangs up. Nothing in `answer` may wait.
 *
 * A new connection is a guest. It has limits->guest_s until an answer admits it (http_admit), and there
 * are limits->guests of them: if there are too many, the oldest of the address that has the most goes.
 * Admitted connections may be idle as long as they like, and their number is bounded, in all and by
 * address. So connections that say nothing, little or nonsense keep nobody away. A request has
 * limits->request_s from its first line to its last byte, and a reply may rest for as long.
 *
 * Where is what: http_server.c is all of it, and the one user of libmicrohttpd. Nothing is encrypted. */
#ifndef WEFT_SERVE_HTTP_SERVER_H
#define WEFT_SERVE_HTTP_SERVER_H
#include "core/core.h"

enum { HTTP_LOOKS_MS = 5 };

/* A request and its reply. Strings belong to the server until the reply has gone. */
struct http_exchange {
    const char *method, *target; /* target: PATH?QUERY as it was sent */
    const u8 *body;
    i64 body_bytes;
    i64 calls;      /* of `answer` for this request, before this one */
    double begin_s; /* when the request was whole */
    void *state;    /* the service's, of the connection; NULL at first. `closed` gets it in the end */
    /* The reply; status 0: none yet. */
    int status;
    struct buffer text; /* the body, unless `file` is set */
    int file;           /* an open file, which the server closes; -1: none */
    i64 file_bytes;
};
struct http_limits {
    i64 guests, connections, connections_of_one; /* guests; admitted: in all, and of one address */
    double guest_s, request_s;
    i64 head_bytes, body_bytes;
};
struct http_service {
    const char *address; /* HOST:PORT, [ADDRESS]:PORT, or PORT for 127.0.0.1; port 0: any */
    struct http_limits limits;
    bool (*answer)(void *context, struct http_exchange *exchange);
    void (*closed)(void *context, void *state); /* a connection whose state is not NULL has ended */
    void *context;
};

struct http_server;
struct http_server *http_server_open(const struct http_service *service); /* NULL and a message */
char *http_server_name(const struct http_server *server);                 /* HOST:PORT; memory_free */
void http_server_step(struct http_server *server);  /* serves; returns after 100 ms at most if nothing comes */
void http_server_close(struct http_server *server); /* hangs up; `closed` is called for each connection */

/* ---- For answers ---- */
const char *http_request_header(const struct http_exchange *exchange, const char *name); /* NULL: absent */
char *http_peer_name(const struct http_exchange *exchange);                              /* HOST:PORT; memory_free */
/* Makes a guest's connection an admitted one. Returns -1 and a message if there are too many. */
int http_admit(struct http_exchange *exchange);
void http_reply_header(struct http_exchange *exchange, const char *name, const char *value);

#endif
