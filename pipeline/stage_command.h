/* The stage `command`: runs a program, which writes into the stage's folder. */
#ifndef WEFT_PIPELINE_STAGE_COMMAND_H
#define WEFT_PIPELINE_STAGE_COMMAND_H
#include "core/settings.h"
#include "train/train.h"

struct command_settings {
    struct string_list argv;
};
extern const struct setting command_table[];
int command_check_settings(const void *settings);
int command_stage(const void *settings, const struct stage *stage);
#endif
