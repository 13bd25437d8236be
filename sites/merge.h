/* What a site sends in a round, and how parts of several sites become one change. No sockets and no ranks.
 *
 *     part    head | use of the experts of the fragment's layers, f64 | codes
 *     record  number of parts | bytes, part | bytes, part | ...            in the order of names */
#ifndef WEFT_SITES_MERGE_H
#define WEFT_SITES_MERGE_H
#include "core/core.h"

enum { SITE_NAME_BYTES = 40, SITES_MOST = 64 };
struct part_head {
    char name[SITE_NAME_BYTES]; /* ends with 0 */
    double tokens;              /* since the last merge of the fragment with this site */
    i32 bits;
    i32 omitted; /* 1: the receiver has the codes, they are its own */
    i64 uses, code_bytes;
};
struct part { /* a view */
    struct part_head head;
    const u8 *use; /* head.uses numbers of 8 bytes, not aligned */
    const u8 *codes;
};
struct record { /* a view */
    struct part parts[SITES_MOST];
    i64 count;
};
/* Sizes that a part must have. */
struct part_sizes {
    i64 uses, code_bytes[33]; /* by bits; 0: not known */
};
bool site_name_is_good(const char *name); /* 1 to 39 letters, digits, or one of -_. */
void part_write(struct buffer *out, const struct part_head *head, const double *use, const u8 *codes);
/* -1 and a message if it is no part of these sizes. */
int part_read(struct part *out, const u8 *data, i64 bytes, const struct part_sizes *sizes);
double part_use(const struct part *part, i64 i);
/* Appends a record of serialized parts in the order of names; the codes of `without` (NULL: of none) are left out. */
void record_write(struct buffer *out, const struct buffer *parts, i64 count, const char *without);
/* -1 and a message; also if parts are not in the order of different names. */
int record_read(struct record *out, const u8 *data, i64 bytes, const struct part_sizes *sizes);
const struct part *record_find(const struct record *record, const char *name); /* NULL: it is not there */
/* share [count] of the parts: by tokens, or by use `use` of an expert (-1: none) if any site has used it.
 * They add up to 1, or are all 0 if no site has seen a token. */
void record_shares(double *share, const struct record *record, i64 use);
/* Numbers one behind the other that have the same shares: number i of a window is in run (first + i) / each - first /
 * each. shares [runs, SITES_MOST]. */
struct share_runs {
    i64 first, each;
    const double *shares;
};
/* change [count] = sum over parts, in their order, of share * numbers whose codes begin at `at` (by bits). exact: they
 * have 32 bits in any part. scratch [count]. -1 and a message: some are not finite. */
int record_change(float *change, float *scratch, const struct record *record, const struct share_runs *runs,
                  const i64 at[33], bool exact, i64 count);
#endif
