/* One program for many test files, so that the library is linked once. The build renames main of
 * NAME.c to NAME_main and lists it in TEST_LIST: TEST_FILE(NAME) if it takes no arguments,
 * PROGRAM(NAME) if it does. A link to this program called NAME or NAME + TEST_SUFFIX runs that
 * file. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEST_FILE(name) int name##_main(void);
#define PROGRAM(name) int name##_main(int count, char **arguments);
#include TEST_LIST
#undef TEST_FILE
#undef PROGRAM

static const struct {
    const char *name;
    int (*test)(void);
    int (*program)(int count, char **arguments);
} files[] = {
#define TEST_FILE(name) {#name, name##_main, NULL},
#define PROGRAM(name) {#name, NULL, name##_main},
#include TEST_LIST
};

int weft_main(int count, char **arguments) __attribute__((weak)); /* cli/main.c, where linked */

static bool is_link_of(const char *link, const char *file)
{
    size_t length = strlen(file);
    return strncmp(link, file, length) == 0 && (!link[length] || strcmp(link + length, TEST_SUFFIX) == 0);
}

int main(int count, char **arguments)
{
    const char *slash = strrchr(arguments[0], '/'), *link = slash ? slash + 1 : arguments[0];
    if (weft_main && strcmp(arguments[0], "/proc/self/exe") == 0) /* a weft command that starts another one */
        return weft_main(count, arguments);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (is_link_of(link, files[i].name))
            return files[i].test ? files[i].test() : files[i].program(count, arguments);
    fprintf(stderr, "%s: no test file of that name. Call this program through a link named after one of its files:\n",
            link);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        fprintf(stderr, "%s%s\n", files[i].name, TEST_SUFFIX);
    return 2;
}
