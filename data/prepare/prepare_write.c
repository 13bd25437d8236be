#include "data/prepare/prepare_internal.h"

#include <string.h>

/* The growing part list of one record. */
struct prepare_write_record {
    struct shard_part *parts;
    i64 count, capacity;
};

static void push(struct prepare_write_record *r, struct shard_part part, bool condition)
{
    if (r->count == r->capacity) {
        i64 wanted = max_i64(8, 2 * r->capacity), size = (i64)sizeof part;
        r->parts = memory_resize(r->parts, r->capacity * size, wanted * size);
        r->capacity = wanted;
    }
    part.condition = condition;
    r->parts[r->count++] = part;
}

static void finish(struct prepare *p, const struct item *item, enum direction direction, struct prepare_write_record *r)
{
    if (r->count > 0 && r->count <= UINT16_MAX) {
        shard_write_sample(p->writers[item->sample.split], direction, item->sample.name, r->parts, r->count);
        if (item->sample.goes_on)
            shard_write_on(p->writers[item->sample.split]);
        p->counts.records[item->sample.split][direction]++;
    }
    r->count = 0;
}

/* ---- Payloads of text ---- */

static struct shard_part write_ids(struct shard_writer *w, const struct id_list *ids)
{
    struct shard_part part = {.kind = STREAM_TEXT, .count = (u32)ids->count};
    shard_write_payload(w, &part, ids->ids, ids->count * 4);
    return part;
}

static struct shard_part write_note(struct shard_writer *w, const struct text *text)
{
    struct shard_part part = {.kind = PART_NOTE};
    shard_write_payload(w, &part, text->data, text->length);
    return part;
}

static void written_release(struct written *written)
{
    memory_free(written->sounds);
}

/* Appends a medium. */
static void push_medium(struct prepare_write_record *r, struct written *written, struct prepare *p,
                        struct shard_writer *w, const struct made *m, bool out, bool condition)
{
    struct shard_part pixels;
    if (write_pixels(&pixels, p, w, m, out))
        push(r, pixels, condition);
    write_sounds(written, p, w, m);
    for (i64 i = 0; i < written->count; i++)
        push(r, written->sounds[i], condition);
}

/* ---- Records ---- */

/* Writes a medium and its caption in both directions, each predicted from the other. */
static void write_captioned(struct prepare *p, const struct item *item)
{
    struct shard_writer *w = p->writers[item->sample.split];
    const struct made *m = &item->made[0];
    enum modality kind = (enum modality)item->sample.parts[0].kind;
    struct shard_part words = write_ids(w, &item->made[1].ids), note = write_note(w, &item->sample.parts[1].bytes);
    struct written written = {0};
    struct prepare_write_record record = {0};
    if (m->in) {
        push_medium(&record, &written, p, w, m, false, true);
        push(&record, words, false);
        push(&record, note, false);
        finish(p, item, direction_of(kind, false), &record);
    }
    if (m->out) {
        push(&record, words, true);
        push_medium(&record, &written, p, w, m, true, false);
        push(&record, note, false);
        finish(p, item, direction_of(kind, true), &record);
    }
    written_release(&written);
    memory_free(record.parts);
}

/* Document number for the dropout draws. It depends only on the sample and the copy, so a part
 * draws the same as the whole. */
static u32 document_of(const struct item *item, i64 copy)
{
    u64 hash = hash_bytes(&item->sample.key, sizeof item->sample.key, (u64)copy);
    return (u32)(hash ^ hash >> 32);
}

/* Writes a plain text. For training with dropout, each copy is tokenized with other draws. */
static void write_plain(struct prepare *p, const struct item *item)
{
    const struct prepare_settings *s = p->settings;
    const struct sample_part *part = &item->sample.parts[0];
    bool drawn = s->dropout > 0 && item->sample.split == SPLIT_TRAIN && part->kind == MODALITY_TEXT;
    struct prepare_write_record record = {0};
    for (i64 copy = 0; copy < (drawn ? s->dropout_copies : 1); copy++) {
        struct id_list ids = {0};
        struct encode_options options = {.plain = true,
                                         .dropout = s->dropout,
                                         .key = {p->seed, RNG_BPE_DROPOUT},
                                         .document = document_of(item, copy)};
        if (drawn)
            require(text_encode(p->text, &ids, part->bytes.data, part->bytes.length, &options) == 0, "%s",
                    error_text());
        const struct id_list *used = drawn ? &ids : &item->made[0].ids;
        if (used->count)
            push(&record, write_ids(p->writers[item->sample.split], used), false);
        finish(p, item, DIRECTION_TEXT, &record);
        id_list_release(&ids);
    }
    memory_free(record.parts);
}

/* Ids collected until a medium follows or the text changes between prompt and answer. */
struct prepare_write_run {
    struct id_list ids;
    bool condition;
};

static void end_run(struct prepare *p, const struct item *item, struct prepare_write_record *r,
                    struct prepare_write_run *run)
{
    if (run->ids.count)
        push(r, write_ids(p->writers[item->sample.split], &run->ids), run->condition);
    run->ids.count = 0;
}

static void add_run(struct prepare *p, const struct item *item, struct prepare_write_record *r,
                    struct prepare_write_run *run, const i32 *ids, i64 count, bool condition)
{
    if (condition != run->condition)
        end_run(p, item, r, run);
    run->condition = condition;
    for (i64 i = 0; i < count; i++)
        id_list_push(&run->ids, ids[i]);
}

/* Ends a message behind its last part. The first tail token belongs to the message, so an answer's
 * is trained; the tokens behind it only separate messages. */
static void end_message(struct prepare *p, const struct item *item, struct prepare_write_record *r,
                        struct prepare_write_run *run, i64 part)
{
    const struct sample *s = &item->sample;
    struct id_list tail = {0};
    if (s->layout != SAMPLE_CHAT || (part + 1 < s->count && !s->parts[part + 1].role))
        return;
    chat_end(&tail, p, s, part);
    if (tail.count > 0)
        add_run(p, item, r, run, tail.ids, 1, !chat_answers(s, part));
    if (tail.count > 1 && part + 1 < s->count)
        add_run(p, item, r, run, tail.ids + 1, tail.count - 1, true);
    id_list_release(&tail);
}

static void write_turns(struct prepare *p, const struct item *item)
{
    const struct sample *s = &item->sample;
    struct prepare_write_record record = {0};
    struct prepare_write_run run = {0};
    for (i64 i = 0; i < s->count; i++) {
        const struct made *m = &item->made[i];
        bool condition = s->layout == SAMPLE_CHAT && !chat_answers(s, i);
        add_run(p, item, &record, &run, m->head.ids, m->head.count, true);
        if (m->in || m->out) {
            struct written written = {0};
            end_run(p, item, &record, &run);
            push_medium(&record, &written, p, p->writers[item->sample.split], m, m->out, condition || m->in);
            written_release(&written);
        } else {
            add_run(p, item, &record, &run, m->ids.ids, m->ids.count, condition);
        }
        end_message(p, item, &record, &run, i);
    }
    end_run(p, item, &record, &run);
    finish(p, item, s->layout == SAMPLE_CHAT ? DIRECTION_CHAT : DIRECTION_IMAGE_IN, &record);
    id_list_release(&run.ids);
    memory_free(record.parts);
}

void prepare_write(struct prepare *p, const struct item *item)
{
    if (item->sample.layout == SAMPLE_PLAIN)
        write_plain(p, item);
    else if (item->sample.layout == SAMPLE_CAPTIONED)
        write_captioned(p, item);
    else
        write_turns(p, item);
    shard_write_break(p->writers[item->sample.split]);
    p->counts.samples[item->sample.split]++;
}
