/* Media that a record names beside its texts: under "images", "image" and the like. In a
 * conversation each of them stands at its mark or, where there are no marks, at the front of the
 * first question. */
#include "data/sources/source_build.h"

#include <string.h>

/* Other names of keys. They count only if their value can be read: a voice may be "female". The last
 * row: names of files of any kind, which must exist, since "path" may say where a text is from. */
static const struct {
    enum modality kind;
    const char *names;
} rows[] = {
    {MODALITY_IMAGE, "img imgs picture pictures photo photos image_path image_paths image_file image_files "
                     "image_filename image_name image_names img_path img_paths image_url image_urls image_0 image_1 "
                     "image_2 image_3 image_4 image_5 image_6 image_7 image0 image1 image2 image3 image4 image5"},
    {MODALITY_VIDEO, "clip clips video_path video_paths video_file video_files video_filename video_name video_names "
                     "video_url video_urls"},
    {MODALITY_AUDIO, "sound sounds wav wavs speech voice recording recordings audio_path audio_paths audio_file "
                     "audio_files audio_filepath audio_filename audio_name wav_path wav_file speech_path sound_path "
                     "audio_url audio_urls"},
    {MODALITIES, "file_name filename file file_path filepath path media media_path"},
};

static int row_of(const char *key)
{
    for (int i = 0; i < COUNT_OF(rows); i++)
        if (has_word(rows[i].names, key))
            return i;
    return -1;
}

/* The kind of a column that is called like a member that holds a file; -1: none. */
static int member_kind(const char *key)
{
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        if (has_word(modality_rows[kind].members, key))
            return kind;
    return -1;
}

/* The kind that the key "images" or "image" names; -1: none. */
static int proper_kind(const char *key)
{
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        if (strcmp(key, modality_rows[kind].name) == 0 || strcmp(key, modality_rows[kind].list_key) == 0)
            return kind;
    return -1;
}

bool listed_names(const char *key)
{
    return proper_kind(key) >= 0 || row_of(key) >= 0 || member_kind(key) >= 0;
}

/* ---- Values ---- */

/* True for {"bytes": null, "path": null}, which tables have for nothing, and lists of such. */
static bool is_nothing(const struct json *value)
{
    struct json_iterator it;
    bool nothing = json_kind(value) == JSON_ARRAY || json_kind(value) == JSON_OBJECT || json_says_nothing(value);
    for (i64 i = 0; json_kind(value) == JSON_ARRAY && nothing && i < json_count(value); i++)
        nothing = is_nothing(json_at(value, i));
    for (bool more = nothing && json_first(&it, value); more && nothing; more = json_next(&it, value))
        nothing = is_nothing(it.value);
    return nothing;
}

static bool is_url(const char *name)
{
    return strncmp(name, "http:", 5) == 0 || strncmp(name, "https:", 6) == 0 || strncmp(name, "data:", 5) == 0;
}

static bool is_file(const struct sample_builder *b, const char *name)
{
    const char *folder = b->place->folder;
    char *path = !folder || is_address(folder) ? NULL : *name == '/' ? string_copy(name) : path_join(folder, name);
    bool is = path && *name && file_exists(path) && !file_is_directory(path);
    memory_free(path);
    return is;
}

/* The kind of media that a key names; MODALITIES: any; -1: it is no such key. */
static int kind_of_key(const char *key)
{
    int row = row_of(key);
    return row >= 0 ? (int)rows[row].kind : member_kind(key);
}

/* The kind of one medium, under a key of such media; -1: it cannot be read. */
static int kind_of(const struct sample_builder *b, int wanted, const struct json *value)
{
    const char *name = json_string(value, json_string(json_get(value, "path"), ""));
    const struct json *bytes = json_get(value, "bytes") ? json_get(value, "bytes") : value;
    int ending = medium_kind(name_extension(name));
    if (wanted == MODALITIES)
        return ending > MODALITY_TEXT && is_file(b, name) ? ending : -1;
    bool readable = record_bytes(b->place->record, bytes) || ending == wanted || is_file(b, name) || is_url(name);
    return readable ? wanted : -1;
}

/* The kind of all media of a value; -1: some of it cannot be read. */
static int kind_of_all(const struct sample_builder *b, const char *key, const struct json *value)
{
    int wanted = kind_of_key(key), kind = -1;
    if (wanted < 0 || json_kind(value) != JSON_ARRAY)
        return wanted < 0 ? -1 : kind_of(b, wanted, value);
    for (i64 i = 0; i < json_count(value); i++) {
        int one = is_nothing(json_at(value, i)) ? kind : kind_of(b, wanted, json_at(value, i));
        if (one < 0 || (kind >= 0 && one != kind))
            return -1;
        kind = one;
    }
    return kind;
}

bool listed_is_usable(const struct sample_builder *b, const char *key, const struct json *value)
{
    return !is_nothing(value) && (proper_kind(key) >= 0 || kind_of_all(b, key, value) >= 0);
}

/* ---- Lists ---- */

/* A list in the text of a table. */
static struct json *listed_value(const struct json *value)
{
    const char *text = json_string(value, "");
    return *text == '[' || *text == '{' ? json_parsed(value) : json_copy(value);
}

static void push_all(struct sample_builder *b, int kind, const struct json *value)
{
    struct json *list = listed_value(value);
    bool many = json_kind(list) == JSON_ARRAY;
    if (!b->media[kind])
        b->media[kind] = json_array();
    for (i64 i = 0; i < (many ? json_count(list) : 1); i++) {
        const struct json *one = many ? json_at(list, i) : list;
        if (!is_nothing(one))
            json_push(b->media[kind], json_copy(one));
    }
    json_free(list);
}

static bool equal(const struct json *a, const struct json *b)
{
    struct buffer x = {0}, y = {0};
    json_print(&x, a, 0);
    json_print(&y, b, 0);
    bool same = x.length == y.length && memcmp(x.data, y.data, (size_t)x.length) == 0;
    buffer_release(&x);
    buffer_release(&y);
    return same;
}

/* Under "images", or else "image" or the column that it is. Both: one must be among the others. */
static int read_proper(struct sample_builder *b, const struct json *object, int kind, enum form_class form)
{
    const struct modality_row *row = &modality_rows[kind];
    const struct json *list = sample_key(object, row->list_key),
                      *single = source_column(b->place->columns, object, row->name);
    if (!single)
        single = sample_key(object, row->name);
    if (is_nothing(list))
        list = NULL;
    if (is_nothing(single))
        single = NULL;
    bool among = !list || !single;
    for (i64 i = 0; !among && i < json_count(list); i++)
        among = equal(json_at(list, i), single);
    if (!among)
        return error_set("the keys %s and %s name different files: expected one of them", row->name, row->list_key);
    bool url = is_url(json_string(list ? json_at(list, 0) : single, ""));
    if (url && form == FORM_OTHERS) /* a page beside its text */
        note_key(b, list ? row->list_key : row->name, "of records, which are not read");
    else if (list || single)
        push_all(b, kind, list ? list : single);
    else if (sample_key(object, row->list_key) && !b->media[kind])
        b->media[kind] = json_array(); /* an empty list: marks refer to it */
    return 0;
}

int listed_read(struct sample_builder *b, const struct json *object, enum form_class form)
{
    struct json_iterator it;
    bool proper[MODALITIES];
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++) {
        if (read_proper(b, object, kind, form) < 0)
            return -1;
        proper[kind] = json_count(b->media[kind]) > 0;
    }
    for (bool more = json_first(&it, object); more; more = json_next(&it, object)) {
        if (is_nothing(it.value) || proper_kind(it.key) >= 0 || !listed_names(it.key))
            continue;
        int kind = kind_of_all(b, it.key, it.value);
        bool url = is_url(json_string(it.value, json_string(json_at(it.value, 0), "")));
        if (kind >= 0 && !proper[kind] && (form != FORM_OTHERS || !url))
            push_all(b, kind, it.value);
        else
            note_key(b, it.key, "of records, which are not read");
    }
    return 0;
}

void listed_release(struct sample_builder *b)
{
    for (int kind = 0; kind < MODALITIES; kind++) {
        json_free(b->media[kind]);
        b->media[kind] = NULL;
        b->used[kind] = 0;
    }
}

/* ---- One medium ---- */

int listed_check_alone(struct sample_builder *b, enum modality own, const struct json *value)
{
    const struct record_key *key;
    for (i64 i = 0; (key = record_key_of(b, KEY_LISTED, i)); i++) {
        int kind = proper_kind(key->name);
        if (key->value == value || is_nothing(key->value))
            continue;
        if (kind >= 0 && (kind != (int)own || json_count(key->value) > 1))
            return error_set("key %s: the record has a %s already: expected one medium with its caption", key->name,
                             modality_rows[own].one);
        note_key(b, key->name, "of records, which are not read");
    }
    return 0;
}

/* ---- Places ---- */

/* Counts the marks of a text and the parts of a list that refer to listed media. named: parts that
 * name their medium themselves. */
static void count_places(i64 *places, i64 *named, const struct json *content)
{
    const char *text = json_string(content, "");
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++) {
        const char *mark = modality_rows[kind].mark, *name = modality_rows[kind].name;
        for (const char *at = text; (at = strstr(at, mark)); at += strlen(mark))
            places[kind]++;
        for (i64 i = 0; json_kind(content) == JSON_ARRAY && i < json_count(content); i++) {
            const struct json *part = json_at(content, i);
            if (strncmp(json_string(json_get(part, "type"), ""), name, strlen(name)) != 0)
                continue;
            bool names = build_names_medium(part, (enum modality)kind);
            named[kind] += names;
            places[kind] += !names;
        }
    }
}

i64 listed_marks(const struct json *text)
{
    i64 places[MODALITIES] = {0}, named[MODALITIES] = {0}, sum = 0;
    count_places(places, named, text);
    for (int kind = 0; kind < MODALITIES; kind++)
        sum += places[kind];
    return sum;
}

/* A content with `count` further media of a kind in front: marks before a text, whose own marks stay
 * in force, or parts before others. */
static struct json *in_front(const struct json *content, const struct modality_row *row, i64 count)
{
    if (json_kind(content) == JSON_STRING) {
        struct buffer text = {0};
        for (i64 i = 0; i < count; i++)
            buffer_append(&text, row->mark, (i64)strlen(row->mark));
        buffer_append(&text, json_string(content, ""), json_string_length(content));
        struct json *marked = json_of_bytes(text.data, text.length);
        buffer_release(&text);
        return marked;
    }
    struct json *list = json_array();
    for (i64 i = 0; i < count; i++) {
        struct json *part = json_object();
        json_set(part, "type", json_of_string(row->name));
        json_push(list, part);
    }
    for (i64 i = 0; json_kind(content) == JSON_ARRAY && i < json_count(content); i++)
        json_push(list, json_copy(json_at(content, i)));
    if (json_kind(content) == JSON_OBJECT) { /* bytes that are no UTF-8 */
        struct json *part = json_object();
        json_set(part, "text", json_copy(content));
        json_push(list, part);
    }
    return list;
}

static int place_kind(struct sample_builder *b, int kind, i64 places, i64 named)
{
    const struct modality_row *row = &modality_rows[kind];
    i64 count = json_count(b->media[kind]);
    struct json *question = turns_question(b);
    if (count == 0 || places == count)
        return 0;
    if (places > 0 || named > 0)
        return error_set("%lld %s are listed, and the messages refer to %lld: expected as many %s, or none",
                         (long long)count, row->many, (long long)(places + named), row->mark);
    if (!question)
        return error_set("%s are listed without a question that they could stand in", row->many);
    const char *key = sample_key(question, "content") || !sample_key(question, "value") ? "content" : "value";
    json_set(question, key, in_front(json_get(question, key), row, count));
    return 0;
}

int listed_place(struct sample_builder *b)
{
    i64 places[MODALITIES] = {0}, named[MODALITIES] = {0};
    for (i64 i = 0; i < json_count(b->turns); i++)
        count_places(places, named, message_content(json_at(b->turns, i)));
    /* From the last: each goes to the front. */
    for (int kind = MODALITIES - 1; kind > MODALITY_TEXT; kind--)
        if (place_kind(b, kind, places[kind], named[kind]) < 0)
            return -1;
    return 0;
}
