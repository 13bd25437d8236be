/* Which text of a rendered conversation is learned.
 *
 * A template that marks {% generation %} says it. Else answer i is the difference of two renderings:
 * that of the messages before it with the generation prompt, and that of the messages up to it.
 * Both are beginnings of the whole conversation, where templates only append.
 *
 * Where a template writes earlier messages differently once others follow (Qwen3 takes the thoughts
 * out of earlier turns, gpt-oss ends the last answer with another mark), this is done instead:
 *
 *   begin  the end of what both renderings have in common, if they differ inside of the generation
 *          prompt only. Else the end of the last generation prompt before the text that changes with
 *          the answer. Else, of templates without that prompt, the end of the mark before that text.
 *   end    the mark in the place of the one that ends the shorter rendering. Else the last mark that
 *          begins a message before the text that changes with the next message. Else the first end
 *          mark behind the text that changes with the answer.
 *
 * and the conversation is refused if neither is found. White space behind the end mark is not
 * learned.
 *
 * n answers of one conversation would take 2 n renderings. If an answer is a text alone and not the
 * last message, its place follows from what the template writes around short texts: behind the next
 * generation prompt, which no message can spell, stand the lead, the content and the tail. */
#define _GNU_SOURCE /* memmem */
#include "tokenizers/text/chat_inside.h"

#include <string.h>

#define CHANGED "Zq9"

static bool answers(const struct json *message)
{
    return strcmp(json_string(json_get(message, "role"), ""), "assistant") == 0;
}

static void add_span(struct chat_work *w, i64 begin, i64 end)
{
    i64 size = (i64)sizeof *w->learned;
    if ((w->learned_count & (w->learned_count - 1)) == 0)
        w->learned = memory_resize(w->learned, w->learned_count * size, max_i64(1, 2 * w->learned_count) * size);
    w->learned[w->learned_count++] = (struct template_span){begin, end};
}

/* Length of the text without the white space and the marks behind its last end mark, or without the
 * white space behind its last mark. */
static i64 end_of_answer(const struct chat_work *w, i64 begin, i64 end)
{
    const char *text = chat_output(&w->shown);
    struct template_span mark;
    i64 at = begin, ended = -1, last = -1, behind;
    i32 id;
    while (chat_next_mark(&mark, &id, &at, w, end)) {
        last = mark.end;
        if (id == w->chat->end || id == w->chat->middle_end)
            ended = mark.end;
    }
    for (i64 k = 0; k < 2; k++) {
        i64 from = k == 0 ? ended : last;
        for (behind = from; from >= 0 && behind < end;) {
            i64 next = behind;
            if (strchr(" \t\r\n", text[behind]) && text[behind])
                behind++;
            else if (k == 0 && chat_next_mark(&mark, &id, &next, w, end) && mark.begin == behind)
                behind = mark.end;
            else
                break;
        }
        if (from >= 0 && behind == end)
            return from;
    }
    return end;
}

static int add_answer(struct chat_work *w, i64 message, i64 begin, i64 end)
{
    if (begin < end)
        end = end_of_answer(w, begin, end);
    if (begin >= end)
        return error_set("message %lld: its chat template writes nothing of this answer", (long long)message + 1);
    add_span(w, begin, end);
    return 0;
}

/* ---- Renderings ---- */

static bool is_beginning(const struct template_output *a, const struct template_output *whole)
{
    return a->text.length <= whole->text.length && chat_common(a, whole) == a->text.length;
}

static struct json *changed_text(const struct json *text)
{
    struct buffer out = {0};
    buffer_append(&out, CHANGED, (i64)strlen(CHANGED));
    buffer_append(&out, json_string(text, ""), json_string_length(text));
    buffer_append(&out, CHANGED, (i64)strlen(CHANGED));
    struct json *value = json_of_utf8(out.data, out.length);
    buffer_release(&out);
    return value;
}

/* A copy of a message in which all that it says is different. */
static struct json *changed_message(const struct json *message)
{
    static const char *const said[] = {"content", "reasoning_content", "reasoning", "thinking"};
    struct json *out = json_copy(message);
    for (i64 i = 0; i < COUNT_OF(said); i++) {
        struct json *value = json_get(out, said[i]);
        i64 parts = json_kind(value) == JSON_ARRAY ? json_count(value) : 0;
        for (i64 k = 0; k < parts; k++)
            if (json_kind(json_get(json_at(value, k), "text")) == JSON_STRING)
                json_set(json_at(value, k), "text", changed_text(json_get(json_at(value, k), "text")));
        if (json_kind(value) == JSON_STRING)
            json_set(out, said[i], changed_text(value)); /* frees the value */
    }
    struct json *calls = json_get(out, "tool_calls");
    for (i64 i = 0; i < json_count(calls); i++) {
        struct json *named =
            json_get(json_at(calls, i), "function") ? json_get(json_at(calls, i), "function") : json_at(calls, i);
        if (json_kind(json_get(named, "name")) == JSON_STRING)
            json_set(named, "name", changed_text(json_get(named, "name")));
    }
    return out;
}

/* A message of the same role that says another text only. */
static struct json *other_message(const struct json *message)
{
    struct json *out = json_object(), *content = json_get(message, "content"), *list = json_array();
    struct json *text = json_object();
    json_set(text, "type", json_of_string("text"));
    json_set(text, "text", json_of_string(CHANGED));
    json_push(list, text);
    json_set(out, "role", json_copy(json_get(message, "role")));
    json_set(out, "content", json_kind(content) == JSON_ARRAY ? json_copy(list) : json_of_string(CHANGED));
    json_free(list);
    return out;
}

/* Bytes at both ends that the conversation has in common with one in which a message is another. */
static int common_with(i64 *begin, i64 *end, const struct chat_work *w, i64 message, struct json *other)
{
    struct json *messages = json_array();
    struct template_output text;
    for (i64 i = 0; i < w->count; i++)
        json_push(messages, json_share(i == message ? other : json_at(w->messages, i)));
    int status = chat_render(&text, w, messages, w->count, w->request->prompt);
    i64 most = status ? 0 : min_i64(w->shown.text.length, text.text.length);
    const char *a = chat_output(&w->shown) + w->shown.text.length, *b = chat_output(&text) + text.text.length;
    *begin = status ? 0 : chat_common(&w->shown, &text);
    for (*end = 0; *end < most && a[-*end - 1] == b[-*end - 1];)
        ++*end;
    template_output_release(&text);
    json_free(messages);
    json_free(other);
    return status;
}

/* Offset of the first byte of the conversation that depends on a message. -1: not known. */
static i64 first_dependent(const struct chat_work *w, i64 message)
{
    const struct json *given = json_at(w->messages, message);
    i64 changed, other, end;
    if (common_with(&changed, &end, w, message, changed_message(given)) ||
        common_with(&other, &end, w, message, other_message(given)))
        return -1;
    return min_i64(changed, other) < w->shown.text.length ? min_i64(changed, other) : -1;
}

/* Offset behind the last byte that depends on what a message says. -1: not known. */
static i64 last_dependent(const struct chat_work *w, i64 message)
{
    i64 begin, end;
    int status = common_with(&begin, &end, w, message, changed_message(json_at(w->messages, message)));
    return status || end == w->shown.text.length ? -1 : w->shown.text.length - end;
}

static int refuse_answer(i64 message)
{
    return error_set("message %lld: its chat template writes the messages before it differently once this answer "
                     "follows, and where it begins or ends is not known",
                     (long long)message + 1);
}

/* ---- Begin and end of one answer ---- */

/* Moves an offset inside of a mark to the mark's begin. */
static i64 outside_marks(const struct chat_work *w, i64 from, i64 offset)
{
    struct template_span mark;
    i32 id;
    while (chat_next_mark(&mark, &id, &from, w, w->shown.text.length) && mark.begin < offset)
        if (mark.end > offset)
            return mark.begin;
    return offset;
}

/* The end of the last generation prompt in [from, end); -1: there is none. */
static i64 last_prompt_end(const struct chat_work *w, const char *prompt, i64 length, i64 from, i64 end)
{
    const char *text = chat_output(&w->shown);
    for (i64 at = end - length; length > 0 && at >= from; at--)
        if (memcmp(text + at, prompt, (size_t)length) == 0)
            return at + length;
    return -1;
}

/* The end of the mark before `end`, if only the lead stands between. */
static i64 end_of_mark_before(const struct chat_work *w, i64 from, i64 end)
{
    const struct buffer *lead = &w->program->lead;
    struct template_span mark;
    i64 found = -1;
    i32 id;
    while (chat_next_mark(&mark, &id, &from, w, end))
        found = mark.end;
    if (found == end || (found >= 0 && end - found == lead->length &&
                         memcmp(chat_output(&w->shown) + found, lead->data, (size_t)lead->length) == 0))
        return found;
    return -1;
}

/* Returns the offset, or -1 and a message. from: the end of the answer before. */
static i64 find_begin(const struct chat_work *w, i64 message, i64 from)
{
    struct template_output before = {0}, prompt = {0};
    const struct buffer *header = &w->program->header;
    i64 begin = -1, shared;
    bool rendered = message > 0 && chat_render(&before, w, w->messages, message, false) == 0;
    rendered = rendered && chat_render(&prompt, w, w->messages, message, true) == 0;
    if (rendered && is_beginning(&prompt, &w->shown)) {
        begin = prompt.text.length;
    } else if (rendered && is_beginning(&before, &w->shown) &&
               (shared = chat_common(&prompt, &w->shown)) >= before.text.length) {
        begin = outside_marks(w, before.text.length, shared);
    } else {
        const char *words = header->data;
        i64 length = header->length, end = first_dependent(w, message);
        if (rendered && is_beginning(&before, &prompt) && prompt.text.length > before.text.length) {
            words = chat_output(&prompt) + before.text.length;
            length = prompt.text.length - before.text.length;
        }
        if (end >= 0)
            begin = last_prompt_end(w, words, length, from, end);
        if (end >= 0 && begin < 0 && words == header->data)
            begin = end_of_mark_before(w, from, end);
        if (begin < 0)
            refuse_answer(message);
    }
    template_output_release(&before);
    template_output_release(&prompt);
    return begin;
}

/* True if the text from `at` on is only marks and white space. */
static bool only_marks(const struct chat_work *w, const struct template_output *text, i64 at)
{
    const struct chat_work other = {.chat = w->chat, .shown = *text};
    struct template_span mark;
    i32 id;
    while (at < text->text.length) {
        i64 next = at;
        if (strchr(" \t\r\n", chat_output(text)[at]) && chat_output(text)[at])
            at++;
        else if (chat_next_mark(&mark, &id, &next, &other, text->text.length) && mark.begin == at)
            at = mark.end;
        else
            return false;
    }
    return true;
}

/* The end of the mark at `at`, or `at` if there is none. */
static i64 end_of_mark_at(const struct chat_work *w, i64 at)
{
    struct template_span mark;
    i64 from = at;
    i32 id;
    return chat_next_mark(&mark, &id, &from, w, w->shown.text.length) && mark.begin == at ? mark.end : at;
}

/* Where the last mark in [from, end) that begins a message begins, or -1. Of templates without end
 * marks, each mark begins a message. */
static i64 last_begin_mark(const struct chat_work *w, i64 from, i64 end)
{
    struct template_span mark;
    i64 found = -1;
    i32 id;
    while (from < end && chat_next_mark(&mark, &id, &from, w, end))
        if (id == w->chat->begin || w->chat->end < 0)
            found = mark.begin;
    return found;
}

/* The end of the first end mark from `from` on, or -1. */
static i64 next_end_mark(const struct chat_work *w, i64 from)
{
    struct template_span mark;
    i32 id;
    while (from >= 0 && chat_next_mark(&mark, &id, &from, w, w->shown.text.length))
        if (id == w->chat->end || id == w->chat->middle_end)
            return mark.end;
    return -1;
}

/* Returns the offset, or -1 and a message. */
static i64 find_end(const struct chat_work *w, i64 message, i64 begin)
{
    struct template_output upto;
    if (message + 1 == w->count && !w->request->prompt)
        return w->shown.text.length;
    if (chat_render(&upto, w, w->messages, message + 1, false))
        return -1;
    i64 end = -1, shared = chat_common(&upto, &w->shown), at = outside_marks(w, begin, shared);
    if (shared == upto.text.length)
        end = shared;
    else if (shared > begin && only_marks(w, &upto, at))
        end = end_of_mark_at(w, at);
    template_output_release(&upto);
    if (end < 0) {
        i64 next = message + 1 < w->count ? first_dependent(w, message + 1) : -1;
        end = last_begin_mark(w, begin, next);
        if (end < 0)
            end = next_end_mark(w, last_dependent(w, message));
        end = next > begin && end > next ? -1 : end;
    }
    return end < begin ? refuse_answer(message) : end;
}

/* ---- Answers that are texts alone ---- */

/* The content of an answer that is nothing else. NULL: it has more. */
static const struct json *plain_content(const struct json *message)
{
    const struct json *content = json_get(message, "content");
    return json_kind(content) == JSON_STRING && json_count(message) == 2 ? content : NULL;
}

static bool stands_at(const struct chat_work *w, i64 *at, const char *text, i64 length)
{
    if (length == 0)
        return true;
    if (w->shown.text.length - *at < length || memcmp(chat_output(&w->shown) + *at, text, (size_t)length) != 0)
        return false;
    *at += length;
    return true;
}

/* Behind a generation prompt at `at`: lead, content and tail. Sets the end. */
static bool stands_here(i64 *end, const struct chat_work *w, i64 at, const struct json *content,
                        const struct buffer *lead, const struct buffer *tail)
{
    const char *text = json_string(content, "");
    i64 length = json_string_length(content), first = 0, last = length;
    while (first < length && strchr(" \t\r\n", text[first]) && text[first])
        first++;
    while (last > first && strchr(" \t\r\n", text[last - 1]) && text[last - 1])
        last--;
    *end = at;
    if (!stands_at(w, end, lead->data, lead->length))
        return false;
    i64 behind_lead = *end;
    if (stands_at(w, end, text, length) && stands_at(w, end, tail->data, tail->length))
        return true;
    *end = behind_lead;
    return stands_at(w, end, text + first, last - first) && stands_at(w, end, tail->data, tail->length);
}

/* The next generation prompt at or behind `at` that no message spells; -1: none. */
static i64 next_prompt(const struct chat_work *w, i64 at)
{
    const struct buffer *h = &w->program->header;
    const char *text = chat_output(&w->shown), *found;
    while (at < w->shown.text.length &&
           (found = memmem(text + at, (size_t)(w->shown.text.length - at), h->data, (size_t)h->length)) != NULL) {
        i64 begin = found - text, b = 0;
        while (b < w->barred_count && w->barred[b] < begin)
            b++;
        if (b == w->barred_count || w->barred[b] >= begin + h->length)
            return begin;
        at = begin + 1;
    }
    return -1;
}

/* True if the next generation prompt from `at` on, lead, content and tail are the end of the
 * conversation. A variable may change that prompt. */
static bool last_stands(i64 *begin, const struct chat_work *w, i64 at, const struct json *content)
{
    const struct chat_program *p = w->program;
    i64 end;
    if (!p->plain || !content || json_count(w->request->variables) || (at = next_prompt(w, at)) < 0)
        return false;
    *begin = at + p->header.length;
    return stands_here(&end, w, *begin, content, &p->last_lead, &p->last_tail) && end == w->shown.text.length;
}

/* Finds the answers with at most one more rendering. False: another way is needed. */
static bool find_plain_answers(struct chat_work *w)
{
    i64 at = 0, end, begin;
    for (i64 i = 0; i < w->count; i++) {
        const struct json *message = json_at(w->messages, i), *content = plain_content(message);
        if (!answers(message))
            continue;
        bool last = i + 1 == w->count && !w->request->prompt;
        if (last && w->request->learned[i] && last_stands(&begin, w, at, content))
            return add_answer(w, i, begin, w->shown.text.length) == 0;
        if (last && w->request->learned[i]) {
            struct template_output prompt;
            bool begins = i > 0 && chat_render(&prompt, w, w->messages, i, true) == 0;
            begins = begins && is_beginning(&prompt, &w->shown) && prompt.text.length >= at;
            begin = begins ? prompt.text.length : -1;
            if (i > 0)
                template_output_release(&prompt);
            return begins && add_answer(w, i, begin, w->shown.text.length) == 0;
        }
        if (last)
            return true;
        if (!w->program->plain || !content || (at = next_prompt(w, at)) < 0)
            return false;
        at += w->program->header.length;
        if (!stands_here(&end, w, at, content, &w->program->lead, &w->program->tail))
            return false;
        if (w->request->learned[i] && add_answer(w, i, at, end))
            return false;
        at = end;
    }
    return true;
}

/* ---- All answers ---- */

/* Refuses an answer that says something for which its template has no place. */
static int check_places(const struct chat_work *w, i64 i)
{
    static const char *const said[] = {"tool_calls", "tool_plan", "thought", "thoughts", "refusal"};
    const struct json *message = json_at(w->messages, i);
    const char *source = w->program->source;
    bool thinks = json_kind(json_get(message, "reasoning_content")) != JSON_NULL;
    if (thinks && !strstr(source, "reasoning") && !strstr(source, "thinking"))
        return error_set("message %lld has reasoning, for which its chat template has no place: write it into the "
                         "content as the model shall say it, or leave it out",
                         (long long)i + 1);
    for (i64 k = 0; k < COUNT_OF(said); k++)
        if (json_get(message, said[k]) && !strstr(source, said[k]))
            return error_set("message %lld has %s, for which its chat template has no place", (long long)i + 1,
                             said[k]);
    return 0;
}

static int take_generated(struct chat_work *w, i64 answered, i64 wanted)
{
    i64 number = 0;
    bool one_each = w->shown.generated_count == answered;
    if (wanted && !w->shown.generated_count)
        return error_set("its chat template marks no {%% generation %%} in this conversation");
    if (wanted < answered && !one_each)
        return error_set("its chat template marks %lld texts as {%% generation %%} for %lld answers: which of them is "
                         "not to be learned is not known",
                         (long long)w->shown.generated_count, (long long)answered);
    for (i64 i = 0; i < w->count && one_each; i++)
        if (answers(json_at(w->messages, i))) {
            const struct template_span *span = &w->shown.generated[number++];
            if (w->request->learned[i])
                add_span(w, span->begin, span->end);
        }
    for (i64 i = 0; i < w->shown.generated_count && !one_each; i++)
        add_span(w, w->shown.generated[i].begin, w->shown.generated[i].end);
    return 0;
}

int chat_find_learned(struct chat_work *w)
{
    i64 answered = 0, wanted = 0;
    for (i64 i = 0; i < w->count; i++) {
        bool answer = answers(json_at(w->messages, i));
        answered += answer;
        wanted += answer && w->request->learned[i];
        if (answer && w->request->learned[i] && check_places(w, i))
            return -1;
    }
    if (wanted == 0)
        return 0;
    if (template_marks_generation(w->program->program))
        return take_generated(w, answered, wanted);
    if (find_plain_answers(w))
        return 0;
    w->learned_count = 0;
    for (i64 i = 0, from = 0; i < w->count; i++) {
        if (!answers(json_at(w->messages, i)) || !w->request->learned[i])
            continue;
        i64 begin = find_begin(w, i, from), end = begin < 0 ? -1 : find_end(w, i, begin);
        if (end < 0 || (begin < from && refuse_answer(i)) || add_answer(w, i, begin, end))
            return -1;
        from = w->learned[w->learned_count - 1].end;
    }
    return 0;
}
