#include "generate/conversation.h"

#include "core/json.h"
#include "data/sources/source_readers.h"

#include <stdlib.h>
#include <string.h>

/* ---- Opening ---- */

int conversation_open(struct conversation *c, struct generator *generator)
{
    *c = (struct conversation){.generator = generator, .chat = text_chat_open(generator->text)};
    if (!c->chat)
        return -1;
    conversation_reset(c);
    return 0;
}

bool conversation_is_trained(const struct generator *generator)
{
    const struct model_config *config = &generator->model.config;
    i64 end = generator->vocabulary.message_end;
    bool trained = end == config->eos_id;
    for (i64 i = 0; i < config->more_end_count; i++)
        trained |= config->more_ends[i] == end;
    return trained;
}

void conversation_reset(struct conversation *c)
{
    sample_release(&c->said);
    sample_release(&c->attached);
    c->said.layout = SAMPLE_CHAT;
    for (i64 i = 0; i < c->media_count; i++) {
        prompt_release(c->media[i]);
        memory_free(c->media[i]);
    }
    memory_free(c->media);
    c->media = NULL;
    c->media_count = c->first = 0;
}

void conversation_set_variables(struct conversation *c, const struct json *variables)
{
    json_free(c->variables);
    c->variables = variables ? json_copy(variables) : NULL;
}

void conversation_close(struct conversation *c)
{
    conversation_reset(c);
    json_free(c->variables);
    text_chat_close(c->chat);
    *c = (struct conversation){0};
}

/* ---- Messages ---- */

/* Encodes the file of a medium's part. */
static int encode_medium(struct conversation *c, struct sample_part *part, const char *origin)
{
    struct prompt *p = memory_alloc(sizeof *p);
    prompt_init(p, MODALITY_TEXT);
    enum modality kind = (enum modality)part->kind;
    if (part->path ? prompt_medium(p, c->generator, kind, part->path)
                   : prompt_medium_of(p, c->generator, kind, part->bytes.data, part->bytes.length, origin)) {
        prompt_release(p);
        memory_free(p);
        return -1;
    }
    i64 size = (i64)sizeof p;
    c->media = memory_resize(c->media, c->media_count * size, (c->media_count + 1) * size);
    buffer_release(&part->bytes); /* of a table's row; what is read is kept encoded */
    part->at = c->media_count;
    c->media[c->media_count++] = p;
    return 0;
}

/* Forgets the media behind the first `count`. */
static void drop_media(struct conversation *c, i64 count)
{
    while (c->media_count > count) {
        prompt_release(c->media[--c->media_count]);
        memory_free(c->media[c->media_count]);
    }
}

/* Removes the parts behind the first `count`. */
static void drop_parts(struct sample *s, i64 count)
{
    while (s->count > count) {
        struct sample_part *part = &s->parts[--s->count];
        buffer_release(&part->bytes);
        memory_free(part->path);
        memory_free(part->within);
        memory_free(part->role);
        json_free(part->keys);
    }
}

int conversation_attach(struct conversation *c, enum modality kind, const char *path)
{
    struct sample_part *part = sample_add(&c->attached, kind);
    part->path = string_copy(path);
    if (encode_medium(c, part, path) == 0)
        return 0;
    drop_parts(&c->attached, c->attached.count - 1);
    return -1;
}

int conversation_say(struct conversation *c, const char *role, const char *text, i64 length)
{
    i64 first = c->said.count, bad = text_invalid_utf8(text, length);
    if (bad >= 0)
        return error_set("byte %lld of a message is not UTF-8", (long long)bad);
    for (i64 i = 0; i < c->attached.count; i++)
        *sample_add(&c->said, c->attached.parts[i].kind) = c->attached.parts[i];
    c->attached.count = 0; /* its parts have moved */
    buffer_append(&sample_add(&c->said, MODALITY_TEXT)->bytes, text, length);
    c->said.parts[first].role = string_copy(role);
    return 0;
}

static int check_messages(const struct conversation *c, i64 first)
{
    const struct sample *s = &c->said;
    for (i64 i = first; i < s->count; i++)
        if (chat_answers(s, i) && (s->parts[i].kind == MODALITY_IMAGE || s->parts[i].kind == MODALITY_VIDEO))
            return error_set("%s is part of an assistant's message: expected pictures and clips of others only",
                             s->parts[i].path);
    if (chat_answers(s, s->count - 1))
        return error_set("the last message is an assistant's: expected one to answer, such as a user's");
    return 0;
}

int conversation_read(struct conversation *c, const struct json *value, const char *origin, const char *folder,
                      const struct record *record)
{
    const struct json_place place = {.origin = origin, .folder = folder, .record = record};
    struct json *object = json_object();
    bool listed = json_kind(value) == JSON_ARRAY, passed = false;
    i64 parts = c->said.count, media = c->media_count;
    if (listed)
        json_set(object, "messages", json_copy(value));
    const struct json *all = listed ? object : value;
    int status = 0;
    if (!sample_key(all, "messages") && !sample_key(all, "conversations"))
        status = error_set("%s: no messages: expected {\"messages\": [{\"role\", \"content\"}, ..]}, or such a list",
                           origin);
    else if ((status = sample_of_json(&c->said, all, &place, &passed)) > 0)
        status = error_set("%s: a key says that it is not to be learned: leave that key out", origin);
    else if (status < 0)
        status = -1;
    else if (check_messages(c, parts))
        status = error_prefix("%s", origin);
    for (i64 i = parts; i < c->said.count && status == 0; i++)
        if (c->said.parts[i].kind != MODALITY_TEXT && encode_medium(c, &c->said.parts[i], origin))
            status = error_prefix("%s", origin);
    if (status) {
        drop_parts(&c->said, parts);
        drop_media(c, media);
    }
    json_free(object);
    return status;
}

/* Index of the first part of the last message. */
static i64 last_message(const struct conversation *c)
{
    i64 first = c->said.count - 1;
    while (first > 0 && !c->said.parts[first].role)
        first--;
    return first;
}

void conversation_take_back(struct conversation *c)
{
    i64 first = last_message(c), media = c->media_count;
    for (i64 i = c->said.count - 1; i >= first; i--)
        if (c->said.parts[i].kind != MODALITY_TEXT)
            media = c->said.parts[i].at;
    require(first >= 0 && c->attached.count == 0, "no message to take back");
    drop_parts(&c->said, first);
    drop_media(c, media);
    c->first = min_i64(c->first, c->said.count);
}

i64 conversation_messages(const struct conversation *c)
{
    i64 count = 0;
    for (i64 i = 0; i < c->said.count; i++)
        count += c->said.parts[i].role != NULL;
    return count;
}

static struct json *part_json(const struct sample_part *part)
{
    struct json *j = json_object();
    const char *kind = modality_rows[part->kind].name;
    json_set(j, "type", json_of_string(kind));
    if (part->kind == MODALITY_TEXT) {
        json_set(j, "text", json_of_bytes(part->bytes.data ? part->bytes.data : "", part->bytes.length));
        return j;
    }
    char *real = part->path ? realpath(part->path, NULL) : NULL;
    json_set(j, kind, json_of_string(real ? real : part->path ? part->path : ""));
    free(real);
    return j;
}

/* Puts the variables where a record has them. */
static void set_variables(struct json *record, const struct json *variables)
{
    struct json *others = json_object();
    struct json_iterator at;
    for (bool more = json_first(&at, variables); more; more = json_next(&at, variables)) {
        bool own = strcmp(at.key, "tools") == 0 || strcmp(at.key, "documents") == 0;
        json_set(own ? record : others, at.key, json_copy(at.value));
    }
    if (json_count(others))
        json_set(record, "chat_template_kwargs", others);
    else
        json_free(others);
}

struct json *conversation_json(const struct conversation *c)
{
    const struct sample *s = &c->said;
    struct json *j = json_object(), *messages = json_array();
    struct json_iterator at;
    set_variables(j, s->variables);
    for (i64 i = 0, next; i < s->count; i = next) {
        struct json *message = json_object(), *content = json_array();
        for (next = i; next == i || (next < s->count && !s->parts[next].role); next++)
            json_push(content, part_json(&s->parts[next]));
        json_set(message, "role", json_of_string(s->parts[i].role));
        if (next == i + 1 && s->parts[i].kind == MODALITY_TEXT) {
            json_set(message, "content", json_copy(json_get(json_at(content, 0), "text")));
            json_free(content);
        } else {
            json_set(message, "content", content);
        }
        for (bool more = json_first(&at, s->parts[i].keys); more; more = json_next(&at, s->parts[i].keys))
            json_set(message, at.key, json_copy(at.value));
        json_push(messages, message);
    }
    json_set(j, "messages", messages);
    return j;
}

/* ---- A conversation as a request ---- */

struct conversation_layout {
    struct id_list ids; /* of all text parts, in order */
    struct part *parts; /* [part_count] */
    i64 *medium;        /* [part_count] index in the conversation's media; -1: text */
    struct media_block *media;
    i64 part_count, media_count;
};

static void layout_release(struct conversation_layout *l)
{
    id_list_release(&l->ids);
    memory_free(l->parts);
    memory_free(l->medium);
    memory_free(l->media);
    *l = (struct conversation_layout){0};
}

static i64 next_role(const struct sample *s, i64 from, const char *role)
{
    while (from < s->count && !(s->parts[from].role && (!role || strcmp(s->parts[from].role, role) == 0)))
        from++;
    return from;
}

/* Index of the first part behind a system message at the beginning; 0: there is none. */
static i64 behind_system(const struct sample *s)
{
    return s->count && strcmp(s->parts[0].role, "system") == 0 ? next_role(s, 1, NULL) : 0;
}

/* The variables of a template: those of the conversation, then those that its records came with. */
static struct json *all_variables(const struct conversation *c)
{
    const struct json *lists[] = {c->variables, c->said.variables};
    struct json *out = json_object();
    struct json_iterator at;
    for (i64 i = 0; i < COUNT_OF(lists); i++)
        for (bool more = json_first(&at, lists[i]); more; more = json_next(&at, lists[i]))
            json_set(out, at.key, json_share(at.value));
    return out;
}

/* Copies what the model reads: the system message and the parts from `first` on. */
static void copy_read(struct sample *out, const struct conversation *c)
{
    const struct sample *s = &c->said;
    i64 system = behind_system(s), first = c->first;
    *out = (struct sample){.layout = SAMPLE_CHAT, .variables = all_variables(c)};
    for (i64 i = 0; i < s->count; i++) {
        if (i >= system && i < first)
            continue;
        const struct sample_part *from = &s->parts[i];
        struct sample_part *part = sample_add(out, from->kind);
        if (from->bytes.length)
            buffer_append(&part->bytes, from->bytes.data, from->bytes.length);
        part->role = from->role ? string_copy(from->role) : NULL;
        part->keys = from->keys ? json_share(from->keys) : NULL;
        part->at = from->at;
    }
}

static int lay_out(struct conversation_layout *l, const struct conversation *c)
{
    struct sample s;
    struct chat_ids chat = {0};
    copy_read(&s, c);
    int status = chat_lay_out(&chat, c->chat, &s, true);
    *l = (struct conversation_layout){.parts = memory_alloc((2 * s.count + 1) * (i64)sizeof *l->parts),
                                      .medium = memory_alloc((2 * s.count + 1) * 8),
                                      .media = memory_alloc(max_i64(1, s.count) * (i64)sizeof *l->media),
                                      .ids = chat.ids};
    chat.ids = (struct id_list){0};
    for (i64 i = 0, at = 0; i < chat.run_count && status == 0; i++) {
        const struct chat_run *run = &chat.runs[i];
        if (run->end > at) {
            l->medium[l->part_count] = -1;
            l->parts[l->part_count++] =
                (struct part){.kind = STREAM_TEXT, .ids = l->ids.ids + at, .count = run->end - at};
        }
        at = run->end;
        if (run->medium < 0)
            continue;
        const struct prompt *medium = c->media[s.parts[run->medium].at];
        l->medium[l->part_count] = s.parts[run->medium].at;
        l->parts[l->part_count++] = medium->parts[0];
        l->media[l->media_count++] = medium->media[0];
    }
    chat_ids_release(&chat);
    sample_release(&s);
    if (status)
        layout_release(l);
    return status;
}

static int prompt_conversation(struct prompt *p, struct conversation *c)
{
    struct conversation_layout l;
    int status = lay_out(&l, c);
    if (status)
        return -1;
    for (i64 i = 0; i < l.part_count && status == 0; i++)
        status =
            l.medium[i] < 0 ? prompt_ids(p, l.parts[i].ids, l.parts[i].count) : prompt_adopt(p, c->media[l.medium[i]]);
    layout_release(&l);
    return status;
}

/* The parts of the only message, without the marks of a template, as captions are. */
static int prompt_caption(struct prompt *p, struct conversation *c)
{
    const struct sample *s = &c->said;
    if (s->count == 0 || strcmp(s->parts[0].role, "user") != 0 || next_role(s, 1, NULL) < s->count)
        return error_set("a prompt for a medium is its caption: expected one message, a user's");
    for (i64 i = 0; i < s->count; i++) {
        const struct sample_part *part = &s->parts[i];
        const char *text = part->bytes.data ? part->bytes.data : "";
        if (part->kind == MODALITY_TEXT ? prompt_text(p, c->generator, text) : prompt_adopt(p, c->media[part->at]))
            return -1;
    }
    return 0;
}

int conversation_prompt(struct prompt *p, struct conversation *c)
{
    int status = p->to == MODALITY_TEXT ? prompt_conversation(p, c) : prompt_caption(p, c);
    conversation_reset(c);
    return status;
}

/* Lays out a conversation so that `most` ids, or half of the model's length, are left for the
 * answer. Leaves out the oldest turns if necessary. Sets the number of ids that are left. */
static int lay_out_fitting(struct conversation_layout *l, i64 *room, struct conversation *c, i64 most)
{
    i64 length = c->generator->model.config.max_positions, wanted = min_i64(most, max_i64(1, length / 2)), dropped = 0;
    i64 before = c->first;
    for (;; dropped++) {
        struct sample_measure measure;
        if (lay_out(l, c))
            return -1;
        grammar_measure(&measure, &c->generator->vocabulary, l->parts, l->part_count, -1);
        *room = min_i64(most, length - measure.length);
        const struct sample *s = &c->said;
        i64 turn = next_role(s, max_i64(c->first, behind_system(s)), "user"), next = next_role(s, turn + 1, "user");
        if (*room >= wanted || (*room > 0 && next >= s->count))
            break;
        layout_release(l);
        if (next >= s->count) {
            c->first = before;
            return error_set("the message and its answer do not fit into the model's length, %lld positions: the "
                             "message alone takes %lld",
                             (long long)length, (long long)measure.length);
        }
        c->first = next;
    }
    if (dropped)
        log_info("the conversation does not fit into the model's %lld positions: the oldest %lld turn%s left out",
                 (long long)length, (long long)dropped, dropped == 1 ? " is" : "s are");
    return 0;
}

int conversation_fit(struct conversation *c, i64 most)
{
    struct conversation_layout l;
    i64 room;
    if (lay_out_fitting(&l, &room, c, most))
        return -1;
    layout_release(&l);
    return 0;
}

/* ---- Answers ---- */

/* Appends the text of an answer without the id that ended it and without the template's text before
 * every answer, which the messages do not have. */
static int answer_words(struct buffer *out, const struct conversation *c, const struct answer *a)
{
    struct buffer all = {0};
    const char *before = text_chat_lead(c->chat);
    i64 skip = (i64)strlen(before);
    int status = text_decode(c->generator->text, &all, a->ids, a->count - a->ended, true);
    if (skip && (all.length < skip || memcmp(all.data, before, (size_t)skip) != 0))
        skip = 0;
    if (status == 0 && all.length > skip)
        buffer_append(out, all.data + skip, all.length - skip);
    buffer_release(&all);
    return status;
}

struct conversation_stream {
    const struct conversation *conversation;
    const struct conversation_show *show;
    i64 shown; /* bytes */
};

/* Bytes that further ids cannot change: without the replacement characters that stand for the
 * beginning of a character at the end. */
static i64 settled_bytes(const struct buffer *text)
{
    i64 n = text->length;
    for (int i = 0; i < 3 && n >= 3 && memcmp(text->data + n - 3, "\xef\xbf\xbd", 3) == 0; i++)
        n -= 3;
    return n;
}

static void show_answer(struct conversation_stream *stream, const struct answer *answer, bool whole)
{
    struct buffer text = {0};
    if (answer_words(&text, stream->conversation, answer) == 0) {
        i64 end = whole ? text.length : settled_bytes(&text);
        if (end > stream->shown)
            stream->show->text(stream->show->context, text.data + stream->shown, end - stream->shown);
        stream->shown = max_i64(stream->shown, end);
    }
    buffer_release(&text);
}

static void see(void *context, const struct answer *answers)
{
    show_answer(context, &answers[0], answers[0].done);
}

/* Ids that an answer never has: the one that begins a message, and those without a token. */
static i64 find_forbidden(i32 *ids, const struct generator *s)
{
    i64 count = 0;
    for (i64 id = 0; id < s->model.config.vocabulary; id++)
        if (id == s->vocabulary.message_begin || !text_token_content(s->text, (i32)id))
            ids[count++] = (i32)id;
    return count;
}

static struct generate_request request_of(const struct conversation *c, const struct conversation_layout *l, i64 most,
                                          u32 identity)
{
    const struct vocabulary *v = &c->generator->vocabulary;
    return (struct generate_request){.parts = l->parts,
                                     .part_count = l->part_count,
                                     .media = l->media,
                                     .stop = {v->end, v->message_end, -1, -1},
                                     .most = most,
                                     .copies = 1,
                                     .identity = identity,
                                     .by_place = true};
}

/* Adds an answer to its conversation, unless it was interrupted before it said anything. */
static int keep_answer(struct conversation *c, const struct answer *a, bool *full)
{
    struct buffer text = {0};
    int status = answer_words(&text, c, a);
    if (full)
        *full = a->done && !a->ended;
    if (status == 0 && (a->done || text.length))
        status = conversation_say(c, "assistant", text.data ? text.data : "", text.length);
    buffer_release(&text);
    return status;
}

int conversation_answer(struct conversation *c, i64 count, u32 identity, bool *full,
                        const struct conversation_options *o)
{
    struct conversation_layout *layouts = memory_alloc(count * (i64)sizeof *layouts);
    struct generate_request *requests = memory_alloc(count * (i64)sizeof *requests);
    struct answer *answers = memory_alloc(count * (i64)sizeof *answers);
    struct conversation_stream stream = {c, o->show, 0};
    const struct generate_watcher watcher = {see, &stream};
    struct generator_options decoding = o->decoding;
    int status = 0;
    i32 *forbidden = memory_alloc(c->generator->model.config.vocabulary * 4);
    i64 room, forbidden_count = find_forbidden(forbidden, c->generator);
    decoding.watcher = o->show ? &watcher : NULL;
    for (i64 i = 0; i < count && status == 0; i++) {
        status = lay_out_fitting(&layouts[i], &room, &c[i], o->most);
        if (status == 0) {
            requests[i] = request_of(&c[i], &layouts[i], room, identity + (u32)i);
            requests[i].forbidden = forbidden;
            requests[i].forbidden_count = forbidden_count;
        }
    }
    bool began = status == 0;
    if (status == 0)
        status = generator_run(answers, c->generator, requests, count, &decoding);
    if (status && began && o->show && interrupted())
        show_answer(&stream, &answers[0], true);
    bool keeps = c->generator->device->backend != BACKEND_META && (status == 0 || (began && interrupted()));
    for (i64 i = 0; i < count && keeps; i++)
        if (keep_answer(&c[i], &answers[i], full ? &full[i] : NULL))
            status = -1;
    for (i64 i = 0; i < count; i++) {
        layout_release(&layouts[i]);
        answer_release(&answers[i]);
    }
    memory_free(forbidden);
    memory_free(layouts);
    memory_free(requests);
    memory_free(answers);
    return status;
}
