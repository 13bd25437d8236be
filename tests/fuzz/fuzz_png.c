/* Fuzz target: PNG; no bytes may crash the reader, and an accepted picture has the stated size.
 * (Large pictures in few bytes fill the address sanitizer's quarantine: run with
 * ASAN_OPTIONS=quarantine_size_mb=8.) */
#include "data/media/media.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
    struct clip clip;
    if (count < 8 || memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) != 0)
        return 0; /* other stills belong to fuzz_media */
    if (image_read(&clip, bytes, (i64)count, "fuzz.png") < 0) {
        require(!clip.pixels && strstr(error_text(), "fuzz.png"), "a refused picture leaves no message");
        return 0;
    }
    require(clip.frames == 1 && clip.height > 0 && clip.width > 0, "a picture without size");
    volatile u8 last = clip.pixels[clip.height * clip.width * 3 - 1];
    (void)last;
    clip_release(&clip);
    return 0;
}
