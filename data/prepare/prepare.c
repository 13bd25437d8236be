/* The stage from its beginning to its end. */
#include "data/prepare/prepare_internal.h"

#include <string.h>

/* Fails if too large a share of at least `least` samples could not be read. */
static int check_bad_share(const struct prepare *p, i64 least)
{
    if (p->counts.read < least || (double)p->counts.bad <= p->settings->bad_share * (double)p->counts.read)
        return 0;
    return error_set("%s: %lld of %lld %s could not be read; bad_share allows %g: see the warnings above",
                     p->settings->data, (long long)p->counts.bad, (long long)p->counts.read,
                     plural(p->counts.read, "sample", "samples"), p->settings->bad_share);
}

static struct source *open_source(const struct prepare *p)
{
    const struct prepare_settings *s = p->settings;
    return source_open(s->data, &(struct source_request){.seed = p->seed,
                                                         .validation = s->validation,
                                                         .test = s->test,
                                                         .columns = &s->columns,
                                                         .job = p->job,
                                                         .jobs = p->jobs});
}

/* Reads the next batch of samples. Sets *ended at the end of the source; returns -1 if it is
 * unreachable. */
static int read_samples(struct prepare *p, struct source *source, struct item *items, i64 *count, bool *ended)
{
    i64 most = prepare_batch_items(p, BATCH_ITEMS);
    u64 said = 0; /* hash of the last warning: lines of one bad row say the same */
    *count = 0;
    while (*count < most) {
        enum source_result result = source_next(source, &items[*count].sample);
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
        u64 why = hash_bytes(error_text(), (i64)strlen(error_text()), 0);
        if (why != said)
            log_warn("skipped: %s", error_text());
        said = why;
        p->counts.bad++;
    }
    return 0;
}

/* Applies the rules in the order of samples: earlier ones decide about later ones. */
static void curate_in_order(struct prepare *p, struct item *items, i64 count)
{
    for (i64 i = 0; p->curation && i < count; i++) {
        struct item *item = &items[i];
        if (!prepare_has_pieces(p, item)) {
            if (!item->problem && !item->left_out && !item->too_long)
                item->dropped = !curation_keep(p->curation, &item->curate, &item->sample);
            continue;
        }
        /* A long file: the file first, then a clip's first window. Pieces of a sound follow when
         * they are cut. */
        item->dropped = !curation_keep_file(p->curation, &item->curate, &item->sample);
        item->curate.masked = 0; /* already counted */
        if (!item->dropped && !item->left_out && !prepare_is_cut_sound(p, item))
            item->window_dropped = !curation_keep_window(p->curation, &item->curate, &item->sample);
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

void item_skip(struct prepare *p, const struct item *item)
{
    const char *name = item->sample.name;
    size_t length = strlen(name);
    /* the message of a medium may begin with its file, after which the sample may be called */
    bool named = strncmp(item->problem, name, length) == 0 && item->problem[length] == ':';
    log_warn("skipped: %s%s%s", named ? "" : name, named ? "" : ": ", item->problem);
    p->counts.bad++;
}

/* Writes the records of a sample, or counts the reason why it has none; then the rest of a long
 * file. Returns 0 or INTERRUPTED_WITHIN. */
static int write_sample(struct prepare *p, struct item *item)
{
    i64 before = count_records(p);
    if (!item->problem)
        film_sound_count(p, item);
    p->counts.early_sounds += item->sound_early && !item->problem;
    if (item->problem) {
        item_skip(p, item);
    } else if (prepare_is_cut_sound(p, item)) {
        /* only its pieces are written */
    } else if (item->too_long) {
        p->counts.too_long++;
    } else if (item->left_out) {
        p->counts.left_out += !item->silent;
    } else if (!item->dropped && !item->window_dropped) {
        p->counts.clips_cut += item->clip_cut && !prepare_wants_windows(p);
        p->counts.margins += item->margin > 0;
        p->counts.margin_sum += item->margin;
        prepare_write(p, item);
    }
    int status = item->dropped ? 0 : prepare_write_pieces(p, item);
    if (p->curation)
        curation_set_records(p->curation, &item->curate, count_records(p) - before);
    return status;
}

/* Saves the progress after a failure, so that a later call resumes here. Returns -1 and keeps the
 * message. */
static int save_after_failure(struct prepare *p)
{
    char *why = string_copy(error_text());
    int status = progress_save(p) < 0 ? -1 : error_set("%s", why);
    memory_free(why);
    return status;
}

/* Ends a batch of which no record is written: forgets it, and saves the progress behind the batch
 * before it. Returns INTERRUPTED, or -1 and keeps the message. */
static int drop_batch(struct prepare *p, const struct prepare_counts *before, struct item *items, i64 count)
{
    for (i64 i = 0; i < count; i++)
        item_release(&items[i]);
    p->counts = *before;
    if (!interrupted())
        return save_after_failure(p);
    return progress_save(p) < 0 ? -1 : INTERRUPTED;
}

/* Takes one batch from the source to the shards. Returns 0, -1 or INTERRUPTED. */
static int prepare_batch(struct prepare *p, struct source *source, struct item *items, bool *ended)
{
    const struct prepare_counts before = p->counts;
    i64 count, bytes = progress_bytes(p);
    if (disk_check(p->out, 2 * p->batch_bytes, "the next batch of shards") < 0)
        return save_after_failure(p);
    int status = read_samples(p, source, items, &count, ended);
    if (status == 0) {
        prepare_decode(p, items, count);
        status = interrupted() ? INTERRUPTED : 0;
    }
    if (status)
        return drop_batch(p, &before, items, count);

    curate_in_order(p, items, count);
    media_encode(p, items, count);
    for (i64 i = 0; i < count && status == 0; i++)
        status = write_sample(p, &items[i]);
    for (i64 i = 0; i < count; i++)
        item_release(&items[i]);
    if (status == INTERRUPTED_WITHIN) /* a later call resumes from the last save */
        return INTERRUPTED;
    if (check_bad_share(p, 4 * BATCH_ITEMS) < 0)
        return -1;

    p->batch_bytes = max_i64(p->batch_bytes, progress_bytes(p) - bytes);
    json_free(p->position);
    p->position = source_state(source);
    if (progress_is_due(p) && progress_save(p) < 0)
        return -1;
    return progress_deliver(p);
}

/* Prepares all samples of the source, batch after batch, from the position saved. */
static int prepare_samples(struct prepare *p, struct source *source)
{
    struct item *items = memory_alloc(BATCH_ITEMS * (i64)sizeof *items);
    struct progress progress;
    bool ended = false;
    int status = 0;
    progress_init(&progress, "bytes of data", 1);
    if (p->position) {
        status = source_resume(source, p->position);
        if (status < 0)
            error_prefix("going on with %s", p->out);
        else
            log_info("goes on behind %lld %s", (long long)p->counts.read, plural(p->counts.read, "sample", "samples"));
    }
    while (status == 0 && !ended) {
        i64 done;
        status = prepare_batch(p, source, items, &ended);
        source_progress(source, &done, &progress.total);
        progress_update(&progress, done, "%lld %s", (long long)p->counts.read,
                        plural(p->counts.read, "sample", "samples"));
    }
    progress_close(&progress);
    memory_free(items);
    return status;
}

/* Closes the shards, delivers the last ones and writes what stands beside them. */
static int finish(struct prepare *p)
{
    if (check_bad_share(p, 1) < 0)
        return -1;
    /* One of several parts may have no file. */
    if (p->counts.samples[SPLIT_TRAIN] == 0 && p->jobs <= 1)
        return p->prompts
                   ? error_set("%s: no sample for training among %lld, beside %lld %s for reinforcement "
                               "learning: expected texts, media with captions or conversations",
                               p->settings->data, (long long)p->counts.read, (long long)p->prompts,
                               plural(p->prompts, "prompt", "prompts"))
                   : error_set("%s: no sample for training among %lld: %lld could not be read, %lld were not wanted or "
                               "have no tokenizer, %lld have too long a sound (audio_seconds); the others are held out "
                               "or did not "
                               "pass the filter",
                               p->settings->data, (long long)p->counts.read, (long long)p->counts.bad,
                               (long long)p->counts.left_out, (long long)p->counts.too_long);
    if (p->consumer) {
        if (shard_writer_end(p->writers[SPLIT_TRAIN]) < 0 || progress_save(p) < 0)
            return -1;
        int status = progress_deliver(p);
        if (status == 0)
            status = p->consumer->end(p->consumer->context, p->delivered);
        if (status)
            return status;
    }
    for (int split = 0; split < SPLITS; split++) {
        struct shard_writer *writer = p->writers[split];
        p->writers[split] = NULL;
        if (shard_writer_close(writer) < 0)
            return -1;
    }
    prepare_report(p);
    if (!p->consumer && prepare_report_common(p) < 0)
        return -1;
    return prepare_save_curation(p) < 0 || progress_keep_keys(p) < 0 ? -1 : progress_remove(p);
}

/* Writes the splits: resumes or starts over, prepares all samples, finishes. */
static int write_splits(struct prepare *p)
{
    int status = progress_open(p);
    if (status == 0)
        status = progress_deliver(p); /* closed, but not taken by the consumer of an earlier call */
    if (status)
        return status;
    struct source *source = open_source(p);
    if (!source)
        return -1;
    status = prepare_samples(p, source);
    double lost = source_lost(source);
    if (status == 0)
        source_log(source, true);
    p->prompts = source_prompts(source);
    source_close(source);
    if (status)
        return status;
    if (lost > p->settings->bad_share)
        return error_set("%s: files that hold %.1f %% of the bytes are damaged or cannot be read; bad_share allows %g: "
                         "see the warnings above",
                         p->settings->data, 100 * lost, p->settings->bad_share);
    return finish(p);
}

/* Writes the recipe from which other processes make the splits. Opening the source shows its
 * faults now. */
static int write_recipe(const struct prepare *p)
{
    struct source *source = open_source(p);
    struct prepare_settings settings = *p->settings;
    char day[CHAT_DAY];
    memcpy(day, p->day, sizeof day);
    if (p->chat && text_chat_reads_clock(p->chat))
        settings.day = day; /* all processes write the same one, whenever they begin */
    int status = source ? shard_stream_save(p->out, &settings, p->seed, p->dtype) : -1;
    source_close(source);
    return status;
}

/* consumer NULL: the shards stay in the folder. */
static int run_stage(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                     enum dtype dtype, const struct shard_consumer *consumer)
{
    struct prepare *p = memory_alloc(sizeof *p);
    *p = (struct prepare){.settings = settings, .out = out, .seed = seed, .dtype = dtype, .consumer = consumer};
    int status = prepare_open(p, device);
    if (status == 0)
        status = shard_meta_save(&p->meta, out);
    if (status == 0)
        status = prepare_copy_tokenizers(p);
    if (status == 0)
        status = settings->stream.on && !consumer ? write_recipe(p) : write_splits(p);
    prepare_close(p);
    if (status < 0)
        progress_discard(p);
    memory_free(p);
    return status;
}

int prepare_stage(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                  enum dtype dtype)
{
    return run_stage(settings, out, seed, device, dtype, NULL);
}

int prepare_stream(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                   enum dtype dtype, const struct shard_consumer *consumer)
{
    return run_stage(settings, out, seed, device, dtype, consumer);
}
