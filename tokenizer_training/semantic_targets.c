/* What the head of semantics is to tell of each medium: words of captions, or features of a teacher. */
#include "core/safetensors.h"
#include "tokenizer_training/semantics.h"
#include "tokenizers/text/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

/* Calls `each` for every word of a text. The word is valid during the call. */
static void visit_words(const char *text, void (*each)(void *context, const char *word), void *context)
{
    struct buffer folded = {0};
    text_fold(&folded, text, (i64)strlen(text));
    for (char *rest = folded.data, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
        each(context, word);
    buffer_release(&folded);
}

struct said { /* that the caption of a medium has a word */
    char *word;
    i64 medium;
};
struct said_list {
    struct said *items;
    i64 count, capacity, medium;
};

static void add_said(void *context, const char *word)
{
    struct said_list *l = context;
    i64 size = (i64)sizeof *l->items;
    if (l->count == l->capacity) {
        i64 next = max_i64(1024, 2 * l->capacity);
        l->items = memory_resize(l->items, l->capacity * size, next * size);
        l->capacity = next;
    }
    l->items[l->count++] = (struct said){string_copy(word), l->medium};
}

static int compare_said(const void *a, const void *b)
{
    const struct said *x = a, *y = b;
    int order = strcmp(x->word, y->word);
    return order ? order : (x->medium > y->medium) - (x->medium < y->medium);
}

struct frequent {
    char *word;
    i64 media;
};

static int compare_frequent(const void *a, const void *b)
{
    const struct frequent *x = a, *y = b;
    return x->media != y->media ? (x->media < y->media) - (x->media > y->media) : strcmp(x->word, y->word);
}

/* Counts the media of each word of a sorted list; returns the number of words. */
static i64 count_media(struct frequent *out, const struct said_list *l)
{
    i64 count = 0;
    for (i64 i = 0; i < l->count; i++) {
        bool same = i > 0 && strcmp(l->items[i].word, l->items[i - 1].word) == 0;
        if (!same)
            out[count++] = (struct frequent){l->items[i].word, 0};
        out[count - 1].media += !same || l->items[i].medium != l->items[i - 1].medium;
    }
    return count;
}

void semantic_words_count(struct semantic_words *out, const struct semantic_medium *media, i64 count, i64 most,
                          i64 least, i64 highest)
{
    struct said_list l = {0};
    for (l.medium = 0; l.medium < count; l.medium++)
        visit_words(media[l.medium].text, add_said, &l);
    struct frequent *all = memory_alloc(max_i64(l.count, 1) * (i64)sizeof *all);
    if (l.count)
        qsort(l.items, (size_t)l.count, sizeof *l.items, compare_said);
    i64 words = count_media(all, &l);
    qsort(all, (size_t)words, sizeof *all, compare_frequent);
    *out = (struct semantic_words){memory_alloc(max_i64(min_i64(most, words), 1) * (i64)sizeof(char *)),
                                   memory_alloc(max_i64(min_i64(most, words), 1) * 8), 0};
    for (i64 i = 0; i < words && out->count < most; i++)
        if (all[i].media >= least && all[i].media <= highest) {
            out->media[out->count] = all[i].media;
            out->list[out->count++] = string_copy(all[i].word);
        }
    for (i64 i = 0; i < l.count; i++)
        memory_free(l.items[i].word);
    memory_free(l.items);
    memory_free(all);
}

void semantic_words_release(struct semantic_words *words)
{
    for (i64 i = 0; i < words->count; i++)
        memory_free(words->list[i]);
    memory_free(words->list);
    memory_free(words->media);
    *words = (struct semantic_words){0};
}

struct marks {
    u8 *occurs;
    const struct semantic_words *words;
};

static void mark_word(void *context, const char *word)
{
    const struct marks *m = context;
    for (i64 i = 0; i < m->words->count; i++)
        if (strcmp(m->words->list[i], word) == 0)
            m->occurs[i] = 1;
}

void semantic_words_mark(u8 *occurs, const struct semantic_words *words, const char *text)
{
    struct marks marks = {occurs, words};
    memset(occurs, 0, (size_t)words->count);
    visit_words(text, mark_word, &marks);
}

static int open_words(struct semantic_targets *out, const struct semantic_settings *s,
                      const struct semantic_medium *media, i64 count, const char *data)
{
    semantic_words_count(&out->words, media, count, s->words, SEMANTIC_LEAST, INT64_MAX);
    out->width = out->words.count;
    if (out->width == 0)
        return error_set("%s: no word stands in the captions of %d of the %lld training media: semantic: words needs "
                         "media with captions",
                         data, SEMANTIC_LEAST, (long long)count);
    out->occurs = memory_alloc(count * out->width);
    for (i64 i = 0; i < count; i++)
        semantic_words_mark(out->occurs + i * out->width, &out->words, media[i].text);
    log_info("semantics: %lld %s of captions, from \"%s\" in %lld media to \"%s\" in %lld", (long long)out->width,
             plural(out->width, "word", "words"), out->words.list[0], (long long)out->words.media[0],
             out->words.list[out->width - 1], (long long)out->words.media[out->width - 1]);
    return 0;
}

/* ---- features ---- */

static char *feature_path(const char *folder, const char *path, const char *data)
{
    size_t length = strlen(data);
    while (length > 0 && data[length - 1] == '/')
        length--;
    bool below = strncmp(path, data, length) == 0 && path[length] == '/';
    const char *slash = strrchr(path, '/'), *name = below ? path + length + 1 : slash ? slash + 1 : path;
    while (*name == '/')
        name++;
    return string_format("%s/%s.safetensors", folder, name);
}

/* The mean over T as a direction: of a mean square of 1. */
static int pool(float *out, const float *values, i64 times, i64 width, const char *path)
{
    double squares = 0;
    for (i64 c = 0; c < width; c++) {
        double sum = 0;
        for (i64 t = 0; t < times; t++)
            sum += (double)values[t * width + c];
        if (!isfinite(sum))
            return error_set("%s: features that are not finite, in column %lld: expected finite ones", path,
                             (long long)c);
        sum /= (double)times;
        out[c] = (float)sum;
        squares += sum * sum;
    }
    if (squares == 0)
        return error_set("%s: features that are all 0 have no direction: expected others", path);
    for (i64 c = 0; c < width; c++)
        out[c] = (float)((double)out[c] / sqrt(squares / (double)width));
    return 0;
}

static int read_tensor(struct semantic_targets *out, i64 index, const struct tensor_view *v, const char *path,
                       const char *first)
{
    i64 width = v->rank > 0 ? v->shape[v->rank - 1] : 0, times = v->rank == 2 ? v->shape[0] : 1;
    if (v->rank != 1 && v->rank != 2)
        return error_set("%s: features of rank %d: expected [D], or [T, D] with T in time", path, v->rank);
    if (width < 1 || times < 1)
        return error_set("%s: features without values: expected [D], or [T, D] with T in time", path);
    if (index == 0) {
        out->width = width;
        out->features = memory_alloc(out->count * width * 4);
    }
    if (width != out->width)
        return error_set("%s: features of length %lld, and those of %s have %lld: expected one length", path,
                         (long long)width, first, (long long)out->width);
    float *values = memory_alloc(times * width * 4);
    int status = tensor_view_to_f32(values, v);
    status = status ? error_prefix("%s", path) : pool(out->features + index * width, values, times, width, path);
    memory_free(values);
    return status;
}

static int read_features(struct semantic_targets *out, i64 index, const char *path, const char *medium,
                         const char *first)
{
    struct safetensors set;
    if (!file_exists(path))
        return error_set("%s is missing, the features of %s: expected a file for each training medium", path, medium);
    if (safetensors_open(&set, path))
        return -1;
    const struct tensor_view *v = safetensors_find(&set, "features");
    if (!v && set.count == 1)
        v = &set.tensors[0];
    int status = v ? read_tensor(out, index, v, path, first)
                   : error_set("%s holds %lld tensors and none named features: expected it, or one tensor alone", path,
                               (long long)set.count);
    safetensors_close(&set);
    return status;
}

static int open_features(struct semantic_targets *out, const char *folder, const struct semantic_medium *media,
                         i64 count, const char *data)
{
    if (!file_is_directory(folder))
        return error_set("semantic: %s is no folder: expected `words`, or a folder of features of a teacher", folder);
    char *first = feature_path(folder, media[0].path, data);
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *path = feature_path(folder, media[i].path, data);
        status = read_features(out, i, path, media[i].path, first);
        memory_free(path);
    }
    memory_free(first);
    if (status == 0)
        log_info("semantics: features of %lld values of %lld media from %s", (long long)out->width, (long long)count,
                 folder);
    return status;
}

/* ---- both ---- */

int semantic_targets_open(struct semantic_targets *out, const struct semantic_settings *s,
                          const struct semantic_medium *media, i64 count, const char *data)
{
    require(count > 0, "semantics of no media");
    *out = (struct semantic_targets){.count = count};
    int status = strcmp(s->target, "words") == 0 ? open_words(out, s, media, count, data)
                                                 : open_features(out, s->target, media, count, data);
    if (status)
        semantic_targets_release(out);
    return status;
}

void semantic_targets_of_zeros(struct semantic_targets *out, const struct semantic_settings *s, i64 count)
{
    enum { TEACHER = 1280 }; /* values of a vector of Whisper's, more than of most */
    *out = (struct semantic_targets){.count = count, .width = s->words};
    if (strcmp(s->target, "words") == 0) {
        out->occurs = memory_alloc(count * out->width);
        return;
    }
    out->width = TEACHER;
    out->features = memory_alloc(count * out->width * 4);
}

void semantic_targets_release(struct semantic_targets *t)
{
    semantic_words_release(&t->words);
    memory_free(t->occurs);
    memory_free(t->features);
    *t = (struct semantic_targets){0};
}
