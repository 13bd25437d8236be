/* The settings of the stage. */
#include "data/prepare/prepare.h"

#include "data/sources/sources.h"

#include <stdlib.h>

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct prepare_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting prepare_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0,
        "folder, file or URL (https://, s3://, ranges {000..127}); subfolders train, validation and test are the "
        "splits; without train, everything else is train; preview with `weft inspect`"),
    TOKENIZER_ROWS(struct prepare_settings),
    ROW(directions, "directions", STRINGS, "", 0, 0,
        "directions of samples: text, image-in, image-out, video-in, video-out, audio-in, audio-out, chat; none: all"),
    SPLIT_ROWS(struct prepare_settings),
    SUBTITLES_ROW(struct prepare_settings),
    PICTURE_ROWS(struct prepare_settings),
    ROW(area_most, "area_most", INTEGER, "0", 0, 65536,
        "side of the largest area, pixels: of a tokenizer with several (areas), larger pictures and clips get the area "
        "nearest to this one; 0: the one nearest to their own"),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, "maximum share of unreadable samples"),
    ROW(dropout, "dropout", NUMBER, "0", 0, 1, "BPE dropout rate of plain training texts"),
    ROW(dropout_copies, "dropout_copies", INTEGER, "1", 1, 1000, "copies of each such text, with different dropout"),
    ROW(audio_seconds, "audio_seconds", NUMBER, "30", 0.01, 3600,
        "maximum length of a sound, seconds; longer ones are skipped, or cut"),
    ROW(cut_sounds, "cut_sounds", BOOL, "false", 0, 0,
        "cut longer sounds at their quietest points; each piece is a sample with the full caption"),
    ROW(voices, "voices", BOOL, "false", 0, 0,
        "store a speaker vector with each sound whose record names its speaker: speech is then learned with a voice"),
    SETTING(struct prepare_settings, film_sound, "film_sound", CHOICE, "none", 0, 0, "none|take|demand",
            "store the soundtrack of a clip as a part after it; if it is missing or unreadable, take: keep the clip, "
            "demand: drop it"),
    ROW(windows.every_s, "windows.every_s", NUMBER, "0", 0, 1e6,
        "seconds between starts of windows in clips longer than the vision tokenizer's, each a sample with the full "
        "caption; 0: windows.most evenly spaced windows, or only the beginning"),
    ROW(windows.most, "windows.most", INTEGER, "0", 0, 1e9, "maximum windows per clip; 0: no limit"),
    ROW(shard_bytes, "shard_bytes", INTEGER, "268435456", 4096, 1e12, "size at which a shard file is closed, bytes"),
    CURATE_ROWS(struct prepare_settings),
    ROW(stream.on, "stream.on", BOOL, "false", 0, 0,
        "prepare during training, a few shards ahead; the stage ends at once; readable only by `pretrain` and `sft`"),
    ROW(stream.parts, "stream.parts", INTEGER, "1", 1, 4096,
        "prepare processes, each for every n-th file; their shards are read in turn"),
    ROW(stream.shards, "stream.shards", INTEGER, "4", 1, 1e6, "maximum shards per process ahead of the reader"),
    ROW(stream.bytes, "stream.bytes", INTEGER, "0", 0, 1e15, "maximum bytes of these shards; 0: no limit"),
    ROW(stream.keep, "stream.keep", BOOL, "false", 0, 0,
        "keep shards that all checkpoints have passed until the training stage is done"),
    ROW(day, "day", STRING, "", 0, 0,
        "YYYY-MM-DD that a chat template which writes the day gets; none: the day of the first call"),
    ROW(part, "part", STRING, "", 0, 0,
        "i/n: only files i, i + n, i + 2n, .. of `data` (from 0, in the order of `weft inspect`); the n folders "
        "together hold the samples of a full run"),
    {0}};

int prepare_part(i64 *part, i64 *parts, const char *text)
{
    char *end = NULL;
    const char *at = text;
    *part = *parts = 0;
    if (!text || !*text)
        return 0;
    *part = strtoll(at, &end, 10);
    if (end > at && *end == '/')
        *parts = strtoll(at = end + 1, &end, 10);
    if (end > at && *end == 0 && *part >= 0 && *part < *parts)
        return 0;
    return error_usage("part: \"%s\": expected i/n, i from 0 to n - 1, such as 0/8 for the first of eight", text);
}
