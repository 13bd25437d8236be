/* Fuzz target: EXIF; no bytes may cause an out-of-bounds read. */
#include "data/media/picture.h"

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
    int orientation = exif_orientation(bytes, (i64)count);
    require(orientation >= 0 && orientation <= 8, "a value that no tag holds");
    return 0;
}
