/* bench: the measurements of `weft bench`. Each prints rows; a row is the ratio of a value to a
 * reference measured in the same run, with a goal.
 *
 * In: a device. Out: rows on stdout, as text or JSON. A benchmark closes what it opens.
 *
 * Where is what: bench.c lists the measurements, most in a file of their name; op.c times one op
 * against the peak of products or a copy; step.c is the training step that many share, large.c has
 * the models that fill a GPU; limits.c is the roofline, profile.c a step op by op. RESULTS.md
 * holds today's figures, TRIED.md what did not help; peers/ (pictures.c, tensor_cores.cu)
 * and the scripts measure other software. */
#ifndef WEFT_BENCH_H
#define WEFT_BENCH_H
#include "core/core.h"
#include "kernels/kernels.h"

struct bench_row {
    const char *name, *what, *unit, *against;
    double value, reference, goal; /* ratio = value / reference; reference 0: no peer, see note; goal 0: none */
    bool less;                     /* smaller is better */
    const char *note;
};
typedef int bench_fn(struct device *device, bool json);
struct bench {
    const char *name, *summary;
    bench_fn *run;
    bool on_gpu; /* `all` skips it on a CPU */
};
/* Measures one op, or all, on its case (op_cases/op_cases.h). */
struct op_bench {
    const char *name;          /* NULL: list the ops */
    const char *dtype, *shape; /* f32 or bf16; 4096x512 or 4096x512x64; NULL: as in training */
    i64 variant;
    bool json;
};
int bench_op(struct device *device, const struct op_bench *settings);
extern const struct bench benches[]; /* ends with a NULL name */
void bench_print(const struct bench_row *row, bool json);
/* Makes an empty folder in TMPDIR, a temporary (core/temporary.h). Remove it by directory_remove; NULL
 * and a message on failure. */
char *bench_folder(void);
const char *bench_peak(const struct device *device); /* what kernels_matrix_peak is on this device */
double bench_median(double *values, i64 count);      /* sorts in place */

bench_fn bench_attention, bench_bpe, bench_checkpoint, bench_codecs, bench_decode, bench_decode_int4, bench_decode_int8,
    bench_decode_large, bench_experts, bench_grouped, bench_large, bench_loader, bench_memory, bench_profile,
    bench_roofline, bench_step, bench_tokenizers, bench_video, bench_workers;

struct text_tokenizer;
int bench_read_glosses(struct buffer *out); /* glosses of the system's WordNet */
int bench_encode(double *rate, const struct text_tokenizer *tokenizer, const struct buffer *text); /* MB/s */
#endif
