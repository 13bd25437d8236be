/* The day that strftime_now of a chat template gives. */
#define _GNU_SOURCE /* timegm */
#include "tokenizers/text/chat_inside.h"

#include <stdio.h>
#include <time.h>

/* Noon of the day in UTC; false: the text is none. */
static bool day_seconds(i64 *unix_s, const char *day)
{
    struct tm parts = {.tm_hour = 12}, given;
    int end = 0;
    if (sscanf(day, "%4d-%2d-%2d%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &end) != 3 || day[end] || end != 10)
        return false;
    parts.tm_year -= 1900;
    parts.tm_mon--;
    given = parts;
    time_t time = timegm(&parts);
    *unix_s = (i64)time;
    return parts.tm_mon == given.tm_mon && parts.tm_mday == given.tm_mday;
}

void chat_today(char day[CHAT_DAY])
{
    struct tm parts;
    time_t now = time(NULL);
    localtime_r(&now, &parts);
    strftime(day, CHAT_DAY, "%Y-%m-%d", &parts);
}

int chat_check_day(const char *day)
{
    i64 unix_s;
    return !day || !*day || day_seconds(&unix_s, day)
               ? 0
               : error_usage("day: \"%s\": expected a day as YYYY-MM-DD, such as 2026-01-31", day);
}

int text_chat_set_day(struct text_tokenizer *tokenizer, const char *day)
{
    tokenizer->has_chat_time = day && *day && day_seconds(&tokenizer->chat_time_s, day);
    return chat_check_day(day);
}

bool text_chat_reads_clock(const struct chat *chat)
{
    bool reads = false;
    for (int k = 0; k < CHAT_PROGRAMS; k++)
        reads |= chat->programs[k].program && template_reads_clock(chat->programs[k].program);
    return reads;
}
