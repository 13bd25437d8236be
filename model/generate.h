/* Generation: any modality in, any out, many requests at once, by the same forward as training.
 *
 * The grammar says what comes next; this file lays its positions into a batch whose keys are columns of one cache, runs
 * the model, draws what the grammar wants and hands it back. A slot of the cache belongs to one request:
 *
 *     | prompt | answer of copy 0 | answer of copy 1 | ... |
 *
 * The prompt stands once; its keys are seen by all copies, those of a copy by itself alone. When a request has ended,
 * the next one takes its slot. Groups of any size (a text id, a frame of sound, a whole scale of a picture) mix in one
 * step. */
#ifndef WEFT_MODEL_GENERATE_H
#define WEFT_MODEL_GENERATE_H
#include "model/decode.h"
#include "sequence/grammar.h"

/* Codes and features of one medium of a sample, by the number of its block. */
struct media_block {
    enum stream kind;
    i64 frames;            /* latent frames of a picture or clip; frames of sound */
    i64 shape;             /* image-out, video-out: index in the vocabulary */
    const float *features; /* vision-in: [positions, 4, cell_features] */
    const u8 *pixels;      /* vision-in: [positions, 4, patch_values] */
    i64 frame_positions;   /* vision-in: positions of a frame */
    u8 *bits;              /* image-out, video-out: [frames, tokens, d] */
    i32 *codes;            /* audio: [frames, levels] */
};
struct generate_request {
    const struct part *parts; /* the prompt, told to the grammar */
    i64 part_count;
    const struct media_block *media; /* of the prompt's parts that are media, in order */
    const i32 *opening;              /* ids that follow: a shape token and BOI or BOV, BOA, the answer's header */
    i64 opening_count;
    /* end with the first medium; otherwise text alone is drawn, until an id of `stop` or the sample's end */
    bool media_only;
    i32 stop[4];  /* -1: none */
    i64 most;     /* positions an answer may take, a bound */
    i64 copies;   /* answers to the same prompt */
    u32 identity; /* of the prompt, for the draws: (identity, copy, position, level) */
};
struct answer {         /* [requests * copies], the caller releases */
    struct id_list ids; /* drawn text, the stop id included */
    float *logprob;     /* [ids.count] */
    i64 logprob_capacity;
    struct media_block medium; /* the drawn medium, if any */
    bool has_medium, ended;    /* ended: by its own end, not by `most` */
};
void answer_release(struct answer *answer);

struct generator {
    struct model *model;
    const struct submodel *sub;
    const struct vocabulary *vocabulary;
    const float *const *amplitude; /* [shapes] of the vision tokenizer, device memory; NULL without vision */
    const i64 *grid;               /* [shapes * 2] h, w of the finest scale */
    struct sampling sampling;
    i64 slots;            /* requests at a time; 0: 16 */
    struct progress *bar; /* moved as answers finish; NULL: none */
};
int generate(struct answer *answers, const struct generator *generator, const struct generate_request *requests,
             i64 count);

#endif
