/* Scratch of all workers: one block per worker and slot, which grows on demand and is kept. */
#include "kernels/cpu/cpu.h"

void *CPU(scratch)(int worker, int slot, i64 bytes)
{
    enum { SLOTS = 11 };
    static struct {
        void *data;
        i64 bytes;
    } blocks[WORKERS_MOST][SLOTS];
    require(worker < WORKERS_MOST && slot < SLOTS, "scratch %d of worker %d", slot, worker);
    if (blocks[worker][slot].bytes < bytes) {
        memory_free(blocks[worker][slot].data);
        blocks[worker][slot].data = memory_alloc(bytes);
        cpu_scratch_bytes += bytes - blocks[worker][slot].bytes;
        blocks[worker][slot].bytes = bytes;
    }
    return blocks[worker][slot].data;
}
