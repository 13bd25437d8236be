/* Shapes and colours by name: the CSS colours that contain a basic colour term (CSS Color 4,
 * section 6.1), and descriptions of pixels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "corpus/corpus.h"

/* The words for one colour alone. */
static char *say_one(int colour)
{
    struct buffer said = {0};
    i64 pixels[COLOURS] = {0};
    pixels[colour] = 1;
    describe_colours(&said, pixels);
    return said.data;
}

static void colours_have_the_names_of_css(void **state)
{
    static const struct {
        const char *css;
        int rgb[3];
        const char *said;
    } colours[] = {
        {"black", {0, 0, 0}, "black"},
        {"dimgray", {105, 105, 105}, "gray"},
        {"gray", {128, 128, 128}, "gray"},
        {"lightgray", {211, 211, 211}, "gray"},
        {"white", {255, 255, 255}, "white"},
        {"ghostwhite", {248, 248, 255}, "white"},
        {"floralwhite", {255, 250, 240}, "white"},
        {"red", {255, 0, 0}, "red"},
        {"darkred", {139, 0, 0}, "red"},
        {"orange", {255, 165, 0}, "orange"},
        {"darkorange", {255, 140, 0}, "orange"},
        {"yellow", {255, 255, 0}, "yellow"},
        {"saddlebrown", {139, 69, 19}, "brown"},
        {"green", {0, 128, 0}, "green"},
        {"darkgreen", {0, 100, 0}, "green"},
        {"lightgreen", {144, 238, 144}, "green"},
        {"limegreen", {50, 205, 50}, "green"},
        {"darkolivegreen", {85, 107, 47}, "green"},
        {"blue", {0, 0, 255}, "blue"},
        {"darkblue", {0, 0, 139}, "blue"},
        {"lightblue", {173, 216, 230}, "blue"},
        {"skyblue", {135, 206, 235}, "blue"},
        {"royalblue", {65, 105, 225}, "blue"},
        {"steelblue", {70, 130, 180}, "blue"},
        {"purple", {128, 0, 128}, "purple"},
        {"mediumpurple", {147, 112, 219}, "purple"},
        {"rebeccapurple", {102, 51, 153}, "purple"},
        {"pink", {255, 192, 203}, "pink"},
        {"lightpink", {255, 182, 193}, "pink"},
        {"hotpink", {255, 105, 180}, "pink"},
        {"deeppink", {255, 20, 147}, "pink"},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(colours); i++) {
        const int *c = colours[i].rgb;
        char *said = say_one(colour_of(c[0], c[1], c[2]));
        if (strcmp(said, colours[i].said))
            fail_msg("%s (%d %d %d) is called %s, not %s", colours[i].css, c[0], c[1], c[2], said, colours[i].said);
        memory_free(said);
    }
}

static void the_most_frequent_are_said_first(void **state)
{
    static const struct {
        int red, white, blue, green;
        const char *said;
    } pictures[] = {{10, 0, 0, 0, "red"},
                    {10, 0, 90, 0, "blue"},
                    {40, 0, 60, 0, "blue and red"},
                    {30, 45, 25, 0, "white, red and blue"},
                    {30, 28, 22, 20, "red, white and blue"}};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(pictures); i++) {
        struct buffer said = {0};
        i64 pixels[COLOURS] = {0};
        pixels[colour_of(255, 0, 0)] = pictures[i].red;
        pixels[colour_of(255, 255, 255)] = pictures[i].white;
        pixels[colour_of(0, 0, 255)] = pictures[i].blue;
        pixels[colour_of(0, 160, 0)] = pictures[i].green;
        describe_colours(&said, pixels);
        assert_string_equal(said.data, pictures[i].said);
        buffer_release(&said);
    }
}

static void every_colour_has_a_name(void **state)
{
    (void)state;
    for (int red = 0; red < 256; red += 5)
        for (int green = 0; green < 256; green += 5)
            for (int blue = 0; blue < 256; blue += 5)
                assert_in_range(colour_of(red, green, blue), 0, COLOURS - 1);
}

static void forms_are_those_of_their_rectangles(void **state)
{
    static const struct {
        i64 pixels, height, width;
        const char *said;
    } forms[] = {{60, 10, 10, ""},          {78, 10, 10, "round"},     {78, 12, 10, ""},      {99, 10, 10, "square"},
                 {139, 14, 10, ""},         {75, 15, 10, "tall"},      {149, 10, 15, "wide"}, {44, 10, 10, "thin"},
                 {67, 10, 15, "wide thin"}, {67, 15, 10, "tall thin"}, {1, 1, 1, "square"}};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(forms); i++) {
        struct buffer said = {0};
        describe_form(&said, forms[i].pixels, forms[i].height, forms[i].width);
        assert_string_equal(said.length ? said.data : "", forms[i].said);
        buffer_release(&said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colours_have_the_names_of_css),
        cmocka_unit_test(the_most_frequent_are_said_first),
        cmocka_unit_test(every_colour_has_a_name),
        cmocka_unit_test(forms_are_those_of_their_rectangles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
