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
        {"ranks", "N", &ranks, NULL, "number of ranks (default 1, or those of --cluster)"},
        LAYOUT_OPTION(plan.layout),
        {"cluster", "FILE", &plan.cluster, NULL, "plan the time of a step on these ranks (`weft doctor --ranks`)"},
        {"search", NULL, NULL, &plan.search, "with --cluster: list all layouts that fit, the fastest first"},
        {"gpu", NULL, NULL, &plan.gpu, "estimate memory for a GPU, Hopper or newer"},
        {"gflops", "N", &gflops, NULL, "GFLOP/s per rank; adds the training time"},
        {"gbytes", "N", &gbytes, NULL, "GB/s sent per rank; with --gflops, adds the time of gradient reduction"},
        {"memory", "GB", &memory, NULL,
         "memory of a machine, or with --gpu of a GPU, that the verdict goes by (default: that of this one)"},
        {"json", NULL, NULL, &plan.json,
         "print one JSON object per stage, the sum over runs of a recipe with arms or seeds, and the verdict"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 64);
    plan.ranks = ranks ? option_integer(ranks, "ranks", 1, 1, 1 << 20, &status) : 0;
    if (status == 0 && plan.search && (!plan.cluster || plan.layout))
        status = error_usage("weft plan: --search tries all layouts of a cluster: expected --cluster FILE, and no "
                             "--layout");
    if (status == 0 && plan.cluster && (plan.gpu || gflops || gbytes || memory))
        status = error_usage("weft plan: --cluster has speeds and memory of its own: expected no --gpu, --gflops, "
                             "--gbytes and --memory");
    plan.ranks = plan.ranks || plan.cluster ? plan.ranks : 1;
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
