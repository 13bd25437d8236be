/* Fuzz target: any bytes as YAML are read or refused; settings made from them become JSON that
 * parses to the same value. */
#include "core/json.h"
#include "core/settings.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_recipe_values {
    i64 integer;
    double number;
    bool flag;
    char *string, *reference;
    int choice;
    struct integer_list integers;
    struct number_list numbers;
    struct string_list strings;
    struct schedule schedule;
    struct size_list sizes;
};

#define FIELD(name) offsetof(struct fuzz_recipe_values, name)

static const struct setting table[] = {
    {"i", SETTING_INTEGER, FIELD(integer), "3", 0, 1e9, NULL, "an integer"},
    {"n", SETTING_NUMBER, FIELD(number), "0.5", 0, 0, NULL, "a number"},
    {"f", SETTING_BOOL, FIELD(flag), "true", 0, 0, NULL, "a flag"},
    {"s", SETTING_STRING, FIELD(string), "", 0, 0, NULL, "a text"},
    {"r", SETTING_REFERENCE, FIELD(reference), "a/b", 0, 0, NULL, "a stage"},
    {"m.c", SETTING_CHOICE, FIELD(choice), "x", 0, 0, "x|yy", "a choice"},
    {"m.is", SETTING_INTEGERS, FIELD(integers), "0-3", -9, 999, NULL, "integers"},
    {"m.ns", SETTING_NUMBERS, FIELD(numbers), "", 0, 0, NULL, "numbers"},
    {"m.ss", SETTING_STRINGS, FIELD(strings), "a", 0, 0, NULL, "texts"},
    {"m.p", SETTING_SCHEDULE, FIELD(schedule), "1", 0, 0, NULL, "a schedule"},
    {"m.z", SETTING_SIZES, FIELD(sizes), "", 1, 99, "a|b", "sizes"},
    {0},
};

static void walk(const struct yaml_node *node)
{
    require(strlen(yaml_where(node)) > 0, "a node without a place");
    for (i64 i = 0; i < yaml_count(node); i++)
        walk(yaml_value(node, i));
}

static int read_text(struct buffer *out, const char *text, i64 length)
{
    struct fuzz_recipe_values values = {0};
    struct yaml *document = yaml_parse(text, length, "fuzz.yaml");
    if (!document)
        return -1;
    walk(yaml_root(document));
    int status = settings_read(&values, table, yaml_root(document), NULL, NULL, 0);
    if (status == 0) {
        struct json *json = settings_to_json(&values, table);
        json_print(out, json, 0);
        json_free(json);
        schedule_at(&values.schedule, 5);
        settings_release(&values, table);
    }
    yaml_free(document);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer first = {0}, second = {0};
    if (read_text(&first, (const char *)data, (i64)size) == 0) {
        require(read_text(&second, first.data, first.length) == 0, "%s: %s", error_text(), first.data);
        require(strcmp(first.data, second.data) == 0, "%s became %s", first.data, second.data);
    }
    buffer_release(&first);
    buffer_release(&second);
    return 0;
}
