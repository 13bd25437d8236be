/* Media that a record names beside its texts: under "images", "image" and the like. In a
 * conversation each of them stands at its mark or, where there are no marks, at the front of the
 * first question. */
#include "data/sources/source_build.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MOST = 1024 };

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

/* True if a listed medium of the record has this name too, as an id may. */
static bool is_listed(const struct json *object, const char *name)
{
    struct json_iterator it;
    bool listed = false;
    for (bool more = json_first(&it, object); more && !listed; more = json_next(&it, object)) {
        bool lists = listed_names(it.key);
        listed = lists && strcmp(json_string(it.value, json_string(json_get(it.value, "path"), "")), name) == 0;
        for (i64 i = 0; lists && !listed && i < json_count(it.value); i++) {
            const struct json *one = json_kind(it.value) == JSON_ARRAY ? json_at(it.value, i) : NULL;
            listed = strcmp(json_string(one, json_string(json_get(one, "path"), "")), name) == 0;
        }
    }
    return listed;
}

bool listed_is_there(const struct sample_builder *b, const struct json *object, const struct json *value)
{
    const char *name = json_string(value, json_string(json_get(value, "path"), ""));
    const struct buffer *bytes = record_bytes(b->place->record, json_get(value, "bytes"));
    bool there = (bytes && bytes->length) || (*name && medium_kind(name_extension(name)) > MODALITY_TEXT &&
                                              is_file(b, name) && !is_listed(object, name));
    for (i64 i = 0; json_kind(value) == JSON_ARRAY && !there && i < json_count(value); i++)
        there = listed_is_there(b, object, json_at(value, i));
    return there;
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

/* True if another key names a file that is there, and is not the own one. */
static bool is_another(const struct sample_builder *b, const struct json *own, const struct json *value)
{
    const char *name = json_string(value, NULL), *first = json_string(own, json_string(json_get(own, "path"), ""));
    return name && strcmp(name, first) != 0 && medium_kind(name_extension(name)) > MODALITY_TEXT && is_file(b, name);
}

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
        if (kind < 0 && !source_maps(b->place->columns) && is_another(b, value, key->value))
            return error_set("key %s: the record has a %s already: expected one medium with its caption", key->name,
                             modality_rows[own].one);
        note_key(b, key->name, "of records, which are not read");
    }
    return 0;
}

/* ---- Places ---- */

i64 listed_inline(const struct sample_builder *b, const char *at, i64 left, enum modality *kind, const char **name,
                  i64 *length)
{
    static const struct {
        const char *open, *close;
        enum modality kind;
    } pairs[] = {{"<img>", "</img>", MODALITY_IMAGE},
                 {"<image>", "</image>", MODALITY_IMAGE},
                 {"<video>", "</video>", MODALITY_VIDEO},
                 {"<audio>", "</audio>", MODALITY_AUDIO}};
    for (i64 i = 0; i < COUNT_OF(pairs); i++) {
        i64 open = (i64)strlen(pairs[i].open), close = (i64)strlen(pairs[i].close), n = 0;
        if (left < open + close || memcmp(at, pairs[i].open, (size_t)open) != 0)
            continue;
        while (open + n < left && !strchr("<>\n\"", at[open + n]))
            n++;
        if (n == 0 || n > NAME_MOST || open + n + close > left ||
            memcmp(at + open + n, pairs[i].close, (size_t)close) != 0)
            continue;
        char *file = string_format("%.*s", (int)n, at + open);
        bool there = medium_kind(name_extension(file)) == (int)pairs[i].kind && (i == 0 || is_file(b, file));
        memory_free(file);
        if (!there)
            continue;
        *kind = pairs[i].kind;
        *name = at + open;
        *length = n;
        return open + n + close;
    }
    return 0;
}

/* The kind of the medium that is named at a text; -1: none is. */
static int inline_kind(const struct sample_builder *b, const char *at)
{
    enum modality kind;
    const char *name;
    i64 length;
    return listed_inline(b, at, (i64)strlen(at), &kind, &name, &length) ? (int)kind : -1;
}

/* Counts the marks of a text and the parts of a list that refer to listed media. named: parts that
 * name their medium themselves. */
static void count_places(const struct sample_builder *b, i64 *places, i64 *named, const struct json *content)
{
    const char *text = json_string(content, "");
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++) {
        const char *mark = modality_rows[kind].mark, *name = modality_rows[kind].name;
        for (const char *at = text; (at = strstr(at, mark)); at += strlen(mark))
            places[kind] += !b || inline_kind(b, at) < 0;
        for (const char *at = text; (at = strchr(at, '<')); at++)
            named[kind] += b && inline_kind(b, at) == kind;
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
    count_places(NULL, places, named, text);
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

/* ---- Marks of other programs ---- */

/* Length of a mark such as <image_placeholder>, <image1> or <|audio|> at a text. number: the one in it;
 * -1: none. */
static i64 foreign_mark(const char *at, int kind, long *number)
{
    static const char *const others[MODALITIES] = {
        [MODALITY_IMAGE] = "<|vision_start|><|image_pad|><|vision_end|> <image_placeholder> <ImageHere> <|image|> "
                           "<|image_pad|> <image_pad> <IMG> [IMG] <Image> "
                           "<image_token> [image] [IMAGE]",
        [MODALITY_VIDEO] = "<|vision_start|><|video_pad|><|vision_end|> <video_placeholder> <VideoHere> <|video|> "
                           "<|video_pad|> <Video> <video_token> [video]",
        [MODALITY_AUDIO] = "<audio_placeholder> <|audio|> <|AUDIO|> <Audio> <sound> <speech> <SpeechHere> <Speech> "
                           "<audio_token> [audio]"};
    for (const char *word = others[kind]; word && *word; word += strcspn(word, " "), word += *word == ' ') {
        size_t length = strcspn(word, " ");
        *number = -1;
        if (strncmp(at, word, length) == 0)
            return (i64)length;
    }
    const char *name = modality_rows[kind].name, *digits, *end;
    const char *rest = at + 1 + (at[0] == '<' && at[1] == '|');
    if (*at != '<' || strncasecmp(rest, name, strlen(name)) != 0)
        return 0;
    digits = rest + strlen(name) + strspn(rest + strlen(name), " _-#");
    end = digits + strspn(digits, "0123456789");
    *number = strtol(digits, NULL, 10);
    end += *end == '|' && rest == at + 2;
    return end > digits && *end == '>' ? end + 1 - at : 0;
}

/* Puts the own mark where a text has others, if numbers in them ascend. Returns how many there were;
 * -1: they do not ascend. */
static i64 own_marks(struct json *message, int kind, i64 *before)
{
    const char *key = message_content_key(message), *text = json_string(json_get(message, key), "");
    struct buffer out = {0};
    i64 count = 0, length;
    bool ascend = true;
    for (const char *at = text; *at; at += length ? length : 1) {
        long number = -1;
        length = foreign_mark(at, kind, &number);
        if (length)
            buffer_printf(&out, "%s", modality_rows[kind].mark);
        else
            buffer_append(&out, at, 1);
        ascend &= !length || number < 0 || number == *before + count || number == *before + count + 1;
        count += length > 0;
    }
    if (count)
        json_set(message, key, json_of_bytes(out.data, out.length));
    buffer_release(&out);
    *before += count;
    return ascend ? count : -1;
}

/* Marks of other programs stand for the listed media, if there are as many. -1 and a message: there are
 * others. Returns how many there are. */
static i64 read_other_marks(struct sample_builder *b, int kind, i64 media)
{
    const struct modality_row *row = &modality_rows[kind];
    i64 count = 0;
    bool ascend = true;
    for (i64 i = 0; i < json_count(b->turns); i++)
        ascend &= own_marks(json_at(b->turns, i), kind, &count) >= 0;
    if (count == 0 || (count == media && ascend))
        return count;
    return error_set(
        "%lld %s are listed, and the messages have %lld marks of other programs: expected as many in order, "
        "or %s",
        (long long)media, row->many, (long long)count, row->mark);
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
    i64 others = read_other_marks(b, kind, count);
    if (others)
        return others < 0 ? -1 : 0;
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
        count_places(b, places, named, message_content(json_at(b->turns, i)));
    /* From the last: each goes to the front. */
    for (int kind = MODALITIES - 1; kind > MODALITY_TEXT; kind--)
        if (place_kind(b, kind, places[kind], named[kind]) < 0)
            return -1;
    return 0;
}
