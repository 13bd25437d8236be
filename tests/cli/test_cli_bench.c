/* `weft bench op`: the list, a table, JSON lines, and refused options. Timings are not checked. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "core/json.h"
#include "kernels/kernels.h"
#include "tests/test.h"

static struct buffer said; /* stdout and stderr of the last run */

static int weft(const char *words)
{
    char *command = string_format("WEFT_THREADS=1 %s %s 2>&1", WEFT_PROGRAM, words), part[4096];
    FILE *out = popen(command, "r");
    size_t bytes;
    assert_non_null(out);
    buffer_clear(&said);
    while ((bytes = fread(part, 1, sizeof part, out)) > 0)
        buffer_append(&said, part, (i64)bytes);
    int status = pclose(out);
    memory_free(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *part)
{
    if (!said.data || !strstr(said.data, part))
        fail_msg("expected \"%s\" in: %s", part, said.data ? said.data : "(nothing)");
}

TEST(without_a_name_it_lists_every_op)
{
#define NAME(name, arguments, names, ...) #name,
    static const char *const names[] = {WEFT_OPS(NAME)};
    assert_int_equal(weft("bench op"), 0);
    for (i64 i = 0; i < COUNT_OF(names); i++)
        expect(names[i]);
    assert_int_equal(weft("bench op --json"), 0);
    expect("{\"op\":\"matmul\",\"variants\":16,");
}

TEST(an_op_is_timed)
{
    assert_int_equal(weft("bench op matmul --shape 40x30x20 --dtype f32 --variant 3 --json"), 0);
    struct json *j = json_parse(said.data, said.length, "stdout");
    assert_non_null(j);
    assert_string_equal(json_string(json_get(j, "shape"), ""), "40x30x20");
    assert_string_equal(json_string(json_get(j, "dtype"), ""), "F32");
    assert_int_equal(json_integer(json_get(j, "variant"), -1), 3);
    assert_true(json_number(json_get(j, "flops"), NAN) == 2 * 40 * 30 * 20);
    assert_true(json_number(json_get(j, "seconds"), NAN) > 0);
    assert_true(json_number(json_get(j, "ratio"), NAN) > 0);
    json_free(j);
    assert_int_equal(weft("bench op rope --shape 30x8"), 0);
    expect("rope ");
    expect("GB/s\n");
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    buffer_release(&said);
    return failed;
}
