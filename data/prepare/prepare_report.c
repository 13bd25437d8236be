/* Logs the result of a run at its end, and writes curation.json. */
#include "data/prepare/prepare_internal.h"

void prepare_report(const struct prepare *p)
{
    const struct prepare_counts *n = &p->counts;
    struct buffer shapes = {0};
    for (int split = 0; split < SPLITS; split++) {
        struct buffer line = {0};
        buffer_printf(&line, "%s: %lld samples", split_names[split], (long long)n->samples[split]);
        for (int d = 0; d < DIRECTIONS; d++)
            if (n->records[split][d])
                buffer_printf(&line, ", %lld %s", (long long)n->records[split][d], direction_rows[d].name);
        log_info("%s", line.data);
        buffer_release(&line);
    }
    if (n->bad || n->left_out)
        log_info("%lld of %lld samples could not be read, %lld were not wanted or have no tokenizer", (long long)n->bad,
                 (long long)n->read, (long long)n->left_out);
    if (n->unanswered)
        log_warn("%lld conversations have no answer to learn: they are read, and nothing of them is learned",
                 (long long)n->unanswered);
    if (n->records[SPLIT_TRAIN][DIRECTION_CHAT] && p->vocabulary.message_end < 0)
        log_warn("the chat template writes no token behind an answer: the model learns to end one at the end of a "
                 "conversation only");
    if (n->early_sounds)
        log_warn("%lld sounds end before their header says: they are used as far as they go; copy them again",
                 (long long)n->early_sounds);
    if (n->too_long)
        log_info("%lld samples with a sound of more than %g s (audio_seconds) were left out", (long long)n->too_long,
                 p->settings->audio_seconds);
    if (n->silent_clips)
        log_info("%lld samples have a clip in which nothing sounds: %s", (long long)n->silent_clips,
                 p->settings->film_sound == FILM_SOUND_DEMAND ? "they were left out (film_sound: demand)"
                                                              : "it stands alone");
    if (n->bad_sounds)
        log_warn("%lld samples have a clip whose sound cannot be read: it stands alone; see the warnings above",
                 (long long)n->bad_sounds);
    for (i64 i = 0; p->has[TOKENIZER_VISION] && i < p->vision.config.shape_count; i++) {
        const struct vision_shape *s = &p->vision.config.shapes[i];
        if (s->frames > 1)
            buffer_printf(&shapes, "%s%lld frames", shapes.length ? ", " : "", (long long)s->frames);
        if (s->frames > 1 && s->rate_hz > 0)
            buffer_printf(&shapes, " at %g a second", s->rate_hz);
    }
    if (n->clips_cut)
        log_warn("%lld samples have a clip that is longer than the vision tokenizer's (%s): only its beginning is used",
                 (long long)n->clips_cut, shapes.data);
    buffer_release(&shapes);
    if (n->margins)
        log_info(
            "%lld samples have a picture or clip whose proportions no shape of the vision tokenizer has: it stands in "
            "white margins, %.1f %% of its tokens in the mean (tokenizer-vision: aspects; filter.aspect_most leaves "
            "the longest out)",
            (long long)n->margins, 100 * n->margin_sum / (double)n->margins);
}

int prepare_report_common(const struct prepare *p)
{
    for (int split = SPLIT_TRAIN + 1; split < SPLITS; split++) {
        struct shards_common c;
        if (shards_in_common(&c, p->out, p->out, split_names[split], NULL) < 0)
            return -1;
        if (c.common)
            log_warn("%s: %lld of %lld records are training records too, so its losses flatter: "
                     "filter.duplicates leaves such samples out",
                     split_names[split], (long long)c.common, (long long)c.heldout);
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
