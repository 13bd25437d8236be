/* Opens what a run needs: directions, rules of curation, and the tokenizers after a dry run that
 * checks their memory. */
#include "data/prepare/prepare_internal.h"
#include "kernels/device/dry_run.h"

#include <stdio.h>
#include <string.h>

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

int prepare_check_settings(const void *settings)
{
    const struct prepare_settings *s = settings;
    struct prepare *p = memory_alloc(sizeof *p);
    struct picture_rules rules;
    i64 part, parts;
    p->settings = s;
    int status = prepare_part(&part, &parts, s->part);
    if (status == 0 && s->stream.on && parts)
        status = error_usage("part and stream.on: a stream's parts are made by its own processes; leave part out");
    if (status == 0)
        status = read_directions(p);
    if (status == 0)
        status = curate_check_settings(&s->filter);
    if (status == 0)
        status = source_columns_check(&s->columns);
    if (status == 0)
        status = chat_check_day(s->day);
    if (status == 0)
        status = picture_rules_read(&rules, &s->pictures);
    if (status == 0 && s->voices && !(s->tokenizer[TOKENIZER_AUDIO] && *s->tokenizer[TOKENIZER_AUDIO]))
        status = error_usage("voices: sounds need an audio tokenizer: `audio: STAGE`, or voices: false");
    if (status == 0 && s->film_sound && !(s->tokenizer[TOKENIZER_AUDIO] && *s->tokenizer[TOKENIZER_AUDIO]))
        status = error_usage("film_sound: sounds need an audio tokenizer: `audio: STAGE`, or film_sound: none");
    memory_free(p);
    return status;
}

int prepare_check_machine(const void *settings)
{
    return curate_check_languages(&((const struct prepare_settings *)settings)->filter);
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
    int status = media_open(p, meta, w->dtype);
    if (status == 0)
        media_encode_blanks(p, w->items);
    if (w->items > 1)
        out->data_bytes = meta->backed_most_bytes;
    media_close(p);
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

/* A template that writes the day writes the same one in all shards, also where a later call goes on. */
static int open_chat(struct prepare *p)
{
    const char *set = p->settings->day;
    bool fixed = set && *set;
    if (fixed)
        snprintf(p->day, sizeof p->day, "%s", set);
    else
        progress_day(p->day, p);
    if (text_chat_set_day(p->text, fixed ? set : p->day) < 0)
        return -1;
    p->chat = text_chat_open(p->text);
    if (p->chat && text_chat_reads_clock(p->chat) && !fixed)
        log_info("the chat template writes the day: all conversations get %s; `day: %s` makes the same shards later",
                 p->day, p->day);
    return 0;
}

static int open_tokenizers(struct prepare *p, struct device *device, enum dtype dtype)
{
    const char *text = p->settings->tokenizer[TOKENIZER_TEXT];
    p->text = text_tokenizer_load(text);
    if (!p->text || check_memory(p, device, dtype) || media_open(p, device, dtype))
        return -1;
    p->meta.vocabulary = text_vocabulary(p->text);
    media_describe(&p->meta, p);
    if (vocabulary_load(&p->vocabulary, p->text, p->has[TOKENIZER_VISION] ? &p->vision.config : NULL) < 0)
        return error_prefix("%s", text);
    if (open_chat(p) < 0)
        return -1;
    for (int stream = 0; stream < STREAMS; stream++) {
        const struct stream_row *row = &stream_rows[stream];
        if (row->form == FORM_CODES && p->has[modality_rows[row->modality].tokenizer] &&
            p->vocabulary.bracket[row->begin] < 0)
            return error_set("%s: the text tokenizer has no token %s", text, bracket_tokens[row->begin]);
    }
    return 0;
}

int prepare_open(struct prepare *p, struct device *device)
{
    int status = read_directions(p) < 0 ? -1 : prepare_part(&p->job, &p->jobs, p->settings->part);
    if (status == 0)
        status = picture_rules_read(&p->rules, &p->settings->pictures);
    if (status == 0)
        p->curation = curation_open(&p->settings->filter, &status);
    if (status == 0 && p->settings->film_sound &&
        !(p->settings->tokenizer[TOKENIZER_AUDIO] && *p->settings->tokenizer[TOKENIZER_AUDIO]))
        status = error_usage("film_sound: sounds need an audio tokenizer: `audio: STAGE`, or film_sound: none");
    if (status == 0 && p->jobs > 1 && p->settings->filter.duplicates)
        log_warn("filter.duplicates: a part knows its own files, and what filter.seen names, alone: duplicates in "
                 "others stay; the stage dedup leaves them out once all parts are there");
    return status == 0 ? open_tokenizers(p, device, p->dtype) : -1;
}

int prepare_copy_tokenizers(const struct prepare *p)
{
    char *text = path_join(p->out, tokenizer_names[TOKENIZER_TEXT]);
    int status = directory_make(text) < 0 || text_tokenizer_save(p->text, text) < 0 ? -1 : media_copy_tokenizers(p);
    memory_free(text);
    return status;
}

void prepare_close(struct prepare *p)
{
    for (int split = 0; split < SPLITS; split++)
        shard_writer_abandon(p->writers[split]);
    media_close(p);
    text_chat_close(p->chat);
    text_tokenizer_free(p->text);
    json_free(p->position);
    curation_close(p->curation);
}
