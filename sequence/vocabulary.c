#include "sequence/grammar.h"
#include "tokenizers/vision/vision.h"

#include <math.h>
#include <stdio.h>

#define EIGHT(name, a)                                                                                                 \
    "<|" name "_" a "0|>", "<|" name "_" a "1|>", "<|" name "_" a "2|>", "<|" name "_" a "3|>", "<|" name "_" a "4|>", \
        "<|" name "_" a "5|>", "<|" name "_" a "6|>", "<|" name "_" a "7|>"

const char *const grammar_special_tokens[] = {"<|endoftext|>",
                                              "<|im_start|>",
                                              "<|im_end|>",
                                              "<|boi|>",
                                              "<|eoi|>",
                                              "<|bov|>",
                                              "<|eov|>",
                                              "<|next|>",
                                              "<|boa|>",
                                              EIGHT("shape", "0"),
                                              EIGHT("shape", "1"),
                                              EIGHT("reserved", "0"),
                                              EIGHT("reserved", "1"),
                                              NULL};

/* Shape tokens are numbered in octal; each line of the table above holds 8. */
static i32 shape_id(const struct text_tokenizer *tokenizer, i64 index)
{
    char name[32];
    snprintf(name, sizeof name, "<|shape_%d%d|>", (int)(index / 8), (int)(index % 8));
    return text_token_id(tokenizer, name);
}

static i32 first_id(const struct text_tokenizer *tokenizer, const char *const *names)
{
    i32 id = -1;
    for (; *names && id < 0; names++)
        id = text_token_id(tokenizer, *names);
    return id;
}

void shape_of_vision(struct shape *out, const struct vision_shape *in)
{
    *out = (struct shape){.scale_count = in->scale_count, .video = in->frames > 1, .frames = in->latent_frames};
    for (i64 k = 0; k < in->scale_count; k++)
        out->scales[k] = in->scales[k];
}

static int find_shapes(struct vocabulary *v, const struct text_tokenizer *tokenizer, const struct shape *shapes,
                       i64 count)
{
    if (count > SHAPES_MOST)
        return error_set("the vision tokenizer has %lld shapes; at most %d have a token", (long long)count,
                         SHAPES_MOST);
    v->shape_count = count;
    for (i64 i = 0; i < count; i++) {
        v->shapes[i] = shapes[i];
        v->shape[i] = shape_id(tokenizer, i);
        if (v->shape[i] < 0)
            return error_set(
                "the text tokenizer has no token for shape %lld of the vision tokenizer (<|shape_00|>, ...); "
                "train it with the special tokens of this program",
                (long long)i);
    }
    return 0;
}

int vocabulary_init(struct vocabulary *v, const struct text_tokenizer *tokenizer, const struct shape *shapes, i64 count)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", NULL};
    *v = (struct vocabulary){
        .ids = text_vocabulary(tokenizer), .end = first_id(tokenizer, ends), .message_begin = -1, .message_end = -1};
    for (int i = 0; i < BRACKETS; i++)
        v->bracket[i] = text_token_id(tokenizer, bracket_tokens[i]);
    text_chat_marks(&v->message_begin, &v->message_end, tokenizer);
    return find_shapes(v, tokenizer, shapes, count);
}

int vocabulary_load(struct vocabulary *v, const struct text_tokenizer *tokenizer, const struct vision_config *vision)
{
    struct shape shapes[VISION_SHAPES_MOST];
    for (i64 i = 0; vision && i < vision->shape_count; i++)
        shape_of_vision(&shapes[i], &vision->shapes[i]);
    return vocabulary_init(v, tokenizer, shapes, vision ? vision->shape_count : 0);
}

i64 shape_tokens(const struct shape *shape)
{
    i64 tokens = 0;
    for (i64 k = 0; k < shape->scale_count; k++)
        tokens += scale_positions(shape->scales[k]);
    return tokens;
}

i64 shape_positions(const struct shape *shape)
{
    return shape_tokens(shape) - scale_positions(shape->scales[0]) + 1;
}

float shape_input_scale(const float *amplitude, i64 scale_count)
{
    float sum = 0;
    for (i64 k = 0; k < scale_count; k++)
        sum += amplitude[k] * amplitude[k];
    return sum > 0 ? 1 / sqrtf(sum) : 1;
}
