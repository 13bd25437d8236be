/* Best-fit packing (Ding et al. 2024, arXiv 2404.10830, for documents). Rows with equal room form a
 * list, and a 2-level bitmap marks the rooms that occur, so the least sufficient room is found in a
 * few words. Entries are packed in the given order, which mixes them within every row.
 * Longest-first packing fills better, but it puts similar lengths, hence one modality, into a row;
 * it is used only if the given order fills less than FULL. */
#include "data/loader/plan.h"

#include <stdlib.h>
#include <string.h>

#define FULL 0.96 /* share of real positions at which the order is kept */

void entries_push(struct plan_entries *list, const struct plan_entry *entry)
{
    if (list->count == list->capacity) {
        i64 wanted = max_i64(64, 2 * list->capacity), size = (i64)sizeof *entry;
        list->data = memory_resize(list->data, list->capacity * size, wanted * size);
        list->capacity = wanted;
    }
    list->data[list->count++] = *entry;
}

void entries_release(struct plan_entries *list)
{
    memory_free(list->data);
    *list = (struct plan_entries){0};
}

void rows_clear(struct packed_rows *rows)
{
    rows->entries.count = rows->count = 0;
}

void rows_push(struct packed_rows *rows, const struct plan_entry *entries, i64 count)
{
    if (rows->count + 1 >= rows->capacity) {
        i64 wanted = max_i64(64, 2 * rows->capacity);
        rows->offset = memory_resize(rows->offset, rows->capacity * 8, wanted * 8);
        rows->capacity = wanted;
    }
    rows->offset[rows->count] = rows->entries.count;
    for (i64 i = 0; i < count; i++)
        entries_push(&rows->entries, &entries[i]);
    rows->offset[++rows->count] = rows->entries.count;
}

void rows_release(struct packed_rows *rows)
{
    entries_release(&rows->entries);
    memory_free(rows->offset);
    *rows = (struct packed_rows){0};
}

/* Rows indexed by their room, 0 to length. */
struct free_space {
    i64 length;
    i32 *head, *next;  /* first row with a room; next row with the same room */
    u64 *some, *words; /* bit r: a row has room r; bit w: word w of `some` is not 0 */
};

static void rooms_init(struct free_space *r, i64 length, i64 most_rows)
{
    *r = (struct free_space){.length = length};
    r->head = memory_alloc((length + 1) * 4);
    r->next = memory_alloc(max_i64(1, most_rows) * 4);
    r->some = memory_alloc((length / 64 + 1) * 8);
    r->words = memory_alloc((length / 4096 + 1) * 8);
    memset(r->head, -1, (size_t)(length + 1) * 4);
}

static void rooms_release(struct free_space *r)
{
    memory_free(r->head);
    memory_free(r->next);
    memory_free(r->some);
    memory_free(r->words);
}

static void rooms_put(struct free_space *r, i64 room, i32 row)
{
    r->next[row] = r->head[room];
    r->head[room] = row;
    r->some[room / 64] |= 1ull << room % 64;
    r->words[room / 4096] |= 1ull << room / 64 % 64;
}

static i32 rooms_take(struct free_space *r, i64 room)
{
    i32 row = r->head[room];
    r->head[room] = r->next[row];
    if (r->head[room] < 0)
        r->some[room / 64] &= ~(1ull << room % 64);
    if (r->some[room / 64] == 0)
        r->words[room / 4096] &= ~(1ull << room / 64 % 64);
    return row;
}

/* The first set bit at or after `from`, or -1. */
static i64 next_bit(const u64 *bits, i64 from, i64 end)
{
    for (i64 word = from / 64; word * 64 < end; word++, from = word * 64) {
        u64 rest = bits[word] >> from % 64;
        if (rest)
            return from + __builtin_ctzll(rest);
    }
    return -1;
}

/* The least room >= need, or -1. */
static i64 rooms_find(const struct free_space *r, i64 need)
{
    u64 here = r->some[need / 64] >> need % 64;
    if (here)
        return need + __builtin_ctzll(here);
    i64 word = next_bit(r->words, need / 64 + 1, r->length / 64 + 1);
    return word < 0 ? -1 : word * 64 + __builtin_ctzll(r->some[word]);
}

struct fit_ranked {
    i64 length;
    i32 index;
};

static int longer_first(const void *a, const void *b)
{
    const struct fit_ranked *x = a, *y = b;
    return x->length != y->length ? (x->length < y->length ? 1 : -1) : (x->index > y->index) - (x->index < y->index);
}

static i32 *rank(const struct plan_entries *entries, bool by_length)
{
    struct fit_ranked *ranked = memory_alloc(max_i64(1, entries->count) * (i64)sizeof *ranked);
    i32 *order = memory_alloc(max_i64(1, entries->count) * 4);
    for (i64 i = 0; i < entries->count; i++)
        ranked[i] = (struct fit_ranked){by_length ? entries->data[i].length : 0, (i32)i};
    qsort(ranked, (size_t)entries->count, sizeof *ranked, longer_first);
    for (i64 i = 0; i < entries->count; i++)
        order[i] = ranked[i].index;
    memory_free(ranked);
    return order;
}

/* Assigns row[i] to each entry; returns the number of rows. */
static i64 assign(i32 *row, const struct plan_entries *entries, i64 length, bool by_length)
{
    struct free_space rooms;
    i32 *order = rank(entries, by_length);
    i64 count = 0;
    rooms_init(&rooms, length, entries->count);
    for (i64 i = 0; i < entries->count; i++) {
        i64 need = entries->data[order[i]].length, room = rooms_find(&rooms, need);
        i32 at = room < 0 ? (i32)count++ : rooms_take(&rooms, room);
        rooms_put(&rooms, (room < 0 ? length : room) - need, at);
        row[order[i]] = at;
    }
    rooms_release(&rooms);
    memory_free(order);
    return count;
}

static i64 assign_best(i32 *row, const struct plan_entries *entries, i64 length)
{
    i64 total = 0, count = assign(row, entries, length, false);
    for (i64 i = 0; i < entries->count; i++)
        total += entries->data[i].length;
    return (double)total >= FULL * (double)(count * length) ? count : assign(row, entries, length, true);
}

void fit(struct packed_rows *out, const struct plan_entries *entries, i64 length)
{
    i32 *row = memory_alloc(max_i64(1, entries->count) * 4), *next = memory_alloc(max_i64(1, entries->count) * 4);
    i64 count = assign_best(row, entries, length);
    i32 *head = memory_alloc(max_i64(1, count) * 4);
    struct plan_entries one = {0};
    memset(head, -1, (size_t)count * 4);
    for (i64 i = entries->count - 1; i >= 0; i--) { /* backwards, so that each list ends up in order */
        next[i] = head[row[i]];
        head[row[i]] = (i32)i;
    }
    rows_clear(out);
    for (i64 r = 0; r < count; r++) {
        one.count = 0;
        for (i32 i = head[r]; i >= 0; i = next[i])
            entries_push(&one, &entries->data[i]);
        rows_push(out, one.data, one.count);
    }
    entries_release(&one);
    memory_free(head);
    memory_free(next);
    memory_free(row);
}
