/* A build without libedit: the terminal's own editing of a line has to do. */
#include "cli/generate/line_editor.h"

struct line_editor *line_editor_open(const char *prompt)
{
    (void)prompt;
    return NULL;
}

int line_editor_next(struct buffer *out, struct line_editor *editor)
{
    (void)editor;
    buffer_clear(out);
    return 0;
}

void line_editor_close(struct line_editor *editor)
{
    (void)editor;
}
