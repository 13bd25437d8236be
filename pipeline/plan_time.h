/* `weft plan --cluster`: the time of a stage's step by measured speeds, and the search for a layout. */
#ifndef WEFT_PIPELINE_PLAN_TIME_H
#define WEFT_PIPELINE_PLAN_TIME_H
#include "dist/cluster.h"
#include "pipeline/plan_media.h"
#include "train/memory_estimate.h"

/* Loads the cluster that the options name, and fills in ranks and layout of the work, and the machine that has least
 * memory for its ranks. Returns -1 and a message. */
int plan_cluster(struct cluster *cluster, struct step_work *work, struct plan_machine *machine,
                 const struct plan_options *options);
/* step_expert_load by the counts of the stage's newest checkpoint, or of the model that it starts from. */
int plan_load(double *load, const struct recipe *recipe, const struct recipe_stage *stage,
              const struct step_work *work);
struct json *plan_time_json(const struct foreseen *time);
/* Appends a line for each layout of the cluster's ranks, the fastest first. program_bytes: of a rank,
 * beside the step. */
int plan_search(struct plan_total *total, const struct recipe *recipe, const struct plan_place *place,
                const struct step_work *work, const struct cluster *cluster, i64 program_bytes);

#endif
