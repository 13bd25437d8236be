/* Word classes match Oniguruma inside HF tokenizers: every character, and splits
 * (tests/golden/tokenizer/words.py). */
#include "core/json.h"
#include "tests/test.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

static struct json *words;
static struct regex_scratch *scratch;

static u8 *characters; /* [0x110000] 1: in \w; 2: in \w outside of brackets only */

static void check_set(const char *pattern, bool inside, bool negated)
{
    struct regex *regex = regex_open(pattern, "words.json");
    if (!regex)
        fail_msg("%s", error_text());
    for (u32 c = 0; c < 0x110000; c++) {
        u8 bytes[4];
        i64 begin, end;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        bool wanted = characters[c] == 1 || (characters[c] == 2 && !inside);
        bool found = regex_find(&begin, &end, regex, scratch, bytes, 0, utf8_encode(bytes, c)) == 1;
        if (found != (wanted != negated))
            fail_msg("%s: U+%04X is%s matched", pattern, c, found ? "" : " not");
    }
    regex_close(regex);
}

TEST(word_characters_are_those_of_oniguruma)
{
    check_set("\\w", false, false);
    check_set("\\W", false, true);
    check_set("[\\w]", true, false);
    check_set("[^\\w]", true, true);
    check_set("[\\W]", true, true);
    check_set("[[:word:]]", true, false);
}

/* Nested classes and intersections are the sets that Oniguruma and Rust build. */
static void check_joined(const char *pattern, const char *members, const char *others)
{
    struct regex *regex = regex_open(pattern, "joined.json");
    i64 begin, end;
    if (!regex)
        fail_msg("%s", error_text());
    for (i64 i = 0, bytes; members[i]; i += bytes) {
        u32 c;
        bytes = utf8_decode(&c, (const u8 *)members + i);
        if (regex_find(&begin, &end, regex, scratch, (const u8 *)members + i, 0, bytes) != 1)
            fail_msg("%s: U+%04X is not matched", pattern, c);
    }
    for (i64 i = 0, bytes; others[i]; i += bytes) {
        u32 c;
        bytes = utf8_decode(&c, (const u8 *)others + i);
        if (regex_find(&begin, &end, regex, scratch, (const u8 *)others + i, 0, bytes) != 0)
            fail_msg("%s: U+%04X is matched", pattern, c);
    }
    regex_close(regex);
}

TEST(classes_join_as_in_oniguruma)
{
    check_joined("[a[bc]d]", "abcd", "e[]");
    check_joined("[^a[bc]]", "de[", "abc");
    check_joined("[^(\\s|[.,])]", "ab", "( |.,)");
    check_joined("[a-z&&[^aeiou]]", "bcz", "aeA&");
    check_joined("[a-z&&[a-f]&&[^b]]", "acf", "bgz");
    check_joined("[\\p{L}&&[^\\p{Han}]]", "a\xc3\xa9\xe3\x81\x82", "1\xe4\xbd\xa0");
    check_joined("[x[:ab]]", "x:ab", "[]"); /* not a POSIX name: a nested class */
    check_joined("[x[:digit:]&&[^5]]", "x14", "5:d");
    /* script, not script extensions */
    check_joined("\\p{Han}", "\xe4\xbd\xa0\xe3\x80\x85", "\xe3\x80\x82\xe3\x83\xbc");
}

static void check_case(const struct json *one)
{
    const char *pattern = json_string(json_get(one, "pattern"), ""), *text = json_string(json_get(one, "text"), "");
    const struct json *pieces = json_get(one, "pieces");
    struct splitter splitter;
    struct split_cursor cursor = {scratch};
    i64 length = (i64)strlen(text), at = 0, piece = 0;
    if (splitter_init(&splitter, pattern, true, "words.json") < 0)
        fail_msg("%s", error_text());
    while (at < length) {
        i64 end = splitter_next(&splitter, &cursor, (const u8 *)text, at, length);
        const char *wanted = json_string(json_at(pieces, piece), "");
        if (end == at) /* an empty piece yields no text */
            continue;
        if (end - at != (i64)strlen(wanted) || memcmp(text + at, wanted, (size_t)(end - at)) != 0)
            fail_msg("%s cuts '%s' otherwise at piece %lld, '%s'", pattern, text, (long long)piece, wanted);
        at = end;
        piece++;
    }
    assert_int_equal(piece, json_count(pieces));
    splitter_release(&splitter);
}

TEST(texts_are_cut_at_words_as_by_oniguruma)
{
    const struct json *cases = json_get(words, "cases");
    assert_true(json_count(cases) > 50);
    for (i64 i = 0; i < json_count(cases); i++)
        check_case(json_at(cases, i));
}

static int open_golden(void **state)
{
    (void)state;
    words = json_load(GOLDEN "/tokenizer/words.json");
    require(words, "%s", error_text());
    scratch = regex_scratch_open();
    characters = memory_alloc(0x110000);
    const struct json *ranges = json_get(words, "word"), *alone = json_get(words, "only_outside_brackets");
    for (i64 i = 0; i < json_count(ranges); i++)
        for (i64 c = json_integer(json_at(json_at(ranges, i), 0), 0);
             c <= json_integer(json_at(json_at(ranges, i), 1), -1); c++)
            characters[c] = 1;
    for (i64 i = 0; i < json_count(alone); i++)
        characters[json_integer(json_at(alone, i), 0)] = 2;
    return 0;
}

static int close_golden(void **state)
{
    (void)state;
    json_free(words);
    regex_scratch_close(scratch);
    memory_free(characters);
    return 0;
}

int main(void)
{
    return tests_run(open_golden, close_golden);
}
