#include "bench/bench.h"
#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>

const struct bench benches[] = {
    {"step", "CPU training step against the matrix peak", bench_step},
    {"profile", "where the step's time goes, op by op", bench_profile},
    {"workers", "the step with more cores, played from its tiles; beside it this machine's", bench_workers},
    {"experts", "the step with 256 experts against 32, a token", bench_experts},
    {"attention", "attention over packed samples and blocks against one causal sample", bench_attention},
    {"grouped", "products of a mixture's experts and their gradients against the matrix peak", bench_grouped},
    {"codecs", "training of the tokenizers of pictures and sounds against the matrix peak", bench_codecs},
    {"bpe", "training and encoding of byte-level BPE, one thread", bench_bpe},
    {"tokenizers", "encoding with tokenizers of other models, one thread", bench_tokenizers},
    {"checkpoint", "writing a checkpoint against copying its bytes", bench_checkpoint},
    {"decode", "text through the cache: prefill, and token by token", bench_decode},
    {"decode-int8", "the same with weights of 8 bits", bench_decode_int8},
    {"decode-int4", "the same with weights of 4 bits", bench_decode_int4},
    {"decode-large", "the same of models that fill a GPU", bench_decode_large, true},
    {"speculate", "the same with ids drafted ahead; of a model: speculate MODEL", NULL, .run_of = bench_speculate},
    {"video", "decoding clips and sounds against ffmpeg", bench_video},
    {"loader", "waiting for data in the step against the whole of it", bench_loader},
    {"large", "training steps of models that fill a GPU, against its matrix peak", bench_large, true},
    {"roofline", "the same steps op by op at the limits of an H200, on paper", bench_roofline},
    {"memory", "memory of training steps against what the meta backend foresees", bench_memory},
    {NULL},
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
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
    struct text line = {0};
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
    text_release(&line);
    json_free(j);
}
