/* JSON on top of jansson. struct json is an opaque json_t.
 *
 * jansson.h and core/json.h share some names. In this file those names are jansson's: the kinds of
 * core/json.h are spelled KIND_*, and the six functions that it renames for the linker appear under
 * their linker names. */
#include <jansson.h>

#define JSON_NULL KIND_NULL
#define JSON_INTEGER KIND_INTEGER
#define JSON_REAL KIND_REAL
#define JSON_STRING KIND_STRING
#define JSON_ARRAY KIND_ARRAY
#define JSON_OBJECT KIND_OBJECT
#include "core/json.h"
#undef JSON_NULL
#undef JSON_INTEGER
#undef JSON_REAL
#undef JSON_STRING
#undef JSON_ARRAY
#undef JSON_OBJECT
#undef json_object
#undef json_array
#undef json_string
#undef json_string_length
#undef json_integer
#undef json_copy

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PARSE_FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES)

static json_t *to_jansson(const struct json *value)
{
    return (json_t *)value;
}

static struct json *from_jansson(json_t *value)
{
    return (struct json *)value;
}

static struct json *require_value(json_t *value)
{
    require_memory(value, "a JSON value");
    return from_jansson(value);
}

static bool overflows(const char *number)
{
    errno = 0;
    strtoll(number, NULL, 10);
    return errno == ERANGE && !strpbrk(number, ".eE");
}

/* Length of a number at `text` that is none in JSON, as Python writes them; 0: there is none. */
static i64 not_finite(const char *text, i64 length)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (i64 i = 0; i < COUNT_OF(words); i++) {
        i64 word = (i64)strlen(words[i]);
        if (length >= word && memcmp(text, words[i], (size_t)word) == 0)
            return word;
    }
    return 0;
}

/* jansson rejects integers beyond 64 bits, and NaN. Appends ".0" to the former, so that they parse
 * as reals. With `lenient`, puts null in place of the latter. */
static void rewrite_numbers(struct buffer *out, const char *text, i64 length, bool lenient)
{
    bool quoted = false;
    for (i64 i = 0; i < length;) {
        i64 begin = i, none = lenient && !quoted ? not_finite(text + i, length - i) : 0;
        if (none) {
            buffer_append(out, "null", 4);
            i += none;
            continue;
        }
        if (!quoted && (isdigit((u8)text[i]) || text[i] == '-')) {
            while (i < length && text[i] && strchr("+-.0123456789eE", text[i]))
                i++;
            buffer_append(out, text + begin, i - begin);
            if (overflows(out->data + out->length - (i - begin)))
                buffer_append(out, ".0", 2);
            continue;
        }
        if (text[i] == '"')
            quoted = !quoted;
        i += quoted && text[i] == '\\' && i + 1 < length ? 2 : 1;
        buffer_append(out, text + begin, i - begin);
    }
}

static json_t *parse_rewritten(const char *text, i64 length, bool lenient, json_error_t *error)
{
    struct buffer marked = {0};
    rewrite_numbers(&marked, text, length, lenient);
    json_t *value = json_loadb(marked.data, (size_t)marked.length, PARSE_FLAGS, error);
    buffer_release(&marked);
    return value;
}

static struct json *parse(const char *text, i64 length, const char *origin, i64 first_line, bool lenient)
{
    json_error_t error;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    json_t *value = json_loadb(length ? text : "", (size_t)length, PARSE_FLAGS, &error);
    if (!value && (lenient || json_error_code(&error) == json_error_numeric_overflow))
        value = parse_rewritten(text, length, lenient, &error);
    if (!value)
        error_set("%s:%lld:%d: not valid JSON: %s", origin, (long long)first_line + error.line - 1, error.column,
                  error.text);
    return from_jansson(value);
}

struct json *json_parse(const char *text, i64 length, const char *origin)
{
    return parse(text, length, origin, 1, false);
}

struct json *json_parse_line(const char *text, i64 length, const char *path, i64 number)
{
    return parse(text, length, path, number, true);
}

struct json *json_load(const char *path)
{
    struct buffer text = {0};
    if (file_read_most(&text, path, JSON_BYTES_MAX) < 0)
        return NULL;
    struct json *value = json_parse(text.data, text.length, path);
    buffer_release(&text);
    if (value && json_unseal(value, path) < 0) {
        json_free(value);
        return NULL;
    }
    return value;
}

/* ---- Seals ---- */

static void seal_of(char out[20], const struct json *object)
{
    struct buffer text = {0};
    json_print(&text, object, 0);
    snprintf(out, 20, "%016llx", (unsigned long long)hash_bytes(text.data, text.length, 0));
    buffer_release(&text);
}

void json_seal(struct json *object)
{
    char seal[20];
    json_object_del(to_jansson(object), JSON_SEAL);
    seal_of(seal, object);
    json_set(object, JSON_SEAL, json_of_string(seal));
}

int json_unseal(struct json *object, const char *origin)
{
    char seal[20], *stated;
    const struct json *member = json_kind(object) == KIND_OBJECT ? json_get(object, JSON_SEAL) : NULL;
    if (!member)
        return 0;
    stated = string_copy(weft_json_string(member, ""));
    json_object_del(to_jansson(object), JSON_SEAL);
    seal_of(seal, object);
    bool same = strcmp(stated, seal) == 0;
    memory_free(stated);
    return same
               ? 0
               : error_set("%s: its checksum differs: the file was damaged or changed. Copy it again; if it was edited "
                           "by intent, remove its \"%s\"",
                           origin, JSON_SEAL);
}

void json_free(struct json *value)
{
    json_decref(to_jansson(value));
}

enum json_kind json_kind(const struct json *value)
{
    if (!value)
        return KIND_NULL;
    switch (json_typeof(to_jansson(value))) {
    case JSON_OBJECT:
        return KIND_OBJECT;
    case JSON_ARRAY:
        return KIND_ARRAY;
    case JSON_STRING:
        return KIND_STRING;
    case JSON_INTEGER:
        return KIND_INTEGER;
    case JSON_REAL:
        return KIND_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return KIND_NULL;
}

struct json *json_get(const struct json *object, const char *key)
{
    return from_jansson(json_object_get(to_jansson(object), key));
}

struct json *json_at(const struct json *array, i64 index)
{
    return index < 0 ? NULL : from_jansson(json_array_get(to_jansson(array), (size_t)index));
}

i64 json_count(const struct json *value)
{
    return (i64)(json_is_array(to_jansson(value)) ? json_array_size(to_jansson(value))
                                                  : json_object_size(to_jansson(value)));
}

static bool iterator_at(struct json_iterator *iterator, void *position)
{
    *iterator = (struct json_iterator){.position = position};
    if (!position)
        return false;
    iterator->key = json_object_iter_key(position);
    iterator->value = from_jansson(json_object_iter_value(position));
    return true;
}

bool json_first(struct json_iterator *iterator, const struct json *object)
{
    return iterator_at(iterator, json_object_iter(to_jansson(object)));
}

bool json_next(struct json_iterator *iterator, const struct json *object)
{
    return iterator_at(iterator, json_object_iter_next(to_jansson(object), iterator->position));
}

const char *weft_json_string(const struct json *value, const char *fallback)
{
    return json_is_string(to_jansson(value)) ? json_string_value(to_jansson(value)) : fallback;
}

i64 weft_json_string_length(const struct json *value)
{
    return (i64)json_string_length(to_jansson(value));
}

i64 weft_json_integer(const struct json *value, i64 fallback)
{
    return json_is_integer(to_jansson(value)) ? (i64)json_integer_value(to_jansson(value)) : fallback;
}

double json_number(const struct json *value, double fallback)
{
    return json_is_number(to_jansson(value)) ? json_number_value(to_jansson(value)) : fallback;
}

bool json_bool(const struct json *value, bool fallback)
{
    return json_is_boolean(to_jansson(value)) ? json_is_true(to_jansson(value)) : fallback;
}

static const char *const kind_names[] = {"null",     "true or false", "an integer", "a real number",
                                         "a string", "an array",      "an object"};

static int mismatch(const struct json *object, const char *key, const char *origin, const char *expected)
{
    if (json_kind(object) != KIND_OBJECT)
        return error_set("%s: key %s: expected %s, but it is looked for in %s, not in an object", origin, key, expected,
                         kind_names[json_kind(object)]);
    struct json *value = json_get(object, key);
    if (!value)
        return error_set("%s: key %s is missing: expected %s", origin, key, expected);
    return error_set("%s: key %s: expected %s, found %s", origin, key, expected, kind_names[json_kind(value)]);
}

int json_need_string(const char **out, const struct json *object, const char *key, const char *origin)
{
    struct json *value = json_get(object, key);
    if (json_kind(value) != KIND_STRING)
        return mismatch(object, key, origin, "a string");
    *out = json_string_value(to_jansson(value));
    return 0;
}

int json_need_integer(i64 *out, const struct json *object, const char *key, const char *origin)
{
    struct json *value = json_get(object, key);
    if (json_kind(value) != KIND_INTEGER)
        return mismatch(object, key, origin, "an integer");
    *out = (i64)json_integer_value(to_jansson(value));
    return 0;
}

static void append_utf8(struct buffer *out, const char *bytes, i64 length)
{
    for (i64 i = 0; i < length;) {
        i64 step = utf8_length(bytes + i, length - i);
        buffer_append(out, step ? bytes + i : "\xef\xbf\xbd", step ? step : 3);
        i += max_i64(step, 1);
    }
}

struct json *json_of_bytes(const char *bytes, i64 length)
{
    json_t *value = json_stringn(length ? bytes : "", (size_t)length);
    if (!value) {
        struct buffer repaired = {0};
        append_utf8(&repaired, bytes, length);
        value = json_stringn(repaired.data, (size_t)repaired.length);
        buffer_release(&repaired);
    }
    return require_value(value);
}

struct json *json_of_utf8(const char *bytes, i64 length)
{
    return require_value(json_stringn_nocheck(length ? bytes : "", (size_t)length));
}

struct json *json_of_string(const char *text)
{
    return json_of_bytes(text, (i64)strlen(text));
}

struct json *json_of_integer(i64 value)
{
    return require_value(json_integer(value));
}

struct json *json_of_number(double value)
{
    return require_value(isfinite(value) ? json_real(value) : json_null());
}

struct json *json_of_numbers(const double *values, i64 count)
{
    struct json *array = weft_json_array();
    for (i64 i = 0; i < count; i++)
        json_push(array, json_of_number(values[i]));
    return array;
}

void json_numbers(double *out, i64 count, const struct json *array)
{
    for (i64 i = 0; i < min_i64(count, json_count(array)); i++)
        out[i] = json_number(json_at(array, i), out[i]);
}

struct json *json_of_bool(bool value)
{
    return require_value(json_boolean(value));
}

struct json *json_of_null(void)
{
    return require_value(json_null());
}

struct json *weft_json_object(void)
{
    return require_value(json_object());
}

struct json *weft_json_array(void)
{
    return require_value(json_array());
}

struct json *json_share(const struct json *value)
{
    return from_jansson(json_incref(to_jansson(value)));
}

struct json *weft_json_copy(const struct json *value)
{
    return value ? require_value(json_deep_copy(to_jansson(value))) : NULL;
}

void json_set(struct json *object, const char *key, struct json *value)
{
    require(json_is_object(to_jansson(object)) && value && object != value, "json_set %s: not an object, or no value",
            key);
    if (json_object_set(to_jansson(object), key, to_jansson(value)) < 0) {
        struct buffer repaired = {0};
        append_utf8(&repaired, key, (i64)strlen(key));
        require(json_object_set(to_jansson(object), repaired.data ? repaired.data : "", to_jansson(value)) == 0,
                "no memory for JSON key %s", key);
        buffer_release(&repaired);
    }
    json_decref(to_jansson(value));
}

void json_push(struct json *array, struct json *value)
{
    require(json_is_array(to_jansson(array)) && value && array != value, "json_push: not an array, or no value");
    require_memory(json_array_append_new(to_jansson(array), to_jansson(value)) == 0, "a JSON array");
}

static int append_piece(const char *bytes, size_t length, void *out)
{
    buffer_append(out, bytes, (i64)length);
    return 0;
}

static void print_string(struct buffer *out, json_t *string)
{
    require_memory(json_dump_callback(string, append_piece, out, JSON_ENCODE_ANY) == 0, "a JSON string");
}

static void print_real(struct buffer *out, double value)
{
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    buffer_printf(out, strpbrk(digits, ".e") ? "%s" : "%s.0", digits);
}

static void new_line(struct buffer *out, int indent, int depth)
{
    if (indent)
        buffer_printf(out, "\n%*s", indent * depth, "");
}

static void print_value(struct buffer *out, const struct json *value, int indent, int depth);

static void print_object(struct buffer *out, const struct json *object, int indent, int depth)
{
    struct json_iterator member;
    const char *before = "";
    for (bool more = json_first(&member, object); more; more = json_next(&member, object)) {
        buffer_printf(out, "%s", before);
        before = ",";
        new_line(out, indent, depth + 1);
        struct json *key = json_of_string(member.key);
        print_string(out, to_jansson(key));
        json_free(key);
        buffer_printf(out, indent ? ": " : ":");
        print_value(out, member.value, indent, depth + 1);
    }
}

static void print_array(struct buffer *out, const struct json *array, int indent, int depth)
{
    for (i64 i = 0; i < json_count(array); i++) {
        if (i)
            buffer_append(out, ",", 1);
        new_line(out, indent, depth + 1);
        print_value(out, json_at(array, i), indent, depth + 1);
    }
}

static void print_value(struct buffer *out, const struct json *value, int indent, int depth)
{
    switch (json_kind(value)) {
    case KIND_NULL:
        buffer_append(out, "null", 4);
        return;
    case JSON_BOOL:
        buffer_printf(out, "%s", json_is_true(to_jansson(value)) ? "true" : "false");
        return;
    case KIND_INTEGER:
        buffer_printf(out, "%lld", (long long)json_integer_value(to_jansson(value)));
        return;
    case KIND_REAL:
        print_real(out, json_real_value(to_jansson(value)));
        return;
    case KIND_STRING:
        print_string(out, to_jansson(value));
        return;
    case KIND_ARRAY:
    case KIND_OBJECT:
        break;
    }
    bool object = json_kind(value) == KIND_OBJECT;
    buffer_append(out, object ? "{" : "[", 1);
    (object ? print_object : print_array)(out, value, indent, depth);
    if (json_count(value))
        new_line(out, indent, depth);
    buffer_append(out, object ? "}" : "]", 1);
}

void json_print(struct buffer *out, const struct json *value, int indent)
{
    print_value(out, value, indent, 0);
}

int json_save_sealed(const char *path, const struct json *object)
{
    struct json *sealed = weft_json_copy(object);
    json_seal(sealed);
    int status = json_save(path, sealed);
    json_free(sealed);
    return status;
}

int json_save(const char *path, const struct json *value)
{
    struct buffer text = {0};
    json_print(&text, value, 2);
    buffer_append(&text, "\n", 1);
    int status = file_replace(path, text.data, text.length);
    buffer_release(&text);
    return status;
}
