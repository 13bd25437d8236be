/* Hopper's asynchronous units: boxes of the copy engine (TMA), warpgroup products (wgmma), register
 * reallocation. In early mode work runs when it is issued; in late mode when no thread can continue
 * without it. Semantics: PTX ISA 5.5 (tensors), 9.7.9.27 (cp.async.bulk), 9.7.15 (wgmma), 9.7.19.5
 * (setmaxnreg). */
#include "inside.h"

#include <cuda.h>
#include <cmath>
#include <deque>
#include <vector>

namespace emu
{
enum { UNWRITTEN = 0xff, BOX_ROW_BYTES = 128, ELEMENT_BYTES = 2, BOX_COLUMNS = BOX_ROW_BYTES / ELEMENT_BYTES };
enum { DEPTH_MOST = 32 /* k of one product */ };

static uint64_t swizzle(uint64_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* ---- The copy engine ---- */
struct box {
    uint64_t shared;
    CUtensorMap map;
    int at[3];

    int rows() const { return map.box[1] * map.box[2]; }
    int bytes() const { return rows() * BOX_ROW_BYTES; }
    int columns() const { return BOX_ROW_BYTES / map.element_bytes; }
};

static box box_of(const void *shared, const CUtensorMap *map, int column, int row, int outer)
{
    if ((uintptr_t)shared % 1024)
        fault("a box at %p: swizzled boxes begin at multiples of 1024 (the bytes of dynamic shared memory too)",
              shared);
    return {shared_address(shared), *map, {column, row, outer}};
}

/* Address of a row of the box, and its bytes inside the tensor:
 * [*first, *end), empty if the row is outside. */
static char *row_of(const box &b, int row, int *first, int *end)
{
    int64_t y = b.at[1] + row % b.map.box[1], z = b.at[2] + row / b.map.box[1], left = b.map.size[0] - b.at[0];
    *first = b.at[0] < 0 ? -b.at[0] : 0;
    *end = left < b.columns() ? (int)left : b.columns();
    if (y < 0 || y >= b.map.size[1] || z < 0 || z >= b.map.size[2])
        *end = 0;
    *first *= b.map.element_bytes;
    *end *= b.map.element_bytes;
    return b.map.base + y * b.map.stride[0] + z * b.map.stride[1] + (int64_t)b.at[0] * b.map.element_bytes;
}

static void run_load(const box &b, mbarrier *barrier)
{
    for (int row = 0, first, end; row < b.rows(); row++) {
        const char *from = row_of(b, row, &first, &end);
        for (int byte = 0; byte < BOX_ROW_BYTES; byte++) {
            uint64_t to = swizzle(b.shared + (uint64_t)(row * BOX_ROW_BYTES + byte));
            char value = byte >= first && byte < end ? from[byte] : 0;
            *(char *)shared_at(to) = *(char *)engine_at(to) = value;
        }
    }
    mbarrier_take_bytes(barrier, b.bytes());
}

void load_box(void *shared, const CUtensorMap *map, uint64_t *barrier, int column, int row, int outer)
{
    unseen whole;
    must_have_waited("a box is loaded");
    box b = box_of(shared, map, column, row, outer);
    mbarrier *to_tell = mbarrier_seen_by_engine(barrier);
    if (!happens_later()) {
        run_load(b, to_tell);
        return;
    }
    memset(shared, UNWRITTEN, (size_t)b.bytes());
    memset(engine_at(b.shared), UNWRITTEN, (size_t)b.bytes());
    defer([b, to_tell] { run_load(b, to_tell); });
}

static void run_store(const box &b)
{
    for (int row = 0, first, end; row < b.rows(); row++) {
        char *to = row_of(b, row, &first, &end);
        for (int byte = first; byte < end; byte++)
            to[byte] = *(char *)engine_at(swizzle(b.shared + (uint64_t)(row * BOX_ROW_BYTES + byte)));
    }
}

struct store {
    box to;
    bool happened;
};
static std::deque<std::vector<store>> stores[MOST_THREADS]; /* groups of a thread; the last one is open */
static bool stored;                                         /* any thread of this block has stored */

static std::deque<std::vector<store>> &own_stores()
{
    auto &groups = stores[self->number];
    stored = true;
    if (groups.empty())
        groups.emplace_back();
    return groups;
}

void store_box(const CUtensorMap *map, const void *shared, int column, int row, int outer)
{
    unseen whole;
    must_have_waited("a box is stored");
    store s = {box_of(shared, map, column, row, outer), !happens_later()};
    if (s.happened)
        run_store(s.to);
    own_stores().back().push_back(s);
}

void box_stores_commit()
{
    unseen whole;
    own_stores().emplace_back();
}

void box_stores_wait_read(int left)
{
    unseen whole;
    auto &groups = own_stores();
    while ((int)groups.size() - 1 > left) {
        for (const store &s : groups.front())
            if (!s.happened)
                run_store(s.to);
        groups.pop_front();
    }
}

extern "C" {
/* Refuses the arguments that a driver refuses, and those that are not emulated. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    int element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : ELEMENT_BYTES;
    bool right = rank == 3 && (uintptr_t)base % 16 == 0 && is_device(base) && swizzle == CU_TENSOR_MAP_SWIZZLE_128B &&
                 box[0] * (cuuint32_t)element_bytes == BOX_ROW_BYTES;
    *map = {(char *)base, {}, {}, {}, element_bytes};
    for (cuuint32_t i = 0; right && i < 3; i++) {
        right &= size[i] > 0 && size[i] <= (cuuint64_t)1 << 32 && box[i] > 0 && box[i] <= 256 && step[i] == 1;
        right &= i == 2 || (stride[i] % 16 == 0 && stride[i] < (cuuint64_t)1 << 40);
        map->size[i] = (int64_t)size[i];
        map->box[i] = (int)box[i];
        if (i < 2)
            map->stride[i] = (int64_t)stride[i];
    }
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}

/* ---- Products of a warpgroup ---- */
typedef std::vector<product> products; /* 128 per instruction */
struct warpgroup {
    std::deque<products> pending; /* groups; the last one is open */
    bool fenced;                  /* since the previous group */
    int registers;                /* per thread */
};
static warpgroup warpgroups[MOST_THREADS / WARPGROUP];
static bool multiplied;     /* any warpgroup of this block has multiplied */
static int spare_registers; /* sum over all threads of the block */

/* ---- Registers: a block begins with as many for each thread as the file holds ---- */
enum { REGISTER_FILE = 64 << 10, REGISTERS_MOST = 256, REGISTERS_LEAST = 24 };

static void begin_warpgroups()
{
    int each = REGISTER_FILE / thread_count / 8 * 8;
    for (warpgroup &w : warpgroups)
        w = {{}, false, each < REGISTERS_MOST ? each : (int)REGISTERS_MOST};
    spare_registers = 0;
    multiplied = true;
}

static warpgroup &own_warpgroup()
{
    if (!multiplied)
        begin_warpgroups();
    return warpgroups[self->number / WARPGROUP];
}

/* Address of an operand's element in shared memory: `i` counts rows of a or columns of b. */
static uint64_t address_of(uint64_t descriptor, bool by_columns, int i, int k)
{
    uint64_t first = (descriptor & 0x3fff) << 4, next_box = (descriptor >> 16 & 0x3fff) << 4;
    uint64_t next_eight = (descriptor >> 32 & 0x3fff) << 4;
    uint64_t row = (uint64_t)(by_columns ? k : i), column = (uint64_t)(by_columns ? i % BOX_COLUMNS : k);
    uint64_t box = by_columns ? (uint64_t)(i / BOX_COLUMNS) * next_box : 0;
    return swizzle(first + box + row / 8 * next_eight + row % 8 * BOX_ROW_BYTES + column * ELEMENT_BYTES);
}

static float element(uint64_t descriptor, bool by_columns, int i, int k)
{
    uint16_t value;
    memcpy(&value, engine_at(address_of(descriptor, by_columns, i, k)), ELEMENT_BYTES);
    return __uint_as_float((unsigned)value << 16);
}

/* Element of a in registers: thread t holds rows t / 4 and t / 4 + 8 of its warp's 16, at columns t
 * % 4 * 2 and the next one, in each half of k (8 columns). */
static float register_element(const product *p, int row, int k)
{
    int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2, number = k / 8 * 2 + row % 16 / 8;
    unsigned pair = p[thread].a_registers[number];
    return __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16);
}

/* Position of value i of a thread's part of d. */
static float *at_of(float (*d)[256], int thread, int i)
{
    return &d[thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8][i / 4 * 8 + thread % 4 * 2 + i % 2];
}

/* Value of an FP8 code (OCP OFP8); e5m2 is the upper half of an fp16. */
static float number_of_code(uint8_t code, bool e5m2)
{
    int mantissa = e5m2 ? 2 : 3, exponent = (code & 0x7f) >> mantissa, rest = code & ((1 << mantissa) - 1);
    float size = exponent ? ldexpf((float)(1 << mantissa | rest), exponent - 1) : (float)rest;
    if (e5m2 ? exponent == 31 : (code & 0x7f) == 0x7f)
        return e5m2 && rest == 0 ? copysignf(INFINITY, code & 0x80 ? -1.0f : 1.0f) : NAN;
    return copysignf(ldexpf(size, e5m2 ? -16 : -9), code & 0x80 ? -1.0f : 1.0f);
}

static float code_at(uint64_t descriptor, int i, int k, bool e5m2)
{
    uint64_t first = (descriptor & 0x3fff) << 4, next_eight = (descriptor >> 32 & 0x3fff) << 4;
    uint64_t at = first + (uint64_t)(i / 8) * next_eight + (uint64_t)(i % 8 * BOX_ROW_BYTES + k);
    return number_of_code(*(uint8_t *)engine_at(swizzle(at)), e5m2);
}

static float a_of(const product *p, int i, int k)
{
    if (p->numbers != BF16)
        return code_at(p->a, i, k, p->numbers == E5M2);
    return p->a_registers ? register_element(p, i, k) : element(p->a, p->a_by_columns, i, k);
}

static float b_of(const product *p, int j, int k)
{
    return p->numbers != BF16 ? code_at(p->b, j, k, false) : element(p->b, p->b_by_columns, j, k);
}

/* A sum with `bits` bits: terms are truncated at the last bit of the largest term, or of the
 * previous sum (DeepSeek-V3, arXiv 2412.19437, 3.3.2). */
static float sum_of_few_bits(const float *a, const float (*b)[256], int j, float sum, int bits)
{
    float most = fabsf(sum), last;
    for (int k = 0; k < DEPTH_MOST; k++)
        most = fmaxf(most, fabsf(a[k] * b[k][j]));
    if (!(most > 0) || !std::isfinite(most))
        return most == 0 ? 0 : NAN;
    last = ldexpf(1, ilogbf(most) + 1 - bits);
    sum = truncf(sum / last);
    for (int k = 0; k < DEPTH_MOST; k++)
        sum += truncf(a[k] * b[k][j] / last);
    return sum * last;
}

static void run_product(const product *p)
{
    static float a[64][DEPTH_MOST], b[DEPTH_MOST][256], d[64][256];
    static const char *kept = getenv("WEFT_EMU_FP8_BITS");
    int depth = p->numbers == BF16 ? 16 : 32, bits = kept && p->numbers != BF16 ? atoi(kept) : 0;
    for (int k = 0; k < depth; k++) {
        for (int i = 0; i < 64; i++)
            a[i][k] = a_of(p, i, k);
        for (int j = 0; j < p->n; j++)
            b[k][j] = b_of(p, j, k);
    }
    for (int thread = 0; thread < WARPGROUP; thread++)
        for (int i = 0; i < p->n / 2; i++)
            *at_of(d, thread, i) = p->add ? p[thread].d[i] : 0;
    for (int i = 0; i < 64; i++)
        for (int j = 0; bits && j < p->n; j++)
            d[i][j] = sum_of_few_bits(a[i], b, j, d[i][j], bits);
    for (int i = 0; i < 64 && !bits; i++)
        for (int k = 0; k < depth; k++)
            for (int j = 0; j < p->n; j++)
                d[i][j] += a[i][k] * b[k][j];
    for (int thread = 0; thread < WARPGROUP; thread++)
        for (int i = 0; i < p->n / 2; i++)
            p[thread].d[i] = *at_of(d, thread, i);
}

static products gather_products(void **all)
{
    products gathered;
    for (int i = 0; i < WARPGROUP; i++) {
        gathered.push_back(*(product *)all[i]);
        const product &p = gathered[(size_t)i], &first = gathered[0];
        if (p.a != first.a || p.b != first.b || p.add != first.add || p.numbers != first.numbers)
            fault("wgmma: thread %d of the warpgroup has other operands than its first", i);
    }
    return gathered;
}

static void meet_product(void **all)
{
    unseen whole;
    products gathered = gather_products(all);
    warpgroup &own = own_warpgroup();
    bool behind_others = false;
    if (!own.fenced)
        fault("wgmma: a group of products that does not begin behind a wgmma.fence");
    if (own.pending.empty())
        own.pending.emplace_back();
    for (const products &p : own.pending)
        behind_others |= !p.empty();
    if (!behind_others && !happens_later())
        run_product(gathered.data());
    else
        own.pending.back().insert(own.pending.back().end(), gathered.begin(), gathered.end());
}

static void check_descriptor(uint64_t descriptor, bool by_columns)
{
    if (descriptor >> 62 != 1)
        fault("wgmma: only operands swizzled by 128 bytes are emulated");
    if (descriptor >> 3 & 7 || (by_columns && descriptor & 7))
        fault("wgmma: an operand that does not begin where the swizzle does (a multiple of 1024 bytes%s)",
              by_columns ? "" : ", or a column further");
}

void wgmma(const product &own)
{
    product p = own;
    if (!own.a_registers)
        check_descriptor(own.a, own.a_by_columns);
    check_descriptor(own.b, own.b_by_columns);
    meet_warpgroup("wgmma", &p, meet_product);
}

void wgmma_fence()
{
    meet_warpgroup("wgmma.fence", nullptr, [](void **) { own_warpgroup().fenced = true; });
}

void wgmma_commit()
{
    meet_warpgroup("wgmma.commit_group", nullptr, [](void **) {
        unseen whole;
        warpgroup &own = own_warpgroup();
        if (own.pending.empty())
            own.pending.emplace_back();
        own.pending.emplace_back();
        own.fenced = false;
    });
}

static void meet_wait(void **all)
{
    unseen whole;
    auto &groups = own_warpgroup().pending;
    while ((int)groups.size() - 1 > *(int *)all[0]) {
        for (size_t i = 0; i < groups.front().size(); i += WARPGROUP)
            run_product(&groups.front()[i]);
        groups.pop_front();
    }
}

void wgmma_wait(int left)
{
    meet_warpgroup("wgmma.wait_group", &left, meet_wait);
}

static bool are_spare(void *wanted)
{
    return spare_registers >= *(int *)wanted;
}

void set_registers(int count, bool more)
{
    warpgroup &own = own_warpgroup();
    if (count % 8 || count < REGISTERS_LEAST || count > REGISTERS_MOST)
        fault("setmaxnreg: %d registers: a multiple of 8, %d to %d", count, REGISTERS_LEAST, REGISTERS_MOST);
    int change = (count - own.registers) * WARPGROUP;
    if (more ? change < 0 : change > 0)
        fault("setmaxnreg.%s of %d registers to %d", more ? "inc" : "dec", own.registers, count);
    meet_warpgroup("setmaxnreg", nullptr, [](void **) {});
    if (self->number % WARPGROUP == 0) {
        wait_until("setmaxnreg: others must give registers back", are_spare, &change);
        own.registers = count;
        spare_registers -= change;
    }
}

/* ---- A block ---- */
/* Resets the two flags: most blocks use neither feature, and scanning all queues would cost more
 * than a small block. */
void hopper_begin()
{
    multiplied = stored = false;
}

/* Faults on work that was never waited for: its operands are gone after the block. */
void hopper_end()
{
    for (warpgroup &w : warpgroups)
        for (const products &p : w.pending)
            if (multiplied && !p.empty())
                fault("block (%u,%u,%u) ended before its products (wgmma) were waited for", block_index.x,
                      block_index.y, block_index.z);
    for (int i = 0; stored && i < thread_count; i++) {
        auto &groups = stores[i];
        for (const auto &group : groups)
            if (!group.empty())
                fault("block (%u,%u,%u) ended before its boxes were read (cp.async.bulk.wait_group.read)",
                      block_index.x, block_index.y, block_index.z);
        groups.clear();
    }
}
} // namespace emu
