/* weft tokenize: JSON lines on stdin, {"text":..} -> {"ids":[..]} and back. */
#include "cli/cli.h"
#include "core/json.h"
#include "sequence/grammar.h"
#include "tokenizers/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers with commas between, as printf would write them; a call of it for every id would be most of the time. */
static void append_ids(struct text *out, const i32 *ids, i64 count)
{
    enum { MOST_BYTES = 12 };
    char part[4096];
    i64 length = 0;
    for (i64 i = 0; i < count; i++) {
        char digits[MOST_BYTES];
        int at = MOST_BYTES;
        i32 value = ids[i];
        do
            digits[--at] = (char)('0' + value % 10);
        while (value /= 10);
        if (i)
            digits[--at] = ',';
        if (length + MOST_BYTES > (i64)sizeof part) {
            text_append(out, part, length);
            length = 0;
        }
        memcpy(part + length, digits + at, (size_t)(MOST_BYTES - at));
        length += MOST_BYTES - at;
    }
    text_append(out, part, length);
}

static int encode_line(struct text *out, const struct text_tokenizer *tokenizer, const struct json *line, bool bare)
{
    const struct encode_options options = {.add_template = !bare};
    const struct json *text = json_get(line, "text");
    struct id_list ids = {0};
    if (json_kind(text) != JSON_STRING)
        return error_set("expected an object with a string \"text\"");
    int status = text_encode(tokenizer, &ids, json_string(text, ""), json_string_length(text), &options);
    text_append(out, "{\"ids\":[", 8);
    append_ids(out, ids.ids, ids.count);
    text_append(out, "]}\n", 3);
    id_list_release(&ids);
    return status;
}

static int decode_line(struct text *out, const struct text_tokenizer *tokenizer, const struct json *line)
{
    const struct json *list = json_get(line, "ids");
    struct id_list ids = {0};
    struct text decoded = {0};
    int status = 0;
    if (json_kind(list) != JSON_ARRAY)
        return error_set("expected an object with an array \"ids\"");
    for (i64 i = 0; i < json_count(list) && status == 0; i++) {
        i64 id = json_integer(json_at(list, i), -1);
        if (id < 0 || id > INT32_MAX)
            status = error_set("ids[%lld]: expected a whole number from 0", (long long)i);
        id_list_push(&ids, (i32)id);
    }
    bool skip = json_bool(json_get(line, "skip_special"), false);
    if (status == 0)
        status = text_decode(tokenizer, &decoded, ids.ids, ids.count, skip);
    if (status == 0) {
        struct json *j = json_object();
        json_set(j, "text", json_of_bytes(decoded.data ? decoded.data : "", decoded.length));
        json_print(out, j, 0);
        text_append(out, "\n", 1);
        json_free(j);
    }
    text_release(&decoded);
    id_list_release(&ids);
    return status;
}

/* ---- Lines, a block of them at a time, on all threads; they come out in order ---- */
enum { BLOCK_LINES = 1024, BLOCK_BYTES = 4 << 20 };

struct line {
    i64 begin, length, number; /* in the block's text; number: in the file, from 1 */
    struct text out;
    char *failed; /* message; NULL: none */
};
struct block {
    const struct text_tokenizer *tokenizer;
    bool decode, bare;
    struct text text;
    struct line lines[BLOCK_LINES];
    i64 count;
};

static int do_line(struct line *line, const struct block *block)
{
    struct json *j = json_parse_line(block->text.data + line->begin, line->length, "stdin", line->number);
    if (!j)
        return -1;
    int status = block->decode ? decode_line(&line->out, block->tokenizer, j)
                               : encode_line(&line->out, block->tokenizer, j, block->bare);
    if (status)
        error_prefix("stdin:%lld", (long long)line->number);
    json_free(j);
    return status;
}

static void do_tile(void *context, i64 tile, int worker)
{
    struct block *block = context;
    struct line *line = &block->lines[tile];
    (void)worker;
    text_clear(&line->out);
    if (do_line(line, block))
        line->failed = string_copy(error_text()); /* a message belongs to its thread */
}

/* False at the end of the input. */
static bool read_block(struct block *block, char **buffer, size_t *capacity, i64 *number)
{
    ssize_t length = 0;
    text_clear(&block->text);
    block->count = 0;
    while (block->count < BLOCK_LINES && block->text.length < BLOCK_BYTES &&
           (length = getline(buffer, capacity, stdin)) >= 0) {
        ++*number;
        length -= length && (*buffer)[length - 1] == '\n';
        if (length == 0)
            continue;
        struct line *line = &block->lines[block->count++];
        line->begin = block->text.length, line->length = length, line->number = *number;
        text_append(&block->text, *buffer, length);
    }
    return block->count > 0;
}

/* What came before a bad line is written. */
static int write_block(struct block *block)
{
    int status = 0;
    for (i64 i = 0; i < block->count; i++) {
        struct line *line = &block->lines[i];
        if (status == 0 && line->failed)
            status = error_set("%s", line->failed);
        if (status == 0 && fwrite(line->out.data, 1, (size_t)line->out.length, stdout) != (size_t)line->out.length)
            status = error_errno("stdout");
        memory_free(line->failed);
        line->failed = NULL;
    }
    return status;
}

static int run_lines(const struct text_tokenizer *tokenizer, bool decode, bool bare)
{
    struct block *block = memory_alloc(sizeof *block);
    char *buffer = NULL;
    size_t capacity = 0;
    i64 number = 0;
    int status = 0;
    block->tokenizer = tokenizer, block->decode = decode, block->bare = bare;
    while (status == 0 && read_block(block, &buffer, &capacity, &number)) {
        workers_run(block->count, do_tile, block);
        status = write_block(block);
    }
    if (status == 0 && ferror(stdin))
        status = error_errno("stdin: cannot be read");
    if (status == 0 && fflush(stdout))
        status = error_errno("stdout");
    for (i64 i = 0; i < BLOCK_LINES; i++)
        text_release(&block->lines[i].out);
    text_release(&block->text);
    memory_free(block);
    free(buffer);
    return status;
}

static int save_extended(struct text_tokenizer *tokenizer, const char *folder)
{
    i64 before = text_vocabulary(tokenizer);
    if (text_tokenizer_add_special(tokenizer, grammar_special_tokens) || text_tokenizer_save(tokenizer, folder))
        return -1;
    log_info("%s: %lld ids, %lld of them new", folder, (long long)text_vocabulary(tokenizer),
             (long long)(text_vocabulary(tokenizer) - before));
    return 0;
}

int command_tokenize(int argc, char **argv)
{
    struct arguments a;
    bool decode = false, plain = false;
    const char *out = NULL;
    const struct option options[] = {
        {"o", "DIR", &out, NULL, "instead: a copy with the special tokens that this program needs"},
        {"decode", NULL, NULL, &decode, "ids to text"},
        {"plain", NULL, NULL, &plain, "without the ids that the tokenizer's post-processor puts around a text"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status)
        return status < 0 ? command_failed() : 0;
    struct text_tokenizer *tokenizer = text_tokenizer_load(a.positional[0]);
    if (!tokenizer)
        return command_failed();
    status = out ? save_extended(tokenizer, out) : run_lines(tokenizer, decode, plain);
    text_tokenizer_free(tokenizer);
    return status ? command_failed() : 0;
}
