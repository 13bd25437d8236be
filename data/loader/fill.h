/* Payloads into a batch whose positions are laid. A fill is one medium of one sample; fills of pictures made of the
 * same shape go through the quantiser together. */
#ifndef WEFT_DATA_FILL_H
#define WEFT_DATA_FILL_H
#include "data/loader/plan.h"

struct fill {
    i64 part;          /* of the shards */
    i64 input, target; /* first entry in the lists of its kind; target -1: none listed */
    u32 identity[2];   /* of draws: sample, showing and block */
};
struct fills {
    struct fill *data;
    i64 count, capacity;
};
void fills_push(struct fills *fills, const struct fill *fill);
int fill_audio(struct loader *loader, const struct fill *fill, struct batch *batch);
int fill_vision_in(struct loader *loader, const struct fill *fill, struct batch *batch);
/* All fills of image-out and video-out; scratch from the arena, given back. */
int fill_vision_out(struct loader *loader, const struct fills *fills, struct batch *batch, struct arena *arena);

#endif
