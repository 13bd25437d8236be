/* Word overlap between captions and the texts a model generates from the media. */
#ifndef WEFT_CAPTION_ACCURACY_H
#define WEFT_CAPTION_ACCURACY_H
#include "core/core.h"

struct caption_accuracy {
    double right, low, high; /* mean over pairs; bounds of its 95 % bootstrap interval (Efron 1979) */
    double exchanged;        /* the mean with mismatched captions: the baseline that common words give */
};

/* Finds the next word of *text, between white space, and moves *text behind it. Returns its length; 0
 * at the end. */
i64 caption_next_word(const char **word, const char **text);
/* Dice coefficient over words, 0 to 1: 2 common / (words of the caption + words generated). A word
 * counts as common as often as both texts have it. Words are separated by white space and compared
 * without ASCII case. 0 if both texts are empty. */
double caption_accuracy(const char *caption, const char *said);
/* Scores said[i] against captions[i]. count is 1 to some hundreds, since all pairs are compared;
 * with 1 pair `exchanged` is 0. key: random numbers for the bootstrap. */
struct caption_accuracy caption_accuracy_all(char *const *captions, char *const *said, i64 count, struct rng_key key);

#endif
