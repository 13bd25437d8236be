/* The mixer combines several sources into one training stream; each row of a step comes from one
 * source. The number of rows a source gets is a function of the step:
 *
 *   share(source, step) / sum of shares, where a source without a share counts as
 *   weight(source, step) * positions of its epoch
 *
 * The remainder carries over between steps, so the rows given never differ from the accumulated
 * shares by a full row. Within a source, `mixture` sets how often an epoch shows each direction, as
 * in a run with one source. A source that has shown its `epochs` gives no more rows, and the other
 * sources give them instead. So the samples of a step do not depend on ranks, on interruptions or
 * on how a source is cut into shards.
 *
 * mixer_open returns a mixer that mixer_close frees. */
#ifndef WEFT_DATA_MIXER_H
#define WEFT_DATA_MIXER_H
#include "data/loader/packer.h"

struct mixer;
/* Opens the split `split` of each source. The settings are copied except for schedules; schedules
 * and sources are borrowed until mixer_close. */
struct mixer *mixer_open(const struct source_list *sources, const char *split, const struct loader_settings *settings,
                         u64 seed);
void mixer_close(struct mixer *mixer);
/* Like the loader's functions (packer.h). */
const struct shard_meta *mixer_meta(const struct mixer *mixer);
int mixer_step(struct mixer *mixer, i64 step, struct loader_step *out);
int mixer_batch(struct mixer *mixer, i64 step, i64 micro, struct batch *batch, struct arena *arena);
void mixer_prefetch(struct mixer *mixer, i64 step, i64 micro);
struct left_out mixer_left_out(const struct mixer *mixer); /* summed over all sources */
/* False if none of the samples that the mixture shows has a target of a kind with a weight above 0.
 * True where it shows none, and for sources that are read shard by shard, whose samples are not
 * known in advance. */
bool mixer_has_targets(struct mixer *mixer, const double weight[TARGETS]);

/* Like the loader's functions, for one source. */
struct loader_cursor mixer_cursor(const struct mixer *mixer, i64 number);
void mixer_begin_at(struct mixer *mixer, i64 number, const struct loader_cursor *cursor);
int mixer_passed(struct mixer *mixer, i64 number, const struct loader_cursor *cursor);
bool mixer_goes_by_shards(const struct mixer *mixer); /* true if some source is read shard by shard */
bool mixer_has_stream(const struct mixer *mixer);     /* true if some source waits for its shards */
double mixer_waited_s(const struct mixer *mixer);     /* summed over all sources */
i64 mixer_restarts(const struct mixer *mixer);

/* Number of sources, at least 1. */
i64 mixer_count(const struct mixer *mixer);
struct mixer_source {
    const char *name; /* "" for a single unnamed source */
    i64 samples;      /* samples in the source */
    double epoch;     /* positions of an epoch */
    i64 rows;         /* rows in all steps before the given one */
};
/* Describes a source. Returns -1 with a message if the sources' epochs end before that step. */
int mixer_source(struct mixer *mixer, i64 number, i64 step, struct mixer_source *out);
/* The part of a step that source `number` contributes. */
int mixer_source_step(struct mixer *mixer, i64 number, i64 step, struct loader_step *out);
/* Rows of a step from source `number`. mixer_step must have been called for this or a later
 * step. */
i64 mixer_rows(struct mixer *mixer, i64 step, i64 number);

#endif
