/* Whether work fits into a GPU, said before it begins. What will be opened and run there is opened and run on a meta
 * backend first, by the same code: nothing is computed, and arenas grow by the same blocks. */
#ifndef WEFT_REHEARSAL_H
#define WEFT_REHEARSAL_H
#include "kernels/kernels.h"

struct rehearsal {
    struct device meta;
    i64 left_bytes; /* of the device's, when it was opened */
};
/* False where memory is the system's: there is nothing to close or check. */
bool rehearsal_open(struct rehearsal *rehearsal, const struct device *device);
void rehearsal_close(struct rehearsal *rehearsal);
static inline i64 rehearsal_bytes(const struct rehearsal *rehearsal) /* all it took so far, at most */
{
    return rehearsal->meta.backed_most_bytes;
}
static inline bool rehearsal_fits(const struct rehearsal *rehearsal)
{
    return rehearsal_bytes(rehearsal) <= rehearsal->left_bytes;
}
/* -1 where it does not: "WHAT takes 67.1 MB of GPU memory, 33.6 are left; INSTEAD". */
int rehearsal_check(const struct rehearsal *rehearsal, const char *what, const char *instead);

#endif
