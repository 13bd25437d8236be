/* weft tokenize: converts JSON lines on stdin, {"text":..} to {"ids":[..]} or back. */
#define _GNU_SOURCE /* memrchr */
#include "cli/cli.h"
#include "core/json.h"
#include "core/thread.h"
#include "sequence/grammar.h"
#include "tokenizers/text/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct tokenize_line {
    const char *text;
    i64 length;
};
/* Buffers of one thread. */
struct scratch {
    struct buffer unescaped;
    struct id_list ids;
};

/* Appends numbers with commas between them, and before the first where `more` is set. Calling printf
 * per id would dominate the run time. */
static void append_ids(struct buffer *out, const i32 *ids, i64 count, bool more)
{
    enum { MOST_BYTES = 12 };
    char part[4096];
    i64 length = 0;
    for (i64 i = 0; i < count; i++) {
        char digits[MOST_BYTES];
        int at = MOST_BYTES;
        u32 value = (u32)ids[i];
        do
            digits[--at] = (char)('0' + value % 10);
        while (value /= 10);
        if (i || more)
            digits[--at] = ',';
        if (length + MOST_BYTES > (i64)sizeof part) {
            buffer_append(out, part, length);
            length = 0;
        }
        memcpy(part + length, digits + at, (size_t)(MOST_BYTES - at));
        length += MOST_BYTES - at;
    }
    buffer_append(out, part, length);
}

/* The ids of a very long text stay in `late`, which is empty, because they take more memory as
 * text; write_late follows. */
static int encode_text(struct buffer *out, struct id_list *late, struct scratch *scratch,
                       const struct text_tokenizer *tokenizer, const char *text, i64 length, bool bare)
{
    enum { LATE_IDS = 1 << 20, LATE_BYTES = 1 << 16 }; /* a line of so many bytes is the last of its tile */
    const struct encode_options options = {.add_template = !bare};
    scratch->ids.count = 0;
    if (text_encode(tokenizer, &scratch->ids, text, length, &options))
        return -1;
    buffer_append(out, "{\"ids\":[", 8);
    if (length >= LATE_BYTES && scratch->ids.count >= LATE_IDS) {
        *late = scratch->ids;
        scratch->ids = (struct id_list){0};
        return 0;
    }
    append_ids(out, scratch->ids.ids, scratch->ids.count, false);
    buffer_append(out, "]}\n", 3);
    return 0;
}

static int encode_object(struct buffer *out, struct id_list *late, struct scratch *scratch,
                         const struct text_tokenizer *tokenizer, const struct json *line, bool bare)
{
    const struct json *text = json_get(line, "text");
    if (json_kind(text) != JSON_STRING)
        return error_set("expected an object with a string \"text\"");
    return encode_text(out, late, scratch, tokenizer, json_string(text, ""), json_string_length(text), bare);
}

static int decode_object(struct buffer *out, struct scratch *scratch, const struct text_tokenizer *tokenizer,
                         const struct json *line)
{
    const struct json *list = json_get(line, "ids");
    struct id_list *ids = &scratch->ids;
    struct buffer decoded = {0};
    int status = 0;
    ids->count = 0;
    if (json_kind(list) != JSON_ARRAY)
        return error_set("expected an object with an array \"ids\"");
    for (i64 i = 0; i < json_count(list) && status == 0; i++) {
        i64 id = json_integer(json_at(list, i), -1);
        if (id < 0 || id > INT32_MAX)
            status = error_set("ids[%lld]: expected a whole number from 0", (long long)i);
        id_list_push(ids, (i32)id);
    }
    bool skip = json_bool(json_get(line, "skip_special"), false);
    if (status == 0)
        status = text_decode(tokenizer, &decoded, ids->ids, ids->count, skip);
    if (status == 0) {
        struct json *j = json_object();
        json_set(j, "text", json_of_bytes(decoded.data ? decoded.data : "", decoded.length));
        json_print(out, j, 0);
        buffer_append(out, "\n", 1);
        json_free(j);
    }
    buffer_release(&decoded);
    return status;
}

/* ---- Lines are processed in blocks on all threads, and written in order ---- */
enum { BLOCK_BYTES = 2 << 20, TILE_BYTES = 1 << 14 };

struct tokenize_tile {
    i64 begin, end; /* whole lines of the block's text */
    struct buffer out;
    struct id_list late; /* ids of the last line, if they are very many: `out` ends with its bracket */
    char *failed;        /* message; NULL: none */
};
struct tokenize_block {
    const struct text_tokenizer *tokenizer;
    bool decode, bare;
    struct scratch *scratch; /* one per worker */
    struct buffer text;      /* whole lines, then the beginning of the next one */
    i64 whole, number;       /* whole: bytes; number: first line, from 1 */
    struct tokenize_tile *tiles;
    i64 count, capacity;
};

static int process_line(struct buffer *out, struct id_list *late, struct scratch *scratch,
                        const struct tokenize_block *block, const struct tokenize_line *line, i64 number)
{
    const char *text;
    i64 length;
    int status;
    if (!block->decode && text_invalid_utf8(line->text, line->length) < 0 &&
        json_line_string(&text, &length, &scratch->unescaped, line->text, line->length, "text")) {
        status = encode_text(out, late, scratch, block->tokenizer, text, length, block->bare);
    } else {
        struct json *j = json_parse_line(line->text, line->length, "stdin", number);
        if (!j)
            return -1;
        status = block->decode ? decode_object(out, scratch, block->tokenizer, j)
                               : encode_object(out, late, scratch, block->tokenizer, j, block->bare);
        json_free(j);
    }
    return status ? error_prefix("stdin:%lld", (long long)number) : 0;
}

static i64 count_lines(const char *text, i64 length)
{
    i64 count = 0;
    for (const char *at = text, *end = text + length; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        count++;
    return count;
}

/* Repeats the failed line for its message, since messages are thread-local and line numbers are
 * counted only on failure. Returns a copy of the message. */
static char *line_error(struct buffer *out, struct scratch *scratch, const struct tokenize_block *block,
                        const struct tokenize_line *line)
{
    i64 number = block->number + count_lines(block->text.data, line->text - block->text.data);
    struct id_list late = {0};
    process_line(out, &late, scratch, block, line, number);
    id_list_release(&late);
    return string_copy(error_text());
}

static void process_tile(void *context, i64 index, int worker)
{
    struct tokenize_block *block = context;
    struct scratch *scratch = &block->scratch[worker];
    struct tokenize_tile *tile = &block->tiles[index];
    const char *end = block->text.data + tile->end, *next;
    buffer_clear(&tile->out);
    for (const char *at = block->text.data + tile->begin; at < end && !tile->failed; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        next = newline ? newline + 1 : end;
        struct tokenize_line line = {at, (newline ? newline : end) - at};
        if (line.length && process_line(&tile->out, &tile->late, scratch, block, &line, 0))
            tile->failed = line_error(&tile->out, scratch, block, &line);
    }
}

static void add_tile(struct tokenize_block *block, i64 begin, i64 end)
{
    if (block->count == block->capacity) {
        i64 next = max_i64(BLOCK_BYTES / TILE_BYTES, 2 * block->capacity), size = sizeof(struct tokenize_tile);
        block->tiles = memory_resize(block->tiles, block->capacity * size, next * size);
        block->capacity = next;
    }
    struct tokenize_tile *tile = &block->tiles[block->count++];
    tile->begin = begin, tile->end = end;
}

static void cut_tiles(struct tokenize_block *block)
{
    const char *text = block->text.data;
    block->count = 0;
    for (i64 begin = 0, end; begin < block->whole; begin = end) {
        i64 from = min_i64(begin + TILE_BYTES, block->whole) - 1;
        const char *newline = memchr(text + from, '\n', (size_t)(block->whole - from));
        end = newline ? newline + 1 - text : block->whole;
        add_tile(block, begin, end);
    }
}

/* ---- One block is written and the next one read while the current one is processed ---- */
struct block_exchange {
    struct tokenize_block *block;         /* to be written, then filled */
    const struct tokenize_block *current; /* the block before it in the input */
    char *failed;                         /* message; NULL: none */
};

static i64 read_some(struct buffer *text)
{
    static char bytes[1 << 18];
    ssize_t count;
    do
        count = read(STDIN_FILENO, bytes, sizeof bytes);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return error_errno("stdin: cannot be read");
    buffer_append(text, bytes, count);
    return count;
}

/* Reads whole lines, at least one; none at the end of the
 * input. The last line may lack its newline. */
static int read_block(struct tokenize_block *block, const struct tokenize_block *before)
{
    struct buffer *text = &block->text;
    i64 got = 1;
    buffer_clear(text);
    block->number = before->number + count_lines(before->text.data, before->whole);
    buffer_append(text, before->text.data + before->whole, before->text.length - before->whole);
    block->whole = 0;
    while (got > 0 && (text->length < BLOCK_BYTES || block->whole == 0)) {
        i64 known = text->length;
        if ((got = read_some(text)) < 0)
            return -1;
        const char *newline = memrchr(text->data + known, '\n', (size_t)got);
        block->whole = newline ? newline + 1 - text->data : block->whole;
    }
    block->whole = got == 0 ? text->length : block->whole;
    cut_tiles(block);
    return 0;
}

static int write_late(struct id_list *late)
{
    enum { AT_ONCE = 1 << 16 };
    struct buffer text = {0};
    bool written = true;
    for (i64 i = 0; i < late->count && written; i += AT_ONCE) {
        buffer_clear(&text);
        append_ids(&text, late->ids + i, min_i64(AT_ONCE, late->count - i), i > 0);
        written = fwrite(text.data, 1, (size_t)text.length, stdout) == (size_t)text.length;
    }
    written = written && fwrite("]}\n", 1, 3, stdout) == 3;
    buffer_release(&text);
    id_list_release(late);
    return written ? 0 : error_errno("stdout");
}

/* Writes the output up to the first failed line. */
static int write_block(struct tokenize_block *block)
{
    for (i64 i = 0; i < block->count; i++) {
        struct tokenize_tile *tile = &block->tiles[i];
        if (output_result(tile->out.data, tile->out.length) < 0)
            return -1;
        if (tile->late.count && write_late(&tile->late))
            return -1;
        if (tile->failed)
            return error_set("%s", tile->failed);
    }
    return 0;
}

static void *exchange_block(void *context)
{
    struct block_exchange *e = context;
    if (write_block(e->block) || read_block(e->block, e->current))
        e->failed = string_copy(error_text());
    return NULL;
}

static int process_block(struct tokenize_block *current, struct tokenize_block *other)
{
    struct block_exchange e = {.block = other, .current = current};
    pthread_t thread;
    thread_start(&thread, exchange_block, &e, "a thread to read and write with");
    workers_run(current->count, process_tile, current);
    pthread_join(thread, NULL);
    int status = e.failed ? error_set("%s", e.failed) : 0;
    memory_free(e.failed);
    return status;
}

static void block_release(struct tokenize_block *block)
{
    for (i64 i = 0; i < block->capacity; i++) {
        buffer_release(&block->tiles[i].out);
        id_list_release(&block->tiles[i].late);
        memory_free(block->tiles[i].failed);
    }
    memory_free(block->tiles);
    buffer_release(&block->text);
}

static int run_lines(const struct text_tokenizer *tokenizer, bool decode, bool bare)
{
    int workers = workers_count();
    struct scratch *scratch = memory_alloc(workers * (i64)sizeof *scratch);
    struct tokenize_block blocks[2] = {{tokenizer, decode, bare, scratch, .number = 1},
                                       {tokenizer, decode, bare, scratch}};
    struct tokenize_block *current = &blocks[1], *other = &blocks[0];
    buffer_append(&other->text, "", 0);
    int status = read_block(current, other);
    while (status == 0 && current->count > 0 && (status = process_block(current, other)) == 0) {
        struct tokenize_block *done = current;
        current = other, other = done;
    }
    if (status == 0)
        status = write_block(other);
    if (fflush(stdout) && status == 0)
        status = error_errno("stdout");
    for (int i = 0; i < workers; i++) {
        buffer_release(&scratch[i].unescaped);
        id_list_release(&scratch[i].ids);
    }
    memory_free(scratch);
    block_release(&blocks[0]);
    block_release(&blocks[1]);
    return status;
}

static int save_extended(struct text_tokenizer *tokenizer, const char *folder)
{
    i64 before = text_vocabulary(tokenizer);
    if (text_tokenizer_add_special(tokenizer, grammar_special_tokens) || text_tokenizer_save(tokenizer, folder))
        return -1;
    log_info("%s: %lld %s, %lld added", folder, (long long)text_vocabulary(tokenizer),
             plural(text_vocabulary(tokenizer), "id", "ids"), (long long)(text_vocabulary(tokenizer) - before));
    return 0;
}

int command_tokenize(int argc, char **argv)
{
    struct arguments a;
    bool decode = false, plain = false;
    const char *out = NULL;
    const struct option options[] = {
        {"o", "DIR", &out, NULL, "only write a copy of the tokenizer with Weft's special tokens added"},
        {"decode", NULL, NULL, &decode, "decode {\"ids\":[...]} lines to text"},
        {"plain", NULL, NULL, &plain, "omit ids added by the tokenizer's post-processor, such as BOS"},
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
