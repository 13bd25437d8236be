/* Which drawn sub-models the full model teaches. */
#include "elastic/elastic.h"

/* Top-k is drawn per sample and matters only to a model with experts. */
static bool some_topk_is_smaller(const struct submodel *sub, const struct model_config *c, const struct batch *batch)
{
    bool smaller = !sub->sample_topk && sub->topk < c->topk;
    for (i64 i = 0; i < batch->n && sub->sample_topk; i++)
        smaller |= batch->sample[i] >= 0 && sub->sample_topk[batch->sample[i]] < c->topk;
    return smaller && c->first_moe_layer < c->layers;
}

bool elastic_is_taught(const struct elastic_settings *s, const struct submodel *sub, const struct model_config *c,
                       u64 seed, i64 step, const struct batch *batch)
{
    bool smaller =
        sub->layer_count < c->layers || sub->expert_count < c->experts || some_topk_is_smaller(sub, c, batch);
    return smaller && rng_uniform((struct rng_key){seed, RNG_DISTILL}, (u32)step, (u32)batch->slice, 0, 0) < s->distill;
}
