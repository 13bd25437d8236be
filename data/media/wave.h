/* Sounds as samples in a file (WAV, RF64, W64, AIFF, AU, CAF), and Vorbis and Opus in Ogg, through
 * libsndfile.
 *
 *   content                                              reader
 *   PCM of 8 to 32 bits, valid bits of any number,
 *   float, A-law, mu-law, ADPCM, GSM, ALAC in CAF,
 *   Vorbis and Opus alone in Ogg                         libsndfile (here)
 *   anything else in those files (MP3 in WAV, AAC in
 *   CAF, PCM of 64 bits), and all other files            libav (av_sound.c)
 *
 * Float samples may go beyond -1 and 1. They are scaled: whole numbers, as programs write that keep
 * 16-bit values as floats, by the range of 16, 24 or 32 bits, others by the largest one. */
#ifndef WEFT_DATA_WAVE_H
#define WEFT_DATA_WAVE_H
#include "data/media/file_kind.h"

struct wave_reader;
/* 1: opened; 0: a file for libav; -1: a message. The bytes are borrowed until it is closed. */
int wave_open(struct wave_reader **out, const void *bytes, i64 count, const char *origin, const struct file_kind *kind);
void wave_close(struct wave_reader *wave); /* NULL is allowed */
int wave_rate_hz(const struct wave_reader *wave);
i64 wave_samples(const struct wave_reader *wave); /* of a channel */
/* The mean of the channels of the next samples. Returns their number, 0 at the end; -1: a
 * message. */
i64 wave_read(struct wave_reader *wave, float *mono, i64 most);
#endif
