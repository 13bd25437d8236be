/* weft plan RECIPE: see recipe_plan. */
#include "cli/cli.h"
#include "pipeline/pipeline.h"

int command_plan(int argc, char **argv)
{
    const char *ranks = NULL, *gflops = NULL, *gbytes = NULL, *memory = NULL;
    struct arguments a;
    struct buffer out = {0};
    struct plan_options plan = {.program_bytes = memory_private_bytes()};
    const struct option options[] = {
        {"arm", "NAME", &plan.arm, NULL, "plan only this arm of the recipe"},
        {"seed", "N", &plan.seed, NULL, "plan only this one of the recipe's seeds"},
        {"ranks", "N", &ranks, NULL, "number of ranks (default 1)"},
        LAYOUT_OPTION(plan.layout),
        {"gpu", NULL, NULL, &plan.gpu, "estimate memory for a GPU, Hopper or newer"},
        {"gflops", "N", &gflops, NULL, "GFLOP/s per rank; adds the training time"},
        {"gbytes", "N", &gbytes, NULL, "GB/s sent per rank; with --gflops, adds the time of gradient reduction"},
        {"memory", "GB", &memory, NULL,
         "memory of a machine, or with --gpu of a GPU, that the verdict goes by (default: that of this one)"},
        {"json", NULL, NULL, &plan.json,
         "print one JSON object per stage, the sum over runs of a recipe with arms or seeds, and the verdict"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 64);
    plan.ranks = option_integer(ranks, "ranks", 1, 1, 1 << 20, &status);
    plan.gflops = option_number(gflops, "gflops", 0, 1e-3, 1e12, &status);
    plan.gbytes = option_number(gbytes, "gbytes", 0, 1e-6, 1e6, &status);
    plan.memory_gb = option_number(memory, "memory", 0, 1e-3, 1e9, &status);
    if (status)
        return status < 0 ? command_failed() : 0;
    plan.words = a.positional;
    plan.word_count = a.count;
    plan.device = cli_device();
    status = recipe_plan(&out, &plan);
    output_text(out.data, out.length); /* what could be planned before an error, too */
    buffer_release(&out);
    return status ? command_failed() : 0;
}
