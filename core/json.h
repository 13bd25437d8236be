/* JSON values, parsed and written by jansson.
 *
 * A value is owned by the tree that contains it; json_free frees a whole tree. Getters on a missing
 * or mistyped value return the given fallback, so reading an optional key takes one line.
 * json_need_* set an error that names the origin instead. The parser rejects objects with duplicate
 * keys. Integers beyond 64 bits become reals (tokenizer_config.json of HF has a model_max_length of
 * 1e30 written in digits). */
#ifndef WEFT_JSON_H
#define WEFT_JSON_H
#include "core/core.h"

/* jansson defines these six names too, so ours get different linker names. */
#define json_object weft_json_object
#define json_array weft_json_array
#define json_string weft_json_string
#define json_string_length weft_json_string_length
#define json_integer weft_json_integer
#define json_copy weft_json_copy

struct json;
enum json_kind { JSON_NULL, JSON_BOOL, JSON_INTEGER, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Loads a file of at most JSON_BYTES_MAX. NULL and a message with path, line, column. Values may be
 * nested 2048 deep. */
#define JSON_BYTES_MAX ((i64)1 << 28)
struct json *json_load(const char *path);
/* A sealed object has the XXH3 of its other members as its last one, "weft.xxh3". json_load verifies
 * and removes it; json_unseal does so for an object that was read otherwise, and returns 0 if it has
 * none, or -1 and a message. */
#define JSON_SEAL "weft.xxh3"
void json_seal(struct json *object);
int json_unseal(struct json *object, const char *origin);
/* `origin` names the source in messages. U+0000 in strings is allowed. */
struct json *json_parse(const char *text, i64 length, const char *origin);
/* Parses one line of a file. `number` is the line number, from 1. NaN and Infinity, as Python
 * writes them, count as null. */
struct json *json_parse_line(const char *text, i64 length, const char *path, i64 number);
/* Extracts the string member `name` from a one-line JSON object without building a tree. Gives the
 * same result as json_parse_line and json_string. *out points into `line`, or into `room` if the
 * string has escapes. `line` is UTF-8.
 * Returns false, without a message, if the line is not a flat object of at most 16 members that are
 * strings, short non-negative integers, true, false or null, or if it has no such string. The
 * caller then parses it with json_parse_line. */
bool json_line_string(const char **out, i64 *length, struct buffer *room, const char *line, i64 bytes,
                      const char *name);
void json_free(struct json *value);

enum json_kind json_kind(const struct json *value);                /* JSON_NULL for NULL */
struct json *json_get(const struct json *object, const char *key); /* borrowed; NULL if absent */
struct json *json_at(const struct json *array, i64 index);         /* borrowed; NULL if outside */
i64 json_count(const struct json *value);                          /* members of an array or object, else 0 */
/* Iterates over the members of an object in file order, with json_first and json_next. */
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

/* Required keys. Return 0, or -1 and "ORIGIN: key K: expected a string, found ...". */
int json_need_string(const char **out, const struct json *object, const char *key, const char *origin);
int json_need_integer(i64 *out, const struct json *object, const char *key, const char *origin);

struct json *json_object(void);
struct json *json_array(void);
void json_set(struct json *object, const char *key, struct json *value); /* takes ownership of value */
void json_push(struct json *array, struct json *value);                  /* takes ownership of value */
struct json *json_of_string(const char *text); /* must be UTF-8; invalid bytes become U+FFFD */
struct json *json_of_bytes(const char *bytes, i64 length);
struct json *json_of_utf8(const char *bytes, i64 length); /* skips validation: the bytes are known to be UTF-8 */
struct json *json_of_integer(i64 value);
struct json *json_of_number(double value);                           /* NaN and infinities become null */
struct json *json_of_numbers(const double *values, i64 count);       /* array of numbers */
void json_numbers(double *out, i64 count, const struct json *array); /* missing members leave out[i] unchanged */
struct json *json_of_bool(bool value);
struct json *json_of_null(void);
struct json *json_copy(const struct json *value); /* deep copy */
/* The same tree with one more owner, without a copy. Nobody may change it any more. */
struct json *json_share(const struct json *value);

/* Appends to `out`. indent 0 prints one line without spaces. Reals have at most 17 significant
 * digits and read back exactly. Keys keep their insertion order. */
void json_print(struct buffer *out, const struct json *value, int indent);
int json_save(const char *path, const struct json *value); /* indent 2, newline, atomic */
int json_save_sealed(const char *path, const struct json *object);
#endif
