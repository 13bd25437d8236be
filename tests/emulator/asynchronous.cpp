/* Asynchronous copies: cp.async and mbarriers. In early mode work runs when it is issued; in late
 * mode when no thread can continue without it, and until then its destination holds NaN. Semantics:
 * PTX ISA 9.7.9.25 (cp.async), 9.7.13.15 (mbarrier). */
#include "inside.h"

#include <deque>
#include <iterator>
#include <map>
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
static std::deque<std::vector<copy>> copies[MOST_THREADS]; /* the last group is open; empty: no group yet */

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
    must_have_waited("cp.async");
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

TSAN(static void write_seen(void *at) /* from here on others may read, after a barrier */
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

/* ---- mbarriers ---- */
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

static std::map<uint64_t, int> unfenced; /* initialized by this thread, not yet fenced for the copy engine */

void mbarriers_begin()
{
    unfenced.clear();
}

void mbarrier_init(uint64_t *barrier, unsigned arrivals)
{
    unseen whole;
    mbarrier b = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
    unfenced[shared_address(barrier)] = self->number;
    memcpy(barrier, &b, sizeof b);
}

void fence_proxy_async()
{
    unseen whole;
    for (auto i = unfenced.begin(); i != unfenced.end();)
        i = i->second == self->number ? unfenced.erase(i) : std::next(i);
    engine_sees_all();
}

mbarrier *mbarrier_seen_by_engine(uint64_t *barrier)
{
    if (unfenced.count(shared_address(barrier)))
        fault("an mbarrier whose initialisation the copy engine need not see: a fence.proxy.async is missing");
    return made(barrier);
}

void mbarrier_take_bytes(mbarrier *b, int bytes)
{
    b->bytes -= bytes;
    advance(b);
}

void mbarrier_arrive(uint64_t *barrier, unsigned bytes)
{
    mbarrier *b = made(barrier);
    if (b->pending == 0)
        fault("one arrival too many at an mbarrier of %d", b->arrivals);
    TSAN(__tsan_release(sync_of(barrier));)
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
    TSAN(__tsan_acquire(sync_of(barrier));)
}
} // namespace emu
