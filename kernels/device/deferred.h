/* Deferred ops: calls are stored first and run together later, as one recording if the same calls
 * came before, otherwise one by one.
 *
 *     ops on deferred_begin(deferred)                    nothing runs yet
 *     deferred_end(deferred, recordings)                 runs all of them, in order
 *
 * The key of the recording is the calls with all their arguments. If an argument changes from step
 * to step, the key changes too and the ops are launched one by one. The content of device memory
 * may change. Between the two calls only ops may use the device, and no op that takes the
 * optimizer's list, a random key or another struct that deferred.c does not copy. deferred_close
 * frees what deferred_open returns. */
#ifndef WEFT_DEFERRED_H
#define WEFT_DEFERRED_H
#include "kernels/kernels.h"

struct deferred;
struct deferred *deferred_open(struct device *device);
void deferred_close(struct deferred *deferred);
struct device *deferred_begin(struct deferred *deferred); /* valid until deferred_end */
void deferred_end(struct deferred *deferred, struct recordings *recordings);

#endif
