/* Converts values without JSON numbers to text: decimals stored as integers, and the 96-bit
 * timestamps of Impala and Spark. */
#include "core/json.h"
#include "data/formats/parquet_inside.h"

#include <string.h>

struct json *parquet_decimal_of_integer(u64 bits, i64 width, i64 scale)
{
    u8 bytes[8];
    for (i64 i = 0; i < width; i++)
        bytes[i] = (u8)(bits >> 8 * (width - 1 - i));
    return json_of_decimal(bytes, width, scale);
}

/* Gregorian date of a day counted from 1970-01-01 (Hinnant, "chrono-Compatible Low-Level Date
 * Algorithms"). */
static void date_of(i64 *year, int *month, int *day, i64 days)
{
    i64 shifted = days + 719468, era = (shifted >= 0 ? shifted : shifted - 146096) / 146097,
        in_era = shifted - era * 146097;
    i64 of_era = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    i64 in_year = in_era - (365 * of_era + of_era / 4 - of_era / 100), march = (5 * in_year + 2) / 153;
    *day = (int)(in_year - (153 * march + 2) / 5 + 1);
    *month = (int)(march < 10 ? march + 3 : march - 9);
    *year = of_era + era * 400 + (*month <= 2);
}

/* INT96: nanoseconds of the day, then the Julian day; 1970-01-01 is Julian day 2440588. */
struct json *parquet_timestamp(const u8 *bytes)
{
    const i64 second = 1000000000, all_day = 86400 * second;
    i64 nanoseconds, year;
    u32 julian;
    int month, day;
    struct buffer out = {0};
    memcpy(&nanoseconds, bytes, 8);
    memcpy(&julian, bytes + 8, 4);
    i64 passed = nanoseconds / all_day - (nanoseconds % all_day < 0);
    nanoseconds -= passed * all_day;
    date_of(&year, &month, &day, (i64)julian - 2440588 + passed);
    i64 seconds = nanoseconds / second;
    buffer_printf(&out, "%04lld-%02d-%02dT%02d:%02d:%02d", (long long)year, month, day, (int)(seconds / 3600),
                  (int)(seconds / 60 % 60), (int)(seconds % 60));
    if (nanoseconds % second)
        buffer_printf(&out, ".%09d", (int)(nanoseconds % second));
    struct json *value = json_of_utf8(out.data, out.length);
    buffer_release(&out);
    return value;
}
