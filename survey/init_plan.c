/* weft init: sizes, steps and mixture by a few rules, which stand beside the constants below. */
#include "survey/init.h"

#include <math.h>
#include <string.h>

/* ---- Numbers of positions ---- */

/* Estimates; others are in struct init_shapes and beside init_bytes_per_token. */
static const double piece_s = 25, clip_sound = 15, chat_marks = 8;
/* How often a run shows a sample as input and as output, as in the quickstart, where pictures and
 * clips are few. Texts repeated up to four times are as good as new ones (Muennighoff et al. 2023).
 * Few data are shown more often, until the run is long enough, but at most as often as the second row
 * says. Shown more often, small models learn them by heart, later with a strong weight decay (measured on
 * folders of 40, of thousands and of ten thousands of samples of each kind). The smallest model gains from
 * texts for longer. */
static const double shown_picture = 30, shown_clip = 12, shown_sound = 8, shown_text = 4;
static const double picture_most = 30, clip_most = 24, sound_most = 24, words_most = 24, words_alone_most = 25,
                    words_alone_few_most = 48;

/* Small models for few data: their held-out losses are lower, and a step takes less time. */
static const struct init_size sizes[] = {
    {3e4, 2, 512, 750, 750, 3e-3,
     "{width: 64, layers: 8, heads: 2, kv_heads: 1, head_width: 32, experts: 8, topk: 2, expert_width: 32,\n"
     "            rope_theta: 10000, init_std: 0.06, zero_init: true, mtp: false}",
     "weight_decay: 10, decay_share: 0.8, cautious: true, cautious_decay: true", "0,2,4-7", "4", "1", true},
    {1e6, 4, 512, 3000, 3000, 3e-3,
     "{width: 96, layers: 8, heads: 3, kv_heads: 1, head_width: 32, experts: 8, topk: 2, expert_width: 96,\n"
     "            rope_theta: 10000, init_std: 0.06, zero_init: true, mtp: false}",
     "weight_decay: 10, decay_share: 0.8, cautious: true, cautious_decay: true", "0,2,4-7", "4", "1", true},
    {3e7, 8, 512, 1000, 2000, 3e-3,
     "{width: 192, layers: 8, heads: 6, kv_heads: 2, head_width: 32, experts: 16, topk: 2, expert_width: 160,\n"
     "            rope_theta: 10000, init_std: 0.06, zero_init: true, mtp: false}",
     "weight_decay: 1.2, decay_share: 0.8, cautious: true, cautious_decay: true", "0,2,4-7", "8", "1", true},
    {1e9, 16, 512, 4000, 24000, 2e-3,
     "{width: 256, layers: 8, heads: 8, kv_heads: 2, head_width: 32, experts: 16, topk: 2, expert_width: 256,\n"
     "            mtp: false}",
     "weight_decay: 0.1", "0,2,4-7", "8", "1", false},
    {INFINITY, 64, 1024, 15000, 60000, 1e-3,
     "{width: 512, layers: 12, heads: 8, kv_heads: 2, head_width: 64, experts: 32, topk: 4, expert_width: 384,\n"
     "            mtp: false}",
     "weight_decay: 0.1", "0,2,4,6,8-11", "16", "2", false}};
/* Steps below which a run has fewer rows a step instead. */
enum { STEPS_LEAST = 50 };
static const double longer_most = 2.5;
/* Positions below which a model can learn little; init warns. */
static const double few_positions = 1e4;
enum { LENGTH_MOST = INIT_LENGTH << (INIT_LENGTHS - 1) }; /* of a row; longer samples are left out */
/* A sub-model of half the size pays once the model had this many steps to train its family. */
enum { HALF_STEPS_LEAST = 1000 };

/* Vocabulary of the text tokenizer, by the bytes of all texts and captions. */
static const struct {
    double bytes;
    i64 vocabulary;
} vocabularies[] = {{2e5, 1024}, {2e6, 2048}, {3e7, 4096}, {1e9, 8192}, {INFINITY, 32768}};

double init_samples_of(const struct init_plan *p, enum outcome outcome)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++)
        sum += (double)p->data[i].kinds[outcome].samples;
    return sum;
}

/* Share of the samples that a model is trained on. */
static double trained_share(const struct init_data *d, enum outcome outcome)
{
    const struct init_kind *kind = &d->kinds[outcome];
    i64 test = d->names_splits ? kind->named[SPLIT_TEST] : 0, held = init_held_out(d, outcome) + test;
    return kind->samples > held ? (double)(kind->samples - held) / (double)kind->samples : 1;
}

enum outcome init_captioned(enum modality kind)
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

double init_media_of(const struct init_plan *p, const struct init_data *d, enum modality kind)
{
    bool learned = p->wordless || init_samples_of(p, init_captioned(kind)) + inside_of(p, kind) > 0;
    return learned ? (double)(d->kinds[init_captioned(kind)].samples + d->alone[kind] + d->inside[kind]) : 0;
}

bool init_has_films(const struct init_data *d)
{
    const struct init_probe *probe = &d->probes[MODALITY_VIDEO];
    bool subtitled = d->kinds[init_captioned(MODALITY_VIDEO)].subtitled > 0 && init_mean_seconds(d, MODALITY_VIDEO) > 2;
    return subtitled || 2 * probe->long_ones > probe->opened;
}

double init_film_seconds(const struct init_data *d)
{
    return init_mean_seconds(d, MODALITY_VIDEO) * (double)d->kinds[init_captioned(MODALITY_VIDEO)].samples;
}

/* Seconds between windows: 1000 windows, but none closer than 1.5 s, about the length of a clip, and
 * none farther apart than 5 s; of very many films 20,000 windows. */
double init_window_every_s(const struct init_data *d)
{
    double seconds = init_film_seconds(d);
    return fmax(fmin(fmax(seconds / 1000, 1.5), 5), seconds / 20000);
}

bool init_cuts_sounds(const struct init_data *d)
{
    return d->probes[MODALITY_AUDIO].long_ones > 0;
}

bool init_has_sound(const struct init_data *d)
{
    const struct init_probe *probe = &d->probes[MODALITY_VIDEO];
    return probe->opened && 2 * probe->with_sound >= probe->opened;
}

/* ---- Which folder each stage reads ---- */

/* Those that the model to go on from has no tokenizer for. */
static void leave_unknown_media(struct init_plan *p)
{
    static const char *const of[] = {"vision", "audio"};
    i64 *folders[] = {&p->pictures, &p->sounds};
    bool known[] = {!p->from || p->from->vision, !p->from || p->from->audio};
    for (i64 k = 0; k < COUNT_OF(of); k++)
        if (*folders[k] >= 0 && !known[k]) {
            log_warn("%s has no %s tokenizer: %s are left out", p->from->directory, of[k],
                     k == 0 ? "pictures and clips" : "sounds");
            *folders[k] = -1;
        }
}

static void choose_folders(struct init_plan *p)
{
    double most[4] = {0};
    p->texts = p->pictures = p->sounds = p->shown = -1;
    for (i64 i = 0; i < p->count; i++) {
        const struct init_data *d = &p->data[i];
        double text = 0, media = 0, clips = init_media_of(p, d, MODALITY_VIDEO),
               stills = init_media_of(p, d, MODALITY_IMAGE), sounds = init_media_of(p, d, MODALITY_AUDIO);
        for (int k = 0; k < OUTCOMES; k++)
            text += (double)d->kinds[k].text_bytes;
        for (int m = MODALITY_TEXT + 1; m < MODALITIES; m++)
            media += (double)d->kinds[init_captioned((enum modality)m)].samples;
        /* a folder with clips comes before one of pictures alone, as frames of clips are pictures */
        double seen = stills + clips * 1e6, heard = sounds > 0 ? sounds * 1e6 : init_has_sound(d) ? clips : 0;
        const double values[4] = {text, seen, heard, media};
        i64 *chosen[4] = {&p->texts, &p->pictures, &p->sounds, &p->shown};
        for (int c = 0; c < 4; c++)
            if (values[c] > most[c]) {
                most[c] = values[c];
                *chosen[c] = i;
            }
    }
    leave_unknown_media(p);
    p->clips = p->pictures >= 0 && init_media_of(p, &p->data[p->pictures], MODALITY_VIDEO) > 0;
    if (p->shown < 0)
        p->shown = p->texts;
    p->chats = init_samples_of(p, BECOMES_CHAT) > 0;
}

/* ---- Sizes ---- */

double init_pieces_of(const struct init_data *d, enum modality kind)
{
    double samples = (double)d->kinds[init_captioned(kind)].samples, seconds = init_mean_seconds(d, kind);
    if (kind == MODALITY_VIDEO && init_has_films(d))
        return fmax(samples, init_film_seconds(d) / init_window_every_s(d));
    if (kind == MODALITY_AUDIO && init_cuts_sounds(d))
        return fmax(samples, samples * seconds / piece_s);
    return samples;
}

/* Positions of a medium's samples as input (out: as output), each shown once. */
static double medium_positions(const struct init_plan *p, enum modality kind, bool out)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++) {
        const struct init_data *d = &p->data[i];
        const struct init_kind *k = &d->kinds[init_captioned(kind)];
        double pieces = init_pieces_of(d, kind), caption = (double)k->text_bytes / init_bytes_per_token;
        if (k->samples && !k->subtitled)
            caption *= pieces / (double)k->samples; /* each piece has the whole caption */
        const struct init_shapes *s = &p->shapes;
        double one = kind == MODALITY_IMAGE   ? (out ? s->picture_out : s->picture_in)
                     : kind == MODALITY_VIDEO ? (out ? s->clip_out : s->clip_in) + (p->film_sound ? clip_sound : 0)
                                              : init_sound_per_s * fmin(init_mean_seconds(d, kind), init_sound_most_s);
        sum += (pieces * one + caption) * trained_share(d, init_captioned(kind));
    }
    return sum;
}

/* Positions of all media that samples of a kind read. */
static double media_read(const struct init_plan *p, i64 folder, enum outcome outcome)
{
    const struct init_data *d = &p->data[folder];
    const i64 *media = d->kinds[outcome].media;
    double seconds = fmin(init_mean_seconds(d, MODALITY_AUDIO), init_sound_most_s);
    return (double)media[MODALITY_IMAGE] * p->shapes.picture_in + (double)media[MODALITY_VIDEO] * p->shapes.clip_in +
           (double)media[MODALITY_AUDIO] * init_sound_per_s * seconds;
}

/* Positions of the words, and of media read with them, that a model is trained on. */
static double word_positions(const struct init_plan *p, enum outcome outcome)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++) {
        const struct init_kind *kind = &p->data[i].kinds[outcome];
        double marks = outcome == BECOMES_CHAT ? chat_marks * (double)kind->samples : 0;
        sum += ((double)kind->text_bytes / init_bytes_per_token + media_read(p, i, outcome) + marks) *
               trained_share(&p->data[i], outcome);
    }
    return sum;
}

static bool is_present(const struct init_plan *p, enum modality kind)
{
    bool tokenizer = kind == MODALITY_AUDIO   ? p->sounds >= 0
                     : kind == MODALITY_VIDEO ? p->pictures >= 0 && p->clips
                                              : p->pictures >= 0;
    return tokenizer && init_samples_of(p, init_captioned(kind)) > 0;
}

i64 init_longer_than(const struct init_plan *p, enum outcome outcome, i64 length)
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
            longer += init_longer_than(p, (enum outcome)k, length);
        if (50 * (double)longer <= samples)
            break;
    }
    return length;
}

static void choose_size(struct init_plan *p, double positions)
{
    p->positions = positions;
    p->size = sizes;
    while (positions > p->size->positions)
        p->size++;
}

/* Positions of all pictures and clips as outputs. */
static double pictures_out(const struct init_plan *p)
{
    double sum = 0;
    for (i64 i = 0; i < p->count; i++)
        sum += p->shapes.picture_out * init_media_of(p, &p->data[i], MODALITY_IMAGE) +
               p->shapes.clip_out * init_media_of(p, &p->data[i], MODALITY_VIDEO);
    return sum;
}

/* What the model learns from, by kind: positions of the samples, each shown once per direction. */
struct learned {
    double positions, shown, most;
    enum direction in, out;
};

static i64 streams_of_media(const struct init_plan *p, struct learned *streams)
{
    static const struct {
        enum modality kind;
        struct learned stream;
    } media[] = {{MODALITY_IMAGE, {0, shown_picture, picture_most, DIRECTION_IMAGE_IN, DIRECTION_IMAGE_OUT}},
                 {MODALITY_VIDEO, {0, shown_clip, clip_most, DIRECTION_VIDEO_IN, DIRECTION_VIDEO_OUT}},
                 {MODALITY_AUDIO, {0, shown_sound, sound_most, DIRECTION_AUDIO_IN, DIRECTION_AUDIO_OUT}}};
    i64 count = 0;
    for (i64 m = 0; m < COUNT_OF(media); m++) {
        if (!is_present(p, media[m].kind))
            continue;
        streams[count] = media[m].stream;
        streams[count++].positions =
            medium_positions(p, media[m].kind, false) + medium_positions(p, media[m].kind, true);
    }
    return count;
}

/* How often they are shown follows once all are known. */
static i64 streams_of_words(const struct init_plan *p, struct learned *streams)
{
    double text = word_positions(p, BECOMES_TEXT) + word_positions(p, BECOMES_MIXED);
    i64 count = 0;
    if (text > 0)
        streams[count++] = (struct learned){text, 1, 1, DIRECTION_TEXT, DIRECTION_TEXT};
    if (p->chats)
        streams[count++] = (struct learned){p->chat_positions, 1, 1, DIRECTION_CHAT, DIRECTION_CHAT};
    return count;
}

static double times_of(const struct learned *l, double factor)
{
    return factor > 1 ? fmin(factor * l->shown, fmax(l->most, l->shown)) : factor * l->shown;
}

static double sum_of(const struct learned *streams, i64 count, double factor)
{
    double sum = 0;
    for (i64 i = 0; i < count; i++)
        sum += streams[i].positions * times_of(&streams[i], factor);
    return sum;
}

/* Shows all of them as many times more or less often as make `least` to `most` positions, if they are
 * enough. Returns the sum of positions. */
static double fit(struct learned *streams, i64 count, double least, double most)
{
    enum { HALVINGS = 60 };
    double run = sum_of(streams, count, 1), low = 1, high = 1e3;
    double factor = run > most ? most / run : 1;
    for (int i = 0; i < HALVINGS && run < least; i++) {
        factor = (low + high) / 2;
        *(sum_of(streams, count, factor) < least ? &low : &high) = factor;
    }
    for (i64 i = 0; i < count; i++)
        streams[i].shown = times_of(&streams[i], factor);
    return sum_of(streams, count, 1);
}

/* A run of fewer positions than `least` hardly learns its frequencies: shows all more often, at most
 * longer_most times as often. */
static double lengthen(struct learned *streams, i64 count, double run, double least)
{
    double factor = run > 0 ? fmin(longer_most, fmax(1, least / run)) : 1;
    for (i64 i = 0; i < count; i++)
        streams[i].shown *= factor;
    return run * factor;
}

/* The proportions of the model's training, if it saw all that is there. */
static bool take_proportions(struct learned *streams, i64 count, const struct init_model *from)
{
    for (i64 i = 0; i < count; i++)
        if (!from || from->mixture[streams[i].in] <= 0 || from->mixture[streams[i].out] <= 0)
            return false;
    for (i64 i = 0; i < count; i++)
        streams[i].shown = (from->mixture[streams[i].in] + from->mixture[streams[i].out]) / 2;
    return count > 0;
}

/* What the model was trained on is shown again beside the data, with all its directions. factor: how much
 * more often than there the run shows a sample. */
static void mix_again(struct init_plan *p, double factor)
{
    for (int d = 0; d < DIRECTIONS && p->from && p->from->shards; d++)
        p->mixture[d] = p->mixture[d] > 0 ? p->mixture[d] / factor : p->from->mixture[d];
}

/* Shows media as often as the constants say, texts as often, but at most as many positions of them
 * as of media if the run is full. */
static void choose_mixture(struct init_plan *p)
{
    struct learned streams[DIRECTIONS];
    p->chat_positions = word_positions(p, BECOMES_CHAT);
    i64 media = streams_of_media(p, streams), count = media + streams_of_words(p, streams + media);
    double run = 0, words = 0, positions = 0;
    for (i64 i = 0; i < count; i++) {
        positions += streams[i].positions;
        words += i < media ? 0 : streams[i].positions;
        run += i < media ? streams[i].shown * streams[i].positions : 0;
    }
    choose_size(p, positions);
    p->length = row_length(p, p->size->length);
    double full = (double)(p->size->rows * p->size->length), most = full * (double)p->size->most;
    double alone_most = p->size == sizes ? words_alone_few_most : words_alone_most;
    for (i64 i = media; i < count; i++) {
        streams[i].most = media ? words_most : alone_most;
        streams[i].shown = fmin(shown_text, fmax(run, most / 2) / words);
    }
    bool same = take_proportions(streams, count, p->from);
    double before = count ? streams[0].shown : 1;
    p->run_positions = fit(streams, count, full * (double)p->size->least, most);
    p->run_positions = lengthen(streams, count, p->run_positions, STEPS_LEAST * sizes->rows * sizes->length);
    for (i64 i = 0; i < count; i++)
        p->times[streams[i].in] = p->times[streams[i].out] = streams[i].shown;
    memcpy(p->mixture, p->times, sizeof p->mixture);
    mix_again(p, same ? streams[0].shown / before : 1);
    i64 rows = p->size->rows * p->size->length / p->length;
    p->rows = max_i64(1, min_i64(rows, (i64)(p->run_positions / (double)(STEPS_LEAST * p->length))));
    p->steps = max_i64(1, (i64)(p->run_positions / (double)(p->rows * p->length)));
    p->steps = p->steps > 100 ? p->steps / 50 * 50 : p->steps;
    p->half = p->steps >= HALF_STEPS_LEAST && !p->from; /* its sizes are not those of the table */
    p->few = p->positions < few_positions;
}

int plan_init(struct init_plan *p, const struct init_data *data, i64 count, const struct init_model *from)
{
    *p = (struct init_plan){
        .data = data, .count = count, .from = from, .wordless = data[0].columns.captions == CAPTIONS_NONE};
    choose_folders(p);
    init_shapes_choose(&p->shapes, p);
    for (i64 i = 0; i < count; i++)
        p->film_sound |= p->sounds >= 0 && p->clips && init_has_sound(&data[i]);
    for (int k = 0; k < OUTCOMES; k++)
        for (i64 i = 0; i < count; i++)
            p->text_bytes += (double)data[i].kinds[k].text_bytes;
    for (i64 i = 0; i < count; i++)
        for (int m = MODALITY_TEXT + 1; m < MODALITIES; m++)
            p->media += init_media_of(p, &data[i], (enum modality)m);
    i64 v = 0;
    while (p->text_bytes > vocabularies[v].bytes)
        v++;
    p->vocabulary = vocabularies[v].vocabulary;
    if (p->wordless && from)
        return error_set("--from %s with --captions none: expected data with words, as a model is trained",
                         from->directory);
    if (p->wordless)
        choose_size(p, pictures_out(p));
    else
        choose_mixture(p);
    if (!p->wordless && p->positions == 0)
        return error_set("nothing there is for %s: its tokenizers read no such media",
                         from ? from->directory : "a model");
    return 0;
}
