/* Copies payloads into a batch after its positions are laid out. A fill is one medium of one
 * sample. Fills of generated pictures with the same shape go through the quantizer together. */
#ifndef WEFT_DATA_FILL_H
#define WEFT_DATA_FILL_H
#include "data/loader/plan.h"

struct fill {
    i64 part;          /* part index in the shards */
    i64 input, target; /* first entry in the lists of its kind; target -1: no targets */
    u32 identity[2];   /* key of the random draws: sample, and showing with block */
};
struct fills {
    struct fill *data;
    i64 count, capacity;
};
void fills_push(struct fills *fills, const struct fill *fill);
/* Fill in the inputs and targets of one medium. Return -1 with a message if its payload is
 * damaged. */
int fill_audio(struct loader *loader, const struct fill *fill, struct batch *batch);
int fill_vision_in(struct loader *loader, const struct fill *fill, struct batch *batch);
/* Processes all fills of image-out and video-out. Scratch comes from the arena and is returned. */
int fill_vision_out(struct loader *loader, const struct fills *fills, struct batch *batch, struct arena *arena);

#endif
