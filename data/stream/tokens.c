/* The messages of the serve-tokens protocol and their checks. */
#include "data/stream/tokens.h"

#include "core/json.h"
#include "data/shards/shard_layout.h"
#include "tokenizers/text/text.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_tokenizer(struct buffer *out, const char *directory)
{
    struct buffer content = {0};
    char *below = path_join(directory, "text"), *file = text_tokenizer_file(below);
    int status = file ? file_read(&content, file) : error_set("%s: no text tokenizer there", directory);
    if (status == 0)
        buffer_append(out, content.data, content.length);
    buffer_release(&content);
    memory_free(below);
    memory_free(file);
    return status;
}

int tokens_identity(u64 *out, const struct shard_stream *stream, const char *directory)
{
    struct shard_meta *meta = memory_alloc(sizeof *meta);
    struct json *settings = settings_to_json(&stream->settings, prepare_table);
    static const char *const elsewhere[] = {"data", "stream", "part"};
    struct buffer all = {0};
    int status = shard_meta_load(meta, directory);
    for (i64 i = 0; i < COUNT_OF(elsewhere); i++)
        json_set(settings, elsewhere[i], json_of_bool(true));
    for (int i = 0; i < TOKENIZERS; i++)
        json_set(settings, tokenizer_names[i], json_of_bool(true));
    json_print(&all, settings, 0);
    buffer_printf(&all, " %llu %d %lld %llu", (unsigned long long)stream->seed, (int)stream->dtype,
                  (long long)stream->settings.stream.parts,
                  (unsigned long long)(status == 0 ? shard_meta_hash(meta) : 0));
    if (status == 0)
        status = add_tokenizer(&all, directory);
    *out = hash_bytes(all.data, all.length, 0);
    json_free(settings);
    buffer_release(&all);
    memory_free(meta);
    return status;
}

/* ---- Requests ---- */

static const char *const paths[TOKENS_PARTS] = {"/index?", "/shard?"};
static const struct token_field {
    const char *name;
    int base;
    size_t offset;
} fields[] = {
    {"version", 10, offsetof(struct token_request, version)},  {"stream", 16, offsetof(struct token_request, stream)},
    {"run", 16, offsetof(struct token_request, run)},          {"reader", 10, offsetof(struct token_request, reader)},
    {"readers", 10, offsetof(struct token_request, readers)},  {"part", 10, offsetof(struct token_request, partition)},
    {"parts", 10, offsetof(struct token_request, partitions)}, {"pass", 10, offsetof(struct token_request, pass)},
    {"number", 10, offsetof(struct token_request, number)}};

struct token_request token_request(u64 identity, const struct ring_name *name, i64 partition, i64 partitions, i64 pass,
                                   i64 number)
{
    return (struct token_request){.version = TOKENS_VERSION,
                                  .stream = identity,
                                  .run = name->run,
                                  .reader = (u64)name->reader,
                                  .readers = (u64)name->readers,
                                  .partition = (u64)partition,
                                  .partitions = (u64)partitions,
                                  .pass = (u64)pass,
                                  .number = (u64)number};
}

char *token_target(const struct token_request *request, enum token_part part)
{
    struct buffer out = {0};
    buffer_printf(&out, "%s", paths[part]);
    for (i64 i = 0; i < COUNT_OF(fields); i++) {
        char number[32];
        unsigned long long value = *(const u64 *)(const void *)((const char *)request + fields[i].offset);
        snprintf(number, sizeof number, fields[i].base == 16 ? "%016llx" : "%llu", value);
        buffer_printf(&out, "%s%s=%s", i ? "&" : "", fields[i].name, number);
    }
    return out.data;
}

/* Reads one field of a query, NAME=NUMBER between ampersands. */
static int read_field(struct token_request *out, const struct token_field *field, const char *query)
{
    size_t length = strlen(field->name);
    for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&') {
        char *end;
        if (strncmp(at, field->name, length) != 0 || at[length] != '=' || !isxdigit((u8)at[length + 1]))
            continue;
        *(u64 *)(void *)((char *)out + field->offset) = strtoull(at + length + 1, &end, field->base);
        if (end > at + length + 1 && (*end == '&' || *end == 0))
            return 0;
    }
    return error_set("not a request for shards: its %s is no number", field->name);
}

int token_target_read(struct token_request *out, enum token_part *part, const char *target)
{
    int found = 0, status = 0;
    while (found < TOKENS_PARTS && strncmp(target, paths[found], strlen(paths[found])) != 0)
        found++;
    if (found == TOKENS_PARTS)
        return error_set("not a request for shards: weft serve-tokens serves training stages");
    *part = (enum token_part)found;
    for (i64 i = 0; i < COUNT_OF(fields) && status == 0; i++) {
        status = read_field(out, &fields[i], target + strlen(paths[found]));
        if (status == 0 && out->version != TOKENS_VERSION) /* the first field */
            return error_set("asked in version %llu of the protocol, and this is version %d: run the same program on "
                             "both sides",
                             (unsigned long long)out->version, TOKENS_VERSION);
    }
    return status;
}

int token_request_check(const struct token_request *r, u64 identity, i64 partitions)
{
    const u64 most = (u64)1 << 40;
    if (r->stream != identity || r->partitions != (u64)partitions)
        return error_set(
            "another stream is served here (settings, seed, precision, tokenizers or stream.parts differ): "
            "give the server the folder of the same stage");
    if (r->partition >= r->partitions || r->pass > most || r->number > most)
        return error_set("part %llu, pass %llu, shard %llu cannot be", (unsigned long long)r->partition,
                         (unsigned long long)r->pass, (unsigned long long)r->number);
    if (r->readers > TOKENS_READERS_MOST || r->reader >= r->readers)
        return error_set("reader %llu of %llu cannot be", (unsigned long long)r->reader,
                         (unsigned long long)r->readers);
    return 0;
}

/* ---- Hashes and proofs ---- */

u64 token_reply_seed(int status, const char *target)
{
    return hash_bytes(target, (i64)strlen(target), (u64)status);
}

u64 token_reply_hash(int status, const char *target, const void *body, i64 bytes)
{
    u64 hash = token_reply_seed(status, target);
    for (i64 at = 0; at < bytes; at += TOKENS_BLOCK_BYTES)
        hash = hash_bytes((const u8 *)body + at, min_i64(TOKENS_BLOCK_BYTES, bytes - at), hash);
    return hash;
}

static void print_hex(char out[TOKENS_HEX + 1], const u8 bytes[SECRET_BYTES])
{
    for (int i = 0; i < SECRET_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void token_nonce(char out[TOKENS_HEX + 1])
{
    u8 bytes[SECRET_BYTES];
    secret_draw(bytes, sizeof bytes);
    print_hex(out, bytes);
}

void token_reader_proof(char out[TOKENS_HEX + 1], const struct secret *secret, const char *target,
                        const char *server_nonce, const char *reader_nonce)
{
    u8 proof[SECRET_BYTES];
    char *text = string_format("GET %s %s %s", target, server_nonce, reader_nonce);
    secret_proof(proof, secret, "token reader", text, (i64)strlen(text));
    print_hex(out, proof);
    memory_free(text);
}

void token_server_proof(char out[TOKENS_HEX + 1], const struct secret *secret, const char *reader_nonce, u64 hash)
{
    u8 proof[SECRET_BYTES];
    char *text = string_format("%s %016llx", reader_nonce, (unsigned long long)hash);
    secret_proof(proof, secret, "token server", text, (i64)strlen(text));
    print_hex(out, proof);
    memory_free(text);
}
