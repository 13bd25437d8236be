/* Ops that are kept while they are called, and run together afterwards: as one recording where the same calls came
 * before, else one by one.
 *
 *     ops on deferred_begin(deferred)                    nothing runs yet
 *     deferred_end(deferred, recordings)                 all of them, in order
 *
 * The key of the recording is the calls themselves, down to their last argument: where one changes from step to step
 * the key does, and the ops are launched one by one. What ops read of device memory may change. Nothing but ops may be
 * asked of the device meanwhile, and none of those that take the optimizer's list or a key of draws. */
#ifndef WEFT_DEFERRED_H
#define WEFT_DEFERRED_H
#include "kernels/kernels.h"

struct deferred;
struct deferred *deferred_open(struct device *device);
void deferred_close(struct deferred *deferred);
struct device *deferred_begin(struct deferred *deferred); /* valid until deferred_end */
void deferred_end(struct deferred *deferred, struct recordings *recordings);

#endif
