/* The decoder: answers to prompts, any modality in, any out, many at once, by the same forward as training.
 *
 * The grammar says what comes next; positions are laid into a batch whose keys are columns of one cache, the model
 * runs, what the grammar wants is drawn and handed back. A seat of the cache belongs to one request:
 *
 *     | prompt | answer of copy 0 | answer of copy 1 | ... |    each answer with room for `most` positions
 *
 * The prompt stands once; its keys are seen by all copies, those of a copy by itself alone. When all answers of a
 * request are done, the next one takes its seat. Groups of any size (a text id, a frame of sound, a whole scale of a
 * picture) mix in one forward, which takes at most FORWARD_POSITIONS of them: longer prompts take several.
 *
 * Answers may have a beginning already, with the experts its ids went to: those are replayed, and the answer goes on.
 *
 * Text may be drafted ahead (speculate.c): the model then reads the last id and the drafts after it at once, and keeps
 * as many of them as it would have drawn itself.
 *
 * Media may be guided (classifier-free guidance, Ho & Salimans, arXiv 2207.12598): behind the answers of a request then
 * stand the same answers once more as the packer lays them when a sample's prompt was dropped. Both read what is drawn
 * from both their logits.
 */
#ifndef WEFT_MODEL_DECODE_H
#define WEFT_MODEL_DECODE_H
#include "model/model.h"
#include "sequence/grammar.h"

enum { FORWARD_POSITIONS = 4096, DRAFTS_MOST = 4 };

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
struct routes { /* of positions in order: [count, L . K], experts of each layer, 65535: none */
    u16 *list;
    i64 count, capacity;
};
void routes_push(struct routes *routes, i64 width, const u16 *route);

struct answer {
    i32 *ids;       /* [count] of text, the stop id included */
    float *logprob; /* [count]; 0 where given */
    float *entropy; /* [count] of the distribution it was drawn from, with want_entropy */
    u8 *given;      /* [count] 1: not drawn */
    i64 count, capacity;
    struct routes routes;      /* of its positions that were read, with keep_routes */
    struct media_block medium; /* the drawn one, if any */
    bool has_medium, done;
    bool ended; /* by its own end, not by `most` */
};
void answer_push(struct answer *answer, i32 id, float logprob, float entropy, bool given);
void answer_release(struct answer *answer);

struct generate_request {
    const struct part *parts; /* the prompt, for the grammar */
    i64 part_count;
    const struct media_block *media; /* of the prompt's parts that are media, in order */
    const i32 *opening;              /* ids that follow: a shape token and BOI or BOV, BOA, the answer's header */
    i64 opening_count;
    /* end with the first medium; otherwise text alone is drawn, until an id of `stop` or the sample's end */
    bool media_only;
    i32 stop[4];          /* -1: none */
    const i32 *forbidden; /* ids that text has not, beside those that open or close a medium; may be NULL */
    i64 forbidden_count;
    const i32 *choices; /* shape tokens, one of which begins the medium that is the answer; NULL: the opening has it */
    i64 choice_count;
    i64 most;   /* positions of an answer: ids, frames of sound, ...; it ends with what reaches them */
    i64 copies; /* answers to the same prompt */
    /* Logits of bits and codes, never of text: without the prompt + guidance (with it - without it). For media_only,
     * without routes. */
    bool guided;
    float guidance;
    /* Draws are keyed by (identity, copy, position, level) or, by_place, text by (identity, copy, place in the answer,
     * 0). */
    u32 identity;
    bool by_place;
    struct routes *routes; /* of the prompt, kept or replayed; NULL: neither */
};

struct draft_counts { /* ids of text */
    i64 drafted, accepted;
};
struct decoder_options {
    struct model *model;
    const struct submodel *sub; /* read when the decoder is opened; its arrays must outlive it */
    const struct vocabulary *vocabulary;
    const float *const *amplitude; /* [shapes] of the vision tokenizer, device memory; NULL without vision */
    const i64 *grid;               /* [shapes * 2] h, w of the finest scale */
    struct sampling sampling;
    /* Log-probabilities are those of the loss that training uses, on logits divided by the temperature. */
    bool want_entropy;
    bool keep_routes;
    bool as_trained; /* by products as in training: of a model that trains in 8 bits, of 8 bits */
    i64 speculate;   /* ids of text that the multi-token-prediction block drafts ahead, at most DRAFTS_MOST; 0: none */
    struct draft_counts *draft_counts; /* are added to; may be NULL */
};
/* For generate_request.most: positions that a picture or clip takes at most behind BOI or BOV, and those of a shape
 * that is chosen and its bracket. */
enum { CHOSEN_POSITIONS = 2 };
i64 medium_positions(const struct shape *shape);
/* No brackets, no shapes, no end: every id is text. */
extern const struct vocabulary vocabulary_of_text;

struct cache { /* keys and values in device memory; who sees a column: nobody where it is unwritten */
    struct attention_cache *layer; /* [L], and with `speculate` the multi-token-prediction block's */
    struct arena memory;
    i64 columns, taken;                       /* none is written at `taken` or behind it */
    i32 *begin, *end, *hole_begin, *hole_end; /* [columns] */
};
struct draws { /* rows of logits to draw from, in order */
    i64 n, capacity;
    struct flow **flow;
    i32 *row, *set;  /* of the logits; of the allowed ids */
    i32 *draft, *of; /* what the row may accept, and the row of its distribution; -1: nothing was drafted */
    u32 *identity;   /* [n, 4] */
    /* of media: rows with the prompt and without, -1 where they are not guided, and what each counts, [n, 2] */
    i32 *pair;
    float *share;
    bool guided; /* any */
};
struct drafts { /* of the forward to come */
    struct tape tape;
    struct tensor *p; /* [speculate * rows, V] what the first ids of `rows` answers were drawn from, then the second */
    i64 rows;
};
struct decoder {
    struct decoder_options options;
    struct submodel sub;
    struct cache cache;
    struct tape tape; /* forward only, cleared every step */
    struct recordings *recordings;
    i64 seat_count, seat_columns, route_width;
    float input_scale[SHAPES_MOST]; /* of vision-out */
    struct seat *seats;             /* [2 seat_count]: those without a prompt of guided requests behind all others */
    struct answer *answers;         /* of the next request */
    const struct generate_request *requests;
    i64 count, next;
    u32 *allowed;               /* device memory: bit sets of ids, the grammar's and those of requests */
    i64 allowed_bytes, *set_of; /* [count] of each request */
    /* the forward at hand */
    struct batch batch;
    struct draws text, bits, frames;
    struct position_source *sources; /* [n] whose position it is */
    struct seen_picture *pictures;   /* what is read of pictures, and which row of it by each input */
    i64 picture_count, picture_rows;
    i32 *picture_row;
    bool replay;  /* takes positions whose routes are known, and nothing is drawn */
    i64 reserved; /* positions that wait with drafts, and are not laid yet */
    struct drafts drafts;
};
/* Columns that a request takes; -1: its the grammar does not take its prompt. */
i64 request_columns(const struct decoder_options *options, const struct generate_request *request);
/* `seats` requests at a time, of at most `columns` each. */
void decoder_open(struct decoder *decoder, const struct decoder_options *options, i64 seats, i64 columns);
void decoder_close(struct decoder *decoder);
/* Forgets what it was at. answers: copies of each request, in order, zeroed or begun; all borrowed until the last step.
 */
void decoder_begin(struct decoder *decoder, struct answer *answers, const struct generate_request *requests, i64 count);
bool decoder_step(struct decoder *decoder); /* one forward; false, and none, when every answer is done */

#endif
