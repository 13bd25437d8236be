#include "codecs/codecs.h"

#include "data/sources.h"
#include "sequence/grammar.h"
#include "tokenizers/text.h"

#include <string.h>

#define ROW(member, ...) SETTING(struct text_settings, member, __VA_ARGS__)
const struct setting text_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL,
        "folder or file: .txt, .jsonl (.gz, .zst), .tar; what has no text is passed over"),
    ROW(vocabulary, "vocabulary", INTEGER, "8192", 300, 1e6, NULL, "ids in all: bytes, merges, special tokens"),
    ROW(bytes, "bytes", INTEGER, "20000000", 1, 1e12, NULL, "most text read"),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, NULL, "share of samples that may be unreadable"),
    ROW(family, "family", CHOICE, "qwen2", 0, 0, "qwen2|gpt-2|llama-bpe", "pre-tokenisation"),
    ROW(nfc, "nfc", BOOL, "false", 0, 0, NULL, "normalise to NFC (other software may not)"),
    ROW(special, "special", STRINGS, "", 0, 0, NULL, "further special tokens"),
    {0}};

struct feed {
    const struct text_settings *settings;
    struct text_trainer *trainer;
    i64 bytes, texts, read, bad; /* read: samples, the bad ones among them */
};

static int feed_sample(struct feed *feed, const struct sample *sample)
{
    int status = 0;
    for (i64 i = 0; i < sample->count && status == 0 && feed->bytes < feed->settings->bytes; i++) {
        const struct text *text = &sample->parts[i].bytes;
        if (sample->parts[i].kind != SAMPLE_TEXT || text->length == 0)
            continue;
        feed->bytes += text->length;
        feed->texts++;
        status = text_trainer_feed(feed->trainer, text->data, text->length);
    }
    return status ? error_prefix("%s", sample->name) : 0;
}

static int feed_all(struct feed *feed, struct source *source)
{
    struct sample sample;
    enum source_result result;
    int status = 0;
    while (status == 0 && feed->bytes < feed->settings->bytes &&
           (result = source_next(source, &sample)) != SOURCE_END) {
        if (result == SOURCE_FAILED)
            return -1;
        feed->read++;
        if (result == SOURCE_SAMPLE) {
            status = feed_sample(feed, &sample);
            sample_release(&sample);
        } else {
            log_warn("skipped: %s", error_text());
            feed->bad++;
        }
    }
    return status;
}

static int check_fed(const struct feed *feed)
{
    const struct text_settings *s = feed->settings;
    if ((double)feed->bad > s->bad_share * (double)feed->read)
        return error_set("%s: %lld of %lld samples could not be read; bad_share allows %g: see the warnings above",
                         s->data, (long long)feed->bad, (long long)feed->read, s->bad_share);
    return feed->texts ? 0 : error_set("%s: no text there: expected .txt or .jsonl files with some", s->data);
}

static int feed_data(struct feed *feed)
{
    struct source *source = source_open(feed->settings->data);
    int status = source ? feed_all(feed, source) : -1;
    source_close(source);
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

int text_stage(const void *settings, const struct stage *stage)
{
    static const char *const families[] = {"qwen2", "gpt-2", "llama-bpe"};
    const struct text_settings *s = settings;
    const char **special = special_tokens(s);
    struct text_training training = {families[s->family], s->nfc, s->vocabulary, special, false};
    struct feed feed = {.settings = s, .trainer = text_trainer_open(&training)};
    struct text_tokenizer *tokenizer = NULL;
    int status = feed.trainer ? feed_data(&feed) : -1;
    if (status == 0)
        tokenizer = text_trainer_finish(feed.trainer);
    else if (feed.trainer)
        text_trainer_close(feed.trainer);
    status = tokenizer ? text_tokenizer_save(tokenizer, stage->out) : -1;
    if (status == 0)
        log_info("%lld ids from %lld texts, %.1f MB", (long long)text_vocabulary(tokenizer), (long long)feed.texts,
                 (double)feed.bytes * 1e-6);
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    memory_free(special);
    return status;
}
