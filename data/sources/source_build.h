/* A record on its way to a sample: source_forms.c says what it is, source_json.c adds what it holds. */
#ifndef WEFT_DATA_SOURCE_BUILD_H
#define WEFT_DATA_SOURCE_BUILD_H
#include "data/sources/source_readers.h"

struct build {
    struct sample *out;
    const struct json *object;
    const struct json_place *place;
    i64 used[SAMPLE_IDS]; /* of the lists of media */
    i32 messages;         /* so far */
};
extern const char *const medium_keys[]; /* "image" of SAMPLE_IMAGE, .. */
bool build_is_text(const struct build *build, const struct json *value);
int build_text(struct build *build, const struct json *text);
int build_medium(struct build *build, enum sample_kind kind, const struct json *value);
int build_messages(struct build *build, const struct json *messages, const char *key);
int build_message(struct build *build, const char *role, const struct json *content);

#endif
