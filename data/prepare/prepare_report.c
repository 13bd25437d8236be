/* Logs the result of a run at its end, and writes curation.json. */
#include "data/prepare/prepare_internal.h"

void prepare_report(const struct prepare *p)
{
    const struct prepare_counts *n = &p->counts;
    struct buffer shapes = {0};
    for (int split = 0; split < SPLITS; split++) {
        struct buffer line = {0};
        buffer_printf(&line, "%s: %lld %s", split_names[split], (long long)n->samples[split],
                      plural(n->samples[split], "sample", "samples"));
        for (int d = 0; d < DIRECTIONS; d++)
            if (n->records[split][d])
                buffer_printf(&line, ", %lld %s", (long long)n->records[split][d], direction_rows[d].name);
        log_info("%s", line.data);
        buffer_release(&line);
    }
    if (n->bad || n->left_out)
        log_info("%lld of %lld %s could not be read, %lld were not wanted or have no tokenizer", (long long)n->bad,
                 (long long)n->read, plural(n->read, "sample", "samples"), (long long)n->left_out);
    if (n->unanswered)
        log_warn("%lld %s read, and nothing of them is learned", (long long)n->unanswered,
                 plural(n->unanswered, "conversation has no answer to learn: it is",
                        "conversations have no answer to learn: they are"));
    if (n->records[SPLIT_TRAIN][DIRECTION_CHAT] && p->vocabulary.message_end < 0)
        log_warn("the chat template writes no token behind an answer: the model learns to end one at the end of a "
                 "conversation only");
    if (n->early_sounds)
        log_warn("%lld %s", (long long)n->early_sounds,
                 plural(n->early_sounds,
                        "sound ends before its header says: it is used as far as it goes; copy it again",
                        "sounds end before their header says: they are used as far as they go; copy them again"));
    if (n->too_long)
        log_info("%lld %s with a sound of more than %g s (audio_seconds) %s left out", (long long)n->too_long,
                 plural(n->too_long, "sample", "samples"), p->settings->audio_seconds,
                 plural(n->too_long, "is", "are"));
    if (n->silent_clips)
        log_info("%lld %s a clip in which nothing sounds: %s", (long long)n->silent_clips,
                 plural(n->silent_clips, "sample has", "samples have"),
                 p->settings->film_sound == FILM_SOUND_DEMAND ? "they were left out (film_sound: demand)"
                                                              : "it stands alone");
    if (n->bad_sounds)
        log_warn("%lld %s a clip whose sound cannot be read: it stands alone; see the warnings above",
                 (long long)n->bad_sounds, plural(n->bad_sounds, "sample has", "samples have"));
    for (i64 i = 0; p->has[TOKENIZER_VISION] && i < p->vision.config.shape_count; i++) {
        const struct vision_shape *s = &p->vision.config.shapes[i];
        if (s->frames > 1)
            buffer_printf(&shapes, "%s%lld %s", shapes.length ? ", " : "", (long long)s->frames,
                          plural(s->frames, "frame", "frames"));
        if (s->frames > 1 && s->rate_hz > 0)
            buffer_printf(&shapes, " at %g a second", s->rate_hz);
    }
    if (n->clips_cut)
        log_warn("%lld %s a clip that is longer than the vision tokenizer's (%s): only its beginning is used",
                 (long long)n->clips_cut, plural(n->clips_cut, "sample has", "samples have"), shapes.data);
    buffer_release(&shapes);
    if (n->margins)
        log_info(
            "%lld %s a picture or clip whose proportions no shape of the vision tokenizer has: it stands in "
            "white margins, %.1f %% of its tokens in the mean (tokenizer-vision: aspects; filter.aspect_most leaves "
            "the longest out)",
            (long long)n->margins, plural(n->margins, "sample has", "samples have"),
            100 * n->margin_sum / (double)n->margins);
}

/* Says how many training sounds have a speaker vector. */
static int report_voices(const struct prepare *p)
{
    struct shards s;
    char *train = path_join(p->out, split_names[SPLIT_TRAIN]);
    i64 voices = 0, made = p->counts.records[SPLIT_TRAIN][DIRECTION_AUDIO_OUT];
    int status = shards_open(&s, train, NULL);
    memory_free(train);
    if (status < 0)
        return -1;
    for (i64 i = 0; i < s.folder_count; i++)
        voices += s.folders[i].voice_count;
    if (made && !voices)
        log_warn("voices: no record of a training sound names its speaker (key \"speaker\"): no voice is learned");
    else if (made)
        log_info("voices: %lld of %lld %s to speak %s a speaker vector", (long long)voices, (long long)made,
                 plural(made, "training sound", "training sounds"), plural(voices, "has", "have"));
    shards_close(&s);
    return 0;
}

int prepare_report_common(const struct prepare *p)
{
    if (p->settings->voices && report_voices(p) < 0)
        return -1;
    for (int split = SPLIT_TRAIN + 1; split < SPLITS; split++) {
        struct shards_common c;
        if (shards_in_common(&c, p->out, p->out, split_names[split], NULL) < 0)
            return -1;
        if (c.common)
            log_warn("%s: %lld of %lld %s %s, so its losses flatter: "
                     "filter.duplicates leaves such samples out",
                     split_names[split], (long long)c.common, (long long)c.heldout,
                     plural(c.heldout, "record", "records"),
                     plural(c.common, "is a training record too", "are training records too"));
    }
    return 0;
}

int prepare_save_curation(const struct prepare *p)
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
