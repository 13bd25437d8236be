/* What the two kinds of TCP listeners share: rendezvous.c and serve/http_server.c. */
#ifndef WEFT_SOCKETS_H
#define WEFT_SOCKETS_H
#include "core/core.h"

struct sockaddr_storage;
/* Sends small messages at once, and notices a dead machine after idle_s + count * interval_s. */
void socket_set_options(int socket, int idle_s, int interval_s, int count);
/* Compares addresses without their ports. */
bool socket_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* Which guest goes if there are too many: the oldest of the address that has the most, so that no
 * host keeps others away. Addresses are `stride` bytes apart, the oldest first; count > 0. */
i64 socket_guest_to_drop(const struct sockaddr_storage *first, i64 stride, i64 count);
/* Splits HOST:PORT, [ADDRESS]:PORT, or PORT for 127.0.0.1. *host: memory_free. -1 and a message. */
int socket_address_split(char **host, char port[8], const char *address);
/* Listens at such an address; port 0: any. Returns a descriptor that never waits, or -1 and a message. */
int socket_listen(const char *address);
char *socket_name(int socket, bool peer); /* HOST:PORT of this end, or of the peer; memory_free */
#endif
