#include "inference/samples_inside.h"

#include "data/media/media.h"
#include "data/sources/media_list.h"
#include "data/media/shaped.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct samples_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting samples_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, "model"),
    ROW(data, "data", REFERENCE, NULL, 0, 0, "folder of media with captions, as for `prepare`"),
    SPLIT_ROWS(struct samples_settings),
    ROW(pictures, "pictures", INTEGER, "100", 0, 100000, "captions per split to generate images for"),
    ROW(clips, "clips", INTEGER, "60", 0, 100000, "captions per split to generate clips for"),
    ROW(sounds, "sounds", INTEGER, "60", 0, 100000, "captions per split to speak"),
    ROW(texts, "texts", INTEGER, "40", 0, 100000, "media per kind and split to caption"),
    ROW(show, "show", INTEGER, "12", 0, 1000, "samples per kind and split to save as files"),
    ROW(temperature, "temperature", NUMBER, "0", 0, 100, "sampling temperature; 0: greedy"),
    ROW(sound_temperature, "sound_temperature", NUMBER, "0.5", 0, 100,
        "sampling temperature of speech; at 0 it may not end"),
    ROW(top_p, "top_p", NUMBER, "1", 0, 1, "nucleus sampling: cumulative probability"),
    ROW(guidance, "guidance", NUMBER, "1", 0, 100,
        "classifier-free guidance scale g of media: logits without caption + g * (with - without); 1: off"),
    ROW(prompts, "prompts", STRINGS, "", 0, 0, "texts to continue"),
    {0}};

/* ---- Captions: distinct texts in a drawn order ---- */

static bool seen_before(const struct sample_set *set, const char *text)
{
    for (i64 i = 0; i < set->count; i++)
        if (strcmp(set->items[i].text, text) == 0)
            return true;
    return false;
}

static struct media_request request_of(const struct samples_run *r, const char *split)
{
    enum split which = strcmp(split, "train") == 0 ? SPLIT_TRAIN : SPLIT_VALIDATION;
    return (struct media_request){r->s->data,       which,      r->stage->recipe_seed,
                                  r->s->validation, r->s->test, .columns = &r->s->columns};
}

/* Skips media inside archives: the originals are read again from their files. */
int sample_set_choose(struct sample_set *set, const struct samples_run *r, enum modality kind, const char *split,
                      i64 most)
{
    struct media_list all;
    struct media_request request = request_of(r, split);
    request.kinds = 1u << kind;
    int status = media_list(&all, &request);
    i32 *order = memory_alloc(max_i64(all.count, 1) * 4);
    const struct medium **captioned = memory_alloc(max_i64(all.count, 1) * 8);
    i64 count = 0;
    for (i64 i = 0; i < all.count; i++)
        if (all.media[i].path && !all.media[i].carried && *all.media[i].text)
            captioned[count++] = &all.media[i];
    *set = (struct sample_set){kind, split, memory_alloc(max_i64(most, 1) * (i64)sizeof *set->items), 0, 0};
    rng_permutation(order, count, (struct rng_key){r->stage->seed, RNG_SPLIT}, (u32)kind - MODALITY_IMAGE, 0);
    for (i64 i = 0; i < count && set->count < most; i++) {
        const struct medium *m = captioned[order[i]];
        if (!seen_before(set, m->text))
            set->items[set->count++] = (struct sample_item){.text = string_copy(m->text), .path = string_copy(m->path)};
    }
    memory_free(order);
    memory_free(captioned);
    media_list_release(&all);
    return status;
}

/* ---- Originals ---- */

static float *spectra_of(struct samples_run *r, const float *samples, i64 count, i64 *spectra)
{
    float *m = mel_distance_spectra(&r->mel, spectra, samples, count);
    float *copy = memory_alloc(max_i64(*spectra, 1) * AUDIO_BANDS * 4);
    memcpy(copy, m, (size_t)(*spectra * AUDIO_BANDS) * 4);
    return copy;
}

static int read_original(struct samples_run *r, enum modality kind, struct sample_item *item,
                         const struct file_view *view)
{
    struct clip clip;
    struct sound sound;
    if (kind == MODALITY_AUDIO) {
        if (sound_read(&sound, view->data, view->bytes, item->path, AUDIO_RATE_HZ))
            return -1;
        item->original_mel = spectra_of(r, sound.values, sound.samples, &item->original_count);
        sound_release(&sound);
        return 0;
    }
    if (shaped_read(&clip, &item->shape, NULL, &r->generator.vision.config, kind == MODALITY_VIDEO, -1, view->data,
                    view->bytes, item->path))
        return -1;
    item->original = clip.pixels;
    item->original_count = clip.frames * clip.height * clip.width * 3;
    return 0;
}

static int load_original(struct samples_run *r, enum modality kind, struct sample_item *item)
{
    struct file_view view;
    if (file_map(&view, item->path))
        return -1;
    int status = read_original(r, kind, item, &view);
    file_unmap(&view);
    return status;
}

static void item_release(struct sample_item *x)
{
    void *blocks[] = {x->text, x->path, x->description, x->original, x->generated, x->original_mel, x->generated_mel};
    for (i64 b = 0; b < COUNT_OF(blocks); b++)
        memory_free(blocks[b]);
}

void sample_set_release(struct sample_set *set)
{
    for (i64 i = 0; i < set->count; i++)
        item_release(&set->items[i]);
    memory_free(set->items);
}

/* Drops captions whose file cannot be read. */
static void load_originals(struct samples_run *r, struct sample_set *set)
{
    i64 kept = 0;
    for (i64 i = 0; i < set->count; i++) {
        if (load_original(r, set->kind, &set->items[i]) == 0) {
            set->items[kept++] = set->items[i];
            continue;
        }
        log_warn("skipped: %s", error_text());
        item_release(&set->items[i]);
    }
    set->unreadable = set->count - kept;
    set->count = kept;
}

/* ---- Generation ---- */

static int keep_generated(struct samples_run *r, enum modality kind, struct sample_item *item, const struct answer *a,
                          i64 index)
{
    i64 size[3], samples;
    double rate;
    float *values;
    if (kind != MODALITY_AUDIO) {
        if (answer_pixels(&item->generated, size, &rate, &r->generator, a))
            return -1;
        item->generated_count = size[0] * size[1] * size[2] * 3;
        return 0;
    }
    if (!a->has_medium || a->medium.frames == 0)
        return 0; /* no sound was generated: infinite distance to all originals */
    if (answer_samples(&values, &samples, &r->generator, a, r->stage->seed + (u64)index))
        return -1;
    item->generated_mel = spectra_of(r, values, samples, &item->generated_count);
    memory_free(values);
    return 0;
}

char *sample_path(const struct samples_run *r, const struct sample_set *set, i64 i, const char *what, const char *end)
{
    char name[96];
    snprintf(name, sizeof name, "%s-%s-%02lld%s.%s", set->split, modality_rows[set->kind].name, (long long)i, what,
             end);
    return path_join(r->stage->out, name);
}

struct json *file_name(const char *path)
{
    return json_of_string(strrchr(path, '/') + 1);
}

/* Writes a spectrogram and adds its file name for the report. */
static int show_spectra(struct json *j, const char *key, const char *path, const float *mel, i64 spectra)
{
    json_set(j, key, file_name(path));
    return spectrogram_write_png(path, mel, spectra);
}

static int show_sound(struct json *j, const struct samples_run *r, const struct sample_set *set, i64 i)
{
    const struct sample_item *item = &set->items[i];
    char *generated = sample_path(r, set, i, "", "png"), *original = sample_path(r, set, i, "-original", "png");
    int status = show_spectra(j, "original_picture", original, item->original_mel, item->original_count);
    if (status == 0 && item->generated_mel)
        status = show_spectra(j, "made_picture", generated, item->generated_mel, item->generated_count);
    memory_free(generated);
    memory_free(original);
    return status;
}

static int show_item(struct samples_run *r, const struct sample_set *set, i64 i, const struct answer *a,
                     struct json *list)
{
    const char *end = modality_rows[set->kind].ending;
    char *generated = sample_path(r, set, i, "", end), *original = sample_path(r, set, i, "-original", end);
    struct json *j = json_object();
    bool silent = set->kind == MODALITY_AUDIO && !(a->has_medium && a->medium.frames);
    int status = silent ? 0 : answer_save(generated, &r->generator, NULL, a, r->stage->seed + (u64)i);
    if (status == 0)
        status = file_copy(original, set->items[i].path);
    json_set(j, "text", json_of_string(set->items[i].text));
    json_set(j, "made", silent ? json_of_null() : file_name(generated));
    json_set(j, "original", file_name(original));
    if (status == 0 && set->kind == MODALITY_AUDIO)
        status = show_sound(j, r, set, i);
    json_push(list, j);
    memory_free(generated);
    memory_free(original);
    return status;
}

/* Shape for the generated medium: that of its original. NULL for sounds. */
static const char *shape_name(const struct samples_run *r, const struct sample_set *set, i64 i)
{
    return set->kind == MODALITY_AUDIO ? NULL : r->generator.vision.config.shapes[set->items[i].shape].name;
}

static int generate_set(struct answer *answers, struct samples_run *r, struct sample_set *set)
{
    struct prompt *prompts = memory_alloc(set->count * (i64)sizeof *prompts);
    struct generate_request *requests = memory_alloc(set->count * (i64)sizeof *requests);
    double temperature = set->kind == MODALITY_AUDIO ? r->s->sound_temperature : r->s->temperature;
    struct generator_options o = {
        .sampling = {(float)temperature, (float)r->s->top_p, 0, {r->stage->seed, RNG_SAMPLING}}, .slots = 24};
    struct progress bar;
    char label[64];
    int status = 0;
    snprintf(label, sizeof label, "%s %s", set->split, modality_rows[set->kind].name);
    progress_init(&bar, label, set->count);
    o.bar = &bar;
    for (i64 i = 0; i < set->count && status == 0; i++) {
        prompt_init(&prompts[i], set->kind);
        prompts[i].guidance = r->s->guidance;
        status = prompt_text(&prompts[i], &r->generator, set->items[i].text);
        if (status == 0)
            status = prompt_ask(&prompts[i], &r->generator, shape_name(r, set, i), 0);
        requests[i] = prompt_request(&prompts[i], (u32)i, 1);
    }
    if (status == 0)
        status = generator_run(answers, &r->generator, requests, set->count, &o);
    progress_close(&bar);
    for (i64 i = 0; i < set->count; i++)
        prompt_release(&prompts[i]);
    memory_free(prompts);
    memory_free(requests);
    return status;
}

/* ---- Measuring ---- */

static double pixel_distance(const u8 *a, i64 a_count, const u8 *b, i64 b_count)
{
    i64 n = min_i64(a_count, b_count);
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return n ? sum / (double)n : INFINITY;
}

static double spectral_distance(const float *a, i64 a_count, const float *b, i64 b_count)
{
    const float silence = logf(0.01f);
    i64 n = max_i64(a_count, b_count) * AUDIO_BANDS;
    double sum = 0;
    for (i64 i = 0; i < n; i++) {
        float x = i < a_count * AUDIO_BANDS ? a[i] : silence, y = i < b_count * AUDIO_BANDS ? b[i] : silence;
        sum += fabs((double)x - y);
    }
    return n ? sum / (double)n : INFINITY;
}

/* Mean squared difference of pixels. An original of another shape is scaled and cropped to the
 * generated shape, without padding. */
static double fitted_pixel_distance(const struct vision_config *config, const struct sample_item *generated,
                                    const struct sample_item *original)
{
    if (generated->shape == original->shape)
        return pixel_distance(generated->generated, generated->generated_count, original->original,
                              original->original_count);
    const struct vision_shape *to = &config->shapes[generated->shape], *from = &config->shapes[original->shape];
    struct clip cut, whole = {.frames = original->original_count / (from->height * from->width * 3),
                              .height = from->height,
                              .width = from->width,
                              .pixels = original->original};
    clip_fill(&cut, &whole, to->height, to->width, 1);
    double sample_distance = pixel_distance(generated->generated, generated->generated_count, cut.pixels,
                                            cut.frames * to->height * to->width * 3);
    clip_release(&cut);
    return sample_distance;
}

static double sample_distance(const struct samples_run *r, enum modality kind, const struct sample_item *generated,
                              const struct sample_item *original)
{
    if (kind == MODALITY_AUDIO)
        return generated->generated_mel ? spectral_distance(generated->generated_mel, generated->generated_count,
                                                            original->original_mel, original->original_count)
                                        : INFINITY;
    return fitted_pixel_distance(&r->generator.vision.config, generated, original);
}

struct json *sample_nearness(const struct samples_run *r, const struct sample_set *set)
{
    struct json *j = json_object();
    double nearer = 0, pairs = 0;
    i64 first = 0, five = 0;
    for (i64 i = 0; i < set->count; i++) {
        double original = sample_distance(r, set->kind, &set->items[i], &set->items[i]);
        i64 before = 0;
        for (i64 k = 0; k < set->count; k++) {
            if (k == i)
                continue;
            bool other_nearer = !(original < sample_distance(r, set->kind, &set->items[i], &set->items[k]));
            before += other_nearer;
            nearer += !other_nearer;
            pairs++;
        }
        first += before == 0;
        five += before < 5;
    }
    json_set(j, "captions", json_of_integer(set->count));
    json_set(j, "unreadable", json_of_integer(set->unreadable));
    json_set(j, "pair", json_of_number(pairs > 0 ? nearer / pairs : NAN));
    json_set(j, "first", json_of_integer(first));
    json_set(j, "first_five", json_of_integer(five));
    return j;
}

static int make_set(struct samples_run *r, enum modality kind, const char *split, i64 most)
{
    struct sample_set set;
    char key[64];
    int status = sample_set_choose(&set, r, kind, split, most);
    if (status == 0)
        load_originals(r, &set);
    struct answer *answers = memory_alloc(max_i64(set.count, 1) * (i64)sizeof *answers);
    struct json *shown = json_array();
    if (status == 0 && set.count)
        status = generate_set(answers, r, &set);
    for (i64 i = 0; i < set.count && status == 0; i++) {
        status = keep_generated(r, kind, &set.items[i], &answers[i], i);
        if (status == 0 && i < r->s->show)
            status = show_item(r, &set, i, &answers[i], shown);
    }
    if (status == 0 && set.count) {
        struct json *j = sample_nearness(r, &set);
        log_info("%s %s: nearer to its own original %.1f %%, nearest of %lld: %lld", split, modality_rows[kind].name,
                 100 * json_number(json_get(j, "pair"), 0), (long long)set.count,
                 (long long)json_integer(json_get(j, "first"), 0));
        json_set(j, "shown", shown);
        shown = NULL;
        snprintf(key, sizeof key, "%s/%s", split, modality_rows[kind].name);
        json_set(r->report, key, j);
    }
    json_free(shown);
    for (i64 i = 0; i < set.count; i++)
        answer_release(&answers[i]);
    memory_free(answers);
    sample_set_release(&set);
    return status;
}

static int run_all(struct samples_run *r)
{
    static const char *const splits[] = {"train", "validation"};
    const i64 counts[MODALITIES] = {[MODALITY_IMAGE] = generator_shape(&r->generator, false) ? r->s->pictures : 0,
                                    [MODALITY_VIDEO] = generator_shape(&r->generator, true) ? r->s->clips : 0,
                                    [MODALITY_AUDIO] = r->generator.has_audio ? r->s->sounds : 0};
    if (r->generator.model.config.bits && !r->generator.has_vision)
        log_warn("%s: its vision tokenizer (weft/vision) is missing: no pictures, no clips", r->s->from);
    if (r->generator.model.config.levels && !r->generator.has_audio)
        log_warn("%s: its audio tokenizer (weft/audio) is missing: no sounds", r->s->from);
    int status = continue_prompts(r);
    for (enum modality kind = 0; kind < MODALITIES; kind++)
        for (int split = 0; split < 2 && status == 0; split++) {
            if (counts[kind])
                status = make_set(r, kind, splits[split], counts[kind]);
            if (status == 0 && counts[kind] && (kind == MODALITY_AUDIO || r->generator.model.config.cell_features))
                status = describe_set(r, kind, splits[split]);
        }
    return status;
}

int samples_stage(const void *settings, const struct stage *stage)
{
    struct samples_run r = {.s = settings, .stage = stage};
    if (samples_check_memory(r.s, stage->device) || generator_open(&r.generator, stage->device, r.s->from, DTYPE_OTHER))
        return -1;
    generator_check_guidance(&r.generator, r.s->guidance);
    mel_distance_open(&r.mel, stage->device);
    r.report = json_object();
    int status = run_all(&r);
    char *path = path_join(stage->out, "samples.json");
    if (status == 0)
        status = json_save(path, r.report);
    memory_free(path);
    json_free(r.report);
    mel_distance_close(&r.mel);
    generator_close(&r.generator);
    return status;
}
