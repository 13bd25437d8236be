#include "samples/samples_inside.h"

#include "data/formats/file_name.h"
#include "data/media/media.h"
#include "data/sources/media_list.h"
#include "data/shapes/shaped.h"
#include "train/events.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct samples_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting samples_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, "model"),
    ROW(data, "data", REFERENCE, NULL, 0, 0, "folder of media with captions, as for `prepare`"),
    SPLIT_ROWS(struct samples_settings),
    ROW(parts, "parts", STRINGS, "", 0, 0, "train, validation, test: parts to measure; none: train and validation"),
    ROW(train_share, "train_share", NUMBER, "1", 0, 1, "factor of the following numbers for training captions"),
    ROW(pictures, "pictures", INTEGER, "100", 0, 100000, "captions per part to generate images for"),
    ROW(clips, "clips", INTEGER, "60", 0, 100000, "captions per part to generate clips for"),
    ROW(sounds, "sounds", INTEGER, "60", 0, 100000, "captions per part to speak"),
    ROW(texts, "texts", INTEGER, "40", 0, 100000, "media per kind and part to caption"),
    ROW(show, "show", INTEGER, "12", 0, 1000, "samples per kind and part to save as files"),
    ROW(temperature, "temperature", NUMBER, "0", 0, 100, "sampling temperature; 0: greedy"),
    ROW(sound_temperature, "sound_temperature", NUMBER, "0.5", 0, 100,
        "sampling temperature of speech; at 0 it may not end"),
    ROW(top_p, "top_p", NUMBER, "1", 0, 1, "nucleus sampling: cumulative probability"),
    ROW(guidance, "guidance", NUMBER, "1", 0, 100,
        "classifier-free guidance scale g of media: logits without caption + g * (with - without); 1: off"),
    ROW(refine, "refine", REFERENCE, "", 0, 0,
        "refiner of the pictures and clips that are saved; scores are those of the pictures before"),
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

int list_captioned(struct samples_run *r, enum modality kind, enum split split)
{
    struct captioned_media *out = &r->media[kind][split];
    struct media_list all;
    if (out->listed)
        return 0;
    struct media_request request = {r->s->data,         split,      r->stage->recipe_seed,
                                    r->s->validation,   r->s->test, .columns = &r->s->columns,
                                    .kinds = 1u << kind};
    int status = media_list(&all, &request);
    out->listed = true;
    out->captions = memory_alloc(max_i64(all.count, 1) * (i64)sizeof *out->captions);
    out->paths = memory_alloc(max_i64(all.count, 1) * (i64)sizeof *out->paths);
    for (i64 i = 0; i < all.count; i++)
        if (all.media[i].path && !all.media[i].carried && *all.media[i].text) {
            out->captions[out->count] = string_copy(all.media[i].text);
            out->paths[out->count++] = string_copy(all.media[i].path);
        }
    media_list_release(&all);
    return status;
}

static void captioned_media_release(struct captioned_media *media)
{
    for (i64 i = 0; i < media->count; i++) {
        memory_free(media->captions[i]);
        memory_free(media->paths[i]);
    }
    memory_free(media->captions);
    memory_free(media->paths);
}

int sample_set_choose(struct sample_set *set, struct samples_run *r, enum modality kind, enum split split, i64 most)
{
    int status = list_captioned(r, kind, split);
    const struct captioned_media *all = &r->media[kind][split];
    i32 *order = memory_alloc(max_i64(all->count, 1) * 4);
    *set = (struct sample_set){kind, split, memory_alloc(max_i64(most, 1) * (i64)sizeof *set->items), 0, 0};
    rng_permutation(order, all->count, (struct rng_key){r->stage->seed, RNG_SPLIT}, (u32)kind - MODALITY_IMAGE, 0);
    for (i64 i = 0; i < all->count && set->count < most; i++) {
        const char *text = all->captions[order[i]], *path = all->paths[order[i]];
        if (!seen_before(set, text))
            set->items[set->count++] = (struct sample_item){.text = string_copy(text), .path = string_copy(path)};
    }
    memory_free(order);
    return status;
}

i64 samples_wanted(const struct samples_run *r, enum split split, i64 count)
{
    return split == SPLIT_TRAIN ? llround(r->s->train_share * (double)count) : count;
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

int sample_load_original(struct samples_run *r, enum modality kind, struct sample_item *item)
{
    struct file_view view;
    if (file_map(&view, item->path))
        return -1;
    int status = read_original(r, kind, item, &view);
    file_unmap(&view);
    return status;
}

void sample_item_release(struct sample_item *x)
{
    void *blocks[] = {x->text, x->path, x->description, x->original, x->generated, x->original_mel, x->generated_mel};
    for (i64 b = 0; b < COUNT_OF(blocks); b++)
        memory_free(blocks[b]);
}

void sample_set_release(struct sample_set *set)
{
    for (i64 i = 0; i < set->count; i++)
        sample_item_release(&set->items[i]);
    memory_free(set->items);
}

/* Drops captions whose file cannot be read. */
void sample_set_load(struct samples_run *r, struct sample_set *set)
{
    i64 kept = 0;
    for (i64 i = 0; i < set->count; i++) {
        if (sample_load_original(r, set->kind, &set->items[i]) == 0) {
            set->items[kept++] = set->items[i];
            continue;
        }
        log_warn("skipped: %s", error_text());
        sample_item_release(&set->items[i]);
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
    snprintf(name, sizeof name, "%s-%s-%02lld%s%s%s", split_names[set->split], modality_rows[set->kind].name,
             (long long)i, what, end ? "." : "", end ? end : "");
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
    i64 most = (i64)ORIGINAL_SECONDS_MOST * AUDIO_RATE_HZ / r->mel.mel.hop;
    int status = show_spectra(j, "original_picture", original, item->original_mel, min_i64(item->original_count, most));
    if (status == 0 && item->generated_mel)
        status = show_spectra(j, "made_picture", generated, item->generated_mel, item->generated_count);
    memory_free(generated);
    memory_free(original);
    return status;
}

static int show_item(struct samples_run *r, const struct sample_set *set, i64 i, const struct answer *a,
                     struct json *list)
{
    char *generated = sample_path(r, set, i, "", modality_rows[set->kind].ending),
         *stem = sample_path(r, set, i, "-original", NULL), *original = NULL;
    struct json *j = json_object();
    bool silent = set->kind == MODALITY_AUDIO && !(a->has_medium && a->medium.frames);
    int status = silent ? 0 : answer_save(generated, &r->generator, NULL, a, r->stage->seed + (u64)i);
    if (status == 0)
        status = original_write(&original, stem, set->kind, set->items[i].path);
    json_set(j, "text", json_of_string(set->items[i].text));
    json_set(j, "made", silent ? json_of_null() : file_name(generated));
    if (original)
        json_set(j, "original", file_name(original));
    if (status == 0 && set->kind == MODALITY_AUDIO)
        status = show_sound(j, r, set, i);
    json_push(list, j);
    memory_free(generated);
    memory_free(original);
    memory_free(stem);
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
    snprintf(label, sizeof label, "%s %s", split_names[set->split], modality_rows[set->kind].name);
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

/* ---- The stage ---- */

static void log_nearness(const struct json *j, const struct sample_set *set)
{
    const struct json *by = set->kind == MODALITY_AUDIO ? json_get(j, "aligned") : j;
    double retrieval = json_number(json_get(by, "retrieval"), NAN);
    struct buffer line = {0};
    if (set->count < 2) {
        log_info("%s %s: one sample, and no other to compare it with", split_names[set->split],
                 modality_rows[set->kind].name);
        return;
    }
    buffer_printf(&line, "%s %s: nearer to its own original %.1f %%%s, nearest of %lld: %lld", split_names[set->split],
                  modality_rows[set->kind].name, 100 * json_number(json_get(by, "pair"), 0),
                  by == j ? "" : " at equal length", (long long)set->count,
                  (long long)json_integer(json_get(j, "first"), 0));
    if (isfinite(retrieval))
        buffer_printf(&line, "; training media of the nearest captions %.1f %%", 100 * retrieval);
    if (isfinite(json_number(json_get(by, "ridge"), NAN)))
        buffer_printf(&line, ", ridge regression from words %.1f %%", 100 * json_number(json_get(by, "ridge"), 0));
    log_info("%s", line.data);
    buffer_release(&line);
}

/* ---- Held-out media that are trained on ---- */

static void add_file(struct hash_list *list, const char *path)
{
    struct file_view view;
    if (file_map(&view, path)) /* a file that cannot be read is like no other */
        return;
    hash_list_add(list, hash_bytes(view.data, view.bytes, 0));
    file_unmap(&view);
}

i64 samples_in_common(struct samples_run *r, const struct sample_set *set)
{
    const struct captioned_media *training = &r->media[set->kind][SPLIT_TRAIN];
    struct hash_list held = {0}, trained = {0}, sizes = {0}; /* only files of one size can be equal */
    struct stat info;
    for (i64 i = 0; i < set->count; i++) {
        add_file(&held, set->items[i].path);
        if (stat(set->items[i].path, &info) == 0)
            hash_list_add(&sizes, (u64)info.st_size);
    }
    hash_list_sort(&sizes);
    for (i64 i = 0; i < training->count; i++)
        if (stat(training->paths[i], &info) == 0 && hash_list_has(&sizes, (u64)info.st_size))
            add_file(&trained, training->paths[i]);
    i64 common = hash_list_common(&held, &trained);
    hash_list_release(&held);
    hash_list_release(&trained);
    hash_list_release(&sizes);
    return common;
}

static int count_common(struct json *j, struct samples_run *r, const struct sample_set *set)
{
    if (set->split == SPLIT_TRAIN)
        return 0;
    if (list_captioned(r, set->kind, SPLIT_TRAIN))
        return -1;
    i64 common = samples_in_common(r, set);
    json_set(j, "trained_on", json_of_integer(common));
    if (common)
        log_warn("%s %s: %lld of %lld %s %s, byte for byte, so their figures flatter", split_names[set->split],
                 modality_rows[set->kind].name, (long long)common, (long long)set->count,
                 plural(set->count, "file", "files"),
                 plural(common, "is a training file too", "are training files too"));
    return 0;
}

static int make_set(struct samples_run *r, enum modality kind, enum split split, i64 most)
{
    struct sample_set set;
    char key[64];
    int status = sample_set_choose(&set, r, kind, split, most);
    if (status == 0)
        sample_set_load(r, &set);
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
        status = sample_baselines(j, r, &set);
        if (status == 0)
            status = count_common(j, r, &set);
        log_nearness(j, &set);
        json_set(j, "shown", shown);
        shown = NULL;
        snprintf(key, sizeof key, "%s/%s", split_names[split], modality_rows[kind].name);
        json_set(r->report, key, j);
    }
    json_free(shown);
    for (i64 i = 0; i < set.count; i++)
        answer_release(&answers[i]);
    memory_free(answers);
    sample_set_release(&set);
    return status;
}

static bool has_part(const struct samples_settings *s, enum split split)
{
    bool found = s->parts.count == 0 && split != SPLIT_TEST;
    for (i64 i = 0; i < s->parts.count; i++)
        found |= strcmp(s->parts.values[i], split_names[split]) == 0;
    return found;
}

int samples_check_settings(const void *settings)
{
    const struct samples_settings *s = settings;
    int status = source_columns_check(&s->columns);
    for (i64 i = 0; i < s->parts.count && status == 0; i++)
        status = split_check("parts", s->parts.values[i]);
    return status;
}

static int run_all(struct samples_run *r)
{
    const i64 counts[MODALITIES] = {[MODALITY_IMAGE] = generator_shape(&r->generator, false) ? r->s->pictures : 0,
                                    [MODALITY_VIDEO] = generator_shape(&r->generator, true) ? r->s->clips : 0,
                                    [MODALITY_AUDIO] = r->generator.has_audio ? r->s->sounds : 0};
    if (r->generator.model.config.bits && !r->generator.has_vision)
        log_warn("%s: its vision tokenizer (weft/vision) is missing: no pictures, no clips", r->s->from);
    if (r->generator.model.config.levels && !r->generator.has_audio)
        log_warn("%s: its audio tokenizer (weft/audio) is missing: no sounds", r->s->from);
    int status = continue_prompts(r);
    for (enum modality kind = 0; kind < MODALITIES; kind++)
        for (enum split split = 0; split < SPLITS && status == 0; split++) {
            if (!counts[kind] || !has_part(r->s, split))
                continue;
            status = make_set(r, kind, split, samples_wanted(r, split, counts[kind]));
            if (status == 0 && (kind == MODALITY_AUDIO || r->generator.model.config.cell_features))
                status = describe_set(r, kind, split);
        }
    return status;
}

/* Writes the page's pictures for TensorBoard, with their captions: of sounds the spectrograms, of
 * clips nothing. */
static int write_events(const struct samples_run *r)
{
    static const char *const keys[][2] = {
        {"made", "made"}, {"original", "original"}, {"made_picture", "made"}, {"original_picture", "original"}};
    struct events *e = NULL;
    struct json_iterator it;
    int status = 0;
    for (bool more = json_first(&it, r->report); more; more = json_next(&it, r->report)) {
        const struct json *shown = json_get(it.value, "shown");
        for (i64 i = 0; i < json_count(shown); i++)
            for (i64 k = 0; k < COUNT_OF(keys) && status == 0; k++) {
                const struct json *item = json_at(shown, i);
                const char *name = json_string(json_get(item, keys[k][0]), ""),
                           *text = json_string(json_get(item, "text"), "");
                if (!name_ends_with(name, ".png"))
                    continue;
                e = e ? e : events_open(r->stage->out);
                char *path = path_join(r->stage->out, name);
                char *tag = string_format("%s/%02lld %s", it.key, (long long)i, keys[k][1]);
                status = e ? events_write_picture(e, 0, (double)time(NULL), tag, text, path) : -1;
                memory_free(path);
                memory_free(tag);
            }
    }
    events_close(e);
    return status;
}

int samples_stage(const void *settings, const struct stage *stage)
{
    struct samples_run r = {.s = settings, .stage = stage};
    const struct model_source source = {.directory = r.s->from, .dtype = DTYPE_OTHER, .fixed = true};
    if (samples_check_memory(r.s, stage->device) || generator_open(&r.generator, stage->device, &source))
        return -1;
    generator_check_guidance(&r.generator, r.s->guidance);
    mel_distance_open(&r.mel, stage->device, AUDIO_RATE_HZ);
    r.report = json_object();
    int status = r.s->refine && *r.s->refine ? generator_refine(&r.generator, r.s->refine) : 0;
    if (status == 0)
        status = run_all(&r);
    char *path = path_join(stage->out, "samples.json");
    if (status == 0)
        status = json_save(path, r.report);
    if (status == 0)
        status = write_events(&r);
    memory_free(path);
    json_free(r.report);
    for (enum modality kind = 0; kind < MODALITIES; kind++) {
        for (enum split split = 0; split < SPLITS; split++)
            captioned_media_release(&r.media[kind][split]);
        caption_baselines_release(&r.baselines[kind]);
        training_media_release(&r.training[kind]);
    }
    mel_distance_close(&r.mel);
    generator_close(&r.generator);
    return status;
}
