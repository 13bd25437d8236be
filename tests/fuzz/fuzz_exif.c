/* Fuzz target: EXIF and TIFF tags; no bytes may cause an out-of-bounds read. */
#include "data/media/picture.h"

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
    enum { COMPRESSION = 259 };
    int orientation = exif_orientation(bytes, (i64)count), number = tiff_number(bytes, (i64)count, COMPRESSION);
    require(orientation >= 0 && orientation <= 8 && number >= 0 && number <= 0xffff, "a value that no tag holds");
    return 0;
}
