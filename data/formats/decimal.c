/* Converts decimals to text with all their digits. */
#include "data/formats/decimal.h"

#include <stdlib.h>
#include <string.h>

enum { LIMB_DIGITS = 9, LIMB = 1000000000, DIGITS_MOST = 162 /* 18 limbs */ };

/* Decimal digits of a big-endian number, lowest first. Destroys the number. Returns their count, at
 * least 1. */
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

struct json *json_of_decimal(const u8 *bytes, i64 length, i64 scale)
{
    u8 number[DECIMAL_BYTES_MOST];
    char digits[DIGITS_MOST + DECIMAL_SCALE_MOST + 1], text[DIGITS_MOST + DECIMAL_SCALE_MOST + 4];
    if (length < 1 || length > DECIMAL_BYTES_MOST || labs(scale) > DECIMAL_SCALE_MOST)
        return NULL;
    bool negative = bytes[0] & 0x80;
    memcpy(number, bytes, (size_t)length);
    if (negative)
        negate(number, length);
    i64 count = take_digits(digits, number, length), at = 0;
    bool zero = count == 1 && digits[0] == '0';
    while (count <= scale)
        digits[count++] = '0';
    if (negative)
        text[at++] = '-';
    for (i64 i = count - 1; i >= 0; i--) {
        text[at++] = digits[i];
        if (i == scale && scale > 0)
            text[at++] = '.';
    }
    for (i64 i = scale; i < 0 && !zero; i++)
        text[at++] = '0';
    return json_of_utf8(text, at);
}
