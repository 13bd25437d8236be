/* What the reports of pictures share: contact sheets, edges, structural similarity. */
#ifndef WEFT_TOKENIZER_TRAINING_PICTURE_REPORT_H
#define WEFT_TOKENIZER_TRAINING_PICTURE_REPORT_H
#include "core/json.h"
#include "data/media/media.h"

/* A contact sheet of items, each of `parts` pictures of one size: an original and what was made of it. Stills: the
 * parts of an item side by side, several items in a row. Clips: the frames in a row, each part below the other. */
enum { SHEET_COLUMNS = 8 };
struct picture_sheet {
    u8 *pixels;
    i64 height, width; /* size of one picture */
    i64 rows, columns; /* number of pictures */
    i64 parts, items, frames;
};
struct picture_sheet picture_sheet_open(i64 height, i64 width, i64 frames, i64 items, i64 parts);
/* Pictures of an item, [frames, height, width, 3] each; an item beyond the sheet is left out. */
void picture_sheet_put(struct picture_sheet *sheet, i64 item, const u8 *const parts[]);
/* Writes FOLDER/samples/NAME, and releases the sheet. -1: a message. */
int picture_sheet_close(struct picture_sheet *sheet, const char *folder, const char *name);
/* Description of the sheet that lets a reader cut it apart. */
struct json *picture_sheet_json(const struct picture_sheet *sheet, const char *name, double rate_hz);

/* Sum of the absolute differences of neighbouring pixels, across and down, within the picture of a clip's
 * frames; margins 0: it has none. */
double picture_edges(const struct clip *item, const u8 *pixels);
/* Mean structural similarity of the luminance of a clip's frames and of `pixels`, within its picture: windows of
 * 11 x 11 pixels with Gaussian weights of deviation 1.5, K1 .01, K2 .03 (Wang et al. 2004, "Image quality
 * assessment", eq. 13). Smaller pictures have one window. */
double picture_similarity(const struct clip *item, const u8 *pixels);
#endif
