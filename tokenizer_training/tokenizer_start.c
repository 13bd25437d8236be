/* From what a tokenizer's training starts. */
#include "tokenizer_training/tokenizer_start.h"

#include "core/inventory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_given(const char *reference)
{
    return reference && *reference;
}

bool tokenizer_starts(const struct start_settings *s)
{
    return is_given(s->from) || is_given(s->continues);
}

int tokenizer_start_check(const struct start_settings *s)
{
    if (is_given(s->from) && is_given(s->continues))
        return error_usage("from and continue are exclusive: start from a tokenizer, or continue a stage");
    if (s->train != TRAIN_ALL && !tokenizer_starts(s))
        return error_usage("%s has no codes to keep: expected `from` with a tokenizer, or `continue` with a stage",
                           tokenizer_train_name(s->train));
    return 0;
}

const char *tokenizer_train_name(int train)
{
    return train == TRAIN_DECODER ? "train: decoder" : train == TRAIN_BITS ? "train: bits" : "train: all";
}

/* ---- sizes ---- */

/* A size of the settings, its default, and that of the tokenizer. */
struct size {
    const char *key;
    i64 asked, usual, has;
};

static int refuse_fewer(const struct size *s, const char *holder)
{
    return error_usage("%s is %lld, fewer than the %lld of the tokenizer of %s, which keeps all it has: omit %s, or "
                       "train a new tokenizer",
                       s->key, (long long)s->asked, (long long)s->has, holder, s->key);
}

static int check_sizes(const struct size *sizes, i64 count, bool decoder, const char *holder)
{
    for (i64 i = 0; i < count; i++) {
        const struct size *s = &sizes[i];
        if (s->asked == s->usual || s->asked == s->has)
            continue;
        if (decoder)
            return error_usage("%s is %lld, and the tokenizer of %s has %lld: train: decoder keeps its codes; omit %s",
                               s->key, (long long)s->asked, holder, (long long)s->has, s->key);
        if (s->asked < s->has)
            return refuse_fewer(s, holder);
        return error_usage("%s is %lld, and the tokenizer of %s has %lld, which keeps its sizes: omit %s, or train a "
                           "new tokenizer",
                           s->key, (long long)s->asked, holder, (long long)s->has, s->key);
    }
    return 0;
}

/* An entry of a list; -1: it has none. */
static i64 entry(const struct integer_list *list, i64 i)
{
    return i < list->count ? list->values[i] : -1;
}

/* The default of the setting `bits`. */
static i64 usual_bits(void)
{
    const struct setting *row = vision_stage_table;
    while (strcmp(row->key, "bits") != 0)
        row++;
    return strtoll(row->fallback, NULL, 10);
}

/* Bits may be added to those of `from`. Their default adds none, unless they are what learns. */
static i64 grown_bits(const struct vision_settings *s, i64 has)
{
    bool grows = is_given(s->start.from) && s->start.train != TRAIN_DECODER;
    return grows && (s->bits != usual_bits() || (s->start.train == TRAIN_BITS && s->bits > has)) ? s->bits : has;
}

static int check_bits(const struct vision_settings *s, const struct vision_config *has, const char *holder)
{
    const struct size bits = {"bits", s->bits, usual_bits(), has->bits};
    i64 grown = grown_bits(s, has->bits);
    if (grown < has->bits)
        return refuse_fewer(&bits, holder);
    if (s->start.train == TRAIN_BITS && grown == has->bits && has->kept_bits == 0)
        return error_usage("train: bits has no new bits that could learn: the tokenizer of %s has %lld bits, and bits "
                           "is %lld: expected more",
                           holder, (long long)has->bits, (long long)s->bits);
    return grown > has->bits ? 0 : check_sizes(&bits, 1, s->start.train == TRAIN_DECODER, holder);
}

static int check_vision(const struct vision_settings *s, const struct vision_config *has, const char *holder)
{
    struct vision_settings usual = {0};
    const struct setting_override data = {.key = "data", .value = "./none"};
    require(settings_read(&usual, vision_stage_table, NULL, NULL, &data, 1) == 0, "%s", error_text());
    const struct size sizes[] = {
        {"stride", s->stride, usual.stride, has->stride},
        {"channels", entry(&s->channels, 0), entry(&usual.channels, 0), has->channels[0]},
        {"channels", entry(&s->channels, 1), entry(&usual.channels, 1), has->channels[1]},
        {"blocks", entry(&s->blocks, 0), entry(&usual.blocks, 0), has->blocks[0]},
        {"blocks", entry(&s->blocks, 1), entry(&usual.blocks, 1), has->blocks[1]},
        {"centre", s->centre, usual.centre, has->centred},
    };
    int status = check_sizes(sizes, COUNT_OF(sizes), s->start.train == TRAIN_DECODER, holder);
    settings_release(&usual, vision_stage_table);
    return status ? status : check_bits(s, has, holder);
}

static int check_audio(const struct audio_settings *s, const struct audio_config *has, const char *holder)
{
    struct audio_settings usual = {0};
    const struct setting_override data = {.key = "data", .value = "./none"};
    require(settings_read(&usual, audio_stage_table, NULL, NULL, &data, 1) == 0, "%s", error_text());
    const struct size sizes[] = {{"levels", s->config.levels, usual.config.levels, has->levels},
                                 {"codes", s->config.codes, usual.config.codes, has->codes},
                                 {"width", s->config.width, usual.config.width, has->width},
                                 {"latent", s->config.latent, usual.config.latent, has->latent},
                                 {"rate_hz", s->config.rate_hz, usual.config.rate_hz, has->rate_hz},
                                 {"causal", s->config.causal, usual.config.causal, has->causal}};
    int status = check_sizes(sizes, COUNT_OF(sizes), s->start.train == TRAIN_DECODER, holder);
    settings_release(&usual, audio_stage_table);
    if (status == 0 && is_given(s->start.continues) && s->config.decoder == AUDIO_ISTFT && has->decoder != AUDIO_ISTFT)
        return error_usage("decoder: istft, and the tokenizer of %s has another decoder: `continue` goes on with it; "
                           "start `from` it to train a new one",
                           holder);
    return status;
}

/* Steps count from the beginning. */
static int check_steps(i64 steps, i64 gone, const char *holder)
{
    return gone < steps
               ? 0
               : error_usage("%lld %s, and %s has gone %lld already: expected more; steps count from the beginning",
                             (long long)steps, plural(steps, "step", "steps"), holder, (long long)gone);
}

int tokenizer_check_started(const struct setting *table, const void *settings, const void *other, const char *name)
{
    if (table == audio_stage_table) {
        const struct audio_settings *s = settings, *o = other;
        if (is_given(s->start.continues) && check_steps(s->steps, o->steps, name))
            return -1;
        return tokenizer_starts(&o->start) ? 0 : check_audio(s, &o->config, name);
    }
    const struct vision_settings *s = settings, *o = other;
    const struct vision_config has = {.bits = o->bits,
                                      .stride = o->stride,
                                      .centred = o->centre,
                                      .channels = {entry(&o->channels, 0), entry(&o->channels, 1)},
                                      .blocks = {entry(&o->blocks, 0), entry(&o->blocks, 1)}};
    return tokenizer_starts(&o->start) ? 0 : check_vision(s, &has, name);
}

/* A tokenizer gets a decoder that ends in samples, or keeps what it has. */
static int newer_decoder(int asked, int has)
{
    return asked == AUDIO_ISTFT ? asked : has;
}

void tokenizer_take_sizes(const struct setting *table, void *settings, const void *first)
{
    if (table == audio_stage_table) {
        struct audio_config *own = &((struct audio_settings *)settings)->config;
        int decoder = own->decoder;
        *own = ((const struct audio_settings *)first)->config;
        own->decoder = newer_decoder(decoder, own->decoder);
        return;
    }
    struct vision_settings *s = settings;
    const struct vision_settings *f = first;
    s->size = f->size;
    s->frames = f->frames;
    s->stride = f->stride;
    s->bits = grown_bits(s, f->bits);
    s->centre = f->centre;
    s->channels = f->channels;
    s->blocks = f->blocks;
    s->scales = f->scales;
    s->aspects = f->aspects;
}

const char *tokenizer_start_of(const struct setting *table, const void *settings)
{
    const struct start_settings *s = table == audio_stage_table ? &((const struct audio_settings *)settings)->start
                                                                : &((const struct vision_settings *)settings)->start;
    return is_given(s->continues) ? s->continues : is_given(s->from) ? s->from : NULL;
}

/* ---- what stands ---- */

static int open_start(struct tokenizer_start *start, const struct start_settings *s)
{
    *start = (struct tokenizer_start){0};
    if (is_given(s->continues) && base_checkpoint_open(&start->base, s->continues)) {
        base_checkpoint_close(&start->base);
        return -1;
    }
    start->folder = start->base.folder ? start->base.folder : is_given(s->from) ? s->from : NULL;
    return 0;
}

void tokenizer_start_close(struct tokenizer_start *start)
{
    base_checkpoint_close(&start->base);
    *start = (struct tokenizer_start){0};
}

u64 tokenizer_start_seed(const struct tokenizer_start *start, u64 seed)
{
    return start->base.folder ? start->base.seed : seed;
}

void tokenizer_put_seed(struct json *state, u64 seed)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)seed);
    json_set(state, "seed", json_of_string(text));
}

/* The settings of shapes that give the largest of these or one of as many pixels. */
static void take_shapes(struct vision_settings *own, struct tokenizer_start *start)
{
    const struct vision_config *c = &start->vision;
    const struct vision_shape *first = &c->shapes[0];
    double side = sqrt((double)(first->height * first->width)) / (double)c->stride;
    own->size = max_i64(1, llround(side)) * c->stride;
    own->scales = (struct integer_list){start->sides, 0};
    for (i64 k = 0; k < first->scale_count && first->h == first->w; k++)
        start->sides[own->scales.count++] = first->scales[k].h;
    for (i64 i = 0; i < c->shape_count; i++)
        if (c->shapes[i].frames > 1) {
            own->frames = c->shapes[i].frames;
            own->rate_hz = c->shapes[i].rate_hz;
        }
}

int vision_start_open(struct tokenizer_start *start, struct vision_settings *own)
{
    if (open_start(start, &own->start))
        return -1;
    if (!start->folder)
        return 0;
    struct vision_config *c = &start->vision;
    int status = vision_config_load(c, start->folder) || check_vision(own, c, start->folder) ? -1 : 0;
    if (status == 0 && start->base.folder)
        status = check_steps(own->steps + own->clip_steps, start->base.step, start->folder);
    if (status) {
        tokenizer_start_close(start);
        return -1;
    }
    own->bits = grown_bits(own, c->bits);
    own->stride = c->stride;
    own->centre = c->centred;
    own->channels = (struct integer_list){c->channels, 2};
    own->blocks = (struct integer_list){c->blocks, 2};
    take_shapes(own, start);
    return 0;
}

int audio_start_open(struct tokenizer_start *start, struct audio_settings *own, enum dtype dtype)
{
    struct audio_config config;
    enum dtype has;
    if (open_start(start, &own->start))
        return -1;
    if (!start->folder)
        return 0;
    int status = audio_config_load(&config, &has, start->folder) || check_audio(own, &config, start->folder) ? -1 : 0;
    if (status == 0 && start->base.folder)
        status = check_steps(own->steps, start->base.step, start->folder);
    if (status == 0 && own->start.train == TRAIN_DECODER && has != dtype)
        status = error_usage("the tokenizer of %s was trained in %s, on which its codes depend: train: decoder needs "
                             "precision: %s",
                             start->folder, has == DTYPE_BF16 ? "bf16" : "f32", has == DTYPE_BF16 ? "bf16" : "f32");
    start->audio = config;
    config.decoder = newer_decoder(own->config.decoder, config.decoder);
    if (status == 0)
        own->config = config;
    else
        tokenizer_start_close(start);
    return status;
}

int vision_start_load(struct vision *vision, const struct tokenizer_start *start)
{
    struct vision base;
    if (!start->folder)
        return 0;
    if (vision_load(&base, vision->device, start->folder, DTYPE_F32, true)) /* with all digits of the weights */
        return -1;
    vision_take(vision, &base);
    vision_close(&base);
    return 0;
}

static struct weight *weight_named(struct weights *weights, const char *name)
{
    for (i64 i = 0; i < weights->count; i++)
        if (strcmp(weights->list[i].spec.name, name) == 0)
            return &weights->list[i];
    return NULL;
}

/* What both have. The rest of the decoder stays new: it writes something else. */
static int load_with_new_decoder(struct audio_tokenizer *audio, const struct tokenizer_start *start)
{
    struct audio_tokenizer base;
    audio_open(&base, audio->device, &start->audio, DTYPE_F32, false);
    int status = audio_weights_load(&base, start->folder);
    for (i64 i = 0; i < audio->weights.count && status == 0; i++) {
        struct weight *to = &audio->weights.list[i], *from = weight_named(&base.weights, to->spec.name);
        if (!from || from->rows != to->rows || from->columns != to->columns || from->spec.file != FILE_HF)
            continue;
        float *values = memory_alloc(from->rows * from->columns * 4);
        weight_get(&base.weights, from, 0, from->rows, values);
        weight_put(&audio->weights, to, 0, from->rows, values);
        memory_free(values);
    }
    audio_close(&base);
    return status;
}

int audio_start_load(struct audio_tokenizer *audio, const struct tokenizer_start *start)
{
    if (!start->folder)
        return 0;
    bool same = audio->config.decoder == start->audio.decoder;
    if (inventory_check(start->folder) ||
        (same ? audio_weights_load(audio, start->folder) : load_with_new_decoder(audio, start)))
        return -1;
    i64 words = audio->config.levels * audio->config.codes;
    audio->device->ops->fill(audio->device, audio->w.use->master, words, 1);
    audio->device->ops->fill(audio->device, audio->w.unseen->master, words, 0);
    return 0;
}
