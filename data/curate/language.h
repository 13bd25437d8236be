/* Language identification with libexttextcat: ranked profiles of the most frequent character
 * n-grams, n = 1 to 5 (Cavnar and Trenkle 1994). */
#ifndef WEFT_DATA_LANGUAGE_H
#define WEFT_DATA_LANGUAGE_H
#include "core/settings.h"

struct languages;
/* -1 and a message if a name is that of no profile. Without profiles, which languages_open refuses, 0. */
int languages_check(const struct string_list *wanted);
/* Loads all profiles. `wanted` holds BCP 47 profile names (de, zh-Hant) or their prefixes (zh:
 * zh-Hans and zh-Hant). Returns NULL with a message on failure. */
struct languages *languages_open(const struct string_list *wanted);
void languages_close(struct languages *languages);
/* Returns 1 if the nearest profile is a wanted one, else the nearest distance divided by the
 * nearest wanted distance, in (0, 1). Only letters of the text's main script count; a text without
 * letters yields 1. Expects valid UTF-8. Thread-safe. */
double languages_nearness(const struct languages *languages, const char *text, i64 length);
#endif
