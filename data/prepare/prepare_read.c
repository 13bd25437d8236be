#include "data/prepare/prepare_internal.h"
#include "data/media/subtitles.h"

#include <math.h>
#include <string.h>

/* ---- Use of each part ---- */

static bool trains(const struct prepare *p, enum modality kind, bool makes)
{
    enum direction direction = direction_of(kind, makes);
    return can_encode(p, kind) && direction != DIRECTIONS && p->wanted[direction];
}

/* Decides the use of each part. In conversations an assistant's media are model output and all
 * others model input. Returns false if nothing of the sample is wanted. */
static bool decide_use(const struct prepare *p, struct item *item)
{
    static const enum direction directions[] = {DIRECTION_TEXT, DIRECTION_TEXT, DIRECTION_CHAT, DIRECTION_IMAGE_IN};
    const struct sample *s = &item->sample;
    bool any = s->layout != SAMPLE_CAPTIONED && p->wanted[directions[s->layout]];
    for (i64 i = 0; i < s->count; i++) {
        struct made *made = &item->made[i];
        int kind = s->parts[i].kind;
        bool medium = kind != MODALITY_TEXT && kind != SAMPLE_IDS;
        if (s->layout == SAMPLE_CAPTIONED) {
            made->in = medium && trains(p, (enum modality)kind, false);
            made->out = medium && trains(p, (enum modality)kind, true);
            any = any || made->in || made->out;
        } else if (medium) {
            made->out = chat_answers(s, i);
            made->in = !made->out;
            any = any && can_encode(p, (enum modality)kind);
        }
    }
    return any;
}

/* ---- Text ---- */

static int take_ids(const struct prepare *p, struct made *made, const struct text *bytes)
{
    const i32 *ids = (const i32 *)bytes->data;
    for (i64 i = 0; i < bytes->length / 4; i++) {
        if (ids[i] < 0 || ids[i] >= p->meta.vocabulary)
            return error_set("id %d, but the tokenizer's are below %lld: prepared with another one", ids[i],
                             (long long)p->meta.vocabulary);
        id_list_push(&made->ids, ids[i]);
    }
    if (made->ids.count && made->ids.ids[made->ids.count - 1] == p->vocabulary.end)
        made->ids.count--; /* the grammar appends the end token */
    return 0;
}

static int read_text(const struct prepare *p, struct item *item, i64 part)
{
    const struct text *bytes = &item->sample.parts[part].bytes;
    if (item->sample.parts[part].kind == SAMPLE_IDS)
        return take_ids(p, &item->made[part], bytes);
    return text_encode(p->text, &item->made[part].ids, bytes->data ? bytes->data : "", bytes->length,
                       &(struct encode_options){.plain = true, .begins_word = item->sample.layout == SAMPLE_CAPTIONED});
}

/* ---- Subtitles of a window ---- */

static double seconds_of(const struct made *made)
{
    const struct sound *sound = made->sound_count ? &made->sounds[0].sound : NULL;
    return made->clip.pixels ? (double)made->clip.frames / made->clip.rate_hz
           : sound           ? (double)sound->samples / (double)sound->rate_hz
                             : 0;
}

static bool has_subtitles(const struct sample *s)
{
    return s->subtitles || s->cues.length;
}

/* Takes the subtitles shown during the medium, which has been read already, as its text. Without
 * any, the item is left out. Curation checks them like other texts. */
static int take_subtitles(const struct prepare *p, struct item *item)
{
    struct sample *s = &item->sample;
    struct text file = {0}, words = {0};
    double seconds = seconds_of(&item->made[0]);
    if (s->subtitles && file_read(&file, s->subtitles) < 0)
        return -1;
    const struct text *cues = s->subtitles ? &file : &s->cues;
    subtitles_words(&words, cues->data ? cues->data : "", cues->length, item->from_s, item->from_s + seconds);
    text_release(&file);
    text_release(&s->parts[1].bytes);
    s->parts[1].bytes = words;
    item->left_out |= words.length == 0;
    if (p->curation && !item->left_out)
        curation_look_at_shown(p->curation, &item->curate, s);
    return 0;
}

/* ---- Items ---- */

static int read_item(const struct prepare *p, struct item *item)
{
    struct sample *s = &item->sample;
    for (i64 i = 0; i < s->count; i++) {
        int kind = s->parts[i].kind;
        bool text = kind == MODALITY_TEXT || kind == SAMPLE_IDS;
        if (i == 1 && has_subtitles(s) && take_subtitles(p, item) < 0)
            return -1;
        if (s->layout == SAMPLE_CHAT && chat_encode(p, item, i) < 0)
            return -1;
        if (s->layout != SAMPLE_CHAT && text && read_text(p, item, i) < 0)
            return -1;
        if (!text && read_medium(p, item, i) < 0)
            return -1;
    }
    return 0;
}

struct prepare_read_job {
    struct prepare *prepare;
    struct item *items;
};

static void run_item(void *context, i64 tile, int worker)
{
    struct prepare_read_job *job = context;
    struct item *item = &job->items[tile];
    (void)worker;
    if (interrupted())
        return;
    chat_fold(job->prepare, &item->sample);
    item->made = memory_alloc(max_i64(1, item->sample.count) * (i64)sizeof *item->made);
    item->left_out = !decide_use(job->prepare, item);
    if (job->prepare->curation && !item->left_out && !has_subtitles(&item->sample))
        curation_look(job->prepare->curation, &item->curate, &item->sample);
    if (!item->left_out && read_item(job->prepare, item) < 0)
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

void prepare_read(struct prepare *prepare, struct item *items, i64 count)
{
    struct prepare_read_job job = {prepare, items};
    workers_run(count, run_item, &job);
}

struct made_sound *made_add_sound(struct made *made, const struct sound *sound)
{
    i64 size = (i64)sizeof *made->sounds, n = made->sound_count++;
    made->sounds = memory_resize(made->sounds, n * size, (n + 1) * size);
    made->sounds[n] = (struct made_sound){.sound = *sound, .code_frames = audio_frames(sound->samples)};
    return &made->sounds[n];
}

void made_release(struct made *made)
{
    id_list_release(&made->ids);
    id_list_release(&made->head);
    clip_release(&made->clip);
    for (i64 i = 0; i < made->sound_count; i++) {
        sound_release(&made->sounds[i].sound);
        memory_free(made->sounds[i].codes);
    }
    memory_free(made->sounds);
    memory_free(made->latent);
    memory_free(made->features);
}

void item_release(struct item *item)
{
    for (i64 i = 0; item->made && i < item->sample.count; i++)
        made_release(&item->made[i]);
    sound_release(&item->piece);
    memory_free(item->made);
    curate_item_release(&item->curate);
    memory_free(item->problem);
    memory_free(item->damage);
    sample_release(&item->sample);
    *item = (struct item){0};
}
