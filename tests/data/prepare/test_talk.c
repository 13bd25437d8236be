/* The quickstart's conversations about nothing: who speaks when, which pictures are shown, what is answered. */
#include "core/json.h"
#include "corpus/corpus.h"
#include "tests/scratch.h"

enum { GLYPHS = 40 }; /* every tenth glyph is held out */

static struct glyph glyphs[GLYPHS];
static struct buffer lines;

static int make(void **state)
{
    struct corpus corpus = {.directory = directory, .seed = 5, .key = {5, RNG_CORPUS}};
    struct glyph_list list = {glyphs, GLYPHS};
    make_directory(state);
    for (i64 i = 0; i < GLYPHS; i++)
        glyphs[i] = (struct glyph){.caption = string_format("thing %lld", (long long)i),
                                   .file = string_format("%lld.png", (long long)i),
                                   .looks = string_copy("round, red"),
                                   .split = i % 10 ? SPLIT_TRAIN : SPLIT_TEST};
    succeed(directory_make(path_of("train")));
    succeed(make_talk(&corpus, &list));
    succeed(file_read(&lines, path_of("train/talk.jsonl")));
    return 0;
}

static int clear(void **state)
{
    for (i64 i = 0; i < GLYPHS; i++) {
        memory_free(glyphs[i].caption);
        memory_free(glyphs[i].file);
        memory_free(glyphs[i].looks);
    }
    buffer_release(&lines);
    return remove_directory(state);
}

/* What is seen of all conversations. */
struct talk_seen {
    i64 lines, messages, sorted, descending, unknown;
    bool hello, shown[GLYPHS];
};

static void see_picture(struct talk_seen *seen, const struct json *content, const char *answer)
{
    int number = -1;
    assert_int_equal(json_count(content), 2);
    assert_int_equal(sscanf(json_string(json_get(json_at(content, 0), "image"), ""), "image/%d.png", &number), 1);
    assert_in_range(number, 0, GLYPHS - 1);
    char *expected = string_format("thing %d, round, red", number);
    assert_string_equal(answer, expected);
    seen->shown[number] = true;
    memory_free(expected);
}

static void see_sorted(struct talk_seen *seen, const char *digits, const char *answer)
{
    char up[8] = "", down[8] = "";
    int n = 0;
    for (char d = '0'; d <= '9'; d++)
        for (const char *at = digits; *at; at++)
            if (*at == d)
                up[n++] = d;
    assert_int_equal(n, 7);
    for (int i = 0; i < n; i++)
        down[i] = up[n - 1 - i];
    if (strcmp(answer, up) != 0)
        assert_string_equal(answer, down);
    seen->sorted++;
    seen->descending += strcmp(answer, down) == 0;
    assert_int_not_equal(hash_bytes(digits, 7, 0) % 10, 0); /* those are the test's */
}

static void see(struct talk_seen *seen, const struct json *said, const struct json *answered)
{
    const struct json *content = json_get(said, "content");
    const char *text = json_string(content, ""), *answer = json_string(json_get(answered, "content"), "");
    assert_string_equal(json_string(json_get(said, "role"), ""), "user");
    assert_string_equal(json_string(json_get(answered, "role"), ""), "assistant");
    assert_int_not_equal(strlen(answer), 0);
    if (json_kind(content) == JSON_ARRAY)
        see_picture(seen, content, answer);
    else if (strncmp(text, "sort ", 5) == 0)
        see_sorted(seen, text + 5, answer);
    if (strcmp(text, "hello") == 0) {
        assert_string_equal(answer, "Hello! I am a small model.");
        seen->hello = true;
    }
    seen->unknown += strncmp(answer, "I do not know", 13) == 0;
    for (int i = 0; i < GLYPHS; i += 10)
        assert_null(strstr(text, glyphs[i].file));
}

TEST(people_and_the_model_take_turns)
{
    struct talk_seen seen = {0};
    i64 longest = 0;
    for (char *line = lines.data, *end; (end = memchr(line, '\n', (size_t)(lines.data + lines.length - line)));
         line = end + 1) {
        struct json *j = json_parse(line, end - line, "talk"), *messages = json_get(j, "messages");
        i64 count = json_count(messages);
        assert_true(count > 0 && count % 2 == 0);
        for (i64 i = 0; i < count; i += 2)
            see(&seen, json_at(messages, i), json_at(messages, i + 1));
        longest = max_i64(longest, count);
        seen.messages += count;
        seen.lines++;
        json_free(j);
    }
    assert_true(seen.lines > 1000 && seen.hello && seen.unknown > seen.lines / 10);
    assert_int_equal(longest, 6);
    for (int i = 0; i < GLYPHS; i++)
        assert_int_equal(seen.shown[i], i % 10 != 0); /* each picture of training, and no other */
    double descending = (double)seen.descending / (double)seen.sorted;
    if (seen.sorted < seen.messages / 20 || descending < 0.62 || descending > 0.72)
        fail_msg("%lld sorted, %.2f of them descend", (long long)seen.sorted, descending);
}

int main(void)
{
    return tests_run(make, clear);
}
