/* Bad input to the program: recipes, media, texts, models, options, shards (bad_input.h). */
#define _GNU_SOURCE /* unshare */
#include "tests/bad_input.h"

/* ---- Rows ---- */

struct bad_input_row {
    const char *folder; /* copied into work first; NULL: none */
    struct damage damage;
    const char *words[WORDS_MOST];
    const char *says[4];
    int status; /* 0 means 1 */
    const char *input;
};

static void check_row(const struct bad_input_row *row)
{
    struct buffer before = {0};
    clear_work();
    if (row->folder) {
        char *to = path_join(work, row->folder), *from = path_join(root, row->folder);
        copy_tree(to, from);
        memory_free(to);
        memory_free(from);
    }
    if (row->damage.name)
        do_damage(&row->damage);
    buffer_append(&before, "", 0);
    list_tree(&before, work);
    int status = run_set(row->words, &(struct setting_of_run){.input = row->input});
    expect_failure(row->words, status, row->status ? row->status : 1, row->says);
    expect_same_tree(row->words, &before);
    buffer_release(&before);
}

static void check_rows(const struct bad_input_row *rows, i64 count)
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
    static const struct bad_input_row rows[] = {
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
        RECIPE("run: out\nstages:\n\ta: {kind: report}\n", "r.yaml:3: not valid YAML: a tab indents the line"),
        RECIPE("run: out\nstages:\n  a:\n  \tkind: report\n    x: 1\n", "r.yaml:4: not valid YAML: a tab indents"),
        RECIPE("run: out\nstages: [\ta: b: c]\n", "r.yaml:2:15: not valid YAML: did not find"),
        RECIPE("run: out\nstages: {a: {kind: \xff\xfe}}\n", "r.yaml: byte 28", "UTF-8"),
        RECIPE("", "r.yaml", "there is nothing in it"),
        {.damage = {"r.yaml", RUBBISH}, .words = {"run", "r.yaml"}, .says = {"r.yaml", "not valid YAML"}, .status = 2},
        {.words = {"run", "missing.yaml"}, .says = {"missing.yaml", "cannot be opened"}},
        {.words = {"run", "../model"}, .says = {"../model", "directory"}},
        {.words = {"run", "/dev/zero"}, .says = {"/dev/zero: expected a file, found a device"}},
        {.words = {"run", "/dev/stdin"}, .says = {"/dev/stdin: there is nothing in it"}, .status = 2},
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

static void check_medium(const struct damaged_medium *m, enum how how, const char *from, const char *says)
{
    char *name = string_format("bad.%s", m->extension);
    struct bad_input_row row = {.words = {"generate", "../model", m->option, name, "--to", "image", "-o", "out.png"},
                                .says = {name, says}};
    if (how != GONE)
        row.damage = (struct damage){name, how, from};
    check_row(&row);
    if (how != AS_IT_IS) { /* content, not name, decides the type of a file */
        struct bad_input_row back = {
            .damage = row.damage,
            .words = {"reconstruct", "../model", m->good, name, "-o", "out"},
            .says = {name, how == EMPTY || how == RUBBISH ? "expected a picture, a video or a sound" : says}};
        check_row(&back);
    }
    memory_free(name);
}

static void media_are_refused_by_name(void **state)
{
    static const struct bad_input_row rows[] = {
        {.words = {"generate", "../model", "--audio", "../silent.wav"}, .says = {"silent.wav", "no samples"}},
        {.words = {"reconstruct", "../model", "../silent.wav", "-o", "out"}, .says = {"silent.wav", "no samples"}},
        {.words = {"generate", "../model", "--video", "../blind.avi"}, .says = {"blind.avi", "without video"}},
        {.words = {"generate", "../model", "--audio", "../film.mp4"}, .says = {"film.mp4", "without sound"}},
        {.words = {"reconstruct", "../model", "../shards", "-o", "out"}, .says = {"../shards", "expected a file"}},
        {.words = {"reconstruct", "../shards", "../picture.png", "-o", "out"}, .says = {"no vision tokenizer"}},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(media); i++) {
        const struct damaged_medium *m = &media[i];
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
    static const struct bad_input_row rows[] = {
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
        {.words = {"generate", "../model", "--prompt", "a", "--max-tokens", "0"},
         .says = {"--max-tokens 0", "from 1 to 1048576"},
         .status = 2},
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

#define WORN(name) /* one bit is flipped */                                                                            \
    {                                                                                                                  \
        .folder = "model", .damage = {name, FLIPPED}, .words = {"inspect", "model"}, .says = {                         \
            name,                                                                                                      \
            "the checksum of the tensors",                                                                             \
            "damaged or changed"                                                                                       \
        }                                                                                                              \
    }

static void models_are_refused_by_file(void **state)
{
    static const struct bad_input_row rows[] = {
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
        CONFIG("\"use_bias\": false", "\"use_bias\": 1", "use_bias is 1, expected false: biases are not supported"),
        CONFIG("\"moe_layer_interval\": 1", "\"moe_layer_interval\": \"2\"", "moe_layer_interval is \"2\"",
               "expected 1"),
        CONFIG("\"use_bias\": false", "\"rope_scaling\": \"linear\"",
               "rope_scaling is \"linear\", expected null: scaled rotary positions"),
        CONFIG("\"hidden_act\": \"silu\"", "\"hidden_act\": 7", "hidden_act is 7, expected \"silu\""),
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
        MODEL("model/model.safetensors", FLIPPED, NULL, NULL, "model.safetensors", "checksum of the tensors"),
        MODEL("model/weft/extra.safetensors", FLIPPED, NULL, NULL, "extra.safetensors", "checksum of the tensors"),
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

/* The sizes match the tokenizer's own files, but not the model. */
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
    static const struct bad_input_row rows[] = {
        OPTION("-o is empty", "extract", "../model", "-o", "", "--topk", "1"),
        OPTION("-o is empty", "export", "../model", "-o="),
        OPTION("-o out/: expected the name of a file", "export", "../model", "-o", "out/", "--to", "gguf"),
        OPTION("-o is empty", "reconstruct", "../model", "../picture.png", "-o", ""),
        OPTION("--seed 99999999999999999999", "generate", "../model", "--prompt", "a", "--seed",
               "99999999999999999999"),
        OPTION("--shape nope", "generate", "../model", "--prompt", "a", "--shape", "nope"),
        OPTION("--guidance 2", "generate", "../model", "--prompt", "a", "--guidance", "2"), /* text cannot be guided */
        OPTION("--guidance -1: expected a number from 0 to 100", "generate", "../model", "--prompt", "a", "--to",
               "image", "-o", "out.png", "--guidance", "-1"),
        OPTION("--guidance nan: expected a number", "generate", "../model", "--prompt", "a", "--to", "audio", "-o",
               "out.wav", "--guidance", "nan"),
        OPTION("--guidance two: expected a number", "generate", "../model", "--prompt", "a", "--to", "video", "-o",
               "out.mp4", "--guidance", "two"),
        OPTION("--shape 9:99999", "generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png", "--shape",
               "9:99999"),
        OPTION("-o a.jpg: a picture is written as .png", "generate", "../model", "--prompt", "a", "--to", "image", "-o",
               "a.jpg"),
        OPTION("-o a.MOV: a clip is written as .mp4", "generate", "../model", "--prompt", "a", "--to", "video", "-o",
               "a.MOV"),
        OPTION("-o x/a.mp3: a sound is written as .wav", "generate", "../model", "--prompt", "a", "--to", "audio", "-o",
               "x/a.mp3"),
        OPTION("-o a.jxl: a picture is written as .png", "generate", "../model", "--prompt", "a", "--to", "image", "-o",
               "a.jxl"),
        OPTION("-o a.png: the file of a picture, and --to text makes a text, .txt", "generate", "../model", "--prompt",
               "a", "-o", "a.png"),
        OPTION("-o a.wav: the file of a sound, and --to video makes a clip, .mp4", "generate", "../model", "--prompt",
               "a", "--to", "video", "-o", "a.wav"),
        OPTION("--greedy", "generate", "../model", "--prompt", "a", "--greedy", "--temperature", "nan"),
    };
    (void)state;
    CHECK(rows);
}

/* Guidance warns if the settings saved beside the model show training from scratch without
 * dropped prompts. */
static void guidance_of_a_model_that_had_all_prompts_is_spoken_of(void **state)
{
    static const struct {
        const char *settings;
        bool told;
    } rows[] = {{"{\"pack\":{\"condition_drop\":0.0}}", true},
                {"{\"from\":null,\"pack\":{\"condition_drop\":0}}", true},
                {"{\"pack\":{\"condition_drop\":0.1}}", false},
                {"{\"from\":\"base\",\"pack\":{\"condition_drop\":0.0}}", false},
                {"{\"rows\":4}", false}};
    char *path = path_join(root, "model/identity.json");
    (void)state;
    clear_work();
    for (i64 i = 0; i <= COUNT_OF(rows); i++) { /* the last case has no file */
        char *text = string_format("{\"settings\":%s}", i < COUNT_OF(rows) ? rows[i].settings : "");
        if (i < COUNT_OF(rows))
            put_file(path, text, (i64)strlen(text));
        else
            require(remove(path) == 0, "%s", path);
        assert_int_equal(WEFT("generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png"), 0);
        assert_null(strstr(complained.data, "guidance"));
        assert_int_equal(
            WEFT("generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png", "--guidance", "2"), 0);
        bool told = strstr(complained.data, "guidance 2: ../model was trained without dropped conditions") != NULL;
        assert_int_equal(told, i < COUNT_OF(rows) && rows[i].told);
        memory_free(text);
    }
    memory_free(path);
}

static void other_suffixes_than_those_of_media_are_free(void **state)
{
    static const char *const pictures[] = {"b.PNG", "b", "b.v1", "../work/b.d"}, *const texts[] = {"b.txt", "b.md",
                                                                                                   "b.json"};
    (void)state;
    clear_work();
    for (i64 i = 0; i < COUNT_OF(pictures); i++)
        assert_int_equal(WEFT("generate", "../model", "--prompt", "a", "--to", "image", "-o", pictures[i]), 0);
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        assert_int_equal(WEFT("generate", "../model", "--prompt", "a", "-o", texts[i]), 0);
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
    static const struct bad_input_row rows[] = {
        SUBMODEL("--layers", "0-9", "0-9", "9 is beyond the last one, 3"),
        SUBMODEL("--layers", "3-1", "ends before it begins"),
        SUBMODEL("--layers", "x", "expected numbers and ranges"),
        SUBMODEL("--layers", "-1", "expected numbers and ranges"),
        SUBMODEL("--layers", " -100000000-3", "expected numbers and ranges"),
        SUBMODEL("--layers", "0, -2,3", "expected numbers and ranges"),
        SUBMODEL("--layers", "0,1", "must stay"), /* the top layers carry audio heads */
        SUBMODEL("--experts", "0", "expected 1 to 8"),
        SUBMODEL("--experts", "9", "expected 1 to 8"),
        SUBMODEL("--experts", "1,8", "8 is beyond the last one, 7"),
        SUBMODEL("--experts", "1", "keeps 1 expert, fewer than top-k 2", "add --topk 1"),
        SUBMODEL("--experts", "", "--experts is empty"),
        SUBMODEL("--experts", "@", "expected the name of a file"),
        SUBMODEL("--topk", "0", "expected 1 to 8"),
        SUBMODEL("--topk", "9", "expected 1 to 8"),
        SUBMODEL("--topk", "99999999999999999999", "expected 1 to 8"),
        LISTS("[[0,1]]", "lists.json", "1 list, expected one for each of 4 layers"),
        LISTS("[[],[0,1],[2],[0,1]]", "lists.json", "layer 2", "must be equal"),
        LISTS("[[],[0,1],[0,8],[0,1]]", "lists.json", "layer 2", "expected ascending expert ids below 8"),
        LISTS("[[0],[0,1],[0,1],[0,1]]", "lists.json", "layer 0 has no experts"),
        LISTS("[[],[],[],[]]", "lists.json", "at least one expert"),
        {.damage = {"lists.json", TEXT, NULL, "[[0,"},
         .words = {"extract", "../model", "-o", "out", "--experts", "@lists.json"},
         .says = {"lists.json", "not valid JSON"}},
        {.words = {"extract", "../model", "-o", "out", "--experts", "@missing.json"}, .says = {"missing.json"}},
        {.words = {"generate", "../model", "--prompt", "a", "--topk", "99"}, .says = {"--topk 99"}, .status = 2},
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
    static const struct bad_input_row rows[] = {
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
         .says = {"weft.scale_embed.weight", "no place in the model that config.json describes"}},
        SHARDS("shards/validation/index", GONE, "shards/validation", "no index", "expected a split written"),
        {.words = {"report", "../model"}, .says = {"../model", "no run.json there"}},
    };
    (void)state;
    CHECK(rows);
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
        cmocka_unit_test(other_suffixes_than_those_of_media_are_free),
        cmocka_unit_test(guidance_of_a_model_that_had_all_prompts_is_spoken_of),
        cmocka_unit_test(sub_models_that_do_not_fit_are_refused),
        cmocka_unit_test(shards_are_refused_by_place),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
