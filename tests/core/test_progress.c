/* The line of a progress bar, at the widths of a terminal. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "tests/cases.h"
#include "tests/scratch.h"

/* What a bar at a quarter draws on a terminal of that many columns. */
static void draw(struct buffer *out, int columns, const char *label, const char *note)
{
    struct winsize window = {.ws_row = 24, .ws_col = (unsigned short)columns};
    struct progress progress;
    char block[4096], *begin, *end;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC), before = dup(STDERR_FILENO);
    assert_true(terminal >= 0 && ioctl(terminal, TIOCSWINSZ, &window) == 0);
    fflush(stderr);
    assert_int_equal(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    progress_init(&progress, label, 8);
    progress.begin_s = clock_s() - 20; /* 20 s for a quarter: 60 s are left */
    progress_update(&progress, 2, "%s", note);
    fflush(stderr);
    ssize_t count = read(master, block, sizeof block - 1);
    progress_close(&progress);
    fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    close(terminal);
    close(master);
    assert_true(count > 0);
    block[count] = 0;
    begin = strchr(block, '\r');
    assert_non_null(begin);
    end = strstr(begin, "\033[K");
    assert_non_null(end);
    buffer_clear(out);
    buffer_append(out, begin + 1, end - begin - 1);
    buffer_append(out, "", 1);
}

TEST(parts_that_do_not_fit_are_left_out)
{
    struct buffer shown = {0};
    EACH_CASE (c, "progress_lines.jsonl") {
        draw(&shown, (int)case_number(c, "columns"), case_text(c, "label"), case_text(c, "note"));
        case_expect(c, "line", shown.data);
    }
    buffer_release(&shown);
}

int main(void)
{
    unsetenv("COLUMNS");
    return tests_run(NULL, NULL);
}
