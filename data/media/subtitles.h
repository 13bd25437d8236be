/* What is said when: SubRip (.srt) and WebVTT (.vtt), which both are times with an arrow between them, lines of text,
 * and an empty line. */
#ifndef WEFT_DATA_SUBTITLES_H
#define WEFT_DATA_SUBTITLES_H
#include "core/core.h"

bool subtitles_named(const char *path);
/* The text of the cues that are shown between from_s and until_s, in their order, without markup, a space between two.
 * Returns how many cues there are, whenever they are shown; 0: it is no such file. */
i64 subtitles_words(struct text *out, const char *file, i64 bytes, double from_s, double until_s);
/* The words of an event of Advanced SubStation Alpha, as libav gives every text: eight fields and a comma each, then
 * the text on one line. What is drawn is left out. */
void subtitles_event(struct text *out, const char *event);
void subtitles_write(struct text *out, double begin_s, double end_s, const char *words); /* a cue of SubRip */
#endif
