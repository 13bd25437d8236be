/* Fuzz target: subtitles; no bytes may crash the reader, no window may hold more words than the
 * file, and the words of an event form one cue. */
#include "data/media/subtitles.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
    struct buffer all = {0}, some = {0};
    i64 cues = subtitles_words(&all, (const char *)bytes, (i64)count, -1, 1e300);
    require(subtitles_words(&some, (const char *)bytes, (i64)count, 1, 60) == cues, "cues depend on the window");
    require(some.length <= all.length && all.length <= (i64)count + cues, "words out of nothing");
    struct buffer event = {0}, words = {0};
    buffer_append(&event, bytes, (i64)count);
    buffer_append(&event, "", 1);
    subtitles_event(&words, event.data);
    require(words.length <= (i64)count && !memchr(words.data ? words.data : "", '\n', (size_t)words.length),
            "words of an event");
    buffer_clear(&all);
    if (words.length)
        subtitles_write(&all, 1.5, 2, words.data);
    buffer_clear(&some);
    require(words.length == 0 || subtitles_words(&some, all.data, all.length, 0, 3) == 1, "a cue that is not read");
    buffer_release(&event);
    buffer_release(&words);
    buffer_release(&all);
    buffer_release(&some);
    return 0;
}
