/* Regular expressions with Oniguruma's meaning (^ and $ at every line, \s of Unicode), run by PCRE2: of tokenizer.json,
 * and of rewards. */
#ifndef WEFT_TOKENIZERS_REGEX_H
#define WEFT_TOKENIZERS_REGEX_H
#include "core/core.h"

struct regex;
struct regex_scratch; /* what one thread needs to match; one serves all expressions */
struct regex *regex_open(const char *pattern, const char *origin);      /* Oniguruma's meaning; NULL: message */
struct regex *regex_open_rust(const char *pattern, const char *origin); /* as Rust means it: $ is the text's end */
void regex_close(struct regex *regex);
struct regex_scratch *regex_scratch_open(void);
void regex_scratch_close(struct regex_scratch *scratch);
/* 1: found, 0: no match at or after `from`, -1: message. */
int regex_find(i64 *begin, i64 *end, const struct regex *regex, struct regex_scratch *scratch, const u8 *text, i64 from,
               i64 length);

#endif
