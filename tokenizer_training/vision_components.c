/* What as many bytes as the code has keep of new pictures without a network: principal components of the
 * training pictures. */
#include "baselines/baselines.h"
#include "data/shapes/shaped.h"
#include "tokenizer_training/vision_step.h"

enum { TRAINED_MOST = 2000, VALUES_MOST = 24 << 20, TOGETHER = 64 };

/* Up to TRAINED_MOST training pictures of a shape, and VALUES_MOST of their values, spread over the list. Returns their
 * number, or -1 and a message. */
static i64 copy_trained(u8 **out, const struct vision_media *media, i64 shape, i64 bytes)
{
    i64 all = vision_media_count(media, false, shape), most = min_i64(all, min_i64(TRAINED_MOST, VALUES_MOST / bytes)),
        count = 0, seen = 0;
    *out = memory_alloc(max_i64(most * bytes, 1));
    for (i64 i = 0; i < media->still_count && count < most; i++) {
        if (vision_media_shape(media, false, i) != shape || seen++ < count * all / most)
            continue;
        if (vision_media_copy(*out + count * bytes, media, false, i, 1))
            return -1;
        count++;
    }
    return count;
}

int vision_components_error(double *sum, i64 *used, const struct vision_trainer *t, const struct vision_media *held_out,
                            const i32 *order, i64 count, const struct vision_shape *shape)
{
    i64 bytes = shape->height * shape->width * 3;
    i64 number = vision_media_shape(held_out, false, order[0]), status = 0;
    struct components c;
    u8 *trained, *in = memory_alloc(TOGETHER * bytes), *again = memory_alloc(TOGETHER * bytes);
    i64 n = copy_trained(&trained, t->media, number, bytes);
    *used = ceil_div(vision_tokens(shape) * t->vision.config.bits, 8);
    if (n > 0) {
        components_find(&c, t->vision.device, trained, n, bytes, *used);
        for (i64 i = 0; i < count && status == 0; i += TOGETHER) {
            i64 some = min_i64(TOGETHER, count - i);
            for (i64 k = 0; k < some && status == 0; k++)
                status = vision_media_copy(in + k * bytes, held_out, false, order[i + k], 1);
            if (status == 0)
                components_rebuild(again, &c, t->vision.device, in, some);
            for (i64 k = 0; k < some && status == 0; k++) {
                struct content_size inner = held_out->still_inner[order[i + k]];
                struct clip item = {.frames = 1,
                                    .height = shape->height,
                                    .width = shape->width,
                                    .pixels = in + k * bytes,
                                    .inner_height = inner.height,
                                    .inner_width = inner.width};
                *sum += shaped_square_error(&item, again + k * bytes);
            }
        }
        components_release(&c);
    }
    memory_free(trained);
    memory_free(in);
    memory_free(again);
    return n > 0 && status == 0 ? 0 : -1;
}
