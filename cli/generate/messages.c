/* Conversations of a file for `weft generate --messages`. */
#include "cli/generate/generation.h"
#include "core/json.h"
#include "data/sources/source_readers.h"
#include "generate/conversation.h"

#include <stdio.h>
#include <string.h>

/* The conversations of a file. Each has the JSON value it was read from. */
struct message_file {
    struct generator *generator;
    const char *path;
    char *folder; /* base of relative paths */
    i64 most;     /* ids of an answer at most */
    struct conversation *list;
    struct json **sources;
    i64 count;
};

static void message_file_release(struct message_file *f)
{
    for (i64 i = 0; i < f->count; i++) {
        conversation_close(&f->list[i]);
        json_free(f->sources[i]);
    }
    memory_free(f->list);
    memory_free(f->sources);
    memory_free(f->folder);
}

/* Takes ownership of both. origin: place of the conversation, for messages. */
static int add_conversation(struct message_file *f, struct json *value, char *origin)
{
    if ((f->count & (f->count - 1)) == 0) {
        i64 room = max_i64(1, 2 * f->count);
        f->list = memory_resize(f->list, f->count * (i64)sizeof *f->list, room * (i64)sizeof *f->list);
        f->sources = memory_resize(f->sources, f->count * (i64)sizeof *f->sources, room * (i64)sizeof *f->sources);
    }
    f->sources[f->count] = value;
    struct conversation *c = &f->list[f->count++];
    int status = conversation_open(c, f->generator);
    if (status == 0)
        status = conversation_read(c, value, origin, f->folder, NULL);
    if (status == 0 && conversation_fit(c, f->most))
        status = error_prefix("%s", origin);
    memory_free(origin);
    return status;
}

/* A message has a role; an entry of a list of conversations has none. */
static bool is_message(const struct json *value)
{
    return sample_key(value, "role") || sample_key(value, "from");
}

/* Takes ownership of one document: a conversation, or a list of them. */
static int read_document(struct message_file *f, struct json *value, i64 line)
{
    const struct json *first = json_at(value, 0);
    bool list = json_kind(value) == JSON_ARRAY && json_count(value) && !is_message(first) &&
                (json_kind(first) == JSON_ARRAY || sample_key(first, "messages") || sample_key(first, "conversations"));
    if (!list)
        return add_conversation(f, value, string_format("%s:%lld", f->path, (long long)line));
    int status = 0;
    for (i64 i = 0; i < json_count(value) && status == 0; i++)
        status = add_conversation(f, json_copy(json_at(value, i)),
                                  string_format("%s: conversation %lld", f->path, (long long)i + 1));
    json_free(value);
    return status;
}

/* Sets the next line that is not blank. False: there is none. */
static bool next_line(const char **line, i64 *length, i64 *number, const struct buffer *text, i64 *at)
{
    while (*at < text->length) {
        const char *begin = text->data + *at, *end = memchr(begin, '\n', (size_t)(text->length - *at));
        i64 count = end ? end - begin : text->length - *at, blank = 0;
        *at += count + 1;
        ++*number;
        while (blank < count && memchr(" \t\r", begin[blank], 3))
            blank++;
        if (blank < count) {
            *line = begin;
            *length = count;
            return true;
        }
    }
    return false;
}

/* JSON lines if the first line alone is a value and others follow, else one document. */
static int read_conversations(struct message_file *f, const struct buffer *text)
{
    const char *line, *rest;
    i64 length, rest_length, at = 0, number = 0, behind, after = 0;
    if (!next_line(&line, &length, &number, text, &at))
        return error_set("%s: it is empty: expected {\"messages\": [{\"role\", \"content\"}, ..]} on each line",
                         f->path);
    behind = at;
    struct json *value = json_parse_line(line, length, f->path, number);
    if (!value || !next_line(&rest, &rest_length, &after, text, &behind)) {
        if (!value)
            value = json_parse(text->data, text->length, f->path);
        return value ? read_document(f, value, number) : -1;
    }
    int status = add_conversation(f, value, string_format("%s:%lld", f->path, (long long)number));
    while (status == 0 && next_line(&line, &length, &number, text, &at)) {
        value = json_parse_line(line, length, f->path, number);
        status = value ? add_conversation(f, value, string_format("%s:%lld", f->path, (long long)number)) : -1;
    }
    return status;
}

/* Appends one line: the conversation as it was given, with the answer. */
static void print_line(struct buffer *out, const struct conversation *c, const struct json *source)
{
    struct json *now = conversation_json(c), *line = now, *given = NULL;
    const struct json *list = json_kind(source) == JSON_ARRAY ? source : sample_key(source, "messages");
    if (list) {
        given = json_kind(source) == JSON_ARRAY ? json_object() : json_copy(source);
        struct json *all = json_get(now, "messages"), *messages = json_copy(list);
        json_push(messages, json_copy(json_at(all, json_count(all) - 1)));
        json_set(given, "messages", messages);
        line = given;
    }
    json_print(out, line, 0);
    buffer_append(out, "\n", 1);
    json_free(given);
    json_free(now);
}

static void print_text(struct buffer *out, const struct conversation *c)
{
    const struct buffer *text = &c->said.parts[c->said.count - 1].bytes;
    if (text->length)
        buffer_append(out, text->data, text->length);
    buffer_append(out, "\n", 1);
}

/* Answers as many conversations at a time as the cache has slots by default, and prints them. */
static int answer_all(struct message_file *f, const struct generation *g, const char *out)
{
    const struct conversation_options options = {.decoding = g->options, .most = f->most};
    struct buffer lines = {0};
    int status = 0;
    for (i64 i = 0, n; i < f->count && status == 0; i += n) {
        n = min_i64(GENERATE_SLOTS, f->count - i);
        status = conversation_answer(&f->list[i], n, (u32)i, NULL, &options);
        if (f->generator->device->backend == BACKEND_META)
            continue;
        for (i64 k = i; k < i + n && status == 0; k++)
            if (f->count == 1)
                print_text(&lines, &f->list[k]);
            else
                print_line(&lines, &f->list[k], f->sources[k]);
        if (status == 0 && !out) {
            status = output_result(lines.data, lines.length);
            fflush(stdout);
            buffer_clear(&lines);
        }
    }
    if (status == 0 && out && f->generator->device->backend != BACKEND_META) {
        status = file_replace(out, lines.data, lines.length - (f->count == 1));
        if (status == 0 && f->count == 1)
            log_info("wrote %s, %lld %s of text", out, (long long)lines.length - 1,
                     plural(lines.length - 1, "byte", "bytes"));
        else if (status == 0)
            log_info("wrote %s, %lld %s", out, (long long)f->count,
                     plural(f->count, "conversation with its answer", "conversations with their answers"));
    }
    buffer_release(&lines);
    return status;
}

int messages_answer(struct generator *generator, const struct generation *g, const struct buffer *text,
                    const char *path, i64 most, const char *out)
{
    struct message_file f = {.generator = generator,
                             .path = path,
                             .most = most,
                             .folder = strcmp(path, "stdin") == 0 ? string_copy(".") : path_folder(path)};
    struct chat *chat = text_chat_open(generator->text);
    int status = chat ? read_conversations(&f, text) : -1;
    text_chat_close(chat);
    if (status == 0)
        status = answer_all(&f, g, out);
    message_file_release(&f);
    return status;
}
