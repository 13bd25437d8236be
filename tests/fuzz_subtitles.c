/* Subtitles: no bytes may crash the reader, and no window may hold more words than the file. */
#include "data/subtitles.h"

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
    struct text all = {0}, some = {0};
    i64 cues = subtitles_words(&all, (const char *)bytes, (i64)count, -1, 1e300);
    require(subtitles_words(&some, (const char *)bytes, (i64)count, 1, 60) == cues, "cues depend on the window");
    require(some.length <= all.length && all.length <= (i64)count + cues, "words out of nothing");
    text_release(&all);
    text_release(&some);
    return 0;
}
