#include "bench/bench.h"
#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>

const struct bench benches[] = {
    {"step", "CPU training step, relative to the peak from registers and to a product", bench_step},
    {"profile", "time per op of the training step", bench_profile},
    {"workers", "simulated scaling of the step to more cores, next to this machine's speed-up", bench_workers},
    {"experts", "training step with 256 experts relative to 32, per token", bench_experts},
    {"attention", "attention over packed samples and bidirectional blocks, relative to one causal sample",
     bench_attention},
    {"grouped", "grouped gemms of MoE layers, forward and backward, relative to the peak from registers, or the GPU's",
     bench_grouped},
    {"codecs", "training steps of the vision and audio tokenizers, relative to the peak from registers, or the GPU's",
     bench_codecs},
    {"bpe", "byte-level BPE training and encoding, 1 thread", bench_bpe},
    {"tokenizers", "encoding with tokenizers of other models, 1 thread", bench_tokenizers},
    {"checkpoint", "checkpoint write, relative to copying as many bytes", bench_checkpoint},
    {"decode", "text decoding: prefill, and single-token steps relative to memory bandwidth", bench_decode},
    {"decode-int8", "decode with int8 weights", bench_decode_int8},
    {"decode-int4", "decode with int4 weights", bench_decode_int4},
    {"decode-large", "decode with models that fill a GPU", bench_decode_large, true},
    {"video", "video and audio decoding, relative to ffmpeg", bench_video},
    {"loader", "time a training step waits for data, relative to the whole step", bench_loader},
    {"large", "training steps of models that fill a GPU, relative to its peak", bench_large, true},
    {"roofline", "calculated roofline of the steps of large and decode-large on an H200, per op", bench_roofline},
    {"memory", "memory of training steps: measured, relative to the meta backend's estimate", bench_memory},
    {NULL},
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

char *bench_folder(void)
{
    const char *place = getenv("TMPDIR");
    char *path = path_join(place ? place : "/tmp", "weft-bench"), *folder = directory_make_beside(path);
    memory_free(path);
    return folder;
}

const char *bench_peak(const struct device *device)
{
    return device->backend == BACKEND_CUDA ? "the GPU's peak" : "peak from registers";
}

double bench_median(double *values, i64 count)
{
    qsort(values, (size_t)count, sizeof values[0], ascending);
    return values[count / 2];
}

void bench_print(const struct bench_row *row, bool json)
{
    double ratio = row->reference > 0 ? row->value / row->reference : 0;
    if (!json) {
        printf("%-10s %-44s %10.1f %-9s", row->name, row->what, row->value, row->unit);
        if (row->reference > 0)
            printf(" %.3f of %s (%.1f)", ratio, row->against, row->reference);
        if (row->reference > 0 && row->goal > 0)
            printf(", goal %s %.2f", row->less ? "<=" : ">=", row->goal);
        printf("%s%s\n", row->note ? "  " : "", row->note ? row->note : "");
        return;
    }
    struct buffer line = {0};
    struct json *j = json_object();
    json_set(j, "name", json_of_string(row->name));
    json_set(j, "what", json_of_string(row->what));
    json_set(j, "value", json_of_number(row->value));
    json_set(j, "unit", json_of_string(row->unit));
    json_set(j, "against", json_of_string(row->against));
    if (row->reference > 0)
        json_set(j, "ratio", json_of_number(ratio));
    if (row->goal > 0)
        json_set(j, "goal", json_of_number(row->goal));
    if (row->less)
        json_set(j, "less", json_of_bool(true));
    if (row->note)
        json_set(j, "note", json_of_string(row->note));
    json_print(&line, j, 0);
    printf("%s\n", line.data);
    buffer_release(&line);
    json_free(j);
}
