/* Code words in training (codebook_move in kernels.h). A word is running sum / running count; the sum is word . count,
 * so the count alone is kept. */
#ifndef WEFT_CODEBOOK_H
#define WEFT_CODEBOOK_H
#include "kernels/formula.h"

/* Running count, `before` of it already multiplied by decay. */
FORMULA double moved_count(double before, double count, double decay)
{
    return before + (1 - decay) * count;
}

/* One element of a word that rows of this sum were nearest to. */
FORMULA float moved_word(float word, double sum, double before, double after, double decay)
{
    return (float)((before * (double)word + (1 - decay) * sum) / after);
}

#endif
