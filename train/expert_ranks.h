/* Experts on expert ranks: which rank holds which, and whether the rows that reach a rank have room. */
#ifndef WEFT_TRAIN_EXPERT_RANKS_H
#define WEFT_TRAIN_EXPERT_RANKS_H
#include "train/pretrain.h"

/* Places the experts for all that is read from now on: by `use` (model_use_count, changed), or as a replay says.
 * With elastic.expert_groups they lie in a row, for sub-models then draw equal shares of neighbours. Without
 * expert ranks it does nothing. 0, or -1 and a message. */
int experts_place(struct model *model, const struct stage *stage, const struct pretrain_settings *settings,
                  double *use);
/* Call when the weights and model->use are there: says how the experts are placed, and checks that memory for rows
 * suffices for the use so far. 0, or -1 and a message. */
int experts_check_room(const struct model *model, const struct stage *stage);
#endif
