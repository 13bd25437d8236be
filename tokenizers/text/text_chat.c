/* Conversations: opens the chat templates of a tokenizer, renders conversations, and encodes their
 * text. Which text is learned: chat_learned.c; which text may become marks: chat_spelled.c. */
#define _GNU_SOURCE /* memmem */
#include "tokenizers/text/chat_inside.h"

#include <string.h>

/* ---- Templates ---- */

static bool has_chatml(const struct text_tokenizer *tokenizer)
{
    return text_token_id(tokenizer, "<|im_start|>") >= 0 && text_token_id(tokenizer, "<|im_end|>") >= 0;
}

const char *text_chat_template(const struct text_tokenizer *tokenizer, i64 index, const char **name)
{
    struct json_iterator at;
    *name = "default";
    if (!tokenizer->chat_templates)
        return index == 0 && !json_get(tokenizer->config, "chat_template") && has_chatml(tokenizer) ? chat_template
                                                                                                    : NULL;
    bool more = json_first(&at, tokenizer->chat_templates);
    for (; more && index > 0; index--)
        more = json_next(&at, tokenizer->chat_templates);
    if (more)
        *name = at.key;
    return more ? json_string(at.value, NULL) : NULL;
}

static const char *template_named(const struct text_tokenizer *tokenizer, const char *wanted)
{
    const char *name, *text;
    for (i64 i = 0; (text = text_chat_template(tokenizer, i, &name)) != NULL; i++)
        if (strcmp(name, wanted) == 0)
            return text;
    return NULL;
}

/* Returns NULL and a message: there is none. */
static const char *default_template(const struct text_tokenizer *tokenizer)
{
    const char *name, *text = template_named(tokenizer, "default");
    if (text)
        return text;
    if (tokenizer->chat_templates)
        error_set("%s: of its chat templates none is named \"default\", as transformers expects", tokenizer->origin);
    else if (json_get(tokenizer->config, "chat_template"))
        error_set("%s: chat_template of its tokenizer_config.json: expected a text, or a list of {\"name\", "
                  "\"template\"}",
                  tokenizer->origin);
    else if (!text_chat_template(tokenizer, 0, &name))
        error_set("%s: a conversation, but the text tokenizer has neither a chat_template in tokenizer_config.json nor "
                  "ChatML's tokens <|im_start|> and <|im_end|>, which `weft tokenize FILE -o DIR` adds",
                  tokenizer->origin);
    return NULL;
}

/* The special tokens that a template may name, as transformers gives them to it. */
static struct json *read_roles(const struct text_tokenizer *t)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    const char *fallback[COUNT_OF(names)] = {t->begin_token, t->end_token};
    struct json *roles = json_object();
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        const struct json *role = json_get(t->config, names[i]);
        if (json_kind(role) == JSON_OBJECT)
            role = json_get(role, "content");
        const char *content = json_string(role, t->config && json_get(t->config, names[i]) ? NULL : fallback[i]);
        if (content)
            json_set(roles, names[i], json_of_string(content));
    }
    return roles;
}

/* ---- Rendering ---- */

const char *chat_output(const struct template_output *out)
{
    return out->text.data ? out->text.data : "";
}

static const struct chat_program *program_of(const struct chat *chat, const struct json *variables)
{
    bool tools = json_kind(json_get(variables, "tools")) != JSON_NULL;
    return &chat->programs[tools && chat->has_tool_use];
}

/* The variables of a template but for the messages. */
static struct json *globals_of(const struct chat *chat, const struct json *variables, bool prompt)
{
    static const char *const always[] = {"tools", "documents"};
    struct json *out = json_object();
    const struct json *lists[] = {chat->roles, variables};
    struct json_iterator at;
    for (i64 i = 0; i < COUNT_OF(always); i++)
        json_set(out, always[i], json_of_null());
    for (i64 i = 0; i < COUNT_OF(lists); i++)
        for (bool more = json_first(&at, lists[i]); more; more = json_next(&at, lists[i])) /* roles: of all workers */
            json_set(out, at.key, i == 0 ? json_copy(at.value) : json_share(at.value));
    json_set(out, "add_generation_prompt", json_of_bool(prompt));
    return out;
}

int chat_render(struct template_output *out, const struct chat_work *work, const struct json *messages, i64 count,
                bool prompt)
{
    const struct chat_program *p = work->program;
    struct json *globals, *list = json_array();
    *out = (struct template_output){0};
    for (i64 i = 0; i < count; i++)
        json_push(list, json_share(json_at(messages, i)));
    globals = globals_of(work->chat, work->request->variables, prompt);
    json_set(globals, "messages", list);
    int status = p->program ? template_render(out, p->program, globals) : error_set("%s", p->problem);
    json_free(globals);
    if (status)
        template_output_release(out);
    return status;
}

/* A message as transformers gives it to a template: without members that are null, and with its
 * reasoning by the names that templates know. */
static struct json *given_message(const struct json *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    struct json *out = json_object(), *reasoning = NULL;
    struct json_iterator at;
    for (i64 i = 0; i < COUNT_OF(names) && !reasoning; i++)
        if (json_kind(json_get(message, names[i])) != JSON_NULL)
            reasoning = json_get(message, names[i]);
    if (reasoning)
        json_set(out, "thinking", json_share(reasoning));
    for (bool more = json_first(&at, message); more; more = json_next(&at, message))
        if (json_kind(at.value) != JSON_NULL)
            json_set(out, at.key, json_share(at.value));
    if (reasoning)
        json_set(out, "reasoning_content", json_share(reasoning));
    return out;
}

/* Refuses tools and documents that change nothing of what the template writes. */
static int check_variables(const struct chat_work *w)
{
    static const char *const names[] = {"tools", "documents"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        bool chooses = i == 0 && w->chat->has_tool_use; /* tools choose the template */
        if (chooses || json_count(json_get(w->request->variables, names[i])) == 0)
            continue;
        struct json *variables = json_copy(w->request->variables);
        json_set(variables, names[i], json_of_null());
        struct chat_request without = *w->request;
        without.variables = variables;
        struct chat_work other = *w;
        other.request = &without;
        struct template_output shown;
        bool ignored = chat_render(&shown, &other, w->messages, w->count, w->request->prompt) == 0;
        ignored = ignored && strcmp(chat_output(&shown), chat_output(&w->shown)) == 0;
        template_output_release(&shown);
        json_free(variables);
        if (ignored)
            return error_set("key %s: the chat template has no place for them: leave the key out, or take a "
                             "tokenizer whose template has",
                             names[i]);
    }
    return 0;
}

static void work_release(struct chat_work *w)
{
    json_free(w->messages);
    template_output_release(&w->shown);
    memory_free(w->barred);
    memory_free(w->learned);
}

/* Renders the whole conversation and finds the marks that its messages spell. */
static int work_open(struct chat_work *w, const struct chat *chat, const struct chat_request *request)
{
    *w = (struct chat_work){.chat = chat,
                            .program = program_of(chat, request->variables),
                            .request = request,
                            .messages = json_array(),
                            .count = json_count(request->messages)};
    for (i64 i = 0; i < w->count; i++)
        json_push(w->messages, given_message(json_at(request->messages, i)));
    int status = w->count ? chat_render(&w->shown, w, w->messages, w->count, request->prompt)
                          : error_set("a conversation without messages");
    if (status == 0 && w->shown.text.length == 0)
        status = error_set("its chat template writes nothing for this conversation");
    if (status == 0)
        status = check_variables(w);
    if (status == 0)
        status = chat_find_spelled(w);
    if (status)
        work_release(w);
    return status;
}

/* ---- Ids ---- */

void chat_put_medium(struct buffer *content, i64 medium)
{
    u8 bytes[4];
    require(medium >= 0 && medium < CHAT_MEDIA_MOST, "medium %lld of a conversation", (long long)medium);
    buffer_append(content, bytes, utf8_encode(bytes, (u32)(CHAT_MEDIUM + medium)));
}

bool chat_lists_texts(const struct chat *chat, const struct json *variables, bool several)
{
    const struct chat_program *p = program_of(chat, variables);
    return p->only_texts || (several && p->takes_texts);
}

void chat_ids_release(struct chat_ids *ids)
{
    id_list_release(&ids->ids);
    memory_free(ids->runs);
    *ids = (struct chat_ids){0};
}

static void push_run(struct chat_ids *out, i64 end, i32 medium, bool learned)
{
    i64 size = (i64)sizeof *out->runs;
    if (out->run_count && medium < 0 && out->runs[out->run_count - 1].end == end)
        return;
    if (out->run_count == out->run_capacity) {
        i64 capacity = grown_capacity(out->run_capacity, out->run_count + 1, size);
        out->runs = memory_resize(out->runs, out->run_capacity * size, capacity * size);
        out->run_capacity = capacity;
    }
    out->runs[out->run_count++] = (struct chat_run){end, medium, learned};
}

/* Offset of the next medium from `at` on, or the length of the text. */
static i64 next_medium(i32 *number, const struct chat_work *w, i64 at, i64 length)
{
    const char *text = chat_output(&w->shown), *found;
    u32 c;
    *number = -1;
    while (w->request->media && at < length && (found = memmem(text + at, (size_t)(length - at), "\xf4\x8f", 2))) {
        at = found - text;
        utf8_decode(&c, (const u8 *)found);
        *number = (i32)c - CHAT_MEDIUM;
        if (*number >= 0 && *number < w->request->media)
            return at;
        at += 4;
    }
    *number = -1;
    return length;
}

/* Refuses a text that does not have each medium once. */
static int check_media(const struct chat_work *w)
{
    i64 count = 0, at = 0, length = w->shown.text.length;
    i32 number;
    bool *seen = memory_alloc(max_i64(1, w->request->media)), twice = false;
    for (; (at = next_medium(&number, w, at, length)) < length; at += 4, count++) {
        twice |= seen[number];
        seen[number] = true;
    }
    memory_free(seen);
    if (count == w->request->media && !twice)
        return 0;
    return error_set("its chat template writes %lld of the %lld media of this conversation, or one of them twice",
                     (long long)count, (long long)w->request->media);
}

/* Encodes the text between two media, [begin, end), and appends its runs. `next` is the number of the
 * first span of what is learned that does not end before `begin`. */
static int encode_between(struct chat_ids *out, const struct chat_work *w, i64 begin, i64 end, i64 *next,
                          i64 *barred_done)
{
    bool marked = template_marks_generation(w->program->program);
    i64 first = *next, spans = 0, skip = *barred_done, count = 0, from = out->ids.count;
    while (first + spans < w->learned_count && w->learned[first + spans].begin < end)
        spans++;
    while (skip + count < w->barred_count && w->barred[skip + count] < end)
        count++;
    struct text_border *borders = memory_alloc(max_i64(1, 2 * spans) * (i64)sizeof *borders);
    i64 *barred = memory_alloc(max_i64(1, count) * (i64)sizeof *barred);
    for (i64 i = 0; i < spans; i++) {
        borders[2 * i].at = max_i64(w->learned[first + i].begin, begin) - begin;
        borders[2 * i + 1].at = min_i64(w->learned[first + i].end, end) - begin;
    }
    for (i64 i = 0; i < count; i++)
        barred[i] = w->barred[skip + i] - begin;
    struct encode_options o = {
        .inside = begin > 0, .barred = barred, .barred_count = count, .borders = borders, .border_count = 2 * spans};
    int status = text_encode(w->chat->tokenizer, &out->ids, chat_output(&w->shown) + begin, end - begin, &o);
    for (i64 i = 0; i < spans && status == 0; i++) {
        push_run(out, from + (marked ? borders[2 * i].ended : borders[2 * i].begun), -1, false);
        push_run(out, from + borders[2 * i + 1].begun, -1, true);
    }
    *barred_done = skip + count;
    *next = first + spans - (spans && w->learned[first + spans - 1].end > end);
    memory_free(barred);
    memory_free(borders);
    return status;
}

static bool is_blank(const char *text, i64 length)
{
    for (i64 i = 0; i < length; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            return false;
    return true;
}

/* Length of the text without the white space behind its last mark. */
static i64 trimmed_length(const struct chat_work *w)
{
    struct template_span mark;
    const char *text = chat_output(&w->shown);
    i64 length = w->shown.text.length, end = length, at;
    i32 id;
    while (end > 0 && is_blank(text + end - 1, 1))
        end--;
    at = max_i64(0, end - 2 * w->chat->most_bytes);
    while (chat_next_mark(&mark, &id, &at, w, length))
        if (mark.end == end)
            return end;
    return length;
}

static bool lies_in_learned(const struct chat_work *w, i64 at)
{
    for (i64 i = 0; i < w->learned_count; i++)
        if (at >= w->learned[i].begin && at < w->learned[i].end)
            return true;
    return false;
}

static int encode_shown(struct chat_ids *out, const struct chat_work *w)
{
    i64 length = w->request->trims ? trimmed_length(w) : w->shown.text.length, next = 0, barred = 0, end;
    i32 medium;
    int status = check_media(w);
    for (i64 at = 0; status == 0; at = end + 4) {
        end = next_medium(&medium, w, at, length);
        status = encode_between(out, w, at, end, &next, &barred);
        bool last = end >= length;
        if (status == 0 && (!last || !out->run_count || out->runs[out->run_count - 1].end < out->ids.count))
            push_run(out, out->ids.count, medium, !last && lies_in_learned(w, end));
        if (last)
            break;
    }
    return status;
}

int text_chat_encode(struct chat_ids *out, const struct chat *chat, const struct chat_request *request)
{
    struct chat_work w;
    chat_ids_release(out);
    if (work_open(&w, chat, request))
        return -1;
    int status = request->learned ? chat_find_learned(&w) : 0;
    if (status == 0)
        status = encode_shown(out, &w);
    work_release(&w);
    if (status)
        chat_ids_release(out);
    return status;
}

int text_chat_text(struct buffer *out, const struct chat *chat, const struct chat_request *request)
{
    struct chat_work w;
    buffer_clear(out);
    if (work_open(&w, chat, request))
        return -1;
    buffer_append(out, chat_output(&w.shown), w.shown.text.length);
    work_release(&w);
    return 0;
}

/* ---- What a template writes around short texts ---- */

#define QUESTION "Zq1"
#define ANSWER "Zq2"
#define REPLY "Zq3"

static void push_message(struct json *messages, const struct chat_program *p, const char *role, const char *text)
{
    struct json *message = json_object(), *content = json_of_string(text);
    if (p->only_texts) {
        struct json *list = json_array(), *part = json_object();
        json_set(part, "type", json_of_string("text"));
        json_set(part, "text", content);
        json_push(list, part);
        content = list;
    }
    json_set(message, "role", json_of_string(role));
    json_set(message, "content", content);
    json_push(messages, message);
}

/* Renders a question and, unless they are NULL, an answer and the next question. */
static int render_short(struct template_output *out, const struct chat *chat, const struct chat_program *p,
                        const char *answer, const char *reply, bool prompt)
{
    struct json *messages = json_array();
    push_message(messages, p, "user", QUESTION);
    if (answer)
        push_message(messages, p, "assistant", answer);
    if (reply)
        push_message(messages, p, "user", reply);
    const struct chat_request request = {.messages = messages};
    const struct chat_work work = {.chat = chat, .program = p, .request = &request};
    int status = chat_render(out, &work, messages, json_count(messages), prompt);
    json_free(messages);
    return status;
}

i64 chat_common(const struct template_output *a, const struct template_output *b)
{
    i64 most = min_i64(a->text.length, b->text.length), i = 0;
    const char *x = chat_output(a), *y = chat_output(b);
    while (i < most && x[i] == y[i])
        i++;
    return i;
}

static bool begins_with(const struct template_output *text, const struct template_output *head)
{
    return text->text.length >= head->text.length &&
           memcmp(chat_output(text), chat_output(head), (size_t)head->text.length) == 0;
}

/* Appends what stands between `from` and `word`; false: the word is not there. */
static bool take_until(struct buffer *out, const struct template_output *text, i64 from, const char *word)
{
    const char *at = from <= text->text.length ? strstr(chat_output(text) + from, word) : NULL;
    if (at)
        buffer_append(out, chat_output(text) + from, at - chat_output(text) - from);
    return at != NULL;
}

/* Decides whether contents are texts or lists of texts. */
static void find_form(struct chat_program *p, const struct chat *chat)
{
    struct template_output text, list;
    struct chat_program lists = *p;
    lists.only_texts = true;
    bool takes_text = render_short(&text, chat, p, NULL, NULL, false) == 0 && strstr(chat_output(&text), QUESTION);
    p->takes_texts = render_short(&list, chat, &lists, NULL, NULL, false) == 0 &&
                     strstr(chat_output(&list), QUESTION) && !strstr(chat_output(&list), "'type'") &&
                     !strstr(chat_output(&list), "\"type\"");
    p->only_texts = !takes_text && p->takes_texts;
    template_output_release(&text);
    template_output_release(&list);
}

static bool has_mark(const struct chat *chat, const struct buffer *text)
{
    const struct chat_work work = {.chat = chat, .shown.text = *text};
    struct template_span mark;
    i64 at = 0;
    i32 id;
    return text->length && chat_next_mark(&mark, &id, &at, &work, text->length);
}

/* Finds header, lead and tail. */
static void find_answer(struct chat_program *p, const struct chat *chat)
{
    struct template_output before, prompt, last, middle;
    bool found = render_short(&before, chat, p, NULL, NULL, false) == 0;
    found &= render_short(&prompt, chat, p, NULL, NULL, true) == 0;
    found &= render_short(&last, chat, p, ANSWER, NULL, false) == 0;
    found &= render_short(&middle, chat, p, ANSWER, REPLY, false) == 0;
    if (found && begins_with(&prompt, &before) && begins_with(&last, &prompt) && begins_with(&middle, &prompt)) {
        i64 end = prompt.text.length, count, from = before.text.length;
        const char *question = strstr(chat_output(&prompt), QUESTION);
        if (end == from && question)
            from = question + strlen(QUESTION) - chat_output(&prompt);
        buffer_append(&p->header, chat_output(&prompt) + from, end - from);
        p->plain = take_until(&p->lead, &middle, end, ANSWER) && take_until(&p->last_lead, &last, end, ANSWER);
        const char *a = strstr(chat_output(&last) + end, ANSWER), *b = strstr(chat_output(&middle) + end, ANSWER);
        for (count = (i64)strlen(ANSWER); a && b && a[count] && a[count] == b[count];)
            buffer_append(&p->tail, a + count++, 1);
        p->plain = p->plain && p->tail.length;
        if (a)
            buffer_append(&p->last_tail, a + strlen(ANSWER), (i64)strlen(a + strlen(ANSWER)));
    }
    template_output_release(&before);
    template_output_release(&prompt);
    template_output_release(&last);
    template_output_release(&middle);
}

/* Adds the added tokens of a text to the marks, but for those of white space alone and those around
 * thoughts, which are part of an answer. */
static void add_marks(struct chat *chat, const char *text, i64 length)
{
    const struct text_tokenizer *t = chat->tokenizer;
    struct id_list ids = {0};
    if (text_encode(t, &ids, text, length, NULL) == 0)
        for (i64 i = 0; i < ids.count; i++) {
            const struct token *token = &t->tokens[ids.ids[i]];
            const char *content = text_token_content(t, ids.ids[i]);
            if (token->added && !is_blank(content, token->content_length) && !strstr(content, "think"))
                chat->marks[ids.ids[i]] = true;
        }
    id_list_release(&ids);
}

/* Adds what a template writes around short texts. */
static void add_written_marks(struct chat *chat, const struct chat_program *p)
{
    struct template_output text;
    if (render_short(&text, chat, p, ANSWER, REPLY, false))
        return;
    add_marks(chat, chat_output(&text), text.text.length);
    template_output_release(&text);
}

static void find_marks(struct chat *chat)
{
    const struct text_tokenizer *t = chat->tokenizer;
    chat->marks = memory_alloc(max_i64(1, t->vocabulary) * (i64)sizeof *chat->marks);
    for (i64 i = 0; i < t->added_count; i++)
        chat->marks[t->added[i].id] = t->tokens[t->added[i].id].special;
    for (int b = 0; b < 256; b++)
        chat->starts[b] = t->raw.first[b] < t->raw.first[b + 1] || t->normalized.first[b] < t->normalized.first[b + 1];
    for (int k = 0; k < CHAT_PROGRAMS; k++)
        if (chat->programs[k].program)
            add_written_marks(chat, &chat->programs[k]);
    for (i64 i = 0; i < t->added_count; i++)
        if (chat->marks[t->added[i].id])
            chat->most_bytes = max_i64(chat->most_bytes, t->added[i].match_length);
}

/* The first mark behind the last answer ends it. Of several marks between an answer and the next
 * question, the first one ends the answer and the second one begins a message. One alone does the one
 * or the other. */
static void find_ends(struct chat *chat)
{
    const struct chat_program *p = &chat->programs[0];
    struct template_output text;
    struct template_span mark;
    i32 id;
    chat->begin = chat->end = chat->middle_end = -1;
    if (render_short(&text, chat, p, ANSWER, NULL, false) == 0) {
        const struct chat_work work = {.chat = chat, .shown = text};
        const char *answer = strstr(chat_output(&text), ANSWER);
        i64 at = answer ? answer - chat_output(&text) : text.text.length;
        if (chat_next_mark(&mark, &id, &at, &work, text.text.length))
            chat->end = id;
        template_output_release(&text);
    }
    if (render_short(&text, chat, p, ANSWER, REPLY, false) == 0) {
        const struct chat_work work = {.chat = chat, .shown = text};
        const char *answer = strstr(chat_output(&text), ANSWER), *reply = strstr(chat_output(&text), REPLY);
        i64 at = answer ? answer - chat_output(&text) : text.text.length;
        i64 end = reply ? reply - chat_output(&text) : text.text.length;
        if (chat_next_mark(&mark, &id, &at, &work, end))
            chat->middle_end = id;
        if (chat_next_mark(&mark, &id, &at, &work, end)) {
            chat->begin = id;
        } else if (chat->middle_end != chat->end) {
            chat->begin = chat->middle_end;
            chat->middle_end = -1;
        }
        template_output_release(&text);
    }
}

/* ---- Opening ---- */

/* False and a message: control pieces of a SentencePiece model alone are text to it. */
static bool marks_are_tokens(const struct chat *chat)
{
    const struct text_tokenizer *t = chat->tokenizer;
    struct template_output text;
    bool all = true;
    if (!t->raw_name || render_short(&text, chat, &chat->programs[0], ANSWER, REPLY, true))
        return true;
    for (i64 id = 0; id < t->vocabulary && all; id++) {
        const char *content = text_token_content(t, (i32)id);
        if (!content || t->tokens[id].added || t->tokens[id].type != PIECE_CONTROL ||
            !strstr(chat_output(&text), content))
            continue;
        all = false;
        error_set("%s: %s, which its chat template writes, is no token to a SentencePiece model alone: put the same "
                  "tokenizer's tokenizer.json beside it",
                  t->origin, content);
    }
    template_output_release(&text);
    return all;
}

static void open_program(struct chat_program *p, const struct chat *chat, const char *source, const char *name)
{
    const struct text_tokenizer *t = chat->tokenizer;
    char *origin =
        string_format("%s: the chat template \"%s\" of %s", t->origin, name, t->chat_file ? t->chat_file : "weft");
    p->source = string_copy(source);
    p->program = template_open(source, (i64)strlen(source), origin);
    if (p->program && t->has_chat_time)
        template_set_time(p->program, t->chat_time_s);
    if (!p->program)
        p->problem = string_copy(error_text());
    else
        find_form(p, chat);
    memory_free(origin);
}

struct chat *text_chat_open(const struct text_tokenizer *tokenizer)
{
    const char *source = default_template(tokenizer), *tools = template_named(tokenizer, "tool_use");
    if (!source)
        return NULL;
    struct chat *chat = memory_alloc(sizeof *chat);
    *chat = (struct chat){.tokenizer = tokenizer, .roles = read_roles(tokenizer), .has_tool_use = tools != NULL};
    open_program(&chat->programs[0], chat, source, "default");
    if (tools)
        open_program(&chat->programs[1], chat, tools, "tool_use");
    if (!chat->programs[0].program || !marks_are_tokens(chat)) {
        if (chat->programs[0].problem)
            error_set("%s", chat->programs[0].problem);
        text_chat_close(chat);
        return NULL;
    }
    find_marks(chat);
    for (int k = 0; k < CHAT_PROGRAMS; k++)
        if (chat->programs[k].program) {
            find_answer(&chat->programs[k], chat);
            chat->programs[k].plain &= has_mark(chat, &chat->programs[k].header);
        }
    find_ends(chat);
    return chat;
}

void text_chat_close(struct chat *chat)
{
    if (!chat)
        return;
    for (int k = 0; k < CHAT_PROGRAMS; k++) {
        struct chat_program *p = &chat->programs[k];
        template_close(p->program);
        memory_free(p->source);
        memory_free(p->problem);
        buffer_release(&p->header);
        buffer_release(&p->lead);
        buffer_release(&p->last_lead);
        buffer_release(&p->tail);
        buffer_release(&p->last_tail);
    }
    json_free(chat->roles);
    memory_free(chat->marks);
    memory_free(chat);
}

void text_chat_marks(i32 *begin, i32 *end, const struct text_tokenizer *tokenizer)
{
    struct chat *chat = text_chat_open(tokenizer);
    /* Of a template that ends the last answer alone by its own mark, one answer may have several parts,
     * and the mark that begins a message begins a part too. */
    bool parts = chat && chat->middle_end >= 0 && chat->middle_end != chat->end;
    if (chat && chat->begin >= 0 && !parts)
        *begin = chat->begin;
    if (chat && chat->end >= 0)
        *end = chat->end;
    text_chat_close(chat);
}

const char *text_chat_lead(const struct chat *chat)
{
    const struct buffer *lead = &chat->programs[0].last_lead;
    return lead->data ? lead->data : "";
}

int text_chat_after_answer(struct id_list *out, const struct chat *chat, const char *text)
{
    const struct chat_program *p = &chat->programs[0];
    struct json *messages = json_array();
    struct chat_ids all = {0};
    push_message(messages, p, "user", QUESTION);
    push_message(messages, p, "assistant", ANSWER);
    push_message(messages, p, "user", text);
    const bool learned[] = {false, true, false};
    const struct chat_request request = {.messages = messages, .prompt = true, .learned = learned};
    int status = text_chat_encode(&all, chat, &request);
    i64 from = all.ids.count;
    for (i64 i = 0; i < all.run_count; i++)
        if (all.runs[i].learned)
            from = all.runs[i].end;
    for (i64 i = from; i < all.ids.count && status == 0; i++)
        id_list_push(out, all.ids.ids[i]);
    chat_ids_release(&all);
    json_free(messages);
    return status;
}
