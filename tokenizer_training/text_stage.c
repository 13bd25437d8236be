#include "tokenizer_training/tokenizer_training.h"

#include "data/sources/sources.h"
#include "sequence/grammar.h"
#include "tokenizers/text/text.h"

#include <string.h>

#define ROW(member, ...) SETTING(struct text_settings, member, __VA_ARGS__)
const struct setting text_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL,
        "folder or file: .txt, .md, .rst, .jsonl (.gz, .zst), .tar; train split only; entries without text are "
        "skipped"),
    ROW(vocabulary, "vocabulary", INTEGER, "8192", 300, 1e6, NULL, "vocabulary size: bytes, merges, special tokens"),
    ROW(bytes, "bytes", INTEGER, "20000000", 1, 1e12, NULL,
        "maximum text to read, bytes; files contribute in proportion to their size"),
    SPLIT_ROWS(struct text_settings),
    SUBTITLES_ROW(struct text_settings),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, NULL, "maximum share of unreadable samples"),
    ROW(family, "family", CHOICE, "qwen2", 0, 0, "qwen2|gpt-2|llama-bpe", "pre-tokenizer"),
    ROW(nfc, "nfc", BOOL, "false", 0, 0, NULL, "NFC normalization (other software may skip it)"),
    ROW(special, "special", STRINGS, "", 0, 0, NULL, "additional special tokens"),
    {0}};

struct text_feed {
    const struct text_settings *settings;
    struct text_trainer *trainer;
    struct source *source;
    i64 *taken;                  /* [files] samples read so far; -1: to the end */
    i64 bytes, texts, read, bad; /* read: samples, including the bad ones */
    i64 prompts;                 /* for reinforcement learning: no texts */
};

/* Length of a cut at about `room` bytes: between words if a word ends nearby, else
 * between characters. Never 0. */
static i64 cut_length(const struct buffer *text, i64 room)
{
    enum { NEAR = 32 };
    if (text->length <= room)
        return text->length;
    for (i64 length = room; length > max_i64(0, room - NEAR); length--)
        if (strchr(" \n\t", text->data[length]))
            return length;
    while (room < text->length && ((u8)text->data[room] & 0xc0) == 0x80)
        room++;
    return room;
}

static int feed_sample(struct text_feed *feed, const struct sample *sample, double until)
{
    int status = 0;
    for (i64 i = 0; i < sample->count && status == 0 && (double)feed->bytes < until; i++) {
        const struct buffer *text = &sample->parts[i].bytes;
        i64 length = sample->parts[i].kind == MODALITY_TEXT ? cut_length(text, (i64)until + 1 - feed->bytes) : 0;
        if (length == 0)
            continue;
        feed->bytes += length;
        feed->texts++;
        status = text_trainer_feed(feed->trainer, text->data, length);
    }
    return status ? error_prefix("%s", sample->name) : 0;
}

/* Feeds samples of a file until the given number of bytes; skips samples that an
 * earlier round has taken. */
static int feed_file(struct text_feed *feed, i64 file, double until)
{
    struct sample sample;
    i64 known = feed->taken[file];
    int status = 0;
    for (i64 i = 0; status == 0 && (i < known || (double)feed->bytes < until); i++) {
        enum source_result result = source_next_in(feed->source, file, &sample);
        if (result == SOURCE_UNREACHABLE)
            return -1;
        if (i >= known && result != SOURCE_END) {
            feed->read++;
            feed->bad += result != SOURCE_SAMPLE;
        }
        if (i >= known && (result == SOURCE_BAD || result == SOURCE_DAMAGED))
            log_warn("skipped: %s", error_text());
        if (result == SOURCE_SAMPLE && i >= known && sample.split == SPLIT_TRAIN)
            status = feed_sample(feed, &sample, until);
        sample_release(&sample);
        feed->taken[file] = max_i64(feed->taken[file], i + 1);
        if (result == SOURCE_END || result == SOURCE_DAMAGED) {
            feed->taken[file] = -1;
            break;
        }
    }
    return status;
}

static bool is_due(const struct text_feed *feed, const struct source_file *file, i64 index)
{
    return file->use == FILE_SAMPLES && file->split <= SPLIT_TRAIN && feed->taken[index] >= 0;
}

/* Feeds each file up to its cumulative share of the bytes, so bytes that earlier files
 * lacked pass to later ones. */
static int feed_round(struct text_feed *feed)
{
    i64 count, total = 0, behind = 0;
    double first = (double)feed->bytes, wanted = (double)feed->settings->bytes - first;
    const struct source_file *files = source_files(feed->source, &count);
    int status = 0;
    for (i64 i = 0; i < count; i++)
        total += is_due(feed, &files[i], i) ? max_i64(files[i].bytes, 1) : 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        if (!is_due(feed, &files[i], i))
            continue;
        behind += max_i64(files[i].bytes, 1);
        status = feed_file(feed, i, first + wanted * (double)behind / (double)total);
        if (interrupted())
            return error_interrupted();
    }
    return status;
}

/* Feeds the texts of media that no file names: captions from their names, embedded subtitles. */
static int feed_unnamed(struct text_feed *feed)
{
    struct sample sample;
    enum source_result result = SOURCE_SAMPLE;
    int status = 0;
    while (status == 0 && feed->bytes < feed->settings->bytes && !interrupted() &&
           (result = source_next_unnamed(feed->source, &sample)) != SOURCE_END) {
        if (result == SOURCE_UNREACHABLE)
            return -1;
        feed->read++;
        feed->bad += result != SOURCE_SAMPLE;
        if (result != SOURCE_SAMPLE)
            log_warn("skipped: %s", error_text());
        else if (sample.split == SPLIT_TRAIN)
            status = feed_sample(feed, &sample, (double)feed->settings->bytes);
        sample_release(&sample);
    }
    return interrupted() ? error_interrupted() : status;
}

static bool has_more(const struct text_feed *feed)
{
    i64 count;
    const struct source_file *files = source_files(feed->source, &count);
    for (i64 i = 0; i < count; i++)
        if (is_due(feed, &files[i], i))
            return true;
    return false;
}

static int check_fed(const struct text_feed *feed)
{
    const struct text_settings *s = feed->settings;
    if ((double)feed->bad > s->bad_share * (double)feed->read)
        return error_set("%s: %lld of %lld %s could not be read; bad_share allows %g: see the warnings above", s->data,
                         (long long)feed->bad, (long long)feed->read, plural(feed->read, "sample", "samples"),
                         s->bad_share);
    if (feed->texts)
        return 0;
    return feed->prompts ? error_set("%s: no text there, only %lld %s for reinforcement learning: expected .txt "
                                     "or .jsonl files with some",
                                     s->data, (long long)feed->prompts, plural(feed->prompts, "prompt", "prompts"))
                         : error_set("%s: no text there: expected .txt or .jsonl files with some", s->data);
}

static int feed_data(struct text_feed *feed, u64 seed)
{
    const struct text_settings *s = feed->settings;
    i64 count;
    feed->source = source_open(
        s->data,
        &(struct source_request){.seed = seed, .validation = s->validation, .test = s->test, .columns = &s->columns});
    if (!feed->source)
        return -1;
    source_files(feed->source, &count);
    feed->taken = memory_alloc(max_i64(1, count) * 8);
    int status = 0;
    while (status == 0 && feed->bytes < s->bytes && has_more(feed))
        status = feed_round(feed);
    if (status == 0)
        status = feed_unnamed(feed);
    if (status == 0)
        source_log(feed->source, true);
    if (status == 0 && source_lost(feed->source) > s->bad_share)
        status =
            error_set("%s: files that hold %.1f %% of the bytes are damaged or cannot be read; bad_share allows %g",
                      s->data, 100 * source_lost(feed->source), s->bad_share);
    feed->prompts = source_prompts(feed->source);
    source_close(feed->source);
    memory_free(feed->taken);
    return status ? status : check_fed(feed);
}

static const char **special_tokens(const struct text_settings *s)
{
    i64 n = 0, m = 0;
    while (grammar_special_tokens[n])
        n++;
    const char **all = memory_alloc((n + s->special.count + 1) * (i64)sizeof *all);
    for (; m < n; m++)
        all[m] = grammar_special_tokens[m];
    for (i64 i = 0; i < s->special.count; i++)
        all[m++] = s->special.values[i];
    return all;
}

static struct text_trainer *open_trainer(const struct text_settings *s)
{
    static const char *const families[] = {"qwen2", "gpt-2", "llama-bpe"};
    const char **special = special_tokens(s);
    const struct text_training training = {families[s->family], s->nfc, s->vocabulary, special, false};
    struct text_trainer *trainer = text_trainer_open(&training);
    memory_free(special);
    return trainer;
}

int text_check_settings(const void *settings)
{
    const struct text_settings *s = settings;
    struct text_trainer *trainer = open_trainer(s);
    text_trainer_close(trainer);
    return trainer ? source_columns_check(&s->columns) : -1;
}

int text_stage(const void *settings, const struct stage *stage)
{
    const struct text_settings *s = settings;
    struct text_feed feed = {.settings = s, .trainer = open_trainer(s)};
    struct text_tokenizer *tokenizer = NULL;
    int status = feed.trainer ? feed_data(&feed, stage->recipe_seed) : -1;
    if (status == 0)
        tokenizer = text_trainer_finish(feed.trainer);
    else if (feed.trainer)
        text_trainer_close(feed.trainer);
    status = tokenizer ? text_tokenizer_save(tokenizer, stage->out) : -1;
    if (status == 0)
        log_info("%lld %s from %lld %s, %.1f MB", (long long)text_vocabulary(tokenizer),
                 plural(text_vocabulary(tokenizer), "id", "ids"), (long long)feed.texts,
                 plural(feed.texts, "text", "texts"), (double)feed.bytes * 1e-6);
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    return status;
}

int text_stage_sizes(struct token_sizes *sizes, const void *settings)
{
    const struct text_settings *s = settings;
    sizes->vocabulary = s->vocabulary;
    return 0;
}
