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

/* ---- Payloads ---- */

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

static void to_bf16(bf16 *out, const float *values, i64 count)
{
    for (i64 i = 0; i < count; i++)
        out[i] = bf16_from_f32(values[i]);
}

static struct shard_part write_given(struct prepare *p, struct shard_writer *w, const struct made *m)
{
    i64 stride = p->meta.stride;
    struct shard_part part = {.kind = p->meta.shapes[m->shape].shape.video ? STREAM_VIDEO_IN : STREAM_IMAGE_IN,
                              .frames = (u32)m->frames,
                              .height = (u16)(m->clip.height / stride),
                              .width = (u16)(m->clip.width / stride)};
    i64 features = m->frames * part.height * part.width * p->meta.cell_features;
    i64 pixels = m->clip.frames * m->clip.height * m->clip.width * 3;
    u8 *payload = memory_alloc(features * 2 + pixels);
    to_bf16((bf16 *)payload, m->features, features);
    memcpy(payload + features * 2, m->clip.pixels, (size_t)pixels);
    shard_write_payload(w, &part, payload, features * 2 + pixels);
    memory_free(payload);
    return part;
}

static struct shard_part write_made(struct prepare *p, struct shard_writer *w, const struct made *m)
{
    const struct shard_shape *s = &p->meta.shapes[m->shape];
    struct shard_part part = {
        .kind = s->shape.video ? STREAM_VIDEO_OUT : STREAM_IMAGE_OUT, .frames = (u32)m->frames, .shape = (u16)m->shape};
    i64 values = m->frames * s->h * s->w * p->meta.bits;
    bf16 *payload = memory_alloc(values * 2);
    to_bf16(payload, m->latent, values);
    shard_write_payload(w, &part, payload, values * 2);
    memory_free(payload);
    return part;
}

static struct shard_part write_sound(struct prepare *p, struct shard_writer *w, const struct made_sound *s)
{
    struct shard_part part = {.kind = STREAM_AUDIO, .count = (u32)s->code_frames};
    i64 values = s->code_frames * p->meta.levels;
    u16 *payload = memory_alloc(values * 2);
    for (i64 i = 0; i < values; i++)
        payload[i] = (u16)s->codes[i];
    shard_write_payload(w, &part, payload, values * 2);
    memory_free(payload);
    return part;
}

/* The sound parts of a medium (for a film, those behind its clip). */
struct written {
    struct shard_part *sounds;
    i64 count;
};

static void written_release(struct written *written)
{
    memory_free(written->sounds);
}

static void write_sounds(struct written *out, struct prepare *p, struct shard_writer *w, const struct made *m)
{
    if (out->count || !m->sound_count)
        return;
    out->sounds = memory_alloc(m->sound_count * (i64)sizeof *out->sounds);
    for (; out->count < m->sound_count; out->count++)
        out->sounds[out->count] = write_sound(p, w, &m->sounds[out->count]);
}

/* Appends a medium. Its sounds have the same payload as input and as output, so they are written
 * once. */
static void push_medium(struct prepare_write_record *r, struct written *written, struct prepare *p,
                        struct shard_writer *w, const struct made *m, bool out, bool condition)
{
    if (m->clip.pixels)
        push(r, out ? write_made(p, w, m) : write_given(p, w, m), condition);
    write_sounds(written, p, w, m);
    for (i64 i = 0; i < written->count; i++)
        push(r, written->sounds[i], condition);
}

/* ---- Records ---- */

/* Writes a medium and its caption in both directions, each predicted from the other. */
static void write_captioned(struct prepare *p, const struct item *item)
{
    static const enum direction given[] = {
        [SAMPLE_IMAGE] = DIRECTION_IMAGE_IN, [SAMPLE_VIDEO] = DIRECTION_VIDEO_IN, [SAMPLE_AUDIO] = DIRECTION_AUDIO_IN};
    static const enum direction made_of[] = {[SAMPLE_IMAGE] = DIRECTION_IMAGE_OUT,
                                             [SAMPLE_VIDEO] = DIRECTION_VIDEO_OUT,
                                             [SAMPLE_AUDIO] = DIRECTION_AUDIO_OUT};
    struct shard_writer *w = p->writers[item->sample.split];
    const struct made *m = &item->made[0];
    enum sample_kind kind = item->sample.parts[0].kind;
    struct shard_part words = write_ids(w, &item->made[1].ids), note = write_note(w, &item->sample.parts[1].bytes);
    struct written written = {0};
    struct prepare_write_record record = {0};
    if (m->in) {
        push_medium(&record, &written, p, w, m, false, true);
        push(&record, words, false);
        push(&record, note, false);
        finish(p, item, given[kind], &record);
    }
    if (m->out) {
        push(&record, words, true);
        push_medium(&record, &written, p, w, m, true, false);
        push(&record, note, false);
        finish(p, item, made_of[kind], &record);
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
    bool drawn = s->dropout > 0 && item->sample.split == SPLIT_TRAIN && part->kind == SAMPLE_TEXT;
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
