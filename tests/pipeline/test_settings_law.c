/* A setting stands in a guide and in a test, or it is not added. */
#include <ctype.h>
#include <string.h>

#include "pipeline/pipeline.h"
#include "tests/test.h"

static struct buffer guides, tests;

static void read_file(struct buffer *out, const char *path)
{
    struct buffer file = {0};
    assert_int_equal(file_read(&file, path), 0);
    buffer_printf(out, "%s\n", file.data);
    buffer_release(&file);
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* Appends the files below a folder whose names end so. This file is left out: it lists keys. */
static void read_below(struct buffer *out, const char *folder, const char *end)
{
    char **names, *path = path_join(SOURCE_TREE, folder);
    i64 count;
    assert_int_equal(directory_list(&names, &count, path), 0);
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(folder, names[i]), *full = path_join(SOURCE_TREE, below);
        if (file_is_directory(full))
            read_below(out, below, end);
        else if (ends_with(names[i], end) && !ends_with(__FILE__, names[i]))
            read_file(out, full);
        memory_free(below);
        memory_free(full);
    }
    string_list_free(names, count);
    memory_free(path);
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* True if the word stands in the text and `after`, a set of characters, comes next; NULL: no letter does. */
static bool stands_in(const char *text, const char *word, const char *after)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == text || !is_letter(at[-1]);
        if (begins && (after ? at[length] && strchr(after, at[length]) : !is_letter(at[length])))
            return true;
    }
    return false;
}

static const char *leaf_of(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* A guide has the whole key, or its last part as in YAML, `part: value`, or alone in quotes. */
static bool is_described(const char *key)
{
    return stands_in(guides.data, key, NULL) || (strchr(key, '.') && stands_in(guides.data, leaf_of(key), ":`"));
}

/* A test may set the member of a struct whose name is not the key's. */
static bool is_tested(const char *key)
{
    static const struct {
        const char *key, *member;
    } others[] = {{"pack.text_condition", "condition"},
                  {"pack.audio_condition", "condition"},
                  {"program_file", "file_mb"},
                  {"program_environment", "environment"},
                  {"program_failures", "failures"}};
    const char *name = leaf_of(key);
    for (i64 i = 0; i < COUNT_OF(others); i++)
        name = strcmp(others[i].key, key) == 0 ? others[i].member : name;
    return stands_in(tests.data, name, NULL);
}

TEST(every_setting_is_described_and_tested)
{
    i64 missing = 0;
    for (const struct stage_kind *kind = stage_kinds; kind->name; kind++)
        for (const struct setting *s = kind->table; s->key; s++) {
            if (!s->help) /* retired */
                continue;
            bool described = is_described(s->key), tested = is_tested(s->key);
            if (!described)
                print_error("%s: %s stands in no guide (docs/*.md, README.md) and no recipe\n", kind->name, s->key);
            if (!tested)
                print_error("%s: %s stands in no test\n", kind->name, s->key);
            missing += !described + !tested;
        }
    assert_int_equal(missing, 0);
}

static int read_all(void **state)
{
    char *readme = path_join(SOURCE_TREE, "README.md");
    (void)state;
    read_file(&guides, readme);
    read_below(&guides, "docs", ".md");
    read_below(&guides, "recipes", ".yaml");
    read_below(&tests, "tests", ".c");
    read_below(&tests, "tests", ".h");
    read_below(&tests, "tests", ".yaml");
    read_below(&tests, "tests", ".jsonl");
    memory_free(readme);
    return 0;
}

static int release(void **state)
{
    (void)state;
    buffer_release(&guides);
    buffer_release(&tests);
    return 0;
}

int main(void)
{
    return tests_run_as("all", read_all, release);
}
