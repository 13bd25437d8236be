/* sequence: the model's input, and the rules that turn samples into it. This is the folder's
 * main header. In: samples as parts (texts, pictures, sounds) with ids or sizes. Out: a batch
 * (batch.h), the only thing the model reads. A grammar owns its list of positions until
 * grammar_release; the memory of a batch belongs to the caller's arena.
 *
 * Where is what:
 *   grammar.c     the machine: what comes next, coordinates, which positions see which, the weight
 *                 of each target; whole parts fed to it, and the length of a sample without building it
 *   lay.c         positions into the columns and lists of a batch; batch.c allocates one
 *   vocabulary.c  ids of brackets and shapes, and how many positions a shape takes
 *   modalities.c  the tables of modalities; whether the tokenizers of data and of a model agree
 *
 * The grammar turns a sample into positions: their RoPE coordinates, attention intervals and
 * targets. It is one state machine with two drivers. The packer knows all codes and calls
 * grammar_part. The generator draws what `want` asks for and feeds it back. The machine sees
 * ids, shapes and counts only; for features, bits and codes it records a slot, which the caller
 * fills.
 *
 *   drawn at the last positions       fed to the machine   positions the machine then appends
 *   text head: an id                  grammar_id           the id's position (NEXT has none)
 *   vision head: bits of a scale      grammar_bits         the next scale, or the frame's last one
 *   audio heads: codes of a frame     grammar_frame        the frame's position
 *   (given, never drawn)              grammar_cells        BOI, a picture's positions, EOI
 *   text head: the end of the sample  grammar_end          none */
#ifndef WEFT_GRAMMAR_H
#define WEFT_GRAMMAR_H
#include "kernels/kernels.h"
#include "sequence/batch.h"
#include "tokenizers/text/text.h"

struct vision_config;

/* ---- Vocabulary: the ids that the grammar interprets ---- */
enum { SHAPES_MOST = 16, SCALES_MOST = 16 };
struct shape { /* image-out or video-out shape named by a shape token */
    i64 scale_count;
    struct scale scales[SCALES_MOST]; /* positions per scale; the first is 1 x 1, and neither side ever shrinks */
    bool video;
    i64 frames; /* latent frames of the tokenizer's training; the grammar lets a video end after any frame */
};
struct vocabulary { /* -1: the tokenizer has no such token */
    i64 ids;        /* vocabulary of the tokenizer (a model may have more rows); 0: unknown */
    i32 bracket[BRACKETS];
    i32 end;                        /* end of a sample: predicted, never an input */
    i32 message_begin, message_end; /* brackets of a conversation's message (text_chat.c) */
    i32 shape[SHAPES_MOST];         /* ids of the shape tokens */
    i64 shape_count;
    struct shape shapes[SHAPES_MOST];
};
/* Special tokens for training a tokenizer, NULL-terminated: brackets, roles, shapes and reserved
 * ones. */
extern const char *const grammar_special_tokens[];
/* Finds ids by content and takes the shapes from the vision tokenizer (NULL: none). Returns -1
 * with a message if there are more shapes than shape tokens. */
int vocabulary_load(struct vocabulary *vocabulary, const struct text_tokenizer *tokenizer,
                    const struct vision_config *vision);
int vocabulary_init(struct vocabulary *vocabulary, const struct text_tokenizer *tokenizer, const struct shape *shapes,
                    i64 count);
struct vision_shape;
void shape_of_vision(struct shape *out, const struct vision_shape *in);

i64 shape_tokens(const struct shape *shape);    /* positions with bits per latent frame: sum of h_k w_k */
i64 shape_positions(const struct shape *shape); /* input positions per latent frame: sum over k >= 2, plus 1 */
/* Factor that brings vision-out inputs to about unit variance: 1 / sqrt(sum a_k^2). */
float shape_input_scale(const float *amplitude, i64 scale_count);

/* ---- Positions ---- */
/* Address of a non-id input or target, which the caller fills. */
struct media_index {
    i32 block; /* index of the medium in the sample, in order of appearance */
    i32 frame; /* latent frame or audio frame; EOA is at the audio's number of frames */
    /* vision-in: position in the frame, row-major. Vision-out input: row of dequantize_bits'
     * inputs. Vision target: row of quantize_bits' bits. */
    i32 row;
    /* Vision-out input: scale that this position predicts, or the number of scales at a frame's
     * last position. Vision target: index of the scale. */
    i32 scale;
};
enum { HOLE_OPEN = INT32_MAX };
struct position {
    float at[3];                   /* t, h, w of Uni-RoPE */
    i32 begin;                     /* first position that sees this one; positions count within the sample */
    i32 hole_begin, hole_end;      /* positions in between that do not see it; HOLE_OPEN: until the video ends */
    u8 stream, input;              /* enum stream, enum input_kind */
    u8 text_stream;                /* enum stream of the part that `text` belongs to */
    u8 out;                        /* target of a medium here; TARGETS: none */
    i32 id;                        /* text input, else -1 */
    i32 text;                      /* next id; -1: no text prediction here */
    float text_weight, out_weight; /* 0: predicted, but not a target */
    struct media_index in, target;
};

/* ---- The machine ---- */
enum want {
    WANT_ID,        /* any id that grammar_allows */
    WANT_BEGIN,     /* after a shape token: BOI or BOV */
    WANT_BITS,      /* bits of scale `scale`, frame `frame`, at positions [want_first, want_first + want_count) */
    WANT_IMAGE_END, /* EOI */
    WANT_FRAME_END, /* NEXT or EOV; with NEXT the bits of the next frame's scale 1 are drawn at the same position */
    WANT_FRAME,     /* codes of an audio frame, at the last position */
    WANT_NOTHING    /* the sample has ended */
};
struct grammar_options { /* options of video-out */
    i64 window;          /* earlier frames that a frame sees; 0: all */
    double mask_share;   /* share of frames hidden from later ones; training only */
    bool reweight;       /* weights vision targets by 1 / sqrt(h_k w_k), with mean 1 over a frame */
    struct rng_key key;  /* key for drawing masked frames */
    u32 identity[2];     /* identity of the sample, for the same draw */
};
struct grammar {
    const struct vocabulary *vocabulary;
    struct grammar_options options;
    float weight;               /* weight of the targets recorded next */
    struct position *positions; /* [count] positions not taken yet; the first has number `first` */
    i64 first, count, capacity;
    enum want want;
    i64 want_first, want_count; /* positions where `want` is predicted */
    /* State of the open block (medium). */
    const struct shape *shape;
    u8 stream;
    i32 blocks; /* blocks opened so far; slots of the open block have block == blocks - 1 */
    i64 frame, scale;
    i64 block_first, block_end; /* positions of a video's frames; block_end is set on closing, and holes end there */
    i64 origin, counter;        /* Uni-RoPE: origin of the block; next index */
};
void grammar_init(struct grammar *grammar, const struct vocabulary *vocabulary, const struct grammar_options *options);
void grammar_release(struct grammar *grammar);
void grammar_begin(struct grammar *grammar); /* starts a new sample; keeps the memory */
static inline i64 grammar_length(const struct grammar *grammar)
{
    return grammar->first + grammar->count;
}
/* Drops the first `count` positions after the decoder has copied them into its batch. Numbering
 * continues, and targets for dropped positions are no longer recorded. */
void grammar_take(struct grammar *grammar, i64 count);
void grammar_copy(struct grammar *copy, const struct grammar *grammar); /* deep copy with its own memory */

/* Returns -1 with a message if the id is not allowed here. */
int grammar_id(struct grammar *grammar, i32 id);
bool grammar_allows(const struct grammar *grammar, i32 id); /* allows `end` wherever a sample may end */
/* Writes the only allowed ids and returns their number; 0: many are allowed, or the text head
 * predicts nothing. */
i64 grammar_choices(const struct grammar *grammar, i32 out[2]);
void grammar_bits(struct grammar *grammar);
void grammar_frame(struct grammar *grammar, bool end);
/* Appends pictures or clips given to the model: frames of height x width positions, each a 2 x 2
 * group of encoder cells. */
int grammar_cells(struct grammar *grammar, enum stream stream, i64 frames, i64 height, i64 width);
int grammar_end(struct grammar *grammar, i32 id); /* ends the sample; the last position predicts `id`, -1: nothing */

/* ---- Known samples ---- */
struct part {
    enum stream kind;
    float weight;              /* weight of its targets; 0 for prompts */
    const i32 *ids;            /* FORM_IDS; may be NULL for grammar_measure */
    i64 count;                 /* FORM_IDS: ids; FORM_CODES: frames */
    i64 frames, height, width; /* FORM_CELLS: positions; FORM_SCALES: frames only */
    i64 shape;                 /* FORM_SCALES: index in the vocabulary */
    bool voice;                /* STREAM_AUDIO: one position with a speaker vector, in place of codes */
};
/* Feeds a whole part. Returns -1 with a message if an id is not allowed there, or the vocabulary
 * lacks the shape or token. */
int grammar_part(struct grammar *grammar, const struct part *part);
/* Length and target weight sums of a sample, computed without building it. They equal the result
 * of grammar_part for each part and grammar_end(end). */
struct sample_measure {
    i64 length, seen; /* positions, and those of FORM_CELLS among them */
    double totals[TARGETS];
};
void grammar_measure(struct sample_measure *out, const struct vocabulary *vocabulary, const struct part *parts,
                     i64 count, i32 end);

/* ---- Into a batch ---- */
/* Writes the sample's columns at positions [at, at + length) and appends to the lists: positions,
 * ids, scales, weights, streams. Entries are in the order of positions, so a caller that fills
 * features, bits and codes can walk positions and lists together. A position has an MTP target if
 * the next two ids are both text. */
void batch_lay(struct batch *batch, i64 at, const struct grammar *grammar, i32 sample);
/* Writes the sample's positions first .. end - 1 only; parts must be written in order. */
void batch_lay_part(struct batch *batch, i64 at, const struct grammar *grammar, i64 first, i64 end, i32 sample);
/* Fills positions [at, at + n) with padding: each sees only itself, predicts nothing and is not
 * routed. */
void batch_pad(struct batch *batch, i64 at, i64 n);

#endif
