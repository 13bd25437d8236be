/* Looks at data and writes the recipe for them. */
#include "survey/init.h"
#include "data/remote/remote.h"
#include "report/html.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 &&
           (path[length] == 0 || path[length] == '/' || folder[length - 1] == '/');
}

/* Absolute path of the folder that holds `path`, which may not exist yet. NULL: there is none. */
static char *real_folder(const char *path)
{
    char *folder = path_folder(path), *real = realpath(folder, NULL);
    memory_free(folder);
    return real;
}

/* A run's name from the names of the data: letters of any script, digits and dashes. */
static char *run_name(const struct init_data *data, i64 count)
{
    struct buffer name = {0};
    for (i64 i = 0; i < min_i64(count, 3); i++) {
        char *real = is_address(data[i].path) ? NULL : realpath(data[i].path, NULL);
        const char *path = real ? real : data[i].path, *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
        size_t length = real && !file_is_directory(real) ? strcspn(last, ".") : strlen(last);
        if (name.length)
            buffer_append(&name, "-", 1);
        for (size_t k = 0; k < length; k++)
            buffer_append(&name,
                          isalnum((u8)last[k]) || (u8)last[k] >= 0x80 || (k && strchr("-_.", last[k])) ? &last[k] : "-",
                          1);
        free(real);
    }
    buffer_append(&name, "", 0);
    char *out = string_copy(name.length ? name.data : "mine");
    buffer_release(&name);
    return out;
}

/* out/NAME below this folder; if that lies within the data, where stages would read what a run writes,
 * beside them. Absolute, as the data are. */
static char *run_folder(const struct init_data *data, i64 count)
{
    char *name = run_name(data, count), *here = realpath(".", NULL);
    char *run = string_format("%s%sout/%s", here ? here : "", here && strcmp(here, "/") != 0 ? "/" : "", name);
    for (i64 i = 0; i < count && here; i++) {
        char *real = is_address(data[i].path) ? NULL : realpath(data[i].path, NULL);
        if (real && file_is_directory(real) && is_within(here, real)) {
            char *beside = path_folder(real);
            memory_free(run);
            run = string_format("%s%sout/%s", beside, strcmp(beside, "/") != 0 ? "/" : "", name);
            memory_free(beside);
        }
        free(real);
    }
    free(here);
    memory_free(name);
    return run;
}

static int check_output(const char *out, const char *const *folders, i64 count)
{
    if (!out)
        return 0;
    if (file_exists(out))
        return error_set("%s exists: choose another -o or remove it", out);
    char *place = real_folder(out);
    int status = place ? 0 : error_set("%s: there is no folder for it", out);
    for (i64 i = 0; i < count && status == 0; i++) {
        char *real = is_address(folders[i]) ? NULL : realpath(folders[i], NULL);
        if (real && file_is_directory(real) && is_within(place, real))
            status = error_set("-o %s lies in the data, %s: a recipe there would change them; choose a place outside",
                               out, folders[i]);
        free(real);
    }
    free(place);
    return status;
}

static int write_recipe(const char *out, const struct init_data *data, i64 count, const struct init_model *from)
{
    struct buffer text = {0};
    char *run = run_folder(data, count);
    while (from && is_within(from->directory, run)) { /* its own run keeps its stages */
        char *other = string_format("%s-more", run);
        memory_free(run);
        run = other;
    }
    int status = init_put_recipe(&text, data, count, from, run);
    if (status == 0 && out)
        status = file_replace(out, text.data, text.length);
    else if (status == 0)
        fwrite(text.data, 1, (size_t)text.length, stdout);
    if (status == 0 && out) {
        struct buffer word = {0};
        shell_word(&word, program_name());
        buffer_printf(&word, " run ");
        shell_word(&word, out);
        log_info("next: %s", word.data);
        buffer_release(&word);
    }
    buffer_release(&text);
    memory_free(run);
    return status;
}

int init_write(const char *out, const char *const *folders, i64 count, const char *from, const char *captions)
{
    struct init_model model = {0};
    struct init_data *data = memory_alloc(count * (i64)sizeof *data);
    int names = captions ? captions_named(captions) : -1;
    int status = captions && names < 0 ? -1 : check_output(out, folders, count);
    if (status == 0 && from)
        status = init_model_open(&model, from);
    for (i64 i = 0; i < count && status == 0; i++) {
        status = init_look(&data[i], folders[i], names);
        if (status == 0)
            init_log(&data[i]);
    }
    if (status == 0)
        status = write_recipe(out, data, count, from ? &model : NULL);
    init_model_close(&model);
    for (i64 i = 0; i < count; i++)
        init_data_release(&data[i]);
    memory_free(data);
    return status;
}
