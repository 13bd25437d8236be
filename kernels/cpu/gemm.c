/* The only file that knows oneDNN. Its C API changed between 2.x and 3.x; both build here.
 * Each thread keeps its own primitives and memory objects, so an execution takes no lock. */
#include "kernels/cpu/cpu.h"

#include <dnnl.h>
#include <stdlib.h>

extern void omp_set_num_threads(int) __attribute__((weak)); /* of the OpenMP runtime oneDNN may be built with */

struct product {
    struct gemm key;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
    struct product *next;
};
enum { BUCKETS = 1024 };
static _Thread_local struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct product *buckets[BUCKETS];
} local;

static void check(dnnl_status_t status, const char *what)
{
    require(status == dnnl_success, "oneDNN: %s failed with status %d", what, (int)status);
}

static void open_thread(void)
{
    if (omp_set_num_threads)
        omp_set_num_threads(1);
    check(dnnl_engine_create(&local.engine, dnnl_cpu, 0), "dnnl_engine_create");
    check(dnnl_stream_create(&local.stream, local.engine, dnnl_stream_default_flags), "dnnl_stream_create");
}

static dnnl_data_type_t data_type(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Strides of a [rows, columns] operand that lies transposed in memory, or not. */
static void operand(dnnl_dims_t dims, dnnl_dims_t strides, i64 rows, i64 columns, i64 leading, bool transposed)
{
    dims[0] = rows;
    dims[1] = columns;
    strides[0] = transposed ? 1 : leading;
    strides[1] = transposed ? leading : 1;
}

static dnnl_primitive_attr_t attributes(bool add)
{
    dnnl_primitive_attr_t attr;
    check(dnnl_primitive_attr_create(&attr), "dnnl_primitive_attr_create");
    if (add) {
        dnnl_post_ops_t ops;
        check(dnnl_post_ops_create(&ops), "dnnl_post_ops_create");
#if DNNL_VERSION_MAJOR >= 3
        check(dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef), "dnnl_post_ops_append_sum");
#else
        check(dnnl_post_ops_append_sum(ops, 1.0f), "dnnl_post_ops_append_sum");
#endif
        check(dnnl_primitive_attr_set_post_ops(attr, ops), "dnnl_primitive_attr_set_post_ops");
        dnnl_post_ops_destroy(ops);
    }
    return attr;
}

#if DNNL_VERSION_MAJOR >= 3
static void build(struct product *p, dnnl_dims_t *dims, dnnl_dims_t *strides, dnnl_primitive_attr_t attr)
{
    const dnnl_data_type_t types[3] = {data_type(p->key.dtype), data_type(p->key.dtype), data_type(p->key.out_dtype)};
    dnnl_memory_t *memories[3] = {&p->a, &p->b, &p->c};
    dnnl_memory_desc_t descs[3];
    dnnl_primitive_desc_t desc;
    for (int i = 0; i < 3; i++)
        check(dnnl_memory_desc_create_with_strides(&descs[i], 2, dims[i], types[i], strides[i]), "memory descriptor");
    check(dnnl_matmul_primitive_desc_create(&desc, local.engine, descs[0], descs[1], NULL, descs[2], attr), "matmul");
    check(dnnl_primitive_create(&p->primitive, desc), "dnnl_primitive_create");
    dnnl_primitive_desc_destroy(desc);
    for (int i = 0; i < 3; i++) {
        check(dnnl_memory_create(memories[i], descs[i], local.engine, DNNL_MEMORY_NONE), "dnnl_memory_create");
        dnnl_memory_desc_destroy(descs[i]);
    }
}
#else
static void build(struct product *p, dnnl_dims_t *dims, dnnl_dims_t *strides, dnnl_primitive_attr_t attr)
{
    const dnnl_data_type_t types[3] = {data_type(p->key.dtype), data_type(p->key.dtype), data_type(p->key.out_dtype)};
    dnnl_memory_t *memories[3] = {&p->a, &p->b, &p->c};
    dnnl_memory_desc_t descs[3];
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t desc;
    for (int i = 0; i < 3; i++)
        check(dnnl_memory_desc_init_by_strides(&descs[i], 2, dims[i], types[i], strides[i]), "memory descriptor");
    check(dnnl_matmul_desc_init(&matmul, &descs[0], &descs[1], NULL, &descs[2]), "dnnl_matmul_desc_init");
    check(dnnl_primitive_desc_create(&desc, &matmul, attr, local.engine, NULL), "matmul");
    check(dnnl_primitive_create(&p->primitive, desc), "dnnl_primitive_create");
    dnnl_primitive_desc_destroy(desc);
    for (int i = 0; i < 3; i++)
        check(dnnl_memory_create(memories[i], &descs[i], local.engine, DNNL_MEMORY_NONE), "dnnl_memory_create");
}
#endif

static struct product *make_product(const struct gemm *g)
{
    struct product *p = memory_alloc(sizeof *p);
    dnnl_dims_t dims[3], strides[3];
    p->key = *g;
    operand(dims[0], strides[0], g->m, g->k, g->lda, g->transpose_a);
    operand(dims[1], strides[1], g->k, g->n, g->ldb, g->transpose_b);
    operand(dims[2], strides[2], g->m, g->n, g->ldc, false);
    dnnl_primitive_attr_t attr = attributes(g->add);
    build(p, dims, strides, attr);
    dnnl_primitive_attr_destroy(attr);
    cpu_primitives++;
    return p;
}

static bool same(const struct gemm *a, const struct gemm *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc &&
           a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b && a->add == b->add &&
           a->dtype == b->dtype && a->out_dtype == b->out_dtype;
}

static struct product *find_product(const struct gemm *g)
{
    u64 hash = (u64)g->m * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (u64)g->n) * 0xff51afd7ed558ccdu;
    hash = (hash ^ (u64)g->k ^ (u64)g->lda << 20 ^ (u64)g->ldb << 40) * 0xc4ceb9fe1a85ec53u;
    hash ^= hash >> 29 ^ (u64)(g->transpose_a * 8 + g->transpose_b * 4 + g->add * 2 + (g->dtype == DTYPE_BF16));
    struct product **bucket = &local.buckets[hash % BUCKETS];
    for (struct product *p = *bucket; p; p = p->next)
        if (same(&p->key, g))
            return p;
    struct product *p = make_product(g);
    p->next = *bucket;
    *bucket = p;
    return p;
}

void CPU(gemm)(void *c, const void *a, const void *b, const struct gemm *gemm)
{
    if (!local.engine)
        open_thread();
    struct product *p = find_product(gemm);
    dnnl_memory_set_data_handle(p->a, (void *)(uintptr_t)a);
    dnnl_memory_set_data_handle(p->b, (void *)(uintptr_t)b);
    dnnl_memory_set_data_handle(p->c, c);
    const dnnl_exec_arg_t arguments[3] = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    check(dnnl_primitive_execute(p->primitive, local.stream, 3, arguments), "dnnl_primitive_execute");
}

void *CPU(scratch)(int worker, int slot, i64 bytes)
{
    enum { WORKERS_MAX = 256, SLOTS = 8 };
    static struct {
        void *data;
        i64 bytes;
    } blocks[WORKERS_MAX][SLOTS];
    require(worker < WORKERS_MAX && slot < SLOTS, "scratch %d of worker %d", slot, worker);
    if (blocks[worker][slot].bytes < bytes) {
        memory_free(blocks[worker][slot].data);
        blocks[worker][slot].data = memory_alloc(bytes);
        cpu_scratch_bytes += bytes - blocks[worker][slot].bytes;
        blocks[worker][slot].bytes = bytes;
    }
    return blocks[worker][slot].data;
}
