#include "cli/cli.h"
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

static int unknown_bench(const char *name)
{
    struct text known = {0};
    for (const struct bench *b = benches; b->name; b++)
        text_printf(&known, " %s", b->name);
    error_usage("weft bench: there is no \"%s\"; known:%s", name, known.data);
    text_release(&known);
    return command_failed();
}

int command_bench(int argc, char **argv)
{
    bool json = false, found = false;
    struct arguments a;
    const struct option options[] = {{"json", NULL, NULL, &json, "one JSON object a line"}, {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status)
        return status < 0 ? command_failed() : 0;
    for (const struct bench *b = benches; b->name; b++) {
        if (strcmp(a.positional[0], "all") != 0 && strcmp(a.positional[0], b->name) != 0)
            continue;
        found = true;
        if (b->run(cli_device(), json))
            return command_failed();
    }
    return found ? 0 : unknown_bench(a.positional[0]);
}

int command_doctor(int argc, char **argv)
{
    struct arguments a;
    const struct option options[] = {{NULL}};
    int status = options_parse(&a, argc, argv, options, 0, 0);
    if (status)
        return status < 0 ? command_failed() : 0;
    struct device *device = cli_device();
    printf("device        %s, %d workers\n", device_name(device), workers_count());
    printf("f32 peak      %.0f GFLOP/s (2048^3)\n", kernels_matrix_peak(device, 2048, DTYPE_F32, 1));
    if (device->has_bf16)
        printf("bf16 peak     %.0f GFLOP/s (2048^3)\n", kernels_matrix_peak(device, 2048, DTYPE_BF16, 1));
    printf("precision     auto is %s\n", device->has_bf16 ? "bf16" : "f32");
#ifdef WEFT_WITH_MPI
    printf("ranks         MPI\n");
#else
    printf("ranks         one (built without MPI)\n");
#endif
    return 0;
}
