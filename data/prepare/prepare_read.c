#include "data/prepare/prepare_internal.h"
#include "data/media/subtitles.h"

#include <math.h>
#include <string.h>

/* ---- Use of each part ---- */

static bool both(const struct prepare *p, enum direction direction, bool has_tokenizer)
{
    return has_tokenizer && p->wanted[direction];
}

static void captioned_use(const struct prepare *p, struct made *made, enum sample_kind kind)
{
    bool clips = p->has_vision && p->vision.config.inflated;
    if (kind == SAMPLE_IMAGE) {
        made->in = both(p, DIRECTION_IMAGE_IN, p->has_vision);
        made->out = both(p, DIRECTION_IMAGE_OUT, p->has_vision);
    } else if (kind == SAMPLE_VIDEO) {
        made->in = both(p, DIRECTION_VIDEO_IN, clips);
        made->out = both(p, DIRECTION_VIDEO_OUT, clips);
    } else if (kind == SAMPLE_AUDIO) {
        made->in = both(p, DIRECTION_AUDIO_IN, p->has_audio);
        made->out = both(p, DIRECTION_AUDIO_OUT, p->has_audio);
    }
}

static bool has_tokenizer(const struct prepare *p, enum sample_kind kind)
{
    return kind == SAMPLE_AUDIO   ? p->has_audio
           : kind == SAMPLE_VIDEO ? p->has_vision && p->vision.config.inflated
           : kind == SAMPLE_IMAGE ? p->has_vision
                                  : true;
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
        enum sample_kind kind = s->parts[i].kind;
        bool medium = kind != SAMPLE_TEXT && kind != SAMPLE_IDS;
        if (s->layout == SAMPLE_CAPTIONED) {
            captioned_use(p, made, kind);
            any = any || made->in || made->out;
        } else if (medium) {
            made->out = chat_answers(s, i);
            made->in = !made->out;
            any = any && has_tokenizer(p, kind);
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

/* ---- Pictures and clips ---- */

static int read_image(const struct prepare *p, struct item *item, struct made *made, const void *bytes, i64 count,
                      const char *origin)
{
    struct clip stored;
    const struct image_request request = shaped_request(&p->vision.config, &p->rules);
    if (image_read_as(&stored, bytes, count, origin, &request) < 0)
        return -1;
    i64 height = stored.stored_height ? stored.stored_height : stored.height;
    i64 width = stored.stored_width ? stored.stored_width : stored.width;
    if (p->curation) {
        curation_size(p->curation, &item->curate, (double)height, (double)width);
        curation_light(p->curation, &item->curate, stored.pixels, 1, stored.height * stored.width * 3);
    }
    made->shape = shaped_still(&made->clip, &stored, &p->vision.config);
    clip_release(&stored);
    made->frames = 1;
    if (made->shape < 0)
        return -1;
    item->white = fmax(item->white, shaped_margin(&made->clip));
    return 0;
}

static int read_clip(const struct prepare *p, struct item *item, struct made *made, const void *bytes, i64 count,
                     const char *origin)
{
    double height, width;
    bool longer;
    if (clip_shown_size(&height, &width, bytes, count, origin, &p->rules) < 0)
        return -1;
    made->shape = shaped_nearest(&p->vision.config, true, height, width);
    if (made->shape < 0)
        return error_set("the vision tokenizer has no shape for clips");
    const struct vision_shape *s = &p->vision.config.shapes[made->shape];
    const struct clip_request request = {.max_frames = s->frames, .rules = &p->rules, .from_s = item->from_s};
    if (shaped_clip_read(&made->clip, &longer, s, &request, bytes, count, origin) < 0)
        return -1;
    if (p->curation) {
        curation_size(p->curation, &item->curate, height, width);
        curation_light(p->curation, &item->curate, made->clip.pixels, made->clip.frames,
                       made->clip.height * made->clip.width * 3);
    }
    item->clip_cut |= longer;
    item->white = fmax(item->white, shaped_margin(&made->clip));
    made->frames = vision_latent_frames(made->clip.frames);
    return film_sound_take(p, item, made, bytes, count, origin);
}

static void hear(const struct prepare *p, struct item *item, const struct sound *sound)
{
    if (p->curation)
        curation_sound(p->curation, &item->curate, sound->values, sound->samples, AUDIO_RATE_HZ);
}

/* Decodes a sound. A sound longer than audio_seconds is decoded only far enough to detect that. */
static int read_sound(const struct prepare *p, struct item *item, struct made *made, const void *bytes, i64 count,
                      const char *origin)
{
    struct sound sound;
    i64 most = (i64)(p->settings->audio_seconds * AUDIO_RATE_HZ);
    if (sound_read_most(&sound, bytes, count, origin, AUDIO_RATE_HZ, most) < 0)
        return -1;
    hear(p, item, &sound);
    item->too_long |= sound.samples > most;
    if (sound.samples > most)
        sound_release(&sound);
    else
        made_add_sound(made, &sound);
    return 0;
}

static int read_medium(const struct prepare *p, struct item *item, i64 part)
{
    const struct sample_part *in = &item->sample.parts[part];
    struct file_view view = {(const u8 *)in->bytes.data, in->bytes.length};
    const char *origin = in->path ? in->path : item->sample.name;
    struct made *made = &item->made[part];
    if (item->piece.values) {
        hear(p, item, &item->piece);
        made_add_sound(made, &item->piece);
        item->piece = (struct sound){0};
        return 0;
    }
    if (in->path && file_map(&view, in->path) < 0)
        return -1;
    if (p->curation)
        curation_medium(p->curation, &item->curate, view.data, view.bytes);
    int status = in->kind == SAMPLE_IMAGE   ? read_image(p, item, made, view.data, view.bytes, origin)
                 : in->kind == SAMPLE_VIDEO ? read_clip(p, item, made, view.data, view.bytes, origin)
                                            : read_sound(p, item, made, view.data, view.bytes, origin);
    if (in->path)
        file_unmap(&view);
    return status;
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
        enum sample_kind kind = s->parts[i].kind;
        bool text = kind == SAMPLE_TEXT || kind == SAMPLE_IDS;
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
    for (i64 i = 0; p->has_vision && i < p->vision.config.shape_count; i++) {
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
