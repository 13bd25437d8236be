/* What the rl stage will need of a GPU: one draw of answers, one step of learning from answers that are made up, and
 * the answers to held-out prompts, on the meta backend. It is a bound where answers end early. */
#ifndef WEFT_RL_FORESEE_H
#define WEFT_RL_FORESEE_H
#include "rl/rl.h"
#include "rl/rollout.h"
#include "train/plan.h"

enum { RL_EVAL_SEATS = 64 }; /* prompts answered at a time, held-out ones */
struct sampler_room rl_room(const struct rl_settings *settings,
                            i64 longest); /* stage.c: of the answers to learn from */

struct rl_wanted {
    const struct rl_settings *settings;
    const struct model_config *config;
    const struct text_tokenizer *tokenizer;
    const struct prompts *prompts, *held_out;
    enum dtype dtype;
    bool fp8, gpu_has_fp8;
};
/* -1 and a message: settings that do not go together. */
int rl_foresee(struct step_memory *out, const struct rl_wanted *wanted);
/* Before the model is opened; as memory_check (train/fits.h). */
int rl_check_memory(const struct rl_wanted *wanted, const struct device *device);

/* Before an evaluation's sampler is opened: lowers room->seats to what fits. -1 and a message: none do. */
int sampler_check_memory(struct sampler_room *room, struct model *model, const struct submodel *sub,
                         const struct text_tokenizer *tokenizer);

#endif
