/* Which language a text is in: libexttextcat's profiles of its most frequent runs of 1 to 5 characters (Cavnar and
 * Trenkle 1994), compared by rank. */
#ifndef WEFT_DATA_LANGUAGE_H
#define WEFT_DATA_LANGUAGE_H
#include "core/settings.h"

struct languages;
/* Wanted are names of profiles, BCP 47 (de, zh-Hant), or their beginnings (zh: zh-Hans and zh-Hant). NULL: a message.
 */
struct languages *languages_open(const struct string_list *wanted);
void languages_close(struct languages *languages);
/* 1: of all profiles one that is wanted is the nearest; else the distance of the nearest by that of the nearest wanted
 * one, in (0, 1). What stands there in other scripts than most of it is passed over; a text without letters has 1. On
 * any thread. UTF-8 that is known to be whole. */
double languages_nearness(const struct languages *languages, const char *text, i64 length);
#endif
