/* Cuts photographs of a folder into squares. All squares of a photograph are in one part. */
#include "corpus/corpus.h"

#include <string.h>

enum { HALVINGS = 1 };

struct corpus_photos {
    const struct corpus *corpus;
    char **names;
    enum split *splits; /* of each photograph */
    i64 *squares;       /* cut from each so far; 0: it is no picture, or too small */
};

/* Writes the squares of a picture in its size, side by side from its middle, as NAME-HALVING-ROW-COLUMN.png. */
static int cut_squares(struct corpus_photos *photos, i64 item, const struct clip *picture, i64 halving)
{
    i64 size = photos->corpus->size, down = picture->height / size, across = picture->width / size;
    i64 top = (picture->height - down * size) / 2, left = (picture->width - across * size) / 2;
    u8 *square = memory_alloc(size * size * 3);
    int status = 0;
    for (i64 i = 0; i < down * across && status == 0; i++) {
        struct buffer png = {0};
        const u8 *from = picture->pixels + ((top + i / across * size) * picture->width + left + i % across * size) * 3;
        char *name = string_format("image/%s-%lld-%lld-%lld.png", photos->names[item], (long long)halving,
                                   (long long)(i / across), (long long)(i % across));
        for (i64 y = 0; y < size; y++)
            memcpy(square + y * size * 3, from + y * picture->width * 3, (size_t)size * 3);
        image_encode_png(&png, square, size, size);
        status = corpus_save(photos->corpus, photos->splits[item], name, png.data, png.length);
        photos->squares[item]++;
        buffer_release(&png);
        memory_free(name);
    }
    memory_free(square);
    return status;
}

static int cut_photo(void *context, i64 item, int worker)
{
    struct corpus_photos *photos = context;
    char *path = path_join(photos->corpus->photos, photos->names[item]);
    struct file_view view;
    struct clip picture = {0}, half;
    (void)worker;
    if (file_is_directory(path) || file_map(&view, path) < 0) {
        memory_free(path);
        return 0;
    }
    int status = image_read(&picture, view.data, view.bytes, path) < 0 ? 0 : cut_squares(photos, item, &picture, 0);
    for (i64 halving = 1; halving <= HALVINGS && status == 0 && picture.pixels; halving++) {
        clip_init(&half, 1, max_i64(picture.height / 2, 1), max_i64(picture.width / 2, 1), 0);
        pixels_resize(half.pixels, half.height, half.width, picture.pixels, picture.height, picture.width);
        clip_release(&picture);
        picture = half;
        status = cut_squares(photos, item, &picture, halving);
    }
    clip_release(&picture);
    file_unmap(&view);
    memory_free(path);
    return status;
}

int make_photos(const struct corpus *corpus)
{
    struct corpus_photos photos = {.corpus = corpus};
    i64 count, seen[SPLITS] = {0}, squares[SPLITS] = {0};
    if (directory_list(&photos.names, &count, corpus->photos) < 0)
        return -1;
    photos.splits = memory_alloc(max_i64(count, 1) * (i64)sizeof *photos.splits);
    photos.squares = memory_alloc(max_i64(count, 1) * (i64)sizeof *photos.squares);
    i32 *order = memory_alloc(max_i64(count, 1) * (i64)sizeof *order);
    rng_permutation(order, count, corpus->key, DRAW_PHOTOS, 0);
    for (i64 i = 0; i < count; i++) /* of four, one is held out */
        photos.splits[order[i]] = i % 4 == 3 ? SPLIT_VALIDATION : SPLIT_TRAIN;
    int status = run_items("photographs", count, cut_photo, &photos);
    for (i64 i = 0; i < count; i++) {
        seen[photos.splits[i]] += photos.squares[i] > 0;
        squares[photos.splits[i]] += photos.squares[i];
    }
    if (status == 0 && (!squares[SPLIT_TRAIN] || !squares[SPLIT_VALIDATION]))
        status =
            error_set("%s: %lld %s of %lld pixels or more a side for training, %lld to hold out; expected some of "
                      "each: give a folder of at least 4 photographs",
                      corpus->photos, (long long)seen[SPLIT_TRAIN], plural(seen[SPLIT_TRAIN], "picture", "pictures"),
                      (long long)corpus->size, (long long)seen[SPLIT_VALIDATION]);
    if (status == 0)
        log_info("%lld squares of %lld photographs for training, %lld of %lld for validation",
                 (long long)squares[SPLIT_TRAIN], (long long)seen[SPLIT_TRAIN], (long long)squares[SPLIT_VALIDATION],
                 (long long)seen[SPLIT_VALIDATION]);
    string_list_free(photos.names, count);
    memory_free(photos.splits);
    memory_free(photos.squares);
    memory_free(order);
    return status;
}
