/* The decoder: answers many prompts at once, with any modality in and any out, by the same forward
 * as training. Requests come and go between its steps:
 *
 *     decoder_add     takes a request while a slot is free
 *     decoder_step    one forward over all requests in flight
 *     decoder_take    gives back what has ended; decoder_drop what nobody waits for any more
 *
 * Answers may be read between steps. What is drawn for a request depends on the request alone: not on
 * its slot, on when it came, or on its neighbours. Only roundings differ, as products of other shapes
 * add in another order.
 *
 * The grammar decides which position comes next. The decoder writes the positions into a
 * batch whose keys are rows of one KV cache, runs the model, samples what the grammar asks
 * for and feeds the result back to the grammar. A slot of the cache is a range of rows
 * that belongs to one request:
 *
 *     | prompt | answer of copy 0 | answer of copy 1 | ... |    `most` positions per answer
 *
 * The prompt is stored once and all copies attend to it; only a copy itself attends to its own
 * answer. Groups of any size (a text id, a frame of sound, a whole scale of a picture) mix in one
 * forward, which takes at most FORWARD_POSITIONS of them; a longer prompt takes several forwards.
 *
 * An answer may start with a given beginning and the experts its ids were routed to. The decoder
 * replays those experts and continues the answer.
 *
 * Media may use classifier-free guidance (Ho & Salimans, arXiv 2207.12598). The slot then holds a
 * second, unconditional branch behind the request's answers: the same answers laid out as the
 * packer does for a sample with a dropped prompt. Sampling combines the logits of both branches,
 * and both branches read the drawn result.
 */
#ifndef WEFT_MODEL_DECODE_H
#define WEFT_MODEL_DECODE_H
#include "model/model.h"
#include "sequence/grammar.h"

enum { FORWARD_POSITIONS = 4096 };

/* Codes and features of one medium of a sample, indexed by the number of its block. */
struct media_block {
    enum stream kind;
    i64 frames;            /* latent frames of a picture or clip; audio frames */
    i64 shape;             /* FORM_SCALES: index into the vocabulary's shapes */
    const float *features; /* FORM_CELLS: [positions, 4, cell_features]; a voice: [voice] */
    const u8 *pixels;      /* FORM_CELLS: [positions, 4, patch_values] */
    i64 frame_positions;   /* FORM_CELLS: positions per frame */
    u8 *bits;              /* FORM_SCALES: [frames, tokens, d] */
    i32 *codes;            /* FORM_CODES: [frames, levels] */
};
struct routes { /* Experts of consecutive positions: [count, L . K], for each layer; 65535: none. */
    u16 *list;
    i64 count, capacity;
};
void routes_push(struct routes *routes, i64 width, const u16 *route);

/* Stands in an answer's ids for a draw of its medium: the bits of a position, or one code. The drawn
 * values are in `medium`, in the same order. */
enum { MEDIUM_DRAW = -1 };
struct answer {
    /* [count] text ids, including the stop id; with want_entropy also all that was drawn of a medium: a
     * MEDIUM_DRAW for each position of a picture and for each code of a sound (of a frame that ends it:
     * level 0 alone), NEXT and EOV of a clip */
    i32 *ids;
    float *logprob; /* [count]; 0 for given ids */
    float *entropy; /* [count] entropy of the sampled distribution, the sum over bits; only with want_entropy */
    u8 *given;      /* [count] 1: given, not drawn */
    i64 count, capacity;
    struct routes routes;      /* experts of the positions read so far; only with keep_routes */
    struct media_block medium; /* the generated medium, if any */
    bool has_medium, done;
    bool ended; /* true: ended by itself; false: by `most` */
};
void answer_push(struct answer *answer, i32 id, float logprob, float entropy, bool given);
void answer_release(struct answer *answer);

struct generate_request {
    const struct part *parts; /* the prompt, parsed by the grammar */
    i64 part_count;
    const struct media_block *media; /* media of the prompt's parts, in order */
    /* ids after the prompt: a shape token and BOI or BOV, BOA, or the answer's header */
    const i32 *opening;
    i64 opening_count;
    /* End with the first medium. Otherwise only text is drawn, until an id of
     * `stop` or the sample's end. */
    bool media_only;
    i32 stop[4]; /* -1: none */
    /* ids never drawn in text, besides those that open or close a medium; may be NULL */
    const i32 *forbidden;
    i64 forbidden_count;
    /* shape tokens, one of which is drawn to begin the answer's medium; NULL: the opening has it */
    const i32 *choices;
    i64 choice_count;
    /* limit on the positions of an answer (ids, audio frames, ...); the answer
     * ends when it is reached */
    i64 most;
    i64 copies; /* number of answers to the same prompt */
    /* Guides the logits of bits and codes, never of text: without the prompt + guidance * (with the
     * prompt - without it). Requires media_only and no routes. */
    bool guided;
    float guidance;
    /* Random keys are (identity, copy, position, level); with by_place, text uses (identity, copy,
     * place in the answer, 0). */
    u32 identity;
    bool by_place;
    struct routes *routes; /* routes of the prompt, kept or replayed; NULL: neither */
};

struct decoder_options {
    struct model *model;
    const struct submodel *sub; /* read when the decoder is opened; its arrays must outlive it */
    const struct vocabulary *vocabulary;
    /* [shapes] amplitudes of the vision tokenizer, device memory; NULL without vision */
    const float *const *amplitude;
    const i64 *grid; /* [shapes * 2] height, width of the finest scale */
    struct sampling sampling;
    /* Compute log-probabilities and entropies of all draws with the training loss, on logits
     * divided by the temperature. */
    bool want_entropy;
    bool keep_routes;
    /* use the gemms of training: FP8 for a model that trains in FP8 */
    bool as_trained;
};
/* For generate_request.most: medium_positions bounds the positions of a picture or clip after BOI
 * or BOV; CHOSEN_POSITIONS counts a drawn shape token and its bracket. */
enum { CHOSEN_POSITIONS = 2 };
i64 medium_positions(const struct shape *shape);
/* A vocabulary without brackets, shapes or end id: every id is text. */
extern const struct vocabulary vocabulary_of_text;

/* KV cache: keys and values in device memory, and the range of queries that attend to each column.
 * An unwritten column is visible to no query. */
struct cache {
    struct attention_cache *layer; /* [L] */
    struct arena memory;
    i64 rows, used;                           /* no row at or behind `used` is written */
    i32 *begin, *end, *hole_begin, *hole_end; /* [rows] */
};
struct draws { /* Rows of logits to sample from, in order. */
    i64 n, capacity;
    struct decode_sequence **sequence;
    i32 *row, *set; /* row of the logits; index of the allowed-id set */
    u32 *identity;  /* [n, 4] */
    /* Media only, [n, 2]: rows with the prompt and without it (-1: not guided),
     * and their coefficients. */
    i32 *pair;
    float *share;
    bool guided; /* true if any row is guided */
};
struct decoder {
    struct decoder_options options;
    struct submodel sub;
    struct cache cache;
    struct tape tape; /* forward only, cleared on every step */
    struct recordings *recordings;
    i64 slot_count, slot_rows, route_width;
    float input_scale[SHAPES_MOST]; /* input scale of vision-out, per shape */
    /* [2 slot_count]: unconditional branches of guided requests follow all ordinary slots */
    struct cache_slot *slots;
    i64 in_flight; /* requests that hold a slot */
    /* bit sets of allowed ids, first the grammar's, then each slot's; also in device memory */
    u32 *allowed, *allowed_there;
    /* the current forward */
    struct batch batch;
    struct draws text, bits, frames;
    struct position_source *sources; /* [n] where the experts of each position are kept */
    /* pictures read in this forward; picture_row: the row of each vision-out
     * input among their rows */
    struct picture_input *pictures;
    i64 picture_count, picture_rows;
    i32 *picture_row;
    bool replay; /* replay known routes; draw nothing */
};
/* Rows that a request needs; -1 and a message if the grammar rejects its prompt. */
i64 request_cache_rows(const struct decoder_options *options, const struct generate_request *request);
/* Opens a decoder for `slots` requests at a time, of at most `rows` rows each. */
void decoder_open(struct decoder *decoder, const struct decoder_options *options, i64 slots, i64 rows);
void decoder_close(struct decoder *decoder);
enum { DECODER_FULL = 1 };
/* Gives a slot to a request. answers: [copies], zeroed or with a given beginning. The decoder borrows
 * both until it gives the request back. Returns 0; DECODER_FULL: no slot is free now; -1 and a
 * message: the grammar rejects the prompt, or no slot has as many rows. */
int decoder_add(struct decoder *decoder, struct answer *answers, const struct generate_request *request);
bool decoder_step(struct decoder *decoder); /* false, and no forward, if all answers in flight are done */
/* Gives back a request whose answers are all done, and frees its slot; NULL: there is none. */
const struct generate_request *decoder_take(struct decoder *decoder);
/* Gives back a request that may not be done, if it is in flight; NULL: all requests. Answers keep
 * what was drawn. */
void decoder_drop(struct decoder *decoder, const struct generate_request *request);

#endif
