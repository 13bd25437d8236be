#include "data/prepare/prepare.h"

#include "data/sources/sources.h"

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct prepare_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting prepare_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0,
        "folder, file, or address (https://, s3://, ranges {000..127}); folders train, validation, test in it are "
        "those "
        "parts; without train, all else is train; `weft inspect` says what becomes of its files"),
    ROW(text, "text", REFERENCE, NULL, 0, 0, "text tokenizer"),
    ROW(vision, "vision", REFERENCE, "", 0, 0, "vision tokenizer; without one pictures and clips are left out"),
    ROW(audio, "audio", REFERENCE, "", 0, 0, "audio tokenizer; without one sounds are left out"),
    ROW(directions, "directions", STRINGS, "", 0, 0,
        "what samples are made for: text, image-in, image-out, video-in, video-out, audio-in, audio-out, chat; none: "
        "all"),
    SPLIT_ROWS(struct prepare_settings),
    SUBTITLES_ROW(struct prepare_settings),
    PICTURE_ROWS(struct prepare_settings),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, "largest share of samples that may be unreadable"),
    ROW(dropout, "dropout", NUMBER, "0", 0, 1, "BPE-dropout of plain texts for training"),
    ROW(dropout_copies, "dropout_copies", INTEGER, "1", 1, 1000, "copies of each, with other draws"),
    ROW(audio_seconds, "audio_seconds", NUMBER, "30", 0.01, 3600, "longer sounds are left out, or cut"),
    ROW(cut_sounds, "cut_sounds", BOOL, "false", 0, 0,
        "cut longer sounds where they are quietest; each piece is a sample with the caption of the whole"),
    SETTING(
        struct prepare_settings, film_sound, "film_sound", CHOICE, "none", 0, 0, "none|take|demand",
        "what sounds while a clip is shown, as a part behind it; demand: clips without a sound that can be read are "
        "left out, else they stay without"),
    ROW(windows.every_s, "windows.every_s", NUMBER, "0", 0, 1e6,
        "seconds between the beginnings of windows that are taken of a clip longer than the vision tokenizer's, each a "
        "sample with the caption of the whole; 0: windows.most of them, evenly spread, or the beginning alone"),
    ROW(windows.most, "windows.most", INTEGER, "0", 0, 1e9, "most windows of a clip; 0: no limit"),
    ROW(shard_bytes, "shard_bytes", INTEGER, "268435456", 4096, 1e12, "size at which a shard file ends"),
    CURATE_ROWS(struct prepare_settings),
    ROW(stream.on, "stream.on", BOOL, "false", 0, 0,
        "prepare while a stage trains on it, a few shards ahead: this stage ends at once, and only `pretrain` and "
        "`sft` "
        "can read it"),
    ROW(stream.parts, "stream.parts", INTEGER, "1", 1, 4096,
        "processes that prepare, each every n-th file; their shards are read in turns"),
    ROW(stream.shards, "stream.shards", INTEGER, "4", 1, 1e6, "shards of a part that may be ahead of the reader"),
    ROW(stream.bytes, "stream.bytes", INTEGER, "0", 0, 1e15, "and their bytes; 0: no limit"),
    ROW(stream.keep, "stream.keep", BOOL, "false", 0, 0,
        "keep shards that every checkpoint has passed, until the stage is done"),
    ROW(part, "part", STRING, "", 0, 0,
        "i/n: of the files of `data`, in the order `weft inspect` lists them, those whose number, from 0, leaves i "
        "when "
        "divided by n; the n folders together hold the samples of one without"),
    {0}};
