/* Lossy codecs of pictures at as many bytes as the code has, beside the vision tokenizer. */
#ifndef WEFT_TOKENIZER_TRAINING_VISION_CODECS_H
#define WEFT_TOKENIZER_TRAINING_VISION_CODECS_H
#include "core/json.h"
#include "tokenizer_training/vision_step.h"

/* Sums over held-out stills. */
enum { VISION_TOKENS, VISION_WEBP, VISION_WEBP_FILE, VISION_JPEG, VISION_CODECS };
struct vision_codecs {
    struct {
        double square_error, ssim, edges; /* sums */
        i64 bytes;                        /* likewise; of the tokenizer, of its codes */
        bool absent;                      /* it has no picture that small, or was not built in */
    } rows[VISION_CODECS];
    double edges; /* of the originals */
    i64 items;
    struct json *sheet; /* of the first shape; NULL: none */
};
/* Adds `n` pictures of one shape, held_out[order[n]]. A codec gets the picture smaller or as it
 * is: of sixteenths of its sides, each in the highest quality that fits, enlarged again, the one nearest to the
 * original counts. Writes the first pictures to samples/. Returns -1 and a message, or STAGE_INTERRUPTED. */
int vision_codecs_add(struct vision_codecs *all, struct vision_trainer *trainer, const struct vision_media *held_out,
                      const i32 *order, i64 n, const struct vision_shape *shape, const char *folder);
struct json *vision_codecs_json(const struct vision_codecs *all); /* NULL if nothing was added; takes the sheet */
#endif
