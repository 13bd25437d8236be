#include "cli/generate/generation.h"

int generation_take(struct generation_settings *s, const char *command, double usual)
{
    if (s->greedy && (s->temperature != usual || s->top_p != 1))
        return error_usage("weft %s: --greedy draws nothing: leave --temperature and --top-p out", command);
    s->temperature = s->greedy ? 0 : s->temperature;
    s->source = (struct model_source){.directory = s->from, .dtype = DTYPE_OTHER};
    model_source_take(&s->source, s->weights);
    return 0;
}

int generation_open(struct generation *g, struct generator *s, const struct generation_settings *r)
{
    *g = (struct generation){0};
    arena_open(&g->arena, 64 << 20);
    g->options = (struct generator_options){
        .sampling = {(float)r->temperature, (float)r->top_p, 0, {(u64)r->seed, RNG_SAMPLING}}, .sub = &g->sub};
    return submodel_parse(&g->sub, &g->arena, &r->sub, &s->model);
}

void generation_close(struct generation *g)
{
    arena_close(&g->arena);
}
