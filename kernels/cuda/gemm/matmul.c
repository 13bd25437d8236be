/* Dense gemm with cuBLASLt; no other file uses the library. cuBLASLt is column-major, where a
 * row-major matrix is its own transpose. The call therefore computes out^T = op(b)^T op(a)^T, and
 * nothing is copied.
 *
 * By default the first algorithm of cuBLASLt's heuristic is used. It depends only on the shape and
 * has a fixed order of sums, so bits are the same in every run; split-K partial sums are added in
 * f32. With WEFT_TUNE=1 in the environment, the first gemm of a shape times TUNED_MOST algorithms
 * and keeps the fastest while the device is open. Bits then stay the same for that time, but the
 * fastest algorithm, and with it the rounding, may differ from run to run, also after a resume. A
 * gemm that cannot be timed (during a recording, or without memory for a second output) uses the
 * default.
 *
 * matmul_plain.cu handles gemms that cuBLASLt refuses and gemms with K = 0. */
#include "core/library.h"
#include "kernels/cuda/cuda.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#ifndef CUBLASLT_FILES /* the emulated GPU links its own cuBLASLt */
#define CUBLASLT_NAME(major) "libcublasLt.so." #major
#define CUBLASLT_OF(major) CUBLASLT_NAME(major)
#define CUBLASLT_FILES CUBLASLT_OF(CUBLAS_VER_MAJOR), WEFT_CUDA_LIBRARIES "/" CUBLASLT_OF(CUBLAS_VER_MAJOR)
#endif
/* clang-format off */
#define CUBLASLT(F) \
    F(cublasLtGetVersion) F(cublasLtCreate) F(cublasLtDestroy) F(cublasLtMatmul) F(cublasLtMatmulAlgoGetHeuristic) \
    F(cublasLtMatmulDescCreate) F(cublasLtMatmulDescDestroy) F(cublasLtMatmulDescSetAttribute) \
    F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy) F(cublasLtMatmulPreferenceSetAttribute) \
    F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutDestroy)
/* clang-format on */
static struct {
    CUBLASLT(LIBRARY_POINTER)
} lib;

/* Key of a plan. Keys are compared as bytes, so unused bytes must be zero. */
struct matmul_shape {
    i64 m, n, k, lda, ldb, ldc; /* sizes and strides of the row-major gemm */
    i64 alignment[3];           /* out, a, b; bytes */
    int transpose_a, transpose_b, dtype, out_dtype;
};
struct matmul_plan {
    struct matmul_shape shape;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t out, a, b;
    cublasLtMatmulAlgo_t algorithm;
    bool refused; /* cuBLASLt refused it */
    struct matmul_plan *next;
};
enum { BUCKETS = 256, TUNED_MOST = 8, TIMED_RUNS = 2 };
struct cuda_blas {
    cublasLtHandle_t handle;
    struct matmul_plan *buckets[BUCKETS];
    bool tunes, has_warned; /* a refusal was logged */
};
struct gemm_algorithms { /* the heuristic's first choice comes first */
    cublasLtMatmulHeuristicResult_t at[TUNED_MOST];
    int count;
};
struct gemm_operands {
    void *out;
    const void *a, *b;
    float beta; /* out = a b + beta out */
};

static void check(cublasStatus_t status, const char *what)
{
    require(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: %s failed with status %d", what, (int)status);
}

static bool is_refused(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

static int open_library(void)
{
    static const struct library_function functions[] = {CUBLASLT(LIBRARY_FUNCTION)};
    const char *const files[] = {CUBLASLT_FILES};
    if (library_open(functions, COUNT_OF(functions), files, COUNT_OF(files)) == 0)
        return 0;
    return error_prefix("products on a GPU are cuBLASLt's, of CUDA's major version %d: install it (cuBLAS of CUDA's "
                        "toolkit, or `pip install nvidia-cublas`) and put its folder into LD_LIBRARY_PATH",
                        CUDART_VERSION / 1000);
}

size_t cuda_blas_version(void)
{
    static bool opened;
    opened = opened || open_library() == 0;
    return opened ? lib.cublasLtGetVersion() : 0;
}

struct cuda_blas *cuda_blas_open(void)
{
    struct cuda_blas *blas = memory_alloc(sizeof *blas);
    const char *wanted = getenv("WEFT_TUNE");
    blas->tunes = wanted && strcmp(wanted, "1") == 0;
    check(lib.cublasLtCreate(&blas->handle), "cublasLtCreate");
    return blas;
}

void cuda_blas_close(struct cuda_blas *blas)
{
    for (i64 i = 0; i < BUCKETS; i++)
        for (struct matmul_plan *p = blas->buckets[i], *next; p; p = next) {
            next = p->next;
            lib.cublasLtMatmulDescDestroy(p->operation);
            lib.cublasLtMatrixLayoutDestroy(p->out);
            lib.cublasLtMatrixLayoutDestroy(p->a);
            lib.cublasLtMatrixLayoutDestroy(p->b);
            memory_free(p);
        }
    check(lib.cublasLtDestroy(blas->handle), "cublasLtDestroy");
    memory_free(blas);
}

static cudaDataType_t data_type(int dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static i64 alignment_of(struct matrix m)
{
    uintptr_t bits = (uintptr_t)m.data | (uintptr_t)(m.stride * dtype_bytes(m.dtype)) | 256;
    return (i64)(bits & -bits);
}

/* Column-major layout of a row-major [rows, columns] operand. */
static cublasLtMatrixLayout_t layout(int dtype, i64 rows, i64 columns, i64 stride)
{
    cublasLtMatrixLayout_t out;
    check(lib.cublasLtMatrixLayoutCreate(&out, data_type(dtype), (u64)columns, (u64)rows, stride), "layout");
    return out;
}

/* Asks the heuristic for algorithms. Returns CUBLAS_STATUS_SUCCESS, or the reason why there is
 * none. */
static cublasStatus_t find_algorithms(struct gemm_algorithms *found, int wanted_count, const struct matmul_plan *p,
                                      cublasLtHandle_t handle, i64 workspace_bytes)
{
    cublasLtMatmulPreference_t preference;
    size_t workspace = (size_t)workspace_bytes;
    u32 out = (u32)p->shape.alignment[0], a = (u32)p->shape.alignment[1], b = (u32)p->shape.alignment[2];
    const u32 schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* or no split, which has no bit in the mask */
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } wanted[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out},
    };
    check(lib.cublasLtMatmulPreferenceCreate(&preference), "preference");
    for (i64 i = 0; i < COUNT_OF(wanted); i++)
        check(
            lib.cublasLtMatmulPreferenceSetAttribute(preference, wanted[i].attribute, wanted[i].value, wanted[i].bytes),
            "preference");
    cublasStatus_t status = lib.cublasLtMatmulAlgoGetHeuristic(handle, p->operation, p->b, p->a, p->out, p->out,
                                                               preference, wanted_count, found->at, &found->count);
    lib.cublasLtMatmulPreferenceDestroy(preference);
    return status == CUBLAS_STATUS_SUCCESS && found->count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

static struct matmul_plan *make_plan(const struct matmul_shape *s)
{
    struct matmul_plan *p = memory_alloc(sizeof *p);
    cublasOperation_t left = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    p->shape = *s;
    check(lib.cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    check(lib.cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left),
          "transpose");
    check(lib.cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right),
          "transpose");
    p->out = layout(s->out_dtype, s->m, s->n, s->ldc);
    p->a = layout(s->dtype, s->transpose_a ? s->k : s->m, s->transpose_a ? s->m : s->k, s->lda);
    p->b = layout(s->dtype, s->transpose_b ? s->n : s->k, s->transpose_b ? s->k : s->n, s->ldb);
    return p;
}

static cublasStatus_t multiply(struct device *device, const struct matmul_plan *p,
                               const cublasLtMatmulAlgo_t *algorithm, struct gemm_operands o)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    float one = 1;
    cuda_count_launches(device, 1);
    return lib.cublasLtMatmul(handles->blas->handle, p->operation, &one, o.b, p->b, o.a, p->a, &o.beta, o.out, p->out,
                              o.out, p->out, algorithm, handles->workspace, (size_t)handles->workspace_bytes,
                              cuda_queue_of(device));
}

/* ---- Tuning ---- */

/* Time of TIMED_RUNS runs after one warm-up run; infinite if the algorithm is refused. */
static float time_of(struct device *device, const struct matmul_plan *p, const cublasLtMatmulAlgo_t *algorithm,
                     struct gemm_operands o, cudaEvent_t begin, cudaEvent_t end)
{
    float ms;
    if (multiply(device, p, algorithm, o) != CUBLAS_STATUS_SUCCESS)
        return INFINITY;
    CUDA_CHECK(cudaEventRecord(begin, cuda_queue_of(device)));
    for (int i = 0; i < TIMED_RUNS; i++)
        check(multiply(device, p, algorithm, o), "cublasLtMatmul");
    CUDA_CHECK(cudaEventRecord(end, cuda_queue_of(device)));
    CUDA_CHECK(cudaEventSynchronize(end));
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms;
}

/* Times all algorithms and keeps the fastest. The operands keep their content, except an output
 * that is not added to, which the real run overwrites next. */
static void keep_fastest(struct device *device, struct matmul_plan *p, const struct gemm_algorithms *all,
                         struct gemm_operands o)
{
    const struct matmul_shape *s = &p->shape;
    size_t bytes = (size_t)(((s->m - 1) * s->ldc + s->n) * dtype_bytes((enum dtype)s->out_dtype));
    cudaEvent_t begin, end;
    void *room = NULL;
    float least = INFINITY;
    if (o.beta != 0 && cudaMalloc(&room, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    if (room) {
        CUDA_CHECK(cudaMemsetAsync(room, 0, bytes, cuda_queue_of(device)));
        o.out = room;
    }
    CUDA_CHECK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    for (int i = 0; i < all->count; i++) {
        float ms = time_of(device, p, &all->at[i].algo, o, begin, end);
        if (ms < least)
            p->algorithm = all->at[i].algo;
        least = fminf(least, ms);
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    if (room)
        CUDA_CHECK(cudaFree(room));
}

static void refuse(struct cuda_blas *blas, struct matmul_plan *p, cublasStatus_t status)
{
    const struct matmul_shape *s = &p->shape;
    p->refused = true;
    if (!blas->has_warned)
        log_warn("cuBLASLt has no product [%lld,%lld,%lld] of %s (status %d): it and others that are refused are made "
                 "by a kernel that is slower",
                 (long long)s->m, (long long)s->n, (long long)s->k, dtype_name((enum dtype)s->dtype), (int)status);
    blas->has_warned = true;
}

static struct matmul_plan *find_plan(struct device *device, const struct matmul_shape *s, struct gemm_operands o)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    struct matmul_plan **bucket = &handles->blas->buckets[hash_bytes(s, sizeof *s, 0) % BUCKETS];
    for (struct matmul_plan *p = *bucket; p; p = p->next)
        if (memcmp(&p->shape, s, sizeof *s) == 0)
            return p;
    struct matmul_plan *p = make_plan(s);
    struct gemm_algorithms all = {.count = 0};
    bool tunes = handles->blas->tunes && !handles->recording;
    cublasStatus_t status =
        find_algorithms(&all, tunes ? TUNED_MOST : 1, p, handles->blas->handle, handles->workspace_bytes);
    if (is_refused(status))
        refuse(handles->blas, p, status);
    else
        check(status, "choosing an algorithm");
    p->algorithm = all.at[0].algo;
    if (all.count > 1)
        keep_fastest(device, p, &all, o);
    p->next = *bucket;
    return *bucket = p;
}

/* Runs a plan. A gemm refused during a recording is lost together with the recording. */
static void run_plan(struct device *device, struct matmul_plan *p, struct gemm_operands o)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    cublasStatus_t status = multiply(device, p, &p->algorithm, o);
    if (status != CUBLAS_STATUS_SUCCESS && handles->recording)
        handles->lost = "cuBLASLt refused a product";
    else if (is_refused(status))
        refuse(handles->blas, p, status);
    else
        check(status, "cublasLtMatmul");
}

void cuda_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                 bool transpose_b, bool add)
{
    struct matmul_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.m = transpose_a ? a.columns : a.rows;
    shape.k = transpose_a ? a.rows : a.columns;
    shape.n = transpose_b ? b.rows : b.columns;
    if (shape.m == 0 || shape.n == 0)
        return;
    shape.lda = a.stride;
    shape.ldb = b.stride;
    shape.ldc = out.stride;
    shape.alignment[0] = alignment_of(out);
    shape.alignment[1] = alignment_of(a);
    shape.alignment[2] = alignment_of(b);
    shape.transpose_a = transpose_a;
    shape.transpose_b = transpose_b;
    shape.dtype = a.dtype;
    shape.out_dtype = out.dtype;
    struct gemm_operands operands = {out.data, a.data, b.data, add ? 1 : 0};
    struct matmul_plan *p = shape.k > 0 ? find_plan(device, &shape, operands) : NULL;
    if (p && !p->refused)
        run_plan(device, p, operands);
    if (!p || p->refused)
        cuda_matmul_plain(device, out, a, transpose_a, b, transpose_b, add);
}
