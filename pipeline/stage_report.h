/* The stage `report`: the HTML page of its run. */
#ifndef WEFT_PIPELINE_STAGE_REPORT_H
#define WEFT_PIPELINE_STAGE_REPORT_H
#include "train/train.h"

extern const struct setting report_table[];                        /* empty */
int report_stage(const void *settings, const struct stage *stage); /* $OUT/report.html and RUN/report.html */
#endif
