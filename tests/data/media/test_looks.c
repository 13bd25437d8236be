/* Shapes and colours by name: the CSS colours that contain a basic colour term (CSS Color 4,
 * section 6.1), and descriptions of pixels. */
#include "corpus/corpus.h"
#include "tests/cases.h"

/* The words for one colour alone. */
static char *say_one(int colour)
{
    struct buffer said = {0};
    i64 pixels[COLOURS] = {0};
    pixels[colour] = 1;
    describe_colours(&said, pixels);
    return said.data;
}

TEST(colours_have_the_names_of_css)
{
    EACH_CASE (c, "colours.jsonl") {
        int rgb[3];
        for (int i = 0; i < 3; i++)
            rgb[i] = (int)json_integer(json_at(json_get(c->row, "rgb"), i), -1);
        char *said = say_one(colour_of(rgb[0], rgb[1], rgb[2]));
        case_expect(c, "said", said);
        memory_free(said);
    }
}

TEST(the_most_frequent_are_said_first)
{
    static const struct {
        int red, white, blue, green;
        const char *said;
    } pictures[] = {{10, 0, 0, 0, "red"},
                    {10, 0, 90, 0, "blue"},
                    {40, 0, 60, 0, "blue and red"},
                    {30, 45, 25, 0, "white, red and blue"},
                    {30, 28, 22, 20, "red, white and blue"}};
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

TEST(every_colour_has_a_name)
{
    for (int red = 0; red < 256; red += 5)
        for (int green = 0; green < 256; green += 5)
            for (int blue = 0; blue < 256; blue += 5)
                assert_in_range(colour_of(red, green, blue), 0, COLOURS - 1);
}

TEST(forms_are_those_of_their_rectangles)
{
    EACH_CASE (c, "forms.jsonl") {
        struct buffer said = {0};
        describe_form(&said, (i64)case_number(c, "pixels"), (i64)case_number(c, "height"),
                      (i64)case_number(c, "width"));
        case_expect(c, "said", said.length ? said.data : "");
        buffer_release(&said);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
