#include "cli/generate/generation.h"

int generation_parse(struct generation_arguments *r, const char *command, double temperature)
{
    int status = 0;
    if (r->greedy && (r->temperature || r->top_p))
        return error_usage("weft %s: --greedy draws nothing: leave --temperature and --top-p out", command);
    r->seed_number = option_integer(r->seed, "seed", 1, 0, INT64_MAX, &status);
    r->most_ids = option_integer(r->most, "max-tokens", 0, 1, 1 << 20, &status);
    r->temperature_number = option_number(r->temperature, "temperature", r->greedy ? 0 : temperature, 0, 100, &status);
    r->top_p_number = option_number(r->top_p, "top-p", 1, 0, 1, &status);
    r->source.dtype = DTYPE_OTHER;
    return status ? status : option_weights(&r->source, r->weights);
}

int generation_open(struct generation *g, struct generator *s, const struct generation_arguments *r)
{
    *g = (struct generation){0};
    arena_open(&g->arena, 64 << 20);
    g->options = (struct generator_options){
        .sampling = {(float)r->temperature_number, (float)r->top_p_number, 0, {(u64)r->seed_number, RNG_SAMPLING}},
        .sub = &g->sub};
    return submodel_parse(&g->sub, &g->arena, &r->sub, &s->model);
}

void generation_close(struct generation *g)
{
    arena_close(&g->arena);
}
