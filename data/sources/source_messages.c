/* Adds the messages of a conversation to a sample: their contents as parts, and what a chat template
 * reads of them beside the content as the first part's keys (sources.h). */
#include "data/sources/source_build.h"

#include <string.h>

/* ---- Roles ---- */

/* Maps the role names of ShareGPT, Vicuna and OpenAI to user, assistant, system and tool; NULL:
 * unknown. */
static const char *role_of(const char *said)
{
    static const char *const roles[][2] = {{"user", "user human prompter"},
                                           {"assistant", "assistant gpt chatgpt model bot bing bard function_call"},
                                           {"system", "system developer"},
                                           {"tool", "tool function observation function_response ipython"}};
    for (i64 i = 0; i < COUNT_OF(roles); i++)
        if (is_one_of(roles[i][1], said))
            return roles[i][0];
    return NULL;
}

/* True if templates know a role by this name. ShareGPT's own names are those of no template. */
static bool is_template_role(const char *said, bool sharegpt)
{
    return !sharegpt && is_one_of("developer function observation ipython", said);
}

/* ---- Calls of tools ---- */

/* A call as {"type": "function", "function": {"name", "arguments"}, ..}, where arguments that are a
 * string of JSON become their value, as templates expect. NULL and a message: it has no name. */
static struct json *call_of(const struct sample_builder *b, const struct json *call)
{
    const struct json *named = sample_key(call, "function") ? sample_key(call, "function") : call;
    if (json_kind(json_get(named, "name")) != JSON_STRING) {
        error_set("a call of a tool has no name: expected {\"function\": {\"name\", \"arguments\"}}");
        return NULL;
    }
    struct json *out = named == call ? json_object() : json_copied(b, call), *function = json_copied(b, named);
    const struct json *arguments = json_get(function, "arguments");
    json_set(function, "arguments", json_says_nothing(arguments) ? json_object() : json_parsed(arguments));
    if (!json_get(out, "type"))
        json_set(out, "type", json_of_string("function"));
    json_set(out, "function", function);
    return out;
}

/* The calls of a message in the order in which they are made; NULL: none. Returns -1 and a message
 * if one is none. */
static int read_calls(struct json **out, const struct sample_builder *b, const struct json *message, const char *said)
{
    struct json *listed = json_parsed(json_get(message, "tool_calls")), /* tables have strings */
        *single = json_parsed(json_get(message, "function_call")), *calls = json_array();
    if (strcmp(said, "function_call") == 0) {
        struct json *own = json_parsed(message_content(message)),
                    **place = json_kind(own) == JSON_ARRAY ? &listed : &single;
        json_free(*place);
        *place = own;
    }
    if (!json_says_nothing(listed) && json_kind(listed) != JSON_ARRAY) {
        json_free(listed);
        json_free(single);
        json_free(calls);
        return error_set("key tool_calls: expected a list of calls, or one as a string of JSON");
    }
    i64 count = json_count(listed) + !json_says_nothing(single);
    for (i64 i = 0; i < count && calls; i++) {
        struct json *call = call_of(b, i < json_count(listed) ? json_at(listed, i) : single);
        if (call) {
            json_push(calls, call);
            continue;
        }
        json_free(calls);
        calls = NULL;
    }
    json_free(listed);
    json_free(single);
    int status = calls ? 0 : -1;
    if (calls && count == 0) {
        json_free(calls);
        calls = NULL;
    }
    *out = calls;
    return status;
}

/* ---- Keys ---- */

/* Reads a key that says whether a message is learned: weight, train, .. of 0 or false. Only answers
 * can be. */
static int read_weight(const char *key, const struct json *value, bool answers, bool *unlearned)
{
    bool is_bool = json_kind(value) == JSON_BOOL;
    double weight = is_bool ? json_bool(value, false) : json_number(value, -1);
    if (weight != 0 && weight != 1)
        return error_set("key %s: expected 0, 1, false or true", key);
    if (weight == 1 && !answers && is_one_of("train training loss", key))
        return error_set("key %s: this message is no answer, and only answers are learned: leave the key out", key);
    *unlearned = *unlearned || weight == 0;
    return 0;
}

const char *message_role(const struct json *message)
{
    bool sharegpt = !sample_key(message, "role");
    return role_of(json_string(json_get(message, sharegpt ? "from" : "role"), ""));
}

/* Reads the keys beside role, content and calls into `keys`. Those that would change what is learned
 * in ways that nothing has a place for are refused; those that say nothing known are noted too. */
static int read_keys(struct sample_builder *b, struct json *keys, const struct json *message, bool answers,
                     bool *unlearned)
{
    static const char read[] = "role from content value tool_calls function_call tools functions";
    static const char weights[] = "weight weights loss_weight sample_weight train training loss loss_mask";
    static const char refused[] = "mask train_detail training_detail";
    static const char known[] = "name tool_call_id tool_plan reasoning_content reasoning thinking thought thoughts "
                                "refusal";
    struct json_iterator it;
    for (bool more = json_first(&it, message); more; more = json_next(&it, message)) {
        if (json_says_nothing(it.value) || is_one_of(read, it.key) || listed_is_usable(b, it.key, it.value))
            continue;
        enum learning learning = record_key_learning(it.key, it.value);
        if (is_one_of(refused, it.key) || learning == LEARNING_UNCLEAR)
            return error_set("key %s: it changes what is learned and is not read: leave the key out", it.key);
        if (is_one_of(weights, it.key)) {
            if (read_weight(it.key, it.value, answers, unlearned) < 0)
                return -1;
            continue;
        }
        if (learning == LEARNING_YES && !answers)
            return error_set("key %s: this message is no answer, and only answers are learned: leave the key out",
                             it.key);
        if (learning == LEARNING_YES || (learning == LEARNING_NO && !answers))
            continue;
        if (answers && record_key_denies(it.key, it.value)) {
            *unlearned = true;
            note_key(b, it.key, "of messages, whose answers are not learned");
            continue;
        }
        if (!is_one_of(known, it.key) && listed_is_there(b, message, it.value))
            return error_set("key %s: it names a medium, and nothing reads it: call it image, video or audio", it.key);
        json_set(keys, it.key, json_copied(b, it.value));
        if (!is_one_of(known, it.key))
            note_key(b, it.key, "of messages, which only a chat template may read");
    }
    return 0;
}

/* ---- Messages ---- */

const struct json *message_content(const struct json *message)
{
    bool from = !sample_key(message, "content") && sample_key(message, "value");
    return json_get(message, from ? "value" : "content");
}

static bool lists_media(const struct sample_builder *b, const struct json *message)
{
    struct json_iterator it;
    bool lists = false;
    for (bool more = json_first(&it, message); more && !lists; more = json_next(&it, message))
        lists = listed_is_usable(b, it.key, it.value);
    return lists;
}

/* Adds the content of a message that lists media of its own. */
static int add_with_media(struct sample_builder *b, const struct json *message)
{
    struct json_place silent = *b->place;
    struct sample_builder own = {.out = b->out, .object = message, .place = &silent, .turns = json_array()};
    silent.notes = NULL; /* its other keys are noted as those of messages */
    json_push(own.turns, json_copy(message));
    int status = listed_read(&own, message, FORM_MESSAGES) < 0 || listed_place(&own) < 0 ? -1 : 0;
    if (status == 0)
        status = build_content(&own, message_content(json_at(own.turns, 0)));
    b->outside = own.outside;
    json_free(own.turns);
    listed_release(&own);
    return status;
}

/* True if an answer is null and has neither calls nor thoughts, as of a model that failed: there is
 * nothing to learn. */
static bool answers_nothing(const struct sample_builder *b, const struct json *message, const struct json *calls)
{
    const struct json *content = message_content(message);
    return !calls && content && json_kind(content) == JSON_NULL && !lists_media(b, message) &&
           !sample_key(message, "reasoning_content") && !sample_key(message, "reasoning") &&
           !sample_key(message, "thinking");
}

/* Adds a message's content and tool calls. Null content counts as absent. */
static int add_body(struct sample_builder *b, const struct json *message, const char *said, const struct json *calls)
{
    const struct json *content = strcmp(said, "function_call") == 0 ? NULL : message_content(message);
    if (lists_media(b, message))
        return add_with_media(b, message);
    bool empty = content ? json_kind(content) == JSON_NULL : calls != NULL;
    return empty ? 0 : build_content(b, content);
}

/* Ends a message that began at part `first`, and sets its role. An empty message gets an empty
 * text. Takes `keys`, an object that may be empty. */
static void end_message(struct sample_builder *b, i64 first, const char *role, struct json *keys, bool unlearned)
{
    if (b->out->count == first)
        sample_add(b->out, MODALITY_TEXT);
    for (i64 i = first; i < b->out->count; i++) {
        b->out->parts[i].message = b->messages;
        b->out->parts[i].unlearned = unlearned;
    }
    b->out->parts[first].role = string_copy(role);
    if (json_count(keys))
        b->out->parts[first].keys = keys;
    else
        json_free(keys);
    b->messages++;
}

/* Adds a message, {"role", "content"} or ShareGPT's {"from", "value"}. */
static int add_message(struct sample_builder *b, const struct json *message)
{
    bool sharegpt = !sample_key(message, "role");
    const char *said = json_string(json_get(message, sharegpt ? "from" : "role"), ""), *role = role_of(said);
    i64 first = b->out->count;
    bool unlearned = false;
    struct json *calls = NULL;
    if (!*said)
        return error_set("message %d has no role: expected system, user, assistant or tool", b->messages + 1);
    if (!role)
        return error_set("message %d has the role \"%.40s\": expected system, user, assistant or tool", b->messages + 1,
                         said);
    struct json *keys = json_object();
    if (is_template_role(said, sharegpt))
        json_set(keys, "role", json_of_string(said));
    int status = read_calls(&calls, b, message, said);
    if (status == 0)
        status = read_keys(b, keys, message, strcmp(role, "assistant") == 0, &unlearned);
    if (status == 0 && strcmp(role, "assistant") == 0 && answers_nothing(b, message, calls)) {
        unlearned = true;
        note_key(b, "content", "of answers that are null, which are not learned");
    }
    if (status == 0)
        status = add_body(b, message, said, calls);
    if (calls)
        json_set(keys, "tool_calls", calls);
    if (status == 0) {
        end_message(b, first, role, keys, unlearned);
        return 0;
    }
    json_free(keys);
    return error_prefix("message %d", b->messages + 1);
}

/* ---- Variables ---- */

/* The list or object of a key; a string is JSON, as in tables whose rows differ. NULL without a
 * message: it says nothing. */
static int read_variable(struct json **out, const struct sample_builder *b, const struct json *holder, const char *key,
                         enum json_kind kind)
{
    const struct json *value = json_get(holder, key);
    struct json *said = json_says_nothing(value) ? NULL : json_parsed(value);
    bool wrong = said && json_kind(said) != kind && !json_says_nothing(said);
    if (json_kind(json_at(value, 0)) == JSON_STRING) { /* documents that are a context, see record_keys.c */
        json_free(said);
        *out = NULL;
        return 0;
    }
    *out = said && !wrong && json_count(said) ? json_copied(b, said) : NULL;
    json_free(said);
    return wrong ? error_set("key %s: expected %s, or one as a string of JSON", key,
                             kind == JSON_OBJECT ? "an object" : "a list")
                 : 0;
}

/* Wraps each of OpenAI's older functions as a tool. */
struct json *tools_of_functions(const struct json *functions)
{
    struct json *tools = json_array();
    for (i64 i = 0; i < json_count(functions); i++) {
        struct json *tool = json_object();
        json_set(tool, "type", json_of_string("function"));
        json_set(tool, "function", json_copy(json_at(functions, i)));
        json_push(tools, tool);
    }
    return tools;
}

/* The record, or its first message with tools, as GLM's data have them. */
static const struct json *holder_of_tools(const struct sample_builder *b)
{
    static const char *const keys[] = {"tools", "functions"};
    for (i64 i = -1; i < json_count(b->turns); i++)
        for (i64 k = 0; k < COUNT_OF(keys); k++) {
            const struct json *holder = i < 0 ? b->asked : json_at(b->turns, i);
            if (!json_says_nothing(json_get(holder, keys[k])))
                return holder;
        }
    return b->asked;
}

int build_variables(struct sample_builder *b)
{
    const struct json *holder = holder_of_tools(b);
    struct json *tools, *functions = NULL, *documents = NULL, *others = NULL, *variables = json_object();
    int status = read_variable(&tools, b, holder, "tools", JSON_ARRAY);
    if (status == 0)
        status = read_variable(&functions, b, holder, "functions", JSON_ARRAY);
    if (status == 0)
        status = read_variable(&documents, b, b->asked, "documents", JSON_ARRAY);
    if (status == 0)
        status = read_variable(&others, b, b->asked, "chat_template_kwargs", JSON_OBJECT);
    struct json_iterator it;
    for (bool more = status == 0 && others && json_first(&it, others); more; more = json_next(&it, others))
        json_set(variables, it.key, json_copy(it.value));
    if (tools || functions)
        json_set(variables, "tools", tools ? json_copy(tools) : tools_of_functions(functions));
    if (documents)
        json_set(variables, "documents", json_copy(documents));
    json_free(b->out->variables);
    b->out->variables = status == 0 && json_count(variables) ? json_copy(variables) : NULL;
    json_free(variables);
    json_free(tools);
    json_free(functions);
    json_free(documents);
    json_free(others);
    return status;
}

/* ---- Conversations ---- */

int build_messages(struct sample_builder *b)
{
    b->out->layout = SAMPLE_CHAT;
    for (i64 i = 0; i < json_count(b->turns); i++)
        if (add_message(b, json_at(b->turns, i)) < 0)
            return -1;
    return 0;
}
