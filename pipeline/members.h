/* members.jsonl in the folder of a stage on ranks: a line for each world of ranks that trained it, in
 * order. `weft launch --replay` repeats the run from it.
 *
 *     {"step": 0, "begins": true, "ranks": 3, "layout": "data=3,...", "machines": [0, 0, 1],
 *      "deal": "speed", "deals": [{"step": 6, "parts": [1000, 982, 340]}],
 *      "experts": [[0, 3, 1, 2], ...], "device": "...", "stage": "base",
 *      "of": {"recipe", "seed", "inputs"}, "world": "1f0c9a2e.1",
 *      "left": {"step": 7, "ranks": [{"rank": 1, "how": "killed, signal 9, 0.31 GB"}]}}
 *
 * step: complete when the world began; a later line with the same or a lower step replaces this one, for
 * its steps were lost. begins: it resumed from no checkpoint of the stage. layout: as --layout takes it. machines: that
 * of each rank, numbered from the first one; only where sums go within machines first (struct comm_machines).
 * deal: even, micro-batch m of a step is that of data rank m mod data; speed: only up to the first of `deals`,
 * each of which holds from the step behind its `step` on (dist/deal.h). experts: of each layer, in the order of the
 * expert ranks that hold them, as many each; only if they do not ascend. device: what the bits depend on.
 * of: digests (identity_digests). world: its launcher and generation, if a launcher started it. left: the
 * last step that it began, and how ranks left that did not follow others, or "how" it ended; it is missing
 * while the world goes on. */
#ifndef WEFT_PIPELINE_MEMBERS_H
#define WEFT_PIPELINE_MEMBERS_H
#include "pipeline/pipeline.h"

struct members {
    const struct run_options *options;
    const struct stage *stage;
    const struct json *identity;
    i64 done;
    bool begun;     /* its line is written */
    i64 *parts;     /* of the last deal that is noted; NULL: it is even */
    i32 *placement; /* of the experts, [layers, experts]; NULL: they lie in a row */
    i64 layers, experts;
};
/* Sets the callbacks of `stage`, which write the line of this world before its first step and note how the
 * one before ended. */
void members_watch(struct members *members, struct stage *stage);
/* Notes how this world ended, if it is known. status: what the stage returned. 0, or -1 and a message. */
int members_end(struct members *members, int status);
#endif
