/* Media that can be read in order alone (of packed archives and of tables) and are more than memory has room for: as
 * windows, runs of media that follow each other, of which one is held at a time. Which media are in which window their
 * order and sizes say, so what is drawn from them is known by numbers alone, and a run that was cut short finds the
 * same window again. The archives are read as the windows follow each other, and once more from the beginning for a
 * window that stands before. For one thread at a time. */
#ifndef WEFT_DATA_MEDIA_WINDOW_H
#define WEFT_DATA_MEDIA_WINDOW_H
#include "data/sources/media_list.h"

struct media_window;
struct media_window_kind { /* of what is held */
    i64 content_bytes;
    int (*read)(void *context, void *content, const struct medium *medium, const struct file_view *file);
    void (*release)(void *content);
    void *context; /* borrowed, as what the request names is */
};
struct media_window *media_window_open(const struct media_request *request, const struct media_window_kind *kind,
                                       i64 most_bytes);
/* The next medium: its number among those that the request gives, and the bytes of its content. Returns its index. */
i64 media_window_add(struct media_window *window, i64 number, i64 bytes);
i64 media_window_count(const struct media_window *window); /* NULL: 0 */
i64 media_window_windows(const struct media_window *window);
i64 media_window_of(const struct media_window *window, i64 index); /* in which it stands */
i64 media_window_begin(const struct media_window *window, i64 at); /* index of its first; at windows: the count */
/* What was read of a medium, until one of another window is asked for. NULL: message. */
const void *media_window_get(struct media_window *window, i64 index);
/* 0..count-1 with every window's media shuffled and the windows in order, drawn under RNG_SHUFFLE. */
void media_window_order(i32 *out, const struct media_window *window, u64 seed, u32 epoch, u32 which);
void media_window_close(struct media_window *window);

#endif
