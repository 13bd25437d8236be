/* How much of what is said of media is in their captions. */
#ifndef WEFT_STUDIO_WORDS_RIGHT_H
#define WEFT_STUDIO_WORDS_RIGHT_H
#include "core/core.h"

struct words_right {
    double right, low, high; /* mean over the pairs, and its 95 % interval by resampling them (Efron 1979) */
    double exchanged;        /* the same with each caption of another text: what common words alone give */
};

/* 2 common / (words of the caption + words said), 0..1: common words as often as both have them, ASCII letters in any
 * case, divided by white space; without a word on either side 0. */
double words_right(const char *caption, const char *said);
/* said[i] of captions[i]; from 1 to some hundreds of pairs, of which one alone has nothing to be exchanged with: 0. */
struct words_right words_right_all(char *const *captions, char *const *said, i64 count, struct rng_key key);

#endif
