/* Snapshots of what a training run needs to go on: masters and moments of its tables, and its state, in a
 * file in memory (memfd) that its launcher holds. It outlives the ranks, not their machine.
 *
 *     head | slot 0: state, placements, tables | slot 1: state, placements, tables
 *
 * A table lies there as in a checkpoint on disk: unsharded matrices, named master.N, m.N and v.N. Each
 * rank writes what it contributes (zero_visit) to its places, so that ranks of any number and layout read
 * it by weights_load_optimizer. Snapshots go to the two slots in turn. One is complete if every rank has
 * noted its step and the checksum (XXH3) of what it wrote, and if these hold.
 *
 * Functions are calls of all ranks together, unless they say otherwise. Ranks write without waiting for
 * each other: between two snapshots there must be a collective of all. */
#ifndef WEFT_DIST_SNAPSHOT_H
#define WEFT_DIST_SNAPSHOT_H
#include "dist/dist.h"

struct snapshot_file {
    int descriptor; /* of all ranks, on this machine; borrowed, as all else */
    const struct parallel *ranks;
    struct weights *const *tables;
    i64 count;
    u64 run; /* whose snapshots they are; those of another run are removed */
};
struct snapshots;
/* Takes memory for two snapshots. NULL: there is none left, or too many ranks; the first rank says so. */
struct snapshots *snapshots_open(const struct snapshot_file *file);
/* Finds the newest complete snapshot and returns its step, if that is above `after`, a number of the first rank.
 * *state is borrowed until the next save. -1: there is none. */
i64 snapshots_find(struct snapshots *snapshots, i64 after, const char **state, i64 *bytes);
void snapshots_load(struct snapshots *snapshots); /* loads what was found into the tables, as experts are placed now */
i64 snapshots_deaths(const struct snapshots *snapshots); /* worlds of this run that ended without a close */
bool snapshots_due(const struct snapshots *snapshots);   /* by the clock of the calling rank */
/* The pause behind a snapshot that took cost_s. A hundred times that, or less if worlds of this run have died in the
 * `seconds` since the first one began: copies and steps that are repeated then cost the least together (Young, 1974).
 */
double snapshots_pause_s(double cost_s, i64 deaths, double seconds);
/* state: of the first rank. One that is too long for its place is no snapshot. */
void snapshots_save(struct snapshots *snapshots, i64 step, const char *state, i64 bytes);
void snapshots_close(struct snapshots *snapshots, bool keep); /* keep: for the ranks that come next. NULL: nothing */
#endif
