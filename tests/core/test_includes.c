/* Rules for includes: a room includes only rooms below it, a vendor header appears in one file per
 * backend, and NVIDIA-specific constructs have a counterpart for the emulated GPU next to them. And
 * what is opened is closed by exec, and the files that comments and CONTRIBUTING.md name exist. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "tests/test.h"

/* The rooms. Each may include itself, the rooms in `below`, and transitively theirs. Rooms of a
 * family are private to it: backends are reached through kernels/device. A folder without a row
 * here fails the test. */
static const struct includes_room {
    const char *name, *below, *family;
} rooms[] = {
    {"core", ""},
    {"kernels", "core"},
    {"kernels/cpu", "kernels", "kernels/"},
    {"kernels/cpu/gemm", "kernels/cpu", "kernels/"},
    {"kernels/cpu/attention", "kernels/cpu/gemm", "kernels/"},
    {"kernels/cpu/media", "kernels/cpu/gemm", "kernels/"},
    {"kernels/cpu/routing", "kernels/cpu", "kernels/"},
    {"kernels/cpu/loss", "kernels/cpu", "kernels/"},
    {"kernels/cpu/draw", "kernels/cpu", "kernels/"},
    {"kernels/cuda", "kernels"},
    {"kernels/cuda/gemm", "kernels/cuda", "kernels/"},
    {"kernels/cuda/attention", "kernels/cuda", "kernels/"},
    {"kernels/cuda/media", "kernels/cuda", "kernels/"},
    {"kernels/cuda/routing", "kernels/cuda", "kernels/"},
    {"kernels/cuda/loss", "kernels/cuda", "kernels/"},
    {"kernels/cuda/draw", "kernels/cuda", "kernels/"},
    {"kernels/meta", "kernels/cpu", "kernels/"},
    {"kernels/device", "kernels/cpu kernels/cuda kernels/meta"},
    {"op_cases", "kernels"},
    {"baselines", "kernels"},
    {"tensor", "kernels/device"},
    {"dist", "tensor"},
    {"sites", "dist"},
    {"serve", "dist"},
    {"launcher", "dist"},
    {"tokenizers/template", "core"},
    {"tokenizers/text", "tokenizers/template"},
    {"tokenizers/vision", "tensor"},
    {"tokenizers/audio", "tensor"},
    {"sequence", "tokenizers/text tokenizers/vision"},
    {"data/remote", "core"},
    {"data/media", "tokenizers/audio"},
    {"data/shapes", "data/media tokenizers/vision"},
    {"data/formats", "data/remote tokenizers/text"},
    {"data/sources", "data/formats data/media sequence"},
    {"data/shards", "sequence"},
    {"data/curate", "data/sources data/shards"},
    {"data/prepare", "data/curate data/shapes"},
    {"data/stream", "data/prepare serve"},
    {"data/loader", "data/stream"},
    {"model", "dist sequence"},
    {"model/families", "model"},
    {"elastic", "model"},
    {"train", "elastic data/loader sites"},
    {"tokenizer_training", "train baselines"},
    {"submodels", "train"},
    {"report", "core"},
    {"routing", "submodels report"},
    {"generate", "train"},
    {"samples", "generate baselines"},
    {"rl", "submodels baselines generate"},
    {"corpus", "data/prepare"},
    {"bench/peers", "data/shapes"},
    {"bench", "op_cases tokenizer_training generate rl"},
    {"pipeline", "tokenizer_training routing samples rl report"},
    {"survey", "pipeline"},
    {"cli", "survey bench launcher"},
    {"cli/generate", "cli"},
};
static const struct {
    const char *header, *files;
} vendors[] = {
    {"mpi.h", "dist/mpi.c"},
    {"jansson.h", "core/json.c"},
    {"yaml.h", "core/yaml.c"},
    {"xxh", "core/hash.c"},
    {"png.h", "data/media/png.c bench/peers/pictures.c"},
    {"zlib.h", "data/formats/parquet_page.c data/formats/gzip.c"},
    {"jpeglib.h", "data/media/jpeg.c bench/peers/pictures.c"},
    {"lcms2.h", "data/media/colour.c"},
    {"webp/decode.h", "data/media/webp.c bench/peers/pictures.c"},
    {"webp/demux.h", "data/media/webp.c"},
    {"webp/encode.h", "data/media/webp.c"},
    {"tiffio.h", "data/media/tiff.c"},
    {"sndfile.h", "data/media/wave.c"},
    {"libheif", "data/media/heif.c bench/peers/pictures.c"},
    {"libav", "data/media/av_clip.c data/media/av_deinterlace.c data/media/av_input.c data/media/av_input.h "
              "data/media/av_problem.c data/media/av_recode.c data/media/av_scale.c "
              "data/media/av_sound.c data/media/av_times.c data/media/av_write.c"},
    {"libsw", "data/media/av_sound.c data/media/av_scale.c data/media/av_write.c"},
    {"archive.h", "data/formats/archive.c data/formats/packed_file.c"},
    {"curl/curl.h", "data/remote/http.c"},
    {"microhttpd.h", "serve/http_server.c"},
    {"sodium.h", "sites/link.c"},
    {"histedit.h", "cli/generate/line_editor.c"},
    {"pcre2.h", "tokenizers/text/text_regex.c"},
    {"utf8proc.h", "tokenizers/template/characters.c tokenizers/text/text_unicode.c tokenizers/text/text_forms.c "
                   "tokenizers/text/text_properties.c"},
    {"cublas", "kernels/cuda/gemm/matmul.c"},
    {"cudnn.h", "kernels/cuda/media/conv_cudnn.c"},
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

static const struct includes_room *room_of(const char *name, size_t length)
{
    for (i64 i = 0; i < COUNT_OF(rooms); i++)
        if (strlen(rooms[i].name) == length && strncmp(rooms[i].name, name, length) == 0)
            return &rooms[i];
    return NULL;
}

/* True if `room` is `other` or depends on it, directly or transitively. */
static bool stands_on(const struct includes_room *room, const struct includes_room *other)
{
    if (room == other)
        return true;
    for (const char *at = room->below; *at; at += *at == ' ') {
        size_t length = strcspn(at, " ");
        const struct includes_room *below = room_of(at, length);
        if (!below || below >= room)
            print_error("%s stands on %.*s, which is no room above it in the list\n", room->name, (int)length, at),
                broken++;
        else if (stands_on(below, other))
            return true;
        at += length;
    }
    return false;
}

static void check_own(const struct includes_room *room, const char *file, const char *included)
{
    const char *slash = strrchr(included, '/');
    const struct includes_room *other = slash ? room_of(included, (size_t)(slash - included)) : NULL;
    if (!slash)
        return;
    bool closed = other && other->family && strncmp(room->name, other->family, strlen(other->family)) != 0;
    if (other && stands_on(room, other) && !closed)
        return;
    print_error("%s includes %s: %s stands on: %s\n", file, included, room->name, room->below);
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

/* A file, socket or pipe that exec does not close would be open in every program that weft starts. */
static void check_opened(const char *file, const char *content)
{
    static const struct {
        const char *call, *wanted;
    } rules[] = {{"open(", "CLOEXEC"},       {"openat(", "CLOEXEC"},       {"socket(", "CLOEXEC"},
                 {"socketpair(", "CLOEXEC"}, {"accept4(", "CLOEXEC"},      {"pipe2(", "CLOEXEC"},
                 {"eventfd(", "CLOEXEC"},    {"memfd_create(", "CLOEXEC"}, {"epoll_create1(", "CLOEXEC"},
                 {"fopen(", "e\")"},         {"fdopen(", "e\")"},          {"popen(", "e\")"},
                 {"pipe(", "pipe2"},         {"dup(", "F_DUPFD_CLOEXEC"}};
    for (i64 i = 0; i < COUNT_OF(rules); i++)
        for (const char *at = content; (at = strstr(at, rules[i].call)) != NULL; at++) {
            char statement[300];
            snprintf(statement, sizeof statement, "%.*s", (int)strcspn(at, ";{"), at);
            bool other = at == content || isalnum((unsigned char)at[-1]) || strchr("_>.", at[-1]);
            bool stream = strstr(statement, "\"/dev/null\"") != NULL; /* 0, 1 and 2 stay open */
            if (other || stream || strstr(statement, rules[i].wanted))
                continue;
            print_error("%s: %.60s is not closed by exec: it lacks %s\n", file, statement, rules[i].wanted);
            broken++;
        }
}

static void check_file(const struct includes_room *room, const char *file)
{
    char *path = path_join(SOURCE_TREE, file), name[256];
    struct buffer content = {0};
    assert_int_equal(file_read(&content, path), 0);
    for (char *at = content.data; at && (at = strstr(at, "#include ")) != NULL; at += 9) {
        if (sscanf(at, "#include \"%255[^\"]\"", name) == 1)
            check_own(room, file, name);
        else if (sscanf(at, "#include <%255[^>]>", name) == 1)
            check_vendor(file, name);
    }
    if (content.data && !strstr(file, ".cu"))
        check_opened(file, content.data);
    if (content.data && strncmp(file, "kernels/cuda/", 13) == 0)
        check_cuda(file, content.data);
    buffer_release(&content);
    memory_free(path);
}

static bool is_source(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot &&
           (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0 || strcmp(dot, ".cu") == 0 || strcmp(dot, ".cuh") == 0);
}

enum { FILES_MOST = 45 };

/* Checks a folder and its subfolders; only rooms may hold sources. */
static void check_folder(const char *folder)
{
    char **names, *path = path_join(SOURCE_TREE, folder);
    const struct includes_room *room = room_of(folder, strlen(folder));
    i64 count, files = 0;
    assert_int_equal(directory_list(&names, &count, path), 0);
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(folder, names[i]), *full = path_join(SOURCE_TREE, below);
        if (file_is_directory(full)) {
            check_folder(below);
        } else if (is_source(names[i])) {
            if (!room)
                fail_msg("%s: its folder is no room: give it a row in %s", below, __FILE__);
            check_file(room, below);
            files++;
        }
        memory_free(below);
        memory_free(full);
    }
    if (files > FILES_MOST) {
        print_error("%s has %lld files, a room at most %d\n", folder, (long long)files, FILES_MOST);
        broken++;
    }
    string_list_free(names, count);
    memory_free(path);
}

static void each_room(void (*visit)(const char *folder))
{
    for (i64 i = 0; i < COUNT_OF(rooms); i++)
        if (!strchr(rooms[i].name, '/'))
            visit(rooms[i].name);
    visit("tokenizers");
    visit("data");
}

TEST(rooms_include_only_what_they_stand_on)
{
    broken = 0;
    each_room(check_folder);
    assert_int_equal(broken, 0);
}

/* ---- Files that comments and CONTRIBUTING.md name ---- */

static struct buffer sources; /* " PATH PATH ... ": every source file, also those of tests */

static void list_folder(const char *folder)
{
    char **names, *path = path_join(SOURCE_TREE, folder);
    i64 count;
    assert_int_equal(directory_list(&names, &count, path), 0);
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(folder, names[i]), *full = path_join(SOURCE_TREE, below);
        if (file_is_directory(full))
            list_folder(below);
        else if (is_source(names[i]))
            buffer_printf(&sources, " /%s", below);
        memory_free(below);
        memory_free(full);
    }
    string_list_free(names, count);
    memory_free(path);
}

/* True if a source file has this name, with or without its folder. */
static bool is_known(const char *name)
{
    char end[300];
    snprintf(end, sizeof end, "/%s ", name);
    return strstr(sources.data, end) != NULL;
}

/* True for headers of libraries that the file includes. */
static bool is_included(const char *content, const char *name)
{
    char include[300];
    snprintf(include, sizeof include, "<%s>", name);
    return strstr(content, include) != NULL;
}

/* Checks the words of a part of `content` that look like files: "model/heads.c", "heads.c". Patterns
 * such as "av_*.c", "_hopper.cu" and formulas such as "r.c" are skipped. */
static void check_names(const char *file, const char *content, const char *text, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_/.";
    for (const char *at = text, *end = text + length; at < end;) {
        size_t word = strspn(at, letters);
        char name[256];
        if (word == 0) {
            at += strcspn(at, letters) ? strcspn(at, letters) : 1;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)word, at);
        if (name[0] && name[strlen(name) - 1] == '.')
            name[strlen(name) - 1] = 0; /* the end of a sentence */
        bool part = at > text && (strchr("*<>{}-", at[-1]) || isupper((unsigned char)at[-1]));
        bool formula = strcspn(name, ".") < 2;
        if (is_source(name) && !strchr("./_", name[0]) && !part && !formula && !strchr("*<>{}-", at[word]) &&
            !isupper((unsigned char)at[word]) && !is_known(name) && !is_included(content, name)) {
            print_error("%s names %s, which does not exist\n", file, name);
            broken++;
        }
        at += word;
    }
}

/* The comments of a source file. */
static void check_comments(const char *file)
{
    char *path = path_join(SOURCE_TREE, file);
    struct buffer content = {0};
    assert_int_equal(file_read(&content, path), 0);
    for (const char *at = content.data; at && (at = strstr(at, "/*")) != NULL;) {
        const char *end = strstr(at, "*/");
        if (!end)
            break;
        check_names(file, content.data, at + 2, (size_t)(end - at - 2));
        at = end;
    }
    buffer_release(&content);
    memory_free(path);
}

TEST(files_that_are_named_exist)
{
    struct buffer content = {0};
    broken = 0;
    each_room(list_folder);
    list_folder("tests");
    buffer_printf(&sources, " ");
    for (char *at = sources.data; (at = strstr(at, " /")) != NULL; at++) {
        char name[300];
        if (sscanf(at, " /%299s", name) == 1)
            check_comments(name);
    }
    assert_int_equal(file_read(&content, SOURCE_TREE "/CONTRIBUTING.md"), 0);
    check_names("CONTRIBUTING.md", content.data, content.data, (size_t)content.length);
    buffer_release(&content);
    buffer_release(&sources);
    assert_int_equal(broken, 0);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
