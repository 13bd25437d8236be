/* Which drawn sub-models the full model teaches. */
#include "elastic/elastic.h"

bool elastic_is_taught(const struct elastic_settings *s, const struct submodel *sub, const struct model_config *c,
                       u64 seed, i64 step, const struct batch *batch)
{
    bool smaller = false;
    for (i64 i = 0; i < batch->n && !smaller; i++)
        smaller = batch->sample[i] >= 0 && submodel_is_smaller(sub, c, batch->sample[i]);
    return smaller && rng_uniform((struct rng_key){seed, RNG_DISTILL}, (u32)step, (u32)batch->slice, 0, 0) < s->distill;
}
