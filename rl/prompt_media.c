#include "rl/prompt_media.h"

#include "generate/conversation.h"

#include <string.h>

void prompt_media_close(struct prompt_media *m)
{
    if (m->opened)
        generator_close(&m->generator);
    m->opened = false;
}

const struct generator *prompt_media_of(const struct prompt_media *m)
{
    return m->opened ? &m->generator : NULL;
}

/* ---- What a prompt asks for ---- */

bool part_names_medium(const struct json *part)
{
    static const char *const types[] = {"image", "image_url", "video",      "video_url",
                                        "audio", "audio_url", "input_audio"};
    const char *type = json_string(json_get(part, "type"), "");
    bool names = false;
    for (i64 i = 0; i < COUNT_OF(types); i++)
        names |= strcmp(type, types[i]) == 0 || json_kind(json_get(part, types[i])) != JSON_NULL;
    return names;
}

static bool says_something(const struct json *value)
{
    enum json_kind kind = json_kind(value);
    return kind == JSON_ARRAY ? json_count(value) > 0 : kind == JSON_OBJECT || json_string_length(value) > 0;
}

static bool lists_media(const struct json *source)
{
    bool lists = false;
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        lists |= says_something(json_get(source, modality_rows[kind].list_key)) ||
                 says_something(json_get(source, modality_rows[kind].name));
    return lists;
}

bool prompt_needs_media(const struct json *source)
{
    const struct json *prompt = json_get(source, "prompt");
    if (json_kind(json_get(source, "to")) != JSON_NULL || lists_media(source))
        return true;
    for (i64 i = 0; json_kind(prompt) == JSON_ARRAY && i < json_count(prompt); i++) {
        const struct json *content = json_get(json_at(prompt, i), "content");
        for (i64 k = 0; json_kind(content) == JSON_ARRAY && k < json_count(content); k++)
            if (part_names_medium(json_at(content, k)))
                return true;
    }
    return false;
}

static int read_modality(enum modality *out, const struct json *source)
{
    const struct json *to = json_get(source, "to");
    const char *name = json_string(to, "");
    *out = json_kind(to) == JSON_NULL ? MODALITY_TEXT : modality_named(name);
    if (*out == MODALITIES)
        return error_set("key to: expected \"image\", \"video\", \"audio\" or \"text\", found \"%.40s\"", name);
    if (*out != MODALITY_TEXT && json_kind(json_get(source, "guidance")) != JSON_NULL)
        return error_set("key guidance: what is trained is the model's own distribution, and a guided one is another: "
                         "expected \"to\" without guidance");
    return 0;
}

/* Hints open <think> behind the chat template of a text. */
static int check_hints(const struct json *source)
{
    const struct json *extra = json_get(source, "extra_info");
    static const char *const keys[] = {"think", "pass"};
    for (i64 i = 0; i < COUNT_OF(keys); i++) {
        const struct json *value = json_get(extra, keys[i]);
        if (json_kind(value) != JSON_NULL && !(json_kind(value) == JSON_STRING && json_string_length(value) == 0))
            return error_set("extra_info.%s is for hints, which prompts with media or for media do not get: expected a "
                             "prompt of text, or no such key",
                             keys[i]);
    }
    return 0;
}

/* Refuses a medium that the model does not make. */
static int check_makes(const struct generator *g, enum modality to)
{
    const struct model_config *c = &g->model.config;
    bool sound = to == MODALITY_AUDIO, heads = sound ? c->levels > 0 : c->bits > 0;
    bool opened = sound ? g->has_audio : g->has_vision;
    if (to == MODALITY_TEXT || (opened && (sound || generator_shape(g, to == MODALITY_VIDEO))))
        return 0;
    if (heads && !opened)
        return error_set("key to: the prompt asks for %s, and the model's tokenizer is missing: expected %s/weft/%s",
                         modality_rows[to].many, g->directory, sound ? "audio" : "vision");
    return error_set("key to: the prompt asks for %s, and this model makes none", modality_rows[to].many);
}

/* ---- Laying out ---- */

static int open_tokenizers(struct prompt_media *m)
{
    if (m->opened)
        return 0;
    if (generator_open_tokenizers(&m->generator, m->device, m->directory, m->dtype))
        return -1;
    m->opened = true;
    return 0;
}

/* The record of a conversation that asks what the prompt asks. */
static struct json *conversation_of(const struct json *source)
{
    static const char *const others[] = {
        "image", "images", "video", "videos", "audio", "audios", "tools", "documents", "chat_template_kwargs"};
    const struct json *prompt = json_get(source, "prompt");
    struct json *record = json_object(), *messages = json_array(), *message = json_object();
    if (json_kind(prompt) == JSON_STRING) {
        json_set(message, "role", json_of_string("user"));
        json_set(message, "content", json_copy(prompt));
        json_push(messages, message);
    } else {
        json_free(message);
    }
    for (i64 i = 0; json_kind(prompt) == JSON_ARRAY && i < json_count(prompt); i++)
        json_push(messages, json_copy(json_at(prompt, i)));
    json_set(record, "messages", messages);
    for (i64 i = 0; i < COUNT_OF(others); i++)
        if (json_kind(json_get(source, others[i])) != JSON_NULL)
            json_set(record, others[i], json_copy(json_get(source, others[i])));
    return record;
}

/* The folder of "FOLDER/FILE:LINE". */
static char *folder_of(const char *origin)
{
    const char *slash = strrchr(origin, '/');
    return slash ? string_format("%.*s", (int)(slash - origin), origin) : string_copy(".");
}

static int lay_out(struct prompt *p, struct prompt_media *m, const struct task *task, const struct json *variables,
                   const struct record *row)
{
    struct conversation c;
    if (conversation_open(&c, &m->generator))
        return -1;
    conversation_set_variables(&c, variables);
    struct json *record = conversation_of(task->source);
    char *folder = folder_of(task->origin);
    int status = conversation_read(&c, record, task->origin, folder, row);
    if (status == 0)
        status = conversation_prompt(p, &c);
    if (status == 0)
        status = prompt_ask(p, &m->generator, NULL, 0);
    conversation_close(&c);
    memory_free(folder);
    json_free(record);
    return status;
}

/* The text of a prompt and a hash of each medium, by which prompts are compared. */
static void note_ids(struct id_list *ids, const struct prompt *p, const struct model_config *c)
{
    for (i64 i = 0; i < p->part_count; i++)
        for (i64 k = 0; p->parts[i].kind == STREAM_TEXT && k < p->parts[i].count; k++)
            id_list_push(ids, p->parts[i].ids[k]);
    for (i64 i = 0; i < p->media_count; i++) {
        const struct media_block *m = &p->media[i];
        u64 hash = m->codes ? hash_bytes(m->codes, m->frames * c->levels * 4, 0)
                            : hash_bytes(m->features, m->frames * m->frame_positions * CELLS * c->cell_features * 4, 0);
        id_list_push(ids, (i32)(hash & INT32_MAX));
    }
}

int prompt_read_media(struct task *task, struct prompt_media *m, const struct json *variables,
                      const struct record *record)
{
    enum modality to;
    struct sample_measure measure;
    if (read_modality(&to, task->source) || check_hints(task->source) || open_tokenizers(m) ||
        check_makes(&m->generator, to))
        return -1;
    struct prompt *p = task->asked = memory_alloc(sizeof *p);
    prompt_init(p, to);
    if (lay_out(p, m, task, variables, record))
        return -1;
    grammar_measure(&measure, &m->generator.vocabulary, p->parts, p->part_count, -1);
    task->positions = measure.length + p->opening_count;
    task->pass = -1;
    note_ids(&task->ids, p, &m->generator.model.config);
    return p->part_count ? 0 : error_set("key prompt: it is empty");
}
