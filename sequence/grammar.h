/* The grammar: which positions a sample becomes, where they stand, who sees them and what each predicts. One
 * state machine with two drivers: the packer, who knows all codes and calls grammar_part; the generator, who draws what
 * grammar_want asks for and hands it back. It sees ids, shapes and counts only: where features, bits or codes belong it
 * leaves a slot, that others fill.
 *
 *   drawn at the last positions        fed to the machine     what the machine then appends
 *   text head: an id                   grammar_id             the id's position (NEXT has none)
 *   vision head: bits of a scale       grammar_bits           the positions of the next scale, or the frame's last one
 *   audio heads: codes of a frame      grammar_frame          the frame's position
 *   (given, never drawn)               grammar_cells          BOI, the positions of a picture, EOI
 *   text head: the end of the sample   grammar_end            nothing
 */
#ifndef WEFT_GRAMMAR_H
#define WEFT_GRAMMAR_H
#include "kernels/kernels.h"
#include "sequence/batch.h"
#include "tokenizers/text/text.h"

struct vision_config;

/* ---- Vocabulary: the ids that mean something to the grammar ---- */
enum { SHAPES_MOST = 16, SCALES_MOST = 16 };
struct shape { /* of image-out and video-out: what a shape token stands for */
    i64 scale_count;
    struct scale scales[SCALES_MOST]; /* positions of each; the first is 1 x 1, neither side ever shrinks */
    bool video;
    i64 frames; /* latent frames the tokenizer was trained with; the grammar itself lets a video end after any */
};
struct vocabulary { /* -1: the tokenizer has no such token */
    i64 ids;        /* of the tokenizer: a model may have more rows; 0: not known */
    i32 boi, eoi, bov, eov, next, boa;
    i32 end;                        /* of a sample: predicted, never an input */
    i32 message_begin, message_end; /* around a message of a conversation (text_chat.c) */
    i32 shape[SHAPES_MOST];         /* ids of the shape tokens */
    i64 shape_count;
    struct shape shapes[SHAPES_MOST];
};
/* What a tokenizer is trained with, NULL-terminated: the brackets, roles, shapes and some reserves. */
extern const char *const grammar_special_tokens[];
/* Ids by content, shapes from the vision tokenizer (NULL: none). -1 if there are more shapes than tokens for them. */
int vocabulary_load(struct vocabulary *vocabulary, const struct text_tokenizer *tokenizer,
                    const struct vision_config *vision);
int vocabulary_init(struct vocabulary *vocabulary, const struct text_tokenizer *tokenizer, const struct shape *shapes,
                    i64 count);
struct vision_shape;
void shape_of_vision(struct shape *out, const struct vision_shape *in);

i64 shape_tokens(const struct shape *shape);    /* positions with bits of one latent frame: sum of h_k w_k */
i64 shape_positions(const struct shape *shape); /* of one latent frame as input: sum over k >= 2, and the last */
/* Inputs of vision-out are multiplied by this, so that they are of about unit size: 1 / sqrt(sum a_k^2). */
float shape_input_scale(const float *amplitude, i64 scale_count);

/* ---- Positions ---- */
/* What stands at a position, or is predicted there, and is not an id. */
struct slot {
    i32 block; /* media of the sample, counted from 0 in order of appearance */
    i32 frame; /* latent frame, or audio frame; the audio's number of frames: EOA */
    i32 row;   /* vision-in: position of the frame, row-major. vision-out input: row of dequantize_bits' inputs. Vision
                * target: row of quantize_bits' bits */
    i32 scale; /* vision-out: index of the scale predicted here, the number of scales at a frame's last position; vision
                * target: index of the scale */
};
enum { HOLE_OPEN = INT32_MAX };
struct position {
    float at[3];                   /* t, h, w of Uni-RoPE */
    i32 begin;                     /* the first position that sees this one; all positions count within the sample */
    i32 hole_begin, hole_end;      /* those that do not; HOLE_OPEN: until the video ends */
    u8 stream, input;              /* enum stream, enum input_kind */
    u8 text_stream;                /* of the part that `text` belongs to */
    u8 out;                        /* TARGET_VISION, TARGET_AUDIO, or TARGETS: neither */
    i32 id;                        /* text input, else -1 */
    i32 text;                      /* next id, or -1: the text head does not speak here */
    float text_weight, out_weight; /* 0: predicted, but no target */
    struct slot in, target;
};

/* ---- The machine ---- */
enum want {
    WANT_ID,        /* any id that grammar_allows */
    WANT_BEGIN,     /* after a shape token: BOI or BOV */
    WANT_BITS,      /* of scale `scale` of frame `frame`, at positions [want_first, want_first + want_count) */
    WANT_IMAGE_END, /* EOI */
    WANT_FRAME_END, /* NEXT or EOV; with NEXT the bits of scale 1 of the next frame are drawn at the same position */
    WANT_FRAME,     /* codes of an audio frame, at the last position */
    WANT_NOTHING    /* the sample has ended */
};
struct grammar_options { /* of video-out */
    i64 window;          /* earlier frames a frame sees; 0: all */
    double mask_share;   /* of frames, hidden from later ones; training only */
    bool reweight;       /* vision targets by 1 / sqrt(h_k w_k), mean 1 over a frame */
    struct rng_key key;  /* of mask_share */
    u32 identity[2];     /* of the sample, for the same */
};
struct grammar {
    const struct vocabulary *vocabulary;
    struct grammar_options options;
    float weight;               /* of what is fed next: targets are recorded with it */
    struct position *positions; /* [count] those not taken yet, from number `first` on */
    i64 first, count, capacity;
    enum want want;
    i64 want_first, want_count; /* the positions at which the wanted is predicted */
    /* the open block */
    const struct shape *shape;
    u8 stream;
    i32 blocks; /* opened so far: slots of the open block have block == blocks - 1 */
    i64 frame, scale;
    i64 block_first, block_end; /* positions of a video's frames; block_end once it is closed: holes end there */
    i64 origin, counter;        /* Uni-RoPE: where the block stands; the next index */
};
void grammar_init(struct grammar *grammar, const struct vocabulary *vocabulary, const struct grammar_options *options);
void grammar_release(struct grammar *grammar);
void grammar_begin(struct grammar *grammar); /* a new sample; keeps the memory */
static inline i64 grammar_length(const struct grammar *grammar)
{
    return grammar->first + grammar->count;
}
/* The decoder copies the first `count` positions into its batch and forgets them: numbers go on, targets are no longer
 * kept. */
void grammar_take(struct grammar *grammar, i64 count);
void grammar_copy(struct grammar *copy, const struct grammar *grammar); /* goes on alone, with memory of its own */

/* -1 and a message: the id cannot stand here. */
int grammar_id(struct grammar *grammar, i32 id);
bool grammar_allows(const struct grammar *grammar, i32 id); /* `end` wherever a sample may end */
/* The only ids allowed; 0: many, or the text head is silent. */
i64 grammar_choices(const struct grammar *grammar, i32 out[2]);
void grammar_bits(struct grammar *grammar);
void grammar_frame(struct grammar *grammar, bool end);
/* Pictures or clips given to the model: frames of height x width positions, each a 2 x 2 of the encoder's cells. */
int grammar_cells(struct grammar *grammar, bool video, i64 frames, i64 height, i64 width);
/* Where an id of text would stand after `ahead` more of them, -1: where the last one stands; the machine does not
 * move. */
struct position grammar_ahead(const struct grammar *grammar, i64 ahead, i32 id);
int grammar_end(struct grammar *grammar, i32 id); /* the last position predicts `id`; -1: nothing */

/* ---- Known samples ---- */
struct part {
    enum stream kind;
    float weight;              /* of the targets that belong to it; 0 for prompts. image-in and video-in have none */
    const i32 *ids;            /* text; NULL is enough for grammar_measure */
    i64 count;                 /* text: ids; audio: frames */
    i64 frames, height, width; /* image-in, video-in: positions; image-out, video-out: frames alone */
    i64 shape;                 /* image-out, video-out: index in the vocabulary */
};
/* Tells a whole part. -1: ids that cannot stand there, a shape or token the vocabulary lacks. */
int grammar_part(struct grammar *grammar, const struct part *part);
/* Length and sums of target weights, without building: what grammar_part for each and grammar_end(end) give. */
struct measure {
    i64 length, seen; /* positions, and those of INPUT_VISION_IN among them */
    double totals[TARGETS];
};
void grammar_measure(struct measure *out, const struct vocabulary *vocabulary, const struct part *parts, i64 count,
                     i32 end);

/* ---- Into a batch ---- */
/* Writes the sample's columns at positions [at, at + length) and appends to the lists: positions, ids, scales, weights,
 * streams. Entries stand in the order of the positions, so whoever fills features, bits and codes walks positions and
 * lists together. A multi-token target stands where the next two ids are both of text. */
void batch_lay(struct batch *batch, i64 at, const struct grammar *grammar, i32 sample);
/* Its positions first .. end - 1 alone; parts are laid in order. */
void batch_lay_part(struct batch *batch, i64 at, const struct grammar *grammar, i64 first, i64 end, i32 sample);
/* Positions [at, at + n) belong to nobody: each sees itself, predicts nothing, is not routed. */
void batch_pad(struct batch *batch, i64 at, i64 n);

#endif
