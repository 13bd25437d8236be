/* `verifier: model`: a judge's text is what the model says of the medium's file alone, the score is that of
 * the rule wer, rewards.jsonl holds both, and judges that cannot read the answers are refused. */
#include "core/json.h"
#include "core/settings.h"
#include "rl/memory_estimate.h"
#include "rl/prompt_media.h"
#include "tests/golden.h"
#include "tests/model_fixture.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ANSWERS = 4 }; /* two equal pictures, another one, and a sound */

static struct device device;
static char *root, *model;
static struct text_tokenizer *tokenizer;
static struct prompt_media media;
static struct judge judge;
static struct prompts prompts;
static struct rollout_group group;

static int make(void **state)
{
    (void)state;
    log_set_level(LOG_QUIET);
    device_open_cpu(&device);
    workers_start(2);
    root = fixture_shards("judged-media", 40, 20);
    fixture_model(root, &device);
    fixture_media(root);
    model = path_join(root, "model");
    tokenizer = text_tokenizer_load(model);
    require(tokenizer, "%s", error_text());
    media = (struct prompt_media){&device, model, DTYPE_F32};
    require(judge_open(&judge, &device, model, DTYPE_F32) == 0, "%s", error_text());
    return 0;
}

static int clear(void **state)
{
    (void)state;
    judge_close(&judge);
    prompt_media_close(&media);
    text_tokenizer_free(tokenizer);
    directory_remove(root);
    memory_free(root);
    memory_free(model);
    workers_stop();
    device_close(&device);
    return 0;
}

static void load(struct prompts *out, const char *text)
{
    char *path = path_join(root, "prompts.jsonl");
    require(file_replace(path, text, (i64)strlen(text)) == 0, "%s", error_text());
    if (prompts_load(out, path, tokenizer, &media, 0))
        fail_msg("%s", error_text());
    memory_free(path);
}

/* A line of a prompt for text, or for the medium `to`. */
static char *prompt_line(const char *to, const char *words, const char *truth)
{
    struct json *line = json_object(), *reward = json_object();
    struct buffer out = {0};
    json_set(line, "prompt", json_of_utf8(words, (i64)strlen(words)));
    if (*to)
        json_set(line, "to", json_of_string(to));
    json_set(reward, "style", json_of_string("model"));
    json_set(reward, "ground_truth", json_of_utf8(truth, (i64)strlen(truth)));
    json_set(line, "reward_model", reward);
    json_print(&out, line, 0);
    buffer_append(&out, "\n", 1);
    json_free(line);
    return out.data;
}

static void load_line(struct prompts *out, const char *to, const char *words, const char *truth)
{
    char *line = prompt_line(to, words, truth);
    load(out, line);
    memory_free(line);
}

/* Bits of a picture from a number; a sound of three frames. */
static void fill_answer(struct answer *a, int i)
{
    const struct generator *g = &media.generator;
    bool sound = i == ANSWERS - 1;
    i64 count = sound ? 3 * g->model.config.levels : shape_tokens(&g->vocabulary.shapes[0]) * g->model.config.bits;
    answer_push(a, MEDIUM_DRAW, -1, 1, false);
    a->has_medium = a->done = a->ended = true;
    a->medium = (struct media_block){.kind = sound ? STREAM_AUDIO : STREAM_IMAGE_OUT, .frames = sound ? 3 : 1};
    u8 *bits = sound ? NULL : (a->medium.bits = memory_alloc(count));
    i32 *codes = sound ? (a->medium.codes = memory_alloc(count * 4)) : NULL;
    for (i64 k = 0; k < count; k++)
        if (sound)
            codes[k] = (i32)(k % g->model.config.codes);
        else
            bits[k] = rng_u32((struct rng_key){7, RNG_TEST}, (u32)k, i == 1, 0, 0) & 1;
}

static void open_answers(const char *words, const char *truth)
{
    load_line(&prompts, "image", words, truth);
    rollout_group_init(&group, &prompts.list[0], 0, 5, ANSWERS);
    for (int i = 0; i < ANSWERS; i++)
        fill_answer(&group.rollouts[i].answer, i);
}

static void close_answers(void)
{
    rollout_group_release(&group);
    prompts_release(&prompts);
}

static int grade(struct judge *by, const char *directory)
{
    const struct grader_settings s = {0};
    struct rollout_group *list = &group;
    i64 open;
    struct grader *grader = grader_open(&s, tokenizer, &media.generator, by, directory, 0);
    require(grader, "%s", error_text());
    for (i64 i = 0; i < ANSWERS; i++)
        group.rollouts[i].graded = false;
    int status = grade_rollouts(&open, grader, &list, 1, 0, 10);
    grader_close(grader);
    return status;
}

/* What the model says of a file, alone: the path of `weft generate`. */
static void describe(struct buffer *out, const struct answer *a)
{
    bool sound = a->medium.codes != NULL;
    char *path = path_join(root, sound ? "alone.wav" : "alone.png");
    struct prompt p;
    struct answer said = {0};
    const struct generator_options greedy = {.sampling = {0, 1, 0, {99, RNG_SAMPLING}}, .slots = 1};
    assert_int_equal(answer_save(path, &media.generator, NULL, a, 5), 0);
    prompt_init(&p, MODALITY_TEXT);
    assert_int_equal(prompt_medium(&p, &judge.generator, sound ? MODALITY_AUDIO : MODALITY_IMAGE, path), 0);
    assert_int_equal(prompt_ask(&p, &judge.generator, NULL, JUDGE_TOKENS), 0);
    struct generate_request request = prompt_request(&p, 0, 1);
    assert_int_equal(generator_run(&said, &judge.generator, &request, 1, &greedy), 0);
    assert_int_equal(answer_text(out, &judge.generator, &p, &said), 0);
    answer_release(&said);
    prompt_release(&p);
    memory_free(path);
}

/* The first two thirds of a text. */
static char *most_of(const struct buffer *text)
{
    return string_format("%.*s", (int)(text->length * 2 / 3), text->data);
}

/* The lines of rewards.jsonl. */
static void read_rewards(struct json *out[ANSWERS], const char *path)
{
    struct buffer all = {0};
    int n = 0;
    assert_int_equal(file_read(&all, path), 0);
    for (char *at = all.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        assert_true(n < ANSWERS);
        out[n] = json_parse_line(at, end - at, path, n + 1);
        n++;
    }
    assert_int_equal(n, ANSWERS);
    buffer_release(&all);
}

TEST(a_judge_reads_each_medium_as_if_alone)
{
    struct buffer said[ANSWERS] = {0};
    struct json *lines[ANSWERS];
    char *path = path_join(root, "rewards.jsonl");
    open_answers("the words", "of");
    describe(&said[1], &group.rollouts[1].answer);
    close_answers();
    char *truth = most_of(&said[1]);
    assert_true(strlen(truth) > 4); /* a random model that says nothing would test nothing */
    open_answers("the words", truth);
    if (grade(&judge, root))
        fail_msg("%s", error_text());
    read_rewards(lines, path);
    for (int i = 0; i < ANSWERS; i++) {
        double score = -1;
        buffer_clear(&said[i]);
        describe(&said[i], &group.rollouts[i].answer);
        struct json *as_written = json_of_utf8(said[i].data, said[i].length);
        assert_string_equal(json_string(json_get(lines[i], "read"), ""), json_string(as_written, ""));
        json_free(as_written);
        assert_int_equal(verify(&score, VERIFY_WER, prompts.list[0].ground_truth, said[i].data), 0);
        assert_true(json_number(json_get(lines[i], "score"), -1) == score);
        assert_true(group.rollouts[i].graded && group.rollouts[i].reward == score);
    }
    assert_string_equal(said[0].data, said[2].data);
    assert_true(strcmp(said[0].data, said[1].data) != 0 && strcmp(said[0].data, said[ANSWERS - 1].data) != 0);
    double kept = group.rollouts[1].reward;
    assert_true(kept > 0);
    group.rollouts[1].reward = -1;
    assert_int_equal(grade(NULL, root), 0); /* known rewards need no judge */
    assert_true(group.rollouts[1].reward == kept);
    for (int i = 0; i < ANSWERS; i++) {
        json_free(lines[i]);
        buffer_release(&said[i]);
    }
    assert_int_equal(unlink(path), 0);
    close_answers();
    memory_free(truth);
    memory_free(path);
}

TEST(the_prompt_has_the_words_where_no_truth_is_given)
{
    struct buffer said = {0};
    double score;
    open_answers("the words", "");
    describe(&said, &group.rollouts[0].answer);
    close_answers();
    char *words = most_of(&said);
    open_answers(words, "");
    if (grade(&judge, NULL))
        fail_msg("%s", error_text());
    assert_int_equal(verify(&score, VERIFY_WER, json_string(json_get(prompts.list[0].source, "prompt"), ""), said.data),
                     0);
    assert_true(score > 0 && group.rollouts[0].reward == score);
    close_answers();
    memory_free(words);
    buffer_release(&said);
}

/* What is drawn but no medium scores 0, and the judge is not asked. */
TEST(an_answer_without_a_medium_scores_nothing)
{
    open_answers("the words", "of");
    group.rollouts[0].answer.has_medium = false;
    assert_int_equal(grade(&judge, NULL), 0);
    assert_true(group.rollouts[0].graded && group.rollouts[0].reward == 0);
    group.rollouts[0].answer.has_medium = true;
    close_answers();
}

/* ---- Bad input ---- */

static void expect_refused(struct judge *by, const char *to, const char *words, const char *said)
{
    const struct grader_settings s = {.verifier = VERIFY_MODEL};
    struct prompts p;
    struct grader *grader = grader_open(&s, tokenizer, prompt_media_of(&media) ? &media.generator : NULL, by, NULL, 0);
    load_line(&p, to, words, "red");
    if (grader_check(grader, &p) != -1 || !strstr(error_text(), said))
        fail_msg("\"%s\" does not contain \"%s\"", error_text(), said);
    prompts_release(&p);
    grader_close(grader);
}

TEST(judges_that_cannot_read_the_answers_are_refused)
{
    struct generator *g = &judge.generator;
    struct prompts p;
    load_line(&p, "image", "a", "a"); /* opens the tokenizers */
    prompts_release(&p);
    expect_refused(&judge, "", "the words", "prompts.jsonl:1: a judge reads made media, and this prompt asks for text");
    expect_refused(NULL, "image", "a",
                   "prompts.jsonl:1: needs a model that reads the answers, and none is set: judge: ");
    i64 features = g->model.config.cell_features, levels = g->model.config.levels, frames;
    g->model.config.cell_features = 0;
    expect_refused(&judge, "image", "a", "it reads no pictures: expected a model that was trained to describe them");
    g->model.config.cell_features = features;
    g->has_audio = false;
    expect_refused(&judge, "audio", "a", "it is to read sounds, and its tokenizer is missing: expected the folder");
    g->model.config.levels = 0;
    expect_refused(&judge, "audio", "a", "it reads no sounds");
    g->model.config.levels = levels;
    g->has_audio = true;
    frames = g->vision.config.shapes[1].frames;
    g->vision.config.shapes[1].frames = 5;
    expect_refused(&judge, "video", "a", "9 frames long, it reads the first 5:");
    g->vision.config.shapes[1].rate_hz /= 2; /* every other frame: all are seen */
    struct grader *grader = grader_open(&(struct grader_settings){0}, tokenizer, &media.generator, &judge, NULL, 0);
    load_line(&p, "video", "a", "red");
    if (grader_check(grader, &p))
        fail_msg("%s", error_text());
    prompts_release(&p);
    grader_close(grader);
    g->vision.config.shapes[1].rate_hz *= 2;
    g->vision.config.shapes[1].frames = frames;
}

TEST(settings_of_a_judge_belong_together)
{
    struct grader_settings s = {.verifier = VERIFY_MODEL};
    struct judge none;
    assert_int_equal(grader_check_settings(&s), -1);
    assert_non_null(strstr(error_text(), "none is set: judge: DIR"));
    s.judge = model;
    assert_int_equal(grader_check_settings(&s), 0);
    s.verifier = VERIFY_EXACT;
    assert_int_equal(grader_check_settings(&s), -1);
    assert_non_null(strstr(error_text(), "is asked by no answer: expected verifier: model or auto"));
    s.verifier = VERIFY_AUTO;
    assert_int_equal(grader_check_settings(&s), 0);
    assert_int_equal(judge_open(&none, &device, root, DTYPE_F32), -1);
    assert_int_equal(strncmp(error_text(), "judge: ", 7), 0);
    judge_close(&none);
}

/* verl's style "model" of texts says nothing: their data_source does. */
TEST(texts_of_the_style_model_keep_their_rule)
{
    enum verifier found;
    struct prompts p;
    load(&p, "{\"prompt\": \"a\", \"data_source\": \"openai/gsm8k\", \"reward_model\": {\"style\": \"model\", "
             "\"ground_truth\": \"1\"}}\n");
    assert_int_equal(verifier_of(&found, &p.list[0]), 0);
    assert_int_equal(found, VERIFY_GSM8K);
    prompts_release(&p);
    load_line(&p, "image", "a", "a");
    assert_int_equal(verifier_of(&found, &p.list[0]), 0);
    assert_int_equal(found, VERIFY_MODEL);
    prompts_release(&p);
}

/* ---- The stage ---- */

static void read_settings(struct rl_settings *s, const char *more)
{
    char *text = string_format("{from: %s, prompts: %s/prompts.jsonl, steps: 2, prompts_per_step: 2, group: 3, "
                               "max_tokens: 3, minibatches: 1, optimizer: {lr: 1e-3}%s}",
                               model, root, more);
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "test");
    memset(s, 0, sizeof *s);
    require(document && settings_read(s, rl_table, yaml_root(document), NULL, NULL, 0) == 0, "%s", error_text());
    yaml_free(document);
    memory_free(text);
}

static const struct json *kept_answer(const struct json *rl, const char *when, i64 i)
{
    return json_at(json_get(json_get(json_get(rl, "heldout"), when), "answers"), i);
}

/* The held-out answers that are media stand in the folder before and after, and are named. */
static void check_kept_media(const char *out)
{
    char *path = path_join(out, "rl.json");
    struct json *rl = json_load(path);
    memory_free(path);
    assert_non_null(rl);
    for (i64 i = 0; i < 2; i++) {
        static const char *const when[] = {"start", "end"};
        const char *name = json_string(json_get(kept_answer(rl, when[i], 0), "file"), "");
        struct clip picture;
        struct buffer file = {0};
        assert_string_equal(name, i ? "heldout-end-0.png" : "heldout-start-0.png");
        path = path_join(out, name);
        assert_int_equal(file_read(&file, path), 0);
        assert_int_equal(image_read(&picture, file.data, file.length, path), 0);
        memory_free(picture.pixels);
        buffer_release(&file);
        memory_free(path);
        assert_null(json_get(json_get(json_get(json_get(rl, "heldout"), when[i]), "sampled"), "reordered"));
    }
    assert_null(json_get(rl, "constant")); /* of texts */
    json_free(rl);
}

/* Pictures and sounds in one policy, judged by the model it starts from. */
TEST(a_stage_learns_from_a_judge)
{
    struct rl_settings s;
    struct buffer rewards = {0};
    char *more = string_format(", eval_prompts: %s/prompts.jsonl, verifier: model, judge: %s", root, model),
         *out = path_join(root, "out"),
         *lines = string_format("%s%s", "{\"prompt\": \"the words\", \"to\": \"image\"}\n",
                                "{\"prompt\": \"of this\", \"to\": \"audio\"}\n"),
         *path = path_join(out, "rewards.jsonl"), *file = path_join(root, "prompts.jsonl");
    i64 read = 0;
    require(file_replace(file, lines, (i64)strlen(lines)) == 0 && directory_make(out) == 0, "%s", error_text());
    read_settings(&s, more);
    struct stage stage = {.name = "rl",
                          .out = out,
                          .seed = 3,
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    if (rl_stage(&s, &stage))
        fail_msg("%s", error_text());
    assert_int_equal(file_read(&rewards, path), 0);
    for (const char *at = rewards.data; (at = strstr(at, "\"read\":")); at++)
        read++;
    assert_int_equal(read, 2 * 2 * 3);
    buffer_release(&rewards);
    check_kept_media(out);
    settings_release(&s, rl_table);
    memory_free(more);
    memory_free(out);
    memory_free(lines);
    memory_free(path);
    memory_free(file);
}

static i64 bytes_of(const struct weights *w)
{
    i64 bytes = 0;
    for (i64 i = 0; i < w->count; i++)
        bytes += w->list[i].value.rows * w->list[i].value.columns * dtype_bytes(w->list[i].value.dtype);
    return bytes;
}

/* The judge counts with its weights, those of its tokenizers, and a cache of what it reads. */
TEST(the_memory_check_counts_the_judge)
{
    struct rl_settings s;
    struct step_memory with = {0}, without = {0};
    struct device meta;
    struct prompts p;
    load_line(&p, "image", "the words", "a");
    for (int judged = 0; judged < 2; judged++) {
        char *more = judged ? string_format(", verifier: model, judge: %s", model) : string_copy("");
        read_settings(&s, more);
        const struct rl_work w = {&s,   &judge.generator.model.config, tokenizer, &p, &(struct prompts){0}, DTYPE_F32,
                                  false};
        device_open_meta(&meta);
        if (rl_estimate(judged ? &with : &without, &w, &meta))
            fail_msg("%s", error_text());
        device_close(&meta);
        settings_release(&s, rl_table);
        memory_free(more);
    }
    i64 weights = bytes_of(&judge.generator.model.weights) + bytes_of(&judge.generator.vision.weights) +
                  bytes_of(&judge.generator.audio.weights);
    assert_true(with.copies - without.copies >= weights);
    assert_true(with.copies - without.copies < 2 * weights);
    assert_true(with.cache > without.cache && with.activations > without.activations);
    prompts_release(&p);
}

/* So does what decodes the answers: a policy without its tokenizers decodes nothing. */
TEST(the_memory_check_counts_what_decodes_answers)
{
    struct rl_settings s;
    struct step_memory with, without;
    struct device meta;
    struct prompts p;
    load_line(&p, "video", "the words", "a");
    struct generator bare = media.generator;
    bare.directory = NULL;
    read_settings(&s, "");
    struct rl_work w = {&s, &media.generator.model.config, tokenizer, &p, NULL, DTYPE_F32, false, &bare};
    device_open_meta(&meta);
    assert_int_equal(rl_estimate(&without, &w, &meta), 0);
    w.media = &media.generator;
    assert_int_equal(rl_estimate(&with, &w, &meta), 0);
    device_close(&meta);
    const struct vision_shape *clip = &media.generator.vision.config.shapes[1];
    i64 pixels = clip->frames * clip->height * clip->width * 3 * 4; /* of the decoder's last layer, f32 */
    assert_true(with.activations - without.activations >= pixels);
    assert_true(with.cache == without.cache && with.copies == without.copies);
    settings_release(&s, rl_table);
    prompts_release(&p);
}

int main(void)
{
    return tests_run(make, clear);
}
