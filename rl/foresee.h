/* GPU memory estimate of the stage `rl`, by a dry run on the meta backend: one draw of rollouts,
 * one update on made-up rollouts, and the sampling of answers to held-out prompts. All answers have
 * maximum length, so the estimate is an upper bound where answers end early. */
#ifndef WEFT_RL_FORESEE_H
#define WEFT_RL_FORESEE_H
#include "rl/rl.h"
#include "rl/rollout.h"
#include "train/plan.h"

enum { RL_EVAL_SEATS = 64 }; /* held-out prompts decoded concurrently */
struct sampler_room rl_room(const struct rl_settings *settings,
                            i64 longest); /* stage.c: sampler sizes for training rollouts */

struct rl_wanted {
    const struct rl_settings *settings;
    const struct model_config *config;
    const struct text_tokenizer *tokenizer;
    const struct prompts *prompts, *held_out;
    enum dtype dtype;
    bool fp8, gpu_has_fp8;
};
/* Fills *out. 0, or -1 and a message: inconsistent settings. */
int rl_foresee(struct step_memory *out, const struct rl_wanted *wanted);
/* Call before the model is opened. -1 and a message if the
 * stage does not fit, as memory_check (train/fits.h). */
int rl_check_memory(const struct rl_wanted *wanted, const struct device *device);

/* Call before the sampler of an evaluation is opened. Halves room->seats until decoding fits. -1
 * and a message: one seat does not fit either. */
int sampler_check_memory(struct sampler_room *room, struct model *model, const struct submodel *sub,
                         const struct text_tokenizer *tokenizer);

#endif
