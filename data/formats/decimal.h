/* Converts decimals of tables to text with all their digits, since JSON numbers cannot hold
 * them. */
#ifndef WEFT_DATA_DECIMAL_H
#define WEFT_DATA_DECIMAL_H
#include "core/json.h"

enum { DECIMAL_BYTES_MOST = 64, DECIMAL_SCALE_MOST = 154 /* digits of a 64-byte number */ };
/* Text of a big-endian two's complement number. scale: digits after the decimal point; if negative,
 * zeros to append. NULL: too long. */
struct json *json_of_decimal(const u8 *bytes, i64 length, i64 scale);
#endif
