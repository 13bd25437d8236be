/* One JSON object to a sample. */
#include "data/source_readers.h"

#include <string.h>

static const char *const medium_keys[] = {[SAMPLE_IMAGE] = "image", [SAMPLE_VIDEO] = "video", [SAMPLE_AUDIO] = "audio"};
static const char *const list_keys[] = {
    [SAMPLE_IMAGE] = "images", [SAMPLE_VIDEO] = "videos", [SAMPLE_AUDIO] = "audios"};
static const char *const marks[] = {[SAMPLE_IMAGE] = "<image>", [SAMPLE_VIDEO] = "<video>", [SAMPLE_AUDIO] = "<audio>"};

struct build {
    struct sample *out;
    const struct json *object;
    const struct json_place *place;
    i64 used[SAMPLE_IDS]; /* of the lists of media */
};

const struct json *sample_key(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    return json_kind(value) == JSON_NULL ? NULL : value;
}

const struct json *sample_caption(const struct json *object)
{
    static const char *const keys[] = {"text", "caption", "transcription"};
    for (i64 i = 0; i < COUNT_OF(keys); i++)
        if (sample_key(object, keys[i])) {
            const struct json *caption = sample_key(object, keys[i]);
            return json_kind(caption) == JSON_STRING && json_string_length(caption) > 0 ? caption : NULL;
        }
    return NULL;
}

static int add_text(struct build *b, const struct json *text)
{
    return sample_add_text(b->out, json_string(text, ""), json_string_length(text));
}

static int add_medium(struct build *b, enum sample_kind kind, const char *reference)
{
    if (!reference || !*reference)
        return error_set("a part of type %s names no file: expected {\"type\": \"%s\", \"%s\": FILE}",
                         medium_keys[kind], medium_keys[kind], medium_keys[kind]);
    if (strncmp(reference, "http:", 5) == 0 || strncmp(reference, "https:", 6) == 0 ||
        strncmp(reference, "data:", 5) == 0)
        return error_set("%.40s: media must be files; nothing is downloaded", reference);
    if (strncmp(reference, "file://", 7) == 0)
        reference += 7;
    struct sample_part *part = sample_add(b->out, kind);
    if (!b->place->folder)
        return b->place->find(b->place->context, part, reference);
    part->path = *reference == '/' ? string_copy(reference) : path_join(b->place->folder, reference);
    return 0;
}

/* {"image": FILE}, {"path": FILE}, {"url": FILE}, {"image_url": {"url": FILE}}, or the string itself. */
static const char *reference_of(const struct json *part, enum sample_kind kind)
{
    static const char *const url_keys[] = {
        [SAMPLE_IMAGE] = "image_url", [SAMPLE_VIDEO] = "video_url", [SAMPLE_AUDIO] = "audio_url"};
    const struct json *places[] = {part,
                                   json_get(part, medium_keys[kind]),
                                   json_get(part, "path"),
                                   json_get(part, "url"),
                                   json_get(json_get(part, url_keys[kind]), "url"),
                                   json_get(part, url_keys[kind])};
    for (i64 i = 0; i < COUNT_OF(places); i++)
        if (json_kind(places[i]) == JSON_STRING)
            return json_string(places[i], NULL);
    return NULL;
}

/* ---- messages ---- */

static int add_listed(struct build *b, enum sample_kind kind)
{
    const struct json *list = json_get(b->object, list_keys[kind]);
    if (b->used[kind] >= json_count(list))
        return error_set("%s stands more often in the messages than \"%s\" has files", marks[kind], list_keys[kind]);
    return add_medium(b, kind, reference_of(json_at(list, b->used[kind]++), kind));
}

/* The first mark at or after `at`, or NULL. */
static const char *find_mark(const char *at, const char *end, enum sample_kind *kind)
{
    for (; at < end; at++)
        for (*kind = SAMPLE_IMAGE; *kind <= SAMPLE_AUDIO; (*kind)++)
            if (*at == '<' && (size_t)(end - at) >= strlen(marks[*kind]) &&
                memcmp(at, marks[*kind], strlen(marks[*kind])) == 0)
                return at;
    return NULL;
}

/* Marks stand for files only where the object lists some. */
static int add_marked_text(struct build *b, const char *at, i64 length)
{
    const char *end = at + length, *mark;
    enum sample_kind kind;
    bool lists = sample_key(b->object, "images") || sample_key(b->object, "videos") || sample_key(b->object, "audios");
    while (lists && (mark = find_mark(at, end, &kind))) {
        if (sample_add_text(b->out, at, mark - at) < 0 || add_listed(b, kind) < 0)
            return -1;
        at = mark + strlen(marks[kind]);
    }
    return sample_add_text(b->out, at, end - at);
}

static int add_content_part(struct build *b, const struct json *part)
{
    const char *type = json_string(json_get(part, "type"), "text");
    if (json_kind(part) == JSON_STRING)
        return add_text(b, part);
    if (strcmp(type, "text") == 0)
        return add_text(b, json_get(part, "text"));
    for (enum sample_kind kind = SAMPLE_IMAGE; kind <= SAMPLE_AUDIO; kind++) {
        if (strncmp(type, medium_keys[kind], 5) != 0) /* image, image_url */
            continue;
        const char *reference = reference_of(part, kind);
        return reference ? add_medium(b, kind, reference) : add_listed(b, kind);
    }
    return error_set("a part of type \"%.40s\": expected text, image, video or audio", type);
}

static int add_content(struct build *b, const struct json *content)
{
    if (json_kind(content) == JSON_STRING)
        return add_marked_text(b, json_string(content, ""), json_string_length(content));
    if (json_kind(content) != JSON_ARRAY)
        return error_set("a message without content: expected a text or a list of parts");
    for (i64 i = 0; i < json_count(content); i++)
        if (add_content_part(b, json_at(content, i)) < 0)
            return -1;
    return 0;
}

/* As Qwen2.5's chat template writes it. `arguments` is JSON, or a text that is JSON. */
static int add_call(struct build *b, const struct json *call, bool first)
{
    const struct json *function = sample_key(call, "function") ? sample_key(call, "function") : call;
    const struct json *name = json_get(function, "name"), *arguments = json_get(function, "arguments");
    if (json_kind(name) != JSON_STRING)
        return error_set("a call of a tool has no name: expected {\"function\": {\"name\", \"arguments\"}}");
    struct text text = {0};
    text_printf(&text, "%s<tool_call>\n{\"name\": ", first ? "" : "\n");
    json_print(&text, name, 0);
    text_printf(&text, ", \"arguments\": ");
    if (json_kind(arguments) == JSON_STRING)
        text_append(&text, json_string(arguments, ""), json_string_length(arguments));
    else
        json_print(&text, arguments, 0);
    text_printf(&text, "}\n</tool_call>");
    int status = sample_add_text(b->out, text.data, text.length);
    text_release(&text);
    return status;
}

/* Content that is null counts as absent, which it may be beside calls of tools. */
static int add_said(struct build *b, const struct json *message)
{
    const struct json *content = json_get(message, "content"), *calls = sample_key(message, "tool_calls");
    i64 first = b->out->count;
    if ((content && json_kind(content) != JSON_NULL) || (!content && !calls))
        if (add_content(b, content) < 0)
            return -1;
    for (i64 i = 0; i < json_count(calls); i++)
        if (add_call(b, json_at(calls, i), b->out->count == first) < 0)
            return -1;
    return 0;
}

/* A message begins at part `first` with its role; an empty one has an empty text. */
static void end_message(struct build *b, i64 first, const char *role, i32 number)
{
    if (b->out->count == first)
        sample_add(b->out, SAMPLE_TEXT);
    for (i64 i = first; i < b->out->count; i++)
        b->out->parts[i].message = number;
    b->out->parts[first].role = string_copy(role);
}

static int add_messages(struct build *b, const struct json *messages)
{
    b->out->layout = SAMPLE_CHAT;
    if (json_kind(messages) != JSON_ARRAY || json_count(messages) == 0)
        return error_set("key messages: expected a list of {\"role\", \"content\"}");
    for (i64 i = 0; i < json_count(messages); i++) {
        const struct json *message = json_at(messages, i);
        const char *role = json_string(json_get(message, "role"), "");
        if (!*role || strlen(role) > 32)
            return error_set("message %lld has no role: expected system, user or assistant", (long long)i + 1);
        i64 first = b->out->count;
        if (add_said(b, message) < 0)
            return error_prefix("message %lld", (long long)i + 1);
        end_message(b, first, role, (i32)i);
    }
    return 0;
}

static int add_turn(struct build *b, const struct json *asked, const struct json *answered)
{
    b->out->layout = SAMPLE_CHAT;
    if (add_content(b, asked) < 0)
        return -1;
    end_message(b, 0, "user", 0);
    i64 answer = b->out->count;
    if (add_content(b, answered) < 0)
        return -1;
    end_message(b, answer, "assistant", 1);
    return 0;
}

/* ---- the others ---- */

static int add_captioned(struct build *b, enum sample_kind kind, const char *key, const char *reference)
{
    const struct json *text = sample_caption(b->object);
    const char *speaker = json_string(json_get(b->object, "speaker"), NULL);
    b->out->layout = SAMPLE_CAPTIONED;
    if (!text && !b->place->media_alone)
        return error_set("a file without a caption: expected {\"%s\": FILE, \"text\": CAPTION}", key);
    if (add_medium(b, kind, reference) < 0)
        return -1;
    b->out->speaker = speaker ? string_copy(speaker) : NULL;
    return text ? add_text(b, text) : 0;
}

/* As in metadata.jsonl of Hugging Face's folders: what it is, the name says. */
static int add_named(struct build *b, const char *name)
{
    int kind = medium_kind(name_extension(name));
    if (kind <= SAMPLE_TEXT)
        return error_set("file_name %.80s: expected the name of a picture, a clip or a sound", name);
    return add_captioned(b, (enum sample_kind)kind, "file_name", name);
}

/* {"texts": [TEXT or null, ..], "images": [FILE or null, ..]} of equal length, as in interleaved documents. */
static int add_interleaved(struct build *b, const struct json *texts, const struct json *images)
{
    b->out->layout = SAMPLE_MIXED;
    if (json_kind(images) != JSON_ARRAY || json_count(images) != json_count(texts))
        return error_set("\"texts\" has %lld entries, \"images\" %lld: expected as many", (long long)json_count(texts),
                         (long long)json_count(images));
    for (i64 i = 0; i < json_count(texts); i++) {
        const struct json *text = json_at(texts, i), *image = json_at(images, i);
        if (json_kind(text) == JSON_STRING && add_text(b, text) < 0)
            return -1;
        if (json_kind(image) == JSON_STRING && add_medium(b, SAMPLE_IMAGE, json_string(image, "")) < 0)
            return -1;
    }
    return 0;
}

static bool both_strings(const struct json *a, const struct json *b)
{
    return json_kind(a) == JSON_STRING && json_kind(b) == JSON_STRING;
}

static int add_object(struct build *b, bool *passed)
{
    const struct json *o = b->object, *text = sample_key(o, "text");
    if (sample_key(o, "messages"))
        return add_messages(b, sample_key(o, "messages"));
    for (enum sample_kind kind = SAMPLE_IMAGE; kind <= SAMPLE_AUDIO; kind++)
        if (sample_key(o, medium_keys[kind]))
            return add_captioned(b, kind, medium_keys[kind], reference_of(json_get(o, medium_keys[kind]), kind));
    if (json_kind(json_get(o, "file_name")) == JSON_STRING)
        return add_named(b, json_string(json_get(o, "file_name"), ""));
    if (json_kind(json_get(o, "texts")) == JSON_ARRAY)
        return add_interleaved(b, json_get(o, "texts"), json_get(o, "images"));
    if (both_strings(json_get(o, "question"), json_get(o, "answer")))
        return add_turn(b, json_get(o, "question"), json_get(o, "answer"));
    if (both_strings(json_get(o, "prompt"), json_get(o, "completion")))
        return add_turn(b, json_get(o, "prompt"), json_get(o, "completion"));
    b->out->layout = SAMPLE_PLAIN;
    if (json_kind(text) == JSON_STRING)
        return add_text(b, text);
    *passed = !text;
    return text ? error_set("key text: expected a string") : 0;
}

int sample_of_json(struct sample *out, const struct json *value, const struct json_place *place, bool *passed)
{
    struct build build = {.out = out, .object = value, .place = place};
    if (json_kind(value) != JSON_OBJECT)
        return error_set("%s: expected a JSON object", place->origin);
    if (add_object(&build, passed) < 0)
        return error_prefix("%s", place->origin);
    *passed = *passed || out->count == 0;
    return 0;
}
