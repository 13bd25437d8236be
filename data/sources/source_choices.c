/* The choices of a question: its lines "A. TEXT", and the label of the one that its answer means. */
#include "data/sources/source_build.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHOICES_MOST = 26 };

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
        return error_set("expected at most %d texts as choices", CHOICES_MOST);
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
        return error_set("expected a list of texts as choices");
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
    if (!record_key_of(b, KEY_CHOICE, 1) && record_key_of(b, KEY_CHOICE, 0))
        note_key(b, record_key_of(b, KEY_CHOICE, 0)->name, "of records, which are not read");
    if (key) {
        struct json *value = json_parsed(key->value);
        status = read_choices(c, b, value);
        json_free(value);
        return status < 0 ? error_prefix("key %s", key->name) : 0;
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
        all = is_labelled(text, label) && content_contains(message_content(question), text);
        for (i64 k = 0; k < COUNT_OF(between) && !all; k++) {
            char *line = string_format("%s%s%s", label, between[k], text);
            all = content_contains(message_content(question), line);
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
    if (end > said && strcmp(end, ".0") == 0) /* a number of a table */
        end += 2;
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
int choices_add(struct sample_builder *b)
{
    struct choices c = {0};
    struct buffer lines = {0};
    struct json *question = turns_message(b, "user", true), *answer = turns_message(b, "assistant", true);
    const char *label = NULL;
    int status = gather_choices(&c, b);
    if (status == 0 && c.count && (turns_count(b, "user") != 1 || !answer))
        status = error_set("choices: expected one question and its answer beside them");
    print_choices(&lines, &c);
    if (status == 0 && c.count)
        status = picked(&label, &c, message_content(answer), b->picks);
    if (status == 0 && label)
        json_set(answer, message_content_key(answer), json_of_string(label));
    if (status == 0 && c.count && !lists_choices(question, &c))
        status = message_dress(question, "", lines.data);
    buffer_release(&lines);
    choices_release(&c);
    return status;
}
