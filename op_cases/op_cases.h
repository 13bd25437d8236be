/* Test cases for every op of kernels.h: one definition of each op's result, shared by all
 * backends. A case has a setup that describes the operands and a call of the op. Plain loops in
 * double give either the expected outputs (reference) or a scalar whose central differences check
 * the gradients (objective). The tests check all cases on each device; `weft bench op` times them.
 *
 * Setup, reference and objective use `values`: doubles equal to the contents of the op's memory.
 * Values that decide something (an id, a sign, the nearest codeword) are drawn so that float and
 * double decide alike. The result for ties is part of an op's contract, and cases draw some ties
 * on purpose.
 *
 * In: the name of an op. Out: its case, and for a run its operands. A run owns its operands,
 * both host images and device memory, from op_open to op_release.
 *
 * Where is what: run.c makes, uploads and downloads operands; check.c compares a device with a
 * case and names the first wrong element; each other file is the table of one family: gemm.c
 * (gemm), skinny.c, fp8.c, conv.c, attention.c, experts.c (routing), rows.c, elements.c, losses.c,
 * optimizer.c, sampling.c, policy.c, pictures.c, codes.c (codebooks), sounds.c. A new case is a
 * row there. */
#ifndef WEFT_OP_CASES_H
#define WEFT_OP_CASES_H
#include "kernels/kernels.h"

enum { OPERANDS_MAX = 20 };
enum role { INPUT, OUTPUT, UPDATED /* read and written */ };

struct operand {
    const char *name;
    enum dtype dtype;
    enum role role;
    i64 rows, columns, stride;
    int input;      /* gradient: the operand it is the derivative by; -1 for other operands */
    void *data;     /* device memory [rows, stride], between op_put and op_leave */
    void *before;   /* host image uploaded by op_put */
    void *image;    /* host image downloaded by op_get */
    double *values; /* [rows, columns] */
};

/* Nominal sizes, from which a setup derives its shapes. depth is a third size for ops that have
 * one, such as K of a gemm. */
struct op_shape {
    i64 rows, columns, depth;
};

struct op_run {
    i64 rows, columns, depth;
    enum dtype dtype;   /* dtype of activations */
    int variant, shape; /* indices among those of the case */
    i64 gap;            /* unused elements between rows */
    int count;
    struct operand operands[OPERANDS_MAX];
};

/* Dimensions that do not affect a case and are not varied. */
enum { ONE_DTYPE = 1, NO_GAPS = 2 };

struct op_case {
    const char *name; /* name of the op */
    int variants;     /* number of variants, 0 counts as 1; selected by op_run.variant */
    void (*setup)(struct op_run *run);
    void (*call)(struct device *device, struct op_run *run);
    void (*reference)(struct op_run *run);
    double (*objective)(struct op_run *run, i64 begin, i64 end); /* sum over rows [begin, end) */
    struct op_shape usual;                                       /* typical training shape, used for timing */
    i64 depth_step;                                              /* depth is a multiple of it; 0: no depth */
    unsigned alike;                                              /* ONE_DTYPE, NO_GAPS */
    const struct op_shape *shapes; /* shapes to check, ended by rows -1; NULL: those of row-wise ops */
    double bf16_slack, f32_slack;  /* ops with internal rounding: error allowed, relative to the largest value */
    bool cancels;                  /* sums of values around 1 may cancel, so the error is relative to 1 at least */
    bool multiplies;               /* a matrix op with a flop count */
};

/* All cases in the order of WEFT_OPS' families; NULL past the last. */
const struct op_case *case_at(i64 index);
const struct op_case *case_find(const char *name); /* NULL if there is none */

/* ---- Operands: for setups; each function returns the operand's index ---- */
/* Adds an operand with random values in [-2, 2) unless it is an output. `gap` unused elements
 * follow each row; 0 for contiguous memory. */
int op_operand(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 rows, i64 columns, i64 gap);
int op_matrix(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns); /* activations' dtype */
int op_floats(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns); /* F32 with gaps */
int op_array(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 count);
/* Turns an output into the arriving gradient of a backward op: an input called `name` with random
 * values. */
void op_arriving(struct op_run *run, int index, const char *name);
/* Adds the derivative of the objective by `input`. UPDATED: the op adds to the existing values. */
int op_gradient(struct op_run *run, const char *name, enum role role, enum dtype dtype, int input);
struct matrix op_as_matrix(const struct op_run *run, int index);
void *op_data(const struct op_run *run, int index);
double *op_values(const struct op_run *run, int index);
double op_random(i64 a, i64 b, i64 c);           /* [-2, 2) */
i64 op_below(i64 bound, i64 a, i64 b);           /* 0 .. bound - 1 */
double op_round(double value, enum dtype dtype); /* value rounded to this dtype */
/* Rounds values before others derive from them. */
void op_round_all(struct op_run *run, int index);
void op_fill_below(struct op_run *run, int index, i64 bound, i64 first); /* integers first .. first + bound - 1 */
/* Helpers of several references. */
double softplus(double x);
double log_sum_exp(const double *x, i64 n);

/* ---- Running a case ---- */
void op_open(struct op_run *run, const struct op_case *c); /* requires rows, columns, depth, dtype, variant and gap */
void op_put(struct op_run *run, struct device *device);    /* uploads; repeated calls restore all but inputs */
void op_get(struct op_run *run, struct device *device);    /* downloads the operands into the images */
void op_leave(struct op_run *run, struct device *device);  /* frees device memory, so that another device may follow */
void op_release(struct op_run *run, struct device *device);
double operand_at(const struct operand *o, i64 row, i64 column);     /* element of the downloaded image */
double operand_before(const struct operand *o, i64 row, i64 column); /* element of the uploaded image */
i64 operand_bytes(const struct operand *o);

/* ---- Checking ---- */
struct check_scope {
    bool small_shapes; /* shapes for slow devices; implies alternating */
    bool alternating;  /* half of the dtype and gap combinations, alternating */
    bool bf16;         /* bf16 only */
    bool workers;      /* CPU: the same bits from 1, 2 and 4 workers */
    bool sparse;       /* a subset of the variant and shape combinations */
};
struct check {
    struct device *device;
    struct check_scope scope;
};
/* Checks every variant, dtype and shape: outputs, gradients, untouched gaps and inputs, and
 * identical bits on a second run. For the meta backend it checks the counted costs. Returns -1
 * with a message that names the first wrong element. */
int case_check(const struct op_case *c, struct device *device, const struct check_scope *scope);
/* Checks several devices, each in its scope, against the same references. */
int case_check_each(const struct op_case *c, const struct check *checks, i64 count);
/* Calls `see` for every run that case_check would make. Stops and returns -1 if `see` fails. */
int case_each(const struct op_case *c, const struct check_scope *scope,
              int (*see)(const struct op_case *c, struct op_run *run, void *context), void *context);

/* ---- Families: each ends with a NULL name ---- */
extern const struct op_case gemm_cases[], skinny_cases[], fp8_cases[], conv_cases[], row_cases[], element_cases[],
    attention_cases[], expert_cases[], loss_cases[], optimizer_cases[], sampling_cases[], policy_cases[],
    picture_cases[], code_cases[], sound_cases[];

#endif
