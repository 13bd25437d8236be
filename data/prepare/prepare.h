/* The stage `prepare`: sources through the tokenizers into a shard folder, once. */
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
    char *data, *text, *vision, *audio; /* folders; vision and audio may be empty */
    struct string_list directions;      /* of direction_names; empty: all that the tokenizers allow */
    struct source_columns columns;      /* what of `data` is called otherwise */
    double validation, test;            /* shares drawn where `data` has no folder of either name */
    struct picture_settings pictures;
    double bad_share;     /* of samples that could not be read: more is an error */
    double dropout;       /* BPE-dropout of plain texts in train */
    i64 dropout_copies;   /* of each of them */
    double audio_seconds; /* longer sounds are left out, or cut */
    bool cut_sounds;      /* where they are quietest */
    int film_sound;       /* enum film_sound: of clips */
    struct {
        double every_s; /* between the beginnings of a long clip's windows; 0: its beginning alone, or spread evenly */
        i64 most;       /* windows of a clip; 0: no limit */
    } windows;
    i64 shard_bytes;
    struct curate_settings filter;
    struct {
        bool on;
        i64 parts, shards, bytes; /* of the ring (data/ring.h); bytes 0: no limit */
        bool keep;
    } stream;
    char *part; /* "i/n": of the files that are read, every n-th from the i-th on, counted from 0; empty: all */
};
extern const struct setting prepare_table[];
int prepare_part(i64 *part, i64 *parts, const char *text); /* "i/n"; parts 0: all files */
/* What a call would write, in bytes, by the beginnings of some of its files. -1 and a message. */
struct prepare_estimate {
    double read, made; /* of all files that it reads; of shards and their index */
    i64 files, files_read, samples;
};
int prepare_estimate(struct prepare_estimate *out, const struct prepare_settings *settings, struct device *device);
/* out: an existing folder; what a killed or interrupted call left there is gone on with, to the same bytes. 0; -1 with
 * a message; 1: interrupted() said so. */
int prepare_stage(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                  enum dtype dtype);

/* Shards of train that are taken away as soon as they are closed and the way on from there is on the disk. What was
 * closed and not yet taken when a call ended is offered again by the next. */
struct prepare_taker {
    void *context;
    /* The file is moved or removed; it may wait. 0, -1 with a message, or 1: interrupted. */
    int (*take)(void *context, i64 number, const char *shard, const struct text *index);
    int (*end)(void *context, i64 shards); /* all have been taken: there are no more */
    i64 due; /* shards before this are not needed again: where more were made before, all is made anew */
};
int prepare_stream(const struct prepare_settings *settings, const char *out, u64 seed, struct device *device,
                   enum dtype dtype, const struct prepare_taker *taker);

/* stream.json in the folder of a stream (data/stream/stream.h): how its shards are made. */
struct shard_stream {
    struct prepare_settings settings; /* tokenizers: the copies in the folder */
    u64 seed;
    enum dtype dtype;
};
int shard_stream_save(const char *directory, const struct prepare_settings *settings, u64 seed, enum dtype dtype);
int shard_stream_load(struct shard_stream *stream, const char *directory);
void shard_stream_release(struct shard_stream *stream);

#endif
