/* Builds a sample from a record: source_forms.c recognizes its form, source_json.c adds its
 * contents. */
#ifndef WEFT_DATA_SOURCE_BUILD_H
#define WEFT_DATA_SOURCE_BUILD_H
#include "data/sources/source_readers.h"

struct sample_builder {
    struct sample *out;
    const struct json *object;
    const struct json_place *place;
    i64 used[MODALITIES]; /* entries used of the lists "images", "videos", "audios" */
    i32 messages;         /* messages added so far */
    bool outside;         /* a medium was refused because it is outside of the root */
};
bool build_is_text(const struct sample_builder *build, const struct json *value);
int build_text(struct sample_builder *build, const struct json *text);
int build_medium(struct sample_builder *build, enum modality kind, const struct json *value);
int build_messages(struct sample_builder *build, const struct json *messages, const char *key);
int build_message(struct sample_builder *build, const char *role, const struct json *content);

#endif
