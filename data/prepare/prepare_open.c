/* Opens what a run needs: directions, rules of curation, and the tokenizers after a dry run that
 * checks their memory. */
#include "data/prepare/prepare_internal.h"
#include "kernels/device/dry_run.h"

#include <string.h>

static int read_directions(struct prepare *p)
{
    const struct string_list *list = &p->settings->directions;
    for (int d = 0; d < DIRECTIONS; d++)
        p->wanted[d] = list->count == 0;
    for (i64 i = 0; i < list->count; i++) {
        int d = 0;
        while (d < DIRECTIONS && strcmp(direction_names[d], list->values[i]) != 0)
            d++;
        if (d == DIRECTIONS)
            return error_usage(
                "directions: \"%s\" is none: expected text, image-in, image-out, video-in, video-out, audio-in, "
                "audio-out or chat",
                list->values[i]);
        p->wanted[d] = true;
    }
    return 0;
}

static void describe_vision(struct shard_meta *meta, const struct vision *vision)
{
    const struct vision_config *c = &vision->config;
    meta->bits = c->bits;
    meta->cell_features = c->channels[1];
    meta->stride = c->stride;
    meta->shape_count = c->shape_count;
    for (i64 i = 0; i < c->shape_count; i++) {
        struct shard_shape *out = &meta->shapes[i];
        shape_of_vision(&out->shape, &c->shapes[i]);
        out->h = c->shapes[i].h;
        out->w = c->shapes[i].w;
        device_get(vision->device, out->amplitude, vision_amplitude(vision, &c->shapes[i]),
                   c->shapes[i].scale_count * 4);
    }
}

static int open_coders(struct prepare *p, struct device *device, enum dtype dtype)
{
    const struct prepare_settings *s = p->settings;
    bool vision = s->vision && *s->vision, audio = s->audio && *s->audio;
    if (vision && vision_load(&p->vision, device, s->vision, dtype, false) < 0)
        return -1;
    p->has_vision = vision;
    if (audio && audio_load(&p->audio, device, s->audio) < 0)
        return -1;
    p->has_audio = audio;
    return 0;
}

static void close_coders(struct prepare *p)
{
    if (p->has_vision)
        vision_close(&p->vision);
    if (p->has_audio)
        audio_close(&p->audio);
}

struct blanks_work {
    const struct prepare *prepare;
    enum dtype dtype;
    i64 items; /* encoded at a time */
};

static int encode_blanks(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct blanks_work *w = context;
    struct prepare *p = memory_alloc(sizeof *p);
    p->settings = w->prepare->settings;
    int status = open_coders(p, meta, w->dtype);
    if (status == 0)
        prepare_encode_blanks(p, w->items);
    if (w->items > 1)
        out->data_bytes = meta->backed_most_bytes;
    close_coders(p);
    memory_free(p);
    return status;
}

/* The weights and one picture or clip of each shape are always needed. The sizes of batches depend
 * on files not yet read. */
static int check_memory(const struct prepare *p, const struct device *device, enum dtype dtype)
{
    static const char otherwise[] = "take tokenizers of smaller shapes, one of them alone, or --device cpu";
    struct blanks_work one = {p, dtype, 1}, many = {p, dtype, BATCH_ITEMS};
    const struct dry_run checks[] = {{"encoding media one at a time", encode_blanks, &one, otherwise},
                                     {"encoding many media together", encode_blanks, &many, otherwise}};
    return dry_run_check(&checks[0], device) || dry_run_check(&checks[1], device) ? -1 : 0;
}

static int open_tokenizers(struct prepare *p, struct device *device, enum dtype dtype)
{
    const struct prepare_settings *s = p->settings;
    p->text = text_tokenizer_load(s->text);
    if (!p->text || check_memory(p, device, dtype) || open_coders(p, device, dtype))
        return -1;
    bool vision = p->has_vision, audio = p->has_audio;
    p->meta.vocabulary = text_vocabulary(p->text);
    if (vision)
        describe_vision(&p->meta, &p->vision);
    if (audio) {
        p->meta.levels = p->audio.config.levels;
        p->meta.codes = p->audio.config.codes;
    }
    if (vocabulary_load(&p->vocabulary, p->text, vision ? &p->vision.config : NULL) < 0)
        return error_prefix("%s", s->text);
    p->chat = p->vocabulary.message_end >= 0 ? text_chat_layout(p->text) : NULL;
    return audio && p->vocabulary.boa < 0 ? error_set("%s: the text tokenizer has no token <|boa|>", s->text) : 0;
}

int prepare_open(struct prepare *p, struct device *device)
{
    int status = read_directions(p) < 0 ? -1 : prepare_part(&p->part, &p->parts, p->settings->part);
    if (status == 0)
        p->curation = curation_open(&p->settings->filter, &status);
    if (status == 0 && p->settings->film_sound && !(p->settings->audio && *p->settings->audio))
        status = error_usage("film_sound: sounds need an audio tokenizer: `audio: STAGE`, or film_sound: none");
    if (status == 0 && p->parts > 1 && p->settings->filter.duplicates)
        log_warn("filter.duplicates: a part knows its own files, and what filter.seen names, alone: duplicates in "
                 "others stay; the stage dedup leaves them out once all parts are there");
    return status == 0 ? open_tokenizers(p, device, p->dtype) : -1;
}

int prepare_copy_tokenizers(const struct prepare *p)
{
    char *paths[] = {path_join(p->out, "text"), path_join(p->out, "vision"), path_join(p->out, "audio")};
    int status = directory_make(paths[0]) < 0 || text_tokenizer_save(p->text, paths[0]) < 0 ? -1 : 0;
    if (status == 0 && p->has_vision)
        status = directory_make(paths[1]) < 0 || vision_save(&p->vision, paths[1]) < 0 ? -1 : 0;
    if (status == 0 && p->has_audio)
        status = directory_make(paths[2]) < 0 || audio_save(&p->audio, paths[2]) < 0 ? -1 : 0;
    for (i64 i = 0; i < 3; i++)
        memory_free(paths[i]);
    return status;
}

void prepare_close(struct prepare *p)
{
    for (int split = 0; split < SPLITS; split++)
        shard_writer_abandon(p->writers[split]);
    close_coders(p);
    text_tokenizer_free(p->text);
    json_free(p->position);
    curation_close(p->curation);
}
