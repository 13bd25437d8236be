/* The messages of the serve-tokens protocol and their checks. */
#include "data/stream/tokens.h"

#include "core/json.h"
#include "data/shards/shard_layout.h"
#include "tokenizers/text/text.h"

#include <string.h>

static const char request_magic[8] = "WEFTASKS", reply_magic[8] = "WEFTGIVE", greeting_magic[8] = "WEFTMEET";
_Static_assert(sizeof(struct token_request) == 72 && sizeof(struct token_reply) == 64 &&
                   sizeof(struct token_greeting) == 48 && sizeof(struct token_challenge) == 80,
               "what goes over the wire");

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

struct token_request token_request(u64 identity, const struct ring_name *name, i64 partition, i64 partitions, i64 pass,
                                   i64 number)
{
    struct token_request r = {.version = TOKENS_VERSION,
                              .identity = identity,
                              .run = name->run,
                              .reader = (u32)name->reader,
                              .readers = (u32)name->readers,
                              .partition = (u64)partition,
                              .partitions = (u64)partitions,
                              .pass = (u64)pass,
                              .number = (u64)number};
    memcpy(r.magic, request_magic, 8);
    return r;
}

int token_request_check_version(const struct token_request *r)
{
    if (memcmp(r->magic, request_magic, 8) != 0)
        return error_set("not a request for shards: weft serve-tokens serves training stages");
    if (r->version != TOKENS_VERSION)
        return error_set("asked in version %u of the protocol, and this is version %d: run the same program on both "
                         "sides",
                         r->version, TOKENS_VERSION);
    return 0;
}

int token_request_check(const struct token_request *r, u64 identity, i64 partitions)
{
    const u64 most = (u64)1 << 40;
    if (token_request_check_version(r) < 0)
        return -1;
    if (r->identity != identity || r->partitions != (u64)partitions)
        return error_set(
            "another stream is served here (settings, seed, precision, tokenizers or stream.parts differ): "
            "give the server the folder of the same stage");
    if (r->partition >= r->partitions || r->pass > most || r->number > most)
        return error_set("part %llu, pass %llu, shard %llu cannot be", (unsigned long long)r->partition,
                         (unsigned long long)r->pass, (unsigned long long)r->number);
    if (r->readers > TOKENS_READERS_MOST || r->reader >= r->readers)
        return error_set("reader %u of %u cannot be", r->reader, r->readers);
    return 0;
}

struct token_reply token_reply(const struct token_request *request, enum token_reply_kind kind)
{
    struct token_reply r = {.version = TOKENS_VERSION,
                            .kind = kind,
                            .partition = request->partition,
                            .pass = request->pass,
                            .number = request->number};
    memcpy(r.magic, reply_magic, 8);
    return r;
}

u64 token_reply_hash(const struct token_reply *reply)
{
    struct token_reply blank = *reply;
    blank.hash = 0;
    return hash_bytes(&blank, sizeof blank, 0);
}

static bool has_fit_sizes(const struct token_reply *r)
{
    if (r->kind == REPLY_SHARD)
        return r->index_bytes >= sizeof(struct index_header) && r->index_bytes <= (u64)tokens_index_most &&
               r->shard_bytes >= sizeof(struct shard_header) && r->shard_bytes <= (u64)tokens_shard_most;
    return r->shard_bytes == 0 && r->index_bytes <= (r->kind == REPLY_REFUSED ? TOKENS_MESSAGE_MOST : 0);
}

int token_reply_check(const struct token_reply *r, const struct token_request *asked)
{
    if (memcmp(r->magic, reply_magic, 8) != 0)
        return error_set("what answers there is no weft serve-tokens");
    if (r->version != TOKENS_VERSION)
        return error_set("it answers in version %u of the protocol, and this is version %d: run the same program on "
                         "both sides",
                         r->version, TOKENS_VERSION);
    if (r->kind >= REPLY_KINDS || r->partition != asked->partition || r->pass != asked->pass ||
        (r->kind == REPLY_END ? r->number > asked->number : r->number != asked->number) || !has_fit_sizes(r))
        return error_set("its answer cannot be (kind %u, part %llu, pass %llu, shard %llu, %llu and %llu bytes)",
                         r->kind, (unsigned long long)r->partition, (unsigned long long)r->pass,
                         (unsigned long long)r->number, (unsigned long long)r->index_bytes,
                         (unsigned long long)r->shard_bytes);
    return 0;
}

void token_refusal(struct buffer *out, const struct token_request *request)
{
    struct token_reply reply = token_reply(request, REPLY_REFUSED);
    char *why = string_copy(error_text());
    reply.index_bytes = (u64)min_i64((i64)strlen(why), TOKENS_MESSAGE_MOST);
    reply.hash = hash_bytes(why, (i64)reply.index_bytes, token_reply_hash(&reply));
    buffer_append(out, &reply, sizeof reply);
    buffer_append(out, why, (i64)reply.index_bytes);
    memory_free(why);
}

/* ---- Greetings ---- */

bool token_is_greeting(const void *head)
{
    return memcmp(head, greeting_magic, sizeof greeting_magic) == 0;
}

struct token_greeting token_greeting(void)
{
    struct token_greeting g = {.version = TOKENS_VERSION};
    memcpy(g.magic, greeting_magic, sizeof g.magic);
    secret_draw(g.nonce, SECRET_BYTES);
    return g;
}

static void prove(u8 out[SECRET_BYTES], const char *who, const struct token_greeting *greeting,
                  const struct token_challenge *challenge, const struct secret *secret)
{
    u8 both[sizeof *greeting + SECRET_BYTES];
    memcpy(both, greeting, sizeof *greeting);
    memcpy(both + sizeof *greeting, challenge->nonce, SECRET_BYTES);
    secret_proof(out, secret, who, both, sizeof both);
}

struct token_challenge token_challenge(u8 expected[SECRET_BYTES], const struct token_greeting *greeting,
                                       const struct secret *secret)
{
    struct token_challenge c = {.version = TOKENS_VERSION};
    memcpy(c.magic, greeting_magic, sizeof c.magic);
    secret_draw(c.nonce, SECRET_BYTES);
    prove(c.proof, "token server", greeting, &c, secret);
    prove(expected, "token reader", greeting, &c, secret);
    return c;
}

int token_challenge_check(u8 proof[SECRET_BYTES], const struct token_challenge *challenge,
                          const struct token_greeting *greeting, const struct secret *secret)
{
    u8 expected[SECRET_BYTES];
    if (!token_is_greeting(challenge->magic) || challenge->version != TOKENS_VERSION)
        return error_set("what answers there knows no WEFT_SECRET: run the same program on both sides");
    prove(expected, "token server", greeting, challenge, secret);
    if (!secret_equal(expected, challenge->proof, SECRET_BYTES))
        return error_set("it has another WEFT_SECRET than this reader, or none");
    prove(proof, "token reader", greeting, challenge, secret);
    return 0;
}
