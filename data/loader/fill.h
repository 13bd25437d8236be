/* Copies payloads into a batch after its positions are laid out. A fill is one medium of one
 * sample. Fills of generated pictures with the same shape go through the quantizer together. */
#ifndef WEFT_DATA_FILL_H
#define WEFT_DATA_FILL_H
#include "data/loader/plan.h"

struct payload_fill {
    i64 part;          /* part index in the shards */
    i64 input, target; /* first entry in the lists of its kind; target -1: no targets */
    u32 identity[2];   /* key of the random draws: sample, and showing with block */
};
struct payload_fills {
    struct payload_fill *data;
    i64 count, capacity;
};
void fills_push(struct payload_fills *fills, const struct payload_fill *fill);
/* Copies the payloads of all fills into the lists of their streams. Scratch comes from the arena
 * and is returned. Returns -1 with a message if a payload is damaged. */
int fill_all(struct loader *loader, const struct payload_fills *fills, struct batch *batch, struct arena *arena);
/* fill_vision.c: all fills of FORM_SCALES. */
int fill_scales(struct loader *loader, const struct payload_fills *fills, struct batch *batch, struct arena *arena);

#endif
