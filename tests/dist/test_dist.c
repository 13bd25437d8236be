/* Ranks: launch detection, every collective against its definition, layouts, expert rows, and error
 * messages for mismatched ranks. The program runs itself again under mpirun and as processes that
 * meet over TCP. */
#include <math.h>
#include <signal.h>

#include "tests/device.h"
#include "tests/ranks.h"

static struct device device;

static float value_of(i64 rank, i64 i)
{
    return (float)rng_normal((struct rng_key){1, RNG_TEST}, (u32)rank, (u32)i, 0, 0);
}

/* Copies a device block back to the host and frees it. */
static void back(void *host, void *block, i64 bytes)
{
    device_get(&device, host, block, bytes);
    device_free(&device, block, bytes);
}

static void reduce(struct comm *world, void *host, i64 count, enum dtype dtype)
{
    void *block = to_device(&device, host, count * dtype_bytes(dtype));
    comm_all_reduce(world, block, count, dtype);
    back(host, block, count * dtype_bytes(dtype));
}

/* ---- Code of the ranks: collectives ---- */

static void check_sums_f32(struct comm *world, i64 count)
{
    enum { PERIOD = 1000 };
    float own[PERIOD], sums[PERIOD], *data = memory_alloc(count * 4);
    for (i64 i = 0; i < PERIOD; i++) {
        own[i] = value_of(world->rank, i);
        sums[i] = value_of(0, i);
        for (i64 r = 1; r < world->size; r++)
            sums[i] += value_of(r, i);
    }
    for (i64 i = 0; i < count; i++)
        data[i] = own[i % PERIOD];
    reduce(world, data, count, DTYPE_F32);
    for (i64 i = 0; i < count; i++)
        EXPECT(data[i] == sums[i % PERIOD]);
    memory_free(data);
}

static void check_other_sums(struct comm *world)
{
    double wide[5];
    bf16 narrow[2001];
    for (i64 i = 0; i < 5; i++)
        wide[i] = 1e-12 * (double)(world->rank + i);
    for (i64 i = 0; i < 2001; i++)
        narrow[i] = bf16_from_f32(value_of(world->rank, i));
    reduce(world, wide, 5, DTYPE_F64);
    reduce(world, narrow, 2001, DTYPE_BF16);
    for (i64 i = 0; i < 5; i++) {
        double sum = 1e-12 * (double)i;
        for (i64 r = 1; r < world->size; r++)
            sum += 1e-12 * (double)(r + i);
        EXPECT(wide[i] == sum);
    }
    for (i64 i = 0; i < 2001; i++) {
        float sum = bf16_to_f32(bf16_from_f32(value_of(0, i)));
        for (i64 r = 1; r < world->size; r++)
            sum += bf16_to_f32(bf16_from_f32(value_of(r, i)));
        EXPECT(narrow[i] == bf16_from_f32(sum));
    }
}

/* Rank r's part has 7 r elements; rank 0 has none. */
static void check_parts(struct comm *world)
{
    i64 counts[world->size], bytes[world->size], first = 0, total = 0;
    for (i64 r = 0; r < world->size; r++) {
        counts[r] = 7 * r;
        bytes[r] = counts[r] * 4;
        first += r < world->rank ? counts[r] : 0;
        total += counts[r];
    }
    float *data = memory_alloc(total * 4);
    for (i64 i = 0; i < total; i++)
        data[i] = value_of(world->rank, i);
    float *block = to_device(&device, data, total * 4);
    comm_reduce_scatter(world, block, counts, DTYPE_F32);
    device_get(&device, data, block, total * 4);
    for (i64 i = 0; i < total; i++) {
        bool own = i >= first && i < first + counts[world->rank];
        float sum = value_of(0, i);
        for (i64 r = 1; r < world->size; r++)
            sum += value_of(r, i);
        EXPECT(data[i] == (own ? sum : value_of(world->rank, i)));
    }
    comm_all_gather(world, block, bytes);
    back(data, block, total * 4);
    for (i64 i = 0; i < total; i++) {
        float sum = value_of(0, i);
        for (i64 r = 1; r < world->size; r++)
            sum += value_of(r, i);
        EXPECT(data[i] == sum);
    }
    memory_free(data);
}

static void check_broadcast_and_any(struct comm *world)
{
    for (i64 root = 0; root < world->size; root++) {
        i64 word = world->rank == root ? 41 + root : 0;
        i64 *block = to_device(&device, &word, sizeof word);
        comm_broadcast(world, block, sizeof word, root);
        back(&word, block, sizeof word);
        EXPECT(word == 41 + root);
        word = world->rank == root ? 7 : 0;
        comm_broadcast(comm_host(world), &word, sizeof word, root);
        EXPECT(word == 7);
        EXPECT(comm_any(world, world->rank == root));
    }
    EXPECT(!comm_any(world, false));
    comm_barrier(world);
}

/* Rank a sends a + 2 b rows to rank b. */
static void check_rows(struct comm *world)
{
    enum { ROWS_MOST = 16 };
    i32 sent[8][ROWS_MOST][3], arrived[8][ROWS_MOST][3];
    struct span in[8], out[8];
    EXPECT(world->size <= COUNT_OF(in) && 3 * world->size <= ROWS_MOST);
    for (i64 r = 0; r < world->size; r++)
        for (i64 i = 0; i < ROWS_MOST; i++)
            sent[r][i][0] = (i32)world->rank, sent[r][i][1] = (i32)r, sent[r][i][2] = (i32)i;
    char *from = to_device(&device, sent, sizeof sent), *to = to_device(&device, sent, sizeof sent);
    for (i64 r = 0; r < world->size; r++) {
        in[r] = (struct span){from + r * (i64)sizeof sent[0], (world->rank + 2 * r) * 12};
        out[r] = (struct span){to + r * (i64)sizeof sent[0], (r + 2 * world->rank) * 12};
    }
    comm_exchange(world, out, in);
    back(sent, from, sizeof sent);
    back(arrived, to, sizeof arrived);
    for (i64 r = 0; r < world->size; r++)
        for (i64 i = 0; i < r + 2 * world->rank; i++)
            EXPECT(arrived[r][i][0] == r && arrived[r][i][1] == world->rank && arrived[r][i][2] == i);
}

/* Large messages in both directions at once, received in a different order than sent. */
static void check_messages(struct comm *world)
{
    enum { COUNT = 1 << 20 };
    i64 next = (world->rank + 1) % world->size, before = (world->rank + world->size - 1) % world->size;
    i32 *data = memory_alloc(COUNT * 4), *block = device_alloc(&device, COUNT * 4);
    for (i32 tag = 0; tag < 3; tag++) {
        device.ops->fill_ids(&device, block, COUNT, (i32)(world->rank * 1000 + tag));
        comm_send(world, next, tag, block, COUNT * 4);
    }
    for (i32 tag = 2; tag >= 0; tag--) {
        comm_receive(world, before, tag, block, COUNT * 4);
        device_get(&device, data, block, COUNT * 4);
        EXPECT(data[0] == before * 1000 + tag && data[COUNT - 1] == before * 1000 + tag);
    }
    device_free(&device, block, COUNT * 4);
    memory_free(data);
}

/* Several short sums at once, one of them empty; every element of rank r is r + 1, or half of it. */
static void check_joined_sums(struct comm *world)
{
    const double all = (double)(world->size * (world->size + 1)) / 2;
    double wide[3], own = (double)world->rank + 1;
    float narrow[5];
    bf16 brief[7];
    for (int i = 0; i < 7; i++) {
        wide[i % 3] = own;
        narrow[i % 5] = (float)own / 2;
        brief[i] = bf16_from_f32((float)own);
    }
    void *blocks[] = {to_device(&device, wide, sizeof wide), to_device(&device, narrow, sizeof narrow),
                      to_device(&device, brief, sizeof brief)};
    const struct comm_sum sums[] = {
        {blocks[0], 3, DTYPE_F64}, {NULL, 0, DTYPE_F64}, {blocks[1], 5, DTYPE_F32}, {blocks[2], 7, DTYPE_BF16}};
    comm_all_reduce_list(world, sums, COUNT_OF(sums));
    back(wide, blocks[0], sizeof wide);
    back(narrow, blocks[1], sizeof narrow);
    back(brief, blocks[2], sizeof brief);
    for (int i = 0; i < 7; i++)
        EXPECT(wide[i % 3] == all && (double)narrow[i % 5] == all / 2 && (double)bf16_to_f32(brief[i]) == all);
}

static void run_collectives(struct comm *world)
{
    check_sums_f32(world, 1);
    check_sums_f32(world, 1001);
    check_sums_f32(world, 3500001); /* over 3 ranks, more than the largest piece */
    check_other_sums(world);
    check_joined_sums(world);
    check_parts(world);
    check_broadcast_and_any(world);
    check_rows(world);
    check_messages(world);
}

/* ---- Code of the ranks: layouts ---- */

static void expect_members(struct comm *world, struct comm *comm, const i64 *members, i64 count)
{
    i64 all[8], bytes[8];
    EXPECT(comm->size == count && comm->rank < count);
    for (i64 r = 0; r < count; r++)
        bytes[r] = 8;
    all[comm->rank] = world->rank;
    i64 *block = to_device(&device, all, sizeof all);
    comm_all_gather(comm, block, bytes);
    back(all, block, sizeof all);
    for (i64 r = 0; r < count; r++)
        EXPECT(all[r] == members[r]);
}

/* Four ranks as 2 data (also the 2 expert ranks) x 2 tensor, then as 2 data x 2 pipeline. */
static void run_layout(struct comm *world)
{
    struct parallel p;
    i64 t = world->rank % 2, d = world->rank / 2;
    EXPECT(parallel_open(&p, world, &(struct layout){.data = 2, .expert = 2, .tensor = 2}) == 0);
    expect_members(world, p.tensor, (i64[]){2 * d, 2 * d + 1}, 2);
    expect_members(world, p.data, (i64[]){t, 2 + t}, 2);
    expect_members(world, p.expert, (i64[]){t, 2 + t}, 2);
    expect_members(world, p.replica, (i64[]){world->rank}, 1);
    expect_members(world, p.pipeline, (i64[]){world->rank}, 1);
    parallel_close(&p);
    EXPECT(parallel_open(&p, world, &(struct layout){.data = 2, .pipeline = 2}) == 0);
    expect_members(world, p.data, (i64[]){2 * d, 2 * d + 1}, 2);
    expect_members(world, p.replica, (i64[]){2 * d, 2 * d + 1}, 2);
    expect_members(world, p.pipeline, (i64[]){t, 2 + t}, 2);
    parallel_close(&p);
    EXPECT(parallel_open(&p, world, &(struct layout){.data = 3}) == -1);
    EXPECT(parallel_open(&p, world, &(struct layout){.data = 4, .expert = 3}) == -1);
}

/* ---- Code of the ranks: ops ---- */

static void check_enter_and_sum(struct comm *world, struct tape *tape)
{
    float data[6], out[6], grad[6];
    tape_clear(tape, true);
    for (i64 i = 0; i < 6; i++) {
        data[i] = value_of(world->rank, i);
        grad[i] = (float)(i + 1);
    }
    float *block = to_device(&device, data, sizeof data);
    struct tensor *x = op_borrow(tape, block, DTYPE_F32, 2, 3);
    x->needs_grad = true;
    struct tensor *y = op_all_reduce(tape, world, op_scale(tape, op_enter(tape, world, x), 2, DTYPE_F32));
    device_get(&device, out, y->data, sizeof out);
    device_put(&device, tape_gradient(tape, y).matrix.data, grad, sizeof grad);
    for (i64 i = 0; i < 6; i++) {
        float sum = 2 * value_of(0, i);
        for (i64 r = 1; r < world->size; r++)
            sum += 2 * value_of(r, i);
        EXPECT(out[i] == sum);
    }
    tape_backward(tape);
    device_get(&device, grad, x->grad, sizeof grad);
    for (i64 i = 0; i < 6; i++)
        EXPECT(grad[i] == (float)(2 * world->size * (i + 1)));
    device_free(&device, block, sizeof data);
}

enum { N = 40, K = 2, E = 12, KEPT = 6 };

/* Routes each position to 2 of KEPT experts; rank 0 routes nothing to the last rank's experts. */
static struct routing *random_routing(struct comm *world, struct tape *tape)
{
    i32 chosen[N * K], member[KEPT], *blocks = tape_alloc(tape, sizeof chosen + sizeof member);
    struct routing *r = arena_alloc(&tape->host, sizeof *r);
    for (i32 e = 0; e < KEPT; e++)
        member[e] = 2 * e + 1;
    for (i64 i = 0; i < N * K; i++)
        chosen[i] = (i32)((rng_below((struct rng_key){2, RNG_TEST}, world->rank ? KEPT / 2 : KEPT / 4, (u32)world->rank,
                                     (u32)i / K, 0, 0) +
                           i % K * (KEPT / 2)) %
                          (world->rank ? KEPT : KEPT / 2));
    chosen[3] = chosen[2] = -1;
    device_put(&device, blocks, chosen, sizeof chosen);
    device_put(&device, blocks + N * K, member, sizeof member);
    *r = (struct routing){.n = N, .k_max = K, .experts = KEPT, .chosen = blocks};
    r->groups.member = blocks + N * K;
    return r;
}

/* Every row that arrives is in the group of its expert. */
static void check_groups(struct comm *world, const struct expert_exchange *ex, const struct tensor *grouped)
{
    i64 own = E / world->size, real = 0;
    i32 *offsets = to_host(&device, ex->groups.offsets, (own + 1) * 4);
    i32 *regroup = to_host(&device, ex->regroup, ex->rows_bound * 4);
    i32 *arrived = to_host(&device, ex->arrived, ex->receive_rows * 4);
    float *at = to_host(&device, grouped->data, grouped->rows * 8);
    for (i64 g = 0; g < own; g++) {
        EXPECT(offsets[g] % GROUP_ROWS == 0);
        for (i64 row = offsets[g]; row < offsets[g + 1]; row++) {
            EXPECT(regroup[row] >= 0 || (at[2 * row] == 0 && at[2 * row + 1] == 0));
            real += regroup[row] >= 0;
        }
    }
    for (i64 row = 0; row < ex->receive_rows; row++)
        real -= arrived[row] >= 0;
    EXPECT(real == 0);
    memory_free(offsets);
    memory_free(regroup);
    memory_free(arrived);
    memory_free(at);
}

/* Rows return to their sources; unused rows of a part are left in place. */
static void check_expert_rows(struct comm *world, struct tape *tape, const struct exchange_limits *room)
{
    float x[N * 2], ones[N * K], sum[N * 2];
    tape_clear(tape, false);
    struct routing *routing = random_routing(world, tape);
    const struct expert_slots slots = {NULL, routing->groups.member};
    struct expert_exchange *ex = expert_exchange(tape, world, routing, &slots, E, room);
    for (i64 i = 0; i < N; i++) {
        x[2 * i] = (float)world->rank;
        x[2 * i + 1] = (float)i;
        ones[2 * i] = ones[2 * i + 1] = 1;
    }
    struct tensor *positions = tape_tensor(tape, DTYPE_F32, N, 2), *weights = tape_tensor(tape, DTYPE_F32, N, K);
    device_put(&device, positions->data, x, sizeof x);
    device_put(&device, weights->data, ones, sizeof ones);
    struct tensor *grouped = tape_tensor(tape, DTYPE_F32, ex->rows_bound, 2), *out = tape_tensor(tape, DTYPE_F32, N, 2);
    struct expert_rows rows = op_dispatch(tape, positions, &ex->order);
    op_expert_send(tape, grouped, &rows, ex);
    check_groups(world, ex, grouped);
    struct tensor *returned = op_expert_return(tape, grouped, ex);
    char *went = to_host(&device, rows.x->data, ex->send_rows * 8),
         *came = to_host(&device, returned->data, ex->send_rows * 8);
    EXPECT(memcmp(came, went, (size_t)(ex->send_rows * 8)) == 0);
    EXPECT(ex->send_rows == (room->capacity ? room->capacity * world->size : N * K - 2));
    struct routing combined = {.n = N, .k_max = K, .slot = ex->order.slot, .weights = weights};
    op_combine(tape, out, returned, &combined, NULL, NULL);
    device_get(&device, sum, out->data, sizeof sum);
    for (i64 i = 0; i < N; i++)
        EXPECT(sum[2 * i + 1] == (float)(i == 1 ? 0 : 2 * i));
    memory_free(went);
    memory_free(came);
}

/* Rows beyond a part's capacity are counted; all others
 * arrive in their group, and nothing else does. */
static void check_small_parts(struct comm *world, struct tape *tape, double *noted)
{
    enum { PART = 8 };
    const struct exchange_limits room = {.capacity = PART, .over = noted};
    double over[3];
    tape_clear(tape, false);
    struct routing *routing = random_routing(world, tape);
    const struct expert_slots slots = {NULL, routing->groups.member};
    struct expert_exchange *ex = expert_exchange(tape, world, routing, &slots, E, &room);
    struct tensor *positions = tape_tensor(tape, DTYPE_F32, N, 2);
    device.ops->fill(&device, positions->data, N * 2, 1);
    struct expert_rows rows = op_dispatch(tape, positions, &ex->order);
    struct tensor *grouped = tape_tensor(tape, DTYPE_F32, ex->rows_bound, 2);
    check_groups(world, ex, op_expert_send(tape, grouped, &rows, ex).x);
    i32 *slot = to_host(&device, ex->order.slot, N * K * 4);
    i64 kept = 0;
    for (i64 a = 0; a < N * K; a++)
        kept += slot[a] >= 0;
    device_get(&device, over, noted, sizeof over);
    EXPECT(kept <= PART * world->size && kept >= PART);
    EXPECT(isinf(over[0]) && over[1] > PART && over[1] <= N * K && over[2] == PART);
    memory_free(slot);
}

static void run_ops(struct comm *world)
{
    struct tape tape;
    tape_open(&tape, &device, DTYPE_F32, (i64)64 << 20);
    check_enter_and_sum(world, &tape);
    double over[3] = {0}, *noted = to_device(&device, over, sizeof over);
    check_expert_rows(world, &tape, &(struct exchange_limits){.rows = N * K * world->size, .setting = "the bound"});
    check_expert_rows(world, &tape, &(struct exchange_limits){.rows = 0}); /* room for what arrives */
    check_expert_rows(world, &tape, &(struct exchange_limits){.capacity = N * K - 1, .over = noted});
    device_get(&device, over, noted, sizeof over);
    EXPECT(over[0] == 0 && over[1] == 0 && over[2] == 0);
    check_small_parts(world, &tape, noted);
    device_free(&device, noted, sizeof over);
    tape_close(&tape);
}

/* ---- Code of the ranks: failures ---- */

static void run_bound(struct comm *world)
{
    struct tape tape;
    tape_open(&tape, &device, DTYPE_F32, (i64)64 << 20);
    tape_clear(&tape, false);
    struct routing *routing = random_routing(world, &tape);
    expert_exchange(&tape, world, routing, &(struct expert_slots){NULL, routing->groups.member}, E,
                    &(struct exchange_limits){.rows = 2, .setting = "some.setting"});
}

static void run_mismatch(struct comm *world)
{
    float data[16] = {0};
    reduce(world, data, world->rank == 1 ? 11 : 10, DTYPE_F32);
}

/* Rank 1 gives a reason, and exits. */
static void run_reason(struct comm *world)
{
    if (world->rank == 1)
        comm_stop(world, "a reason");
    comm_barrier(world);
}

static void run_death(struct comm *world)
{
    if (world->rank == 1)
        exit(7);
    comm_barrier(world);
}

static void run_short_message(struct comm *world)
{
    i64 *words = device_alloc(&device, 16);
    if (world->rank == 0)
        comm_send(world, 1, 5, words, 8);
    else
        comm_receive(world, 0, 5, words, 16);
    comm_barrier(world);
}

/* Makes 20 calls, past those whose arguments are compared across ranks. */
static void run_calls(struct comm *world)
{
    float data[16] = {0};
    for (int i = 0; i < 20; i++)
        reduce(world, data, 10, DTYPE_F32);
}

static void run_late_mismatch(struct comm *world)
{
    run_calls(world);
    run_mismatch(world);
}

/* Sets the timeout of later calls to `seconds`, after a
 * barrier that waits for all ranks as long as needed. */
static void wait_at_most(struct comm *world, i64 seconds)
{
    char *text = string_format("%lld", (long long)seconds);
    comm_barrier(world);
    setenv("WEFT_WAIT_S", text, 1);
    comm_host(world)->wait_s = seconds;
    memory_free(text);
}

/* Rank 1 waits in another call. */
static void run_standstill(struct comm *world)
{
    float data[16] = {0};
    run_calls(world);
    wait_at_most(world, 1);
    if (world->rank == 1)
        comm_barrier(world);
    reduce(world, data, 10, DTYPE_F32);
}

/* Rank 1 stalls outside of any call until rank 0 has exited. */
static void stand_still(struct comm *world)
{
    i64 processes[2] = {getpid(), getpid()}, bytes[2] = {8, 8};
    comm_all_gather(comm_host(world), processes, bytes);
    wait_at_most(world, 1);
    while (world->rank == 1 && kill((pid_t)processes[0], 0) == 0)
        usleep(10000);
}

static void run_asleep(struct comm *world)
{
    run_calls(world);
    stand_still(world);
    comm_any(world, false);
}

static void run_asleep_before_message(struct comm *world)
{
    i64 word = 0;
    stand_still(world);
    comm_receive(comm_host(world), 1, 5, &word, 8);
}

/* Work of a single rank may take longer than the timeout: barriers wait, and so do the checks of
 * the first calls. */
static void run_late_barrier(struct comm *world)
{
    i64 usual_s = launch_wait_s();
    for (int i = 0; i < 2; i++) {
        comm_host(world)->wait_s = 1;
        setenv("WEFT_WAIT_S", "1", 1);
        if (world->rank == 1)
            usleep(1500000);
        wait_at_most(world, usual_s);
        run_calls(world);
    }
}

/* Rank 1 exits between calls. */
static void run_late_death(struct comm *world)
{
    float data[16] = {0};
    run_calls(world);
    if (world->rank == 1)
        _exit(7);
    reduce(world, data, 10, DTYPE_F32);
}

/* Rank 0 queues more GPU work behind the call than a driver's queue can hold. */
static void run_standstill_behind_work(struct comm *world)
{
    enum { LAUNCHES = 3000 };
    float data[16] = {0};
    struct matrix sums = matrix_of(to_device(&device, data, 64), DTYPE_F32, 1, 16),
                  copies = matrix_of(to_device(&device, data, 64), DTYPE_F32, 1, 16);
    run_calls(world);
    wait_at_most(world, 1);
    if (world->rank == 1)
        comm_barrier(world);
    comm_all_reduce(world, sums.data, 16, DTYPE_F32);
    for (int i = 0; i < LAUNCHES; i++)
        device.ops->copy(&device, copies, sums, 1, false);
    back(data, copies.data, sizeof data);
}

static void run_everything(struct comm *world)
{
    run_collectives(world);
    run_ops(world);
}

static const struct {
    const char *name;
    void (*run)(struct comm *world);
} parts[] = {{"everything", run_everything},
             {"layout", run_layout},
             {"calls", run_calls},
             {"bound", run_bound},
             {"mismatch", run_mismatch},
             {"late-mismatch", run_late_mismatch},
             {"standstill", run_standstill},
             {"standstill-behind-work", run_standstill_behind_work},
             {"asleep", run_asleep},
             {"asleep-before-message", run_asleep_before_message},
             {"late-barrier", run_late_barrier},
             {"death", run_death},
             {"reason", run_reason},
             {"late-death", run_late_death},
             {"short-message", run_short_message}};

static int run_part(void *name)
{
    struct comm *world = ranks_world(&device);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        if (strcmp(parts[i].name, name) == 0)
            parts[i].run(world);
    comm_close(world);
    return 0;
}

/* ---- From one process ---- */

/* Runs `here` of the ranks over TCP: as forks, or, since a fork cannot use a GPU, as new
 * processes. */
static int run_over_tcp(struct buffer *said, int count, int here, int port, const char *part)
{
    char path[1024];
    ranks_own_path(path);
    return device.backend == BACKEND_CUDA ? ranks_run_at(said, count, here, port, path, part)
                                          : ranks_fork_at(said, count, here, port, run_part, (void *)(uintptr_t)part);
}

/* Runs over MPI, if available, and over TCP. */
static void expect_ranks(int count, const char *part)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct buffer said = {0};
        if (!tcp && ranks_missing())
            continue;
        int status = tcp ? run_over_tcp(&said, count, count, ranks_free_port(), part) : ranks_run(&said, count, part);
        if (status)
            fail_msg("%s on %d ranks over %s: status %d\n%s", part, count, tcp ? "TCP" : "MPI", status, said.data);
        buffer_release(&said);
    }
}

static void clear_launchers(void)
{
    const char *names[] = {"RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "MPI_LOCALRANKID",
                           "MPI_LOCALNRANKS",
                           "SLURM_STEP_ID",
                           "SLURM_PROCID",
                           "SLURM_STEP_NUM_TASKS",
                           "SLURM_LOCALID",
                           "SLURM_STEP_TASKS_PER_NODE",
                           "MASTER_ADDR",
                           "MASTER_PORT",
                           "TORCHELASTIC_USE_AGENT_STORE"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        unsetenv(names[i]);
}

static void expect_launch(i64 rank, i64 size, i64 local_rank, i64 local_size)
{
    struct launch_info l;
    assert_int_equal(launch_detect(&l), 0);
    assert_int_equal(l.rank, rank);
    assert_int_equal(l.size, size);
    assert_int_equal(l.local_rank, local_rank);
    assert_int_equal(l.local_size, local_size);
}

TEST(launchers_are_told_apart)
{
    struct launch_info l;
    clear_launchers();
    expect_launch(0, 1, 0, 1);
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    expect_launch(0, 1, 0, 1);
    setenv("SLURM_PROCID", "9", 1);
    setenv("SLURM_STEP_NUM_TASKS", "16", 1);
    setenv("SLURM_LOCALID", "1", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "8(x2)", 1);
    expect_launch(9, 16, 1, 8);
    setenv("SLURM_STEP_NUM_TASKS", "10000000", 1);
    assert_int_equal(launch_detect(&l), -1);
    assert_non_null(strstr(error_text(), "there are 10000000 ranks, at most 16384 are possible"));
    setenv("SLURM_STEP_NUM_TASKS", "16", 1);
    setenv("PMI_RANK", "2", 1);
    setenv("PMI_SIZE", "4", 1);
    expect_launch(2, 4, 2, 4);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "6", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
    expect_launch(5, 6, 1, 3);
    setenv("RANK", "3", 1);
    assert_int_equal(launch_detect(&l), -1);
    assert_non_null(strstr(error_text(), "RANK is set but WORLD_SIZE is not"));
    setenv("WORLD_SIZE", "x", 1);
    assert_int_equal(launch_detect(&l), -1);
    assert_non_null(strstr(error_text(), "WORLD_SIZE is \"x\""));
    setenv("WORLD_SIZE", "3", 1);
    assert_int_equal(launch_detect(&l), -1);
    assert_non_null(strstr(error_text(), "rank 3 of 3"));
    setenv("WORLD_SIZE", "4", 1);
    expect_launch(3, 4, 3, 4);
    setenv("MASTER_ADDR", "", 1);
    assert_int_equal(launch_detect(&l), -1);
    assert_non_null(strstr(error_text(), "MASTER_ADDR is empty"));
    setenv("MASTER_ADDR", "here", 1);
    assert_int_equal(launch_detect(&l), -1);
    assert_non_null(strstr(error_text(), "expected a MASTER_PORT"));
    setenv("MASTER_PORT", "29500", 1);
    assert_int_equal(launch_detect(&l), 0);
    assert_string_equal(l.master, "here");
    assert_int_equal(l.port, 29500);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    assert_int_equal(launch_detect(&l), 0);
    assert_int_equal(l.port, 29501);
    setenv("MASTER_PORT", "65535", 1);
    assert_int_equal(launch_detect(&l), 0);
    assert_int_equal(l.port, 65534);
    clear_launchers();
}

TEST(one_rank_is_trivial_and_writes_to_itself)
{
    struct comm *comm = comm_open(&device, &(struct launch_info){.size = 1});
    double value = 3;
    i64 *words = to_device(&device, (i64[]){1, 2, 5, 6}, 32), got[4];
    reduce(comm, &value, 1, DTYPE_F64);
    comm_barrier(comm);
    assert_true(value == 3 && comm_any(comm, true) && !comm_any(comm, false));
    comm_send(comm, 0, 1, words, 8);
    comm_send(comm, 0, 2, words + 1, 8);
    comm_send(comm, 0, 1, words + 1, 6);
    comm_receive(comm, 0, 2, words + 2, 8);
    comm_receive(comm, 0, 1, words + 1, 8);
    comm_receive(comm, 0, 1, words, 6);
    comm_exchange(comm, &(struct span){words + 2, 16}, &(struct span){words, 16});
    back(got, words, 32);
    assert_true(got[0] == 2 && got[1] == 1 && got[2] == 2 && got[3] == 1);
    comm_close(comm);
}

TEST(meta_ranks_count_traffic)
{
    struct device meta;
    struct parallel p;
    device_open_meta(&meta);
    struct comm *world = comm_open_meta(&meta, 5, 64);
    assert_int_equal(parallel_open(&p, world, &(struct layout){.data = 8, .expert = 4, .tensor = 2, .pipeline = 4}), 0);
    assert_int_equal(p.replica->size, 2);
    assert_int_equal(p.data->rank, 2);
    comm_all_reduce(p.data, NULL, 1000, DTYPE_F32);
    assert_true(meta.cost.traffic == 2 * 4000 * 7.0 / 8);
    meta.cost.traffic = 0;
    comm_send(p.pipeline, 1, 0, NULL, 100);
    assert_true(meta.cost.traffic == 100);
    parallel_close(&p);
    comm_close(world);
    device_close(&meta);
}

/* Rank 37 of 2 tensor x 8 data x 4 pipeline ranks: 37 = 1 + 2 * (2 + 8 * 2). A pipeline cuts the layers
 * into `chunks` pieces for each of its ranks. */
TEST(the_place_of_a_rank_follows_from_the_layout)
{
    const struct layout layout = {.data = 8, .expert = 4, .tensor = 2, .pipeline = 4, .chunks = 3};
    struct weights_layout place = parallel_place(&layout, 37);
    assert_int_equal(place.tensor_rank, 1);
    assert_int_equal(place.tensor_ranks, 2);
    assert_int_equal(place.data_rank, 2);
    assert_int_equal(place.data_ranks, 8);
    assert_int_equal(place.expert_rank, 2);
    assert_int_equal(place.expert_ranks, 4);
    assert_int_equal(place.chunk_rank, 2);
    assert_int_equal(place.chunk_ranks, 4);
    assert_int_equal(place.chunks, 12);
    assert_int_equal(parallel_place(&layout, 37 + 4 * 2).expert_rank, 2); /* data rank 6: of the second 4 */
}

static void check_failure(int status, struct buffer *said, const char *part, const char *words)
{
    if (status == 0 || status == RANKS_HUNG || !strstr(said->data ? said->data : "", words))
        fail_msg("%s: status %d, no \"%s\" in:\n%s", part, status, words, said->data);
    buffer_release(said);
}

static void expect_failure(int count, const char *part, const char *words)
{
    struct buffer said = {0}, other = {0};
    if (!ranks_missing())
        check_failure(ranks_run(&said, count, part), &said, part, words);
    check_failure(run_over_tcp(&other, count, count, ranks_free_port(), part), &other, part, words);
}

TEST(collectives_give_the_same_bits_on_every_rank)
{
    expect_ranks(2, "everything");
    expect_ranks(3, "everything");
}

TEST(layouts_cut_the_world)
{
    expect_ranks(4, "layout");
}

TEST(a_full_receive_buffer_names_its_setting)
{
    expect_failure(2, "bound", "raise some.setting");
}

TEST(a_rank_that_gives_a_reason_is_told_from_a_killed_one)
{
    struct buffer said = {0};
    check_failure(run_over_tcp(&said, 2, 2, ranks_free_port(), "reason"), &said, "reason",
                  "rank 1 of the world has exited: its last message gives the reason");
}

TEST(ranks_that_disagree_are_named)
{
    expect_failure(2, "mismatch", "do not run the same program with the same settings");
    expect_failure(2, "short-message", "the ranks run different sizes");
}

/* Errors of queued calls that the GPU's host reports. */
TEST(calls_that_cannot_end_are_named)
{
#ifdef WEFT_ON_GPU
    expect_failure(2, "standstill",
                   "rank 0 of 2 (world): NCCL: all-reduce of 40 bytes (call 21 of this comm) has stood "
                   "still for 1 s");
    expect_failure(2, "standstill-behind-work", "NCCL: all-reduce of 64 bytes (call 21 of this comm) has stood still");
    expect_failure(2, "asleep", "rank 0 of 2 (world): all-gather: ");
    expect_failure(2, "asleep-before-message", "rank 0 of 2 (world): receive: ");
    expect_failure(2, "asleep", "did not respond for 1 s (WEFT_WAIT_S)");
    expect_ranks(2, "late-barrier");
    expect_failure(2, "late-mismatch", "(world): NCCL: all-reduce: invalid usage");
#else
    skip();
#endif
}

TEST(a_dead_rank_ends_the_others)
{
    struct buffer said = {0}, other = {0};
    expect_failure(2, "death", "");
    if (!ranks_missing())
        check_failure(ranks_run(&said, 3, "late-death"), &said, "late-death", "");
    check_failure(run_over_tcp(&other, 3, 3, ranks_free_port(), "late-death"), &other, "late-death",
                  "has ended without a message");
}

/* If rank 1 starts more slowly than the timeout of the other
 * two, the test retries with twice the timeout. */
TEST(ranks_that_do_not_come_are_named)
{
    bool is_late = true;
    for (int seconds = 1; is_late; seconds *= 2) {
        struct buffer said = {0};
        char *wait = string_format("%d", seconds);
        setenv("WEFT_WAIT_S", wait, 1);
        int status = run_over_tcp(&said, 4, 2, ranks_free_port(), "mismatch");
        is_late = seconds < TEST_SECONDS_MOST && status && strstr(said.data, "ranks 1, 2, 3 of 4 did not come");
        if (!is_late)
            check_failure(status, &said, "two of four", "ranks 2, 3 of 4 did not come to 127.0.0.1:");
        buffer_release(&said);
        memory_free(wait);
    }
    unsetenv("WEFT_WAIT_S");
}

/* Returns a socket that listens at `port`, or -1. */
static int listen_at(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((u16)port)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(s, (struct sockaddr *)&address, sizeof address) == 0 && listen(s, 4) == 0)
        return s;
    close(s);
    return -1;
}

/* Sets up the environment of torchrun: its agent itself
 * listens at MASTER_PORT and answers nobody. */
TEST(ranks_of_torchrun_meet_next_to_its_store)
{
    struct buffer said = {0};
    int port = ranks_free_port(), store = listen_at(port);
    assert_true(store >= 0);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    int status = run_over_tcp(&said, 2, 2, port, "calls");
    unsetenv("OMP_NUM_THREADS");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    close(store);
    if (status)
        fail_msg("status %d\n%s", status, said.data);
    buffer_release(&said);
}

TEST(a_launcher_without_mpi_is_named)
{
    struct buffer said = {0};
    char path[1024], *command;
    ranks_own_path(path);
    command = string_format("env RANK=0 WORLD_SIZE=2 %s calls", path);
    assert_int_equal(ranks_shell(&said, command), 1);
    assert_non_null(strstr(said.data, ranks_missing() && strstr(ranks_missing(), "built") ? "built without MPI"
                                                                                          : "MPI says rank 0 of 1"));
    memory_free(command);
    buffer_release(&said);
}

int main(int count, char **arguments)
{
    setenv("WEFT_THREADS", "1", 1);
    test_device_open(&device);
    return count > 1 ? run_part(arguments[1]) : tests_run(NULL, NULL);
}
