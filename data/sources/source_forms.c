/* Recognizes the form of a record by the names of its keys: the same for lines, rows of tables and
 * members of lists. */
#include "data/sources/source_build.h"

#include <stdio.h>
#include <string.h>

enum { KEYS_MOST = 3 };
enum value_kind { ANYTHING, TEXTS, LIST, BYTES };
struct sample_form {
    const char *keys[KEYS_MOST]; /* all present and not null */
    enum value_kind kind;
    int (*add)(struct sample_builder *build, const struct sample_form *form, const struct json *const *values);
    char suffix[8]; /* suffix of the member that keys[0] names */
};
static const char *const caption_keys[] = {"text", "caption", "transcription", "sentence"};

/* ---- Names ---- */

static const char *const *mapped_name(const struct source_columns *c, const char *key)
{
    const struct {
        const char *key;
        char *const *name;
    } rows[] = {{"messages", &c->messages}, {"question", &c->question}, {"answer", &c->answer}};
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (strcmp(rows[i].key, key) == 0)
            return (const char *const *)rows[i].name;
    enum modality kind = modality_named(key);
    return kind == MODALITIES ? NULL : (const char *const *)&c->modality[kind];
}

static bool is_named(const char *name)
{
    return name && *name;
}

static bool maps(const struct source_columns *c)
{
    bool any = c && (is_named(c->messages) || is_named(c->question) || is_named(c->answer));
    for (int i = 0; c && i < MODALITIES; i++)
        any |= is_named(c->modality[i]);
    return any;
}

/* Name under which a key is looked up; NULL if columns are renamed and this one is not. */
static const char *name_of(const struct source_columns *columns, const char *key)
{
    if (!maps(columns))
        return key;
    const char *const *name = mapped_name(columns, key);
    return name && is_named(*name) ? *name : NULL;
}

static const struct json *column(const struct source_columns *columns, const struct json *object, const char *key)
{
    const char *name = name_of(columns, key);
    return name ? sample_key(object, name) : NULL;
}

const struct json *sample_caption(const struct json *object, const struct source_columns *columns)
{
    for (i64 i = 0; i < COUNT_OF(caption_keys); i++) {
        const struct json *caption = column(columns, object, caption_keys[i]);
        if (caption)
            return json_kind(caption) == JSON_STRING && json_string_length(caption) > 0 ? caption : NULL;
    }
    return NULL;
}

/* Caption of a record. In tables it may be bytes, or the column `txt` beside `jpg`. */
static const struct json *caption_of(const struct sample_builder *b)
{
    const struct json *object = b->object, *caption = sample_caption(object, b->place->columns);
    for (i64 i = 0; !caption && b->place->record && i <= COUNT_OF(caption_keys); i++) {
        const char *key = i < COUNT_OF(caption_keys) ? caption_keys[i] : "txt";
        const struct json *value = column(b->place->columns, object, key);
        const struct buffer *bytes = record_bytes(b->place->record, value);
        if (bytes ? bytes->length > 0 : json_string_length(value) > 0)
            caption = value;
    }
    return caption;
}

/* ---- Forms ---- */

static int add_chat(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    return build_messages(b, values[0], form->keys[0]);
}

static int add_turn(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    (void)form;
    return build_message(b, "user", values[0]) < 0 || build_message(b, "assistant", values[1]) < 0 ? -1 : 0;
}

/* Instructions of Alpaca, with an input that may be empty, and of Dolly, which calls it context. */
static int add_instruction(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const struct json *input = sample_key(b->object, "input"), *system = sample_key(b->object, "system");
    if (!input)
        input = sample_key(b->object, "context");
    if (json_string_length(system) > 0 && build_message(b, "system", system) < 0)
        return -1;
    if (json_string_length(input) == 0)
        return add_turn(b, form, values);
    struct buffer asked = {0};
    buffer_append(&asked, json_string(values[0], ""), json_string_length(values[0]));
    buffer_append(&asked, "\n", 1);
    buffer_append(&asked, json_string(input, ""), json_string_length(input));
    struct json *both = json_of_bytes(asked.data, asked.length);
    int status = build_message(b, "user", both) < 0 || build_message(b, "assistant", values[1]) < 0 ? -1 : 0;
    json_free(both);
    buffer_release(&asked);
    return status;
}

static int build_caption(struct sample_builder *b, const struct json *text)
{
    const struct buffer *bytes = record_bytes(b->place->record, text);
    return bytes ? sample_add_caption(b->out, bytes->data, bytes->length)
                 : sample_add_caption(b->out, json_string(text, ""), json_string_length(text));
}

static int add_captioned(struct sample_builder *b, enum modality kind, const char *key, const struct json *value)
{
    const struct json *text = caption_of(b);
    const char *client = sample_key(b->object, "sentence") ? json_string(json_get(b->object, "client_id"), NULL) : NULL;
    const char *speaker = json_string(json_get(b->object, "speaker"), client);
    b->out->layout = SAMPLE_CAPTIONED;
    bool missing = !text && !b->place->media_alone, looks = missing && modality_rows[kind].lasts;
    if ((!missing || looks) && build_medium(b, kind, value) < 0)
        return -1;
    if (text && build_caption(b, text) < 0)
        return -1;
    bool said = text ? b->out->count > 1 : looks && sample_add_subtitles(b->out, b->place->columns);
    if (!said && !b->place->media_alone)
        return error_set("a file without a caption: expected {\"%s\": FILE, \"text\": CAPTION}", key);
    b->out->speaker = speaker ? string_copy(speaker) : NULL;
    return 0;
}

static int add_medium(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    return add_captioned(b, modality_named(form->keys[0]), form->keys[0], values[0]);
}

/* Columns named like members of a tar, {"jpg": BYTES, "txt": CAPTION}. */
static int add_member(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    return add_captioned(b, (enum modality)medium_kind(form->keys[0]), form->keys[0], values[0]);
}

/* The kind of a named file by its ending, or else by the setting `columns.ending`; at most
 * MODALITY_TEXT: none. */
static int kind_of_name(const struct sample_builder *b, const char *name)
{
    const char *ending = b->place->columns && b->place->columns->ending ? b->place->columns->ending : "";
    int kind = medium_kind(name_extension(name));
    return kind > MODALITY_TEXT ? kind : medium_kind(ending + (*ending == '.'));
}

/* Hugging Face's metadata.jsonl, and tables of names with captions: the name's ending gives the kind. */
static int add_named(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const char *name = json_string(values[0], "");
    int kind = kind_of_name(b, name);
    if (kind <= MODALITY_TEXT)
        return error_set("%s %.80s: expected the name of a picture, a clip or a sound", form->keys[0], name);
    return add_captioned(b, (enum modality)kind, form->keys[0], values[0]);
}

/* Common Voice: {"path": FILE, "sentence": TEXT}, with the files in the folder clips beside the
 * table. */
static int add_recording(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const char *name = json_string(values[0], ""), *folder = b->place->folder;
    int kind = kind_of_name(b, name);
    if (kind <= MODALITY_TEXT)
        return error_set("path %.80s: expected the name of a sound, a picture or a clip", name);
    char *direct = folder ? path_join(folder, name) : NULL, *clips = folder ? path_join(folder, "clips") : NULL;
    bool moved = b->place->columns && is_named(b->place->columns->folder);
    bool below =
        folder && !moved && !is_address(folder) && *name != '/' && !file_exists(direct) && file_is_directory(clips);
    char *path = path_join("clips", name);
    struct json *file = below ? json_of_string(path) : NULL;
    int status = add_captioned(b, (enum modality)kind, form->keys[0], below ? file : values[0]);
    json_free(file);
    memory_free(path);
    memory_free(direct);
    memory_free(clips);
    return status;
}

/* The Cauldron: {"texts": [{"user", "assistant"}, ..], "images": [..]}. All pictures go into the
 * first question. */
static int add_dialogue(struct sample_builder *b, const struct json *texts)
{
    i64 pictures = json_count(json_get(b->object, "images"));
    int status = 0;
    for (i64 i = 0; i < json_count(texts) && status == 0; i++) {
        const struct json *user = json_get(json_at(texts, i), "user"), *said = json_get(json_at(texts, i), "assistant");
        struct json *content = json_array(), *text = json_object();
        for (i64 k = 0; i == 0 && k < pictures; k++) {
            json_push(content, json_object());
            json_set(json_at(content, k), "type", json_of_string("image"));
        }
        json_set(text, "text", json_of_bytes(json_string(user, ""), json_string_length(user)));
        json_push(content, text);
        status = build_message(b, "user", content) < 0 || build_message(b, "assistant", said) < 0 ? -1 : 0;
        json_free(content);
    }
    return status;
}

/* Interleaved documents: {"texts": [TEXT or null, ..], "images": [FILE or null, ..]} of equal
 * length. */
static int add_interleaved(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const struct json *texts = values[0], *images = json_get(b->object, "images");
    (void)form;
    if (sample_key(json_at(texts, 0), "user"))
        return add_dialogue(b, texts);
    b->out->layout = SAMPLE_MIXED;
    if (json_kind(images) != JSON_ARRAY || json_count(images) != json_count(texts))
        return error_set("\"texts\" has %lld entries, \"images\" %lld: expected as many", (long long)json_count(texts),
                         (long long)json_count(images));
    for (i64 i = 0; i < json_count(texts); i++) {
        const struct json *text = json_at(texts, i), *image = json_at(images, i);
        if (json_kind(text) == JSON_STRING && build_text(b, text) < 0)
            return -1;
        bool there = b->place->record ? json_kind(image) != JSON_NULL : json_kind(image) == JSON_STRING;
        if (there && build_medium(b, MODALITY_IMAGE, image) < 0)
            return -1;
    }
    return 0;
}

static int add_plain(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    b->out->layout = SAMPLE_PLAIN;
    return build_is_text(b, values[0]) ? build_text(b, values[0])
                                       : error_set("key %s: expected a string", form->keys[0]);
}

/* Refuses tables of links, as of LAION and COYO. */
static int refuse_links(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    (void)b;
    (void)values;
    return error_set("pictures are named by \"%s\" alone: expected the pictures themselves, for nothing is downloaded "
                     "(img2dataset makes tars of such lists, which are read); `columns: {text: %s}` takes the captions "
                     "for texts",
                     form->keys[0], form->keys[1]);
}

/* All forms in order of precedence: the first whose keys are all present is used. The two without a
 * key stand for one form each modality and each of its members. */
static const struct sample_form forms[] = {
    {{"messages"}, ANYTHING, add_chat},
    {{"conversations"}, LIST, add_chat},
    {{NULL}, ANYTHING, add_medium},
    {{"file_name"}, TEXTS, add_named},
    {{NULL}, BYTES, add_member},
    {{"texts"}, LIST, add_interleaved},
    {{"question", "answer"}, TEXTS, add_turn},
    {{"prompt", "completion"}, TEXTS, add_turn},
    {{"instruction", "output"}, TEXTS, add_instruction},
    {{"instruction", "response"}, TEXTS, add_instruction},
    {{"url", "text", "image_phash"}, ANYTHING, refuse_links},
    {{"text"}, ANYTHING, add_plain},
    {{"content"}, TEXTS, add_plain},
    {{"url", "caption"}, TEXTS, refuse_links},
    {{"URL", "TEXT"}, TEXTS, refuse_links},
    {{"path", "sentence"}, TEXTS, add_recording},
    {{"filename", "caption"}, TEXTS, add_named},
    {{"path", "caption"}, TEXTS, add_named},
};
static const char *const others[] = {
    "speaker",   "client_id",           "input", "context", "system", "prompt", "reward_model", "tools", "functions",
    "documents", "chat_template_kwargs"};

/* ---- Choosing a form ---- */

static bool is_kind(const struct sample_builder *b, const struct json *value, enum value_kind kind)
{
    switch (kind) {
    case TEXTS:
        return build_is_text(b, value);
    case LIST:
        return json_kind(value) == JSON_ARRAY;
    case BYTES:
        return record_bytes(b->place->record, value) != NULL;
    default:
        return true;
    }
}

/* Steps through all forms, beginning with a zeroed struct. False past the last. */
struct form_walk {
    struct sample_form form;
    i64 index;        /* index of the next row of `forms` */
    i64 medium;       /* the next modality, or its rank, in a row that stands for media */
    const char *rest; /* further suffixes of its members */
};

static bool next_medium(struct form_walk *w)
{
    while (w->medium < MODALITIES) {
        const struct modality_row *row = &modality_rows[w->medium++];
        w->form.keys[0] = row->name;
        if (row->mark)
            return true;
    }
    return false;
}

static bool next_member(struct form_walk *w)
{
    while (!w->rest || !*w->rest) {
        int kind = medium_leading(w->medium++);
        if (kind < 0)
            return false;
        w->rest = modality_rows[kind].members;
    }
    size_t length = strcspn(w->rest, " ");
    snprintf(w->form.suffix, sizeof w->form.suffix, "%.*s", (int)length, w->rest);
    w->form.keys[0] = w->form.suffix;
    w->rest += length + (w->rest[length] == ' ');
    return true;
}

static bool next_form(struct form_walk *w)
{
    if (w->form.add == add_medium && next_medium(w))
        return true;
    if (w->form.add == add_member && next_member(w))
        return true;
    if (w->index == COUNT_OF(forms))
        return false;
    w->form = forms[w->index++];
    w->medium = 0;
    w->rest = NULL;
    return w->form.keys[0] ? true : next_form(w);
}

/* Finds the form of a record and its values. names_alone: values are not checked. */
static bool form_of(struct form_walk *w, const struct sample_builder *b, const struct json **values, bool names_alone)
{
    *w = (struct form_walk){0};
    while (next_form(w)) {
        const struct sample_form *form = &w->form;
        bool all = true;
        for (i64 k = 0; k < KEYS_MOST && form->keys[k] && all; k++) {
            values[k] = column(b->place->columns, b->object, form->keys[k]);
            all = values[k] && (names_alone || is_kind(b, values[k], form->kind));
        }
        if (all)
            return true;
    }
    return false;
}

/* True for a prompt for reinforcement learning, in verl's fields (rl/prompts.h): answers to it are
 * drawn, and it holds none to learn. */
static bool is_prompt(const struct json *object)
{
    enum json_kind prompt = json_kind(sample_key(object, "prompt"));
    return (prompt == JSON_STRING || prompt == JSON_ARRAY) &&
           json_kind(sample_key(object, "reward_model")) == JSON_OBJECT;
}

int sample_of_json(struct sample *out, const struct json *value, const struct json_place *place, bool *passed)
{
    const struct json *values[KEYS_MOST] = {NULL};
    struct sample_builder build = {.out = out, .object = value, .place = place};
    if (json_kind(value) != JSON_OBJECT)
        return error_set("%s: expected a JSON object", place->origin);
    struct form_walk found;
    bool known = form_of(&found, &build, values, false);
    if (known &&
        (found.form.add(&build, &found.form, values) || (out->layout == SAMPLE_CHAT && build_variables(&build)))) {
        if (!build.outside)
            return error_prefix("%s", place->origin);
        *passed = true;
        notes_add(place->notes, place->origin,
                  "records that name media outside of the data, by absolute names, .. or links "
                  "(`outside: allow` reads them)");
        return 1;
    }
    *passed = *passed || !known || out->count == 0;
    if (known || !is_prompt(value))
        return 0;
    if (place->notes)
        place->notes->prompts++;
    return 1;
}

/* ---- Tables ---- */

bool sample_reads_column(const struct source_columns *columns, const char *name)
{
    for (i64 i = 0; i < COUNT_OF(others); i++)
        if (strcmp(others[i], name) == 0)
            return true;
    for (int i = 0; i < MODALITIES; i++)
        if (modality_rows[i].list_key && strcmp(modality_rows[i].list_key, name) == 0)
            return true;
    for (struct form_walk w = {0}; next_form(&w);)
        for (i64 k = 0; k < KEYS_MOST && w.form.keys[k]; k++) {
            const char *read = name_of(columns, w.form.keys[k]);
            if (read && strcmp(read, name) == 0)
                return true;
        }
    return !maps(columns) && is_one_of("caption transcription sentence txt", name);
}

static int refuse_columns(const char *const *names, i64 count, const struct source_columns *columns, const char *path)
{
    struct buffer list = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&list, "%s%s", i ? ", " : "", names[i]);
    error_set("%s: nothing of it is known as a sample. %s: %s. Expected %s", path,
              count ? "Its columns are" : "It has no columns", list.data ? list.data : "",
              maps(columns)
                  ? "those that `columns` of the recipe names"
                  : "text, content, messages, conversations, question and answer, prompt and completion, "
                    "instruction and output, or image, video or audio with text or caption; `columns: {image: "
                    "NAME, text: NAME}` in the recipe says what is called otherwise");
    buffer_release(&list);
    return -1;
}

int sample_check_columns(const char *const *names, i64 count, const struct source_columns *columns, const char *path)
{
    const struct json *values[KEYS_MOST] = {NULL};
    struct json *row = json_object();
    for (i64 i = 0; i < count; i++)
        json_set(row, names[i], json_of_string("?"));
    struct json_place place = {.origin = path, .columns = columns};
    struct sample_builder build = {.object = row, .place = &place};
    struct form_walk found;
    bool known = form_of(&found, &build, values, true);
    bool prompts = sample_key(row, "prompt") && sample_key(row, "reward_model");
    int status = known || prompts ? 0 : refuse_columns(names, count, columns, path);
    if (known && found.form.add == refuse_links) {
        refuse_links(&build, &found.form, values);
        status = error_prefix("%s", path);
    }
    json_free(row);
    return status;
}
