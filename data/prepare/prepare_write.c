/* Writes encoded samples as records: payloads first, then the list of parts that refers to them. */
#include "data/prepare/prepare_internal.h"

#include <string.h>

/* The growing part list of one record. */
struct prepare_write_record {
    struct shard_part *parts;
    i64 count, capacity;
};

static void push_part(struct prepare_write_record *r, struct shard_part part, bool condition)
{
    if (r->count == r->capacity) {
        i64 wanted = max_i64(8, 2 * r->capacity), size = (i64)sizeof part;
        r->parts = memory_resize(r->parts, r->capacity * size, wanted * size);
        r->capacity = wanted;
    }
    part.condition = condition;
    r->parts[r->count++] = part;
}

static void end_record(struct prepare *p, const struct item *item, enum direction direction,
                       struct prepare_write_record *r)
{
    if (r->count > 0 && r->count <= UINT16_MAX) {
        shard_write_sample(p->writers[item->sample.split], direction, item->sample.name, r->parts, r->count);
        if (item->sample.goes_on)
            shard_write_resume(p->writers[item->sample.split]);
        p->counts.records[item->sample.split][direction]++;
    }
    r->count = 0;
}

/* ---- Payloads: text here, media in prepare_media.c ---- */

static struct shard_part write_ids(struct shard_writer *w, const struct id_list *ids)
{
    struct shard_part part = {.kind = STREAM_TEXT, .count = (u32)ids->count};
    shard_write_payload(w, &part, ids->ids, ids->count * 4);
    return part;
}

/* Appends a medium. */
static void push_medium(struct prepare_write_record *r, struct written_sounds *sounds, struct prepare *p,
                        struct shard_writer *w, const struct encoded_part *m, bool out, bool condition)
{
    struct shard_part pixels;
    if (media_write_pixels(&pixels, p, w, m, out))
        push_part(r, pixels, condition);
    media_write_sounds(sounds, p, w, m);
    for (i64 i = 0; i < sounds->count; i++)
        push_part(r, sounds->parts[i], condition);
}

/* ---- Records ---- */

/* Writes a medium and its caption in both directions, each predicted from the other. */
static void write_captioned(struct prepare *p, const struct item *item)
{
    struct shard_writer *w = p->writers[item->sample.split];
    const struct encoded_part *m = &item->encoded[0];
    enum modality kind = (enum modality)item->sample.parts[0].kind;
    const struct buffer *caption = &item->sample.parts[1].bytes;
    struct shard_part words = write_ids(w, &item->encoded[1].ids), note = {.kind = PART_NOTE}, voice;
    struct written_sounds sounds = {0};
    struct prepare_write_record record = {0};
    shard_write_payload(w, &note, caption->data, caption->length);
    if (m->in) {
        push_medium(&record, &sounds, p, w, m, false, true);
        push_part(&record, words, false);
        push_part(&record, note, false);
        end_record(p, item, direction_of(kind, false), &record);
    }
    if (m->out) {
        if (media_write_voice(&voice, w, m, item->sample.speaker))
            push_part(&record, voice, true);
        push_part(&record, words, true);
        push_medium(&record, &sounds, p, w, m, true, false);
        push_part(&record, note, false);
        end_record(p, item, direction_of(kind, true), &record);
    }
    memory_free(sounds.parts);
    memory_free(record.parts);
}

/* Writes a plain text. For training with dropout, each copy is tokenized with other draws. */
static void write_plain(struct prepare *p, const struct item *item)
{
    const struct prepare_settings *s = p->settings;
    const struct sample_part *part = &item->sample.parts[0];
    bool drawn = s->dropout > 0 && item->sample.split == SPLIT_TRAIN && part->kind == MODALITY_TEXT;
    struct prepare_write_record record = {0};
    for (i64 copy = 0; copy < (drawn ? s->dropout_copies : 1); copy++) {
        /* Draws depend only on the sample and the copy, so a part draws the same as the whole. */
        u64 document = hash_bytes(&item->sample.key, sizeof item->sample.key, (u64)copy);
        struct id_list ids = {0};
        struct encode_options options = {.plain = true,
                                         .dropout = s->dropout,
                                         .key = {p->seed, RNG_BPE_DROPOUT},
                                         .document = (u32)(document ^ document >> 32)};
        if (drawn)
            require(text_encode(p->text, &ids, part->bytes.data, part->bytes.length, &options) == 0, "%s",
                    error_text());
        const struct id_list *used = drawn ? &ids : &item->encoded[0].ids;
        if (used->count)
            push_part(&record, write_ids(p->writers[item->sample.split], used), false);
        end_record(p, item, DIRECTION_TEXT, &record);
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
        push_part(r, write_ids(p->writers[item->sample.split], &run->ids), run->condition);
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

static void add_medium(struct prepare *p, const struct item *item, struct prepare_write_record *r,
                       struct prepare_write_run *run, i64 part)
{
    const struct encoded_part *m = &item->encoded[part];
    struct written_sounds sounds = {0};
    bool condition = item->sample.layout == SAMPLE_CHAT && !chat_learns(&item->sample, part);
    end_run(p, item, r, run);
    push_medium(r, &sounds, p, p->writers[item->sample.split], m, m->out, condition || m->in);
    memory_free(sounds.parts);
}

/* Writes a conversation: what is not learned is a prompt. */
static void write_chat(struct prepare *p, const struct item *item)
{
    struct prepare_write_record record = {0};
    struct prepare_write_run run = {0};
    i64 done = 0;
    bool learns = false;
    for (i64 i = 0; i < item->chat.run_count; i++) {
        const struct chat_run *r = &item->chat.runs[i];
        if (r->end > done)
            add_run(p, item, &record, &run, item->chat.ids.ids + done, r->end - done, !r->learned);
        learns |= r->learned;
        done = r->end;
        if (r->medium >= 0)
            add_medium(p, item, &record, &run, r->medium);
    }
    end_run(p, item, &record, &run);
    p->counts.unanswered += !learns;
    end_record(p, item, DIRECTION_CHAT, &record);
    id_list_release(&run.ids);
    memory_free(record.parts);
}

/* Writes texts and media in turn. */
static void write_mixed(struct prepare *p, const struct item *item)
{
    struct prepare_write_record record = {0};
    struct prepare_write_run run = {0};
    for (i64 i = 0; i < item->sample.count; i++) {
        const struct encoded_part *m = &item->encoded[i];
        if (m->in || m->out)
            add_medium(p, item, &record, &run, i);
        else
            add_run(p, item, &record, &run, m->ids.ids, m->ids.count, false);
    }
    end_run(p, item, &record, &run);
    end_record(p, item, DIRECTION_IMAGE_IN, &record);
    id_list_release(&run.ids);
    memory_free(record.parts);
}

void prepare_write(struct prepare *p, const struct item *item)
{
    if (item->sample.layout == SAMPLE_PLAIN)
        write_plain(p, item);
    else if (item->sample.layout == SAMPLE_CAPTIONED)
        write_captioned(p, item);
    else if (item->sample.layout == SAMPLE_CHAT)
        write_chat(p, item);
    else
        write_mixed(p, item);
    shard_write_break(p->writers[item->sample.split]);
    p->counts.samples[item->sample.split]++;
}
