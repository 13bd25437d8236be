/* JSON values, read and written by jansson. A value belongs to the tree it was put into or read from; json_free frees
 * a whole tree. Getters on a missing or mistyped value return the default they are given, so optional keys read in one
 * line; json_need_* set an error that names the path instead. An object with the same key twice is refused. Integers
 * beyond 64 bits are read as reals (HF's tokenizer_config.json has a model_max_length of 1e30 in digits). */
#ifndef WEFT_JSON_H
#define WEFT_JSON_H
#include "core/core.h"

/* jansson has functions of these six names; the linker sees ours under others. */
#define json_object weft_json_object
#define json_array weft_json_array
#define json_string weft_json_string
#define json_string_length weft_json_string_length
#define json_integer weft_json_integer
#define json_copy weft_json_copy

struct json;
enum json_kind { JSON_NULL, JSON_BOOL, JSON_INTEGER, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json *json_load(const char *path); /* NULL: message with path, line, column */
/* origin names the source in messages; U+0000 in strings is allowed */
struct json *json_parse(const char *text, i64 length, const char *origin);
struct json *json_parse_line(const char *text, i64 length, const char *path, i64 number); /* a file's line, from 1 */
/* The string `name` of a line that is an object of strings, short whole numbers, true, false and null, without building
 * it: as json_parse_line and json_string would have it, within `line` or, where it has escapes, in `room`. False: the
 * line is another, or not valid, and wants a parse; nothing is said. `line` is UTF-8. */
bool json_line_string(const char **out, i64 *length, struct text *room, const char *line, i64 bytes, const char *name);
void json_free(struct json *value);

enum json_kind json_kind(const struct json *value);                /* of NULL: JSON_NULL */
struct json *json_get(const struct json *object, const char *key); /* borrowed; NULL if absent */
struct json *json_at(const struct json *array, i64 index);         /* borrowed; NULL if outside */
i64 json_count(const struct json *value);                          /* of an array or object, else 0 */
/* The i-th key of an object in file order, and its value. Walk with json_first/json_next: */
struct json_iterator {
    const char *key;
    struct json *value;
    void *position;
};
bool json_first(struct json_iterator *iterator, const struct json *object);
bool json_next(struct json_iterator *iterator, const struct json *object);

const char *json_string(const struct json *value, const char *fallback);
i64 json_string_length(const struct json *value); /* bytes; strings may hold 0 bytes */
i64 json_integer(const struct json *value, i64 fallback);
double json_number(const struct json *value, double fallback); /* integer or real */
bool json_bool(const struct json *value, bool fallback);

/* For required keys: 0, or -1 and "ORIGIN: key K: expected a string, found ...". */
int json_need_string(const char **out, const struct json *object, const char *key, const char *origin);
int json_need_integer(i64 *out, const struct json *object, const char *key, const char *origin);

struct json *json_object(void);
struct json *json_array(void);
void json_set(struct json *object, const char *key, struct json *value); /* takes the value */
void json_push(struct json *array, struct json *value);                  /* takes the value */
struct json *json_of_string(const char *text); /* must be UTF-8; invalid bytes become U+FFFD */
struct json *json_of_bytes(const char *bytes, i64 length);
struct json *json_of_utf8(const char *bytes, i64 length); /* that is known to be UTF-8: it is not looked at again */
struct json *json_of_integer(i64 value);
struct json *json_of_number(double value);                           /* NaN and infinities become null */
struct json *json_of_numbers(const double *values, i64 count);       /* an array */
void json_numbers(double *out, i64 count, const struct json *array); /* what it lacks stays as it is */
struct json *json_of_bool(bool value);
struct json *json_of_null(void);
struct json *json_copy(const struct json *value); /* deep */

/* Appends. indent 0: one line without spaces. Reals are written with 17 significant digits or fewer that read back the
 * same. Keys stand in the order they were set. */
void json_print(struct text *out, const struct json *value, int indent);
int json_save(const char *path, const struct json *value); /* indent 2, newline, atomic */
#endif
