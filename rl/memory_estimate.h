/* GPU memory estimate of the stage `rl`, by a dry run on the meta backend: one draw of rollouts,
 * one update on made-up rollouts, and the sampling of answers to held-out prompts. All answers have
 * maximum length, so the estimate is an upper bound where answers end early. Of prompts with media and
 * for media the largest of each kind is rehearsed, and what decodes its answers. A judge counts with its
 * weights and one reading. */
#ifndef WEFT_RL_MEMORY_ESTIMATE_H
#define WEFT_RL_MEMORY_ESTIMATE_H
#include "rl/rl.h"
#include "rl/rollout.h"
#include "train/step_memory.h"

enum { RL_EVAL_SEATS = 64 }; /* held-out prompts decoded concurrently */
/* stage.c: sampler sizes for training rollouts. */
struct sampler_room rl_room(const struct rl_settings *settings, const struct prompts *prompts,
                            const struct generator *media);

struct rl_work {
    const struct rl_settings *settings;
    const struct model_config *config;
    const struct text_tokenizer *tokenizer;
    const struct prompts *prompts, *held_out;
    enum dtype dtype;
    bool fp8;
    const struct generator *media; /* open tokenizers of prompts with media; NULL: text alone */
};
/* Fills *out on a device of the meta backend. 0, or -1 and a message: inconsistent settings. */
int rl_estimate(struct step_memory *out, const struct rl_work *work, struct device *meta);
/* Call before the model is opened (dry_run_check). All but activations has to fit. */
int rl_check_memory(const struct rl_work *work, const struct device *device);

/* Call before the sampler of an evaluation of these prompts is opened (dry_run_check). Lowers
 * room->slots until decoding fits. */
int sampler_check_memory(struct sampler_room *room, struct model *model, const struct submodel *sub,
                         const struct text_tokenizer *tokenizer, const struct prompts *prompts);

#endif
