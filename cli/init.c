/* weft init FOLDER...: looks at data and writes the recipe for them. The sizes come from a few rules,
 * which stand beside the constants below and, with the numbers at hand, as comments in the recipe. */
#include "cli/cli.h"
#include "cli/inspect/inspect.h"
#include "data/remote/remote.h"
#include "data/sources/source_readers.h"
#include "report/html.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDERS_MOST = 16 };

/* ---- Numbers of positions ---- */

/* Estimates for the usual tokenizers; the others stand beside init_picture_in. */
static const double picture_out = 33, clip_out = 93, piece_s = 25, clip_sound = 15;
/* How often a run shows a sample as input and as output, as in the quickstart, where pictures and
 * clips are few. Texts repeated up to four times are as good as new ones (Muennighoff et al. 2023). */
static const double shown_picture = 30, shown_clip = 12, shown_sound = 8, shown_text = 4;

/* Models and batches by the positions of the data, each shown once per direction. A run has at
 * least `least` and at most `most` steps; on two cores a step of the first row takes about 0.4 s. */
struct init_size {
    double positions; /* up to */
    i64 rows, length, least, most;
    double lr;
    const char *model, *optimizer, *half;
};
static const struct init_size sizes[] = {
    {3e7, 8, 512, 600, 2000, 3e-3,
     "{width: 192, layers: 8, heads: 6, kv_heads: 2, head_width: 32, experts: 16, topk: 2, expert_width: 160,\n"
     "            rope_theta: 10000, init_std: 0.06, zero_init: true, mtp: false}",
     "weight_decay: 1.2, decay_share: 0.8, cautious: true, cautious_decay: true", "0,2,4-7"},
    {1e9, 16, 512, 4000, 24000, 2e-3,
     "{width: 256, layers: 8, heads: 8, kv_heads: 2, head_width: 32, experts: 16, topk: 2, expert_width: 256,\n"
     "            mtp: false}",
     "weight_decay: 0.1", "0,2,4-7"},
    {INFINITY, 64, 1024, 15000, 60000, 1e-3,
     "{width: 512, layers: 12, heads: 8, kv_heads: 2, head_width: 64, experts: 32, topk: 4, expert_width: 384,\n"
     "            mtp: false}",
     "weight_decay: 0.1", "0,2,4,6,8-11"}};
enum { LENGTH_MOST = INIT_LENGTH << (INIT_LENGTHS - 1) }; /* of a row; longer samples are left out */
/* A run that repeats the data as many times as often as they are worth is warned of. */
enum { EPOCHS_MOST = 25 };
/* A sub-model of half the size pays once the model had this many steps to train its family. */
enum { HALF_STEPS_LEAST = 1000 };

/* Vocabulary of the text tokenizer, by the bytes of all texts and captions. */
static const struct {
    double bytes;
    i64 vocabulary;
} vocabularies[] = {{2e5, 1024}, {2e6, 2048}, {3e7, 4096}, {1e9, 8192}, {INFINITY, 32768}};

struct init_plan {
    const struct init_data *data;
    i64 count;                          /* folders */
    i64 texts, pictures, sounds, shown; /* folder that each tokenizer, and `samples`, read; -1: none */
    bool clips, film_sound, chats;
    const struct init_size *size;
    i64 rows, length, steps, vocabulary, half;
    double text_bytes, positions, run_positions, chat_positions, epochs, media;
    double mixture[DIRECTIONS];
};

static double samples_of(const struct init_plan *p, enum outcome outcome)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++)
        sum += (double)p->data[i].kinds[outcome].samples;
    return sum;
}

static double text_of(const struct init_plan *p, enum outcome outcome)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++)
        sum += (double)p->data[i].kinds[outcome].text_bytes;
    return sum;
}

static enum outcome captioned(enum modality kind)
{
    return BECOMES_IDS + (enum outcome)kind;
}

/* Media in conversations and documents. */
static double inside_of(const struct init_plan *p, enum modality kind)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++)
        sum += (double)p->data[i].inside[kind];
    return sum;
}

/* Media of a folder that a tokenizer learns from, with captions, without, or in conversations; none if
 * the model learns from no media of the kind. */
static double media_of(const struct init_plan *p, const struct init_data *d, enum modality kind)
{
    bool learned = samples_of(p, captioned(kind)) + inside_of(p, kind) > 0;
    return learned ? (double)(d->kinds[captioned(kind)].samples + d->alone[kind] + d->inside[kind]) : 0;
}

/* Films: clips of minutes, or clips whose words are subtitles, which belong to their moment. */
static bool has_films(const struct init_data *d)
{
    const struct init_probe *probe = &d->probes[MODALITY_VIDEO];
    bool subtitled = d->kinds[captioned(MODALITY_VIDEO)].subtitled > 0 && init_mean_seconds(d, MODALITY_VIDEO) > 2;
    return subtitled || 2 * probe->long_ones > probe->opened;
}

static double film_seconds(const struct init_data *d)
{
    return init_mean_seconds(d, MODALITY_VIDEO) * (double)d->kinds[captioned(MODALITY_VIDEO)].samples;
}

/* Seconds between windows: 1000 windows, but none closer than 1.5 s, about the length of a clip, and
 * none farther apart than 5 s; of very many films 20,000 windows. */
static double window_every_s(const struct init_data *d)
{
    double seconds = film_seconds(d);
    return fmax(fmin(fmax(seconds / 1000, 1.5), 5), seconds / 20000);
}

static bool cuts_sounds(const struct init_data *d)
{
    return d->probes[MODALITY_AUDIO].long_ones > 0;
}

static bool has_sound(const struct init_data *d)
{
    const struct init_probe *probe = &d->probes[MODALITY_VIDEO];
    return probe->opened && 2 * probe->with_sound >= probe->opened;
}

/* ---- Which folder each stage reads ---- */

static void choose_folders(struct init_plan *p)
{
    double most[4] = {0};
    p->texts = p->pictures = p->sounds = p->shown = -1;
    for (i64 i = 0; i < p->count; i++) {
        const struct init_data *d = &p->data[i];
        double text = 0, media = 0, clips = media_of(p, d, MODALITY_VIDEO), stills = media_of(p, d, MODALITY_IMAGE),
               sounds = media_of(p, d, MODALITY_AUDIO);
        for (int k = 0; k < OUTCOMES; k++)
            text += (double)d->kinds[k].text_bytes;
        for (int m = MODALITY_TEXT + 1; m < MODALITIES; m++)
            media += (double)d->kinds[captioned((enum modality)m)].samples;
        /* a folder with clips comes before one of pictures alone, as frames of clips are pictures */
        double seen = stills + clips * 1e6, heard = sounds > 0 ? sounds * 1e6 : has_sound(d) ? clips : 0;
        const double values[4] = {text, seen, heard, media};
        i64 *chosen[4] = {&p->texts, &p->pictures, &p->sounds, &p->shown};
        for (int c = 0; c < 4; c++)
            if (values[c] > most[c]) {
                most[c] = values[c];
                *chosen[c] = i;
            }
    }
    p->clips = p->pictures >= 0 && media_of(p, &p->data[p->pictures], MODALITY_VIDEO) > 0;
    if (p->shown < 0)
        p->shown = p->texts;
    p->chats = samples_of(p, BECOMES_CHAT) > 0;
}

/* ---- Sizes ---- */

/* Samples that clips or sounds of a folder become, with windows and pieces. */
static double pieces_of(const struct init_data *d, enum modality kind)
{
    double samples = (double)d->kinds[captioned(kind)].samples, seconds = init_mean_seconds(d, kind);
    if (kind == MODALITY_VIDEO && has_films(d))
        return fmax(samples, film_seconds(d) / window_every_s(d));
    if (kind == MODALITY_AUDIO && cuts_sounds(d))
        return fmax(samples, samples * seconds / piece_s);
    return samples;
}

/* Positions of a medium's samples as input (out: as output), each shown once. */
static double medium_positions(const struct init_plan *p, enum modality kind, bool out)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++) {
        const struct init_data *d = &p->data[i];
        const struct init_kind *k = &d->kinds[captioned(kind)];
        double pieces = pieces_of(d, kind), caption = (double)k->text_bytes / init_bytes_per_token;
        if (k->samples && !k->subtitled)
            caption *= pieces / (double)k->samples; /* each piece has the whole caption */
        double one = kind == MODALITY_IMAGE   ? (out ? picture_out : init_picture_in)
                     : kind == MODALITY_VIDEO ? (out ? clip_out : init_clip_in) + (p->film_sound ? clip_sound : 0)
                                              : init_sound_per_s * fmin(init_mean_seconds(d, kind), init_sound_most_s);
        sum += pieces * one + caption;
    }
    return sum;
}

static bool is_present(const struct init_plan *p, enum modality kind)
{
    bool tokenizer = kind == MODALITY_AUDIO   ? p->sounds >= 0
                     : kind == MODALITY_VIDEO ? p->pictures >= 0 && p->clips
                                              : p->pictures >= 0;
    return tokenizer && samples_of(p, captioned(kind)) > 0;
}

/* Samples that are not cut and by an estimate longer than `length` positions. */
static i64 longer_than(const struct init_plan *p, enum outcome outcome, i64 length)
{
    i64 sum = 0, l = 0;
    while (l < INIT_LENGTHS - 1 && INIT_LENGTH << l < length)
        l++;
    for (i64 i = 0; i < p->count; i++)
        sum += p->data[i].kinds[outcome].longer[l];
    return sum;
}

/* A row holds the samples that are not cut: 98 in 100 of those with media and conversations, as far as
 * LENGTH_MOST allows. */
static i64 row_length(const struct init_plan *p, i64 length)
{
    double samples = 0, long_texts = 0;
    for (i64 i = 0; i < p->count; i++)
        for (int k = BECOMES_IDS + 1; k < OUTCOMES; k++) {
            samples += (double)p->data[i].kinds[k].samples;
            long_texts += (double)p->data[i].kinds[k].long_texts;
        }
    if (50 * long_texts > samples)
        length = max_i64(length, 1024);
    for (; length < LENGTH_MOST; length *= 2) {
        i64 longer = 0;
        for (int k = BECOMES_IDS + 1; k < OUTCOMES; k++)
            longer += longer_than(p, (enum outcome)k, length);
        if (50 * (double)longer <= samples)
            break;
    }
    return length;
}

/* Shows media as often as the constants say, texts as often, but at most as many positions of them
 * as of media if the run is full. Then a factor for all fills the least steps, by epochs, or fits the most. */
static void choose_mixture(struct init_plan *p)
{
    static const struct {
        enum modality kind;
        enum direction in, out;
        double shown;
    } media[] = {{MODALITY_IMAGE, DIRECTION_IMAGE_IN, DIRECTION_IMAGE_OUT, shown_picture},
                 {MODALITY_VIDEO, DIRECTION_VIDEO_IN, DIRECTION_VIDEO_OUT, shown_clip},
                 {MODALITY_AUDIO, DIRECTION_AUDIO_IN, DIRECTION_AUDIO_OUT, shown_sound}};
    double once = 0, run = 0, shown = 0,
           text = (text_of(p, BECOMES_TEXT) + text_of(p, BECOMES_MIXED)) / init_bytes_per_token;
    for (i64 i = 0; i < p->count; i++) {
        text += p->data[i].kinds[BECOMES_MIXED].media_positions;
        shown += p->data[i].kinds[BECOMES_CHAT].media_positions;
        for (int m = MODALITY_TEXT + 1; m < MODALITIES; m++)
            p->media += media_of(p, &p->data[i], (enum modality)m);
    }
    p->chat_positions = text_of(p, BECOMES_CHAT) / init_bytes_per_token + 8 * samples_of(p, BECOMES_CHAT) + shown;
    for (i64 m = 0; m < COUNT_OF(media); m++) {
        if (!is_present(p, media[m].kind))
            continue;
        double in = medium_positions(p, media[m].kind, false), out = medium_positions(p, media[m].kind, true);
        once += in + out;
        run += media[m].shown * (in + out);
        p->mixture[media[m].in] = p->mixture[media[m].out] = media[m].shown;
    }
    once += text + p->chat_positions;
    p->positions = once;
    p->size = sizes;
    while (once > p->size->positions)
        p->size++;
    p->length = row_length(p, p->size->length);
    p->rows = max_i64(2, p->size->rows * p->size->length / p->length);
    double step = (double)(p->rows * p->length), least = step * (double)p->size->least,
           most = step * (double)p->size->most, words = text + p->chat_positions,
           times = words > 0 ? fmin(shown_text, fmax(run, most / 2) / words) : 0;
    if (text > 0)
        p->mixture[DIRECTION_TEXT] = times;
    if (p->chats)
        p->mixture[DIRECTION_CHAT] = times;
    run += times * words;
    double factor = fmin(fmax(run, least), most) / run;
    for (int d = 0; d < DIRECTIONS; d++)
        p->mixture[d] *= fmin(factor, 1);
    p->epochs = fmax(factor, 1);
    p->run_positions = run * factor;
    p->steps = max_i64(1, (i64)(p->run_positions / step));
    p->steps = p->steps > 100 ? p->steps / 50 * 50 : p->steps;
    p->half = p->steps >= HALF_STEPS_LEAST;
}

static void plan_open(struct init_plan *p, const struct init_data *data, i64 count)
{
    *p = (struct init_plan){.data = data, .count = count};
    choose_folders(p);
    for (i64 i = 0; i < count; i++)
        p->film_sound |= p->sounds >= 0 && p->clips && has_sound(&data[i]);
    for (int k = 0; k < OUTCOMES; k++)
        p->text_bytes += text_of(p, (enum outcome)k);
    i64 v = 0;
    while (p->text_bytes > vocabularies[v].bytes)
        v++;
    p->vocabulary = vocabularies[v].vocabulary;
    choose_mixture(p);
}

/* ---- The recipe ---- */

static void put_string(struct buffer *out, const char *text)
{
    struct json *value = json_of_string(text);
    json_print(out, value, 0);
    json_free(value);
}

static void put_path(struct buffer *out, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./";
    if (path[strspn(path, plain)] == 0)
        buffer_printf(out, "%s", path);
    else
        put_string(out, path);
}

/* Absolute, so that the recipe runs from any folder. */
static void put_place(struct buffer *out, const char *path)
{
    char *real = is_address(path) ? NULL : realpath(path, NULL);
    put_path(out, real ? real : path);
    free(real);
}

static void put_samples(struct buffer *out, const struct init_data *d)
{
    buffer_printf(out, "    data: ");
    put_place(out, d->path);
    buffer_printf(out, "\n");
    if (!d->names_splits && d->validation != init_shares[0])
        buffer_printf(out, "    validation: %g\n", d->validation);
}

/* With the share of unreadable samples, which `generate` has no setting for. kinds: modalities whose
 * unreadable media count in the stage. */
static void put_data(struct buffer *out, const struct init_data *d, u32 kinds)
{
    double bad = 0;
    put_samples(out, d);
    for (int m = 0; m < MODALITIES; m++)
        if (kinds >> m & 1 && d->probes[m].opened)
            bad = fmax(bad, (double)d->probes[m].unreadable / (double)d->probes[m].opened);
    i64 samples = d->bad;
    for (int k = 0; k < OUTCOMES; k++)
        samples += d->kinds[k].samples;
    bad = fmax(bad, (double)d->bad / (double)max_i64(1, samples));
    if (bad > 0.02) /* bad_share is 0.05 */
        buffer_printf(out, "    bad_share: %.2f # %.0f %% of them cannot be read\n", fmin(1, 0.05 + 1.5 * bad),
                      100 * bad);
}

static i64 between(double value, i64 least, i64 most)
{
    i64 rounded = (i64)(value / 100) * 100;
    return min_i64(max_i64(rounded, least), most);
}

static void put_tokenizers(struct buffer *out, const struct init_plan *p)
{
    bool large = p->size != sizes, little = p->text_bytes < 1e5;
    const struct init_data *texts = &p->data[p->texts];
    buffer_printf(out,
                  "  # Vocabulary by the %.*f %s of text: 1024 below 0.2 MB, 2048 below 2 MB, 4096 below 30 MB.\n"
                  "  bpe:\n    kind: tokenizer-text\n",
                  little ? 1 : 2, p->text_bytes * (little ? 1e-3 : 1e-6), little ? "kB" : "MB");
    put_data(out, texts, 0);
    buffer_printf(out, "    vocabulary: %lld\n", (long long)p->vocabulary);
    if (p->text_bytes > 8e6)
        buffer_printf(out, "    bytes: %s\n", large ? "100000000" : "8000000");
    if (p->pictures >= 0) {
        const struct init_data *d = &p->data[p->pictures];
        double stills = media_of(p, d, MODALITY_IMAGE), clips = media_of(p, d, MODALITY_VIDEO);
        i64 steps = between(30 * fmax(stills, clips) / 8, 2000, large ? 20000 : 6000),
            clip_steps = p->clips ? between(30 * clips / 4, 400, large ? 4000 : 1000) : 0;
        buffer_printf(out, "\n  # %lld steps of 8 pictures: about %.0f epochs of %.0f %s.\n", (long long)steps,
                      8 * (double)steps / fmax(stills, clips), fmax(stills, clips),
                      stills >= clips ? "pictures" : "clips");
        buffer_printf(out, "  vis:\n    kind: tokenizer-vision\n");
        put_data(out, d, 1u << MODALITY_IMAGE | 1u << MODALITY_VIDEO);
        buffer_printf(out, "    steps: %lld\n    clip_steps: %lld\n    optimizer: {lr: 4.5e-3, cautious: true}\n",
                      (long long)steps, (long long)clip_steps);
    }
    if (p->sounds >= 0) {
        const struct init_data *d = &p->data[p->sounds];
        double seconds = init_mean_seconds(d, MODALITY_AUDIO) * media_of(p, d, MODALITY_AUDIO);
        if (p->film_sound && has_sound(d))
            seconds += film_seconds(d);
        i64 steps = between(20 * seconds / 15, 1200, large ? 10000 : 3000);
        buffer_printf(out, "\n  # %lld steps of 12 crops of 1.28 s: about %.0f epochs of %.0f s of sound.\n",
                      (long long)steps, 15.36 * (double)steps / fmax(seconds, 1), seconds);
        buffer_printf(out, "  aud:\n    kind: tokenizer-audio\n");
        put_data(out, d, 1u << MODALITY_AUDIO | 1u << MODALITY_VIDEO);
        if (p->film_sound && has_sound(d))
            buffer_printf(out, "    films: true # the sound of clips\n");
        buffer_printf(out, "    steps: %lld\n    optimizer: {lr: 3e-3, cautious: true}\n", (long long)steps);
    }
}

/* The shards of folder i; a list of all for i < 0. */
static void put_shards_name(struct buffer *out, const struct init_plan *p, i64 i)
{
    if (i >= 0 && i > 0)
        buffer_printf(out, "shards-%lld", (long long)i + 1);
    else if (i == 0 || p->count == 1)
        buffer_printf(out, "shards");
    else
        for (i64 k = 0; k < p->count; k++) {
            buffer_printf(out, "%s", k ? ", " : "[");
            put_shards_name(out, p, k);
            buffer_printf(out, "%s", k == p->count - 1 ? "]" : "");
        }
}

static void put_shards(struct buffer *out, const struct init_plan *p)
{
    buffer_printf(out, "\n  # Samples, encoded once.\n");
    for (i64 i = 0; i < p->count; i++) {
        const struct init_data *d = &p->data[i];
        const struct init_kind *clips = &d->kinds[captioned(MODALITY_VIDEO)];
        buffer_printf(out, "  ");
        put_shards_name(out, p, i);
        buffer_printf(out, ":\n    kind: prepare\n");
        put_data(out, d, ~0u);
        buffer_printf(out, "    text: bpe\n%s%s", p->pictures >= 0 ? "    vision: vis\n" : "",
                      p->sounds >= 0 ? "    audio: aud\n" : "");
        if (p->film_sound && clips->samples && has_sound(d))
            buffer_printf(out, "    film_sound: take # the sound of a clip follows it\n");
        if (p->clips && clips->samples && has_films(d))
            buffer_printf(out,
                          "    windows: {every_s: %.3g} # films of %.0f s on average: about %.0f windows, each with "
                          "%s\n",
                          window_every_s(d), init_mean_seconds(d, MODALITY_VIDEO), pieces_of(d, MODALITY_VIDEO),
                          clips->subtitled ? "its subtitles" : "the whole caption");
        if (p->sounds >= 0 && cuts_sounds(d))
            buffer_printf(out, "    cut_sounds: true # some last longer than 30 s: cut at their quietest points\n");
    }
}

/* Two digits of a number of times. */
static void put_times(struct buffer *out, double times)
{
    double unit = times > 0 ? pow(10, floor(log10(times)) - 1) : 1;
    buffer_printf(out, "%.6g", round(times / unit) * unit);
}

static void put_mixture(struct buffer *out, const struct init_plan *p)
{
    bool first = true;
    buffer_printf(out, "    mixture: {");
    for (int d = 0; d < DIRECTIONS; d++) {
        char name[32];
        if (p->mixture[d] == 0)
            continue;
        snprintf(name, sizeof name, "%s", direction_rows[d].name);
        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        buffer_printf(out, "%s%s: ", first ? "" : ", ", name);
        put_times(out, p->mixture[d]);
        first = false;
    }
    buffer_printf(out, "}\n");
}

/* How often the run shows a sample of each kind. */
static void put_epochs(struct buffer *out, const struct init_plan *p)
{
    static const struct {
        enum direction direction;
        const char *what;
    } rows[] = {{DIRECTION_TEXT, "each text"},
                {DIRECTION_IMAGE_IN, "each picture in both directions"},
                {DIRECTION_VIDEO_IN, "each clip in both directions"},
                {DIRECTION_AUDIO_IN, "each sound in both directions"},
                {DIRECTION_CHAT, "each conversation"}};
    bool first = true;
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        if (p->mixture[rows[i].direction] == 0)
            continue;
        buffer_printf(out, "%s  #   %s about ", first ? "" : ",\n", rows[i].what);
        put_times(out, p->epochs * p->mixture[rows[i].direction]);
        buffer_printf(out, " times");
        first = false;
    }
    buffer_printf(out, ".\n");
}

static void put_batch(struct buffer *out, const struct init_plan *p)
{
    buffer_printf(out, "    batch: {rows: %lld, length: %lld, micro_rows: %lld}\n", (long long)p->rows,
                  (long long)p->length, (long long)min_i64(p->rows, 4));
}

static void put_shards_line(struct buffer *out, const struct init_plan *p)
{
    buffer_printf(out, "    data: ");
    put_shards_name(out, p, -1);
    buffer_printf(out, "\n");
}

static void put_base(struct buffer *out, const struct init_plan *p)
{
    bool small = p->size == sizes;
    buffer_printf(out, "\n  # %lld steps of %lld x %lld positions: about ", (long long)p->steps, (long long)p->rows,
                  (long long)p->length);
    put_times(out, p->epochs);
    buffer_printf(out, " epoch%s of the mixture. They show\n", p->epochs < 1.05 ? "" : "s");
    put_epochs(out, p);
    if (p->length > p->size->length)
        buffer_printf(out, "  # Rows of %lld, as more than 2 %% of the samples are longer than %lld.\n",
                      (long long)p->length, (long long)p->length / 2);
    if (!small)
        buffer_printf(out, "  # `weft plan` estimates time and memory.\n");
    buffer_printf(out, "  base:\n    kind: pretrain\n");
    put_shards_line(out, p);
    buffer_printf(out, "    steps: %lld\n%s", (long long)p->steps, small ? "    heldout_rows: 0\n" : "");
    put_batch(out, p);
    buffer_printf(out, "    model: %s\n    optimizer: {lr: %g, %s}\n", p->size->model, p->size->lr, p->size->optimizer);
    put_mixture(out, p);
    if (p->pictures >= 0)
        buffer_printf(out, "    pack: {flip_most: 0.05}\n");
    buffer_printf(out, "\n  grid:\n    kind: grid\n    from: base\n");
    put_shards_line(out, p);
    if (p->length != 512)
        buffer_printf(out, "    length: %lld\n", (long long)p->length);
    if (!p->half)
        return;
    buffer_printf(out,
                  "\n  # A sub-model of about half the active parameters, cut out and trained a little further.\n"
                  "  half:\n    kind: extract\n    from: base\n    layers: %s\n    experts: \"%s\"\n    topk: \"%s\"\n",
                  p->size->half, p->size == &sizes[2] ? "16" : "8", p->size == &sizes[2] ? "2" : "1");
    buffer_printf(out, "  more:\n    kind: pretrain\n    from: half\n");
    put_shards_line(out, p);
    buffer_printf(out, "    steps: %lld\n%s", (long long)(p->steps / 15), small ? "    heldout_rows: 0\n" : "");
    put_batch(out, p);
    put_mixture(out, p);
    if (p->pictures >= 0)
        buffer_printf(out, "    pack: {flip_most: 0.05}\n");
    buffer_printf(out, "    elastic: {on: false}\n    optimizer: {lr: %g, warmup: -10}\n", p->size->lr / 3);
}

static void put_sft(struct buffer *out, const struct init_plan *p)
{
    i64 rows = p->size == sizes ? 2 : 8;
    double step = (double)(rows * p->length);
    i64 steps = between(3 * p->chat_positions / step, 100, p->size == sizes ? 1000 : 5000);
    if (!p->chats)
        return;
    buffer_printf(
        out,
        "\n  # %lld steps of %lld x %lld positions: about %.1f epochs of %.0f conversations.\n  sft:\n    kind: "
        "sft\n    from: base\n",
        (long long)steps, (long long)rows, (long long)p->length, step * (double)steps / fmax(p->chat_positions, 1),
        samples_of(p, BECOMES_CHAT));
    put_shards_line(out, p);
    buffer_printf(
        out,
        "    steps: %lld\n    batch: {rows: %lld, length: %lld, micro_rows: 2}\n    optimizer: {lr: 1e-3, warmup: "
        "-20, cautious: true}\n",
        (long long)steps, (long long)rows, (long long)p->length);
}

static void put_rest(struct buffer *out, const struct init_plan *p)
{
    i64 count = 0;
    buffer_printf(out, "\n  samples:\n    kind: generate\n    from: base\n");
    put_samples(out, &p->data[p->shown]);
    for (i64 i = 0; i < p->count; i++)
        for (i64 k = 0; k < INIT_PROMPTS && p->data[i].prompts[k] && count < INIT_PROMPTS; k++) {
            buffer_printf(out, "%s", count++ ? ", " : "    prompts: [");
            put_string(out, p->data[i].prompts[k]);
        }
    buffer_printf(out, "%s  routing:\n    kind: routing\n    from: base\n", count ? "]\n" : "");
    put_shards_line(out, p);
    if (p->length != 512)
        buffer_printf(out, "    length: %lld\n", (long long)p->length);
    buffer_printf(out, "  export:\n    kind: export\n    from: base\n  report:\n    kind: report\n");
}

/* Samples that no row holds are left out, and data that fit the least run too often are learnt by
 * heart. */
static void warn_of_sizes(const struct init_plan *p)
{
    for (int k = BECOMES_IDS + 1; k < OUTCOMES; k++) {
        i64 longer = longer_than(p, (enum outcome)k, p->length), samples = (i64)samples_of(p, (enum outcome)k);
        if (longer)
            log_warn("%lld of %lld x %s: by their sizes longer than a row of %lld positions (base.batch.length), so "
                     "that they will be left out: split them, or make the rows longer",
                     (long long)longer, (long long)samples, outcome_name(k), (long long)p->length);
    }
    if (p->epochs > EPOCHS_MOST) {
        struct buffer times = {0};
        put_times(&times, p->epochs);
        log_warn(
            "the data are too little to learn from: %.0f bytes of text and %.0f media. %lld steps repeat them %.*s "
            "times as often as is useful, so that the model will know them by heart and little else: add data, "
            "or take fewer steps",
            p->text_bytes, p->media, (long long)p->steps, (int)times.length, times.data);
        buffer_release(&times);
    }
}

static void put_recipe(struct buffer *out, const struct init_data *data, i64 count, const char *run)
{
    struct init_plan plan;
    plan_open(&plan, data, count);
    warn_of_sizes(&plan);
    buffer_printf(out, "# Written by `weft init`. `weft run` with this file runs it; STAGE.key=value changes any "
                       "setting, and\n# `weft run --kinds` lists them all. Keys beside `stages` compare settings, each "
                       "over several seeds in place of\n# one: `arms: {NAME: {STAGE.key: value}}` and `seeds: [1, 2, "
                       "3]`.\nrun: ");
    put_path(out, run);
    buffer_printf(out, "\nseed: %d\nprecision: auto\nstages:\n", INIT_SEED);
    put_tokenizers(out, &plan);
    put_shards(out, &plan);
    put_base(out, &plan);
    put_sft(out, &plan);
    put_rest(out, &plan);
}

/* ---- The command ---- */

static bool is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 &&
           (path[length] == 0 || path[length] == '/' || folder[length - 1] == '/');
}

/* Absolute path of the folder that holds `path`, which may not exist yet. NULL: there is none. */
static char *real_folder(const char *path)
{
    char *folder = path_folder(path), *real = realpath(folder, NULL);
    memory_free(folder);
    return real;
}

/* A run's name from the names of the data: letters of any script, digits and dashes. */
static char *run_name(const struct init_data *data, i64 count)
{
    struct buffer name = {0};
    for (i64 i = 0; i < min_i64(count, 3); i++) {
        char *real = is_address(data[i].path) ? NULL : realpath(data[i].path, NULL);
        const char *path = real ? real : data[i].path, *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
        size_t length = real && !file_is_directory(real) ? strcspn(last, ".") : strlen(last);
        if (name.length)
            buffer_append(&name, "-", 1);
        for (size_t k = 0; k < length; k++)
            buffer_append(&name,
                          isalnum((u8)last[k]) || (u8)last[k] >= 0x80 || (k && strchr("-_.", last[k])) ? &last[k] : "-",
                          1);
        free(real);
    }
    buffer_append(&name, "", 0);
    char *out = string_copy(name.length ? name.data : "mine");
    buffer_release(&name);
    return out;
}

/* out/NAME below this folder; if that lies within the data, where stages would read what a run writes,
 * beside them. Absolute, as the data are. */
static char *run_folder(const struct init_data *data, i64 count)
{
    char *name = run_name(data, count), *here = realpath(".", NULL);
    char *run = string_format("%s%sout/%s", here ? here : "", here && strcmp(here, "/") != 0 ? "/" : "", name);
    for (i64 i = 0; i < count && here; i++) {
        char *real = is_address(data[i].path) ? NULL : realpath(data[i].path, NULL);
        if (real && file_is_directory(real) && is_within(here, real)) {
            char *beside = path_folder(real);
            memory_free(run);
            run = string_format("%s%sout/%s", beside, strcmp(beside, "/") != 0 ? "/" : "", name);
            memory_free(beside);
        }
        free(real);
    }
    free(here);
    memory_free(name);
    return run;
}

static int check_output(const char *out, const char *const *folders, i64 count)
{
    if (!out)
        return 0;
    if (file_exists(out))
        return error_set("%s exists: choose another -o or remove it", out);
    char *place = real_folder(out);
    int status = place ? 0 : error_set("%s: there is no folder for it", out);
    for (i64 i = 0; i < count && status == 0; i++) {
        char *real = is_address(folders[i]) ? NULL : realpath(folders[i], NULL);
        if (real && file_is_directory(real) && is_within(place, real))
            status = error_set("-o %s lies in the data, %s: a recipe there would change them; choose a place outside",
                               out, folders[i]);
        free(real);
    }
    free(place);
    return status;
}

static int write_recipe(const char *out, const struct init_data *data, i64 count)
{
    struct buffer text = {0};
    char *run = run_folder(data, count);
    put_recipe(&text, data, count, run);
    int status = 0;
    if (out)
        status = file_replace(out, text.data, text.length);
    else
        fwrite(text.data, 1, (size_t)text.length, stdout);
    if (status == 0 && out) {
        struct buffer word = {0};
        shell_word(&word, program_name());
        buffer_printf(&word, " run ");
        shell_word(&word, out);
        log_info("next: %s", word.data);
        buffer_release(&word);
    }
    buffer_release(&text);
    memory_free(run);
    return status;
}

int command_init(int argc, char **argv)
{
    struct arguments a;
    const char *out = NULL;
    const struct option options[] = {
        {"o", "FILE", &out, NULL, "recipe to write (default: standard output); outside of the data"}, {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, FOLDERS_MOST);
    if (status)
        return status < 0 ? command_failed() : 0;
    struct init_data *data = memory_alloc(a.count * (i64)sizeof *data);
    status = check_output(out, a.positional, a.count);
    for (i64 i = 0; i < a.count && status == 0; i++) {
        status = init_look(&data[i], a.positional[i]);
        if (status == 0)
            init_log(&data[i]);
    }
    if (status == 0)
        status = write_recipe(out, data, a.count);
    for (i64 i = 0; i < a.count; i++)
        init_data_release(&data[i]);
    memory_free(data);
    return status < 0 ? command_failed() : 0;
}
