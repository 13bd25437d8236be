#define _GNU_SOURCE /* fallocate, MADV_POPULATE_WRITE */
#include "dist/snapshot.h"
#include "core/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* an older C library */
#define MADV_POPULATE_WRITE 23
#endif

enum { SLOTS = 2, RANKS_MOST = 1024, STATE_BYTES = 4 << 20, ALIGNMENT = 4096, TABLES_MOST = 8, STATES = 4 };
static const u64 magic = 0x31746f6873706e73; /* "snpshot1" */

struct noted { /* by one rank, after it has written */
    u64 opened, hash;
    i64 step;
};
struct slot { /* written by the first rank */
    u64 opened, hash;
    i64 step, size, state_bytes;
    bool placed[TABLES_MOST]; /* the experts of a table have a placement; false: they lie in a row */
    struct layout layout;
};
struct head {
    u64 magic, run;
    i64 bytes;
    double made_s;    /* when */
    i64 begun, ended; /* worlds; those that died have not ended */
    struct slot slots[SLOTS];
    struct noted ranks[SLOTS][RANKS_MOST];
};
struct snapshots {
    struct snapshot_file file;
    struct weights *tables[TABLES_MOST];
    i64 *offsets[TABLES_MOST];               /* of weight * STATES + state, in a slot */
    i64 placements[TABLES_MOST], placed_end; /* of the placements of experts; where the last one ends */
    i64 slot_bytes, bytes;
    char *map;
    struct head *head;
    u64 opened; /* drawn by the first rank: notes of ranks that died say another */
    i64 next;   /* slot of the next snapshot */
    i64 found;  /* slot of the one to load */
    i64 saved;
    double due_s; /* when the next one is due */
    bool told;    /* that its state is too long */
};

static i64 rank_of(const struct snapshots *s)
{
    return s->file.ranks->world->rank;
}

static char *slot_data(const struct snapshots *s, i64 slot)
{
    return s->map + round_up(sizeof(struct head), ALIGNMENT) + slot * s->slot_bytes;
}

static void lay_out(struct snapshots *s)
{
    i64 at = STATE_BYTES;
    for (i64 t = 0; t < s->file.count; t++) {
        s->placements[t] = at;
        at += round_up(weights_placement_count(s->tables[t]) * (i64)sizeof(i32), 64);
    }
    s->placed_end = at;
    for (i64 t = 0; t < s->file.count; t++) {
        const struct weights *weights = s->tables[t];
        s->offsets[t] = memory_alloc(max_i64(1, weights->count * STATES) * (i64)sizeof(i64));
        for (i64 i = 0; i < weights->count; i++) {
            const struct weight *w = &weights->list[i];
            for (enum weight_state state = STATE_MASTER; state <= weight_last_state(weights, w); state++) {
                s->offsets[t][i * STATES + state] = at;
                at += round_up(w->spec.matrices * w->spec.rows * w->spec.columns * 4, 64);
            }
        }
    }
    s->slot_bytes = round_up(at, ALIGNMENT);
    s->bytes = round_up(sizeof(struct head), ALIGNMENT) + SLOTS * s->slot_bytes;
}

/* Bytes that the machine can give without paging; INT64_MAX: unknown. */
static i64 available_bytes(void)
{
    i64 kib = system_count("/proc/meminfo", "MemAvailable:");
    return kib < 0 ? INT64_MAX : kib * 1024;
}

/* The first rank: makes the file, unless it has snapshots of this run. */
static int make_file(const struct snapshots *s)
{
    struct head was = {0};
    struct memory_room room = memory_room();
    i64 left = min_i64(room.left, available_bytes());
    int failed = -1;
    bool same = pread(s->file.descriptor, &was, sizeof was, 0) == sizeof was && was.magic == magic &&
                was.run == s->file.run && was.bytes == s->bytes;
    if (same)
        return 0;
    if (ftruncate(s->file.descriptor, 0))
        return error_errno("%s", "its file cannot be made");
    if (left / 2 < s->bytes)
        return error_set("%.2f GB are needed, and half of the %.2f GB that are left%s%s", 1e-9 * (double)s->bytes,
                         1e-9 * (double)left, room.left == left ? " of " : "", room.left == left ? room.limit : "");
    while ((failed = fallocate(s->file.descriptor, 0, 0, s->bytes)) && errno == EINTR)
        ;
    if (failed) {
        int number = errno;
        (void)!ftruncate(s->file.descriptor, 0);
        errno = number;
        return error_errno("%.2f GB are needed", 1e-9 * (double)s->bytes);
    }
    was = (struct head){.magic = magic, .run = s->file.run, .bytes = s->bytes, .made_s = clock_s()};
    return pwrite(s->file.descriptor, &was, sizeof was, 0) == sizeof was ? 0 : error_errno("%s", "its file");
}

static int map_file(struct snapshots *s)
{
    void *map = mmap(NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->file.descriptor, 0);
    if (map == MAP_FAILED)
        return error_errno("%.2f GB are needed", 1e-9 * (double)s->bytes);
    s->map = map;
    s->head = map;
    return 0;
}

struct snapshots *snapshots_open(const struct snapshot_file *file)
{
    struct snapshots *s = memory_alloc(sizeof *s);
    struct comm *world = file->ranks->world;
    *s = (struct snapshots){.file = *file};
    require(file->count <= TABLES_MOST, "%lld tables", (long long)file->count);
    for (i64 i = 0; i < file->count; i++)
        s->tables[i] = file->tables[i];
    lay_out(s);
    int status = world->size > RANKS_MOST ? error_set("more than %d ranks", RANKS_MOST) : 0;
    if (status == 0 && rank_of(s) == 0)
        status = make_file(s);
    if (!comm_any(world, status != 0))
        status = map_file(s);
    secret_draw(&s->opened, sizeof s->opened);
    comm_broadcast(comm_host(world), &s->opened, sizeof s->opened, 0);
    if (!comm_any(world, status != 0)) {
        s->head->begun += rank_of(s) == 0;
        return s;
    }
    if (rank_of(s) == 0)
        log_info("no snapshots in memory: %s; a run whose ranks die goes on from the last checkpoint on disk",
                 status ? error_text() : "a rank cannot map them");
    snapshots_close(s, false);
    return NULL;
}

void snapshots_close(struct snapshots *s, bool keep)
{
    if (!s)
        return;
    if (s->map && rank_of(s) == 0)
        s->head->ended++;
    if (s->map)
        munmap(s->map, (size_t)s->bytes);
    if (!keep && rank_of(s) == 0)
        (void)!ftruncate(s->file.descriptor, 0);
    for (i64 t = 0; t < s->file.count; t++)
        memory_free(s->offsets[t]);
    memory_free(s);
}

/* ---- Writing ---- */

struct visit {
    const struct snapshots *s;
    i64 table, slot;
    u64 hash;
    bool writes;
};

/* Hashes a run where it lies in the slot, after it has been copied there if `writes`. */
static void visit_run(void *context, const struct zero_run *run)
{
    struct visit *v = context;
    const struct weights *weights = v->s->tables[v->table];
    i64 offset = v->s->offsets[v->table][(run->weight - weights->list) * STATES + run->state];
    char *at = slot_data(v->s, v->slot) + offset + run->first * 4;
    if (v->writes && v->s->saved < SLOTS) /* cheaper than a fault for each page; an old kernel refuses */
        (void)!madvise(at - (uintptr_t)at % ALIGNMENT, (size_t)(run->count * 4 + (i64)((uintptr_t)at % ALIGNMENT)),
                       MADV_POPULATE_WRITE);
    if (v->writes)
        device_get(weights->device, at, run->data, run->count * 4);
    v->hash = hash_bytes(at, run->count * 4, v->hash);
}

static u64 visit_own(const struct snapshots *s, i64 slot)
{
    const struct parallel *p = s->file.ranks;
    struct visit v = {.s = s, .slot = slot, .writes = true};
    for (; v.table < s->file.count; v.table++) {
        const struct weights *weights = s->tables[v.table];
        zero_visit(weights, &p->layout, weights->layout.placement, p->world->rank, visit_run, &v);
    }
    return v.hash;
}

/* Of the slot's members, of its state and of the placements. */
static u64 hash_slot(const struct snapshots *s, i64 at, i64 state_bytes)
{
    struct slot plain = s->head->slots[at];
    const char *data = slot_data(s, at);
    plain.hash = 0;
    u64 hash = hash_bytes(data, state_bytes, hash_bytes(&plain, sizeof plain, 0));
    return hash_bytes(data + STATE_BYTES, s->placed_end - STATE_BYTES, hash);
}

static void put_placements(const struct snapshots *s, i64 at)
{
    for (i64 t = 0; t < s->file.count; t++) {
        const i32 *placement = s->tables[t]->layout.placement;
        s->head->slots[at].placed[t] = placement != NULL;
        if (placement)
            memcpy(slot_data(s, at) + s->placements[t], placement,
                   (size_t)weights_placement_count(s->tables[t]) * sizeof *placement);
    }
}

i64 snapshots_deaths(const struct snapshots *s)
{
    return s->head->begun - 1 - s->head->ended;
}

double snapshots_pause_s(double cost_s, i64 deaths, double seconds)
{
    double pause_s = 100 * cost_s;
    return deaths > 0 ? fmin(pause_s, sqrt(2 * cost_s * seconds / (double)deaths)) : pause_s;
}

bool snapshots_due(const struct snapshots *s)
{
    return clock_s() >= s->due_s;
}

void snapshots_save(struct snapshots *s, i64 step, const char *state, i64 bytes)
{
    double begin_s = clock_s();
    const struct parallel *p = s->file.ranks;
    struct noted *noted = &s->head->ranks[s->next][rank_of(s)];
    struct slot *slot = &s->head->slots[s->next];
    if (bytes > STATE_BYTES && !s->told)
        log_info("no snapshots in memory: the state has %lld bytes, at most %d have room", (long long)bytes,
                 STATE_BYTES);
    s->told |= bytes > STATE_BYTES;
    __atomic_store_n(&noted->opened, 0, __ATOMIC_SEQ_CST);
    if (rank_of(s) == 0) {
        *slot = (struct slot){
            .opened = s->opened, .step = step, .size = p->world->size, .state_bytes = bytes, .layout = p->layout};
        memcpy(slot_data(s, s->next), state, (size_t)min_i64(bytes, STATE_BYTES));
        put_placements(s, s->next);
        slot->hash = hash_slot(s, s->next, min_i64(bytes, STATE_BYTES));
    }
    noted->hash = visit_own(s, s->next);
    noted->step = step;
    __atomic_store_n(&noted->opened, s->opened, __ATOMIC_SEQ_CST);
    s->next = 1 - s->next;
    if (++s->saved > SLOTS) /* the first ones map the memory */
        s->due_s = clock_s() + snapshots_pause_s(clock_s() - begin_s, snapshots_deaths(s), clock_s() - s->head->made_s);
}

/* ---- Reading ---- */

/* What a rank of the world that wrote the snapshot has noted of it. */
static u64 hash_rank(const struct snapshots *s, i64 at, i64 rank)
{
    const struct slot *slot = &s->head->slots[at];
    struct visit v = {.s = s, .slot = at};
    for (; v.table < s->file.count; v.table++) {
        const void *placement = slot->placed[v.table] ? slot_data(s, at) + s->placements[v.table] : NULL;
        zero_visit(s->tables[v.table], &slot->layout, placement, rank, visit_run, &v);
    }
    return v.hash;
}

static bool is_complete(const struct snapshots *s, i64 at)
{
    const struct slot *slot = &s->head->slots[at];
    bool whole = slot->opened && slot->size >= 1 && slot->size <= RANKS_MOST && slot->state_bytes >= 0 &&
                 slot->state_bytes <= STATE_BYTES && hash_slot(s, at, slot->state_bytes) == slot->hash;
    for (i64 r = 0; whole && r < slot->size; r++) {
        const struct noted *noted = &s->head->ranks[at][r];
        whole = noted->opened == slot->opened && noted->step == slot->step && hash_rank(s, at, r) == noted->hash;
    }
    return whole;
}

/* The first rank: the slot of the newest complete snapshot, -1: none is above `after`. */
static i64 find_newest(const struct snapshots *s, i64 after)
{
    const struct slot *slots = s->head->slots;
    i64 newest = slots[1].step > slots[0].step;
    for (i64 i = 0; i < SLOTS; i++) {
        i64 at = i ? 1 - newest : newest;
        if (slots[at].step > after && is_complete(s, at))
            return at;
    }
    return -1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor_view *)a)->name, ((const struct tensor_view *)b)->name);
}

/* The table as an open file of tensors. */
static void load_table(const struct snapshots *s, i64 table, i64 slot)
{
    struct weights *weights = s->tables[table];
    struct weights_reader reader = zero_reader(weights, s->file.ranks);
    struct weight_list list;
    weights_list_optimizer(&list, weights, s->file.ranks->world->size > 1 ? &reader : NULL);
    struct safetensors set = {.tensors = memory_alloc(max_i64(1, list.count) * (i64)sizeof *set.tensors)};
    for (i64 i = 0; i < weights->count; i++)
        for (enum weight_state state = STATE_MASTER; state <= weight_last_state(weights, &weights->list[i]); state++) {
            const struct tensor_source *source = &list.tensors[set.count];
            struct tensor_view *view = &set.tensors[set.count++];
            *view = (struct tensor_view){.name = source->name, .dtype = source->dtype, .rank = source->rank};
            memcpy(view->shape, source->shape, sizeof view->shape);
            view->data = slot_data(s, slot) + s->offsets[table][i * STATES + state];
            view->bytes = tensor_source_bytes(source);
        }
    qsort(set.tensors, (size_t)set.count, sizeof *set.tensors, by_name);
    require(weights_load_optimizer(weights, &set, "snapshot in memory") == 0, "%s", error_text());
    memory_free(set.tensors);
    weight_list_release(&list);
}

i64 snapshots_find(struct snapshots *s, i64 after, const char **state, i64 *bytes)
{
    struct comm *world = s->file.ranks->world;
    i64 slot = rank_of(s) == 0 ? find_newest(s, after) : -1;
    if (rank_of(s) == 0 && slot < 0) /* the steps after them go another way */
        memset(s->head->slots, 0, sizeof s->head->slots);
    comm_broadcast(comm_host(world), &slot, sizeof slot, 0);
    *state = NULL;
    *bytes = 0;
    if (slot < 0)
        return -1;
    s->found = slot;
    s->next = 1 - slot;
    *state = slot_data(s, slot);
    *bytes = s->head->slots[slot].state_bytes;
    return s->head->slots[slot].step;
}

void snapshots_load(struct snapshots *s)
{
    for (i64 t = 0; t < s->file.count; t++)
        load_table(s, t, s->found);
}
