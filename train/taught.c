#define _GNU_SOURCE /* memmem */
#include "train/taught.h"

#include "core/json.h"
#include "data/shards/shards.h"
#include "tokenizers/text/text.h"
#include "train/shard_order.h"

#include <stdlib.h>
#include <string.h>

/* ---- A user's words in the layout of a template ---- */

/* What the template writes just before the words of a first message, and behind them. */
struct taught_frame {
    struct buffer before, behind;
};

static void frame_release(struct taught_frame *f)
{
    buffer_release(&f->before);
    buffer_release(&f->behind);
}

static void push_message(struct json *messages, const char *role, const char *content)
{
    struct json *message = json_object();
    json_set(message, "role", json_of_string(role));
    json_set(message, "content", json_of_string(content));
    json_push(messages, message);
}

/* The layout of a message with known words as the ids spell it, cut at these words. */
static int lay_out(struct taught_frame *f, const struct text_tokenizer *tokenizer, const struct chat *chat,
                   const char *system, bool prompt)
{
    static const char words[] = "weft 4153297";
    struct json *messages = json_array();
    struct chat_ids ids = {0};
    struct buffer text = {0};
    *f = (struct taught_frame){0};
    if (system)
        push_message(messages, "system", system);
    push_message(messages, "user", words);
    const struct chat_request request = {.messages = messages, .prompt = prompt};
    int status = text_chat_encode(&ids, chat, &request);
    if (status == 0)
        status = text_decode(tokenizer, &text, ids.ids.ids, ids.ids.count, false);
    const char *at = status == 0 && text.data ? strstr(text.data, words) : NULL;
    if (at) {
        buffer_append(&f->before, text.data, at - text.data);
        at += strlen(words);
        buffer_append(&f->behind, at, text.length - (at - text.data));
    }
    chat_ids_release(&ids);
    buffer_release(&text);
    json_free(messages);
    return at ? 0 : -1;
}

/* Keeps of the text before the words what stands there behind a system message too, and of the text
 * behind them what stands there without the generation prompt. False: the template hides the words. */
static bool frame_find(struct taught_frame *f, const struct text_tokenizer *tokenizer)
{
    struct chat *chat = text_chat_open(tokenizer);
    struct taught_frame other = {0};
    bool found = chat && lay_out(f, tokenizer, chat, NULL, true) == 0;
    if (found && lay_out(&other, tokenizer, chat, "weft", true) == 0) {
        i64 same = 0, most = min_i64(f->before.length, other.before.length);
        while (same < most &&
               f->before.data[f->before.length - 1 - same] == other.before.data[other.before.length - 1 - same])
            same++;
        if (same) {
            memmove(f->before.data, f->before.data + f->before.length - same, (size_t)same);
            f->before.length = same;
        }
    }
    frame_release(&other);
    if (found && lay_out(&other, tokenizer, chat, NULL, false) == 0) {
        i64 same = 0, most = min_i64(f->behind.length, other.behind.length);
        while (same < most && f->behind.data[same] == other.behind.data[same])
            same++;
        f->behind.length = same ? same : f->behind.length;
    }
    frame_release(&other);
    text_chat_close(chat);
    return found && f->before.length && f->behind.length;
}

/* The words of the one user's message in a layout (memory_free); NULL: not one line of words. */
static char *words_of(const struct taught_frame *f, const char *text, i64 length)
{
    const char *begin = text, *end = text + length, *at;
    i64 before = f->before.length, behind = f->behind.length;
    begin = memmem(begin, (size_t)length, f->before.data, (size_t)before);
    if (!begin)
        return NULL;
    begin += before;
    at = memmem(begin, (size_t)(end - begin), f->behind.data, (size_t)behind);
    i64 count = at ? at - begin : 0;
    if (count == 0 || count > TAUGHT_PROMPT_BYTES || begin[0] == '/')
        return NULL;
    for (i64 i = 0; i < count; i++)
        if ((u8)begin[i] < ' ')
            return NULL;
    return string_format("%.*s", (int)count, begin);
}

/* ---- Choosing ---- */

enum { SEEN_MOST = 512 }; /* conversations of a source that are looked at, evenly spread */
struct taught_prompt {
    char *words;
    i64 first;           /* bytes of its first word */
    i64 times, siblings; /* of those seen: with the same words, with the same first word */
};

static bool same_first_word(const struct taught_prompt *a, const struct taught_prompt *b)
{
    return a->first == b->first && strncasecmp(a->words, b->words, (size_t)a->first) == 0;
}

/* Frequent prompts come first, then those like many others, then short ones. */
static int compare_prompts(const void *left, const void *right)
{
    const struct taught_prompt *a = left, *b = right;
    i64 lengths[] = {(i64)strlen(a->words), (i64)strlen(b->words)};
    return a->times != b->times         ? (a->times > b->times ? -1 : 1)
           : a->siblings != b->siblings ? (a->siblings > b->siblings ? -1 : 1)
           : lengths[0] != lengths[1]   ? (lengths[0] < lengths[1] ? -1 : 1)
                                        : strcmp(a->words, b->words);
}

static void rank_prompts(struct taught_prompt *list, i64 count)
{
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; k < count; k++) {
            list[i].times += strcmp(list[i].words, list[k].words) == 0;
            list[i].siblings += same_first_word(&list[i], &list[k]);
        }
    qsort(list, (size_t)count, sizeof *list, compare_prompts);
}

/* Takes the best prompt that begins with another word than those taken. False: there is none. */
static bool take_prompt(struct taught_prompt *taken, i64 *count, const struct taught_prompt *list, i64 listed)
{
    for (i64 i = 0; i < listed; i++) {
        bool fresh = true;
        for (i64 k = 0; k < *count; k++)
            fresh &= !same_first_word(&taken[k], &list[i]);
        if (fresh) {
            taken[(*count)++] = list[i];
            return true;
        }
    }
    return false;
}

/* ---- Shards ---- */

struct taught_source {
    struct taught_prompt list[SEEN_MOST];
    i64 count, conversations;
    bool media[MODALITIES];
};

/* Appends the ids of the parts up to the first answer as text; false: there is a medium among them. */
static bool read_prompt(struct buffer *out, struct taught_source *source, struct shards *shards, i64 sample,
                        const struct text_tokenizer *tokenizer, int *status)
{
    struct shard_sample s = shards_sample(shards, sample);
    bool first = true, text = true;
    for (i64 i = (i64)s.first_part; i < (i64)s.first_part + s.parts && *status == 0; i++) {
        const struct shard_part *part = shards_part(shards, i);
        if (part->kind >= STREAMS)
            continue;
        first &= part->condition;
        if (part->condition && part->kind != STREAM_TEXT)
            source->media[stream_rows[part->kind].modality] = true;
        text &= !first || part->kind == STREAM_TEXT;
        if (!first || part->kind != STREAM_TEXT)
            continue;
        const i32 *ids = shards_payload(shards, i);
        *status = ids ? text_decode(tokenizer, out, ids, part->count, false) : -1;
    }
    return text;
}

static int read_source(struct taught_source *source, const char *data, const struct text_tokenizer *tokenizer,
                       const struct taught_frame *frame)
{
    struct shards shards;
    struct buffer text = {0};
    if (shards_open(&shards, data, "train") < 0)
        return -1;
    i64 *chats = memory_alloc(max_i64(1, shards.sample_count) * (i64)sizeof *chats), count = 0;
    int status = 0;
    for (i64 i = 0; i < shards.sample_count; i++)
        if (shards_sample(&shards, i).direction == DIRECTION_CHAT)
            chats[count++] = i;
    i64 seen = min_i64(count, SEEN_MOST);
    for (i64 i = 0; i < seen && status == 0; i++) {
        buffer_clear(&text);
        if (!read_prompt(&text, source, &shards, chats[i * count / seen], tokenizer, &status) || status)
            continue;
        char *words = text.data ? words_of(frame, text.data, text.length) : NULL;
        if (words)
            source->list[source->count++] =
                (struct taught_prompt){.words = words, .first = (i64)strcspn(words, " .,!?")};
    }
    source->conversations = count;
    rank_prompts(source->list, source->count);
    memory_free(chats);
    buffer_release(&text);
    shards_close(&shards);
    return status;
}

static struct json *taught_json(struct taught_source *sources, i64 count)
{
    struct taught_prompt taken[TAUGHT_PROMPTS];
    struct json *j = json_object(), *prompts = json_array(), *media = json_array();
    i64 chosen = 0, conversations = 0;
    bool more = true;
    for (i64 i = 0; i < count; i++)
        conversations += sources[i].conversations;
    while (more && chosen < TAUGHT_PROMPTS) {
        more = false;
        for (i64 i = 0; i < count && chosen < TAUGHT_PROMPTS; i++)
            more |= take_prompt(taken, &chosen, sources[i].list, sources[i].count);
    }
    for (i64 i = 0; i < chosen; i++)
        json_push(prompts, json_of_string(taken[i].words));
    for (enum modality kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        for (i64 i = 0; i < count; i++)
            if (sources[i].media[kind]) {
                json_push(media, json_of_string(modality_rows[kind].name));
                break;
            }
    json_set(j, "conversations", json_of_integer(conversations));
    json_set(j, "prompts", prompts);
    json_set(j, "media", media);
    return j;
}

struct json *taught_of_shards(const struct source_list *data)
{
    i64 count = max_i64(1, data->count);
    struct taught_source *sources = memory_alloc(count * (i64)sizeof *sources);
    struct taught_frame frame = {0};
    char *shards = shard_folders_first(data->all), *path = shards ? path_join(shards, "text") : NULL;
    struct text_tokenizer *tokenizer = path ? text_tokenizer_load(path) : NULL;
    int status = tokenizer ? 0 : -1;
    bool known = tokenizer && frame_find(&frame, tokenizer);
    for (i64 i = 0; i < count && status == 0 && known; i++)
        status = read_source(&sources[i], data->count ? data->values[i].data : data->all, tokenizer, &frame);
    struct json *j = status == 0 ? taught_json(sources, count) : NULL;
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; k < sources[i].count; k++)
            memory_free(sources[i].list[k].words);
    frame_release(&frame);
    text_tokenizer_free(tokenizer);
    memory_free(sources);
    memory_free(shards);
    memory_free(path);
    return j;
}

/* ---- Files ---- */

int taught_save(const char *directory, const struct source_list *data)
{
    if (data_has_stream(data->all))
        return 0; /* its shards come and go */
    char *path = path_join(directory, TAUGHT_FILE);
    struct json *j = taught_of_shards(data);
    int status = j ? json_save(path, j) : -1;
    json_free(j);
    memory_free(path);
    return status;
}

int taught_copy(const char *to, const char *from)
{
    char *in = path_join(from, TAUGHT_FILE), *out = path_join(to, TAUGHT_FILE);
    int status = file_exists(in) ? file_copy(out, in) : 0;
    memory_free(in);
    memory_free(out);
    return status;
}
