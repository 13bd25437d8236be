/* Lines of a terminal, edited by libedit. */
#include "cli/generate/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

struct line_editor {
    EditLine *edit;
    History *history;
    const char *prompt;
    struct buffer unread; /* what was typed when a signal came, and is not in the edited line */
};

static char *prompt_of(EditLine *edit)
{
    struct line_editor *e;
    el_get(edit, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt;
}

/* Takes what waits to be read. */
static void take_unread(EditLine *edit)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    struct line_editor *e;
    char block[4096];
    el_get(edit, EL_CLIENTDATA, &e);
    ssize_t count = poll(&input, 1, 0) > 0 && (input.revents & POLLIN) ? read(STDIN_FILENO, block, sizeof block) : 0;
    buffer_append(&e->unread, block, max_i64(count, 0));
}

/* Reads a character. libedit's own function goes on reading after a signal; this one ends the line
 * if the signal interrupts. An end of file that was typed before the terminal was switched to raw
 * input arrives as a zero byte, and becomes the key Ctrl-D again. */
static int read_key(EditLine *edit, wchar_t *key)
{
    mbstate_t state = {0};
    for (;;) {
        char byte;
        ssize_t count = interrupted_wait(STDIN_FILENO) ? read(STDIN_FILENO, &byte, 1) : -1;
        if (count < 0 && errno == EINTR && !interrupted())
            continue;
        if (count < 0 && interrupted())
            take_unread(edit);
        if (count <= 0)
            return count < 0 ? -1 : 0;
        if (byte == 0) {
            *key = 'D' - '@';
            return 1;
        }
        size_t length = mbrtowc(key, &byte, 1, &state);
        if (length == 1)
            return 1;
        if (length == (size_t)-1) {
            *key = 0xfffd;
            return 1;
        }
    }
}

struct line_editor *line_editor_open(const char *prompt)
{
    struct line_editor *e = memory_alloc(sizeof *e);
    HistEvent event;
    int edits = 0;                  /* 0: TERM is "emacs", whose shell edits lines itself */
    setlocale(LC_CTYPE, "C.UTF-8"); /* of libedit's wide characters */
    *e = (struct line_editor){.prompt = prompt};
    e->edit = el_init("weft", stdin, stdout, stderr);
    e->history = e->edit ? history_init() : NULL;
    if (!e->history || el_get(e->edit, EL_EDITMODE, &edits) || !edits) {
        line_editor_close(e);
        return NULL;
    }
    history(e->history, &event, H_SETSIZE, 1000);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, prompt_of);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_GETCFN, read_key);
    /* The terminal would discard the next prompt as well, if Ctrl-C flushed what it has not shown. */
    el_set(e->edit, EL_SETTY, "-d", "+noflsh", NULL);
    return e;
}

int line_editor_next(struct buffer *out, struct line_editor *e)
{
    HistEvent event;
    int count;
    buffer_clear(&e->unread);
    el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt: what is typed at once is not echoed twice */
    const char *line = el_gets(e->edit, &count);
    buffer_clear(out);
    if (interrupted() && (!line || count <= 0)) {
        const LineInfo *typed = el_line(e->edit);
        buffer_append(out, typed->buffer, typed->lastchar - typed->buffer);
        buffer_append(out, e->unread.data, e->unread.length);
        return -1;
    }
    if (!line || count <= 0)
        return 0;
    history(e->history, &event, H_ENTER, line);
    i64 length = (i64)strlen(line);
    buffer_append(out, line, length - (line[length - 1] == '\n'));
    return 1;
}

void line_editor_close(struct line_editor *e)
{
    if (!e)
        return;
    if (e->history)
        history_end(e->history);
    if (e->edit)
        el_end(e->edit);
    buffer_release(&e->unread);
    memory_free(e);
}
