/* weft init: what a folder holds. The samples are counted as the stages will read them, with the
 * splits that they will draw. Media are opened to learn their length and whether they have sound. */
#include "survey/init.h"
#include "data/formats/file_name.h"
#include "data/sources/source_readers.h"
#include "data/media/media.h"
#include "data/remote/remote.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* Held-out losses and scores of fewer samples are rough: HELD_OUT_LEAST samples are held out where
 * that leaves most of the samples for training. For the sake of one kind among others, at most a fifth
 * of all is held out. */
enum { SHARE_USUAL = 0, SHARE_OF_KIND = 7, SHARE_OF_FEW = 7 }; /* indices of init_shares */
const double init_shares[INIT_SHARES] = {0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4};
/* The first media are opened, then every PROBE_EVERY-th. */
enum { PROBE_FIRST = 200, PROBE_EVERY = 50 };
/* A clip of more seconds is a film; a longer sound is cut (the default of audio_seconds). */
static const double long_s[MODALITIES] = {[MODALITY_VIDEO] = 60, [MODALITY_AUDIO] = 30};

const double init_bytes_per_token = 3.3, init_sound_per_s = 12.5, init_sound_most_s = 30;
/* Of the marks around a question and its answer; of a square picture and clip that is read, as their
 * shapes are not chosen yet. */
enum { MESSAGE_POSITIONS = 8, PICTURE_POSITIONS = 7, CLIP_POSITIONS = 15 };

struct init_look_run {
    struct init_data *data;
    i64 media[MODALITIES];    /* seen so far */
    struct hash_set files;    /* paths of media, and contents of those inside of archives and tables */
    struct hash_set captions; /* those that are names */
    i64 prompts;
};

/* ---- Media ---- */

static void keep_size(struct init_probe *probe, double height, double width)
{
    i64 size = probe->size_count * 8;
    probe->proportions = memory_resize(probe->proportions, size, size + 8);
    probe->proportions[probe->size_count++] = width / height;
}

static int probe_bytes(struct init_probe *probe, enum modality kind, const struct file_view *file, const char *name)
{
    struct clip picture;
    double seconds = 0;
    enum media_kind found = media_kind(file->data, file->bytes, name);
    if (found == MEDIA_UNKNOWN)
        return -1;
    if (kind == MODALITY_IMAGE) {
        if (image_read_as(&picture, file->data, file->bytes, name,
                          &(struct image_request){.fit_height = 64, .fit_width = 64}) < 0)
            return -1;
        keep_size(probe, (double)(picture.stored_height ? picture.stored_height : picture.height),
                  (double)(picture.stored_height ? picture.stored_width : picture.width));
        clip_release(&picture);
        return 0;
    }
    struct sound beginning;
    double height, width;
    if (kind == MODALITY_VIDEO && clip_shown_size(&height, &width, file->data, file->bytes, name, NULL) < 0)
        return -1;
    if (kind == MODALITY_AUDIO) {
        if (sound_read_most(&beginning, file->data, file->bytes, name, 0, 1) < 0)
            return -1;
        sound_release(&beginning);
    }
    if (media_seconds(&seconds, file->data, file->bytes, name) < 0)
        return -1;
    if (kind == MODALITY_VIDEO)
        keep_size(probe, height, width);
    if (kind == MODALITY_VIDEO)
        probe->with_sound += film_has_sound(file->data, file->bytes, name) > 0;
    probe->seconds += seconds;
    probe->long_ones += seconds > long_s[kind];
    return 0;
}

/* carried: its bytes, or NULL for a file. */
static void probe_medium(struct init_look_run *run, enum modality kind, const char *path, const struct buffer *carried,
                         const char *name)
{
    struct init_probe *probe = &run->data->probes[kind];
    i64 number = run->media[kind]++;
    if (number >= PROBE_FIRST && number % PROBE_EVERY)
        return;
    struct file_view file = {carried ? (const u8 *)carried->data : NULL, carried ? carried->length : 0};
    int status = carried ? 0 : file_map(&file, path);
    bool mapped = !carried && status == 0;
    if (status == 0)
        status = probe_bytes(probe, kind, &file, name);
    if (mapped)
        file_unmap(&file);
    probe->opened++;
    if (status == 0)
        return;
    probe->unreadable++;
    if (!probe->first_unreadable)
        probe->first_unreadable = string_copy(error_text());
}

/* ---- Samples ---- */

/* Keeps the first words of a text, for prompts to continue. */
static void keep_prompt(struct init_look_run *run, const struct buffer *text)
{
    enum { WORDS = 3, BYTES = 40 };
    const char *at = text->data;
    i64 length = 0, words = 0;
    if (run->prompts == INIT_PROMPTS || !at)
        return;
    while (length < text->length && isspace((u8)at[length]))
        length++;
    at += length;
    i64 most = min_i64(text->length - length, BYTES);
    for (length = 0; length < most && words < WORDS; length++) {
        if ((u8)at[length] < ' ' || at[length] == 0x7f)
            break;
        words += at[length] == ' ';
    }
    while (length > 0 && (at[length - 1] == ' ' || ((u8)at[length - 1] & 0x80)))
        length--; /* a character may be cut */
    if (length < 2)
        return;
    char *prompt = string_format("%.*s", (int)length, at);
    for (i64 i = 0; i < run->prompts; i++)
        if (strcmp(run->data->prompts[i], prompt) == 0) {
            memory_free(prompt);
            return;
        }
    run->data->prompts[run->prompts++] = prompt;
}

/* Positions that a sample reads a medium with. */
static double read_positions(const struct init_data *data, enum modality kind)
{
    return kind == MODALITY_IMAGE   ? PICTURE_POSITIONS
           : kind == MODALITY_VIDEO ? CLIP_POSITIONS
                                    : init_sound_per_s * fmin(init_mean_seconds(data, kind), init_sound_most_s);
}

static void see_medium(struct init_look_run *run, struct init_kind *kind, const struct sample *sample, i64 i)
{
    const struct sample_part *part = &sample->parts[i];
    bool captioned = sample->layout == SAMPLE_CAPTIONED;
    i64 bytes = part->path ? file_bytes(part->path) : part->bytes.length;
    kind->media_bytes += max_i64(bytes, 0);
    bool is_new = true;
    if (part->path)
        is_new = hash_set_add(&run->files, source_path_hash(part->path));
    else if (!captioned)
        is_new = hash_set_add(&run->files, hash_bytes(part->bytes.data ? part->bytes.data : "", part->bytes.length, 1));
    run->data->inside[part->kind] += !captioned && is_new;
    probe_medium(run, (enum modality)part->kind, part->path, part->path ? NULL : &part->bytes, sample->name);
}

static void see_sample(void *context, const struct source *source, const struct sample *sample, i64 file)
{
    struct init_look_run *run = context;
    struct init_data *data = run->data;
    enum outcome outcome = sample_outcome(sample);
    struct init_kind *kind = &data->kinds[outcome];
    i64 text_bytes = 0;
    double media = 0;
    bool asked = false, asks = false; /* asks: in the first message of a user, before its text ended */
    (void)file;
    if (data->columns.captions == CAPTIONS_NONE && sample->layout != SAMPLE_CAPTIONED) {
        data->others++;
        for (i64 i = 0; i < sample->count; i++)
            if (sample->parts[i].kind != MODALITY_TEXT && sample->parts[i].kind < MODALITIES)
                see_medium(run, kind, sample, i);
        return;
    }
    kind->samples++;
    kind->named[sample->split]++;
    kind->subtitled += sample->subtitles || sample->cues.length;
    double draw = source_draw(source, sample);
    for (i64 s = 0; s < INIT_SHARES; s++)
        kind->held_out[s] += draw < init_shares[s];
    for (i64 i = 0; i < sample->count; i++) {
        const struct sample_part *part = &sample->parts[i];
        if (part->role)
            asks = !asked && strcmp(part->role, "user") == 0;
        asked |= asks;
        if (part->kind == MODALITY_TEXT) {
            text_bytes += part->bytes.length;
            if (data->columns.captions != CAPTIONS_FILES && sample->layout == SAMPLE_CAPTIONED)
                captions_count(&data->named, &run->captions, part->bytes.data, sample->name);
            if (outcome == BECOMES_TEXT || (outcome == BECOMES_CHAT && asks))
                keep_prompt(run, &part->bytes);
            asks = false;
        } else if (part->kind < MODALITIES) {
            see_medium(run, kind, sample, i);
            kind->media[part->kind]++;
            media += read_positions(data, (enum modality)part->kind);
        }
    }
    kind->text_bytes += text_bytes;
    if (sample->subtitles || sample->cues.length)
        return; /* cut to windows */
    kind->long_texts += text_bytes > INIT_LONG_BYTES;
    double positions = (double)text_bytes / init_bytes_per_token + media + MESSAGE_POSITIONS;
    for (i64 l = 0; l < INIT_LENGTHS; l++)
        kind->longer[l] += positions > INIT_LENGTH << l;
}

static void see_bad(void *context, const char *why)
{
    struct init_look_run *run = context;
    if (run->data->bad++ == 0)
        run->data->first_bad = string_copy(why);
}

static void see_files(struct init_look_run *run, const struct source *source)
{
    i64 count;
    const struct source_file *files = source_files(source, &count);
    struct init_data *data = run->data;
    data->files = count;
    data->names_splits = count > 0;
    for (i64 i = 0; i < count; i++) {
        data->bytes += files[i].bytes;
        data->names_splits = data->names_splits && files[i].split != SPLIT_DRAWN;
        data->others += data->columns.captions == CAPTIONS_NONE && files[i].use == FILE_APART;
        if (files[i].use != FILE_MEDIUM || files[i].why)
            continue;
        enum modality kind = medium_kind(name_extension(files[i].path));
        struct init_lack *lack = &data->lacks[kind][source_uncaptioned(source, &files[i])];
        data->alone[kind]++;
        lack->count++;
        if (!lack->first)
            lack->first = string_copy(files[i].blank ? files[i].caption : files[i].path);
        probe_medium(run, kind, files[i].path, NULL, files[i].path);
    }
}

/* ---- The share to hold out ---- */

static i64 drawn(const struct init_data *data, i64 share)
{
    i64 sum = 0;
    for (int k = 0; k < OUTCOMES; k++)
        sum += data->kinds[k].held_out[share];
    return sum;
}

static bool is_enough(const struct init_data *data, i64 share)
{
    bool enough = drawn(data, share) >= HELD_OUT_LEAST;
    for (int k = 0; k < OUTCOMES; k++) {
        const struct init_kind *kind = &data->kinds[k];
        if (share < SHARE_OF_KIND && init_shares[SHARE_OF_KIND] * (double)kind->samples >= HELD_OUT_LEAST)
            enough = enough && kind->held_out[share] >= HELD_OUT_LEAST;
    }
    return enough;
}

/* True if each kind keeps a sample to train on. */
static bool leaves_some(const struct init_data *data, i64 share)
{
    for (int k = 0; k < OUTCOMES; k++)
        if (data->kinds[k].samples && data->kinds[k].held_out[share] == data->kinds[k].samples)
            return false;
    return true;
}

/* Of too few samples a fifth, or the first share above it that draws any. */
static double choose_share(const struct init_data *data)
{
    i64 samples = 0, share = SHARE_USUAL, last = INIT_SHARES - 1;
    for (int k = 0; k < OUTCOMES; k++)
        samples += data->kinds[k].samples;
    if (init_shares[last] * (double)samples >= HELD_OUT_LEAST) {
        while (share < last && !is_enough(data, share))
            share++;
    } else {
        for (share = SHARE_OF_FEW; share < last && drawn(data, share) == 0;)
            share++;
    }
    while (share > 0 && !leaves_some(data, share))
        share--;
    return leaves_some(data, share) ? init_shares[share] : 0;
}

/* ---- All of it ---- */

/* Leaves out the media of a kind of which no opened one could be read. */
static void drop_unreadable(struct init_data *data)
{
    for (int m = 0; m < MODALITIES; m++) {
        const struct init_probe *probe = &data->probes[m];
        if (m == MODALITY_TEXT || probe->opened == 0 || probe->unreadable < probe->opened)
            continue;
        data->bad += data->kinds[BECOMES_IDS + m].samples + data->alone[m];
        if (!data->first_bad)
            data->first_bad = string_copy(probe->first_unreadable);
        data->kinds[BECOMES_IDS + m] = (struct init_kind){0};
        data->alone[m] = data->inside[m] = 0;
    }
}

static bool has_samples(const struct init_data *data)
{
    for (int k = 0; k < OUTCOMES; k++)
        if (k != BECOMES_IDS && data->kinds[k].samples)
            return true;
    return false;
}

static i64 all_alone(const struct init_data *data)
{
    i64 alone = 0;
    for (int m = 0; m < MODALITIES; m++)
        alone += data->alone[m];
    return alone;
}

/* All media that have no caption for a reason. */
static struct init_lack all_lacking(const struct init_data *data, enum uncaptioned reason)
{
    struct init_lack all = {0};
    for (int m = 0; m < MODALITIES; m++) {
        const struct init_lack *lack = &data->lacks[m][reason];
        all.first = all.first ? all.first : lack->first;
        all.count += lack->count;
    }
    return all;
}

/* Media, none of which has a caption, and nothing else. */
static int refuse_uncaptioned(const struct init_data *data)
{
    struct init_lack blank = all_lacking(data, UNCAPTIONED_BLANK), top = all_lacking(data, UNCAPTIONED_FOLDER),
                     named = all_lacking(data, UNCAPTIONED_NAME);
    struct buffer advice = {0};
    if (data->columns.captions == CAPTIONS_FOLDER)
        return error_set("%s: --captions folder: none of its %lld media is in a folder that names it (first: %s): move "
                         "them to folders such as %s/red apple/, or take --captions name or none",
                         data->path, (long long)all_alone(data), top.first, data->path);
    if (data->columns.captions == CAPTIONS_NAME)
        return error_set("%s: --captions name: the names of its %lld media say nothing, as those of cameras (first: "
                         "%s): expected names such as a red apple 3.jpg, or --captions folder or none",
                         data->path, (long long)all_alone(data), named.first);
    captions_advise(&advice, &data->offers);
    buffer_printf(&advice,
                  "; or put a.txt beside a.jpg, or captions.jsonl with lines {\"image\": \"a.jpg\", \"text\": ..}");
    if (blank.count)
        buffer_printf(&advice, "; there are caption files, which are empty: %lld, first: %s", (long long)blank.count,
                      blank.first);
    if (data->bad)
        buffer_printf(&advice, "; cannot be read: %s", data->first_bad);
    error_set("%s: media without captions (%lld), from which no model can learn words: %s", data->path,
              (long long)all_alone(data), advice.data);
    buffer_release(&advice);
    return -1;
}

static int refuse_nothing(const struct init_data *data)
{
    if (data->kinds[BECOMES_IDS].samples)
        return error_set("%s: documents of ids alone, which need the tokenizer that made them: write a recipe whose "
                         "stage `prepare` has text: ./TOKENIZER",
                         data->path);
    if (data->columns.captions == CAPTIONS_NONE)
        return error_set("%s: --captions none: no picture, clip or sound can be read there, and nothing else is "
                         "learned: leave the option out%s%s",
                         data->path, data->bad ? "; cannot be read: " : "", data->bad ? data->first_bad : "");
    if (all_alone(data))
        return refuse_uncaptioned(data);
    return error_set("%s: nothing there can be trained on: %lld of %lld %s cannot be read (first: %s)", data->path,
                     (long long)data->bad, (long long)data->bad, plural(data->bad, "entry", "entries"),
                     data->first_bad ? data->first_bad : "none");
}

/* The path as a recipe must write it. */
static char *recipe_path(const char *path)
{
    size_t length = strlen(path);
    bool given = *path == '/' || strncmp(path, "./", 2) == 0 || strncmp(path, "../", 3) == 0 || is_address(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (strcmp(path, ".") == 0 || strcmp(path, "..") == 0)
        return string_format("%s/", path);
    return string_format("%s%.*s", given ? "" : "./", (int)length, path);
}

static bool has_inside(const struct init_data *data)
{
    bool has = false;
    for (int m = 0; m < MODALITIES; m++)
        has |= data->inside[m] > 0;
    return has;
}

/* 1: nothing that a model can learn from. */
static int look_once(struct init_data *out, const char *path, int captions)
{
    *out = (struct init_data){.path = recipe_path(path), .columns.captions = captions};
    struct source *source = out->source =
        source_open(path, &(struct source_request){
                              .seed = INIT_SEED, .columns = &out->columns, .media_alone = captions == CAPTIONS_NONE});
    struct init_look_run run = {.data = out};
    if (!source)
        return captions == CAPTIONS_NONE ? error_prefix("--captions none, which learns media alone") : -1;
    int status = source_visit(source, &(struct sample_visitor){&run, see_sample, see_bad});
    if (status == 0) {
        see_files(&run, source);
        captions_find(&out->offers, source, path);
        drop_unreadable(out);
        out->validation = out->names_splits ? 0 : choose_share(out);
        bool wordless = captions == CAPTIONS_NONE && has_inside(out);
        status = !has_samples(out) && !wordless;
    }
    hash_set_release(&run.files);
    hash_set_release(&run.captions);
    return status;
}

/* True if no medium has a caption, and the media are by far the most of what is there. Those in tars
 * count as entries that cannot be read. */
static bool lacks_captions(const struct init_data *data)
{
    i64 captioned = 0, others = 0, without = all_alone(data) + data->bad;
    for (int k = 0; k < OUTCOMES; k++) {
        bool medium = k > BECOMES_IDS && k < BECOMES_CHAT;
        captioned += medium ? data->kinds[k].samples : 0;
        others += medium ? 0 : data->kinds[k].samples;
    }
    return captioned == 0 && without > 0 && without >= 10 * others;
}

int init_look(struct init_data *out, const char *path, int captions)
{
    if (!is_address(path) && !file_exists(path))
        return error_set("there is no %s", path);
    const char *kind = inspect_kind(path);
    if (!kind && archive_is_unread(path))
        return error_set("%s: an archive of a kind that is not read: unpack it into a folder", path);
    if (!kind || strcmp(kind, "data") != 0)
        return error_set("%s: %s, not data: expected a folder of texts, pictures, clips, sounds or conversations", path,
                         kind ? kind : "a file of another kind");
    int status = look_once(out, path, captions < 0 ? CAPTIONS_FILES : captions);
    if (status >= 0 && captions < 0 && lacks_captions(out)) {
        struct init_data named;
        bool classes = look_once(&named, path, CAPTIONS_FOLDER) == 0 &&
                       captions_have_classes(&named.named, named.named.media + all_alone(&named));
        init_data_release(&named);
        if (classes) {
            init_data_release(out);
            status = look_once(out, path, CAPTIONS_FOLDER);
            out->chosen = true;
        }
    }
    return status == 1 ? refuse_nothing(out) : status;
}

void init_data_release(struct init_data *data)
{
    for (int m = 0; m < MODALITIES; m++) {
        memory_free(data->probes[m].first_unreadable);
        memory_free(data->probes[m].proportions);
        for (int k = 0; k < UNCAPTIONED_KINDS; k++)
            memory_free(data->lacks[m][k].first);
    }
    source_close(data->source);
    captions_release(&data->offers);
    caption_offer_release(&data->named);
    for (i64 i = 0; i < INIT_PROMPTS; i++)
        memory_free(data->prompts[i]);
    memory_free(data->first_bad);
    memory_free(data->path);
    *data = (struct init_data){0};
}

i64 init_held_out(const struct init_data *data, enum outcome outcome)
{
    const struct init_kind *kind = &data->kinds[outcome];
    i64 share = 0;
    if (data->names_splits)
        return kind->named[SPLIT_VALIDATION];
    if (data->validation == 0)
        return 0;
    while (share < INIT_SHARES - 1 && init_shares[share] < data->validation)
        share++;
    return kind->held_out[share];
}

double init_mean_seconds(const struct init_data *data, enum modality kind)
{
    const struct init_probe *probe = &data->probes[kind];
    return probe->seconds / (double)max_i64(1, probe->opened - probe->unreadable);
}

static void log_lacks(const struct init_data *data, enum modality kind)
{
    for (int k = 0; k < UNCAPTIONED_KINDS; k++) {
        const struct init_lack *lack = &data->lacks[kind][k];
        const char *words = k != UNCAPTIONED   ? uncaptioned_words[k]
                            : lack->count == 1 ? " without a caption"
                                               : " without captions";
        if (lack->count)
            log_info("%s: %lld %s%s, from which only a tokenizer can learn (first: %s)", data->path,
                     (long long)lack->count, lack->count == 1 ? modality_rows[kind].one : modality_rows[kind].many,
                     words, lack->first);
    }
}

/* Where the captions come from, if not from texts beside the media; else, if media could be captioned by
 * their names and none of their kind has a caption, how. */
static void log_captions(const struct init_data *data)
{
    struct buffer text = {0};
    i64 captioned = 0;
    for (int m = MODALITY_TEXT + 1; m < MODALITIES; m++)
        captioned += data->kinds[BECOMES_IDS + m].samples;
    if (data->columns.captions == CAPTIONS_NONE) {
        if (data->others)
            buffer_printf(&text, "; %lld %s not learned", (long long)data->others,
                          data->others == 1 ? "text or conversation is" : "texts or conversations are");
        log_info("%s: no captions are read: the recipe trains tokenizers of media alone%s", data->path,
                 text.data ? text.data : "");
    } else if (data->columns.captions != CAPTIONS_FILES) {
        captions_list(&text, &data->named);
        log_info("%s: captions are the names of %s: %s%s", data->path,
                 data->columns.captions == CAPTIONS_FOLDER ? "folders" : "files", text.data,
                 data->chosen ? "; chosen since no medium has another and the folders look like classes "
                                "(--captions name, none or files choose otherwise)"
                              : "");
        const char *wanted = data->columns.captions == CAPTIONS_FOLDER ? "folders" : "names";
        if (captioned == 1)
            log_warn("%s: one medium with a caption is all there is: nothing to compare it with, and nothing to hold "
                     "out: add media in other %s",
                     data->path, wanted);
        else if (data->named.distinct == 1)
            log_warn("%s: all %lld captions are the same: a model learns nothing from them that tells one medium from "
                     "another: expected several %s, or --captions none",
                     data->path, (long long)captioned, wanted);
    } else if (all_alone(data) && captioned == 0) {
        captions_advise(&text, &data->offers);
        log_info("%s: %s", data->path, text.data);
    }
    buffer_release(&text);
}

void init_log(const struct init_data *data)
{
    source_log(data->source, false); /* media without captions are counted below */
    log_info("%s: %lld file%s, %.1f MB", data->path, (long long)data->files, data->files == 1 ? "" : "s",
             (double)data->bytes * 1e-6);
    for (int k = 0; k < OUTCOMES; k++) {
        const struct init_kind *kind = &data->kinds[k];
        i64 held_out = init_held_out(data, (enum outcome)k), test = data->names_splits ? kind->named[SPLIT_TEST] : 0;
        if (kind->samples == 0)
            continue;
        struct buffer line = {0};
        if (data->columns.captions == CAPTIONS_NONE)
            buffer_printf(&line, "%s: %lld %s", data->path, (long long)kind->samples,
                          modality_rows[k - BECOMES_IDS].many);
        else
            buffer_printf(&line, "%s: %lld x %s, %.1f MB of text", data->path, (long long)kind->samples,
                          outcome_name(k), (double)kind->text_bytes * 1e-6);
        if (kind->media_bytes)
            buffer_printf(&line, ", %.1f MB of media", (double)kind->media_bytes * 1e-6);
        buffer_printf(&line, "; train %lld, validation %lld", (long long)(kind->samples - held_out - test),
                      (long long)held_out);
        if (test)
            buffer_printf(&line, ", test %lld", (long long)test);
        log_info("%s", line.data);
        buffer_release(&line);
        if (held_out < HELD_OUT_LEAST)
            log_warn("%s: %lld held-out sample%s fewer than %d: losses and scores on them are rough", data->path,
                     (long long)held_out, held_out == 1 ? " is" : "s are", HELD_OUT_LEAST);
    }
    log_captions(data);
    for (int m = 0; m < MODALITIES; m++) {
        const struct init_probe *probe = &data->probes[m];
        log_lacks(data, (enum modality)m);
        if (probe->unreadable)
            log_warn("%s: %lld of %lld opened %s cannot be read (first: %s)", data->path, (long long)probe->unreadable,
                     (long long)probe->opened, probe->opened == 1 ? modality_rows[m].one : modality_rows[m].many,
                     probe->first_unreadable);
    }
    if (data->bad)
        log_warn("%s: %lld %s cannot be read (first: %s)", data->path, (long long)data->bad,
                 data->bad == 1 ? "entry" : "entries", data->first_bad ? data->first_bad : "");
}
