/* Records of stages: what identity.json beside a model says of the stage that made it, and of the stages
 * before that one. Usage: open, before, .., close. */
#ifndef WEFT_RECORD_H
#define WEFT_RECORD_H
#include "core/json.h"

#define RECORD_FILE "identity.json"
struct record {
    char *directory; /* the stage's folder */
    struct json *json;
    const struct json *settings; /* NULL: it has no record, or none that can be read */
    i64 steps;                   /* back from the first */
};
/* Of the model in `directory`. A record that cannot be read is warned of. */
void record_open(struct record *record, const char *directory);
/* Goes on to the stage whose model this one began with (`from`). False: there is none on record. */
bool record_before(struct record *record);
void record_close(struct record *record);
const char *record_kind(const struct record *record); /* "": unknown */
/* Paths of what a setting of that stage names, one a line, as the setting has them: names stand for
 * stages of the same run, which lie beside the stage's folder or, with arms and seeds, above it. What
 * is not found stays as it is. memory_free */
char *record_paths(const struct record *record, const char *names);

#endif
