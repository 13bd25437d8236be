/* Decodes the samples of a batch: text to ids; media by prepare_media.c. Rules on a sample alone
 * are checked here, too. */
#include "data/prepare/prepare_internal.h"
#include "data/formats/char_reader.h"
#include "data/media/subtitles.h"

#include <string.h>

/* ---- Use of each part ---- */

static bool trains(const struct prepare *p, enum modality kind, bool makes)
{
    enum direction direction = direction_of(kind, makes);
    return media_can_encode(p, kind) && direction != DIRECTIONS && p->wanted[direction];
}

/* Decides the use of each part. In conversations an assistant's media are model output and all
 * others model input. Returns false if nothing of the sample is wanted. */
static bool decide_use(const struct prepare *p, struct item *item)
{
    static const enum direction directions[] = {DIRECTION_TEXT, DIRECTION_TEXT, DIRECTION_CHAT, DIRECTION_IMAGE_IN};
    const struct sample *s = &item->sample;
    bool any = s->layout != SAMPLE_CAPTIONED && p->wanted[directions[s->layout]];
    for (i64 i = 0; i < s->count; i++) {
        struct encoded_part *encoded = &item->encoded[i];
        int kind = s->parts[i].kind;
        if (kind == MODALITY_TEXT || kind == SAMPLE_IDS)
            continue;
        if (s->layout == SAMPLE_CAPTIONED) {
            encoded->in = trains(p, (enum modality)kind, false);
            encoded->out = trains(p, (enum modality)kind, true);
            any = any || encoded->in || encoded->out;
        } else {
            encoded->out = chat_learns(s, i);
            encoded->in = !encoded->out;
            any = any && media_can_encode(p, (enum modality)kind);
        }
    }
    return any;
}

/* ---- Text ---- */

static int decode_text(const struct prepare *p, struct item *item, i64 part)
{
    const struct buffer *bytes = &item->sample.parts[part].bytes;
    struct id_list *out = &item->encoded[part].ids;
    if (item->sample.parts[part].kind == MODALITY_TEXT)
        return text_encode(
            p->text, out, bytes->data ? bytes->data : "", bytes->length,
            &(struct encode_options){.plain = true, .begins_word = item->sample.layout == SAMPLE_CAPTIONED});
    const i32 *ids = (const i32 *)bytes->data;
    for (i64 i = 0; i < bytes->length / 4; i++) {
        if (ids[i] < 0 || ids[i] >= p->meta.vocabulary)
            return error_set("id %d, but the tokenizer's are below %lld: prepared with another one", ids[i],
                             (long long)p->meta.vocabulary);
        id_list_push(out, ids[i]);
    }
    if (out->count && out->ids[out->count - 1] == p->vocabulary.end)
        out->count--; /* the grammar appends the end token */
    return 0;
}

/* ---- Subtitles of a window ---- */

static bool has_subtitles(const struct sample *s)
{
    return s->subtitles || s->cues.length;
}

/* Takes the subtitles shown during the medium, which has been read already, as its text. Without
 * any, the item is left out. Curation checks them like other texts. */
static int subtitles_as_text(const struct prepare *p, struct item *item)
{
    struct sample *s = &item->sample;
    const struct encoded_part *medium = &item->encoded[0];
    const struct sound *sound = medium->sound_count ? &medium->sounds[0].sound : NULL;
    double seconds = medium->clip.pixels ? (double)medium->clip.frames / medium->clip.rate_hz
                     : sound             ? (double)sound->samples / (double)sound->rate_hz
                                         : 0;
    struct buffer file = {0}, words = {0};
    if (s->subtitles && file_read_most(&file, s->subtitles, LINE_BYTES_MAX) < 0)
        return -1;
    const struct buffer *cues = s->subtitles ? &file : &s->cues;
    subtitles_words(&words, cues->data ? cues->data : "", cues->length, item->from_s, item->from_s + seconds);
    buffer_release(&file);
    buffer_release(&s->parts[1].bytes);
    s->parts[1].bytes = words;
    item->left_out |= words.length == 0;
    if (p->curation && !item->left_out)
        curation_inspect_shown(p->curation, &item->curate, s);
    return 0;
}

/* ---- Items ---- */

static int decode_chat(const struct prepare *p, struct item *item)
{
    if (p->chat)
        return chat_lay_out(&item->chat, p->chat, &item->sample, false);
    struct chat *chat = text_chat_open(p->text); /* for its message */
    text_chat_close(chat);
    return -1;
}

static int decode_item(const struct prepare *p, struct item *item)
{
    struct sample *s = &item->sample;
    if (s->layout == SAMPLE_CHAT && decode_chat(p, item) < 0)
        return -1;
    for (i64 i = 0; i < s->count; i++) {
        int kind = s->parts[i].kind;
        bool text = kind == MODALITY_TEXT || kind == SAMPLE_IDS;
        if (i == 1 && has_subtitles(s) && subtitles_as_text(p, item) < 0)
            return -1;
        if (s->layout != SAMPLE_CHAT && text && decode_text(p, item, i) < 0)
            return -1;
        if (!text && media_decode(p, item, i) < 0)
            return -1;
    }
    return 0;
}

struct prepare_decode_job {
    struct prepare *prepare;
    struct item *items;
};

static void run_item(void *context, i64 tile, int worker)
{
    struct prepare_decode_job *job = context;
    struct item *item = &job->items[tile];
    (void)worker;
    if (interrupted())
        return;
    item->encoded = memory_alloc(max_i64(1, item->sample.count) * (i64)sizeof *item->encoded);
    item->left_out = !decide_use(job->prepare, item);
    if (job->prepare->curation && !item->left_out && !has_subtitles(&item->sample))
        curation_inspect(job->prepare->curation, &item->curate, &item->sample);
    if (!item->left_out && decode_item(job->prepare, item) < 0)
        item->problem = string_copy(error_text()); /* error_text is per thread */
}

i64 prepare_batch_items(const struct prepare *p, i64 most)
{
    enum { BATCH_BYTES = 1 << 28 };
    i64 largest = 1;
    for (i64 i = 0; p->has[TOKENIZER_VISION] && i < p->vision.config.shape_count; i++) {
        const struct vision_shape *s = &p->vision.config.shapes[i];
        largest = max_i64(largest, s->frames * s->height * s->width * 3);
    }
    return max_i64(1, min_i64(most, BATCH_BYTES / largest));
}

void prepare_decode(struct prepare *prepare, struct item *items, i64 count)
{
    struct prepare_decode_job job = {prepare, items};
    workers_run(count, run_item, &job);
}

void encoded_part_add_sound(struct encoded_part *part, const struct sound *sound)
{
    i64 size = (i64)sizeof *part->sounds, n = part->sound_count++;
    part->sounds = memory_resize(part->sounds, n * size, (n + 1) * size);
    part->sounds[n] =
        (struct encoded_sound){.sound = *sound, .code_frames = audio_frames(sound->rate_hz, sound->samples)};
}

void encoded_part_release(struct encoded_part *part)
{
    id_list_release(&part->ids);
    clip_release(&part->clip);
    for (i64 i = 0; i < part->sound_count; i++) {
        sound_release(&part->sounds[i].sound);
        memory_free(part->sounds[i].codes);
    }
    memory_free(part->sounds);
    memory_free(part->voice);
    memory_free(part->latent);
    memory_free(part->features);
}

void item_release(struct item *item)
{
    for (i64 i = 0; item->encoded && i < item->sample.count; i++)
        encoded_part_release(&item->encoded[i]);
    sound_release(&item->piece);
    memory_free(item->encoded);
    chat_ids_release(&item->chat);
    curate_item_release(&item->curate);
    memory_free(item->problem);
    memory_free(item->sound_problem);
    sample_release(&item->sample);
    *item = (struct item){0};
}
