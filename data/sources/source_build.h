/* Builds a sample from a record: source_forms.c recognizes its form, source_json.c adds its
 * media and texts, source_messages.c its messages. */
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
bool json_says_nothing(const struct json *value); /* null or empty: tables contain every key */
/* Notes 'keys "KEY" WHAT' of a record that is a sample nevertheless. */
void note_key(const struct sample_builder *build, const char *key, const char *what);
bool build_is_text(const struct sample_builder *build, const struct json *value);
int build_text(struct sample_builder *build, const struct json *text);
int build_medium(struct sample_builder *build, enum modality kind, const struct json *value);
int build_content(struct sample_builder *build, const struct json *content); /* a text or a list of parts */
const struct json *message_content(const struct json *message);
int build_messages(struct sample_builder *build, const struct json *messages, const char *key);
int build_message(struct sample_builder *build, const char *role, const struct json *content);
/* Reads what a chat template reads beside the messages (sources.h). */
int build_variables(struct sample_builder *build);

#endif
