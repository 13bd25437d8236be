/* Implements cuBLASLt's products by the project's CPU backend. cuBLASLt is column-major: its matrix
 * of `rows` and `columns` is the row-major [columns, rows] here, and d = op(a) op(b) becomes d^T =
 * op(b)^T op(a)^T. */
#include <cublasLt.h>

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

struct emu_algorithms emu_algorithms = {.count = 1};

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *operation = calloc(1, sizeof **operation);
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    free(operation);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    if (bytes != sizeof(cublasOperation_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &operation->a : &operation->b, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t stride)
{
    *layout = malloc(sizeof **layout);
    **layout = (struct emu_blas_layout){type, rows, columns, stride};
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = malloc(sizeof **preference);
    (*preference)->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    if (bytes != (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&preference->schemes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_refused(cublasLtMatrixLayout_t layout)
{
    return layout->rows < emu_algorithms.least_dimension || layout->columns < emu_algorithms.least_dimension;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    (void)handle, (void)operation, (void)c;
    require((preference->schemes & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0,
            "cuBLASLt may round partial sums to the output's type, or add them in an order of the moment");
    *found = 0;
    if (is_refused(a) || is_refused(b) || is_refused(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    *found = wanted < emu_algorithms.count ? wanted : emu_algorithms.count;
    memset(results, 0, (size_t)*found * sizeof *results);
    for (int i = 0; i < *found; i++)
        results[i].algo.data[0] = (uint64_t)i;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- Products ---- */
struct blas_call {
    struct emu_blas_operation operation;
    struct matrix a, b, d;
    bool add;
    uint64_t algorithm;
};

/* Assigns field by field, so that padding stays zero. */
static void fill_matrix(struct matrix *out, const void *data, const struct emu_blas_layout *layout)
{
    out->data = (void *)(uintptr_t)data;
    out->dtype = layout->type == CUDA_R_32F ? DTYPE_F32 : DTYPE_BF16;
    out->rows = (i64)layout->columns;
    out->columns = (i64)layout->rows;
    out->stride = layout->stride;
}

static void copy_rows(struct matrix out, struct matrix in)
{
    i64 bytes = dtype_bytes(in.dtype);
    for (i64 row = 0; row < in.rows; row++)
        memcpy((char *)out.data + row * out.stride * bytes, (char *)in.data + row * in.stride * bytes,
               (size_t)(in.columns * bytes));
}

/* Copies a matrix to dense host memory: worker threads have no access to device memory. */
static struct matrix fetch(struct matrix in)
{
    struct matrix out = matrix_of(NULL, in.dtype, in.rows, in.columns);
    out.data = memory_alloc(max_i64(in.rows * in.columns * dtype_bytes(in.dtype), 1));
    copy_rows(out, in);
    return out;
}

static void run_product(void *context)
{
    const struct blas_call *p = context;
    struct matrix a = fetch(p->a), b = fetch(p->b), d = fetch(p->d);
    struct device cpu;
    device_open_cpu(&cpu);
    cpu.ops->matmul(&cpu, d, b, p->operation.b == CUBLAS_OP_T, a, p->operation.a == CUBLAS_OP_T, p->add);
    copy_rows(p->d, d);
    emu_algorithms.runs[p->algorithm]++;
    emu_spend(emu_algorithms.ms[p->algorithm]);
    memory_free(a.data);
    memory_free(b.data);
    memory_free(d.data);
}

static bool shapes_fit(const struct blas_call *p)
{
    bool turn_a = p->operation.a == CUBLAS_OP_T, turn_b = p->operation.b == CUBLAS_OP_T;
    i64 m = turn_a ? p->a.rows : p->a.columns, k = turn_a ? p->a.columns : p->a.rows;
    i64 n = turn_b ? p->b.columns : p->b.rows, k_of_b = turn_b ? p->b.rows : p->b.columns;
    return p->d.columns == m && p->d.rows == n && k == k_of_b && p->a.dtype == p->b.dtype;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    float scale, keep;
    (void)handle, (void)c_layout, (void)workspace, (void)workspace_bytes;
    memcpy(&scale, alpha, sizeof scale);
    memcpy(&keep, beta, sizeof keep);
    if (scale != 1 || (keep != 0 && keep != 1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (emu_algorithms.ms[algorithm->data[0]] < 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c != d || !emu_is_device(a) || !emu_is_device(b) || !emu_is_device(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    struct blas_call *p = calloc(1, sizeof *p); /* until its last run */
    p->operation = *operation;
    fill_matrix(&p->a, a, a_layout);
    fill_matrix(&p->b, b, b_layout);
    fill_matrix(&p->d, d, d_layout);
    p->add = keep == 1;
    p->algorithm = algorithm->data[0];
    if (!shapes_fit(p)) {
        free(p);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    emu_enqueue(stream, run_product, p, sizeof *p);
    return CUBLAS_STATUS_SUCCESS;
}
