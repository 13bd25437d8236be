/* Values that JSON has no numbers for, as text: decimals with all their digits, and the timestamps of 96 bits that
 * Impala and Spark wrote. */
#include "core/json.h"
#include "data/parquet_inside.h"

#include <string.h>

enum { LIMB_DIGITS = 9, LIMB = 1000000000, BYTES_MOST = 64, DIGITS_MOST = 162 /* 18 limbs */ };

/* Digits of a number of big-endian bytes, which it uses up, the lowest first; how many, at least one. */
static i64 take_digits(char digits[DIGITS_MOST], u8 *number, i64 length)
{
    i64 count = 0;
    for (i64 first = 0; first < length;) {
        u64 rest = 0;
        for (i64 i = first; i < length; i++) {
            rest = rest << 8 | number[i];
            number[i] = (u8)(rest / LIMB);
            rest %= LIMB;
        }
        while (first < length && number[first] == 0)
            first++;
        for (int i = 0; i < LIMB_DIGITS; i++, rest /= 10)
            digits[count++] = (char)('0' + rest % 10);
    }
    while (count > 1 && digits[count - 1] == '0')
        count--;
    return count;
}

static void negate(u8 *number, i64 length)
{
    int carry = 1;
    for (i64 i = length - 1; i >= 0; i--) {
        int sum = (u8)~number[i] + carry;
        number[i] = (u8)sum;
        carry = sum >> 8;
    }
}

struct json *parquet_decimal(const u8 *bytes, i64 length, i64 scale)
{
    u8 number[BYTES_MOST];
    char digits[DIGITS_MOST + PARQUET_SCALE_MOST + 1], text[DIGITS_MOST + PARQUET_SCALE_MOST + 4];
    if (length < 1 || length > BYTES_MOST)
        return NULL;
    bool negative = bytes[0] & 0x80;
    memcpy(number, bytes, (size_t)length);
    if (negative)
        negate(number, length);
    i64 count = take_digits(digits, number, length), at = 0;
    while (count <= scale)
        digits[count++] = '0';
    if (negative)
        text[at++] = '-';
    for (i64 i = count - 1; i >= 0; i--) {
        text[at++] = digits[i];
        if (i == scale && scale > 0)
            text[at++] = '.';
    }
    return json_of_utf8(text, at);
}

struct json *parquet_decimal_of_integer(u64 bits, i64 width, i64 scale)
{
    u8 bytes[8];
    for (i64 i = 0; i < width; i++)
        bytes[i] = (u8)(bits >> 8 * (width - 1 - i));
    return parquet_decimal(bytes, width, scale);
}

/* Of a day since 1970-01-01, in the calendar of today (Hinnant, "chrono-Compatible Low-Level Date Algorithms"). */
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

/* Nanoseconds of a day, then the Julian day, of which 1970-01-01 is 2440588. */
struct json *parquet_timestamp(const u8 *bytes)
{
    const i64 second = 1000000000, all_day = 86400 * second;
    i64 nanoseconds, year;
    u32 julian;
    int month, day;
    struct text out = {0};
    memcpy(&nanoseconds, bytes, 8);
    memcpy(&julian, bytes + 8, 4);
    i64 passed = nanoseconds / all_day - (nanoseconds % all_day < 0);
    nanoseconds -= passed * all_day;
    date_of(&year, &month, &day, (i64)julian - 2440588 + passed);
    i64 seconds = nanoseconds / second;
    text_printf(&out, "%04lld-%02d-%02dT%02d:%02d:%02d", (long long)year, month, day, (int)(seconds / 3600),
                (int)(seconds / 60 % 60), (int)(seconds % 60));
    if (nanoseconds % second)
        text_printf(&out, ".%09d", (int)(nanoseconds % second));
    struct json *value = json_of_utf8(out.data, out.length);
    text_release(&out);
    return value;
}
