/* weft init FOLDER...: looks at data and writes the recipe for them. */
#include "cli/cli.h"
#include "survey/init.h"

int command_init(int argc, char **argv)
{
    struct arguments a;
    const char *out = NULL, *captions = NULL, *from = NULL;
    const struct option options[] = {
        {"o", "FILE", &out, NULL, "recipe to write (default: standard output); outside of the data"},
        {"from", "MODEL", &from, NULL,
         "model to go on from, with its tokenizers and mixture: its folder, such as out/my/base"},
        {"captions", "folder|name|none", &captions, NULL,
         "for media without a text of their own: the name of their folder, or their own, or none, which trains "
         "tokenizers alone"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, INIT_FOLDERS_MOST);
    if (status)
        return status < 0 ? command_failed() : 0;
    return init_write(out, a.positional, a.count, from, captions) < 0 ? command_failed() : 0;
}
