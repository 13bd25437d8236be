#include "train/text_stage.h"

#include "sequence/grammar.h"
#include "tokenizers/text.h"

#include <string.h>

#define ROW(member, ...) SETTING(struct text_settings, member, __VA_ARGS__)
const struct setting text_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL, "folder whose .txt and .jsonl files are read (text, messages)"),
    ROW(vocabulary, "vocabulary", INTEGER, "8192", 300, 1e6, NULL, "ids in all: bytes, merges, special tokens"),
    ROW(bytes, "bytes", INTEGER, "20000000", 1, 1e12, NULL, "most text read"),
    ROW(family, "family", CHOICE, "qwen2", 0, 0, "qwen2|gpt-2|llama-bpe", "pre-tokenisation"),
    ROW(nfc, "nfc", BOOL, "false", 0, 0, NULL, "normalise to NFC (other software may not)"),
    ROW(special, "special", STRINGS, "", 0, 0, NULL, "further special tokens"),
    {0}};

struct feed {
    struct text_trainer *trainer;
    i64 bytes, most, documents;
};

static int feed_text(struct feed *feed, const char *text, i64 length)
{
    if (feed->bytes >= feed->most || length == 0)
        return 0;
    feed->bytes += length;
    feed->documents++;
    return text_trainer_feed(feed->trainer, text, length);
}

/* {"text": ..} or {"messages": [{"content": ..}]}; a content may be a list of parts. */
static int feed_json(struct feed *feed, const struct json *line)
{
    const struct json *text = json_get(line, "text"), *messages = json_get(line, "messages");
    int status = 0;
    if (json_kind(text) == JSON_STRING)
        status = feed_text(feed, json_string(text, ""), json_string_length(text));
    for (i64 i = 0; status == 0 && i < json_count(messages); i++) {
        const struct json *content = json_get(json_at(messages, i), "content");
        if (json_kind(content) == JSON_STRING)
            status = feed_text(feed, json_string(content, ""), json_string_length(content));
        for (i64 p = 0; status == 0 && json_kind(content) == JSON_ARRAY && p < json_count(content); p++) {
            const struct json *part = json_get(json_at(content, p), "text");
            status = feed_text(feed, json_string(part, ""), json_string_length(part));
        }
    }
    return status;
}

static int feed_lines(struct feed *feed, const struct file_view *view, const char *path)
{
    const char *at = (const char *)view->data, *end = at + view->bytes;
    int status = 0;
    for (i64 number = 1; at < end && status == 0; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        i64 length = (stop ? stop : end) - at;
        struct json *j = length ? json_parse(at, length, path) : NULL;
        if (length && !j)
            log_warn("%s, line %lld is skipped: %s", path, (long long)number, error_text());
        status = feed_json(feed, j);
        json_free(j);
        at += length + 1;
    }
    return status;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static int feed_file(struct feed *feed, const char *path)
{
    struct file_view view;
    bool lines = ends_with(path, ".jsonl");
    if (!lines && !ends_with(path, ".txt"))
        return 0;
    if (file_map(&view, path))
        return -1;
    int status = lines ? feed_lines(feed, &view, path) : feed_text(feed, (const char *)view.data, view.bytes);
    file_unmap(&view);
    return status ? error_prefix("%s", path) : 0;
}

static int feed_path(struct feed *feed, const char *path)
{
    char **names;
    i64 count;
    if (!file_is_directory(path))
        return feed_file(feed, path);
    if (directory_list(&names, &count, path))
        return -1;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *below = path_join(path, names[i]);
        if (!file_is_directory(below))
            status = feed_file(feed, below);
        memory_free(below);
    }
    string_list_free(names, count);
    return status;
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
    struct feed feed = {text_trainer_open(&training), 0, s->bytes, 0};
    struct text_tokenizer *tokenizer = NULL;
    int status = feed.trainer ? feed_path(&feed, s->data) : -1;
    if (status == 0 && feed.documents == 0)
        status = error_set("%s: no text there: expected .txt or .jsonl files", s->data);
    if (status == 0)
        tokenizer = text_trainer_finish(feed.trainer);
    status = tokenizer ? text_tokenizer_save(tokenizer, stage->out) : -1;
    if (status == 0)
        log_info("%lld ids from %lld texts, %.1f MB", (long long)text_vocabulary(tokenizer), (long long)feed.documents,
                 (double)feed.bytes * 1e-6);
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    memory_free(special);
    return status;
}
