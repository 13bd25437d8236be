/* Post-processors: ids around a text. Templates for pairs of texts are ignored. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

enum { MOST_IDS = 1 << 16 };

static void insert_ids(i32 **ids, i64 *count, i64 at, const struct id_list *more)
{
    i64 size = (i64)sizeof(i32);
    *ids = memory_resize(*ids, *count * size, (*count + more->count) * size);
    memmove(*ids + at + more->count, *ids + at, (size_t)(*count - at) * sizeof(i32));
    if (more->count)
        memcpy(*ids + at, more->ids, (size_t)more->count * sizeof(i32));
    *count += more->count;
}

/* Adds ids around the text. A later post-processor wraps the output of an earlier one, so its ids
 * go outside. */
static void put_around(struct text_tokenizer *tokenizer, const struct id_list *before, const struct id_list *after)
{
    insert_ids(&tokenizer->template_before, &tokenizer->before_count, 0, before);
    insert_ids(&tokenizer->template_after, &tokenizer->after_count, tokenizer->after_count, after);
}

static int push_special(struct id_list *out, const struct json *special, const struct json *tokens,
                        const struct json_origin *source)
{
    const struct json *ids = json_get(json_get(tokens, json_string(json_get(special, "id"), "")), "ids");
    if (json_kind(ids) != JSON_ARRAY)
        return refuse(source, special, "a token that stands in special_tokens");
    for (i64 i = 0; i < json_count(ids); i++) {
        i64 id = json_integer(json_at(ids, i), -1);
        if (id < 0 || id > INT32_MAX)
            return refuse(source, ids, "ids");
        id_list_push(out, (i32)id);
    }
    return 0;
}

static int read_pieces(struct id_list sides[2], const struct json *value, const struct json_origin *source)
{
    const struct json *single = json_get(value, "single");
    int texts = 0;
    for (i64 i = 0; i < json_count(single); i++) {
        struct json_origin place = source_of(source, "single", i);
        const struct json *piece = json_at(single, i), *special = json_get(piece, "SpecialToken");
        const struct json *text = json_get(piece, "Sequence");
        if (special && push_special(&sides[texts > 0], special, json_get(value, "special_tokens"), &place))
            return -1;
        if (sides[0].count + sides[1].count > MOST_IDS)
            return error_set("%s: %s: more than %d ids around each text", source->origin, place.place, MOST_IDS);
        if (!special && !text)
            return refuse(&place, piece, "a SpecialToken or a Sequence");
        if (text && (texts++ || strcmp(json_string(json_get(text, "id"), ""), "A") != 0))
            return refuse(&place, piece, "the text (Sequence A) once; more of it is not supported");
    }
    struct json_origin place = source_of(source, "single", -1);
    return texts ? 0 : refuse(&place, single, "a list that holds the text (Sequence A)");
}

static int read_template(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    struct id_list sides[2] = {{0}};
    int status = read_pieces(sides, value, source);
    if (status == 0)
        put_around(tokenizer, &sides[0], &sides[1]);
    id_list_release(&sides[0]);
    id_list_release(&sides[1]);
    return status;
}

/* [CLS] text [SEP], each given as ["TOKEN", id]. */
static int read_bert(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    i64 cls = json_integer(json_at(json_get(value, "cls"), 1), -1);
    i64 sep = json_integer(json_at(json_get(value, "sep"), 1), -1);
    if (cls < 0 || sep < 0 || cls > INT32_MAX || sep > INT32_MAX)
        return refuse(source, value, "cls and sep, each as [\"TOKEN\", ID]");
    i32 ids[] = {(i32)cls, (i32)sep};
    put_around(tokenizer, &(struct id_list){&ids[0], 1, 1}, &(struct id_list){&ids[1], 1, 1});
    return 0;
}

static int read_byte_level(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    (void)tokenizer, (void)value, (void)source; /* changes offsets only */
    return 0;
}

static int read_sequence(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    return sequence_read(tokenizer, value, "processors", template_read, source);
}

static const struct {
    const char *name;
    part_fn *read;
} KINDS[] = {{"TemplateProcessing", read_template},
             {"ByteLevel", read_byte_level},
             {"BertProcessing", read_bert},
             {"RobertaProcessing", read_bert},
             {"Sequence", read_sequence}};

int template_read(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    const char *name = kind_of(value), *known[COUNT_OF(KINDS) + 1];
    if (json_kind(value) == JSON_NULL)
        return 0;
    for (i64 i = 0; i < COUNT_OF(KINDS); i++)
        if (strcmp(name, KINDS[i].name) == 0)
            return KINDS[i].read(tokenizer, value, source);
    for (i64 i = 0; i < COUNT_OF(KINDS); i++)
        known[i] = KINDS[i].name;
    known[COUNT_OF(KINDS)] = NULL;
    return refuse_kind(source, name, known);
}
