/* cases: what every op of kernels.h computes, said once, for all backends. A case describes its operands (setup), calls
 * the op (call), and says in plain loops in double what the outputs are (reference) or what they are derivatives of
 * (objective: each gradient is checked by central differences of it). Tests check all cases on each device, `weft bench
 * op` times them.
 *
 * Setup, reference and objective see `values`: doubles that hold exactly what the op's memory holds. Values that decide
 * something (an id, a sign, the nearest word) are drawn so that float and double decide alike; what equal ones give is
 * part of the op's contract, and a case draws some. */
#ifndef WEFT_CASES_H
#define WEFT_CASES_H
#include "kernels/kernels.h"

enum { OPERANDS_MAX = 20 };
enum role { INPUT, OUTPUT, UPDATED /* read and written */ };

struct operand {
    const char *name;
    enum dtype dtype;
    enum role role;
    i64 rows, columns, stride;
    int input;      /* of a gradient: the operand it is the derivative by; -1 elsewhere */
    void *data;     /* device memory [rows, stride], between op_put and op_leave */
    void *before;   /* the same on the host: what is put */
    void *image;    /* what was got */
    double *values; /* [rows, columns] */
};

/* Nominal: a setup derives its own shapes from them. depth is a third size where an op has one, as K of a product. */
struct op_shape {
    i64 rows, columns, depth;
};

struct op_run {
    i64 rows, columns, depth;
    enum dtype dtype;   /* of activations */
    int variant, shape; /* numbers among those of the case */
    i64 gap;            /* unused elements between rows */
    int count;
    struct operand operands[OPERANDS_MAX];
};

/* What makes no difference to a case and is not tried twice. */
enum { ONE_DTYPE = 1, NO_GAPS = 2 };

struct op_case {
    const char *name; /* of the op */
    int variants;     /* 0 counts as 1; op_run.variant says which */
    void (*setup)(struct op_run *run);
    void (*call)(struct device *device, struct op_run *run);
    void (*reference)(struct op_run *run);
    double (*objective)(struct op_run *run, i64 begin, i64 end); /* the share of rows [begin, end) in it */
    struct op_shape usual;                                       /* as training has it: what is timed */
    i64 depth_step;                                              /* depth is a multiple of it; 0: the op has none */
    unsigned alike;                                              /* ONE_DTYPE, NO_GAPS */
    const struct op_shape *shapes; /* to be checked, ending with rows -1; NULL: those all row-wise ops take */
    double bf16_slack, f32_slack;  /* of ops that round inside: error allowed, of the largest value */
    bool cancels;                  /* sums of values around 1 of which nothing may remain */
    bool multiplies;               /* matrices: costs flops */
};

/* All cases in the order of WEFT_OPS' families; NULL past the last. */
const struct op_case *case_at(i64 index);
const struct op_case *case_find(const char *name); /* NULL: none */

/* ---- Operands: called by setups; each returns the operand's index ---- */
/* Filled with numbers in [-2, 2); memory without gaps has `gap` 0. */
int op_operand(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 rows, i64 columns, i64 gap);
int op_matrix(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns); /* of activations */
int op_floats(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns); /* F32 with gaps */
int op_array(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 count);
/* An output becomes what arrives for it in the backward op: an input of that name, filled as such. */
void op_arriving(struct op_run *run, int index, const char *name);
/* The derivative of the objective by `input`; UPDATED: it adds to what stands there. */
int op_gradient(struct op_run *run, const char *name, enum role role, enum dtype dtype, int input);
struct matrix op_as_matrix(const struct op_run *run, int index);
void *op_data(const struct op_run *run, int index);
double *op_values(const struct op_run *run, int index);
double op_random(i64 a, i64 b, i64 c);                                   /* [-2, 2) */
i64 op_below(i64 bound, i64 a, i64 b);                                   /* 0 .. bound - 1 */
double op_round(double value, enum dtype dtype);                         /* as memory of this type holds it */
void op_round_all(struct op_run *run, int index);                        /* where something follows from these values */
void op_fill_below(struct op_run *run, int index, i64 bound, i64 first); /* whole numbers first .. first + bound - 1 */
/* For references of several ops. */
double softplus(double x);
double log_sum_exp(const double *x, i64 n);

/* ---- Running a case ---- */
void op_open(struct op_run *run, const struct op_case *c); /* rows, columns, depth, dtype, variant and gap are set */
void op_put(struct op_run *run, struct device *device);    /* operands to device memory, once more if called again */
void op_get(struct op_run *run, struct device *device);    /* outputs into the images */
void op_leave(struct op_run *run, struct device *device);  /* frees device memory: another device may follow */
void op_release(struct op_run *run, struct device *device);
double operand_at(const struct operand *o, i64 row, i64 column);     /* of its image */
double operand_before(const struct operand *o, i64 row, i64 column); /* of what is put */
i64 operand_bytes(const struct operand *o);

/* ---- Checking ---- */
struct check_scope {
    bool few;     /* the shapes of a slow device, in turn */
    bool in_turn; /* dtypes and gaps, half of what there is; not each with each */
    bool bf16;    /* alone */
    bool workers; /* of the CPU: the same bits from 1, 2 and 4 */
    bool sparse;  /* not each variant with each shape */
};
struct check {
    struct device *device;
    struct check_scope scope;
};
/* Every variant, dtype and shape: outputs, gradients, gaps and inputs untouched, the same bits twice; of the meta
 * backend what it counts. -1 and a message that names the first wrong element. */
int case_check(const struct op_case *c, struct device *device, const struct check_scope *scope);
/* Several devices against the same references: each in its scope. */
int case_check_each(const struct op_case *c, const struct check *checks, i64 count);
/* Hands `see` every run that case_check would make; stops and returns -1 when it does. */
int case_each(const struct op_case *c, const struct check_scope *scope,
              int (*see)(const struct op_case *c, struct op_run *run, void *context), void *context);

/* ---- Families: each ends with a NULL name ---- */
extern const struct op_case product_cases[], few_cases[], fp8_cases[], conv_cases[], row_cases[], element_cases[],
    attention_cases[], expert_cases[], loss_cases[], optimizer_cases[], sampling_cases[], policy_cases[],
    picture_cases[], code_cases[], sound_cases[];

#endif
