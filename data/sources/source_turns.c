/* Makes one list of messages of a record that asks and answers, {"role", "content"} each, and puts
 * into it what the other keys of the record say: the system message, earlier turns, an input, a
 * context, choices, a line of reasoning, media. */
#include "data/sources/source_build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Lists of messages ---- */

void turns_push(struct json *turns, const char *role, struct json *content)
{
    struct json *message = json_object();
    json_set(message, "role", json_of_string(role));
    json_set(message, "content", content);
    json_push(turns, message);
}

/* Puts a message at a place of build->turns. */
static void insert(struct sample_builder *b, i64 place, const char *role, struct json *content)
{
    struct json *turns = json_array();
    for (i64 i = 0; i <= json_count(b->turns); i++) {
        if (i == place)
            turns_push(turns, role, content);
        if (i < json_count(b->turns))
            json_push(turns, json_copy(json_at(b->turns, i)));
    }
    json_free(b->turns);
    b->turns = turns;
}

static bool has_role(const struct json *message, const char *role)
{
    const char *said = message_role(message);
    return said && strcmp(said, role) == 0;
}

/* True for a list of messages. */
static bool are_messages(const struct json *value)
{
    const struct json *first = json_at(value, 0);
    return json_kind(value) == JSON_ARRAY && (sample_key(first, "role") || sample_key(first, "from"));
}

struct json *turns_message(struct sample_builder *b, const char *role, bool last)
{
    struct json *found = NULL;
    for (i64 i = 0; i < json_count(b->turns) && (last || !found); i++)
        if (has_role(json_at(b->turns, i), role))
            found = json_at(b->turns, i);
    return found;
}

struct json *turns_question(struct sample_builder *b)
{
    return turns_message(b, "user", false);
}

i64 turns_count(const struct sample_builder *b, const char *role)
{
    i64 count = 0;
    for (i64 i = 0; i < json_count(b->turns); i++)
        count += has_role(json_at(b->turns, i), role);
    return count;
}

const char *message_content_key(const struct json *message)
{
    return !sample_key(message, "content") && sample_key(message, "value") ? "value" : "content";
}

/* A copy of a message, whose content is a string where a table has bytes. */
static struct json *message_copy(const struct sample_builder *b, const struct json *message)
{
    struct json *copy = json_copy(message);
    const struct json *content = message_content(message);
    if (record_bytes(b->place->record, content))
        json_set(copy, message_content_key(message), text_copy(b, content));
    return copy;
}

void turns_append(const struct sample_builder *b, struct json *turns, const struct json *messages)
{
    for (i64 i = 0; i < json_count(messages); i++)
        json_push(turns, message_copy(b, json_at(messages, i)));
}

struct json *turns_cell(const struct sample_builder *b, const char *key, const struct json *cell)
{
    const char *text = json_string(cell, "");
    if (!b->place->record || (*text != '[' && *text != '{'))
        return NULL;
    struct json *value = json_parsed(cell);
    bool message = json_kind(value) == JSON_OBJECT && (sample_key(value, "role") || sample_key(value, "from"));
    bool answers = (strcmp(key, "answers") == 0 && json_kind(value) != JSON_STRING) ||
                   (json_kind(json_get(value, "text")) == JSON_ARRAY && json_get(value, "answer_start")) ||
                   (sample_key(value, "value") && sample_key(value, "aliases"));
    if (message || answers || are_messages(value))
        return value;
    json_free(value);
    return NULL;
}

int turns_ask(struct sample_builder *b, const char *key, const struct json *question)
{
    struct json *cell = turns_cell(b, key, question);
    if (cell) {
        int status = turns_ask(b, key, cell);
        json_free(cell);
        return status;
    }
    if (are_messages(question)) {
        turns_append(b, b->turns, question);
        return 0;
    }
    if (!build_is_text(b, question))
        return error_set("key %s: expected a text or a list of messages", key);
    turns_push(b->turns, "user", text_copy(b, question));
    return 0;
}

/* ---- Texts of values ---- */

/* The first text of an answer; NULL: none. several: there are others. */
struct json *first_text(const struct sample_builder *b, const struct json *value, bool *several)
{
    static const char *const members[] = {"text", "value", "answer", "content"};
    if (build_is_text(b, value))
        return text_copy(b, value);
    if (json_kind(value) == JSON_INTEGER || json_kind(value) == JSON_REAL) {
        struct buffer text = {0};
        json_print(&text, value, 0);
        struct json *number = json_of_bytes(text.data, text.length);
        buffer_release(&text);
        return number;
    }
    *several = *several || (json_kind(value) == JSON_ARRAY && json_count(value) > 1);
    if (json_kind(value) == JSON_ARRAY)
        return first_text(b, json_at(value, 0), several);
    for (i64 i = 0; json_kind(value) == JSON_OBJECT && i < COUNT_OF(members); i++)
        if (sample_key(value, members[i]))
            return first_text(b, json_get(value, members[i]), several);
    return NULL;
}

/* True for a value that has a place for answers and holds none, as those of SQuAD 2. */
static bool is_unanswered(const struct json *value)
{
    const struct json *text = json_kind(value) == JSON_OBJECT ? json_get(value, "text") : NULL;
    return (text && json_says_nothing(text)) ||
           (json_kind(value) == JSON_ARRAY && json_says_nothing(json_at(value, 0)));
}

/* Appends the text of a context: a text, a list of texts, or an object with such under "contexts" or
 * "text". False: another value. */
static bool append_texts(struct buffer *out, const struct sample_builder *b, const struct json *value)
{
    if (build_is_text(b, value)) {
        struct json *text = text_copy(b, value);
        if (json_kind(text) == JSON_STRING && json_string_length(text))
            buffer_printf(out, "%s", out->length ? "\n\n" : "");
        buffer_append(out, json_string(text, ""), json_string_length(text));
        bool is_text = json_kind(text) == JSON_STRING;
        json_free(text);
        return is_text;
    }
    if (json_kind(value) == JSON_OBJECT) {
        const struct json *inner =
            sample_key(value, "contexts") ? json_get(value, "contexts") : json_get(value, "text");
        return inner && append_texts(out, b, inner);
    }
    bool all = json_kind(value) == JSON_ARRAY;
    for (i64 i = 0; all && i < json_count(value); i++)
        all = json_says_nothing(json_at(value, i)) || append_texts(out, b, json_at(value, i));
    return all;
}

/* ---- Changing a question ---- */

/* True if the text parts of a content contain a text. */
bool content_contains(const struct json *content, const char *text)
{
    if (json_kind(content) == JSON_STRING)
        return strstr(json_string(content, ""), text) != NULL;
    for (i64 i = 0; json_kind(content) == JSON_ARRAY && i < json_count(content); i++) {
        const struct json *part = json_at(content, i);
        if (strstr(json_string(json_kind(part) == JSON_STRING ? part : json_get(part, "text"), ""), text))
            return true;
    }
    return false;
}

static struct json *text_part(const char *text, i64 length)
{
    struct json *part = json_object();
    json_set(part, "type", json_of_string("text"));
    json_set(part, "text", json_of_bytes(text, length));
    return part;
}

/* Adds text before or behind the content of a message. */
int message_dress(struct json *message, const char *before, const char *behind)
{
    const char *key = message_content_key(message);
    const struct json *content = json_get(message, key);
    struct json *dressed;
    if (json_kind(content) == JSON_STRING) {
        struct buffer text = {0};
        buffer_append(&text, before, (i64)strlen(before));
        buffer_append(&text, json_string(content, ""), json_string_length(content));
        buffer_append(&text, behind, (i64)strlen(behind));
        dressed = json_of_bytes(text.data, text.length);
        buffer_release(&text);
    } else if (json_kind(content) == JSON_ARRAY) {
        dressed = json_array();
        if (*before)
            json_push(dressed, text_part(before, (i64)strlen(before)));
        for (i64 i = 0; i < json_count(content); i++)
            json_push(dressed, json_copy(json_at(content, i)));
        if (*behind)
            json_push(dressed, text_part(behind, (i64)strlen(behind)));
    } else {
        return error_set("the question is no text");
    }
    json_set(message, key, dressed);
    return 0;
}

static int no_question(const struct record_key *key)
{
    return error_set("key %s: the record has no question that it belongs to", key->name);
}

/* Alpaca's input, and what ms-swift calls query beside an instruction: behind the question. */
static int add_input(struct sample_builder *b)
{
    const struct record_key *key = record_key_of(b, KEY_INPUT, 0);
    if (!key)
        return 0;
    if (record_key_of(b, KEY_INPUT, 1))
        return error_set("keys %s and %s: expected one input", key->name, record_key_of(b, KEY_INPUT, 1)->name);
    struct json *question = turns_message(b, "user", true), *text = text_copy(b, key->value);
    int status = !question ? no_question(key) : 0;
    if (status == 0 && json_kind(text) != JSON_STRING)
        status = error_set("key %s: expected a text", key->name);
    struct buffer behind = {0};
    buffer_printf(&behind, "%s%s", json_says_nothing(message_content(question)) ? "" : "\n", json_string(text, ""));
    if (status == 0)
        status = message_dress(question, "", behind.data);
    buffer_release(&behind);
    json_free(text);
    return status;
}

/* append_texts of a value that is JSON in the cell of a table of text. */
static bool append_cell(struct buffer *out, const struct sample_builder *b, const struct json *value)
{
    const char *text = json_string(value, "");
    if (!b->place->record || (*text != '[' && *text != '{'))
        return append_texts(out, b, value);
    struct json *parsed = json_parsed(value);
    bool appended = append_texts(out, b, parsed);
    json_free(parsed);
    return appended;
}

/* What is to be read before the question. Not repeated if the question holds it already. */
static int add_contexts(struct sample_builder *b)
{
    const struct record_key *key;
    struct buffer all = {0};
    int status = 0;
    struct json *question = turns_question(b);
    for (i64 i = 0; status == 0 && (key = record_key_of(b, KEY_CONTEXT, i)); i++) {
        struct buffer text = {0};
        enum json_kind kind = json_kind(key->value);
        if (kind == JSON_INTEGER || kind == JSON_REAL || kind == JSON_BOOL)
            note_key(b, key->name, "of records, which are not read");
        else if (!append_cell(&text, b, key->value))
            status = error_set("key %s: expected a text or a list of texts that stand before the question", key->name);
        else if (text.length && !question)
            status = no_question(key);
        else if (text.length && !content_contains(message_content(question), text.data))
            buffer_printf(&all, "%s\n\n", text.data);
        buffer_release(&text);
    }
    if (status == 0 && all.length)
        status = message_dress(question, all.data, "");
    buffer_release(&all);
    return status;
}

/* ---- System messages and earlier turns ---- */

static int add_system(struct sample_builder *b)
{
    const struct record_key *key;
    for (i64 i = 0; (key = record_key_of(b, KEY_SYSTEM, i)); i++) {
        struct json *first = json_at(b->turns, 0), *text = text_copy(b, key->value);
        bool leads = has_role(first, "system");
        const struct json *said = leads ? message_content(first) : NULL;
        int status = json_kind(text) == JSON_STRING ? 0 : error_set("key %s: expected a text", key->name);
        if (status == 0 && leads && strcmp(json_string(said, ""), json_string(text, "")) != 0)
            status = error_set("key %s: the messages begin with another system message", key->name);
        if (status == 0 && !leads)
            insert(b, 0, "system", json_copy(text));
        json_free(text);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* Appends one turn of a history: a pair of texts, a message, or an object of a question and an
 * answer. */
static int push_turn(struct sample_builder *b, struct json *turns, const struct json *turn)
{
    static const char *const asked[] = {"question", "user", "human", "instruction", "prompt", "query", "input"},
                             *const said[] = {"answer", "assistant", "gpt", "output", "response", "completion", "bot"};
    const struct json *question = json_kind(turn) == JSON_ARRAY && json_count(turn) == 2 ? json_at(turn, 0) : NULL;
    const struct json *answer = question ? json_at(turn, 1) : NULL;
    if (sample_key(turn, "role") || sample_key(turn, "from")) {
        json_push(turns, message_copy(b, turn));
        return 0;
    }
    for (i64 i = 0; json_kind(turn) == JSON_OBJECT && i < COUNT_OF(asked); i++) {
        question = question ? question : sample_key(turn, asked[i]);
        answer = answer ? answer : sample_key(turn, said[i]);
    }
    if (!build_is_text(b, question) || !build_is_text(b, answer))
        return error_set("key history: expected a list of [QUESTION, ANSWER], or of messages");
    turns_push(turns, "user", text_copy(b, question));
    turns_push(turns, "assistant", text_copy(b, answer));
    return 0;
}

/* Earlier turns stand before the question, behind a system message. */
static int add_history(struct sample_builder *b)
{
    const struct record_key *key = record_key_of(b, KEY_HISTORY, 0);
    if (!key)
        return 0;
    struct json *list = json_parsed(key->value), *turns = json_array();
    i64 first = has_role(json_at(b->turns, 0), "system");
    int status = json_kind(list) == JSON_ARRAY ? 0 : error_set("key history: expected a list of turns");
    for (i64 i = 0; i < first; i++)
        json_push(turns, json_copy(json_at(b->turns, i)));
    for (i64 i = 0; i < json_count(list) && status == 0; i++)
        status = push_turn(b, turns, json_at(list, i));
    for (i64 i = first; i < json_count(b->turns); i++)
        json_push(turns, json_copy(json_at(b->turns, i)));
    json_free(b->turns);
    json_free(list);
    b->turns = turns;
    return status;
}

/* The text of the last answer of a value: a text, a message or a list of such. Freed by the caller;
 * NULL: it has none. */
static struct json *last_answer(const struct sample_builder *b, const struct json *value)
{
    bool several = false;
    struct json *cell = turns_cell(b, "chosen", value);
    if (cell) {
        struct json *said = last_answer(b, cell);
        json_free(cell);
        return said;
    }
    const struct json *last = are_messages(value) ? json_at(value, json_count(value) - 1) : value;
    return first_text(b, sample_key(last, "role") || sample_key(last, "from") ? message_content(last) : last, &several);
}

/* Refuses a record whose chosen answer is another one than that which would be learned. */
static int check_chosen(struct sample_builder *b, const struct record_key *key)
{
    struct json *chosen = last_answer(b, key->value), *said = last_answer(b, b->turns);
    const char *x = json_string(chosen, ""), *y = json_string(said, "");
    bool differ = chosen && said && strcmp(x + strspn(x, " \n"), y + strspn(y, " \n")) != 0;
    json_free(chosen);
    json_free(said);
    if (differ && strcmp(key->name, "chosen") == 0)
        return error_set("key chosen: another answer than that of the record: expected one of them");
    note_key(b, key->name, "of records, whose messages have an answer already");
    return 0;
}

/* The answer that was chosen, behind messages that end with a question. */
static int add_chosen(struct sample_builder *b)
{
    const struct record_key *key;
    for (i64 i = 0; (key = record_key_of(b, KEY_CHOSEN, i)); i++) {
        bool answered = has_role(json_at(b->turns, json_count(b->turns) - 1), "assistant");
        int status = 0;
        if (answered)
            status = check_chosen(b, key);
        else if (are_messages(key->value))
            turns_append(b, b->turns, key->value);
        else if (sample_key(key->value, "role") || sample_key(key->value, "from"))
            json_push(b->turns, message_copy(b, key->value));
        else
            status = turns_answer(b, key->name, key->value);
        if (status)
            return status;
    }
    return 0;
}

/* A line of reasoning, which a chat template lays out. */
static int add_reasoning(struct sample_builder *b)
{
    const struct record_key *key = record_key_of(b, KEY_REASONING, 0);
    struct json *answer = turns_message(b, "assistant", true);
    if (!key || json_kind(key->value) == JSON_BOOL)
        return 0;
    if (record_key_of(b, KEY_REASONING, 1))
        return error_set("keys %s and %s: expected one line of reasoning", key->name,
                         record_key_of(b, KEY_REASONING, 1)->name);
    if (!build_is_text(b, key->value))
        return error_set("key %s: expected a text", key->name);
    if (is_one_of("on off yes no true false none low medium high enabled disabled", json_string(key->value, ""))) {
        note_key(b, key->name, "of records, which are not read"); /* a switch */
        return 0;
    }
    if (turns_count(b, "assistant") != 1 || sample_key(answer, "reasoning_content"))
        return error_set("key %s: expected it at the answer that it belongs to, as its key reasoning_content",
                         key->name);
    if (!content_contains(message_content(answer), json_string(key->value, "")))
        json_set(answer, "reasoning_content", text_copy(b, key->value));
    return 0;
}

/* ---- Conversations ---- */

int turns_answer(struct sample_builder *b, const char *key, const struct json *answer)
{
    bool several = false;
    struct json *cell = turns_cell(b, key, answer);
    if (cell) {
        int status = turns_answer(b, key, cell);
        json_free(cell);
        return status;
    }
    if (are_messages(answer)) {
        turns_append(b, b->turns, answer);
        return 0;
    }
    if (sample_key(answer, "role") || sample_key(answer, "from")) {
        json_push(b->turns, message_copy(b, answer));
        return 0;
    }
    if (is_unanswered(answer))
        return leave_out(b, key, "holds no answer");
    struct json *text = first_text(b, answer, &several);
    if (!text)
        return error_set("key %s: expected a text, a number, or a list of texts", key);
    if (several)
        note_key(b, key, "of records, of which the first answer is learned");
    double number = json_number(answer, 0.5);
    b->picks = json_kind(answer) == JSON_INTEGER || (json_kind(answer) == JSON_REAL && number == rint(number));
    turns_push(b->turns, "assistant", text);
    return 0;
}

static int read_listed(struct sample_builder *b)
{
    return listed_read(b, b->object, FORM_MESSAGES);
}

int build_conversation(struct sample_builder *b)
{
    int (*const steps[])(struct sample_builder *) = {add_chosen,   add_input,      choices_add,    add_contexts,
                                                     add_history,  add_system,     add_reasoning,  read_listed,
                                                     listed_place, build_messages, build_variables};
    for (i64 i = 0; i < COUNT_OF(steps); i++) {
        int status = steps[i](b);
        if (status)
            return status;
    }
    for (int kind = 0; kind < MODALITIES; kind++)
        if (b->used[kind] < json_count(b->media[kind]))
            return error_set("%s are listed, and not all of them have a place in the messages",
                             modality_rows[kind].many);
    return 0;
}

/* ---- Prompts for reinforcement learning ---- */

static int refuse_media(const struct sample_builder *b)
{
    const struct record_key *key;
    for (i64 i = 0; (key = record_key_of(b, KEY_LISTED, i)); i++) {
        if (listed_is_usable(b, key->name, key->value))
            return error_set("key %s: prompts are text only; remove what has media", key->name);
        note_key(b, key->name, "of prompts, which are not read");
    }
    return 0;
}

/* OpenAI's older functions are tools. */
static int take_functions(struct json *object)
{
    const struct json *functions = sample_key(object, "functions");
    if (json_says_nothing(functions) || !json_says_nothing(json_get(object, "tools")))
        return 0;
    struct json *list = json_parsed(functions);
    bool listed = json_kind(list) == JSON_ARRAY;
    if (listed)
        json_set(object, "tools", tools_of_functions(list));
    json_free(list);
    return listed ? 0 : error_set("key functions: expected a list");
}

/* The list of messages without its last one, the answer. */
static struct json *asked_of(const struct json *turns)
{
    struct json *asked = json_array();
    for (i64 i = 0; i + 1 < json_count(turns); i++)
        json_push(asked, json_copy(json_at(turns, i)));
    return asked;
}

/* Puts what the keys say into the prompt, or into the question and the answer. */
static int ask(struct sample_builder *b, struct json *object, const struct json *prompt)
{
    int (*const steps[])(struct sample_builder *) = {add_input, choices_add, add_contexts, add_history, add_system};
    int status = turns_ask(b, prompt ? "prompt" : "question", prompt ? prompt : json_get(object, "question"));
    if (status == 0 && prompt)
        turns_push(b->turns, "assistant", json_of_string(""));
    else if (status == 0)
        status = turns_answer(b, "answer", json_get(object, "answer"));
    for (i64 i = 0; i < COUNT_OF(steps) && status == 0; i++)
        status = steps[i](b);
    const struct json *answer = message_content(json_at(b->turns, json_count(b->turns) - 1));
    if (status > 0 || (status == 0 && json_kind(answer) != JSON_STRING))
        status = error_set("key answer: expected a text");
    if (status < 0)
        return -1;
    if (!prompt)
        json_set(object, "answer", json_copy(answer));
    json_set(object, prompt ? "prompt" : "question", asked_of(b->turns));
    return 0;
}

int sample_ask(struct json *object, const char *origin, bool media, struct skip_notes *notes)
{
    const struct json *own[] = {sample_key(object, "prompt"),   sample_key(object, "question"),
                                sample_key(object, "answer"),   json_get(object, "reward_model"),
                                json_get(object, "extra_info"), json_get(object, "data_source"),
                                json_get(object, "ability"),    json_get(object, "to")};
    const struct json_place place = {.origin = origin, .notes = notes};
    struct sample_builder b = {.object = object, .asked = object, .place = &place, .turns = json_array()};
    bool changes = false;
    int status = own[0] || (own[1] && own[2]) ? record_keys_read(&b, FORM_PROMPT, own, COUNT_OF(own)) : 0;
    for (i64 i = 0; i < b.key_count; i++)
        changes |= b.keys[i].use != KEY_LISTED && b.keys[i].use != KEY_VARIABLE;
    if (status == 0 && !media)
        status = refuse_media(&b);
    if (status == 0 && changes)
        status = ask(&b, object, own[0]);
    if (status == 0)
        status = take_functions(object);
    json_free(b.turns);
    return status;
}
