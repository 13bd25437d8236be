/* Dry run: checks whether work fits into GPU memory before it begins. The same code first opens and
 * runs everything on a meta backend, which computes nothing and grows its arenas by the same
 * blocks. The caller owns the struct and closes it. */
#ifndef WEFT_REHEARSAL_H
#define WEFT_REHEARSAL_H
#include "kernels/kernels.h"

struct rehearsal {
    struct device meta;
    i64 left_bytes; /* free bytes of the real device when the dry run was opened */
};
/* Opens a dry run. Returns false if the device has no memory of its own (CPU): there is nothing to
 * check or close. */
bool rehearsal_open(struct rehearsal *rehearsal, const struct device *device);
void rehearsal_close(struct rehearsal *rehearsal);
static inline i64 rehearsal_bytes(const struct rehearsal *rehearsal) /* peak bytes so far */
{
    return rehearsal->meta.backed_most_bytes;
}
static inline bool rehearsal_fits(const struct rehearsal *rehearsal)
{
    return rehearsal_bytes(rehearsal) <= rehearsal->left_bytes;
}
/* Returns 0 if it fits, otherwise -1 and sets the message "WHAT takes 67.1 MB of GPU memory, 33.6
 * are left; INSTEAD". */
int rehearsal_check(const struct rehearsal *rehearsal, const char *what, const char *instead);

#endif
