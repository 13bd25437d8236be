/* Makes one list of messages of a record that asks and answers, {"role", "content"} each, and puts
 * into it what the other keys of the record say: the system message, earlier turns, an input, a
 * context, choices, a line of reasoning, media. */
#include "data/sources/source_build.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHOICES_MOST = 26 };

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

static struct json *message_of(struct sample_builder *b, const char *role, bool last)
{
    struct json *found = NULL;
    for (i64 i = 0; i < json_count(b->turns) && (last || !found); i++)
        if (has_role(json_at(b->turns, i), role))
            found = json_at(b->turns, i);
    return found;
}

struct json *turns_question(struct sample_builder *b)
{
    return message_of(b, "user", false);
}

static i64 count_role(const struct sample_builder *b, const char *role)
{
    i64 count = 0;
    for (i64 i = 0; i < json_count(b->turns); i++)
        count += has_role(json_at(b->turns, i), role);
    return count;
}

void turns_append(struct json *turns, const struct json *messages)
{
    for (i64 i = 0; i < json_count(messages); i++)
        json_push(turns, json_copy(json_at(messages, i)));
}

int turns_ask(struct sample_builder *b, const char *key, const struct json *question)
{
    if (are_messages(question)) {
        turns_append(b->turns, question);
        return 0;
    }
    if (!build_is_text(b, question))
        return error_set("key %s: expected a text or a list of messages", key);
    turns_push(b->turns, "user", text_copy(b, question));
    return 0;
}

/* ---- Texts of values ---- */

/* The first text of an answer; NULL: none. several: there are others. */
static struct json *first_text(const struct sample_builder *b, const struct json *value, bool *several)
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

static const char *content_key(const struct json *message)
{
    return !sample_key(message, "content") && sample_key(message, "value") ? "value" : "content";
}

/* True if the text parts of a content contain a text. */
static bool contains(const struct json *content, const char *text)
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
static int dress(struct json *message, const char *before, const char *behind)
{
    const char *key = content_key(message);
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
    struct json *question = message_of(b, "user", true), *text = text_copy(b, key->value);
    int status = !question ? no_question(key) : 0;
    if (status == 0 && json_kind(text) != JSON_STRING)
        status = error_set("key %s: expected a text", key->name);
    struct buffer behind = {0};
    buffer_printf(&behind, "%s%s", json_says_nothing(message_content(question)) ? "" : "\n", json_string(text, ""));
    if (status == 0)
        status = dress(question, "", behind.data);
    buffer_release(&behind);
    json_free(text);
    return status;
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
        else if (!append_texts(&text, b, key->value))
            status = error_set("key %s: expected a text or a list of texts that stand before the question", key->name);
        else if (text.length && !question)
            status = no_question(key);
        else if (text.length && !contains(message_content(question), text.data))
            buffer_printf(&all, "%s\n\n", text.data);
        buffer_release(&text);
    }
    if (status == 0 && all.length)
        status = dress(question, all.data, "");
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
        json_push(turns, json_copy(turn));
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

/* The answer that was chosen, behind messages that end with a question. */
static int add_chosen(struct sample_builder *b)
{
    const struct record_key *key = record_key_of(b, KEY_CHOSEN, 0);
    bool answered = has_role(json_at(b->turns, json_count(b->turns) - 1), "assistant");
    if (!key)
        return 0;
    if (answered) {
        note_key(b, key->name, "of records, whose messages have an answer already");
        return 0;
    }
    if (are_messages(key->value))
        turns_append(b->turns, key->value);
    else if (sample_key(key->value, "role") || sample_key(key->value, "from"))
        json_push(b->turns, json_copy(key->value));
    else
        return turns_answer(b, key->name, key->value);
    return 0;
}

/* A line of reasoning, which a chat template lays out. */
static int add_reasoning(struct sample_builder *b)
{
    const struct record_key *key = record_key_of(b, KEY_REASONING, 0);
    struct json *answer = message_of(b, "assistant", true);
    if (!key || json_kind(key->value) == JSON_BOOL)
        return 0;
    if (record_key_of(b, KEY_REASONING, 1))
        return error_set("keys %s and %s: expected one line of reasoning", key->name,
                         record_key_of(b, KEY_REASONING, 1)->name);
    if (!build_is_text(b, key->value))
        return error_set("key %s: expected a text", key->name);
    if (count_role(b, "assistant") != 1 || sample_key(answer, "reasoning_content"))
        return error_set("key %s: expected it at the answer that it belongs to, as its key reasoning_content",
                         key->name);
    if (!contains(message_content(answer), json_string(key->value, "")))
        json_set(answer, "reasoning_content", text_copy(b, key->value));
    return 0;
}

/* ---- Choices ---- */

struct choices {
    struct json *label[CHOICES_MOST], *text[CHOICES_MOST];
    i64 count;
};

static void choices_release(struct choices *c)
{
    for (i64 i = 0; i < c->count; i++) {
        json_free(c->label[i]);
        json_free(c->text[i]);
    }
    *c = (struct choices){0};
}

/* Adds a choice. label NULL: the letter of its place. */
static int push_choice(struct choices *c, const struct sample_builder *b, const struct json *text, const char *label)
{
    bool several = false;
    const char letter[] = {(char)('A' + c->count), 0};
    struct json *said = c->count < CHOICES_MOST ? first_text(b, text, &several) : NULL;
    if (json_kind(said) != JSON_STRING) {
        json_free(said);
        return error_set("choices: expected at most %d texts", CHOICES_MOST);
    }
    c->label[c->count] = json_of_string(label ? label : letter);
    c->text[c->count++] = said;
    return 0;
}

static int read_choice_list(struct choices *c, const struct sample_builder *b, const struct json *list)
{
    static const char *const names[] = {"label", "key", "id"};
    int status = 0;
    for (i64 i = 0; i < json_count(list) && status == 0; i++) {
        const struct json *one = json_at(list, i);
        const char *label = NULL;
        for (i64 k = 0; json_kind(one) == JSON_OBJECT && !label && k < COUNT_OF(names); k++)
            label = json_string(json_get(one, names[k]), NULL);
        status = push_choice(c, b, one, label);
    }
    return status;
}

/* A list of texts or of {"label", "text"}, {"text": [..], "label": [..]}, or {"A": TEXT, ..}. */
static int read_choices(struct choices *c, const struct sample_builder *b, const struct json *value)
{
    const struct json *texts = json_get(value, "text"), *labels = json_get(value, "label");
    struct json_iterator it;
    int status = 0;
    if (json_kind(value) == JSON_ARRAY)
        return read_choice_list(c, b, value);
    if (json_kind(value) != JSON_OBJECT)
        return error_set("choices: expected a list of texts");
    for (i64 i = 0; json_kind(texts) == JSON_ARRAY && i < json_count(texts) && status == 0; i++)
        status = push_choice(c, b, json_at(texts, i), json_string(json_at(labels, i), NULL));
    for (bool more = !texts && json_first(&it, value); more && status == 0; more = json_next(&it, value))
        if (!json_says_nothing(it.value))
            status = push_choice(c, b, it.value, it.key);
    return status;
}

/* The label of a choice in a column of its own: the letter or the digit that ends its name. */
static void column_label(char *label, const char *name)
{
    char last = name[strlen(name) - 1];
    label[0] = last >= 'a' && last <= 'z' ? (char)(last - 'a' + 'A') : last;
    label[1] = 0;
}

static int gather_choices(struct choices *c, const struct sample_builder *b)
{
    const struct record_key *key = record_key_of(b, KEY_CHOICES, 0);
    char label[2];
    int status = 0;
    if (key) {
        struct json *value = json_parsed(key->value);
        status = read_choices(c, b, value);
        json_free(value);
        return status;
    }
    for (i64 i = 0; status == 0 && record_key_of(b, KEY_CHOICE, 1) && (key = record_key_of(b, KEY_CHOICE, i)); i++) {
        column_label(label, key->name);
        status = push_choice(c, b, key->value, label);
    }
    return status;
}

/* True if a choice's text begins with its label, as in "A) TEXT". */
static bool is_labelled(const char *text, const char *label)
{
    const char *at = text + (*text == '(');
    size_t length = strlen(label);
    return strncmp(at, label, length) == 0 && at[length] && strchr(".):", at[length]);
}

/* Appends the lines "A. TEXT". A text that begins with its label stands as it is. */
static void print_choices(struct buffer *out, const struct choices *c)
{
    for (i64 i = 0; i < c->count; i++) {
        const char *label = json_string(c->label[i], ""), *text = json_string(c->text[i], "");
        bool labelled = is_labelled(text, label);
        buffer_printf(out, "\n%s%s%s", labelled ? "" : label, labelled ? "" : ". ", text);
    }
}

/* True if a question lists all choices with their labels. */
static bool lists_choices(const struct json *question, const struct choices *c)
{
    static const char *const between[] = {". ", ") ", ": "};
    bool all = c->count > 0;
    for (i64 i = 0; i < c->count && all; i++) {
        const char *label = json_string(c->label[i], ""), *text = json_string(c->text[i], "");
        all = is_labelled(text, label) && contains(message_content(question), text);
        for (i64 k = 0; k < COUNT_OF(between) && !all; k++) {
            char *line = string_format("%s%s%s", label, between[k], text);
            all = contains(message_content(question), line);
            memory_free(line);
        }
    }
    return all;
}

/* The label that an answer means: its number or its letter. NULL without a message: the answer is a
 * text. counted: the record has a number, which is an index also where a choice reads like it. */
static int picked(const char **label, const struct choices *c, const struct json *answer, bool counted)
{
    const char *said = json_string(answer, "");
    char *end;
    long number = strtol(said, &end, 10);
    *label = NULL;
    for (i64 i = 0; i < c->count && !counted; i++) {
        if (strcmp(json_string(c->text[i], ""), said) == 0)
            return 0;
        if (strcasecmp(json_string(c->label[i], ""), said) == 0)
            *label = json_string(c->label[i], "");
    }
    bool is_number = *said && !*end, letter = strlen(said) == 1 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", *said);
    if (*label || (!is_number && !letter))
        return 0;
    if (!is_number || number < 0 || number >= c->count)
        return error_set("the answer %.20s is none of the %lld choices", said, (long long)c->count);
    *label = json_string(c->label[number], "");
    return 0;
}

/* The question lists its choices, and an answer that is a number becomes the label of one. */
static int add_choices(struct sample_builder *b)
{
    struct choices c = {0};
    struct buffer lines = {0};
    struct json *question = message_of(b, "user", true), *answer = message_of(b, "assistant", true);
    const char *label = NULL;
    int status = gather_choices(&c, b);
    if (status == 0 && c.count && (count_role(b, "user") != 1 || !answer))
        status = error_set("choices: expected one question and its answer beside them");
    print_choices(&lines, &c);
    if (status == 0 && c.count)
        status = picked(&label, &c, message_content(answer), b->picks);
    if (status == 0 && label)
        json_set(answer, content_key(answer), json_of_string(label));
    if (status == 0 && c.count && !lists_choices(question, &c))
        status = dress(question, "", lines.data);
    buffer_release(&lines);
    choices_release(&c);
    return status;
}

/* ---- Conversations ---- */

int turns_answer(struct sample_builder *b, const char *key, const struct json *answer)
{
    bool several = false;
    if (are_messages(answer)) {
        turns_append(b->turns, answer);
        return 0;
    }
    if (sample_key(answer, "role") || sample_key(answer, "from")) {
        json_push(b->turns, json_copy(answer));
        return 0;
    }
    if (is_unanswered(answer))
        return leave_out(b, key, "holds no answer");
    struct json *text = first_text(b, answer, &several);
    if (!text)
        return error_set("key %s: expected a text, a number, or a list of texts", key);
    if (several)
        note_key(b, key, "of records, of which the first answer is learned");
    b->picks = json_kind(answer) == JSON_INTEGER;
    turns_push(b->turns, "assistant", text);
    return 0;
}

static int read_listed(struct sample_builder *b)
{
    return listed_read(b, b->object, FORM_MESSAGES);
}

int build_conversation(struct sample_builder *b)
{
    int (*const steps[])(struct sample_builder *) = {add_chosen,   add_choices,    add_input,      add_contexts,
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

/* The list of messages without its last one, the answer. */
static struct json *asked_of(const struct json *turns)
{
    struct json *asked = json_array();
    for (i64 i = 0; i + 1 < json_count(turns); i++)
        json_push(asked, json_copy(json_at(turns, i)));
    return asked;
}

int sample_ask(struct json *object, const char *origin, struct skip_notes *notes)
{
    const struct json *own[] = {sample_key(object, "prompt"),   sample_key(object, "question"),
                                sample_key(object, "answer"),   json_get(object, "reward_model"),
                                json_get(object, "extra_info"), json_get(object, "data_source"),
                                json_get(object, "ability")};
    const struct json_place place = {.origin = origin, .notes = notes};
    struct sample_builder b = {.object = object, .asked = object, .place = &place, .turns = json_array()};
    int (*const steps[])(struct sample_builder *) = {add_choices, add_input, add_contexts, add_history, add_system};
    bool graded = !own[0] && own[1] && own[2];
    int status = !own[0] && !graded ? 0 : record_keys_read(&b, FORM_PROMPT, own, COUNT_OF(own));
    if (status == 0)
        status = refuse_media(&b);
    bool changes = false;
    for (i64 i = 0; status == 0 && i < b.key_count; i++)
        changes |= b.keys[i].use != KEY_LISTED && b.keys[i].use != KEY_VARIABLE;
    if (status == 0 && sample_key(object, "functions") && !sample_key(object, "tools"))
        json_set(object, "tools", tools_of_functions(json_get(object, "functions")));
    if (changes)
        status = turns_ask(&b, own[0] ? "prompt" : "question", own[0] ? own[0] : own[1]);
    if (changes && status == 0 && graded)
        status = turns_answer(&b, "answer", own[2]);
    else if (changes && status == 0)
        turns_push(b.turns, "assistant", json_of_string(""));
    for (i64 i = 0; changes && i < COUNT_OF(steps) && status == 0; i++)
        status = steps[i](&b);
    if (changes && status == 0) {
        json_set(object, own[0] ? "prompt" : "question", asked_of(b.turns));
        if (graded)
            json_set(object, "answer", json_copy(message_content(message_of(&b, "assistant", true))));
    }
    json_free(b.turns);
    return status;
}
