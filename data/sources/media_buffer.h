/* Random access to media that can only be read in order (in compressed archives and tables) and do
 * not fit into memory. They are grouped into windows, runs of consecutive media, and one window is
 * held at a time.
 *
 * The order and sizes of the media determine the windows, so draws depend on indices alone, and a
 * resumed run finds the same windows. Archives are read on as later windows are requested, and from
 * the beginning for an earlier one. For use by one thread at a time. */
#ifndef WEFT_DATA_SOURCES_MEDIA_BUFFER_H
#define WEFT_DATA_SOURCES_MEDIA_BUFFER_H
#include "data/sources/media_list.h"

struct media_buffer;
struct media_buffer_kind { /* Functions that read and release the content held for each medium. */
    i64 content_bytes;
    int (*read)(void *context, void *content, const struct medium *medium, const struct file_view *file);
    void (*release)(void *content);
    void *context; /* borrowed, like the request's pointers */
};
struct media_buffer *media_buffer_open(const struct media_request *request, const struct media_buffer_kind *kind,
                                       i64 most_bytes);
/* Adds a medium: its number in the request (media_list.h) and the bytes of its content. Returns its
 * index. */
i64 media_buffer_add(struct media_buffer *buffer, i64 number, i64 bytes);
i64 media_buffer_count(const struct media_buffer *buffer); /* buffer NULL: 0 */
i64 media_buffer_windows(const struct media_buffer *buffer);
i64 media_buffer_window_of(const struct media_buffer *buffer, i64 index); /* window of a medium */
/* First index of a window; the count for at = windows. */
i64 media_buffer_window_begin(const struct media_buffer *buffer, i64 at);
/* The content of a medium, valid until a medium of another window is requested. NULL: a message. */
const void *media_buffer_get(struct media_buffer *buffer, i64 index);
/* Permutes 0..count-1: media are shuffled within each window, windows stay in order. Drawn under
 * RNG_SHUFFLE. */
void media_buffer_order(i32 *out, const struct media_buffer *buffer, u64 seed, u32 epoch, u32 which);
void media_buffer_close(struct media_buffer *buffer);

#endif
