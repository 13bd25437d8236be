/* Answers and classes of words from training captions alone. */
#include "samples/caption_accuracy.h"
#include "samples/caption_baseline.h"
#include "tests/test.h"

#include <string.h>

static double mean_of(char *const *captions, i64 count, const char *answer)
{
    double sum = 0;
    for (i64 i = 0; i < count; i++)
        sum += caption_accuracy(captions[i], answer);
    return sum / (double)count;
}

static void expect_answer(char *const *captions, i64 count, const char *expected)
{
    char *answer = caption_fixed_answer(captions, count);
    assert_string_equal(answer, expected);
    memory_free(answer);
}

/* The last caption has a mean of (2/3 + 2/3 + 1) / 3; "a b" has (2/3 + 2/3 + 4/5) / 3. */
TEST(a_caption_is_the_answer_if_no_words_are_better)
{
    char *captions[] = {"a", "B", "a b c"}, *two[] = {"one", "two two"};
    expect_answer(captions, 0, "");
    expect_answer(captions, 1, "a");
    expect_answer(two, 2, "one two"); /* (2/3 + 1/2) / 2 */
    char *words[] = {"", ""};
    expect_answer(words, 2, "");
}

/* Each caption has one word in common with the others; only the composed answer has two of each. */
TEST(words_of_several_captions_make_a_better_answer)
{
    char *captions[] = {"a b x", "b c y", "a c z"};
    char *answer = caption_fixed_answer(captions, 3);
    assert_true(mean_of(captions, 3, answer) > 5.0 / 9 + 1e-9); /* each caption's: (1 + 1/3 + 1/3) / 3 */
    assert_string_equal(answer, "a b c");
    memory_free(answer);
}

/* A word helps once more only where a caption has it more often. */
TEST(a_word_is_repeated_as_often_as_it_helps)
{
    char *captions[] = {"go up go up go", "go left go up go", "go go go right up"};
    char *answer = caption_fixed_answer(captions, 3);
    i64 goes = 0, ups = 0;
    for (const char *at = answer; (at = strstr(at, "go")) != NULL; at++)
        goes++;
    for (const char *at = answer; (at = strstr(at, "up")) != NULL; at++)
        ups++;
    assert_int_equal(goes, 3);
    assert_int_equal(ups, 1);
    memory_free(answer);
}

static const char *const things[] = {"cat", "dog", "car", "bus"}, *const ways[] = {"left", "right", "up"},
                         *const colours[] = {"red", "gray"};

static void expect_words(const struct caption_classes *c, i64 which, const char *text, const char *expected)
{
    char *words = caption_class_words(c, which, text);
    assert_string_equal(words, expected);
    memory_free(words);
}

/* "the cat goes left, red" in all combinations, and one name that occurs once. A third of them go
 * "the left", so that "the" stands before things and before ways. */
TEST(words_at_the_same_place_are_a_class)
{
    char *captions[25];
    i64 count = 0;
    struct caption_classes c;
    for (int t = 0; t < 4; t++)
        for (int w = 0; w < 3; w++)
            for (int k = 0; k < 2; k++)
                captions[count++] = string_format("The %s goes %s%s, %s.", things[t], (t + w + k) % 3 ? "" : "the ",
                                                  ways[w], colours[k]);
    captions[count++] = string_copy("the zebra goes up, red.");
    caption_classes_find(&c, captions, count);
    assert_int_equal(c.count, 3);
    const char *text = "the zebra, a Cat; goes (LEFT) up red - the the";
    char *words[4] = {0};
    for (i64 k = 0; k < 4; k++)
        words[k] = caption_class_words(&c, k, text);
    assert_string_equal(words[3], "zebra a"); /* not frequent */
    for (i64 k = 0; k < 3; k++) {
        static const char *const expected[] = {"cat", "left up", "red"};
        i64 found = 0;
        for (i64 e = 0; e < 3; e++)
            found += strcmp(words[k], expected[e]) == 0;
        assert_int_equal(found, 1); /* "the" and "goes" have no alternative */
    }
    expect_words(&c, 0, "", "");
    for (i64 k = 0; k < 4; k++)
        memory_free(words[k]);
    for (i64 i = 0; i < count; i++)
        memory_free(captions[i]);
    caption_classes_release(&c);
}

/* Words of which each is used 3 times, and both together in a tenth of the captions. */
TEST(a_class_is_used_in_a_tenth_of_the_captions)
{
    static const struct {
        i64 captions, classes;
        int uses;
    } cases[] = {{60, 1, 3}, {61, 0, 3}, {20, 0, 2}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *captions[64];
        struct caption_classes c;
        for (i64 k = 0; k < cases[i].captions; k++)
            captions[k] = k < 2 * cases[i].uses
                              ? string_format("it%lld %s on%lld", (long long)k, k % 2 ? "up" : "left", (long long)k)
                              : string_format("w%lld", (long long)k);
        caption_classes_find(&c, captions, cases[i].captions);
        assert_int_equal(c.count, cases[i].classes);
        caption_classes_release(&c);
        for (i64 k = 0; k < cases[i].captions; k++)
            memory_free(captions[k]);
    }
}

TEST(without_captions_there_is_no_class)
{
    struct caption_classes c;
    char *none[] = {"one", "- ,"};
    for (i64 count = 0; count < 3; count++) {
        caption_classes_find(&c, none, count);
        assert_int_equal(c.count, 0);
        expect_words(&c, 0, "One two ...", "one two");
        caption_classes_release(&c);
    }
}

/* Words are counted once, without case and punctuation. */
TEST(common_words_are_counted_once)
{
    char *a[] = {"A red, red ball", ""}, *b[] = {"red Ball. a", "blue ball ball", "cube"};
    float common[6];
    captions_common_words(common, a, 2, b, 3);
    const float expected[] = {3, 1, 0, 0, 0, 0};
    for (i64 i = 0; i < COUNT_OF(common); i++)
        assert_float_equal(common[i], expected[i], 0);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
