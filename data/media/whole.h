/* Checks of whole.c that have a file of their own, and what they share. */
#ifndef WEFT_DATA_WHOLE_H
#define WEFT_DATA_WHOLE_H
#include "data/media/file_kind.h"

static inline u64 big_endian(const u8 *bytes, int length)
{
    u64 value = 0;
    for (int i = 0; i < length; i++)
        value = value << 8 | bytes[i];
    return value;
}

static inline u64 little_endian(const u8 *bytes, int length)
{
    u64 value = 0;
    for (int i = length - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Sets the message "ORIGIN: cut short: WHAT extends to byte .." and returns -1. */
int cut_short(const char *origin, const char *what, u64 wanted_bytes, i64 count);

/* -1 with a message if a file of the same kind begins at byte `end`, as in two files that were put one
 * behind the other. Readers would return the first one alone. */
int check_alone(const u8 *bytes, i64 count, i64 end, const char *origin);

int check_boxes(const u8 *bytes, i64 count, const char *origin); /* boxes.c */
/* True if an MP4 file keeps transparency where libav does not see it: in a track of its own, as
 * sequences of AVIF and HEIF do, or in a second layer of HEVC. */
bool boxes_hide_transparency(const u8 *bytes, i64 count);

/* ---- Ogg: ogg.c ---- */
int check_ogg(const u8 *bytes, i64 count, const char *origin);
/* The header of the last page with the mark of a stream's end. */
struct ogg_mark {
    i64 at; /* -1: nothing to mark */
    u8 header[26];
};
/* For a file that check_ogg accepts: marks the end of a stream without one, which decoders need to
 * trim the last packet. */
struct ogg_mark ogg_mark_end(const u8 *bytes, i64 count);
enum { OGG_SOUNDS_MOST = 256 };
/* The sounds of Vorbis or Opus that stand one behind another in a file of which all pages are whole. */
struct ogg_sounds {
    i64 count;                       /* 0: something else stands in it too, or it is damaged */
    i64 begins[OGG_SOUNDS_MOST + 1]; /* and where the last one ends */
};
void ogg_sounds_find(struct ogg_sounds *out, const u8 *bytes, i64 count);
/* Copies the first page of an Opus sound, and states 48000 Hz in it, at which Opus is decoded (RFC 7845,
 * 5.1), in place of the rate before it was encoded. Returns its length; 0: it is no Opus. */
enum { OGG_HEAD_MOST = 512 };
i64 ogg_opus_head(u8 page[OGG_HEAD_MOST], const u8 *bytes, i64 count);

/* ---- Streams of frames, MP3 and AAC: frames.c ---- */
struct frame_run {
    i64 begin, end; /* of the whole frames */
    i64 frames;     /* number of whole frames */
    i64 stated;     /* number of frames after the first, as that one states; 0: not stated */
    i64 cut_bytes;  /* length of the cut frame behind them; 0: none */
};
void mp3_scan(struct frame_run *out, const u8 *bytes, i64 count);
void adts_scan(struct frame_run *out, const u8 *bytes, i64 count);
int check_mp3(const u8 *bytes, i64 count, const char *origin);
int check_adts(const u8 *bytes, i64 count, const char *origin);
/* Length of the ID3v2 tags in front. */
i64 id3_bytes(const u8 *bytes, i64 count);
/* Finds the first of several MP3 frames in a row behind other bytes. -1 if there are none near the
 * beginning. */
i64 mp3_begin(const u8 *bytes, i64 count);
bool adts_begins(const u8 *bytes, i64 count);
#endif
