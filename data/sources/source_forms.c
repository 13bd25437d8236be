/* Recognizes the form of a record by the names of its keys: the same for lines, rows of tables and
 * members of lists. */
#include "data/sources/source_build.h"

#include <stdio.h>
#include <string.h>

enum { KEYS_MOST = 3 };
enum value_kind {
    ANYTHING,
    TEXTS,
    LIST,
    BYTES,
    TALK,     /* a list, or one as a string */
    CAPTION,  /* a text, and the record names media */
    DIALOGUE, /* a list of {"user", "assistant"} */
    TURN,     /* first a question that may be empty, then an answer that is not */
    PICKS     /* TURN, and the record has choices */
};
struct sample_form {
    const char *keys[KEYS_MOST]; /* all present and not null */
    enum value_kind kind;
    enum form_class class;
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

bool source_maps(const struct source_columns *c)
{
    bool any = c && (is_named(c->messages) || is_named(c->question) || is_named(c->answer));
    for (int i = 0; c && i < MODALITIES; i++)
        any |= is_named(c->modality[i]);
    return any;
}

/* Name under which a key is looked up; NULL if columns are renamed and this one is not. */
static const char *name_of(const struct source_columns *columns, const char *key)
{
    if (!source_maps(columns))
        return key;
    const char *const *name = mapped_name(columns, key);
    return name && is_named(*name) ? *name : NULL;
}

const struct json *source_column(const struct source_columns *columns, const struct json *object, const char *key)
{
    const char *name = name_of(columns, key);
    return name ? sample_key(object, name) : NULL;
}

const struct json *sample_caption(const struct json *object, const struct source_columns *columns)
{
    for (i64 i = 0; i < COUNT_OF(caption_keys); i++) {
        const struct json *caption = source_column(columns, object, caption_keys[i]);
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
        const struct json *value = source_column(b->place->columns, object, key);
        const struct buffer *bytes = record_bytes(b->place->record, value);
        if (bytes ? bytes->length > 0 : json_string_length(value) > 0)
            caption = value;
    }
    return caption;
}

/* ---- Forms of conversations ---- */

static int add_chat(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    struct json *messages = json_parsed(values[0]); /* tables of text have a string */
    bool listed = json_kind(messages) == JSON_ARRAY && json_count(messages);
    if (listed)
        turns_append(b, b->turns, messages);
    json_free(messages);
    return listed ? 0
                  : error_set("key %s: expected a list of {\"role\", \"content\"} or {\"from\", \"value\"}",
                              form->keys[0]);
}

/* True for a list of messages that begins with the question. */
static bool is_whole(const struct json *answer)
{
    const char *role = message_role(json_at(answer, 0));
    return role && strcmp(role, "assistant") != 0;
}

/* The messages of an answer that has the question too. */
static int add_whole(struct sample_builder *b, const struct sample_form *form, const struct json *question,
                     const struct json *answer)
{
    if (turns_answer(b, form->keys[1], answer))
        return -1;
    const char *asked = json_string(question, NULL), *said = json_string(message_content(turns_question(b)), "");
    return asked && strcmp(asked, said) != 0
               ? error_set("the messages of %s ask something else than %s", form->keys[1], form->keys[0])
               : 0;
}

static int add_turn(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    struct json *cell = turns_cell(b, form->keys[1], values[1]);
    const struct json *answer = cell ? cell : values[1];
    int status = is_whole(answer)                             ? add_whole(b, form, values[0], answer)
                 : turns_ask(b, form->keys[0], values[0]) < 0 ? -1
                                                              : turns_answer(b, form->keys[1], answer);
    json_free(cell);
    return status;
}

/* TRL's preferences with an implicit prompt. */
static int add_chosen(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    if (!is_whole(values[0]))
        return error_set("key chosen: expected messages that begin with the question");
    return turns_answer(b, form->keys[0], values[0]);
}

/* OpenAI's preferences: {"input": {"messages": [..], "tools": [..]}, "preferred_output": [..]}. */
static int add_preferred(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    struct json_iterator it;
    b->asked = values[0];
    for (bool more = json_first(&it, b->asked); more; more = json_next(&it, b->asked))
        if (!has_word("messages tools functions documents chat_template_kwargs", it.key))
            note_key(b, it.key, "of records, which are not read");
    return turns_ask(b, "input.messages", json_get(values[0], "messages")) < 0
               ? -1
               : turns_answer(b, form->keys[1], values[1]);
}

/* The Cauldron: {"texts": [{"user", "assistant"}, ..], "images": [..]}. */
static int add_dialogue(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const struct json *texts = values[0];
    (void)form;
    for (i64 i = 0; i < json_count(texts); i++)
        if (turns_ask(b, "texts", json_get(json_at(texts, i), "user")) < 0 ||
            turns_answer(b, "texts", json_get(json_at(texts, i), "assistant")))
            return -1;
    return 0;
}

/* ---- Other forms ---- */

static int build_caption(struct sample_builder *b, const struct json *text)
{
    const struct buffer *bytes = record_bytes(b->place->record, text);
    return bytes ? sample_add_caption(b->out, bytes->data, bytes->length)
                 : sample_add_caption(b->out, json_string(text, ""), json_string_length(text));
}

/* A text beside media: they stand at its marks, or else in front of it. */
static int add_text_with_media(struct sample_builder *b, const struct json *text, i64 media)
{
    i64 marks = listed_marks(text);
    if (marks && marks != media)
        return error_set("%lld media are listed, and the text has %lld marks of such", (long long)media,
                         (long long)marks);
    b->out->layout = marks || media > 1 ? SAMPLE_MIXED : SAMPLE_CAPTIONED;
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES && !marks; kind++)
        for (i64 i = 0; i < json_count(b->media[kind]); i++)
            if (build_medium(b, (enum modality)kind, json_at(b->media[kind], b->used[kind]++)) < 0)
                return -1;
    return marks ? build_marked_text(b, json_string(text, ""), json_string_length(text)) : build_caption(b, text);
}

static bool is_empty(const struct json *value)
{
    return json_kind(value) == JSON_STRING && text_is_blank(json_string(value, ""), json_string_length(value));
}

/* Leaves out a record without a caption whose medium, named by `key`, gets one from its name at the
 * end, and one whose caption is empty. 0: it is neither. */
static int leave_uncaptioned(struct sample_builder *b, const char *key, const struct json *medium)
{
    const struct source_columns *columns = b->place->columns;
    if (captions_are_named(columns) && json_kind(medium) == JSON_STRING)
        return leave_out(b, key, "names a medium without a caption, which gets that of its name");
    for (i64 i = 0; i < COUNT_OF(caption_keys) && !b->place->media_alone; i++) {
        const char *name = name_of(columns, caption_keys[i]);
        if (name && is_empty(json_get(b->object, name)))
            return leave_out(b, name, "is empty, so that their medium has no caption");
    }
    return 0;
}

static int add_captioned(struct sample_builder *b, enum modality kind, const char *key, const struct json *value)
{
    const struct json *text = caption_of(b);
    const char *client = sample_key(b->object, "sentence") ? json_string(json_get(b->object, "client_id"), NULL) : NULL;
    const char *speaker = json_string(json_get(b->object, "speaker"), client);
    if (listed_check_alone(b, kind, value) < 0)
        return -1;
    if (listed_marks(text)) { /* it stands there */
        b->media[kind] = json_array();
        json_push(b->media[kind], json_copy(value));
        return add_text_with_media(b, text, 1);
    }
    b->out->layout = SAMPLE_CAPTIONED;
    int left = !text || is_empty(text) ? leave_uncaptioned(b, key, value) : 0;
    if (left)
        return left;
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

/* Interleaved documents: {"texts": [TEXT or null, ..], "images": [FILE or null, ..]} of equal
 * length. */
static int add_interleaved(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const struct json *texts = values[0], *images = json_get(b->object, "images");
    (void)form;
    if (listed_check_alone(b, MODALITY_IMAGE, images) < 0)
        return -1;
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

/* The text, if it need not be a caption, with the media that the record names. */
static int add_text(struct sample_builder *b, const char *key, const struct json *text, bool alone)
{
    i64 media = 0;
    b->out->layout = SAMPLE_PLAIN;
    if (!build_is_text(b, text))
        return error_set("key %s: expected a string", key);
    if (!source_maps(b->place->columns) && listed_read(b, b->object, FORM_OTHERS) < 0)
        return -1;
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        media += json_count(b->media[kind]);
    return media ? add_text_with_media(b, text, media) : alone ? build_text(b, text) : 0;
}

static int add_plain(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    return add_text(b, form->keys[0], values[0], true);
}

/* A caption beside a key such as image_path. */
static int add_media_only(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    return add_text(b, form->keys[0], values[0], false);
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
    {{"messages"}, ANYTHING, FORM_MESSAGES, add_chat},
    {{"conversations"}, TALK, FORM_MESSAGES, add_chat},
    {{"question", "answer"}, TURN, FORM_TURNS, add_turn},
    {{"question", "answers"}, TURN, FORM_TURNS, add_turn},
    {{"question", "response"}, TURN, FORM_TURNS, add_turn},
    {{"question", "chosen"}, TURN, FORM_TURNS, add_turn},
    {{"question", "answerKey"}, PICKS, FORM_TURNS, add_turn},
    {{"question", "answer_idx"}, PICKS, FORM_TURNS, add_turn},
    {{"question", "answer_index"}, PICKS, FORM_TURNS, add_turn},
    {{"question", "correct_answer"}, TURN, FORM_TURNS, add_turn},
    {{"question", "correct"}, PICKS, FORM_TURNS, add_turn},
    {{"question", "label"}, PICKS, FORM_TURNS, add_turn},
    {{"question", "cop"}, PICKS, FORM_TURNS, add_turn},
    {{"prompt", "completion"}, TURN, FORM_TURNS, add_turn},
    {{"prompt", "response"}, TURN, FORM_TURNS, add_turn},
    {{"prompt", "chosen"}, TURN, FORM_TURNS, add_turn},
    {{"instruction", "output"}, TURN, FORM_TURNS, add_turn},
    {{"instruction", "response"}, TURN, FORM_TURNS, add_turn},
    {{"instruction", "chosen"}, TURN, FORM_TURNS, add_turn},
    {{"query", "response"}, TURN, FORM_TURNS, add_turn},
    {{"input", "preferred_output"}, ANYTHING, FORM_TURNS, add_preferred},
    {{"chosen"}, LIST, FORM_TURNS, add_chosen},
    {{"texts"}, DIALOGUE, FORM_TURNS, add_dialogue},
    {{NULL}, ANYTHING, FORM_OTHERS, add_medium},
    {{"file_name"}, TEXTS, FORM_OTHERS, add_named},
    {{NULL}, BYTES, FORM_OTHERS, add_member},
    {{"texts"}, LIST, FORM_OTHERS, add_interleaved},
    {{"url", "text", "image_phash"}, ANYTHING, FORM_OTHERS, refuse_links},
    {{"text"}, ANYTHING, FORM_OTHERS, add_plain},
    {{"content"}, TEXTS, FORM_OTHERS, add_plain},
    {{"url", "caption"}, TEXTS, FORM_OTHERS, refuse_links},
    {{"URL", "TEXT"}, TEXTS, FORM_OTHERS, refuse_links},
    {{"path", "sentence"}, TEXTS, FORM_OTHERS, add_recording},
    {{"filename", "caption"}, TEXTS, FORM_OTHERS, add_named},
    {{"path", "caption"}, TEXTS, FORM_OTHERS, add_named},
    {{"caption"}, CAPTION, FORM_OTHERS, add_media_only},
    {{"transcription"}, CAPTION, FORM_OTHERS, add_media_only},
    {{"sentence"}, CAPTION, FORM_OTHERS, add_media_only},
};
static const char others[] = "speaker client_id prompt reward_model";

/* ---- Choosing a form ---- */

/* True if the value of key k may be that of the form. */
static bool is_kind(const struct sample_builder *b, const struct json *value, const struct sample_form *form, i64 k)
{
    enum json_kind is = json_kind(value);
    switch (form->kind) {
    case TEXTS:
        return build_is_text(b, value);
    case LIST:
        return is == JSON_ARRAY;
    case BYTES:
        return record_bytes(b->place->record, value) != NULL;
    case TALK:
        return is == JSON_ARRAY || *json_string(value, "") == '[';
    case CAPTION:
        return build_is_text(b, value) && record_names_media(b->object);
    case DIALOGUE:
        return is == JSON_ARRAY && sample_key(json_at(value, 0), "user");
    case TURN:
        if (k == 0)
            return build_is_text(b, value) || is == JSON_ARRAY;
        return !json_says_nothing(value) && !(is == JSON_BOOL && strcmp(form->keys[k], "chosen") == 0); /* a mark */
    case PICKS:
        return !json_says_nothing(value) && record_has_choices(b->object);
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
            values[k] = source_column(b->place->columns, b->object, form->keys[k]);
            all = values[k] && ((names_alone && form->kind != CAPTION) || is_kind(b, values[k], form, k));
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

/* Adds what the form and the other keys of the record say. 0; 1: the record is left out, and noted. */
static int build(struct sample_builder *b, const struct sample_form *form, const struct json *const *values)
{
    const struct json *own[KEYS_MOST + 3] = {NULL};
    i64 count = 0;
    for (i64 k = 0; k < KEYS_MOST && form->keys[k]; k++)
        own[count++] = values[k];
    if (form->class == FORM_OTHERS) {
        own[count++] = caption_of(b);
        own[count++] = json_get(b->object, "speaker");
        own[count++] = json_get(b->object, "client_id");
    }
    b->instructs = strcmp(form->keys[0], "instruction") == 0 && !sample_key(b->object, "input");
    int status = record_keys_read(b, form->class, own, count);
    if (status == 0)
        status = form->add(b, form, values);
    return status == 0 && form->class != FORM_OTHERS ? build_conversation(b) : status;
}

static int note_outside(const struct json_place *place)
{
    notes_add(place->notes, place->origin,
              "records that name media outside of the data, by absolute names, .. or links "
              "(`outside: allow` reads them)");
    return 1;
}

int sample_of_json(struct sample *out, const struct json *value, const struct json_place *place, bool *passed)
{
    const struct json *values[KEYS_MOST] = {NULL};
    struct sample_builder b = {.out = out, .object = value, .asked = value, .place = place};
    if (json_kind(value) != JSON_OBJECT)
        return error_set("%s: expected a JSON object", place->origin);
    struct form_walk found;
    bool known = form_of(&found, &b, values, false);
    b.turns = json_array();
    int status = known ? build(&b, &found.form, values) : 0;
    json_free(b.turns);
    listed_release(&b);
    if (status < 0 && b.outside)
        status = note_outside(place);
    if (status < 0)
        return error_prefix("%s", place->origin);
    *passed = *passed || !known || status > 0 || out->count == 0;
    if (known || !is_prompt(value))
        return status;
    if (place->notes)
        place->notes->prompts++;
    return 1;
}

/* ---- Tables ---- */

bool sample_reads_column(const struct source_columns *columns, const char *name)
{
    if (has_word(others, name) || record_key_is_known(name))
        return true;
    for (struct form_walk w = {0}; next_form(&w);)
        for (i64 k = 0; k < KEYS_MOST && w.form.keys[k]; k++) {
            const char *read = name_of(columns, w.form.keys[k]);
            if (read && strcmp(read, name) == 0)
                return true;
        }
    return !source_maps(columns) && is_one_of("caption transcription sentence txt", name);
}

static int refuse_columns(const char *const *names, i64 count, const struct source_columns *columns, const char *path)
{
    struct buffer list = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&list, "%s%s", i ? ", " : "", names[i]);
    error_set("%s: nothing of it is known as a sample. %s: %s. Expected %s", path,
              count ? "Its columns are" : "It has no columns", list.data ? list.data : "",
              source_maps(columns)
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
    int status = known ? 1 : prompts ? 0 : refuse_columns(names, count, columns, path);
    if (known && found.form.add == refuse_links) {
        refuse_links(&build, &found.form, values);
        status = error_prefix("%s", path);
    }
    json_free(row);
    return status;
}
