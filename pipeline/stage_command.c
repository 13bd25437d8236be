/* The stage `command`: runs a program. $OUT in its arguments is the stage's folder, which is empty
 * at the start: the remains of an interrupted call are removed. The program ends with all processes
 * that it started. */
#include "pipeline/stage_command.h"
#include "core/supervised.h"

#include <string.h>
#include <unistd.h>

const struct setting command_table[] = {SETTING(struct command_settings, argv, "argv", STRINGS, NULL, 0, 0, NULL,
                                                "program and arguments; $OUT is the output folder"),
                                        {0}};

/* Finds a program in the folder of this executable, else leaves the name for PATH. */
static char *find_program(const char *name)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (strchr(name, '/') || n < 0)
        return string_copy(name);
    self[n] = 0;
    char *slash = strrchr(self, '/');
    *slash = 0;
    char *beside = path_join(self, name);
    if (file_exists(beside))
        return beside;
    memory_free(beside);
    return string_copy(name);
}

static char *substitute(const char *text, const char *out)
{
    struct buffer result = {0};
    for (const char *at = text, *mark;; at = mark + 4) {
        mark = strstr(at, "$OUT");
        buffer_append(&result, at, mark ? mark - at : (i64)strlen(at));
        if (!mark)
            return result.data;
        buffer_append(&result, out, (i64)strlen(out));
    }
}

/* Empties the folder except for identity.json. */
static int clear_folder(const char *out)
{
    char **names;
    i64 count;
    int status = directory_list(&names, &count, out);
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(out, names[i]);
        if (status == 0 && strcmp(names[i], "identity.json") != 0)
            status = directory_remove(path);
        memory_free(path);
    }
    string_list_free(names, count);
    return status;
}

int command_check_settings(const void *settings)
{
    const struct command_settings *s = settings;
    return s->argv.count ? 0 : error_usage("argv is empty: expected a program and its arguments");
}

int command_stage(const void *settings, const struct stage *stage)
{
    const struct command_settings *s = settings;
    char **argv = memory_alloc((s->argv.count + 1) * (i64)sizeof *argv);
    if (clear_folder(stage->out))
        return -1;
    for (i64 i = 0; i < s->argv.count; i++)
        argv[i] = substitute(s->argv.values[i], stage->out);
    char *program = find_program(argv[0]);
    int status = supervised_run(program, argv);
    for (i64 i = 0; i < s->argv.count; i++)
        memory_free(argv[i]);
    memory_free(argv);
    memory_free(program);
    return status;
}
