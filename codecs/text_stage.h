/* The stage `tokenizer-text`: byte-level BPE trained on the texts of a folder, saved as tokenizer.json. */
#ifndef WEFT_CODECS_TEXT_STAGE_H
#define WEFT_CODECS_TEXT_STAGE_H
#include "train/train.h"

struct text_settings {
    char *data;
    i64 vocabulary, bytes;
    double bad_share; /* of samples that could not be read: more is an error */
    int family;
    bool nfc;
    struct string_list special;
};
extern const struct setting text_stage_table[];
int text_stage(const void *settings, const struct stage *stage);
#endif
