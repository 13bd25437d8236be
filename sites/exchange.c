/* What is sent and what is done with what has come: calls of all ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sites/journal.h"
#include "sites/sites_inside.h"

static struct merged_site *merged_of(struct sites *s, const char *name)
{
    i64 i = 0;
    while (i < s->merged_count && strcmp(s->merged[i].name, name) != 0)
        i++;
    if (i == SITES_MOST)
        return NULL;
    if (i == s->merged_count)
        snprintf(s->merged[s->merged_count++].name, SITE_NAME_BYTES, "%s", name);
    return &s->merged[i];
}

static i64 last_merged(void *context, const char *name, i64 fragment)
{
    const struct merged_site *m = merged_of(context, name);
    return m ? m->round[fragment] : 0;
}

/* All ranks: codes of what is under way go out, with the counts that were noted for them. */
void exchange_send(struct sites *s, i64 f)
{
    struct of_fragment *o = &s->of[f];
    struct part_sizes sizes = fragment_sizes(&s->fragments, f);
    i64 bits = o->bits, layers[s->stage.layers + 1];
    comm_broadcast(comm_host(s->stage.ranks->world), &bits, sizeof bits, 0);
    u8 *codes = site_is_first_rank(s) ? memory_alloc(sizes.code_bytes[bits]) : NULL;
    fragment_encode(&s->fragments, f, (int)bits, codes);
    if (!site_is_first_rank(s))
        return;
    struct part_head head = {.tokens = o->tokens_sent - o->tokens,
                             .bits = (i32)bits,
                             .uses = sizes.uses,
                             .code_bytes = sizes.code_bytes[bits]};
    struct buffer part = {0};
    double *use = memory_alloc(max_i64(1, sizes.uses) * 8);
    i64 count = fragment_layers(layers, &s->fragments, f), experts = s->stage.experts;
    for (i64 i = 0; i < count; i++)
        memcpy(use + i * experts, s->use_sent + layers[i] * experts, (size_t)experts * 8);
    snprintf(head.name, sizeof head.name, "%s", s->stage.settings->name);
    part_write(&part, &head, use, codes);
    traffic_part(s->traffic, f, o->round, &part);
    memory_free(use);
    memory_free(codes);
}

int exchange_begin(struct sites *s, i64 f, i64 done)
{
    struct of_fragment *o = &s->of[f];
    i64 layers[s->stage.layers + 1], count = fragment_layers(layers, &s->fragments, f), experts = s->stage.experts;
    if (fragment_measure(&s->fragments, f))
        return error_prefix("%s", s->stage.name);
    double *now = memory_alloc(max_i64(1, site_use_count(s)) * 8);
    if (site_use_count(s))
        s->stage.use_get(now, s->stage.context);
    for (i64 i = 0; i < count; i++)
        for (i64 k = layers[i] * experts; k < (layers[i] + 1) * experts; k++)
            s->use_sent[k] = fmax(0, now[k] - s->use[k]);
    memory_free(now);
    o->begun = done;
    o->round = o->version + 1;
    o->tokens_sent = s->tokens;
    exchange_send(s, f);
    return 0;
}

int exchange_try(struct sites *s)
{
    enum { BITS = 4, FRAGMENT = 0 };
    i64 bytes = fragment_sizes(&s->fragments, FRAGMENT).code_bytes[BITS], all = 0;
    u8 *codes = site_is_first_rank(s) ? memory_alloc(bytes) : NULL;
    double begun_s = clock_s();
    int status = fragment_measure(&s->fragments, FRAGMENT);
    if (status == 0)
        fragment_encode(&s->fragments, FRAGMENT, BITS, codes);
    for (i64 f = 0; f < s->fragments.count; f++)
        all += fragment_sizes(&s->fragments, f).code_bytes[BITS];
    s->trial_s = 2 * (clock_s() - begun_s) * (double)all / (double)bytes; /* applying takes about as long */
    memory_free(codes);
    return status ? error_prefix("%s", s->stage.name) : 0;
}

/* Moves the counts of use of a fragment's layers as the weights are moved. next: counts of the new anchor, in the
 * order of its layers; on the first rank. */
static void move_use(struct sites *s, i64 f, const double *next, bool own, bool settle)
{
    i64 layers[s->stage.layers + 1], count = fragment_layers(layers, &s->fragments, f), experts = s->stage.experts;
    double *now = memory_alloc(max_i64(1, site_use_count(s)) * 8);
    if (site_use_count(s) == 0) {
        memory_free(now);
        return;
    }
    s->stage.use_get(now, s->stage.context);
    for (i64 i = 0; i < count && site_is_first_rank(s); i++)
        for (i64 k = 0; k < experts; k++) {
            i64 at = layers[i] * experts + k;
            double moved = next[i * experts + k] - s->use[at];
            now[at] = settle ? next[i * experts + k] : now[at] + moved - (own ? s->use_sent[at] : 0);
            s->use[at] = next[i * experts + k];
            s->use_sent[at] = 0;
        }
    comm_broadcast(comm_host(s->stage.ranks->world), now, site_use_count(s) * 8, 0);
    s->stage.use_put(s->stage.context, now);
    memory_free(now);
}

/* On the first rank: counts of the anchor behind a round. */
static void use_after(double *next, const struct sites *s, i64 f, const struct record *record)
{
    i64 layers[s->stage.layers + 1], count = fragment_layers(layers, &s->fragments, f), experts = s->stage.experts;
    double share[SITES_MOST];
    record_shares(share, record, -1);
    for (i64 i = 0; i < count * experts; i++) {
        next[i] = s->use[layers[i / experts] * experts + i % experts];
        for (i64 p = 0; p < record->count; p++)
            next[i] += share[p] * part_use(&record->parts[p], i);
    }
}

/* The anchor of a fragment is of another version now. */
static void note_version(struct sites *s, i64 f, i64 version, bool own)
{
    struct of_fragment *o = &s->of[f];
    o->tokens = own ? o->tokens_sent : o->tokens;
    o->version = version;
    o->round = 0;
    s->changed = true;
    traffic_applied(s->traffic, f, version);
}

int exchange_apply(struct sites *s, const struct order *order, i64 done)
{
    i64 f = order->fragment;
    struct part_sizes sizes = fragment_sizes(&s->fragments, f);
    struct ready *ready = &s->ready[f];
    struct record *record = site_is_first_rank(s) ? memory_alloc(sizeof *record) : NULL;
    double *next = memory_alloc(max_i64(1, sizes.uses) * 8);
    int status = 0;
    if (record) {
        require(record_read(record, (const u8 *)ready->record.data, ready->record.length, &sizes) == 0, "%s",
                error_text());
        use_after(next, s, f, record);
    }
    fragment_apply(&s->fragments, f, record, order->own, order->settle);
    move_use(s, f, next, order->own, order->settle);
    s->changed = true;
    if (record) {
        struct json *line = journal_merge(done, f, ready->round, record, order->own);
        status = journal_add(s->stage.out, line);
        json_free(line);
        for (i64 i = 0; i < record->count; i++) {
            struct merged_site *m = merged_of(s, record->parts[i].head.name);
            if (m)
                m->round[f] = ready->round;
        }
        note_version(s, f, ready->round, order->own);
        s->of[f].last = s->of[f].last == LAST_SENT ? order->own ? LAST_MERGED : LAST_NOT : s->of[f].last;
        buffer_release(&ready->record);
    }
    memory_free(record);
    memory_free(next);
    return status;
}

void exchange_take(struct sites *s, const struct order *order)
{
    i64 f = order->fragment, uses = fragment_sizes(&s->fragments, f).uses;
    const char *data = s->event.data.data;
    double *next = memory_alloc(max_i64(1, uses) * 8);
    float *values = NULL;
    if (site_is_first_rank(s)) {
        values = memory_alloc(4 * fragment_elements(&s->fragments, f)); /* aligned */
        memcpy(next, data, (size_t)uses * 8);
        memcpy(values, data + 8 * uses, (size_t)fragment_elements(&s->fragments, f) * 4);
    }
    fragment_take(&s->fragments, f, values, order->keep, order->own);
    move_use(s, f, next, order->own, !order->keep);
    s->changed = true;
    if (site_is_first_rank(s)) {
        note_version(s, f, s->event.number, order->own);
        s->of[f].tokens = order->keep ? s->of[f].tokens : s->tokens;
        s->of[f].last = LAST_NOT;
        log_info("%s: took fragment %lld of round %lld from another site", s->stage.name, (long long)f,
                 (long long)s->event.number);
        buffer_release(&s->event.data);
        s->event = (struct traffic_event){0};
    }
    memory_free(values);
    memory_free(next);
}

void exchange_read(struct sites *s, i64 f)
{
    i64 uses = fragment_sizes(&s->fragments, f).uses, elements = fragment_elements(&s->fragments, f);
    i64 layers[s->stage.layers + 1], experts = s->stage.experts;
    i64 count = fragment_layers(layers, &s->fragments, f), bytes = 8 * uses + 4 * elements;
    char *data = site_is_first_rank(s) ? memory_alloc(bytes) : NULL;
    for (i64 i = 0; i < count && data; i++)
        memcpy(data + 8 * i * experts, s->use + layers[i] * experts, (size_t)experts * 8);
    fragment_read_anchor(&s->fragments, f, data ? (float *)(void *)(data + 8 * uses) : NULL);
    if (data) {
        traffic_anchor(s->traffic, f, s->of[f].version, data, bytes, last_merged, s);
        s->event = (struct traffic_event){0};
    }
    memory_free(data);
}
