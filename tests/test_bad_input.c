/* Bad input, from outside. Whatever is wrong with a file, an argument or the disk, the program ends by itself with
 * status 1 or 2 and one message that names the place, and leaves nothing half-made; in a data set of thousands a bad
 * file is skipped, named and counted, and a damaged checkpoint gives way to the one before it. */
#define _GNU_SOURCE /* unshare */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/model_fixture.h"
#include <cmocka.h>

enum { SECONDS_MOST = 600, WORDS_MOST = 14 };

static char *root, *work; /* what is given, and inside it the folder the program runs in */
static struct device device;
static struct text said, complained; /* of the last run: stdout, stderr */

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
        struct text content = {0};
        require(file_read(&content, from) == 0, "%s", error_text());
        put_file(to, content.data, content.length);
        text_release(&content);
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

/* Names of everything below a folder, with the sizes of files. */
static void list_tree(struct text *out, const char *folder)
{
    char **names;
    i64 count;
    require(directory_list(&names, &count, folder) == 0, "%s", error_text());
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(folder, names[i]);
        bool below = file_is_directory(path);
        text_printf(out, "%s %lld\n", path, below ? -1 : (long long)file_bytes(path));
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
    const char *out;     /* where stdout goes; NULL: into `said` */
    i64 file_bytes_most; /* 0: as many as there is room for */
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
    alarm(SECONDS_MOST); /* outlives exec: a program that does not end is ended by its signal */
    execv(WEFT_PROGRAM, (char *const *)argv);
    _exit(97);
}

static void read_output(struct text *out, const char *name)
{
    char *path = path_join(root, name);
    text_clear(out);
    require(file_read(out, path) == 0, "%s", error_text());
    memory_free(path);
}

/* The exit status. */
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
    if (!WIFEXITED(status))
        fail_msg("weft %s %s was ended by signal %d%s\n%s", words[0], words[1] ? words[1] : "", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? ": it did not end" : "", complained.data);
    return WEXITSTATUS(status);
}
#define WEFT(...) run_set((const char *const[]){__VA_ARGS__, NULL}, &(struct setting_of_run){0})

/* ---- What a bad run must be like ---- */

static void name_run(struct text *out, const char *const *words)
{
    text_printf(out, "weft");
    for (int i = 0; i < WORDS_MOST && words[i]; i++)
        text_printf(out, " %s", words[i]);
}

/* One message, the last thing said. */
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

static void expect_failure(const char *const *words, int status, int expected, const char *const *says)
{
    struct text run = {0};
    const char *message = only_message();
    name_run(&run, words);
    if (status != expected)
        fail_msg("%s: status %d, expected %d:\n%s", run.data, status, expected, complained.data);
    if (!message || strstr(complained.data, "internal error"))
        fail_msg("%s: expected one message at the end, \"weft: ...\":\n%s", run.data, complained.data);
    for (int i = 0; says[i]; i++)
        if (!strstr(message, says[i]))
            fail_msg("%s: expected \"%s\" in:\n%s", run.data, says[i], message);
    text_release(&run);
}

static void expect_same_tree(const char *const *words, const struct text *before)
{
    struct text after = {0}, run = {0};
    text_append(&after, "", 0);
    list_tree(&after, work);
    name_run(&run, words);
    if (strcmp(before->data, after.data) != 0)
        fail_msg("%s left something behind:\n%sbefore:\n%s", run.data, after.data, before->data);
    text_release(&after);
    text_release(&run);
}

static void expect_words(const char *part)
{
    if (!strstr(complained.data, part))
        fail_msg("expected \"%s\" in:\n%s", part, complained.data);
}

/* ---- Tables ---- */

enum how { AS_IT_IS, TEXT, EMPTY, HALF, FLIPPED, RUBBISH, REPLACED, GONE };
struct damage {
    const char *name; /* in work */
    enum how how;
    const char *from;       /* what it is made of, in work or ../; NULL: itself */
    const char *text, *put; /* TEXT: the content; REPLACED: what is found there, what is put in its place */
};
struct row {
    const char *folder; /* copied into work first; NULL: none */
    struct damage damage;
    const char *words[WORDS_MOST];
    const char *says[4];
    int status; /* 0 stands for 1 */
    const char *input;
};

static void replace(struct text *content, const char *find, const char *put)
{
    struct text next = {0};
    char *at = strstr(content->data, find);
    require(at, "\"%s\" does not stand there", find);
    text_append(&next, content->data, at - content->data);
    text_printf(&next, "%s%s", put, at + strlen(find));
    text_release(content);
    *content = next;
}

static void do_damage(const struct damage *d)
{
    struct text content = {0};
    char *path = path_join(work, d->name), *from = path_join(work, d->from ? d->from : d->name);
    if (d->how == AS_IT_IS || d->how == HALF || d->how == FLIPPED || d->how == REPLACED)
        require(file_read(&content, from) == 0, "%s", error_text());
    if (d->how == TEXT)
        text_printf(&content, "%s", d->text);
    if (d->how == HALF)
        content.length /= 2;
    if (d->how == FLIPPED)
        content.data[content.length / 2] ^= 1;
    if (d->how == REPLACED)
        replace(&content, d->text, d->put);
    for (i64 i = 0; d->how == RUBBISH && i < 3000; i++) {
        u8 byte = (u8)rng_u32((struct rng_key){5, RNG_TEST}, (u32)i, 0, 0, 0);
        text_append(&content, &byte, 1);
    }
    if (d->how == GONE)
        require(unlink(path) == 0, "%s cannot be removed", path);
    else
        put_file(path, content.data ? content.data : "", content.length);
    text_release(&content);
    memory_free(path);
    memory_free(from);
}

static void check_row(const struct row *row)
{
    struct text before = {0};
    clear_work();
    if (row->folder) {
        char *to = path_join(work, row->folder), *from = path_join(root, row->folder);
        copy_tree(to, from);
        memory_free(to);
        memory_free(from);
    }
    if (row->damage.name)
        do_damage(&row->damage);
    text_append(&before, "", 0);
    list_tree(&before, work);
    int status = run_set(row->words, &(struct setting_of_run){.input = row->input});
    expect_failure(row->words, status, row->status ? row->status : 1, row->says);
    expect_same_tree(row->words, &before);
    text_release(&before);
}

static void check_rows(const struct row *rows, i64 count)
{
    for (i64 i = 0; i < count; i++)
        check_row(&rows[i]);
}
#define CHECK(rows) check_rows(rows, COUNT_OF(rows))

/* ---- Recipes ---- */

#define RECIPE(content, ...)                                                                                           \
    {                                                                                                                  \
        .damage = {"r.yaml", TEXT, NULL, content}, .words = {"run", "r.yaml"}, .says = {__VA_ARGS__}, .status = 2      \
    }
#define PRETRAIN(line) "run: out\nstages:\n  a:\n    kind: pretrain\n    data: ../shards\n    " line "\n"

static void recipes_are_refused_by_line(void **state)
{
    static const struct row rows[] = {
        RECIPE(PRETRAIN("stepz: 3"), "r.yaml:6", "stepz", "did you mean steps?"),
        RECIPE(PRETRAIN("model: {widht: 3}"), "r.yaml:6", "model.widht", "did you mean model.width?"),
        RECIPE(PRETRAIN("steps: many"), "r.yaml:6", "steps", "expected an integer, found 'many'"),
        RECIPE(PRETRAIN("steps: 3.5"), "r.yaml:6", "steps", "expected an integer"),
        RECIPE(PRETRAIN("steps: [1, 2]"), "r.yaml:6", "steps", "found a list"),
        RECIPE(PRETRAIN("steps: {a: 1}"), "r.yaml:6", "steps", "found a mapping"),
        RECIPE(PRETRAIN("model: 5"), "r.yaml:6", "model", "expected a mapping"),
        RECIPE(PRETRAIN("model: {tied: maybe}"), "r.yaml:6", "model.tied", "expected true or false"),
        RECIPE(PRETRAIN("optimizer: {lr: nan}"), "r.yaml:6", "optimizer.lr", "expected a number"),
        RECIPE(PRETRAIN("optimizer: {shape: cosin}"), "r.yaml:6", "optimizer.shape", "constant|cosine|wsd"),
        RECIPE(PRETRAIN("steps: -5"), "r.yaml:6", "steps", "expected 1 to 1000000000"),
        RECIPE(PRETRAIN("optimizer: {lr: 11}"), "r.yaml:6", "optimizer.lr", "out of range"),
        RECIPE("run: out\nstages:\n  a: {kind: tokenizer-audio, data: ./data, crop_s: 50}\n", "r.yaml:3", "crop_s",
               "expected 0.08 to 40.96"),
        RECIPE(PRETRAIN("data: ./there"), "r.yaml:6", "data", "twice"),
        RECIPE(PRETRAIN("from: bass"), "r.yaml:6", "from", "\"bass\" names no stage"),
        RECIPE("run: out\nstages:\n  base: {kind: extract, from: ../model, topk: 1}\n"
               "  b: {kind: export, from: bas}\n",
               "r.yaml:4", "\"bas\" names no stage", "did you mean \"base\""),
        RECIPE("run: out\nstages:\n  a:\n    kind: pretrain\n", "r.yaml:4", "data is missing"),
        RECIPE("run: out\nstages:\n  a: {kind: pretrian}\n", "r.yaml:3", "pretrian", "did you mean \"pretrain\""),
        RECIPE("run: out\nstages:\n  a: {}\n", "r.yaml:3", "stage a has no kind"),
        RECIPE("run: out\nstages:\n  ../a: {kind: report}\n", "r.yaml:3", "../a", "expected letters, digits"),
        RECIPE("run: out\nstages: 3\n", "r.yaml:2", "stages"),
        RECIPE("stages: {a: {kind: report}}\n", "r.yaml", "\"run\" is missing"),
        RECIPE("run: out\nseed: -1\nstages: {a: {kind: report}}\n", "r.yaml:2", "seed", "expected a whole number"),
        RECIPE("run: out\nsead: 1\nstages: {a: {kind: report}}\n", "r.yaml:2", "sead", "did you mean seed"),
        RECIPE("run: out\nprecision: f16\nstages: {a: {kind: report}}\n", "r.yaml:2", "precision", "found f16"),
        RECIPE("run: out\nstages: {a: {kind: report}\n", "r.yaml:3", "not valid YAML"),
        RECIPE("run: out\nstages: {a: {kind: \xff\xfe}}\n", "r.yaml: byte 28", "UTF-8"),
        RECIPE("", "r.yaml", "there is nothing in it"),
        {.damage = {"r.yaml", RUBBISH}, .words = {"run", "r.yaml"}, .says = {"r.yaml", "not valid YAML"}, .status = 2},
        {.words = {"run", "missing.yaml"}, .says = {"missing.yaml", "cannot be opened"}},
        {.words = {"run", "../model"}, .says = {"../model", "directory"}},
        {.damage = {"r.yaml", TEXT, NULL, PRETRAIN("steps: 3")},
         .words = {"run", "r.yaml", "a.stepz=3"},
         .says = {"command line", "stepz", "did you mean steps?"},
         .status = 2},
        {.damage = {"r.yaml", TEXT, NULL, PRETRAIN("steps: 3")},
         .words = {"run", "r.yaml", "a.steps=x"},
         .says = {"command line", "steps", "expected an integer"},
         .status = 2},
        {.damage = {"r.yaml", TEXT, NULL, PRETRAIN("steps: 3")},
         .words = {"run", "r.yaml", "a.data=shrds"},
         .says = {"command line", "data", "names no stage"},
         .status = 2},
        {.damage = {"r.yaml", TEXT, NULL, PRETRAIN("steps: 3")},
         .words = {"run", "r.yaml", "b"},
         .says = {"r.yaml", "no stage \"b\"", "its stages: a"},
         .status = 2},
        {.damage = {"r.yaml", TEXT, NULL, PRETRAIN("steps: 3")},
         .words = {"run", "r.yaml", "speed=1"},
         .says = {"speed=1", "expected run=, seed=, precision="},
         .status = 2},
    };
    (void)state;
    CHECK(rows);
}

/* ---- Media ---- */

static const struct medium {
    const char *extension, *good, *other; /* other: a file of another kind */
    const char *option, *expected;
} media[] = {
    {"png", "../picture.png", "../noise.wav", "--image", "expected a picture (PNG,"},
    {"mp4", "../film.mp4", "../picture.png", "--video", "expected a video (MP4,"},
    {"wav", "../noise.wav", "../picture.png", "--audio", "expected a sound (WAV,"},
};

static void check_medium(const struct medium *m, enum how how, const char *from, const char *says)
{
    char *name = string_format("bad.%s", m->extension);
    struct row row = {.words = {"generate", "../model", m->option, name, "--to", "image", "-o", "out.png"},
                      .says = {name, says}};
    if (how != GONE)
        row.damage = (struct damage){name, how, from};
    check_row(&row);
    if (how != AS_IT_IS) { /* what a file is decides its content, not its name */
        struct row back = {
            .damage = row.damage,
            .words = {"reconstruct", "../model", m->good, name, "-o", "out"},
            .says = {name, how == EMPTY || how == RUBBISH ? "expected a picture, a video or a sound" : says}};
        check_row(&back);
    }
    memory_free(name);
}

static void media_are_refused_by_name(void **state)
{
    static const struct row rows[] = {
        {.words = {"generate", "../model", "--audio", "../silent.wav"}, .says = {"silent.wav", "no samples"}},
        {.words = {"reconstruct", "../model", "../silent.wav", "-o", "out"}, .says = {"silent.wav", "no samples"}},
        {.words = {"generate", "../model", "--video", "../blind.avi"}, .says = {"blind.avi", "without video"}},
        {.words = {"generate", "../model", "--audio", "../film.mp4"}, .says = {"film.mp4", "without sound"}},
        {.words = {"reconstruct", "../model", "../shards", "-o", "out"}, .says = {"../shards", "expected a file"}},
        {.words = {"reconstruct", "../shards", "../picture.png", "-o", "out"}, .says = {"no vision tokenizer"}},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(media); i++) {
        const struct medium *m = &media[i];
        check_medium(m, GONE, NULL, "cannot be opened");
        check_medium(m, EMPTY, NULL, "found an empty file");
        check_medium(m, HALF, m->good, "cut short");
        check_medium(m, RUBBISH, NULL, m->expected);
        check_medium(m, AS_IT_IS, m->other, m->expected);
    }
    CHECK(rows);
}

/* ---- Text ---- */

#define TOKENIZE(content, ...)                                                                                         \
    {                                                                                                                  \
        .words = {"tokenize", "../model"}, .says = {__VA_ARGS__}, .input = content                                     \
    }
#define DECODE(content, ...)                                                                                           \
    {                                                                                                                  \
        .words = {"tokenize", "../model", "--decode"}, .says = {__VA_ARGS__}, .input = content                         \
    }
#define TOKENIZER(how_, content, ...)                                                                                  \
    {                                                                                                                  \
        .damage = {"t.json", how_, "../model/tokenizer.json", content}, .words = {"tokenize", "t.json"}, .says = {     \
            "t.json",                                                                                                  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static void texts_are_refused_by_line(void **state)
{
    static const struct row rows[] = {
        TOKENIZE("rubbish\n", "stdin:1", "not valid JSON"),
        TOKENIZE("\n{\"text\":\"a\"}\n\n{\"text\":1}\n", "stdin:4", "expected an object with a string \"text\""),
        TOKENIZE("[\"a\"]\n", "stdin:1", "expected an object"),
        TOKENIZE("{\"text\":\"a\"\n", "stdin:1", "not valid JSON"),
        TOKENIZE("{\"text\":\"a\"}\n{\"text\":\"\xff\"}\n", "stdin:2:9", "unable to decode byte 0xff"),
        TOKENIZE("{\"text\":\"\\ud800\"}\n", "stdin:1", "invalid Unicode"),
        DECODE("{\"ids\":\"a\"}\n", "stdin:1", "expected an object with an array \"ids\""),
        DECODE("{\"ids\":[1,-1]}\n", "stdin:1", "ids[1]", "expected a whole number"),
        DECODE("{\"ids\":[1,99999]}\n", "stdin:1", "id 99999", "ids go from 0 to"),
        TOKENIZER(EMPTY, NULL, "not valid JSON"),
        TOKENIZER(HALF, NULL, "not valid JSON"),
        TOKENIZER(RUBBISH, NULL, "not valid JSON"),
        TOKENIZER(TEXT, "{}", "model is missing", "expected an object with a type and a vocabulary"),
        TOKENIZER(TEXT, "{\"model\":{\"type\":\"Bigram\"}}", "model: type 'Bigram' is not supported",
                  "expected one of BPE, Unigram"),
        {.words = {"tokenize", "missing"}, .says = {"missing", "No such file"}},
        {.words = {"generate", "../model", "--prompt", "a\xff"}, .says = {"--prompt", "not UTF-8 at byte 1"}},
        {.words = {"generate", "../model", "--prompt", ""}, .says = {"empty", "expected at least one id"}, .status = 2},
    };
    (void)state;
    CHECK(rows);
}

/* ---- Models ---- */

#define MODEL(name, how_, find, put, ...)                                                                              \
    {                                                                                                                  \
        .folder = "model", .damage = {name, how_, NULL, find, put},                                                    \
        .words = {"extract", "model", "-o", "out", "--topk", "1"}, .says = {                                           \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define CONFIG(find, put, ...) MODEL("model/config.json", REPLACED, find, put, "model/config.json", __VA_ARGS__)
#define LLAMA(...)                                                                                                     \
    {                                                                                                                  \
        .folder = "model", .damage = {"model/config.json", REPLACED, NULL, "\"ernie4_5_moe\"", "\"llama\""},           \
        .words = {__VA_ARGS__}, .says = {                                                                              \
            "config.json",                                                                                             \
            "model_type is \"llama\"",                                                                                 \
            "expected \"ernie4_5_moe\""                                                                                \
        }                                                                                                              \
    }
#define STUDIO(name, how_, find, put, ...)                                                                             \
    {                                                                                                                  \
        .folder = "model", .damage = {name, how_, NULL, find, put},                                                    \
        .words = {"generate", "model", "--prompt", "a", "--to", "image", "-o", "out.png"}, .says = {                   \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

#define WORN(name) /* a bit of it is another */                                                                        \
    {                                                                                                                  \
        .folder = "model", .damage = {name, FLIPPED}, .words = {"inspect", "model"}, .says = {                         \
            name,                                                                                                      \
            "the checksum of its tensors",                                                                             \
            "damaged or changed"                                                                                       \
        }                                                                                                              \
    }

static void models_are_refused_by_file(void **state)
{
    static const struct row rows[] = {
        LLAMA("extract", "model", "-o", "out", "--topk", "1"),
        LLAMA("generate", "model", "--prompt", "a"),
        LLAMA("eval", "model", "--data", "../shards"),
        LLAMA("grid", "model", "--data", "../shards"),
        LLAMA("routing", "model", "--data", "../shards", "-o", "out"),
        LLAMA("export", "model", "-o", "out"),
        LLAMA("export", "model", "--to", "gguf", "-o", "out"),
        LLAMA("inspect", "model"),
        MODEL("model/config.json", TEXT, "{\"model_type\":\"gpt2\",\"n_embd\":768}", NULL, "model_type is \"gpt2\""),
        MODEL("model/config.json", GONE, NULL, NULL, "model: no config.json there", "expected a model directory"),
        MODEL("model/config.json", EMPTY, NULL, NULL, "model/config.json", "not valid JSON"),
        CONFIG("\"hidden_size\": 32", "\"hidden_size\": \"a\"", "hidden_size", "found a string"),
        CONFIG("\"hidden_size\": 32", "\"hidden_sice\": 32", "hidden_size is missing"),
        CONFIG("\"hidden_size\": 32", "\"hidden_size\": 1000000000000000", "hidden_size", "expected 1 to"),
        CONFIG("\"hidden_size\": 32", "\"hidden_size\": -32", "hidden_size", "expected 1 to"),
        CONFIG("\"moe_num_experts\": 8", "\"moe_num_experts\": 0", "moe_num_experts", "expected a positive"),
        CONFIG("\"moe_k\": 2", "\"moe_k\": 9", "moe_k is 9", "more than moe_num_experts"),
        CONFIG("\"vision_bits\": 6", "\"vision_bits\": -6", "weft.vision_bits", "expected 0 to"),
        CONFIG("\"num_key_value_heads\": 2", "\"num_key_value_heads\": \"2\"", "key num_key_value_heads",
               "expected a whole number, found \"2\""),
        CONFIG("\"head_dim\": 8", "\"head_dim\": 8.5", "key head_dim", "expected a whole number, found 8.5"),
        CONFIG("\"moe_k\": 2", "\"moe_k\": true", "key moe_k", "expected a whole number, found true"),
        CONFIG("\"use_bias\": false", "\"use_bias\": 1", "key use_bias", "expected true or false, found 1"),
        CONFIG("\"moe_layer_interval\": 1", "\"moe_layer_interval\": \"2\"", "key moe_layer_interval",
               "a whole number"),
        CONFIG("\"use_bias\": false", "\"rope_scaling\": \"linear\"", "scaled rotary positions"),
        CONFIG("\"hidden_act\": \"silu\"", "\"hidden_act\": 7", "key hidden_act", "expected a string, found 7"),
        CONFIG("\"rms_norm_eps\": ", "\"rms_norm_eps\": -", "key rms_norm_eps", "expected a number from 0, found -"),
        CONFIG("\"tie_word_embeddings\": ", "\"tie_word_embeddings\": 0, \"x\": ", "key tie_word_embeddings",
               "found 0"),
        CONFIG("\"vision_bits\": 6", "\"vision_bits\": \"6\"", "key weft.vision_bits", "a whole number"),
        CONFIG("\"weft\": {", "\"weft\": 3, \"x\": {", "key weft", "expected an object, found 3"),
        CONFIG("\"rope_parameters\": {", "\"rope_parameters\": [], \"x\": {", "key rope_parameters", "an object"),
        MODEL("model/config.json", REPLACED, "\"hidden_size\": 32", "\"hidden_size\": 64", "expected [320,64]",
              "does not describe these weights"),
        WORN("model/model.safetensors"),
        WORN("model/weft/extra.safetensors"),
        WORN("model/weft/vision/weights.safetensors"),
        WORN("model/weft/audio/weights.safetensors"),
        MODEL("model/model.safetensors", GONE, NULL, NULL, "model: no weights", "expected model.safetensors"),
        MODEL("model/model.safetensors", EMPTY, NULL, NULL, "model.safetensors", "too few"),
        MODEL("model/model.safetensors", HALF, NULL, NULL, "model.safetensors"),
        MODEL("model/model.safetensors", RUBBISH, NULL, NULL, "model.safetensors"),
        MODEL("model/weft/extra.safetensors", GONE, NULL, NULL, "weft/extra.safetensors"),
        MODEL("model/weft/extra.safetensors", HALF, NULL, NULL, "weft/extra.safetensors"),
        STUDIO("model/tokenizer.json", HALF, NULL, NULL, "model/tokenizer.json"),
        STUDIO("model/weft/vision/config.json", GONE, NULL, NULL, "weft/vision/config.json"),
        STUDIO("model/weft/vision/config.json", REPLACED, "\"bits\": 6", "\"bits\": 7", "weft/vision"),
        STUDIO("model/weft/vision/weights.safetensors", HALF, NULL, NULL, "weft/vision/weights.safetensors"),
        STUDIO("model/weft/audio/weights.safetensors", EMPTY, NULL, NULL, "weft/audio/weights.safetensors"),
        STUDIO("model/weft/audio/config.json", HALF, NULL, NULL, "weft/audio/config.json"),
        {.folder = "model",
         .damage = {"model/config.json", GONE},
         .words = {"inspect", "model"},
         .says = {"model: no config.json there"}},
        {.words = {"logits", "../model", "--ids", "../none.safetensors", "-o", "out"},
         .says = {"none.safetensors", "input_ids", "at least one id"}},
        {.words = {"extract", "../shards", "-o", "out"}, .says = {"../shards", "expected a model directory"}},
        {.folder = "checkpoints",
         .damage = {"checkpoints/step-000007/model.safetensors", FLIPPED},
         .words = {"inspect", "checkpoints"},
         .says = {"step-000007/model.safetensors", "checksum differs"}},
        {.folder = "checkpoints",
         .damage = {"checkpoints/step-000007/weft/optimizer.safetensors", HALF},
         .words = {"inspect", "checkpoints"},
         .says = {"optimizer.safetensors", "cut short"}},
    };
    (void)state;
    CHECK(rows);
}

/* The sizes agree with the tokenizer's own files, not with the model's. */
static void tokenizers_of_another_model_are_refused(void **state)
{
    static const char *const words[] = {"generate", "model", "--image", "../picture.png", NULL};
    static const char *const says[] = {"model", "3 audio levels", "not trained together", NULL};
    struct audio_config sizes = {.width = 16, .latent = 8, .levels = 3, .codes = 16};
    struct audio_tokenizer audio;
    char *model = path_join(root, "model"), *copy = path_join(work, "model"), *other = path_join(copy, "weft/audio");
    (void)state;
    clear_work();
    copy_tree(copy, model);
    audio_open(&audio, &device, &sizes, DTYPE_F32, false);
    weights_init(&audio.weights, 1);
    require(audio_save(&audio, other) == 0, "%s", error_text());
    audio_close(&audio);
    expect_failure(words, run_set(words, &(struct setting_of_run){0}), 1, says);
    memory_free(model);
    memory_free(copy);
    memory_free(other);
}

/* ---- Options ---- */

#define OPTION(says_, ...)                                                                                             \
    {                                                                                                                  \
        .words = {__VA_ARGS__}, .says = {says_}, .status = 2                                                           \
    }

static void options_that_cannot_be_followed_are_refused(void **state)
{
    static const struct row rows[] = {
        OPTION("-o is empty", "extract", "../model", "-o", "", "--topk", "1"),
        OPTION("-o is empty", "export", "../model", "-o="),
        OPTION("-o out/: expected the name of a file", "export", "../model", "-o", "out/", "--to", "gguf"),
        OPTION("-o is empty", "reconstruct", "../model", "../picture.png", "-o", ""),
        OPTION("--seed 99999999999999999999", "generate", "../model", "--prompt", "a", "--seed",
               "99999999999999999999"),
        OPTION("--shape nope", "generate", "../model", "--prompt", "a", "--shape", "nope"),
        OPTION("--greedy", "generate", "../model", "--prompt", "a", "--greedy", "--temperature", "nan"),
    };
    (void)state;
    CHECK(rows);
}

/* ---- Sub-models ---- */

#define SUBMODEL(option, value, ...)                                                                                   \
    {                                                                                                                  \
        .words = {"extract", "../model", "-o", "out", option, value}, .says = {option, __VA_ARGS__}, .status = 2       \
    }
#define LISTS(content, ...)                                                                                            \
    {                                                                                                                  \
        .damage = {"lists.json", TEXT, NULL, content},                                                                 \
        .words = {"extract", "../model", "-o", "out", "--experts", "@lists.json"}, .says = {__VA_ARGS__}, .status = 2  \
    }

static void sub_models_that_do_not_fit_are_refused(void **state)
{
    static const struct row rows[] = {
        SUBMODEL("--layers", "0-9", "0-9", "9 is beyond the last one, 3"),
        SUBMODEL("--layers", "3-1", "ends before it begins"),
        SUBMODEL("--layers", "x", "expected numbers and ranges"),
        SUBMODEL("--layers", "-1", "expected numbers and ranges"),
        SUBMODEL("--layers", " -100000000-3", "expected numbers and ranges"),
        SUBMODEL("--layers", "0, -2,3", "expected numbers and ranges"),
        SUBMODEL("--layers", "0,1", "must stay"), /* the top ones carry audio heads */
        SUBMODEL("--experts", "0", "expected 1 to 8"),
        SUBMODEL("--experts", "9", "expected 1 to 8"),
        SUBMODEL("--experts", "1,8", "8 is beyond the last one, 7"),
        SUBMODEL("--experts", "1", "keeps 1 experts, fewer than top-k 2", "add --topk 1"),
        SUBMODEL("--experts", "", "at least one expert"),
        SUBMODEL("--experts", "@", "expected the name of a file"),
        SUBMODEL("--topk", "0", "expected 1 to 2"),
        SUBMODEL("--topk", "3", "expected 1 to 2"),
        SUBMODEL("--topk", "99999999999999999999", "expected 1 to 2"),
        LISTS("[[0,1]]", "lists.json", "1 lists, expected one for each of 4 layers"),
        LISTS("[[],[0,1],[2],[0,1]]", "lists.json", "layer 2", "must be equal"),
        LISTS("[[],[0,1],[0,8],[0,1]]", "lists.json", "layer 2", "expected ascending expert ids below 8"),
        LISTS("[[0],[0,1],[0,1],[0,1]]", "lists.json", "layer 0 has no experts"),
        LISTS("[[],[],[],[]]", "lists.json", "at least one expert"),
        {.damage = {"lists.json", TEXT, NULL, "[[0,"},
         .words = {"extract", "../model", "-o", "out", "--experts", "@lists.json"},
         .says = {"lists.json", "not valid JSON"}},
        {.words = {"extract", "../model", "-o", "out", "--experts", "@missing.json"}, .says = {"missing.json"}},
        {.words = {"generate", "../model", "--prompt", "a", "--topk", "3"}, .says = {"--topk 3"}, .status = 2},
        {.words = {"eval", "../model", "--data", "../shards", "--layers", "0-9"}, .says = {"--layers"}, .status = 2},
        {.words = {"routing", "../model", "--data", "../shards", "-o", "out", "--experts", "0"},
         .says = {"--experts 0"},
         .status = 2},
        {.words = {"grid", "../model", "--data", "../shards", "--topk", "1"}, .says = {"--topk"}, .status = 2},
    };
    (void)state;
    CHECK(rows);
}

/* ---- Shards ---- */

#define SHARDS(name, how_, ...)                                                                                        \
    {.folder = "shards",                                                                                               \
     .damage = {name, how_},                                                                                           \
     .words = {"eval", "../model", "--data", "shards", "--length", "128"},                                             \
     .says = {__VA_ARGS__}},                                                                                           \
        {.folder = "shards",                                                                                           \
         .damage = {name, how_},                                                                                       \
         .words = {"grid", "../model", "--data", "shards", "--length", "128"},                                         \
         .says = {__VA_ARGS__}},                                                                                       \
        {.folder = "shards",                                                                                           \
         .damage = {name, how_},                                                                                       \
         .words = {"routing", "../model", "--data", "shards", "--length", "128", "-o", "out"},                         \
         .says = {__VA_ARGS__}},                                                                                       \
    {                                                                                                                  \
        .folder = "shards", .damage = {name, how_}, .words = {"inspect", "shards"}, .says = { "shards" }               \
    }

static void shards_are_refused_by_place(void **state)
{
    static const struct row rows[] = {
        SHARDS("shards/validation/00000.shard", FLIPPED, "validation/00000.shard: byte", "prepare the shards again"),
        SHARDS("shards/validation/00000.shard", HALF, "validation/00000.shard", "cut short",
               "prepare the shards again"),
        SHARDS("shards/validation/00000.shard", EMPTY, "validation/00000.shard", "prepare the shards again"),
        SHARDS("shards/validation/index", FLIPPED, "validation/index", "damaged", "prepare the shards again"),
        SHARDS("shards/validation/index", HALF, "validation/index", "cut short"),
        SHARDS("shards/shards.json", HALF, "shards/shards.json", "not valid JSON"),
        SHARDS("shards/shards.json", GONE, "shards: no shards.json there", "expected a folder that prepare made"),
        {.words = {"eval", "../model", "--data", "../model"}, .says = {"../model", "no shards.json"}},
        {.words = {"eval", "../model", "--data", "missing"}, .says = {"missing"}},
        {.words = {"eval", "../model", "--data", "../shards", "--part", "tests"}, .says = {"shards/tests", "no index"}},
        {.folder = "model",
         .damage = {"model/config.json", REPLACED, NULL, "\"vision_bits\": 6", "\"vision_bits\": 0"},
         .words = {"eval", "model", "--data", "../shards", "--length", "128"},
         .says = {"../shards holds pictures", "does not read"}},
        SHARDS("shards/validation/index", GONE, "shards/validation", "no index there", "expected a part that prepare"),
        {.words = {"report", "../model"}, .says = {"../model", "no run.json there"}},
    };
    (void)state;
    CHECK(rows);
}

/* ---- Data sets ---- */

static const char *const bad_files[] = {"empty.png", "half.png",  "other.png",  "missing.png",
                                        "empty.mp4", "half.mp4",  "other.mp4",  "empty.wav",
                                        "half.wav",  "other.wav", "silent.wav", "missing.wav"};

/* Ten good ones of each kind in data/, and the bad ones. */
static void make_data_set(void)
{
    static const char *const keys[] = {"image", "video", "audio"};
    struct text captions = {0};
    clear_work();
    char *folder = path_join(work, "data"), *list = path_join(folder, "captions.jsonl");
    require(directory_make(folder) == 0, "%s", error_text());
    for (i64 i = 0; i < COUNT_OF(media); i++) {
        const struct medium *m = &media[i];
        const struct {
            const char *stem, *from;
            enum how how;
        } files[] = {{"good", m->good, AS_IT_IS},
                     {"empty", NULL, EMPTY},
                     {"half", m->good, HALF},
                     {"other", m->other, AS_IT_IS}};
        for (i64 f = 0; f < COUNT_OF(files); f++) {
            char *name = string_format("data/%s.%s", files[f].stem, m->extension);
            do_damage(&(struct damage){name, files[f].how, files[f].from});
            memory_free(name);
        }
        for (i64 k = 0; k < 10; k++)
            text_printf(&captions, "{\"%s\":\"good.%s\",\"text\":\"a thing to see or hear\"}\n", keys[i], m->extension);
    }
    do_damage(&(struct damage){"data/silent.wav", AS_IT_IS, "../silent.wav"});
    for (i64 i = 0; i < COUNT_OF(bad_files); i++) {
        const char *extension = strchr(bad_files[i], '.') + 1;
        text_printf(&captions, "{\"%s\":\"%s\",\"text\":\"x\"}\n",
                    strcmp(extension, "png") == 0   ? "image"
                    : strcmp(extension, "mp4") == 0 ? "video"
                                                    : "audio",
                    bad_files[i]);
    }
    text_printf(&captions,
                "rubbish\n{\"image\":\"good.png\",\"text\":\"\xff\"}\n{\"audio\":\"good.wav\",\"text\":\"cut");
    put_file(list, captions.data, captions.length);
    do_damage(&(struct damage){"data/words.txt", TEXT, NULL, "good words\n\xff\xfe and others\n"});
    text_release(&captions);
    memory_free(folder);
    memory_free(list);
}

/* Lines 43, 44 and 45 of captions.jsonl are not JSON. */
static const char *const bad_lines[] = {"captions.jsonl:43:7: not valid JSON",
                                        "captions.jsonl:44:", "captions.jsonl:45:"};

static void expect_skipped(const char *const *names, i64 count, const char *extension)
{
    for (i64 i = 0; i < count; i++)
        if (!extension || strstr(names[i], extension)) {
            char *place = string_format("/%s", names[i]), *line = strstr(complained.data, place);
            if (!line)
                fail_msg("%s is not named:\n%s", names[i], complained.data);
            while (line > complained.data && line[-1] != '\n')
                line--;
            assert_memory_equal(line, "warning: skipped: ", 18);
            memory_free(place);
        }
}

static void bad_files_of_a_data_set_are_skipped_and_counted(void **state)
{
    static const struct {
        const char *name, *skips[3], *counted;
    } stages[] = {
        {"bpe", {NULL}, "4 of 46 samples"},
        {"vis", {".png", ".mp4"}, "10 of 30 pictures and clips"},
        {"aud", {".wav"}, "8 of 18 recordings"},
        {"shards", {".png", ".mp4", ".wav"}, "16 of 46 samples"},
    };
    static const char *const recipe =
        "run: run\nprecision: f32\nstages:\n"
        "  bpe: {kind: tokenizer-text, data: ./data, vocabulary: 300}\n"
        "  vis: {kind: tokenizer-vision, data: ./data, steps: 1, clip_steps: 0, size: 32, channels: [8, 8]}\n"
        "  aud: {kind: tokenizer-audio, data: ./data, steps: 1}\n"
        "  shards: {kind: prepare, data: ./data, text: ../model, vision: ../model/weft/vision,\n"
        "           audio: ../model/weft/audio}\n";
    (void)state;
    make_data_set();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, recipe});
    for (i64 i = 0; i < COUNT_OF(stages); i++) {
        char *patient = string_format("%s.bad_share=0.5", stages[i].name), *run = path_join(work, "run"),
             *made = path_join(run, stages[i].name);
        const char *const words[] = {"run", "r.yaml", stages[i].name, NULL};
        const char *const says[] = {stages[i].name, "./data", stages[i].counted, NULL};
        int status = run_set(words, &(struct setting_of_run){0});
        expect_failure(words, status, 1, says);
        expect_words("bad");
        assert_false(file_exists(made));
        require(directory_remove(run) == 0, "%s", error_text());
        if (WEFT("run", "r.yaml", stages[i].name, patient))
            fail_msg("%s", complained.data);
        for (i64 k = 0; k < 3 && stages[i].skips[k]; k++)
            expect_skipped(bad_files, COUNT_OF(bad_files), stages[i].skips[k]);
        expect_skipped(bad_lines, COUNT_OF(bad_lines), NULL);
        assert_true(file_exists(made));
        memory_free(patient);
        memory_free(run);
        memory_free(made);
    }
}

/* ---- Checkpoints ---- */

static const char *const training =
    "run: run\nseed: 5\nprecision: f32\nstages:\n"
    "  base: {kind: pretrain, data: ../shards, steps: 6, checkpoint_steps: 2, heldout_rows: 2,\n"
    "         batch: {rows: 2, length: 128, micro_rows: 1}, elastic: {slice_rows: 1},\n"
    "         model: {width: 32, layers: 4, heads: 2, kv_heads: 1, head_width: 16, experts: 4, expert_width: 16,\n"
    "                 vit_layers: 1, vit_width: 16, vit_heads: 2}}\n";

/* ROOT/trained: a run that was cut short behind its last checkpoint; model: what it would have made. */
static void train(struct text *model)
{
    char *run = path_join(work, "run"), *to = path_join(root, "trained"), *made = path_join(to, "base"),
         *partial = path_join(to, "base.partial");
    clear_work();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    if (WEFT("run", "r.yaml"))
        fail_msg("%s", complained.data);
    assert_int_equal(rename(run, to), 0);
    assert_int_equal(rename(made, partial), 0);
    char *done = path_join(partial, "done.json"), *weights = path_join(partial, "model.safetensors");
    require(file_read(model, weights) == 0, "%s", error_text());
    assert_int_equal(unlink(weights) | unlink(done), 0);
    char *all[] = {run, to, made, partial, done, weights};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static void damage_and_go_on(const struct damage *damages, i64 count)
{
    char *run = path_join(work, "run"), *from = path_join(root, "trained");
    clear_work();
    copy_tree(run, from);
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    for (i64 i = 0; i < count; i++)
        do_damage(&damages[i]);
    memory_free(run);
    memory_free(from);
}

#define NEWEST "run/base.partial/checkpoints/step-000006/"
#define BEFORE "run/base.partial/checkpoints/step-000004/"

static void a_damaged_checkpoint_gives_way_to_the_one_before(void **state)
{
    static const struct damage damages[] = {
        {NEWEST "model.safetensors", HALF}, {NEWEST "weft/optimizer.safetensors", FLIPPED},
        {NEWEST "weft/state.json", EMPTY},  {NEWEST "weft/extra.safetensors", GONE},
        {NEWEST "config.json", RUBBISH},    {NEWEST "weft/state.json", FLIPPED},
    };
    static const struct damage both[] = {{NEWEST "model.safetensors", FLIPPED},
                                         {BEFORE "weft/optimizer.safetensors", HALF}};
    static const char *const words[] = {"run", "r.yaml", NULL};
    static const char *const says[] = {"stage base", "step-000004/weft/optimizer.safetensors", "of 2", "remove", NULL};
    struct text expected = {0}, got = {0}, before = {0};
    char *made = path_join(work, "run/base/model.safetensors"),
         *checkpoints = path_join(work, "run/base.partial/checkpoints");
    (void)state;
    train(&expected);
    for (i64 i = 0; i < COUNT_OF(damages); i++) {
        damage_and_go_on(&damages[i], 1);
        if (run_set(words, &(struct setting_of_run){0}))
            fail_msg("%s: %s", damages[i].name, complained.data);
        expect_words("warning: ");
        expect_words(strrchr(damages[i].name, '/') + 1);
        expect_words("falling back to the checkpoint before it");
        expect_words("goes on from step 4");
        require(file_read(&got, made) == 0, "%s", error_text());
        assert_int_equal(got.length, expected.length);
        assert_memory_equal(got.data, expected.data, (size_t)expected.length);
    }
    damage_and_go_on(both, COUNT_OF(both));
    list_tree(&before, checkpoints);
    expect_failure(words, run_set(words, &(struct setting_of_run){0}), 1, says);
    text_clear(&got);
    list_tree(&got, checkpoints); /* what is left may be mended by hand */
    assert_string_equal(got.data, before.data);
    text_release(&expected);
    text_release(&got);
    text_release(&before);
    memory_free(made);
    memory_free(checkpoints);
}

/* ---- Settings that only data or the model show to be wrong ---- */

static void training_that_cannot_be_done_ends_with_an_error(void **state)
{
    static const struct {
        const char *words[WORDS_MOST];
        int status;
        const char *says[3];
    } rows[] = {
        {{"run", "r.yaml", "base.elastic.expert_groups=3"}, 2, {"elastic.expert_groups is 3", "divisor", "4 experts"}},
        {{"run", "r.yaml", "base.model.topk=9"}, 1, {"9", "experts 4"}},
        {{"run", "r.yaml", "base.mixture.text=0", "base.mixture.image_in=0", "base.mixture.image_out=0",
          "base.mixture.video_in=0", "base.mixture.video_out=0", "base.mixture.audio_in=0", "base.mixture.audio_out=0",
          "base.mixture.chat=0"},
         1,
         {"../shards", "no sample of a mixture above 0"}},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        const char *const says[] = {"stage base", rows[i].says[0], rows[i].says[1], rows[i].says[2], NULL};
        clear_work();
        do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
        expect_failure(rows[i].words, run_set(rows[i].words, &(struct setting_of_run){0}), rows[i].status, says);
    }
}

static void samples_that_fit_no_row_are_counted(void **state)
{
    (void)state;
    clear_work();
    do_damage(&(struct damage){"r.yaml", TEXT, NULL, training});
    if (WEFT("run", "r.yaml", "base.batch.length=8"))
        fail_msg("%s", complained.data);
    expect_words("validation: ");
    expect_words("longer than a row of 8 positions and were not measured");
    expect_words("longer than batch.length and are left out");
}

/* ---- Full disks ---- */

static const struct writing {
    i64 room_bytes; /* on the disk */
    const char *words[WORDS_MOST];
    const char *says[3];
} writings[] = {
    {0, {"generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png"}, {"out.png"}},
    {0, {"generate", "../model", "--prompt", "a", "--to", "audio", "-o", "out.wav"}, {"out.wav"}},
    {0, {"generate", "../model", "--prompt", "a", "--to", "video", "-o", "out.mp4"}, {"out.mp4"}},
    {0, {"reconstruct", "../model", "../picture.png", "-o", "out"}, {"picture.png"}},
    {0, {"export", "../model", "--to", "gguf", "-o", "out.gguf"}, {"out.gguf"}},
    {8192, {"export", "../model", "-o", "out"}, {"model.safetensors"}},
    {8192, {"extract", "../model", "-o", "out", "--topk", "1"}, {"model.safetensors"}},
    {0, {"logits", "../model", "--ids", "../ids.safetensors", "-o", "out"}, {"out"}},
    {0, {"routing", "../model", "--data", "../shards", "--length", "128", "-o", "out"}, {"out.tmp-"}},
    {32768, {"run", "../training.yaml"}, {"stage base", "cannot save the checkpoint of step 2"}},
    {65536, {"run", "../sharding.yaml"}, {"stage shards", "train/00000.shard"}},
};

/* A run keeps what it needs to go on, and nothing half-written. */
static void expect_nothing_half_made(const struct writing *w, const struct text *before)
{
    struct text after = {0};
    if (strcmp(w->words[0], "run") != 0) {
        expect_same_tree(w->words, before);
        return;
    }
    list_tree(&after, work);
    static const char *const half[] = {".tmp", "step-", "run/base ", "run/shards ", ".shard", "index"};
    for (i64 i = 0; i < COUNT_OF(half); i++)
        if (strstr(after.data, half[i]))
            fail_msg("%s left %s behind:\n%s", w->words[1], half[i], after.data);
    text_release(&after);
}

static void check_writing(const struct writing *w, i64 file_bytes_most, const char *reason)
{
    struct text before = {0};
    const char *const says[] = {w->says[0], w->says[1] ? w->says[1] : reason, reason, NULL};
    text_append(&before, "", 0);
    list_tree(&before, work);
    int status = run_set(w->words, &(struct setting_of_run){.file_bytes_most = file_bytes_most});
    expect_failure(w->words, status, 1, says);
    expect_nothing_half_made(w, &before);
    text_release(&before);
}

static void a_full_disk_leaves_nothing_half_written(void **state)
{
    (void)state;
    clear_work();
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        print_message("no disk can be mounted here (%s): not tested on a full one\n", strerror(errno));
        skip();
    }
    for (i64 i = 0; i < COUNT_OF(writings); i++) {
        char *room = string_format("size=%lld", (long long)writings[i].room_bytes + 4096);
        assert_int_equal(mount("none", work, "tmpfs", 0, room), 0);
        do_damage(&(struct damage){"filler", RUBBISH}); /* takes a page */
        check_writing(&writings[i], 0, "No space left on device");
        assert_int_equal(umount2(work, MNT_DETACH), 0);
        memory_free(room);
    }
}

static void a_file_size_limit_leaves_nothing_half_written(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(writings); i++) {
        clear_work();
        check_writing(&writings[i], max_i64(500, writings[i].room_bytes), "File too large");
    }
}

static void output_that_cannot_be_printed_is_a_failure(void **state)
{
    static const char *const says[] = {"stdout", NULL};
    static const char *const runs[][WORDS_MOST] = {
        {"inspect", "../shards"},
        {"inspect", "../model", "--json"},
        {"generate", "../model", "--prompt", "a", "--max-tokens", "2"},
        {"eval", "../model", "--data", "../shards", "--length", "128", "--rows", "2"},
        {"tokenize", "../model"},
        {"run", "--kinds"},
        {"man"},
        {"--help"},
    };
    (void)state;
    clear_work();
    for (i64 i = 0; i < COUNT_OF(runs); i++) {
        const struct setting_of_run s = {.input = "{\"text\":\"a\"}\n", .out = "/dev/full"};
        expect_failure(runs[i], run_set(runs[i], &s), 1, says);
    }
}

/* ---- What is given ---- */

static void append_u32(struct text *out, u32 value)
{
    text_append(out, &value, 4);
}

/* A list or chunk of AVI: name, size, content. */
static void append_chunk(struct text *out, const char *name, const char *form, const struct text *content)
{
    text_append(out, name, 4);
    append_u32(out, (u32)content->length + (form ? 4 : 0));
    text_append(out, form, form ? 4 : 0);
    text_append(out, content->data, content->length);
}

/* An AVI whose only stream is sound: "AVI RIFF File Reference" of DirectX. */
static void put_blind_clip(const char *path)
{
    u32 main_header[14] = {[6] = 1}, stream[14] = {[5] = 1, [6] = 16000, [8] = 800, [11] = 2};
    u32 wave[4] = {1 | 1 << 16, 16000, 32000, 2 | 16 << 16}; /* PCM, one channel; 16000 Hz; bytes a second; 16 bits */
    u8 samples[1600] = {0};
    struct text file = {0}, all = {0}, head = {0}, strl = {0}, movi = {0}, part = {0};
    memcpy(stream, "auds", 4);
    text_append(&part, main_header, sizeof main_header);
    append_chunk(&head, "avih", NULL, &part);
    text_clear(&part);
    text_append(&part, stream, sizeof stream);
    append_chunk(&strl, "strh", NULL, &part);
    text_clear(&part);
    text_append(&part, wave, sizeof wave);
    append_chunk(&strl, "strf", NULL, &part);
    append_chunk(&head, "LIST", "strl", &strl);
    text_clear(&part);
    text_append(&part, samples, sizeof samples);
    append_chunk(&movi, "00wb", NULL, &part);
    append_chunk(&all, "LIST", "hdrl", &head);
    append_chunk(&all, "LIST", "movi", &movi);
    append_chunk(&file, "RIFF", "AVI ", &all);
    put_file(path, file.data, file.length);
    struct text *texts[] = {&file, &all, &head, &strl, &movi, &part};
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        text_release(texts[i]);
}

static void put_inputs_of_writings(void)
{
    static const i64 ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct tensor_source tensor = {
        .name = "input_ids", .dtype = DTYPE_I64, .rank = 2, .shape = {1, 8}, .data = ids};
    struct text words = {0};
    for (i64 i = 0; i < 20000; i++)
        text_printf(&words, "word %lld\n\n", (long long)(i * i % 977));
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
    text_release(&words);
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
    umount2(work, MNT_DETACH); /* still there where a test failed */
    directory_remove(root);
    memory_free(root);
    memory_free(work);
    text_release(&said);
    text_release(&complained);
    device_close(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_are_refused_by_line),
        cmocka_unit_test(media_are_refused_by_name),
        cmocka_unit_test(texts_are_refused_by_line),
        cmocka_unit_test(models_are_refused_by_file),
        cmocka_unit_test(tokenizers_of_another_model_are_refused),
        cmocka_unit_test(options_that_cannot_be_followed_are_refused),
        cmocka_unit_test(sub_models_that_do_not_fit_are_refused),
        cmocka_unit_test(shards_are_refused_by_place),
        cmocka_unit_test(bad_files_of_a_data_set_are_skipped_and_counted),
        cmocka_unit_test(a_damaged_checkpoint_gives_way_to_the_one_before),
        cmocka_unit_test(training_that_cannot_be_done_ends_with_an_error),
        cmocka_unit_test(samples_that_fit_no_row_are_counted),
        cmocka_unit_test(a_file_size_limit_leaves_nothing_half_written),
        cmocka_unit_test(output_that_cannot_be_printed_is_a_failure),
        cmocka_unit_test(a_full_disk_leaves_nothing_half_written),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
