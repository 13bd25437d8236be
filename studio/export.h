/* The text backbone for other software. What was written is read again and compared before it is called done. */
#ifndef WEFT_STUDIO_EXPORT_H
#define WEFT_STUDIO_EXPORT_H
#include "train/train.h"

/* dtype DTYPE_OTHER: as stored. out must not exist. */
int export_hf(const char *model, const char *out, enum dtype dtype, struct device *device);
int export_gguf(const char *model, const char *out, enum dtype dtype, struct device *device);

struct export_settings {
    char *from;
    int to, dtype;
};
extern const struct setting export_table[];
int export_stage(const void *settings, const struct stage *stage); /* $OUT/hf or $OUT/model.gguf */
#endif
