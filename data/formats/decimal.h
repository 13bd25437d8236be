/* Decimals of tables, which JSON has no numbers for: text with all their digits. */
#ifndef WEFT_DATA_DECIMAL_H
#define WEFT_DATA_DECIMAL_H
#include "core/json.h"

enum { DECIMAL_BYTES_MOST = 64, DECIMAL_SCALE_MOST = 154 /* digits of so many bytes */ };
/* Of a big-endian number in two's complement; scale: digits behind the point, below 0: zeros behind the number. NULL:
 * too long. */
struct json *json_of_decimal(const u8 *bytes, i64 length, i64 scale);
#endif
