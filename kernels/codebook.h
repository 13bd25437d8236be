/* Update of code words during training (codebook_move in kernels.h). A word is its running sum
 * divided by its running count. Only the count is stored: the sum is word times count. */
#ifndef WEFT_CODEBOOK_H
#define WEFT_CODEBOOK_H
#include "kernels/formula.h"

/* The new running count. `before` is the old count, already multiplied by decay. */
FORMULA double moved_count(double before, double count, double decay)
{
    return before + (1 - decay) * count;
}

/* Whether a word is to be replaced: unseen for more than `patience` calls, or with a running count below
 * the share `least` of an even one. */
FORMULA int is_worn(float use, float unseen, double least, long patience, double even)
{
    return unseen > (float)patience || (double)use < least * even;
}

/* One element of a word. `sum` adds up that element of the rows whose nearest word it is. */
FORMULA float moved_word(float word, double sum, double before, double after, double decay)
{
    return (float)((before * (double)word + (1 - decay) * sum) / after);
}

#endif
