/* report: presents one or several runs as one self-contained HTML page. Input are run folders
 * (done.json, metrics.jsonl, other JSON, pictures, clips, sounds); output is a file. The folder
 * depends on core/ only.
 *
 *   run.h    reads a run folder: stages, settings, columns of metrics
 *   html.h   text, numbers and media as HTML
 *   chart.h  charts as SVG
 *   page.h   the page; each section is a source file that adds itself if the runs have its data
 *
 * In place of the folder of a recipe with arms or seeds, the runs in it are shown (arms.h): as arms,
 * or as several runs.
 *
 * Missing and unmeasured data is left out. For several runs (seeds, settings) the page shows tables
 * with the spread over runs and charts with a line per run; pictures and sounds are in each run's
 * own page.
 *
 * Where is what: report.c puts the page together, page.c has its pieces, run.c reads run folders,
 * state.c tells failed stages from running ones, figures.c collects the key figures of a run;
 * summary.c, samples.c, training.c, monitor.c, code_use.c, best.c, curation.c, submodels.c, rewards.c, routing.c,
 * tokenizers.c and settings.c are sections; media.c embeds files, style.c has CSS and script; log.c
 * prints the summary at the end of a run, markdown.c the figures of several runs as a table; arms.c,
 * arms_page.c, arms_text.c and student.c compare arms. report.c opens the runs and closes them; the
 * page and its sections borrow them. */
#ifndef WEFT_REPORT_H
#define WEFT_REPORT_H
#include "core/core.h"

/* Writes the page. runs: folders with a run.json. 0, or -1 and a message: a folder without one, or
 * the page cannot be written. */
int report_write(const char *out, const char *const *runs, i64 count);
/* Runs of arms are compared with the baseline, an arm's name; NULL: the first. */
int report_write_against(const char *out, const char *const *runs, i64 count, const char *baseline);
/* Appends the runs' figures as a Markdown table: what each was measured on, its baseline, and the mean
 * over runs with the lowest and highest; of one run the 95 % interval. Behind it, of several: the settings
 * that differ. 0, or -1 and a message. */
int report_markdown(struct buffer *out, const char *const *runs, i64 count);
/* Of runs of arms: a table of means and ranges, and one of paired differences. */
int report_markdown_against(struct buffer *out, const char *const *runs, i64 count, const char *baseline);
/* Appends one line of JSON: {"baseline", "arms", "missing", "figures", "differences", "settings"}. */
int report_json(struct buffer *out, const char *const *runs, i64 count, const char *baseline);
/* Writes FOLDER/routing.html of the content of routing.json, and its figures as SVG: use-first, -middle and
 * -last (layer), overlap- likewise, and entropy. 0, or -1 and a message. */
struct json;
int report_routing(const char *folder, const struct json *routing);
/* Logs a summary of a finished run in a few lines. page: path
 * of its page. 0, or -1 and a message. */
int report_log(const char *run, const char *page);
#endif
