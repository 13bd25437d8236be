/* The stage `prepare`: turns samples of files into tokens in shards.
 *
 * In: settings that name the sources (data/sources/sources.h) and the folders of the tokenizers; a
 * seed; the device on which the tokenizers run, and their dtype. Out: the folder `out`, which the
 * caller has made, becomes a shard folder (data/shards/shards.h):
 *
 *   shards.json, text/ vision/ audio/   sizes of the tokens; copies of the tokenizers
 *   train/ validation/ test/            records and their index
 *   curation.json, keys                 if filters are set (data/curate/curate.h)
 *   stream.json                         with stream.on, in place of the splits
 *   progress.json                       while the stage is not finished
 *
 * A call owns the sources, tokenizers and writers that it opens, and closes them before it returns.
 * It borrows its arguments. All that outlives it is in `out`: a call after an interrupted or killed
 * one resumes from there, and yields the same bytes. prepare_internal.h lists the folder's files in
 * the order in which a sample passes them. */
#ifndef WEFT_DATA_PREPARE_H
#define WEFT_DATA_PREPARE_H
#include "core/settings.h"
#include "data/curate/curate.h"
#include "data/media/media.h"
#include "data/shards/shards.h"
#include "data/sources/sources.h"

struct device;

enum film_sound { FILM_SOUND_NONE, FILM_SOUND_TAKE, FILM_SOUND_DEMAND };
struct prepare_settings {
    char *data, *tokenizer[TOKENIZERS]; /* folders; all tokenizers but that of text may be empty */
    struct string_list directions;      /* names of direction_rows; empty: all that the tokenizers allow */
    struct source_columns columns;      /* column names that differ from the defaults */
    double validation, test;            /* shares to draw if `data` has no folder of that name */
    struct picture_settings pictures;
    i64 area_most;        /* side, pixels; 0: no limit */
    double bad_share;     /* largest share of unreadable samples; more is an error */
    double dropout;       /* BPE-dropout of plain texts in train */
    i64 dropout_copies;   /* copies of each such text */
    double audio_seconds; /* longer sounds are left out, or cut */
    bool cut_sounds;      /* cut at the quietest points */
    bool voices;          /* speaker vectors of sounds whose records name speakers */
    int film_sound;       /* enum film_sound, for clips */
    struct {
        /* Seconds between the starts of a long clip's windows. 0: only its beginning, or `most`
         * windows spread evenly. */
        double every_s;
        i64 most; /* windows of a clip; 0: no limit */
    } windows;
    i64 shard_bytes;
    struct curate_settings filter;
    struct {
        bool on;
        i64 parts, shards, bytes; /* limits of the ring (data/stream/stream.h); bytes 0: no limit */
        bool keep;
    } stream;
    char *day;  /* YYYY-MM-DD, of a chat template that writes it; empty: that of the first call */
    char *part; /* "i/n": every n-th input file, starting from the i-th (0-based); empty: all files */
};
extern const struct setting prepare_table[];
int prepare_part(i64 *part, i64 *parts, const char *text); /* parses "i/n"; parts 0: all files */
/* Estimates the bytes that a call would write, from the beginnings of some input files. Returns -1
 * with a message on failure. */
struct prepare_estimate {
    double read, made; /* bytes: of all input files; of shards and index */
    i64 files, files_read, samples;
};
int prepare_estimate(struct prepare_estimate *out, const struct prepare_settings *settings, struct device *device);
int prepare_check_settings(const void *settings); /* names and contradictions */
int prepare_check_machine(const void *settings);  /* whether this machine tells languages apart, if it has to */
/* Runs the stage. Returns 0, -1 with a message, or 1 if interrupted. */
int prepare_stage(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                  enum dtype dtype);

/* Consumer of train shards while they are being made. It gets each shard once the shard is closed
 * and the progress behind it is on disk. A later call offers again the closed shards that were not
 * taken. */
struct shard_consumer {
    void *context;
    /* Moves or removes the shard file; may block. Returns 0, -1 with a message, or 1 if
     * interrupted. */
    int (*take)(void *context, i64 number, const char *shard, const struct buffer *index);
    int (*end)(void *context, i64 shards); /* called after the last shard was taken */
    /* The first shard still needed. If the saved progress has closed more shards than this, prepare
     * starts over. */
    i64 first_needed;
};
/* Like prepare_stage, but delivers the train shards to `consumer`. */
int prepare_stream(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                   enum dtype dtype, const struct shard_consumer *consumer);

/* The recipe of a stream's shards: stream.json in its folder (data/stream/stream.h). */
struct shard_stream {
    struct prepare_settings settings; /* tokenizers: the copies in the folder */
    u64 seed;
    enum dtype dtype;
};
int shard_stream_save(const char *directory, const struct prepare_settings *settings, u64 seed, enum dtype dtype);
int shard_stream_load(struct shard_stream *stream, const char *directory);
void shard_stream_release(struct shard_stream *stream);

#endif
