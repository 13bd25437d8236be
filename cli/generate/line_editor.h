/* Reads lines of input. On a terminal they are edited by libedit, if the program was built with it,
 * and earlier lines can be recalled. */
#ifndef WEFT_LINE_EDITOR_H
#define WEFT_LINE_EDITOR_H
#include "core/core.h"

/* line_editor.c: a line of the terminal; line_editor_absent.c: opens nothing. */
struct line_editor;
/* NULL: read plain lines, from a terminal too, which edits them itself. */
struct line_editor *line_editor_open(const char *prompt);
/* Replaces `out` by the next line without its line feed. 1: a line; 0: the end; -1: interrupted, and
 * `out` is what was typed of the line. */
int line_editor_next(struct buffer *out, struct line_editor *editor);
void line_editor_close(struct line_editor *editor);

#endif
