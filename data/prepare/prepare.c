#include "data/prepare/prepare_internal.h"
#include "kernels/device/rehearsal.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_ITEMS = 256 };

/* ---- Opening ---- */

static int read_directions(struct prepare *p)
{
    const struct string_list *list = &p->settings->directions;
    for (int d = 0; d < DIRECTIONS; d++)
        p->wanted[d] = list->count == 0;
    for (i64 i = 0; i < list->count; i++) {
        int d = 0;
        while (d < DIRECTIONS && strcmp(direction_rows[d].name, list->values[i]) != 0)
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

int prepare_part(i64 *part, i64 *parts, const char *text)
{
    char *end = NULL;
    const char *at = text;
    *part = *parts = 0;
    if (!text || !*text)
        return 0;
    *part = strtoll(at, &end, 10);
    if (end > at && *end == '/')
        *parts = strtoll(at = end + 1, &end, 10);
    if (end > at && *end == 0 && *part >= 0 && *part < *parts)
        return 0;
    return error_usage("part: \"%s\": expected i/n, i from 0 to n - 1, such as 0/8 for the first of eight", text);
}

/* Dry run of the encoders. The weights and one picture or clip of each shape are always needed, so
 * lack of memory for them is an error. The batch sizes depend on files not yet read, so lack of
 * memory for full batches is only a warning. */
static int check_encoding(struct prepare *meta, const struct rehearsal *rehearsal)
{
    static const char instead[] = "take tokenizers of smaller shapes, one of them alone, or --device cpu";
    prepare_encode_blanks(meta, 1);
    if (rehearsal_check(rehearsal, "encoding media one at a time", instead))
        return -1;
    prepare_encode_blanks(meta, BATCH_ITEMS);
    if (rehearsal_check(rehearsal, "encoding many media together", instead))
        log_warn("%s", error_text());
    return 0;
}

static int check_memory(const struct prepare *p, const struct device *device, enum dtype dtype)
{
    struct rehearsal rehearsal;
    if (!rehearsal_open(&rehearsal, device))
        return 0;
    struct prepare *meta = memory_alloc(sizeof *meta);
    meta->settings = p->settings;
    int status = coders_open(meta, &rehearsal.meta, dtype);
    if (status == 0)
        status = check_encoding(meta, &rehearsal);
    coders_close(meta);
    memory_free(meta);
    rehearsal_close(&rehearsal);
    return status;
}

static int open_tokenizers(struct prepare *p, struct device *device, enum dtype dtype)
{
    const struct prepare_settings *s = p->settings;
    p->text = text_tokenizer_load(s->tokenizer[TOKENIZER_TEXT]);
    if (!p->text || check_memory(p, device, dtype) || coders_open(p, device, dtype))
        return -1;
    p->meta.vocabulary = text_vocabulary(p->text);
    coders_describe(&p->meta, p);
    if (vocabulary_load(&p->vocabulary, p->text, p->has[TOKENIZER_VISION] ? &p->vision.config : NULL) < 0)
        return error_prefix("%s", s->tokenizer[TOKENIZER_TEXT]);
    p->chat = p->vocabulary.message_end >= 0 ? text_chat_layout(p->text) : NULL;
    for (int stream = 0; stream < STREAMS; stream++) {
        const struct stream_row *row = &stream_rows[stream];
        if (row->form == FORM_CODES && p->has[modality_rows[row->modality].tokenizer] &&
            p->vocabulary.bracket[row->begin] < 0)
            return error_set("%s: the text tokenizer has no token %s", s->tokenizer[TOKENIZER_TEXT],
                             bracket_tokens[row->begin]);
    }
    return 0;
}

/* Copies each tokenizer into the shard folder; pretraining passes them on. */
static int save_tokenizers(const struct prepare *p, const char *out)
{
    char *text = path_join(out, tokenizer_names[TOKENIZER_TEXT]);
    int status = directory_make(text) < 0 || text_tokenizer_save(p->text, text) < 0 ? -1 : coders_save(p, out);
    memory_free(text);
    return status;
}

void prepare_close(struct prepare *p)
{
    for (int split = 0; split < SPLITS; split++)
        shard_writer_abandon(p->writers[split]);
    coders_close(p);
    text_tokenizer_free(p->text);
    json_free(p->reached);
    curation_close(p->curation);
}

/* ---- Samples ---- */

static int too_many_bad(const struct prepare *p, i64 least)
{
    if (p->counts.read < least || (double)p->counts.bad <= p->settings->bad_share * (double)p->counts.read)
        return 0;
    return error_set("%s: %lld of %lld samples could not be read; bad_share allows %g: see the warnings above",
                     p->settings->data, (long long)p->counts.bad, (long long)p->counts.read, p->settings->bad_share);
}

static void take_item(struct prepare *p, struct item *item)
{
    if (!item->problem)
        film_sound_tell(p, item);
    if (item->problem) {
        log_warn("skipped: %s: %s", item->sample.name, item->problem);
        p->counts.bad++;
    } else if (prepare_cuts(p, item)) {
        return; /* only its pieces are written */
    } else if (item->too_long) {
        p->counts.too_long++;
    } else if (item->left_out) {
        p->counts.left_out += !item->mute;
    } else if (!item->curated && !item->unshown) {
        p->counts.clips_cut += item->clip_cut && !prepare_has_windows(p);
        p->counts.margins += item->white > 0;
        p->counts.white += item->white;
        prepare_write(p, item);
    }
}

/* Judges a long file: the file first, then a clip's first window. For a sound to be cut, its pieces
 * are judged later. */
static void curate_long(struct prepare *p, struct item *item)
{
    item->curated = !curation_keep_file(p->curation, &item->curate, &item->sample);
    item->curate.masked = 0; /* already counted */
    if (!item->curated && !item->left_out && !prepare_cuts(p, item))
        item->unshown = !curation_keep_window(p->curation, &item->curate, &item->sample);
}

/* Applies the ordered rules: earlier samples decide. */
static void curate(struct prepare *p, struct item *items, i64 count)
{
    for (i64 i = 0; p->curation && i < count; i++) {
        struct item *item = &items[i];
        if (prepare_has_further(p, item))
            curate_long(p, item);
        else if (!item->problem && !item->left_out && !item->too_long)
            item->curated = !curation_keep(p->curation, &item->curate, &item->sample);
    }
}

static i64 count_records(const struct prepare *p)
{
    i64 records = 0;
    for (int split = 0; split < SPLITS; split++)
        for (int d = 0; d < DIRECTIONS; d++)
            records += p->counts.records[split][d];
    return records;
}

static int make_item(struct prepare *p, struct item *item)
{
    i64 before = count_records(p);
    take_item(p, item);
    int status = item->curated ? 0 : prepare_further(p, item);
    if (p->curation)
        curation_wrote(p->curation, &item->curate, count_records(p) - before);
    return status;
}

static int make_batch(struct prepare *p, struct item *items, i64 count)
{
    prepare_read(p, items, count);
    if (interrupted())
        return INTERRUPTED;
    curate(p, items, count);
    prepare_encode(p, items, count);
    for (i64 i = 0; i < count; i++) {
        int status = make_item(p, &items[i]);
        if (status)
            return status;
    }
    return too_many_bad(p, 4 * BATCH_ITEMS);
}

/* Reads the next batch. Sets *ended at the end of the source; returns -1 if it is unreachable. */
static int fill_batch(struct prepare *p, struct source *source, struct item *items, i64 *count, bool *ended)
{
    i64 most = prepare_batch_items(p, BATCH_ITEMS);
    *count = 0;
    while (*count < most) {
        struct item *item = &items[*count];
        enum source_result result = source_next(source, &item->sample);
        *ended = result == SOURCE_END;
        if (result == SOURCE_END)
            return 0;
        if (result == SOURCE_UNREACHABLE)
            return -1;
        p->counts.read++;
        if (result == SOURCE_SAMPLE) {
            ++*count;
            continue;
        }
        log_warn("skipped: %s", error_text());
        p->counts.bad++;
    }
    return 0;
}

static void show(const struct prepare *p, const struct source *source, struct progress *progress)
{
    i64 done, total;
    source_progress(source, &done, &total);
    progress->total = total;
    progress_update(progress, done, "%lld samples", (long long)p->counts.read);
}

/* Resumes behind the last batch that an interrupted or killed process saved. */
static int go_on(struct prepare *p, struct source *source)
{
    if (!p->reached)
        return 0;
    int status = source_go_on(source, p->reached);
    if (status < 0)
        return error_prefix("going on with %s", p->out);
    log_info("goes on behind %lld samples", (long long)p->counts.read);
    return status;
}

/* Saves progress after a failure, so that a later call can resume. */
static int stop_here(struct prepare *p)
{
    char *why = string_copy(error_text());
    int status = progress_save(p) < 0 ? -1 : error_set("%s", why);
    memory_free(why);
    return status;
}

/* Makes one batch. An interrupted batch is discarded, because nothing of it has been written. */
static int next_batch(struct prepare *p, struct source *source, struct item *items, bool *ended)
{
    struct prepare_counts before = p->counts;
    i64 count, bytes = progress_bytes(p);
    if (disk_check(p->out, 2 * p->batch_bytes, "the next batch of shards") < 0)
        return stop_here(p);
    int status = fill_batch(p, source, items, &count, ended);
    bool reached = status == 0;
    if (reached)
        status = make_batch(p, items, count);
    p->batch_bytes = max_i64(p->batch_bytes, progress_bytes(p) - bytes);
    for (i64 i = 0; i < count; i++)
        item_release(&items[i]);
    if (!reached) {
        p->counts = before;
        return interrupted() ? (progress_save(p) < 0 ? -1 : INTERRUPTED) : stop_here(p);
    }
    if (status == INTERRUPTED_WITHIN) /* resume from the last save */
        return INTERRUPTED;
    if (status == INTERRUPTED) {
        p->counts = before;
    } else {
        json_free(p->reached);
        p->reached = source_state(source);
    }
    if ((status == 0 && progress_is_due(p)) || status == INTERRUPTED)
        status = progress_save(p) < 0 ? -1 : status;
    return status == 0 ? progress_hand_on(p) : status;
}

static int make_batches(struct prepare *p, struct source *source, struct progress *progress)
{
    struct item *items = memory_alloc(BATCH_ITEMS * (i64)sizeof *items);
    bool ended = false;
    int status = go_on(p, source);
    while (status == 0 && !ended) {
        status = next_batch(p, source, items, &ended);
        show(p, source, progress);
    }
    memory_free(items);
    return status;
}

static int check_lost(const struct prepare *p, const struct source *source)
{
    if (source_lost(source) <= p->settings->bad_share)
        return 0;
    return error_set("%s: files that hold %.1f %% of the bytes are damaged or cannot be read; bad_share allows %g: see "
                     "the warnings above",
                     p->settings->data, 100 * source_lost(source), p->settings->bad_share);
}

static int make_all(struct prepare *p)
{
    const struct prepare_settings *s = p->settings;
    struct source *source = source_open(s->data, &(struct source_request){.seed = p->seed,
                                                                          .validation = s->validation,
                                                                          .test = s->test,
                                                                          .columns = &s->columns,
                                                                          .part = p->part,
                                                                          .parts = p->parts});
    struct progress progress;
    if (!source)
        return -1;
    progress_init(&progress, "bytes of data", 1);
    int status = make_batches(p, source, &progress);
    progress_close(&progress);
    if (status == 0) {
        source_log(source);
        status = check_lost(p, source);
    }
    source_close(source);
    return status;
}

static void say_of_cut_clips(const struct prepare *p)
{
    struct text shapes = {0};
    for (i64 i = 0; p->has[TOKENIZER_VISION] && i < p->vision.config.shape_count; i++) {
        const struct vision_shape *s = &p->vision.config.shapes[i];
        if (s->frames > 1)
            text_printf(&shapes, "%s%lld frames", shapes.length ? ", " : "", (long long)s->frames);
        if (s->frames > 1 && s->rate_hz > 0)
            text_printf(&shapes, " at %g a second", s->rate_hz);
    }
    if (p->counts.clips_cut)
        log_warn("%lld samples have a clip that is longer than the vision tokenizer's (%s): only its beginning is used",
                 (long long)p->counts.clips_cut, shapes.data);
    text_release(&shapes);
}

static void say_of_margins(const struct prepare *p)
{
    if (p->counts.margins)
        log_info(
            "%lld samples have a picture or clip whose proportions no shape of the vision tokenizer has: it stands in "
            "white margins, %.1f %% of its tokens in the mean (tokenizer-vision: aspects; filter.aspect_most leaves "
            "the longest out)",
            (long long)p->counts.margins, 100 * p->counts.white / (double)p->counts.margins);
}

static void say_of_films(const struct prepare *p)
{
    bool demand = p->settings->film_sound == FILM_SOUND_DEMAND;
    if (p->counts.mute)
        log_info("%lld samples have a clip in which nothing sounds: %s", (long long)p->counts.mute,
                 demand ? "they were left out (film_sound: demand)" : "it stands alone");
    if (p->counts.damaged_sounds)
        log_warn("%lld samples have a clip whose sound cannot be read: it stands alone; see the warnings above",
                 (long long)p->counts.damaged_sounds);
}

static void say_what_was_made(const struct prepare *p)
{
    for (int split = 0; split < SPLITS; split++) {
        struct text line = {0};
        text_printf(&line, "%s: %lld samples", split_names[split], (long long)p->counts.samples[split]);
        for (int d = 0; d < DIRECTIONS; d++)
            if (p->counts.records[split][d])
                text_printf(&line, ", %lld %s", (long long)p->counts.records[split][d], direction_rows[d].name);
        log_info("%s", line.data);
        text_release(&line);
    }
    if (p->counts.bad || p->counts.left_out)
        log_info("%lld of %lld samples could not be read, %lld were not wanted or have no tokenizer",
                 (long long)p->counts.bad, (long long)p->counts.read, (long long)p->counts.left_out);
    if (p->counts.too_long)
        log_info("%lld samples with a sound of more than %g s (audio_seconds) were left out",
                 (long long)p->counts.too_long, p->settings->audio_seconds);
    say_of_films(p);
    say_of_cut_clips(p);
    say_of_margins(p);
}

static int save_curation(const struct prepare *p)
{
    if (!p->curation)
        return 0;
    struct json *j = curation_json(p->curation);
    char *path = path_join(p->out, "curation.json");
    int status = json_save(path, j);
    curation_log(p->curation);
    json_free(j);
    memory_free(path);
    return status;
}

/* Closes the last, partly filled shard, hands it on and ends the taker. */
static int hand_on_rest(struct prepare *p)
{
    int status = !p->taker ? 0 : shard_writer_end(p->writers[SPLIT_TRAIN]) < 0 || progress_save(p) < 0 ? -1 : 0;
    if (status == 0)
        status = progress_hand_on(p);
    return status == 0 && p->taker ? p->taker->end(p->taker->context, p->taken) : status;
}

static int finish(struct prepare *p)
{
    if (too_many_bad(p, 1) < 0)
        return -1;
    if (p->counts.samples[SPLIT_TRAIN] == 0 && p->parts <= 1) /* one of several parts may have no file */
        return error_set("%s: no sample for training among %lld", p->settings->data, (long long)p->counts.read);
    int status = hand_on_rest(p);
    if (status)
        return status;
    for (int split = 0; split < SPLITS; split++) {
        struct shard_writer *writer = p->writers[split];
        p->writers[split] = NULL;
        if (shard_writer_close(writer) < 0)
            return -1;
    }
    say_what_was_made(p);
    return save_curation(p) < 0 || progress_keep_keys(p) < 0 ? -1 : progress_remove(p);
}

int prepare_open(struct prepare *p, struct device *device)
{
    int status = read_directions(p) < 0 ? -1 : prepare_part(&p->part, &p->parts, p->settings->part);
    if (status == 0)
        p->curation = curation_open(&p->settings->filter, &status);
    if (status == 0 && p->settings->film_sound &&
        !(p->settings->tokenizer[TOKENIZER_AUDIO] && *p->settings->tokenizer[TOKENIZER_AUDIO]))
        status = error_usage("film_sound: sounds need an audio tokenizer: `audio: STAGE`, or film_sound: none");
    if (status == 0 && p->parts > 1 && p->settings->filter.duplicates)
        log_warn("filter.duplicates: a part knows its own files, and what filter.seen names, alone: duplicates in "
                 "others stay; the stage dedup leaves them out once all parts are there");
    return status == 0 ? open_tokenizers(p, device, p->dtype) : -1;
}

/* Writes everything but the shards: the recipe from which other processes make them. */
static int promise(struct prepare *p)
{
    const struct prepare_settings *s = p->settings;
    struct source *source = source_open(
        s->data, &(struct source_request){
                     .seed = p->seed, .validation = s->validation, .test = s->test, .columns = &s->columns});
    int status = source ? shard_stream_save(p->out, s, p->seed, p->dtype) : -1;
    source_close(source);
    return status;
}

static int make(struct prepare *p)
{
    int status = progress_open(p);
    if (status == 0)
        status = progress_hand_on(p);
    if (status == 0)
        status = make_all(p);
    return status == 0 ? finish(p) : status;
}

static int prepare_all(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                       enum dtype dtype, const struct prepare_taker *taker)
{
    struct prepare *p = memory_alloc(sizeof *p);
    *p = (struct prepare){.settings = settings, .out = out, .seed = seed, .dtype = dtype, .taker = taker};
    int status = picture_rules_read(&p->rules, &settings->pictures);
    if (status == 0)
        status = prepare_open(p, device);
    if (status == 0)
        status = shard_meta_save(&p->meta, out) < 0 || save_tokenizers(p, out) < 0 ? -1 : 0;
    if (status == 0)
        status = settings->stream.on && !taker ? promise(p) : make(p);
    prepare_close(p);
    if (status < 0)
        progress_discard(p);
    memory_free(p);
    return status;
}

int prepare_stage(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                  enum dtype dtype)
{
    if (settings->stream.on && settings->part && *settings->part)
        return error_usage("part and stream.on: a stream's parts are made by its own processes; leave part out");
    return prepare_all(settings, out, seed, device, dtype, NULL);
}

int prepare_stream(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                   enum dtype dtype, const struct prepare_taker *taker)
{
    return prepare_all(settings, out, seed, device, dtype, taker);
}
