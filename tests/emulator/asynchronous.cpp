/* Copies and products that happen later: cp.async, mbarriers, boxes of the copy engine (TMA), products of warpgroups.
 * Early, work happens when it is asked for; late, when nobody can go on without it, and until then its destination
 * holds NaN. Meanings: PTX ISA 9.7.9.25 (cp.async), 9.7.13.15 (mbarrier), 5.5 (tensors), 9.7.15 (wgmma). */
#include "inside.h"

#include <deque>
#include <vector>

namespace emu
{
enum { UNWRITTEN = 0xff };

/* ---- cp.async: groups of copies of one thread ---- */
struct copy {
    void *to;
    const void *from;
    int bytes;
    bool there, happened;
};
static std::deque<std::vector<copy>> copies[MOST_THREADS]; /* the last group is the open one; none yet: empty */

static void run_copy(const copy &c)
{
    if (c.there)
        memcpy(c.to, c.from, (size_t)c.bytes);
    else
        memset(c.to, 0, (size_t)c.bytes);
}

static std::deque<std::vector<copy>> &own_copies()
{
    auto &groups = copies[self->number];
    if (groups.empty())
        groups.emplace_back();
    return groups;
}

void copy_async(void *shared, const void *from, int bytes, bool there)
{
    unseen whole;
    copy c = {shared, from, bytes, there, !happens_later()};
    if ((uintptr_t)shared % (unsigned)bytes || (there && (uintptr_t)from % (unsigned)bytes))
        fault("cp.async to %p from %p: both must be multiples of %d", shared, from, bytes);
    shared_address(shared);
    if (c.happened)
        run_copy(c);
    else
        memset(shared, UNWRITTEN, (size_t)bytes);
    own_copies().back().push_back(c);
}

TSAN(static void write_seen(void *at) /* from here on others may read, behind a barrier */
     {
         __tsan_ignore_thread_end();
         __tsan_write16(at);
         __tsan_ignore_thread_begin();
     })

void copies_commit()
{
    unseen whole;
    own_copies().emplace_back();
}

void copies_wait(int left)
{
    unseen whole;
    auto &groups = copies[self->number];
    while ((int)groups.size() - 1 > left) {
        for (const copy &c : groups.front()) {
            if (!c.happened)
                run_copy(c);
            TSAN(write_seen(c.to);)
        }
        groups.pop_front();
    }
}

void copies_end()
{
    unseen whole;
    if (copies[self->number].empty())
        return;
    copies_commit();
    copies_wait(0);
    copies[self->number].clear();
}

/* ---- mbarriers: a phase ends when its arrivals and its bytes have come ---- */
struct mbarrier {
    uint16_t arrivals, pending;
    int32_t bytes : 31;
    uint32_t phase : 1;
};
static_assert(sizeof(mbarrier) == 8, "an mbarrier is 8 bytes of shared memory");

static mbarrier *made(uint64_t *barrier)
{
    mbarrier *b = (mbarrier *)barrier;
    shared_address(barrier);
    if (b->arrivals == 0xffff)
        fault("an mbarrier that nobody has initialised");
    return b;
}

static void advance(mbarrier *b)
{
    if (b->pending || b->bytes)
        return;
    b->phase ^= 1;
    b->pending = b->arrivals;
}

void mbarrier_init(uint64_t *barrier, unsigned arrivals)
{
    mbarrier b = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
    shared_address(barrier);
    memcpy(barrier, &b, sizeof b);
}

void mbarrier_arrive(uint64_t *barrier, unsigned bytes)
{
    mbarrier *b = made(barrier);
    if (b->pending == 0)
        fault("one arrival too many at an mbarrier of %d", b->arrivals);
    b->bytes += (int)bytes;
    b->pending--;
    advance(b);
    others_first();
}

struct phase {
    mbarrier *barrier;
    unsigned parity;
};

void mbarrier_wait(uint64_t *barrier, unsigned parity)
{
    phase p = {made(barrier), parity & 1};
    wait_until(
        "an mbarrier", [](void *c) { return ((phase *)c)->barrier->phase != ((phase *)c)->parity; }, &p);
}

/* ---- The copy engine: boxes with rows of 128 bytes, of which every 8 are swizzled ---- */
static uint64_t swizzle(uint64_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

struct box {
    uint64_t to;
    tile_map map;
    mbarrier *barrier;
    int column, row;
};

static uint16_t element_of(const box &b, int row, int column)
{
    uint16_t value = 0;
    if (row >= 0 && row < b.map.rows && column >= 0 && column < b.map.columns)
        memcpy(&value, b.map.base + row * b.map.stride_bytes + column * 2, 2);
    return value;
}

static void run_load(const box &b)
{
    for (int r = 0; r < b.map.box_rows; r++)
        for (int c = 0; c < b.map.box_columns; c++) {
            uint16_t value = element_of(b, b.row + r, b.column + c);
            memcpy(shared_at(swizzle(b.to + (uint64_t)(r * b.map.box_columns + c) * 2)), &value, 2);
        }
    b.barrier->bytes -= b.map.box_rows * b.map.box_columns * 2;
    advance(b.barrier);
}

void load_box(void *shared, const tile_map *map, uint64_t *barrier, int column, int row)
{
    if ((uintptr_t)shared % 1024)
        fault("a tile at %p: swizzled tiles begin at multiples of 1024 (the bytes of dynamic shared memory too)",
              shared);
    if (map->box_columns * 2 != 128 || (uintptr_t)map->base % 16 || map->stride_bytes % 16)
        fault("a map of boxes of %d columns, %lld bytes a row: 64 columns and multiples of 16 bytes are emulated",
              map->box_columns, (long long)map->stride_bytes);
    unseen whole;
    box b = {shared_address(shared), *map, made(barrier), column, row};
    if (!happens_later()) {
        run_load(b);
        return;
    }
    memset(shared, UNWRITTEN, (size_t)map->box_rows * 128);
    defer([b] { run_load(b); });
}

/* ---- Products of a warpgroup: d [64, n] of a [64, 16] and b [n, 16], both by rows of 128 swizzled bytes ---- */
struct product {
    float *d; /* one thread's part */
    uint64_t a, b;
    int n;
    bool add;
};
typedef std::vector<product> products;                         /* 128 for each instruction */
static std::deque<products> pending[MOST_THREADS / WARPGROUP]; /* groups; the last one is open */

static float element(uint64_t descriptor, int row, int k)
{
    uint64_t first = (descriptor & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
    uint64_t at = first + (uint64_t)(row / 8) * stride + (uint64_t)(row % 8) * 128 + (uint64_t)k * 2;
    uint16_t value;
    memcpy(&value, shared_at(swizzle(at)), 2);
    return __uint_as_float((unsigned)value << 16);
}

static void store_product(const product *p, int thread, const float (*a)[16], const float (*b)[16])
{
    for (int i = 0; i < p->n / 2; i++) {
        int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        float sum = p->add ? p->d[i] : 0;
        for (int k = 0; k < 16; k++)
            sum += a[row][k] * b[column][k];
        p->d[i] = sum;
    }
}

static void run_product(const product *p)
{
    static float a[64][16], b[256][16];
    for (int r = 0; r < 64; r++)
        for (int k = 0; k < 16; k++)
            a[r][k] = element(p->a, r, k);
    for (int r = 0; r < p->n; r++)
        for (int k = 0; k < 16; k++)
            b[r][k] = element(p->b, r, k);
    for (int thread = 0; thread < WARPGROUP; thread++)
        store_product(&p[thread], thread, a, b);
}

static std::deque<products> &own_products()
{
    auto &groups = pending[self->number / WARPGROUP];
    if (groups.empty())
        groups.emplace_back();
    return groups;
}

static products gather_products(void **all)
{
    products gathered;
    for (int i = 0; i < WARPGROUP; i++) {
        gathered.push_back(*(product *)all[i]);
        const product &p = gathered[(size_t)i], &first = gathered[0];
        if (p.a != first.a || p.b != first.b || p.add != first.add)
            fault("wgmma: thread %d of the warpgroup has other operands than its first", i);
    }
    return gathered;
}

static void meet_product(void **all)
{
    unseen whole;
    products gathered = gather_products(all);
    auto &groups = own_products();
    bool behind_others = false;
    for (const products &p : groups)
        behind_others |= !p.empty();
    if (!behind_others && !happens_later())
        run_product(gathered.data());
    else
        groups.back().insert(groups.back().end(), gathered.begin(), gathered.end());
}

void wgmma(float *d, int n, uint64_t a, uint64_t b, bool add)
{
    product own = {d, a, b, n, add};
    if (a >> 62 != 1 || b >> 62 != 1)
        fault("wgmma: only tiles swizzled by 128 bytes, rows along k, are emulated");
    meet_warpgroup("wgmma", &own, meet_product);
}

void wgmma_fence()
{
    meet_warpgroup("wgmma.fence", nullptr, [](void **) {});
}

void wgmma_commit()
{
    meet_warpgroup("wgmma.commit_group", nullptr, [](void **) {
        unseen whole;
        own_products().emplace_back();
    });
}

static void meet_wait(void **all)
{
    unseen whole;
    auto &groups = own_products();
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

/* Nobody can wait for them any more: what they would write to is gone. */
void products_end()
{
    for (auto &groups : pending) {
        for (const products &p : groups)
            if (!p.empty())
                fault("block (%u,%u,%u) ended before its products (wgmma) were waited for", block_index.x,
                      block_index.y, block_index.z);
        groups.clear();
    }
}
} // namespace emu
