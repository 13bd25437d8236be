#include "rl/prompts.h"
#include "rl/prompt_media.h"

#include "data/sources/source_readers.h"
#include "data/formats/table.h"

#include <stdlib.h>
#include <string.h>

/* ---- One prompt ---- */

/* What prompts are laid out with. */
struct prompt_writer {
    const struct text_tokenizer *tokenizer;
    struct chat *chat;
    struct prompt_media *media;
};

/* A content as the template takes it: the texts of a list together, unless it takes lists. NULL and a
 * message: it has more than texts. */
static struct json *content_of(const struct json *content, const struct chat *chat, const struct json *variables)
{
    bool several = json_kind(content) == JSON_ARRAY && json_count(content) > 1;
    bool listed = chat_lists_texts(chat, variables, several);
    struct json *list = json_array();
    struct buffer text = {0};
    int status = 0;
    if (json_kind(content) != JSON_ARRAY && json_kind(content) != JSON_STRING)
        status = error_set("key prompt: expected a list of {\"role\", \"content\"}");
    for (i64 i = 0; i < (json_kind(content) == JSON_ARRAY ? json_count(content) : 1) && status == 0; i++) {
        const struct json *part = json_kind(content) == JSON_ARRAY ? json_at(content, i) : content;
        const struct json *said = json_kind(part) == JSON_STRING ? part : json_get(part, "text");
        const char *type = json_string(json_get(part, "type"), "text");
        struct json *one = json_object();
        if (strcmp(type, "text") != 0 || json_kind(said) != JSON_STRING || part_names_medium(part))
            status = error_set("key content: part %lld has the type \"%.40s\": prompts are text only", (long long)i + 1,
                               type);
        buffer_append(&text, json_string(said, ""), json_string_length(said));
        json_set(one, "type", json_of_string("text"));
        json_set(one, "text", json_of_utf8(json_string(said, ""), json_string_length(said)));
        json_push(list, one);
    }
    struct json *out = listed ? list : json_of_utf8(text.data ? text.data : "", text.length);
    if (!listed || status)
        json_free(list);
    if (!listed && status)
        json_free(out);
    buffer_release(&text);
    return status ? NULL : out;
}

/* A message with its content as the template takes it. NULL and a message: it is none. */
static struct json *message_of(const struct json *message, const struct chat *chat, const struct json *variables)
{
    const struct json *content = json_get(message, "content");
    bool calls = json_kind(content) == JSON_NULL && json_count(json_get(message, "tool_calls")) > 0;
    const char *text;
    if (json_need_string(&text, message, "role", "prompt"))
        return NULL;
    if (!calls && json_kind(content) != JSON_ARRAY && json_need_string(&text, message, "content", "prompt"))
        return NULL;
    struct json *out = json_copy(message), *said = calls ? NULL : content_of(content, chat, variables);
    if (said)
        json_set(out, "content", said);
    if (calls || said)
        return out;
    json_free(out);
    return NULL;
}

/* The variables of the template: tools, documents and the members of chat_template_kwargs. Each may
 * be a string of JSON, as in tables. */
static struct json *variables_of(const struct json *source)
{
    static const char *const names[] = {"chat_template_kwargs", "tools", "documents"};
    struct json *out = json_object();
    struct json_iterator at;
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        const struct json *value = json_get(source, names[i]);
        struct json *inner =
            json_string_length(value) ? json_parse(json_string(value, ""), json_string_length(value), names[i]) : NULL;
        value = inner ? inner : value;
        if (i == 0)
            for (bool more = json_first(&at, value); more; more = json_next(&at, value))
                json_set(out, at.key, json_copy(at.value));
        else if (json_kind(value) == JSON_ARRAY && json_count(value))
            json_set(out, names[i], json_copy(value));
        json_free(inner);
    }
    return out;
}

/* The messages of a prompt, whose value may be the text of a question. */
static int read_messages(struct json *out, const struct json *prompt, const struct chat *chat,
                         const struct json *variables)
{
    if (json_kind(prompt) == JSON_STRING) {
        struct json *message = json_object();
        json_set(message, "role", json_of_string("user"));
        json_set(message, "content", content_of(prompt, chat, variables));
        json_push(out, message);
        return 0;
    }
    if (json_count(prompt) == 0 || json_kind(prompt) != JSON_ARRAY)
        return error_set("key prompt: expected a list of {\"role\", \"content\"}");
    for (i64 i = 0; i < json_count(prompt); i++) {
        struct json *message = message_of(json_at(prompt, i), chat, variables);
        if (!message)
            return -1;
        json_push(out, message);
    }
    return 0;
}

static bool ends_with(const struct buffer *text, const char *end)
{
    i64 length = (i64)strlen(end);
    return text->length >= length && memcmp(text->data + text->length - length, end, (size_t)length) == 0;
}

/* "<think>\n", unless the generation prompt ends with it, and the reference reasoning. */
static int encode_think(struct task *p, const struct prompt_writer *w, const struct buffer *shown)
{
    const struct json *extra = json_get(p->source, "extra_info");
    const char *think = json_string(json_get(extra, "think"), "");
    p->pass = json_number(json_get(extra, "pass"), -1);
    if (p->pass > 1)
        return error_set("extra_info.pass is %g, expected a success rate from 0 to 1", p->pass);
    if (!*think)
        return 0;
    const char *lead = text_chat_lead(w->chat);
    char *begin = string_format("%s<think>\n", lead[strspn(lead, " ")] ? "" : lead);
    int status = ends_with(shown, "<think>\n") ? 0
                                               : text_encode(w->tokenizer, &p->think, begin, (i64)strlen(begin),
                                                             &(struct encode_options){.inside = true});
    memory_free(begin);
    p->think_head = p->think.count;
    if (status == 0)
        status = text_encode(w->tokenizer, &p->think, think, (i64)strlen(think),
                             &(struct encode_options){.inside = true, .plain = true});
    return status;
}

static int encode_prompt(struct task *p, const struct prompt_writer *w)
{
    struct json *messages = json_array(), *variables = variables_of(p->source);
    const struct chat_request request = {.messages = messages, .variables = variables, .prompt = true};
    struct chat_ids ids = {0};
    struct buffer shown = {0};
    int status = read_messages(messages, json_get(p->source, "prompt"), w->chat, variables);
    if (status == 0)
        status = text_chat_encode(&ids, w->chat, &request);
    if (status == 0 && json_get(json_get(p->source, "extra_info"), "think"))
        status = text_chat_text(&shown, w->chat, &request);
    if (status == 0)
        status = encode_think(p, w, &shown);
    p->ids = ids.ids;
    ids.ids = (struct id_list){0};
    chat_ids_release(&ids);
    buffer_release(&shown);
    json_free(messages);
    json_free(variables);
    return status;
}

/* Reads the ground truth. A number or a list is kept as its JSON text, but a list of one as this one. */
static void read_truth(struct task *p)
{
    const struct json *truth = json_get(json_get(p->source, "reward_model"), "ground_truth");
    struct buffer text = {0};
    if (json_kind(truth) == JSON_ARRAY && json_count(truth) == 1)
        truth = json_at(truth, 0);
    if (json_kind(truth) != JSON_STRING && json_kind(truth) != JSON_NULL) {
        json_print(&text, truth, 0);
        p->truth_text = string_copy(text.data);
    }
    p->ground_truth = p->truth_text ? p->truth_text : json_string(truth, "");
    buffer_release(&text);
}

static int read_prompt(struct task *p, const struct prompt_writer *w, const struct record *record)
{
    if (json_kind(p->source) != JSON_OBJECT)
        return error_set("expected an object with the keys prompt and reward_model");
    p->data_source = json_string(json_get(p->source, "data_source"), "");
    p->ability = json_string(json_get(p->source, "ability"), "");
    p->style = json_string(json_get(json_get(p->source, "reward_model"), "style"), "");
    read_truth(p);
    if (!w->media || !prompt_needs_media(p->source))
        return encode_prompt(p, w);
    struct json *variables = variables_of(p->source);
    int status = prompt_read_media(p, w->media, variables, record);
    json_free(variables);
    return status;
}

/* Converts GSM8K's published format {"question", "answer"} to verl's fields;
 * the text after the last "####" is the ground truth. Takes ownership of
 * `source` and returns it unchanged if it has another format. */
static struct json *as_prompt(struct json *source)
{
    const struct json *question = json_get(source, "question");
    const char *answer = json_string(json_get(source, "answer"), NULL), *truth = answer, *marked = NULL;
    if (json_get(source, "prompt") || (json_kind(question) != JSON_STRING && json_kind(question) != JSON_ARRAY) ||
        !answer)
        return source;
    while ((truth = strstr(truth, "####")) != NULL)
        marked = truth += 4;
    truth = marked ? marked + strspn(marked, " ") : answer;
    struct json *prompt = json_object(), *model = json_object();
    json_set(model, "ground_truth", json_of_bytes(truth, (i64)strcspn(truth, marked ? "\r\n" : "")));
    json_set(prompt, "data_source", json_of_string(marked ? "openai/gsm8k" : ""));
    json_set(prompt, "prompt", json_copy(question));
    json_set(prompt, "reward_model", model);
    json_free(source);
    return prompt;
}

/* Values that are JSON in the text of a table: messages, objects. */
static void parse_cells(struct json *source)
{
    static const char *const names[] = {"prompt", "reward_model", "extra_info"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        const struct json *cell = json_get(source, names[i]);
        const char *text = json_string(cell, "");
        struct json *value = *text == '[' || *text == '{' ? json_parse(text, json_string_length(cell), names[i]) : NULL;
        bool is =
            i == 0 ? json_kind(json_get(json_at(value, 0), "role")) == JSON_STRING : json_kind(value) == JSON_OBJECT;
        if (is)
            json_set(source, names[i], value);
        else
            json_free(value);
    }
}

/* Takes ownership of `source`. record: the row of a table that it is from; NULL: none. */
static int add_prompt(struct prompts *all, struct json *source, const char *path, i64 line,
                      const struct prompt_writer *w, const struct record *record)
{
    if ((all->count & (all->count - 1)) == 0)
        all->list = memory_resize(all->list, all->count * (i64)sizeof *all->list,
                                  max_i64(1, 2 * all->count) * (i64)sizeof *all->list);
    struct task *p = &all->list[all->count++];
    *p = (struct task){.source = source, .origin = string_format("%s:%lld", path, (long long)line)};
    if (json_kind(source) == JSON_OBJECT)
        parse_cells(source);
    bool media = w->media && prompt_needs_media(source);
    int status = json_kind(source) == JSON_OBJECT ? sample_ask(source, p->origin, media, &all->notes) : 0;
    if (status < 0)
        return error_prefix("%s", p->origin);
    if (status) { /* left out, and noted */
        json_free(source);
        memory_free(p->origin);
        all->count--;
        return 0;
    }
    p->source = as_prompt(source);
    if (read_prompt(p, w, record)) /* the conversation of a prompt with media says its place */
        return strncmp(error_text(), p->origin, strlen(p->origin)) == 0 ? -1 : error_prefix("%s", p->origin);
    if (!p->asked)
        p->positions = p->ids.count;
    all->longest = max_i64(all->longest, p->positions + p->think.count);
    if (task_makes(p) == MODALITY_IMAGE || task_makes(p) == MODALITY_VIDEO)
        all->longest_medium = max_i64(all->longest_medium, p->asked->most);
    return 0;
}

/* ---- Files ---- */

static int load_lines(struct prompts *all, const char *path, const struct prompt_writer *w, i64 limit)
{
    struct line_reader in;
    int status = line_reader_open(&in, path) < 0 ? -1 : 1;
    bool opened = status == 1;
    while (status == 1 && (!limit || all->count < limit) && (status = line_reader_next(&in)) == 1) {
        const char *line = in.line.data ? in.line.data : "";
        if (in.line.length == (i64)strspn(line, " \t\r"))
            continue;
        struct json *source = json_parse_line(line, in.line.length, path, in.number);
        status = source && add_prompt(all, source, path, in.number, w, NULL) == 0 ? 1 : -1;
    }
    if (status == -2)
        error_set("%s:%lld: a line of more than %d bytes", path, (long long)in.number, LINE_BYTES_MAX);
    if (opened)
        line_reader_close(&in);
    return status < 0 ? -1 : 0;
}

static struct json *parse_file(const char *path)
{
    struct buffer text = {0};
    const char *name;
    struct json *value = NULL;
    struct archive_file *file = archive_file_open(path, false);
    int status = file ? archive_file_next(file, &name) : -1;
    if (status == 1)
        status = archive_file_read_all(file, &text);
    if (status == 0)
        value = json_parse_line(text.data ? text.data : "", text.length, path, 1);
    archive_file_close(file);
    buffer_release(&text);
    return value;
}

static int load_array(struct prompts *all, const char *path, const struct prompt_writer *w, i64 limit)
{
    struct json *array = parse_file(path);
    if (!array)
        return -1;
    int status = json_kind(array) == JSON_ARRAY ? 0 : error_set("%s: expected a list of prompts", path);
    for (i64 i = 0; i < json_count(array) && status == 0 && (!limit || all->count < limit); i++)
        status = add_prompt(all, json_copy(json_at(array, i)), path, i + 1, w, NULL);
    json_free(array);
    return status;
}

/* Reads rows of a table, verl's usual file format. A row may have the bytes of its media. */
static int load_table(struct prompts *all, const char *path, const struct prompt_writer *w, i64 limit)
{
    struct data_table table;
    struct record row;
    int status = data_table_open(&table, path, NULL) < 0 ? -1 : 1;
    while (status == 1 && (!limit || all->count < limit) && (status = data_table_next(&table, &row)) == 1) {
        struct json *object = row.object;
        row.object = NULL;
        status = add_prompt(all, object, path, table.kind->place(table.self), w, &row) < 0 ? -1 : 1;
        record_release(&row);
    }
    data_table_close(&table);
    return status < 0 ? -1 : 0;
}

int prompts_load(struct prompts *all, const char *path, const struct text_tokenizer *tokenizer,
                 struct prompt_media *media, i64 limit)
{
    i64 length = name_unpacked_length(path);
    *all = (struct prompts){0};
    if (file_is_directory(path))
        return error_set(
            "%s is a folder, expected a file of prompts (.jsonl, .parquet, .arrow, .csv, or a .json array)", path);
    const struct prompt_writer w = {tokenizer, text_chat_open(tokenizer), media};
    if (!w.chat)
        return -1;
    int status = data_table_reads(path)                                      ? load_table(all, path, &w, limit)
                 : length > 5 && strncmp(path + length - 5, ".json", 5) == 0 ? load_array(all, path, &w, limit)
                                                                             : load_lines(all, path, &w, limit);
    text_chat_close(w.chat);
    if (status == 0 && all->count == 0)
        status = error_set("%s: no prompts in it", path);
    for (i64 i = 0; i < all->notes.count && status == 0; i++)
        log_info("%s: %lld %s", path, (long long)all->notes.list[i].count, all->notes.list[i].what);
    if (status)
        prompts_release(all);
    return status;
}

/* ---- Comparison of two files ---- */

static int by_ids(const void *a, const void *b)
{
    const struct id_list *x = &(*(const struct task *const *)a)->ids, *y = &(*(const struct task *const *)b)->ids;
    if (x->count != y->count)
        return (x->count > y->count) - (x->count < y->count);
    return x->count ? memcmp(x->ids, y->ids, (size_t)x->count * sizeof *x->ids) : 0;
}

static int by_truth(const void *a, const void *b)
{
    return strcmp((*(const struct task *const *)a)->ground_truth, (*(const struct task *const *)b)->ground_truth);
}

static const struct task **sorted(const struct prompts *all, int (*order)(const void *, const void *))
{
    const struct task **list = memory_alloc(max_i64(1, all->count) * (i64)sizeof *list);
    for (i64 i = 0; i < all->count; i++)
        list[i] = &all->list[i];
    qsort(list, (size_t)all->count, sizeof *list, order);
    return list;
}

i64 prompts_in_common(const struct prompts *held_out, const struct prompts *train)
{
    const struct task **list = sorted(train, by_ids);
    i64 common = 0;
    for (i64 i = 0; i < held_out->count; i++) {
        const struct task *one = &held_out->list[i];
        common += bsearch(&one, list, (size_t)train->count, sizeof *list, by_ids) != NULL;
    }
    memory_free(list);
    return common;
}

double prompts_constant(const struct prompts *held_out, const struct prompts *train, const char **truth)
{
    const struct task **list = sorted(train, by_truth);
    i64 most = 0, same = 0;
    *truth = "";
    for (i64 i = 0, run = 0; i < train->count; i++) {
        run = i > 0 && by_truth(&list[i - 1], &list[i]) == 0 ? run + 1 : 1;
        if (run > most)
            *truth = list[i]->ground_truth;
        most = max_i64(most, run);
    }
    for (i64 i = 0; i < held_out->count; i++)
        same += strcmp(held_out->list[i].ground_truth, *truth) == 0;
    memory_free(list);
    return (double)same / (double)max_i64(1, held_out->count);
}

void prompts_release(struct prompts *all)
{
    for (i64 i = 0; i < all->count; i++) {
        json_free(all->list[i].source);
        memory_free(all->list[i].origin);
        memory_free(all->list[i].truth_text);
        id_list_release(&all->list[i].ids);
        id_list_release(&all->list[i].think);
        if (all->list[i].asked)
            prompt_release(all->list[i].asked);
        memory_free(all->list[i].asked);
    }
    memory_free(all->list);
    memory_free(all->sets);
    notes_release(&all->notes);
    *all = (struct prompts){0};
}

/* ---- Order ---- */

void prompt_order_init(struct prompt_order *order, i64 count, u64 seed)
{
    *order = (struct prompt_order){seed, count, -1, memory_alloc(count * 4)};
}

void prompt_order_release(struct prompt_order *order)
{
    memory_free(order->place);
    *order = (struct prompt_order){0};
}

i64 prompt_order_at(struct prompt_order *order, i64 number)
{
    i64 epoch = number / order->count;
    if (epoch != order->epoch)
        rng_permutation(order->place, order->count, (struct rng_key){order->seed, RNG_PROMPT}, (u32)epoch, 0);
    order->epoch = epoch;
    return order->place[number % order->count];
}
