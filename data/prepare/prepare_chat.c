/* A conversation as the messages that a chat template takes. */
#include "core/json.h"
#include "data/prepare/chat.h"

#include <string.h>

const char *chat_role(const struct sample *sample, i64 part)
{
    while (part > 0 && !sample->parts[part].role)
        part--;
    return sample->count && sample->parts[part].role ? sample->parts[part].role : "";
}

bool chat_answers(const struct sample *sample, i64 part)
{
    return sample->layout == SAMPLE_CHAT && strcmp(chat_role(sample, part), "assistant") == 0;
}

bool chat_learns(const struct sample *sample, i64 part)
{
    return chat_answers(sample, part) && !sample->parts[part].unlearned;
}

/* The parts [first, end) as a content. *medium: the number of the next medium. */
static struct json *content_of(const struct sample *s, i64 first, i64 end, bool list, i64 *medium)
{
    struct json *parts = list ? json_array() : NULL;
    struct buffer text = {0};
    for (i64 i = first; i < end; i++) {
        const struct sample_part *part = &s->parts[i];
        if (part->kind == MODALITY_TEXT)
            buffer_append(&text, part->bytes.data, part->bytes.length);
        else
            chat_put_medium(&text, (*medium)++);
        if (list) {
            struct json *one = json_object();
            json_set(one, "type", json_of_string("text"));
            json_set(one, "text", json_of_utf8(text.data ? text.data : "", text.length));
            json_push(parts, one);
            buffer_clear(&text);
        }
    }
    struct json *content = list ? parts : json_of_utf8(text.data ? text.data : "", text.length);
    buffer_release(&text);
    return content;
}

static struct json *message_of(const struct chat *chat, const struct sample *s, i64 first, i64 end, i64 *medium)
{
    const struct sample_part *part = &s->parts[first];
    struct json *message = json_object();
    struct json_iterator at;
    json_set(message, "role", json_of_string(part->role ? part->role : ""));
    json_set(message, "content",
             content_of(s, first, end, chat_lists_texts(chat, s->variables, end - first > 1), medium));
    for (bool more = json_first(&at, part->keys); more; more = json_next(&at, part->keys))
        json_set(message, at.key, json_share(at.value));
    return message;
}

int chat_lay_out(struct chat_ids *out, const struct chat *chat, const struct sample *s, bool prompt)
{
    struct json *messages = json_array();
    bool *learned = memory_alloc(max_i64(1, s->count));
    i64 media = 0, *parts = memory_alloc(max_i64(1, s->count) * (i64)sizeof *parts);
    for (i64 i = 0; i < s->count; i++)
        if (s->parts[i].kind != MODALITY_TEXT)
            parts[media++] = i;
    struct chat_request request = {.messages = messages, .variables = s->variables, .media = media, .prompt = prompt};
    int status = media <= CHAT_MEDIA_MOST ? 0
                                          : error_set("a conversation with %lld media: expected at most %d",
                                                      (long long)media, CHAT_MEDIA_MOST);
    media = 0;
    for (i64 i = 0, end; i < s->count && status == 0; i = end) {
        for (end = i + 1; end < s->count && !s->parts[end].role;)
            end++;
        learned[json_count(messages)] = chat_learns(s, i);
        json_push(messages, message_of(chat, s, i, end, &media));
    }
    if (!prompt) {
        request.learned = learned;
        request.trims = true;
    }
    if (status == 0)
        status = text_chat_encode(out, chat, &request);
    for (i64 i = 0; i < out->run_count && status == 0; i++)
        if (out->runs[i].medium >= 0)
            out->runs[i].medium = (i32)parts[out->runs[i].medium];
    json_free(messages);
    memory_free(learned);
    memory_free(parts);
    return status;
}
