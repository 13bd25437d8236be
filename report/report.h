/* report: what runs left behind, as one self-contained page that one can send to a colleague. It reads run folders
 * (done.json, metrics.jsonl, other JSON, pictures, clips, sounds) and knows core/ alone.
 *
 *   run.h    a run folder as read: stages, settings, columns of metrics
 *   html.h   text, numbers, media and tables as HTML        chart.h   charts as SVG
 *   page.h   the page in the making; every section is a file that adds itself where a run has what it shows
 *
 * What is absent, or was not measured, is left out. Of several runs (seeds, settings) the page shows tables with their
 * spread and charts with a line each; pictures and sounds are in each one's own page. */
#ifndef WEFT_REPORT_H
#define WEFT_REPORT_H
#include "core/core.h"

/* runs: folders that hold run.json. -1: one that does not, or a page that cannot be written. */
int report_write(const char *out, const char *const *runs, i64 count);
/* What a person wants to know when a run is over, in a few lines of the log. */
int report_say(const char *run, const char *page);
#endif
