/* Parses and writes subtitles: SubRip (.srt) and WebVTT (.vtt). Both consist of a line with two
 * times and an arrow, lines of text, and an empty line. */
#ifndef WEFT_DATA_SUBTITLES_H
#define WEFT_DATA_SUBTITLES_H
#include "core/core.h"

bool subtitles_named(const char *path);
/* Appends the text of the cues shown between from_s and until_s, in order, without markup,
 * separated by spaces. Returns the number of cues in the whole file; 0: not a subtitle file. */
i64 subtitles_words(struct buffer *out, const char *file, i64 bytes, double from_s, double until_s);
/* Appends the words of an Advanced SubStation Alpha event, libav's form for all subtitles: eight
 * comma-terminated fields, then the text on one line. Drawings are left out. */
void subtitles_event(struct buffer *out, const char *event);
/* Appends one SubRip cue. */
void subtitles_write(struct buffer *out, double begin_s, double end_s, const char *words);
#endif
