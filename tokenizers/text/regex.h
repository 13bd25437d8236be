/* Regular expressions of tokenizer.json files and of rewards, run by PCRE2. Patterns have
 * Oniguruma's semantics (^ and $ match at every line, \s is Unicode) or those of Rust. The caller
 * closes what an open function returns. */
#ifndef WEFT_TOKENIZERS_REGEX_H
#define WEFT_TOKENIZERS_REGEX_H
#include "core/core.h"

struct regex;
struct regex_scratch; /* match state of one thread; works with all expressions */
struct regex *regex_open(const char *pattern, const char *origin);      /* Oniguruma's semantics; NULL: message */
struct regex *regex_open_rust(const char *pattern, const char *origin); /* $ is the end of the text; NULL: message */
void regex_close(struct regex *regex);
struct regex_scratch *regex_scratch_open(void);
void regex_scratch_close(struct regex_scratch *scratch);
/* Finds the first match at or after `from`. Returns 1 with [begin, end), 0 for no match, -1 with a
 * message. */
int regex_find(i64 *begin, i64 *end, const struct regex *regex, struct regex_scratch *scratch, const u8 *text, i64 from,
               i64 length);

#endif
