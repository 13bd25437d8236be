/* The mixer: every row of a step is one source's. How many of a step's rows a source gets is a function of the step:
 *
 *   share(source, step) / sum of shares, or weight(source, step) . positions of its epoch / sum of those
 *
 * carried on from step to step, so that what was given never differs from the sum of shares by a row. Within a source,
 * `mixture` says how often an epoch has each direction, as in a run of one source. A source that has shown its `epochs`
 * gives no more rows; what it would have given, the others give. So which samples a step has depends on neither ranks,
 * nor interruptions, nor on how a source is cut into shard folders' shards. */
#ifndef WEFT_DATA_MIXER_H
#define WEFT_DATA_MIXER_H
#include "data/loader/packer.h"

struct mixer;
/* PART of each source. Settings are copied but for schedules, sources are the caller's; both stay. */
struct mixer *mixer_open(const struct source_list *sources, const char *part, const struct loader_settings *settings,
                         u64 seed);
void mixer_close(struct mixer *mixer);
/* As the loader's (packer.h). */
const struct shard_meta *mixer_meta(const struct mixer *mixer);
int mixer_step(struct mixer *mixer, i64 step, struct loader_step *out);
int mixer_batch(struct mixer *mixer, i64 step, i64 micro, struct batch *batch, struct arena *arena);
void mixer_prefetch(struct mixer *mixer, i64 step, i64 micro);
i64 mixer_left_out(const struct mixer *mixer);

/* As the loader's, of a source. */
struct loader_cursor mixer_cursor(const struct mixer *mixer, i64 number);
void mixer_begin_at(struct mixer *mixer, i64 number, const struct loader_cursor *cursor);
int mixer_passed(struct mixer *mixer, i64 number, const struct loader_cursor *cursor);
bool mixer_goes_by_shards(const struct mixer *mixer); /* some source does */
bool mixer_has_stream(const struct mixer *mixer);     /* whose shards are waited for */
double mixer_waited_s(const struct mixer *mixer);     /* by all sources */
i64 mixer_restarts(const struct mixer *mixer);

i64 mixer_count(const struct mixer *mixer);
struct mixer_source {
    const char *name; /* "" where there is one that has none */
    i64 samples;      /* in it */
    double epoch;     /* positions of one */
    i64 rows;         /* in all steps before the one asked about */
};
/* -1 and a message: the sources' epochs end before that step. */
int mixer_source(struct mixer *mixer, i64 number, i64 step, struct mixer_source *out);
/* What the step shows of it. */
int mixer_source_step(struct mixer *mixer, i64 number, i64 step, struct loader_step *out);
i64 mixer_rows(struct mixer *mixer, i64 step,
               i64 number); /* of a step that mixer_step, or a later one, was asked for */

#endif
