#include "cli/cli.h"
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

static int unknown_bench(const char *name)
{
    struct buffer known = {0};
    for (const struct bench *b = benches; b->name; b++)
        buffer_printf(&known, " %s", b->name);
    buffer_printf(&known, " op");
    error_usage("weft bench: there is no \"%s\"; known:%s", name, known.data);
    buffer_release(&known);
    return command_failed();
}

static void print_names(void)
{
    printf("\n");
    for (const struct bench *b = benches; b->name; b++)
        printf("  %-28s %s\n", b->name, b->summary);
    printf("  %-28s %s\n", "op [OP|all]", "time, GFLOP/s and GB/s of an op; without OP: list all ops");
}

static int refuse_more(const char *name)
{
    error_usage("weft bench %s: only `weft bench op` accepts arguments after the name", name);
    return command_failed();
}

static int run_benches(const char *name, bool json)
{
    bool found = false, all = strcmp(name, "all") == 0;
    for (const struct bench *b = benches; b->name; b++) {
        if (all ? b->on_gpu && cli_device()->backend == BACKEND_CPU : strcmp(name, b->name) != 0)
            continue;
        found = true;
        if (b->run(cli_device(), json))
            return command_failed();
    }
    return found ? 0 : unknown_bench(name);
}

static int run_op(struct op_bench *op, const struct arguments *a, const char *variant)
{
    int status = 0;
    op->name = a->count > 1 ? a->positional[1] : NULL;
    op->variant = option_integer(variant, "variant", 0, 0, 1 << 16, &status);
    return status || bench_op(cli_device(), op) ? command_failed() : 0;
}

int command_bench(int argc, char **argv)
{
    const char *variant = NULL;
    struct op_bench op = {0};
    struct arguments a;
    const struct option options[] = {
        {"json", NULL, NULL, &op.json, "print one JSON object per line"},
        {"dtype", "f32|bf16", &op.dtype, NULL, "op: dtype of activations (default bf16 where fast, else f32)"},
        {"shape", "RxC[xD]", &op.shape, NULL, "op: rows, columns and depth (default: as in training)"},
        {"variant", "N", &variant, NULL, "op: variant of its case (default 0)"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 2);
    if (status > 0 && argc > 1) /* not when only the options are queried */
        print_names();
    if (status)
        return status < 0 ? command_failed() : 0;
    if (strcmp(a.positional[0], "op") == 0)
        return run_op(&op, &a, variant);
    if (a.count > 1 || op.dtype || op.shape || variant)
        return refuse_more(a.positional[0]);
    return run_benches(a.positional[0], op.json);
}
