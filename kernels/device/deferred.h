/* device: opens the devices of all backends, and records what runs on them. This is the folder's
 * main header; its other functions are declared in kernels/kernels.h (device_*) and kernels/isa.h.
 * In: the kind of a device. Out: a struct device, which belongs to the caller and is closed with
 * device_close.
 *
 * Where is what:
 *   device.c     opening and closing, CPU and meta memory, which recorder a device has
 *   isa.c        the CPU's instruction set: AVX2, AVX-512, VNNI, bf16 pairs or AMX (amx.c)
 *   deferred.c   ops collected and replayed as one CUDA graph
 *   timed.c      seconds of a CPU's ops by kind, for `weft doctor --ranks`
 *   guarded.c    a CPU device whose memory is inaccessible outside of ops, for tests
 *   dry_run.c    a dry run that tells whether work fits into a GPU's memory, or what would
 *
 * Deferred ops: calls are stored first and run together later, as one recording if the same calls
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
