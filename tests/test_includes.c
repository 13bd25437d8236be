/* The law of the house: a folder includes only what stands below it, a vendor header appears in one file per backend,
 * and what only NVIDIA's compiler understands where the emulated GPU has its meaning beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"

/* What each folder may include besides itself; "cli, bench -> rl, codecs, studio -> train -> ..." written out. */
static const struct {
    const char *folder, *below;
} law[] = {
    {"core", ""},
    {"kernels", "core"},
    {"cases", "core kernels"},
    {"tensor", "core kernels"},
    {"dist", "core kernels tensor"},
    {"tokenizers", "core kernels tensor dist"},
    {"sequence", "core kernels tensor dist tokenizers"},
    {"data", "core kernels tensor dist tokenizers sequence"},
    {"model", "core kernels tensor dist tokenizers sequence"},
    {"elastic", "core kernels tensor dist tokenizers sequence data model"},
    {"train", "core kernels tensor dist tokenizers sequence data model elastic"},
    {"codecs", "core kernels tensor dist tokenizers sequence data train"},
    {"studio", "core kernels tensor dist tokenizers sequence data model elastic train"},
    {"rl", "core kernels tensor dist tokenizers sequence data model elastic train"},
    {"report", "core"},
    {"corpus", "core kernels tensor dist tokenizers sequence data"},
    {"bench", "core kernels cases tensor dist tokenizers sequence data model elastic train codecs studio rl"},
    {"cli",
     "core kernels cases tensor dist tokenizers sequence data model elastic train codecs studio rl report bench"},
};
static const struct {
    const char *header, *files;
} vendors[] = {
    {"mpi.h", "dist/mpi.c"},
    {"jansson.h", "core/json.c"},
    {"yaml.h", "core/yaml.c"},
    {"xxhash.h", "core/hash.c"},
    {"png.h", "data/png.c bench/peers/pictures.c"},
    {"zlib.h", "data/parquet_page.c"},
    {"jpeglib.h", "data/jpeg.c bench/peers/pictures.c"},
    {"lcms2.h", "data/colour.c"},
    {"webp/decode.h", "data/webp.c bench/peers/pictures.c"},
    {"webp/demux.h", "data/webp.c"},
    {"libheif", "data/heif.c bench/peers/pictures.c"},
    {"libav", "data/av_clip.c data/av_deinterlace.c data/av_input.c data/av_input.h data/av_problem.c data/av_scale.c "
              "data/av_sound.c data/av_still.c "
              "data/av_write.c"},
    {"libsw", "data/av_sound.c data/av_scale.c data/av_write.c"},
    {"archive.h", "data/archive.c"},
    {"curl/curl.h", "data/http.c"},
    {"pcre2.h", "tokenizers/text_regex.c"},
    {"utf8proc.h", "tokenizers/text_unicode.c tokenizers/text_forms.c tokenizers/text_properties.c"},
    {"cublas", "kernels/cuda/matmul.c"},
    {"nccl.h", "dist/nccl.c"},
};
static const struct {
    const char *text, *files;
} cuda_only[] = {
    {"asm", "kernels/cuda/ptx.h kernels/cuda/hopper.h"},
    {"<<<", "kernels/cuda/cuda.h"},
};
static int broken;

static bool word_in(const char *words, const char *word, size_t length)
{
    for (const char *at = words; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == words || at[-1] == ' ';
        if (begins && strncmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == 0))
            return true;
    }
    return false;
}

static const char *below_of(const char *folder)
{
    for (i64 i = 0; i < COUNT_OF(law); i++)
        if (strcmp(law[i].folder, folder) == 0)
            return law[i].below;
    return NULL;
}

static void check_own(const char *folder, const char *file, const char *included)
{
    char other[64];
    const char *slash = strchr(included, '/');
    if (!slash)
        return;
    snprintf(other, sizeof other, "%.*s", (int)(slash - included), included);
    if (strcmp(other, folder) == 0 || word_in(below_of(folder), other, strlen(other)))
        return;
    print_error("%s includes %s: %s may include only: %s\n", file, included, folder, below_of(folder));
    broken++;
}

static void check_vendor(const char *file, const char *included)
{
    for (i64 i = 0; i < COUNT_OF(vendors); i++) {
        bool library = strncmp(vendors[i].header, "lib", 3) == 0 || strcmp(vendors[i].header, "cublas") == 0;
        bool same = library ? strncmp(included, vendors[i].header, strlen(vendors[i].header)) == 0
                            : strcmp(included, vendors[i].header) == 0;
        if (same && !word_in(vendors[i].files, file, strlen(file))) {
            print_error("%s includes %s, which belongs to %s\n", file, included, vendors[i].files);
            broken++;
        }
    }
}

static void check_cuda(const char *file, const char *content)
{
    for (i64 i = 0; i < COUNT_OF(cuda_only); i++) {
        const char *text = cuda_only[i].text, *at = content;
        if (word_in(cuda_only[i].files, file, strlen(file)))
            continue;
        for (; (at = strstr(at, text)) != NULL; at++)
            if ((at == content || !isalpha((unsigned char)at[-1])) && !isalpha((unsigned char)at[strlen(text)])) {
                print_error("%s: \"%s\" belongs to %s\n", file, text, cuda_only[i].files);
                broken++;
            }
    }
}

static void check_file(const char *folder, const char *file)
{
    char *path = path_join(SOURCE_TREE, file), name[256];
    struct text content = {0};
    assert_int_equal(file_read(&content, path), 0);
    for (char *at = content.data; at && (at = strstr(at, "#include ")) != NULL; at += 9) {
        if (sscanf(at, "#include \"%255[^\"]\"", name) == 1)
            check_own(folder, file, name);
        else if (sscanf(at, "#include <%255[^>]>", name) == 1)
            check_vendor(file, name);
    }
    if (content.data && strncmp(file, "kernels/cuda/", 13) == 0)
        check_cuda(file, content.data);
    text_release(&content);
    memory_free(path);
}

static void check_folder(const char *root, const char *folder)
{
    char **names, *path = path_join(SOURCE_TREE, folder);
    i64 count;
    assert_int_equal(directory_list(&names, &count, path), 0);
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(folder, names[i]), *full = path_join(SOURCE_TREE, below);
        const char *dot = strrchr(names[i], '.');
        if (file_is_directory(full))
            check_folder(root, below);
        else if (dot && (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0 || strcmp(dot, ".cu") == 0 ||
                         strcmp(dot, ".cuh") == 0))
            check_file(root, below);
        memory_free(below);
        memory_free(full);
    }
    string_list_free(names, count);
    memory_free(path);
}

static void folders_include_only_what_stands_below(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(law); i++)
        check_folder(law[i].folder, law[i].folder);
    assert_int_equal(broken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders_include_only_what_stands_below)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
