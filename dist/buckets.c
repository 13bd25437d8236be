/* Gradient reduction in buckets, overlapped with the backward.
 *
 * On a CPU, a bucket's parts for other ranks are copied out of the gradients and sent as one
 * message per rank. When the transfer has ended, the received parts are added in rank order; this
 * is checked after each record of the backward, and at the end. Between machines a second transfer
 * follows, of the machines' sums (struct comm_machines). At most two buckets are in flight,
 * which bounds memory. A weight larger than a bucket is split. On a GPU the transport reduces
 * in-place on a separate stream. */
#include "dist/dist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT = 2, RUN = 1024, LAST_LAYER = INT32_MAX, NO_LAYER = -1 };

struct bucket {
    struct comm *comm;
    i64 first, count;               /* range of pieces */
    i64 bytes;                      /* total bytes of gradients */
    i64 layer;                      /* lowest layer of its weights; NO_LAYER: an input weight */
    i64 complete;                   /* number of leading pieces known to be complete */
    i64 place;                      /* position of its last weight in the order */
    double begin_flops, sent_bytes; /* meta: flops at its beginning, and bytes sent for it */
};
struct buckets_slot { /* a bucket in flight */
    float *out, *in;
    struct transfer *transfer;
    bool far; /* the transfer is that between machines */
};
struct buckets {
    struct weights *weights;
    const struct parallel *parallel;
    struct bucket *list;
    struct piece *pieces;
    struct weight **of; /* [pieces] the weight of each piece */
    i64 count, piece_count;
    i64 begun_count, ended_count; /* numbers of begun and of ended buckets in this step */
    bool started, at_marks;
    i64 passed;
    struct buckets_slot slots[IN_FLIGHT];
    i64 out_bytes, in_bytes; /* capacity of a slot */
    double backward_flops;   /* meta: flops at the end of the backward */
};

/* ---- Assignment of gradients to buckets ---- */

static bool is_device_plane(const struct buckets *b)
{
    const struct transport *t = b->parallel->data->transport;
    return t->begin_sums && !t->counts_only;
}

/* True for weights shared by several pipeline ranks. They are also summed over the pipeline, after
 * all buckets. */
static bool is_pipeline_shared(const struct buckets *b, const struct weight *w)
{
    return w->spec.shared && b->parallel->pipeline->size > 1;
}

static i64 layer_of(const struct weight *w)
{
    return w->spec.shared ? NO_LAYER : w->spec.layer;
}

static i64 bytes_of(const struct weight *w)
{
    return w->matrices * w->rows * w->columns * 4;
}

/* Order of the backward: upper layers first, input weights last. Within a layer from the end of the
 * table; input weights from its beginning, which is the text embedding. */
static int compare_weights(const void *x, const void *y)
{
    const struct weight *a = *(struct weight *const *)x, *b = *(struct weight *const *)y;
    i64 above = layer_of(a) - layer_of(b), behind = layer_of(a) == NO_LAYER ? b - a : a - b;
    return above ? (above > 0 ? -1 : 1) : behind > 0 ? -1 : behind < 0;
}

static struct weight **weights_in_order(struct weights *weights)
{
    struct weight **order = memory_alloc(max_i64(weights->count, 1) * (i64)sizeof(struct weight *));
    for (i64 i = 0; i < weights->count; i++)
        order[i] = &weights->list[i];
    qsort(order, (size_t)weights->count, sizeof *order, compare_weights);
    return order;
}

static void add_piece(struct buckets *b, struct bucket *into, struct weight *w, i64 begin, i64 count)
{
    struct piece *p = &b->pieces[b->piece_count];
    *p = (struct piece){w->value.grad, w->matrices * w->rows, w->columns, begin, count};
    b->of[b->piece_count++] = w;
    into->count++;
    into->layer = min_i64(into->layer, layer_of(w));
    for (i64 r = 0; r < into->comm->size; r++)
        into->bytes += piece_of_rank(p, into->comm->size, r).bytes;
}

static struct bucket *next_bucket(struct buckets *b, struct comm *comm)
{
    struct bucket *bucket = &b->list[b->count++];
    *bucket = (struct bucket){.comm = comm, .first = b->piece_count, .layer = LAST_LAYER};
    return bucket;
}

/* Elements per rank and bucket of a weight that is larger than a bucket. */
static i64 piece_limit(const struct buckets *b, const struct comm *comm, i64 limit)
{
    return is_device_plane(b) ? INT64_MAX / 2 : max_i64(1, limit / 4 / comm->size);
}

static i64 longest_share(const struct weight *w, i64 ranks)
{
    return ceil_div(w->matrices * w->rows, ranks) * w->columns;
}

/* Adds buckets for the weights that are reduced over `comm`. */
static void fill_buckets(struct buckets *b, struct comm *comm, struct weight *const *order)
{
    i64 limit = max_i64(b->parallel->layout.bucket_bytes, 4);
    struct bucket *open = NULL;
    for (i64 i = 0; i < b->weights->count && comm->size > 1; i++) {
        struct weight *w = order[i];
        if (!w->value.needs_grad || is_pipeline_shared(b, w) || zero_ranks(w, b->parallel) != comm)
            continue;
        bool cut = bytes_of(w) > limit;
        i64 part = longest_share(w, comm->size), step = cut ? piece_limit(b, comm, limit) : part;
        for (i64 begin = 0; begin < part; begin += step) {
            if (!open || open->bytes + bytes_of(w) > limit)
                open = next_bucket(b, comm);
            add_piece(b, open, w, begin, min_i64(step, part - begin));
            open->place = i;
        }
    }
}

/* Merges the buckets of both comms into one order, by the position of their last weight. */
static void merge_buckets(struct buckets *b, i64 first_count)
{
    i64 x = 0, y = first_count, at = 0;
    struct bucket *merged = memory_alloc(max_i64(b->count, 1) * (i64)sizeof *merged);
    while (at < b->count) {
        bool second = x == first_count || (y < b->count && b->list[y].place < b->list[x].place);
        merged[at++] = b->list[second ? y++ : x++];
    }
    memory_free(b->list);
    b->list = merged;
}

static i64 pieces_at_most(const struct buckets *b)
{
    i64 most = 1, limit = max_i64(b->parallel->layout.bucket_bytes, 4);
    for (i64 i = 0; i < b->weights->count; i++) {
        const struct weight *w = &b->weights->list[i];
        i64 ranks = zero_ranks(w, b->parallel)->size;
        if (ranks > 1)
            most += 1 + ceil_div(longest_share(w, ranks), max_i64(1, limit / 4 / ranks));
    }
    return most;
}

/* ---- Memory ---- */

static const struct comm_machines *machines_of(const struct bucket *bucket)
{
    return comm_host(bucket->comm)->machines;
}

/* Bytes of a rank's shares of all pieces. */
static i64 share_bytes(const struct buckets *b, const struct bucket *bucket, i64 rank)
{
    i64 bytes = 0;
    for (i64 i = 0; i < bucket->count; i++)
        bytes += piece_of_rank(&b->pieces[bucket->first + i], bucket->comm->size, rank).bytes;
    return bytes;
}

/* Bytes of the shares that a near rank carries. */
static i64 carried_bytes(const struct buckets *b, const struct bucket *bucket, i64 near)
{
    const struct comm_machines *m = machines_of(bucket);
    i64 bytes = 0;
    for (i64 i = m->begin[near]; i < m->begin[near + 1]; i++)
        bytes += share_bytes(b, bucket, m->shares[i]);
    return bytes;
}

static void size_slots(struct buckets *b)
{
    for (i64 i = 0; i < b->count; i++) {
        const struct bucket *bucket = &b->list[i];
        const struct comm_machines *m = machines_of(bucket);
        i64 own = share_bytes(b, bucket, bucket->comm->rank), carried = carried_bytes(b, bucket, m->place), near = 0;
        for (i64 k = 0; k < m->near; k++)
            near += k == m->place ? 0 : carried_bytes(b, bucket, k);
        b->out_bytes = max_i64(b->out_bytes, max_i64(near, carried - own));
        b->in_bytes = max_i64(b->in_bytes, max_i64(carried * (m->near - 1), own * (m->count - 1)));
    }
}

static void allocate_slots(struct buckets *b)
{
    for (i64 i = 0; i < IN_FLIGHT && b->count; i++)
        b->slots[i] =
            (struct buckets_slot){memory_alloc(max_i64(b->out_bytes, 4)), memory_alloc(max_i64(b->in_bytes, 4)), NULL};
}

i64 buckets_memory(const struct buckets *b)
{
    return is_device_plane(b) ? 0 : IN_FLIGHT * (b->out_bytes + b->in_bytes);
}

/* Checks that the ranks of a comm have built the same buckets. */
static void check_agreement(const struct buckets *b, struct comm *comm)
{
    char name[24];
    i64 bytes = 0, count = 0;
    for (i64 i = 0; i < b->count; i++) {
        bytes += b->list[i].comm == comm ? b->list[i].bytes : 0;
        count += b->list[i].comm == comm;
    }
    snprintf(name, sizeof name, "%lld %s", (long long)count, plural(count, "bucket", "buckets"));
    if (comm->size > 1)
        comm_agree(comm, name, bytes);
}

struct buckets *buckets_open(struct weights *weights, const struct parallel *parallel)
{
    struct buckets *b = memory_alloc(sizeof *b);
    *b = (struct buckets){.weights = weights, .parallel = parallel};
    i64 most = pieces_at_most(b);
    b->list = memory_alloc(most * (i64)sizeof *b->list);
    b->pieces = memory_alloc(most * (i64)sizeof *b->pieces);
    b->of = memory_alloc(most * (i64)sizeof(struct weight *));
    struct weight **order = weights_in_order(weights);
    fill_buckets(b, parallel->data, order);
    i64 first_count = b->count;
    fill_buckets(b, parallel->replica, order);
    merge_buckets(b, first_count);
    memory_free(order);
    size_slots(b);
    if (parallel->data->transport->begin)
        allocate_slots(b);
    b->at_marks = is_device_plane(b) && parallel->expert->size > 1;
    check_agreement(b, parallel->data);
    check_agreement(b, parallel->replica);
    return b;
}

void buckets_close(struct buckets *b)
{
    if (!b)
        return;
    for (i64 i = 0; i < IN_FLIGHT; i++) {
        memory_free(b->slots[i].out);
        memory_free(b->slots[i].in);
    }
    memory_free(b->list);
    memory_free(b->pieces);
    memory_free(b->of);
    memory_free(b);
}

/* ---- Through host memory ---- */

static void clear_spans(struct comm *comm)
{
    memset(comm->in, 0, (size_t)comm->size * sizeof *comm->in);
    memset(comm->out, 0, (size_t)comm->size * sizeof *comm->out);
}

/* Copies a rank's shares of all pieces. Returns their bytes. */
static i64 pack_share(char *out, const struct buckets *b, const struct bucket *bucket, i64 rank)
{
    i64 bytes = 0;
    for (i64 i = 0; i < bucket->count; i++) {
        struct span part = piece_of_rank(&b->pieces[bucket->first + i], bucket->comm->size, rank);
        memcpy(out + bytes, part.data, (size_t)part.bytes);
        bytes += part.bytes;
    }
    return bytes;
}

/* Copies what the other ranks of this machine carry to the send buffer, and lays out the receive buffer. */
static void pack(const struct buckets *b, const struct bucket *bucket, struct buckets_slot *slot)
{
    struct comm *comm = bucket->comm;
    const struct comm_machines *m = machines_of(bucket);
    char *out = (char *)slot->out, *in = (char *)slot->in;
    i64 carried = carried_bytes(b, bucket, m->place);
    clear_spans(comm);
    for (i64 i = 0; i < m->near; i++) {
        i64 bytes = 0;
        if (i == m->place)
            continue;
        for (i64 k = m->begin[i]; k < m->begin[i + 1]; k++)
            bytes += pack_share(out + bytes, b, bucket, m->shares[k]);
        comm->in[m->ranks[i]] = (struct span){out, bytes};
        comm->out[m->ranks[i]] = (struct span){in, carried};
        out += bytes;
        in += carried;
    }
}

static void begin_transfer(struct buckets *b, const struct bucket *bucket, struct buckets_slot *slot)
{
    struct device *device = b->weights->device;
    device->memory->unlock(device);
    pack(b, bucket, slot);
    device->memory->lock(device);
    slot->far = false;
    slot->transfer = bucket->comm->transport->begin(bucket->comm, bucket->comm->out, bucket->comm->in);
}

/* Sends the machine's sums to whom they belong. */
static void begin_far(const struct buckets *b, const struct bucket *bucket, struct buckets_slot *slot)
{
    struct comm *comm = bucket->comm;
    const struct comm_machines *m = machines_of(bucket);
    char *out = (char *)slot->out, *in = (char *)slot->in;
    i64 own = share_bytes(b, bucket, comm->rank), share;
    clear_spans(comm);
    for (i64 k = 1; (share = machines_share(m, m->place, k)) >= 0; k++) {
        comm->in[share] = (struct span){out, share_bytes(b, bucket, share)};
        out += comm->in[share].bytes;
    }
    for (i64 g = 0; g < m->count; g++)
        if (g != m->own) {
            comm->out[m->carriers[g]] = (struct span){in, own};
            in += own;
        }
    slot->far = true;
    slot->transfer = comm->transport->begin(comm, comm->out, comm->in);
}

/* out = sum of parts[r] in their order. One of the parts may be `out` itself. */
static void sum_parts(float *out, const float *const *parts, i64 ranks, i64 count)
{
    float sums[RUN];
    for (i64 begin = 0; begin < count; begin += RUN) {
        i64 run = min_i64(RUN, count - begin);
        memcpy(sums, parts[0] + begin, (size_t)run * 4);
        for (i64 r = 1; r < ranks; r++)
            for (i64 i = 0; i < run; i++)
                sums[i] += parts[r][begin + i];
        memcpy(out + begin, sums, (size_t)run * 4);
    }
}

/* The sums of a share over `ranks` parts: that of this process in its place, `place`, the others in `in`, `stride`
 * apart. out NULL: in place. Returns the elements of the share. */
static i64 add_share(float *out, const struct buckets *b, const struct bucket *bucket, i64 share, const float *in,
                     i64 stride, i64 ranks, i64 place)
{
    const float *parts[ranks];
    i64 done = 0;
    for (i64 i = 0; i < bucket->count; i++) {
        struct span part = piece_of_rank(&b->pieces[bucket->first + i], bucket->comm->size, share);
        for (i64 r = 0; r < ranks; r++)
            parts[r] = r == place ? part.data : in + (r - (r > place)) * stride + done;
        sum_parts(out ? out + done : part.data, parts, ranks, part.bytes / 4);
        done += part.bytes / 4;
    }
    return done;
}

/* Adds what has arrived: parts of this machine's ranks, whose sums of other machines' shares go to the send buffer, or
 * sums of machines. */
static void add_arrived(const struct buckets *b, const struct bucket *bucket, const struct buckets_slot *slot)
{
    struct comm *comm = bucket->comm;
    const struct comm_machines *m = machines_of(bucket);
    struct device *device = b->weights->device;
    i64 carried = carried_bytes(b, bucket, m->place) / 4, own = share_bytes(b, bucket, comm->rank) / 4, done = 0, share;
    float *out = slot->out;
    device->memory->unlock(device);
    if (slot->far)
        add_share(NULL, b, bucket, comm->rank, slot->in, own, m->count, m->own);
    for (i64 k = 0; !slot->far && (share = machines_share(m, m->place, k)) >= 0; k++) {
        i64 count = add_share(k ? out : NULL, b, bucket, share, slot->in + done, carried, m->near, m->place);
        out += k ? count : 0;
        done += count;
    }
    device->memory->lock(device);
}

/* ---- In the backward ---- */

static bool is_complete(struct buckets *b, struct bucket *bucket)
{
    while (bucket->complete < bucket->count && b->of[bucket->first + bucket->complete]->value.uses == 0)
        bucket->complete++;
    return bucket->complete == bucket->count;
}

static void begin_next(struct buckets *b)
{
    struct bucket *bucket = &b->list[b->begun_count];
    struct comm *comm = bucket->comm;
    double sent = comm->transport->counts_only ? comm->device->cost.traffic : 0;
    require(is_complete(b, bucket), "a gradient is summed over ranks that %lld records will still write: %s",
            (long long)b->of[bucket->first + bucket->complete]->value.uses,
            b->of[bucket->first + bucket->complete]->spec.name);
    for (i64 i = 0; i < bucket->count; i++)
        weight_settle_gradient(b->weights, b->of[bucket->first + i]);
    if (comm->transport->begin_sums)
        comm->transport->begin_sums(comm, b->pieces + bucket->first, bucket->count);
    else
        begin_transfer(b, bucket, &b->slots[b->begun_count % IN_FLIGHT]);
    if (comm->transport->counts_only) {
        bucket->begin_flops = comm->device->cost.flops;
        bucket->sent_bytes = comm->device->cost.traffic - sent;
    }
    b->begun_count++;
}

/* Finishes the oldest bucket in flight. False if it is not done yet. */
static bool end_oldest(struct buckets *b, bool wait)
{
    struct bucket *bucket = &b->list[b->ended_count];
    struct buckets_slot *slot = &b->slots[b->ended_count % IN_FLIGHT];
    while (slot->transfer) {
        double begin_s = clock_s();
        if (wait)
            watch_call(bucket->comm->name, "sum of gradients");
        bool has_ended = bucket->comm->transport->ended(bucket->comm, slot->transfer, wait);
        watch_call(NULL, NULL);
        bucket->comm->spent_s += wait ? clock_s() - begin_s : 0;
        if (!has_ended)
            return false;
        slot->transfer = NULL;
        add_arrived(b, bucket, slot);
        if (!slot->far && machines_of(bucket)->count > 1)
            begin_far(b, bucket, slot);
    }
    b->ended_count++;
    return true;
}

static bool has_free_slot(struct buckets *b, bool wait)
{
    while (b->ended_count < b->begun_count && end_oldest(b, wait && b->begun_count - b->ended_count == IN_FLIGHT))
        ;
    return b->begun_count - b->ended_count < IN_FLIGHT;
}

void buckets_start(struct buckets *b)
{
    for (i64 i = 0; i < b->count; i++)
        b->list[i].complete = 0;
    b->begun_count = b->ended_count = 0;
    b->passed = NOTHING_PASSED;
    b->started = true;
}

void buckets_advance(struct buckets *b, i64 passed)
{
    if (!b->started)
        return;
    b->passed = min_i64(b->passed, passed);
    while (has_free_slot(b, false) && b->begun_count < b->count) {
        struct bucket *next = &b->list[b->begun_count];
        if (b->at_marks ? b->passed > next->layer : !is_complete(b, next))
            return;
        begin_next(b);
    }
}

/* Sums the weights shared by several pipeline ranks, each of which has the gradient from its own
 * layers. */
static void sum_shared(struct buckets *b)
{
    const struct parallel *p = b->parallel;
    for (i64 i = 0; i < b->weights->count; i++) {
        struct weight *w = &b->weights->list[i];
        struct piece complete = {w->value.grad, w->matrices * w->rows, w->columns, 0, INT64_MAX / 2};
        i64 sizes[p->data->size];
        if (!w->value.needs_grad || !is_pipeline_shared(b, w))
            continue;
        for (i64 r = 0; r < p->data->size; r++)
            sizes[r] = piece_of_rank(&complete, p->data->size, r).bytes / 4;
        comm_all_reduce(p->pipeline, w->value.grad, w->value.rows * w->columns, DTYPE_F32);
        comm_reduce_scatter(p->data, w->value.grad, sizes, DTYPE_F32);
    }
}

void buckets_finish(struct buckets *b)
{
    const struct parallel *p = b->parallel;
    if (p->data->size * p->pipeline->size == 1)
        return;
    if (!b->started)
        buckets_start(b);
    if (p->data->transport->counts_only)
        b->backward_flops = p->data->device->cost.flops;
    while (b->begun_count < b->count && has_free_slot(b, true))
        begin_next(b);
    while (b->ended_count < b->begun_count)
        end_oldest(b, true);
    if (p->data->transport->end_sums)
        p->data->transport->end_sums(p->data);
    weights_settle_gradients(b->weights);
    sum_shared(b);
    b->started = false;
}

struct bucket_times buckets_estimate(const struct buckets *b, double flops_per_s, double bytes_per_s)
{
    struct bucket_times t = {.count = b->count};
    double free_s = 0, begin_s = b->count ? b->list[0].begin_flops / flops_per_s : 0;
    for (i64 i = 0; i < b->count; i++) {
        double ready_s = b->list[i].begin_flops / flops_per_s - begin_s, seconds = b->list[i].sent_bytes / bytes_per_s;
        free_s = (ready_s > free_s ? ready_s : free_s) + seconds;
        t.bytes += b->list[i].sent_bytes;
        t.seconds += seconds;
    }
    double end_s = b->backward_flops / flops_per_s - begin_s;
    t.exposed_s = b->count && free_s > end_s ? free_s - end_s : 0;
    return t;
}
