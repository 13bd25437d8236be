/* Replaces language.c in a build without libexttextcat: filter.languages is refused. */
#include "data/curate/language.h"

int languages_check(const struct string_list *wanted)
{
    (void)wanted;
    return 0;
}

struct languages *languages_open(const struct string_list *wanted)
{
    (void)wanted;
    error_usage("filter.languages: this program was built without libexttextcat: install libexttextcat-dev and "
                "libexttextcat-data and build it again, or leave the setting out");
    return NULL;
}

void languages_close(struct languages *languages)
{
    (void)languages;
}

double languages_nearness(const struct languages *languages, const char *text, i64 length)
{
    (void)languages, (void)text, (void)length;
    return 1;
}
