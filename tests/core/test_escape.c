/* Escapes: names and texts of strangers are shown, and do not control the terminal. */
#include "tests/scratch.h"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"", ""},
    {"plain\\ name.png", "plain\\ name.png"},
    {"\xc3\xa4 \xe4\xb8\xad \xf0\x9f\x8e\xbc \xe2\x80\xa9", "\xc3\xa4 \xe4\xb8\xad \xf0\x9f\x8e\xbc \xe2\x80\xa9"},
    {"\x1b[2J\r\a\b", "\\u001b[2J\\u000d\\u0007\\u0008"},
    {"a\nb\tc\x7f", "a\\u000ab\\u0009c\\u007f"},
    {"\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "\\u0080\\u009b\\u009f\xc2\xa0"},
    {"\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf", "\xe2\x80\xa9\\u202a\\u202e\xe2\x80\xaf"},
    {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", "\xe2\x81\xa5\\u2066\\u2069\xe2\x81\xaa"},
    {"\x9b\xff\xc0\x9b\xed\xa0\x80z\xe2\x80", "\\x9b\\xff\\xc0\\x9b\\xed\\xa0\\x80z\\xe2\\x80"},
};

TEST(controls_are_shown)
{
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *shown = text_escaped(cases[i].text), *again = text_escaped(shown);
        assert_string_equal(shown, cases[i].shown);
        assert_string_equal(again, shown);
        memory_free(shown);
        memory_free(again);
    }
    struct buffer out = {0};
    text_escape(&out, "a\nb\tc\0d\x1b", 8, "\n\t");
    assert_string_equal(out.data, "a\nb\tc\\u0000d\\u001b");
    buffer_release(&out);
}

TEST(errors_are_one_line)
{
    static const char name[] = "a\nweft: done\x1b[A\xe2\x80\xae";
    static const char shown[] = "a\\u000aweft: done\\u001b[A\\u202e";
    error_set("%s: bad", name);
    assert_int_equal(strncmp(error_text(), shown, strlen(shown)), 0);
    error_usage("%s: bad", name);
    assert_int_equal(error_status(), STATUS_USAGE);
    assert_int_equal(strncmp(error_text(), shown, strlen(shown)), 0);
    error_prefix("%s", name);
    assert_int_equal(error_status(), STATUS_USAGE);
    assert_says("a\\u000aweft: done\\u001b[A\\u202e: a\\u000aweft: done\\u001b[A\\u202e: bad");
    assert_int_equal(file_bytes(name), -1);
    assert_int_equal(strncmp(error_text(), shown, strlen(shown)), 0);
    assert_says("No such file");
}

/* What log lines and progress print, as in a file. */
TEST(log_lines_are_one_line)
{
    struct buffer said = {0};
    struct progress progress;
    fflush(NULL);
    int before = dup(STDERR_FILENO);
    assert_non_null(freopen(path_of("said"), "w", stderr));
    log_info("%s", "one\x1b[2J\ntwo");
    log_warn("%s", "three\xc2\x9b");
    progress_init(&progress, "four\r", 1);
    progress_close(&progress);
    fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    succeed(file_read(&said, path_of("said")));
    static const char expected[] = "one\\u001b[2J\\u000atwo\nwarning: three\\u009b\nfour\\u000d: 0 of 1 in 0:00\n";
    assert_string_equal(said.data, expected);
    buffer_release(&said);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
