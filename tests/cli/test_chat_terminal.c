/* `weft chat` on a terminal: keys, signals and errors, and the files that are written. */
#include "tests/chat_command_fixture.h"

/* ---- On a terminal ---- */

static struct buffer screen;

/* Starts a chat whose answers are long, as the leader of a session with a terminal of its own. */
static const char *terminal_name = "dumb"; /* of the next start; "emacs": the program edits no lines */
static pid_t start_on_terminal(int *master, const char *ids)
{
    char *words[] = {"weft", "chat", model, "--greedy", "--max-tokens", (char *)(uintptr_t)ids, NULL};
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(*master >= 0 && grantpt(*master) == 0 && unlockpt(*master) == 0);
    char *name = string_copy(ptsname(*master));
    buffer_clear(&screen);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int terminal = setsid() > 0 ? open(name, O_RDWR) : -1;
        if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0 || dup2(terminal, 0) < 0 || dup2(terminal, 1) < 0 ||
            chdir(directory) < 0)
            _exit(99);
        setenv("TERM", terminal_name, 1);
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        weft_become(words);
    }
    memory_free(name);
    terminal_name = "dumb";
    return child;
}

static void type(int terminal, const char *keys)
{
    assert_int_equal(write(terminal, keys, strlen(keys)), strlen(keys));
}

/* Reads what the terminal shows; false: nothing came for a while, or its program has ended. */
static bool look(int terminal)
{
    struct pollfd wait = {.fd = terminal, .events = POLLIN};
    char block[4096];
    if (poll(&wait, 1, 5) <= 0)
        return false;
    ssize_t count = read(terminal, block, sizeof block);
    if (count > 0)
        buffer_append(&screen, block, count);
    return count > 0;
}

static bool has_ended(int terminal)
{
    struct pollfd wait = {.fd = terminal, .events = POLLIN};
    return poll(&wait, 1, 0) > 0 && !(wait.revents & POLLIN); /* POLLHUP alone */
}

/* Waits until the screen shows `text` behind place `from`; returns the place behind it. */
static i64 wait_for(int terminal, const char *text, i64 from)
{
    double begin = clock_s();
    for (;;) {
        look(terminal);
        const char *at = screen.length > from
                             ? memmem(screen.data + from, (size_t)(screen.length - from), text, strlen(text))
                             : NULL;
        if (at)
            return at - screen.data + (i64)strlen(text);
        if (has_ended(terminal) || clock_s() - begin > TEST_SECONDS_MOST)
            fail_msg("no \"%s\" on the screen: %.*s", text, (int)screen.length, screen.data);
    }
}

/* Waits until an answer has begun behind the message that was typed last. */
static i64 wait_for_answer(int terminal, const char *message, i64 from)
{
    i64 at = wait_for(terminal, message, from);
    at = wait_for(terminal, "\n", at);
    for (double begin = clock_s(); screen.length < at + 4; look(terminal))
        if (clock_s() - begin > TEST_SECONDS_MOST ||
            (screen.length >= at + 2 && memmem(screen.data + at, (size_t)(screen.length - at), "> ", 2)))
            fail_msg("no long answer on the screen: %.*s", (int)screen.length, screen.data);
    return at;
}

/* Ctrl-C also discards what the terminal has not shown yet, the next prompt perhaps, so the wait is
 * for the message. */
static void stop_answer(int terminal)
{
    double begin = clock_s();
    struct buffer text = {0};
    type(terminal, "\003");
    for (bool stopped = false; !stopped; look(terminal)) {
        succeed(file_read(&text, path_of("stderr")));
        buffer_append(&text, "", 1);
        stopped = strstr(text.data, "stopped\n") != NULL;
        if (clock_s() - begin > TEST_SECONDS_MOST)
            fail_msg("the answer goes on: %.*s", (int)screen.length, screen.data);
    }
    buffer_release(&text);
}

static void end_terminal(pid_t child, int terminal, int expected)
{
    int status;
    pid_t ended;
    double begin = clock_s();
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        look(terminal);
        if (clock_s() - begin > TEST_SECONDS_MOST)
            fail_msg("the chat does not end: %.*s", (int)screen.length, screen.data);
    }
    assert_int_equal(ended, child);
    while (look(terminal))
        ;
    close(terminal);
    succeed(file_read(&complained, path_of("stderr")));
    buffer_append(&complained, "", 1);
    expect(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), expected);
}

/* The length of the model that its config allows, so that an answer takes until it is stopped. */
static void set_length(const char *from, const char *to)
{
    char *path = path_join(model, "config.json");
    struct buffer text = {0}, changed = {0};
    succeed(file_read(&text, path));
    buffer_append(&text, "", 1);
    char *at = strstr(text.data, from);
    assert_non_null(at);
    buffer_printf(&changed, "%.*s%s%s", (int)(at - text.data), text.data, to, at + strlen(from));
    succeed(file_replace(path, changed.data, changed.length));
    buffer_release(&text);
    buffer_release(&changed);
    memory_free(path);
}

#define SHORT "\"max_position_embeddings\": 4096"
#define LONG "\"max_position_embeddings\": 60000"

static int lengthen(void **state)
{
    (void)state;
    set_length(SHORT, LONG);
    return 0;
}

static int shorten(void **state)
{
    (void)state;
    set_length(LONG, SHORT);
    return 0;
}

TEST_WITH(ctrl_c_keeps_what_was_said, lengthen, shorten)
{
    int terminal;
    succeed(directory_remove(path_of("kept.json")));
    pid_t weft = start_on_terminal(&terminal, "50000");
    i64 at = wait_for(terminal, "> ", 0);
    type(terminal, "some words\n");
    at = wait_for_answer(terminal, "some words", at);
    stop_answer(terminal);
    at = screen.length;
    type(terminal, "/save kept.json\n");
    at = wait_for(terminal, "kept.json", at);
    at = wait_for(terminal, "> ", at);
    type(terminal, "\004");
    end_terminal(weft, terminal, 0);
    expect_complaint("stopped\n");
    struct json *all = json_load(path_of("kept.json")), *list = json_get(all, "messages");
    assert_int_equal(json_count(list), 2);
    assert_string_equal(json_string(json_get(json_at(list, 0), "content"), ""), "some words");
    assert_true(json_string_length(json_get(json_at(list, 1), "content")) > 0);
    json_free(all);
}

static i64 hints(void)
{
    i64 count = 0;
    succeed(file_read(&complained, path_of("stderr")));
    buffer_append(&complained, "", 1);
    for (const char *at = complained.data; (at = strstr(at, "Ctrl-D or /quit ends\n")); at++)
        count++;
    return count;
}

TEST_WITH(a_second_ctrl_c_leaves, lengthen, shorten)
{
    int terminal;
    pid_t weft = start_on_terminal(&terminal, "50000");
    i64 at = wait_for(terminal, "> ", 0);
    type(terminal, "some words\n");
    wait_for_answer(terminal, "some words", at);
    stop_answer(terminal);
    type(terminal, "\003");
    for (double begin = clock_s(); hints() == 0; look(terminal))
        assert_true(!has_ended(terminal) && clock_s() - begin < TEST_SECONDS_MOST);
    type(terminal, "\003");
    end_terminal(weft, terminal, 130);
}

/* Types Ctrl-C behind `typed`, and waits for the next prompt. */
static i64 discard(int terminal, const char *typed, i64 from)
{
    type(terminal, typed);
    i64 at = *typed ? wait_for(terminal, typed, from) : from;
    type(terminal, "\003");
    return wait_for(terminal, "> ", at);
}

/* Ctrl-C at the prompt discards what was typed, which is no part of the next message. On an empty
 * prompt it hints once; the next one there ends, but not behind a line, discarded or sent. */
TEST(ctrl_c_at_the_prompt_discards_the_line)
{
    static const char *const names[] = {"dumb", "emacs"};
    int terminal;
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        terminal_name = names[i];
        succeed(directory_remove(path_of("kept.json")));
        pid_t weft = start_on_terminal(&terminal, "2");
        i64 at = wait_for(terminal, "> ", 0);
        at = discard(terminal, "half a li", at);
        at = discard(terminal, "another h", at);
        type(terminal, "typed at once\003");
        at = wait_for(terminal, "> ", at);
        assert_int_equal(hints(), 0);
        at = discard(terminal, "", at);
        assert_int_equal(hints(), 1);
        at = discard(terminal, "a third", at);
        at = discard(terminal, "", at);
        assert_int_equal(hints(), 2);
        type(terminal, "some words\n");
        at = wait_for(terminal, "some words", at);
        at = wait_for(terminal, "> ", at);
        at = discard(terminal, "", at);
        assert_int_equal(hints(), 3);
        type(terminal, "/save kept.json\n");
        at = wait_for(terminal, "kept.json", at);
        at = wait_for(terminal, "> ", at);
        discard(terminal, "", at);
        type(terminal, "\003");
        end_terminal(weft, terminal, 130);
        assert_int_equal(hints(), 4);
        struct json *all = json_load(path_of("kept.json")), *list = json_get(all, "messages");
        assert_int_equal(json_count(list), 2);
        assert_string_equal(json_string(json_get(json_at(list, 0), "content"), ""), "some words");
        json_free(all);
    }
}

TEST(other_signals_end_a_prompt)
{
    static const char *const names[] = {"dumb", "emacs"};
    int terminal;
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        terminal_name = names[i];
        pid_t weft = start_on_terminal(&terminal, "2");
        i64 at = wait_for(terminal, "> ", 0);
        type(terminal, "half a li");
        wait_for(terminal, "half a li", at);
        assert_int_equal(kill(weft, SIGTERM), 0);
        end_terminal(weft, terminal, 130);
    }
}

/* A pipe ends: its lines may depend on each other. */
TEST(ctrl_c_ends_a_pipe)
{
    int in[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(write(in[1], "a\n", 2), 2);
    char *words[] = {"weft", "chat", model, "--greedy", "--max-tokens", "2", NULL};
    succeed(directory_remove(path_of("stdout")));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (dup2(in[0], 0) < 0)
            _exit(99);
        open_as(1, path_of("stdout"), O_WRONLY | O_CREAT | O_TRUNC);
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        weft_become(words);
    }
    for (double begin = clock_s(); file_bytes(path_of("stdout")) <= 0;) /* the answer */
        assert_true(clock_s() - begin < TEST_SECONDS_MOST);
    assert_int_equal(kill(child, SIGINT), 0);
    int status = end_of(child);
    close(in[0]);
    close(in[1]);
    read_outputs();
    expect(status, 130);
}

TEST_WITH(other_signals_end_an_answer, lengthen, shorten)
{
    static const int signals[] = {SIGTERM, SIGHUP};
    int terminal;
    for (i64 i = 0; i < COUNT_OF(signals); i++) {
        pid_t weft = start_on_terminal(&terminal, "50000");
        i64 at = wait_for(terminal, "> ", 0);
        type(terminal, "some words\n");
        wait_for_answer(terminal, "some words", at);
        assert_int_equal(kill(weft, signals[i]), 0);
        end_terminal(weft, terminal, 130);
    }
}

/* Typed into an answer, Ctrl-D leaves behind it. */
TEST(ctrl_d_leaves_after_the_answer)
{
    int terminal;
    pid_t weft = start_on_terminal(&terminal, "400");
    i64 at = wait_for(terminal, "> ", 0);
    type(terminal, "some words\n");
    wait_for_answer(terminal, "some words", at);
    type(terminal, "\004");
    end_terminal(weft, terminal, 0);
    expect_complaint("the answer ends at 400 ids");
}

TEST(errors_do_not_end_a_terminal)
{
    static const char *const rows[][2] = {{"/image no.png\n", "no.png: cannot be opened"},
                                          {"\n", "an empty line is no message"},
                                          {"/nothing\n", "/nothing: there is no such command"},
                                          {"/help\n", "Ctrl-C stops an answer"}};
    int terminal;
    pid_t weft = start_on_terminal(&terminal, "2");
    i64 at = wait_for(terminal, "> ", 0);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        type(terminal, rows[i][0]);
        at = wait_for(terminal, "> ", at);
    }
    type(terminal, "/exit\n");
    end_terminal(weft, terminal, 0);
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        expect_complaint(rows[i][1]);
}

/* ---- Written files ---- */

TEST(generate_says_what_it_wrote)
{
    static const struct {
        const char *to, *out, *says;
    } rows[] = {{"image", "a.png", "wrote a.png, 32 x 32, a picture"},
                {"video", "a.mp4", "wrote a.mp4, 16 x 16, a clip of "},
                {"audio", "a.wav", "wrote a.wav, 0."},
                {"text", "a.txt", "bytes of text"}};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        expect(WEFT("", "generate", model, "--prompt", "a", "--to", rows[i].to, "-o", rows[i].out, "--max-tokens", "9"),
               0);
        expect_complaint(rows[i].says);
        assert_true(file_exists(path_of(rows[i].out)));
    }
    expect(WEFT("", "generate", model, "--prompt", "a", "--to", "image", "-o", "no/such/a.png"), 1);
    assert_null(strstr(complained.data, "wrote"));
}

int main(void)
{
    return tests_run(setup, teardown);
}
