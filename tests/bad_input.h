/* Fixture for the tests of bad input: puts files in place, runs the program, and checks a failing
 * run. It must end by itself with status 1 or 2, print exactly one message that names the place,
 * and leave no half-made output. Define _GNU_SOURCE before this include. */
#ifndef WEFT_TESTS_BAD_INPUT_H
#define WEFT_TESTS_BAD_INPUT_H
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/model_fixture.h"
#include "tests/weft_process.h"

enum { WORDS_MOST = 14 };

static char *root, *work; /* root: inputs of the test; work: the program's current folder, inside root */
static struct device device;
static struct buffer said, complained; /* stdout and stderr of the last run */

/* ---- Files ---- */

static void put_file(const char *path, const void *bytes, i64 count)
{
    require(file_replace(path, bytes, count) == 0, "%s", error_text());
}

static void copy_tree(const char *to, const char *from)
{
    char **names;
    i64 count;
    if (!file_is_directory(from)) {
        struct buffer content = {0};
        require(file_read(&content, from) == 0, "%s", error_text());
        put_file(to, content.data, content.length);
        buffer_release(&content);
        return;
    }
    require(directory_make(to) == 0 && directory_list(&names, &count, from) == 0, "%s", error_text());
    for (i64 i = 0; i < count; i++) {
        char *in = path_join(from, names[i]), *out = path_join(to, names[i]);
        copy_tree(out, in);
        memory_free(in);
        memory_free(out);
    }
    string_list_free(names, count);
}

/* Appends the names of everything below a folder, with file sizes (-1 for a folder). */
static void list_tree(struct buffer *out, const char *folder)
{
    char **names;
    i64 count;
    require(directory_list(&names, &count, folder) == 0, "%s", error_text());
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(folder, names[i]);
        bool below = file_is_directory(path);
        buffer_printf(out, "%s %lld\n", path, below ? -1 : (long long)file_bytes(path));
        if (below)
            list_tree(out, path);
        memory_free(path);
    }
    string_list_free(names, count);
}

static void clear_work(void)
{
    require(directory_remove(work) == 0 && directory_make(work) == 0, "%s", error_text());
}

/* ---- Running the program ---- */

struct setting_of_run {
    const char *input;   /* stdin */
    const char *out;     /* file for stdout; NULL: captured in `said` */
    i64 file_bytes_most; /* RLIMIT_FSIZE of the run; 0: unlimited */
    bool signals;        /* the status of a run that a signal ended is 128 + its number; else the test fails */
    void (*begin)(void); /* called by the run's process before the program; NULL: nothing */
};

static _Noreturn void become(const char *const *words, const struct setting_of_run *s)
{
    const char *argv[WORDS_MOST + 2] = {"weft"};
    for (int i = 0; i < WORDS_MOST && words[i]; i++)
        argv[i + 1] = words[i];
    if (chdir(root) < 0 || !freopen("stdin", "r", stdin) || !freopen(s->out ? s->out : "stdout", "w", stdout) ||
        !freopen("stderr", "w", stderr) || chdir(work) < 0)
        _exit(99);
    struct rlimit limit = {(rlim_t)s->file_bytes_most, (rlim_t)s->file_bytes_most};
    if (s->file_bytes_most && setrlimit(RLIMIT_FSIZE, &limit) < 0)
        _exit(98);
    if (s->begin)
        s->begin();
    alarm(TEST_SECONDS_MOST); /* SIGALRM kills a program that hangs */
    weft_become((char **)(uintptr_t)argv);
}

static void read_output(struct buffer *out, const char *name)
{
    char *path = path_join(root, name);
    buffer_clear(out);
    require(file_read(out, path) == 0, "%s", error_text());
    memory_free(path);
}

/* Runs the program and returns its exit status. */
static int run_set(const char *const *words, const struct setting_of_run *s)
{
    char *in = path_join(root, "stdin"), *out = path_join(root, "stdout");
    int status;
    put_file(in, s->input ? s->input : "", s->input ? (i64)strlen(s->input) : 0);
    put_file(out, "", 0);
    memory_free(in);
    memory_free(out);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        become(words, s);
    assert_int_equal(waitpid(child, &status, 0), child);
    read_output(&said, "stdout");
    read_output(&complained, "stderr");
    if (s->signals && WIFSIGNALED(status))
        return 128 + WTERMSIG(status);
    if (!WIFEXITED(status))
        fail_msg("weft %s %s was ended by signal %d%s\n%s", words[0], words[1] ? words[1] : "", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? ": it did not end" : "", complained.data);
    return WEXITSTATUS(status);
}
#define WEFT(...) run_set((const char *const[]){__VA_ARGS__, NULL}, &(struct setting_of_run){0})

/* ---- Checks of a failed run ---- */

static void name_run(struct buffer *out, const char *const *words)
{
    buffer_printf(out, "weft");
    for (int i = 0; i < WORDS_MOST && words[i]; i++)
        buffer_printf(out, " %s", words[i]);
}

/* Returns the single "weft: ..." message if it is the last line of stderr, else NULL. */
static const char *only_message(void)
{
    const char *found = NULL;
    int count = 0;
    for (const char *at = complained.data; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, "weft", 4) == 0 && (at[4] == ':' || at[4] == ' ')) {
            found = at;
            count++;
        }
    return count == 1 && strchr(found, '\n') == complained.data + complained.length - 1 ? found : NULL;
}

/* NULL, or why the run did not fail as expected. memory_free */
static char *fault_of_failure(const char *const *words, int status, int expected, const char *const *says)
{
    struct buffer run = {0};
    const char *message = only_message(), *missing = NULL;
    char *fault = NULL;
    name_run(&run, words);
    for (int i = 0; message && says[i] && !missing; i++)
        missing = strstr(message, says[i]) ? NULL : says[i];
    if (status != expected)
        fault = string_format("%s: status %d, expected %d:\n%s", run.data, status, expected, complained.data);
    else if (!message || strstr(complained.data, "internal error"))
        fault = string_format("%s: expected one message at the end, \"weft: ...\":\n%s", run.data, complained.data);
    else if (missing)
        fault = string_format("%s: expected \"%s\" in:\n%s", run.data, missing, message);
    buffer_release(&run);
    return fault;
}

static void expect_failure(const char *const *words, int status, int expected, const char *const *says)
{
    char *fault = fault_of_failure(words, status, expected, says);
    if (fault)
        fail_msg("%s", fault);
}

/* before: the tree of work. NULL if the run left it as it was. memory_free */
static inline char *fault_of_tree(const char *const *words, const struct buffer *before)
{
    struct buffer after = {0}, run = {0};
    char *fault = NULL;
    buffer_append(&after, "", 0);
    list_tree(&after, work);
    name_run(&run, words);
    if (strcmp(before->data, after.data) != 0)
        fault = string_format("%s left something behind:\n%sbefore:\n%s", run.data, after.data, before->data);
    buffer_release(&after);
    buffer_release(&run);
    return fault;
}

static inline void expect_same_tree(const char *const *words, const struct buffer *before)
{
    char *fault = fault_of_tree(words, before);
    if (fault)
        fail_msg("%s", fault);
}

/* ---- Damage ---- */

enum how { AS_IT_IS, TEXT, EMPTY, HALF, FLIPPED, RUBBISH, REPLACED, GONE };
struct damage {
    const char *name; /* path in work */
    enum how how;
    const char *from;       /* file to damage, in work or ../; NULL: itself */
    const char *text, *put; /* TEXT: the content; REPLACED: text is replaced by put */
};

static void replace(struct buffer *content, const char *find, const char *put)
{
    struct buffer next = {0};
    char *at = strstr(content->data, find);
    require(at, "\"%s\" does not stand there", find);
    buffer_append(&next, content->data, at - content->data);
    buffer_printf(&next, "%s%s", put, at + strlen(find));
    buffer_release(content);
    *content = next;
}

static void do_damage(const struct damage *d)
{
    struct buffer content = {0};
    char *path = path_join(work, d->name), *from = path_join(work, d->from ? d->from : d->name);
    if (d->how == AS_IT_IS || d->how == HALF || d->how == FLIPPED || d->how == REPLACED)
        require(file_read(&content, from) == 0, "%s", error_text());
    if (d->how == TEXT)
        buffer_printf(&content, "%s", d->text);
    if (d->how == HALF)
        content.length /= 2;
    if (d->how == FLIPPED)
        content.data[content.length / 2] ^= 1;
    if (d->how == REPLACED)
        replace(&content, d->text, d->put);
    for (i64 i = 0; d->how == RUBBISH && i < 3000; i++) {
        u8 byte = (u8)rng_u32((struct rng_key){5, RNG_TEST}, (u32)i, 0, 0, 0);
        buffer_append(&content, &byte, 1);
    }
    if (d->how == GONE)
        require(unlink(path) == 0, "%s cannot be removed", path);
    else
        put_file(path, content.data ? content.data : "", content.length);
    buffer_release(&content);
    memory_free(path);
    memory_free(from);
}

/* ---- Inputs ---- */

static const struct damaged_medium {
    const char *extension, *good, *other; /* other: a file of another kind */
    const char *option, *expected;
} media[] = {
    {"png", "../picture.png", "../noise.wav", "--image", "expected a picture (PNG,"},
    {"mp4", "../film.mp4", "../picture.png", "--video", "expected a video (MP4,"},
    {"wav", "../noise.wav", "../picture.png", "--audio", "expected a sound (WAV,"},
};

static const char *const training =
    "run: run\nseed: 5\nprecision: f32\nstages:\n"
    "  base: {kind: pretrain, data: ../shards, steps: 6, checkpoint_steps: 2, heldout_rows: 2,\n"
    "         batch: {rows: 2, length: 128, micro_rows: 1}, elastic: {start: 0, slice_rows: 1},\n"
    "         model: {width: 32, layers: 4, heads: 2, kv_heads: 1, head_width: 16, experts: 4, expert_width: 16,\n"
    "                 vit_layers: 1, vit_width: 16, vit_heads: 2}}\n";

static void append_u32(struct buffer *out, u32 value)
{
    buffer_append(out, &value, 4);
}

/* Appends an AVI list or chunk: name, size, content. */
static void append_chunk(struct buffer *out, const char *name, const char *form, const struct buffer *content)
{
    buffer_append(out, name, 4);
    append_u32(out, (u32)content->length + (form ? 4 : 0));
    buffer_append(out, form, form ? 4 : 0);
    buffer_append(out, content->data, content->length);
}

/* Writes an AVI with a sound stream only (DirectX, "AVI RIFF File Reference"). */
static void put_blind_clip(const char *path)
{
    u32 main_header[14] = {[6] = 1}, stream[14] = {[5] = 1, [6] = 16000, [8] = 800, [11] = 2};
    u32 wave[4] = {1 | 1 << 16, 16000, 32000, 2 | 16 << 16}; /* PCM, 1 channel; 16000 Hz; bytes per second; 16 bits */
    u8 samples[1600] = {0};
    struct buffer file = {0}, all = {0}, head = {0}, strl = {0}, movi = {0}, part = {0};
    memcpy(stream, "auds", 4);
    buffer_append(&part, main_header, sizeof main_header);
    append_chunk(&head, "avih", NULL, &part);
    buffer_clear(&part);
    buffer_append(&part, stream, sizeof stream);
    append_chunk(&strl, "strh", NULL, &part);
    buffer_clear(&part);
    buffer_append(&part, wave, sizeof wave);
    append_chunk(&strl, "strf", NULL, &part);
    append_chunk(&head, "LIST", "strl", &strl);
    buffer_clear(&part);
    buffer_append(&part, samples, sizeof samples);
    append_chunk(&movi, "00wb", NULL, &part);
    append_chunk(&all, "LIST", "hdrl", &head);
    append_chunk(&all, "LIST", "movi", &movi);
    append_chunk(&file, "RIFF", "AVI ", &all);
    put_file(path, file.data, file.length);
    struct buffer *texts[] = {&file, &all, &head, &strl, &movi, &part};
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        buffer_release(texts[i]);
}

static void put_inputs_of_writings(void)
{
    static const i64 ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct tensor_source tensor = {
        .name = "input_ids", .dtype = DTYPE_I64, .rank = 2, .shape = {1, 8}, .data = ids};
    struct buffer words = {0};
    for (i64 i = 0; i < 20000; i++)
        buffer_printf(&words, "word %lld\n\n", (long long)(i * i % 977));
    const struct tensor_source none = {.name = "input_ids", .dtype = DTYPE_I64, .rank = 2, .shape = {0, 8}};
    char *to_ids = path_join(root, "ids.safetensors"), *to_none = path_join(root, "none.safetensors"),
         *to_training = path_join(root, "training.yaml"), *to_sharding = path_join(root, "sharding.yaml"),
         *to_words = path_join(root, "words.txt");
    static const char *const sharding =
        "run: run\nprecision: f32\nstages:\n  shards: {kind: prepare, data: ../words.txt, text: ../model}\n";
    require(safetensors_save(to_ids, &tensor, 1, NULL) == 0, "%s", error_text());
    require(safetensors_save(to_none, &none, 1, NULL) == 0, "%s", error_text());
    put_file(to_training, training, (i64)strlen(training));
    put_file(to_sharding, sharding, (i64)strlen(sharding));
    put_file(to_words, words.data, words.length);
    buffer_release(&words);
    memory_free(to_ids);
    memory_free(to_none);
    memory_free(to_training);
    memory_free(to_sharding);
    memory_free(to_words);
}

static int make(void **state)
{
    static const char *const beside[] = {"model", "checkpoints", "picture.png", "film.mp4", "noise.wav"};
    const struct sound silence = {.samples = 0, .rate_hz = 16000};
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    device_open_cpu(&device);
    char *given = fixture_shards("bad-input-given", 80, 40);
    root = string_format("/dev/shm/weft-bad-input-%ld", (long)getpid());
    work = path_join(root, "work");
    char *shards = path_join(root, "shards"), *train_part = path_join(shards, "train"),
         *validation = path_join(shards, "validation"), *silent = path_join(root, "silent.wav"),
         *blind = path_join(root, "blind.avi");
    fixture_model(given, &device);
    fixture_media(given);
    require(directory_remove(root) == 0 && directory_make(work) == 0, "%s", error_text());
    for (i64 i = 0; i < COUNT_OF(beside); i++) {
        char *from = path_join(given, beside[i]), *to = path_join(root, beside[i]);
        assert_int_equal(rename(from, to), 0);
        memory_free(from);
        memory_free(to);
    }
    assert_int_equal(rename(given, shards), 0);
    copy_tree(validation, train_part);
    require(sound_write_wav(silent, &silence) == 0, "%s", error_text());
    put_blind_clip(blind);
    put_inputs_of_writings();
    char *all[] = {given, shards, train_part, validation, silent, blind};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    umount2(work, MNT_DETACH); /* still mounted if a test failed */
    directory_remove(root);
    memory_free(root);
    memory_free(work);
    buffer_release(&said);
    buffer_release(&complained);
    device_close(&device);
    return 0;
}

#endif
