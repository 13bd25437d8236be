/* Prompts with media and for media: how they are laid out, what is refused, and the files that a
 * program gets of answers that are media. */
#include "core/settings.h"
#include "rl/grader.h"
#include "rl/prompt_media.h"
#include "tests/golden.h"
#include "tests/model_fixture.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct device device;
static char *root, *model; /* a folder with media, and the model inside it */
static struct text_tokenizer *tokenizer;
static struct prompt_media media;

static int make(void **state)
{
    (void)state;
    log_set_level(LOG_QUIET);
    device_open_cpu(&device);
    workers_start(2);
    root = fixture_shards("prompt-media", 40, 20);
    fixture_model(root, &device);
    fixture_media(root);
    model = path_join(root, "model");
    tokenizer = text_tokenizer_load(model);
    require(tokenizer, "%s", error_text());
    media = (struct prompt_media){&device, model, DTYPE_F32};
    return 0;
}

static int clear(void **state)
{
    (void)state;
    prompt_media_close(&media);
    text_tokenizer_free(tokenizer);
    directory_remove(root);
    memory_free(root);
    memory_free(model);
    workers_stop();
    device_close(&device);
    return 0;
}

static int load(struct prompts *out, const char *text)
{
    char *path = path_join(root, "prompts.jsonl");
    require(file_replace(path, text, (i64)strlen(text)) == 0, "%s", error_text());
    int status = prompts_load(out, path, tokenizer, &media, 0);
    memory_free(path);
    return status;
}

#define TRUTH ", \"reward_model\": {\"style\": \"program\", \"ground_truth\": \"red\"}}\n"
#define USER(content) "{\"prompt\": [{\"role\": \"user\", \"content\": " content "}]"

static void load_one(struct prompts *out, const char *text)
{
    if (load(out, text))
        fail_msg("%s: %s", text, error_text());
    assert_int_equal(out->count, 1);
}

static void assert_same_prompt(const struct prompt *a, const struct prompt *b)
{
    assert_int_equal(a->part_count, b->part_count);
    for (i64 i = 0; i < a->part_count; i++) {
        assert_int_equal(a->parts[i].kind, b->parts[i].kind);
        assert_int_equal(a->parts[i].count, b->parts[i].count);
        if (a->parts[i].kind == STREAM_TEXT)
            assert_memory_equal(a->parts[i].ids, b->parts[i].ids, a->parts[i].count * 4);
    }
}

/* ---- In ---- */

TEST(media_are_listed_or_parts)
{
    static const struct {
        const char *listed, *part;
        enum stream kind;
    } cases[] = {
        {USER("\"<image>what?\"") ", \"images\": [\"picture.png\"]" TRUTH,
         USER("[{\"type\": \"image\", \"image\": \"picture.png\"}, {\"type\": \"text\", \"text\": \"what?\"}]") TRUTH,
         STREAM_IMAGE_IN},
        {USER("\"<video>what?\"") ", \"videos\": [\"film.mp4\"]" TRUTH,
         USER("[{\"type\": \"video\", \"video\": \"film.mp4\"}, {\"type\": \"text\", \"text\": \"what?\"}]") TRUTH,
         STREAM_VIDEO_IN},
        {USER("\"<audio>what?\"") ", \"audios\": [\"noise.wav\"]" TRUTH,
         USER("[{\"type\": \"audio\", \"audio\": \"noise.wav\"}, {\"type\": \"text\", \"text\": \"what?\"}]") TRUTH,
         STREAM_AUDIO},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct prompts a, b;
        struct sample_measure m;
        load_one(&a, cases[i].listed);
        load_one(&b, cases[i].part);
        const struct prompt *p = a.list[0].asked;
        assert_non_null(p);
        assert_same_prompt(p, b.list[0].asked);
        assert_int_equal(p->part_count, 3); /* in the template: text, medium, text */
        assert_int_equal(p->parts[1].kind, cases[i].kind);
        assert_int_equal(p->media_count, 1);
        assert_int_equal(task_makes(&a.list[0]), MODALITY_TEXT);
        grammar_measure(&m, &media.generator.vocabulary, p->parts, p->part_count, -1);
        assert_int_equal(a.list[0].positions, m.length);
        assert_int_equal(a.longest, m.length);
        assert_int_equal(prompts_in_common(&a, &b), 1);
        prompts_release(&a);
        prompts_release(&b);
    }
}

/* verl's tables: the second row's picture is torn. */
TEST(tables_have_the_bytes_of_media)
{
    struct prompts p;
    const char *path = GOLDEN "/tables/forms/verl_seen.parquet";
    if (prompts_load(&p, path, tokenizer, &media, 1))
        fail_msg("%s", error_text());
    assert_int_equal(p.list[0].asked->media_count, 1);
    assert_int_equal(p.list[0].asked->parts[1].kind, STREAM_IMAGE_IN);
    prompts_release(&p);
    assert_int_equal(prompts_load(&p, path, tokenizer, &media, 0), -1);
    assert_non_null(strstr(error_text(), "verl_seen.parquet:2"));
}

TEST(texts_stay_what_they_are)
{
    struct prompts p;
    load_one(&p, "{\"prompt\": \"the words\", \"images\": [], \"extra_info\": {\"think\": \"of this\"}" TRUTH);
    assert_null(p.list[0].asked);
    assert_int_equal(p.list[0].positions, p.list[0].ids.count);
    prompts_release(&p);
}

/* ---- Out ---- */

TEST(a_medium_is_drawn_behind_a_caption)
{
    struct prompts p;
    struct prompt caption;
    load_one(&p, "{\"prompt\": \"the words of this\", \"to\": \"image\"" TRUTH);
    const struct prompt *asked = p.list[0].asked;
    const struct vocabulary *v = &media.generator.vocabulary;
    prompt_init(&caption, MODALITY_IMAGE);
    assert_int_equal(prompt_text(&caption, &media.generator, "the words of this"), 0);
    assert_same_prompt(asked, &caption); /* no template */
    assert_int_equal(asked->opening_count, 2);
    assert_int_equal(asked->opening[1], v->bracket[BRACKET_BOI]);
    assert_int_equal(p.list[0].positions, asked->parts[0].count + 2);
    assert_int_equal(p.longest_medium, medium_positions(&v->shapes[0]));
    prompt_release(&caption);
    prompts_release(&p);
    load_one(&p, "{\"prompt\": \"the words\", \"to\": \"audio\"" TRUTH);
    assert_int_equal(p.list[0].asked->opening[0], v->bracket[BRACKET_BOA]);
    assert_int_equal(p.longest_medium, 0);
    prompts_release(&p);
    load_one(&p, USER("\"<image>and now?\"") ", \"images\": [\"picture.png\"], \"to\": \"video\"" TRUTH);
    assert_int_equal(p.list[0].asked->part_count, 2);
    assert_int_equal(p.list[0].asked->opening[1], v->bracket[BRACKET_BOV]);
    prompts_release(&p);
}

/* ---- Bad input ---- */

TEST(bad_prompts_are_named_by_their_line)
{
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"{\"prompt\": \"a\", \"to\": \"smell\"" TRUTH,
         "prompts.jsonl:1: key to: expected \"image\", \"video\", \"audio\" or \"text\", found \"smell\""},
        {"{\"prompt\": \"a\", \"to\": \"image\", \"guidance\": 2" TRUTH,
         "prompts.jsonl:1: key guidance: what is trained"},
        {"{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"a\"}], \"to\": "
         "\"image\"" TRUTH,
         "prompts.jsonl:1: a prompt for a medium is its caption: expected one message, a user's"},
        {USER("\"<image>\"") ", \"images\": [\"none.png\"]" TRUTH, "none.png"},
        {USER("\"<image>\"") ", \"images\": [\"prompts.jsonl\"]" TRUTH, "prompts.jsonl"},
        {USER("\"<image> and <image>\"") ", \"images\": [\"picture.png\"]" TRUTH, "prompts.jsonl:1"},
        {USER("[{\"type\": \"smell\", \"smell\": \"x\"}]") ", \"images\": [\"picture.png\"]" TRUTH, "prompts.jsonl:1"},
        {"{\"prompt\": \"\", \"to\": \"image\"" TRUTH, "prompts.jsonl:1"},
        {"{\"prompt\": \"a\", \"to\": \"image\", \"extra_info\": {\"think\": \"red\"}" TRUTH,
         "prompts.jsonl:1: extra_info.think is for hints, which prompts with media or for media do not get"},
        {USER("\"<image>?\"") ", \"images\": [\"picture.png\"], \"extra_info\": {\"think\": \"\", \"pass\": 0.5}" TRUTH,
         "prompts.jsonl:1: extra_info.pass is for hints"},
        {"{\"prompt\": 3, \"to\": \"image\"" TRUTH, "prompts.jsonl:1"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct prompts p;
        if (load(&p, cases[i].line) != -1 || !strstr(error_text(), cases[i].said))
            fail_msg("case %lld: \"%s\" does not contain \"%s\"", (long long)i, error_text(), cases[i].said);
        const char *place = strstr(error_text(), "prompts.jsonl:1: ");
        if (place && strstr(place + 1, "prompts.jsonl:1: "))
            fail_msg("the place stands twice: %s", error_text());
    }
}

/* A model without sounds, and one whose tokenizer was lost. */
TEST(a_medium_that_the_model_does_not_make_is_refused)
{
    struct prompts p;
    char *lost = path_join(model, "weft/audio"), *kept = path_join(root, "audio");
    prompt_media_close(&media);
    require(rename(lost, kept) == 0, "cannot move %s", lost);
    assert_int_equal(load(&p, "{\"prompt\": \"a\", \"to\": \"audio\"" TRUTH), -1);
    assert_non_null(strstr(error_text(), "key to: the prompt asks for sounds, and the model's tokenizer is missing"));
    prompt_media_close(&media);
    require(rename(kept, lost) == 0, "cannot move %s", kept);
    load_one(&p, "{\"prompt\": \"a\", \"to\": \"audio\"" TRUTH);
    prompts_release(&p);
    i64 levels = media.generator.model.config.levels;
    media.generator.model.config.levels = 0;
    media.generator.has_audio = false;
    assert_int_equal(load(&p, "{\"prompt\": \"a\", \"to\": \"audio\"" TRUTH), -1);
    assert_non_null(strstr(error_text(), "key to: the prompt asks for sounds, and this model makes none"));
    media.generator.model.config.levels = levels;
    media.generator.has_audio = true;
    memory_free(lost);
    memory_free(kept);
}

/* ---- Files for the program ---- */

static struct prompts graded;
static struct rollout_group group;

/* A picture and an empty sound, as answers to one prompt. */
static void open_answers(void)
{
    load_one(&graded, "{\"prompt\": \"the words\", \"to\": \"image\"" TRUTH);
    rollout_group_init(&group, &graded.list[0], 0, 5, 2);
    const struct shape *shape = &media.generator.vocabulary.shapes[0];
    for (i64 i = 0; i < 2; i++) {
        struct answer *a = &group.rollouts[i].answer;
        answer_push(a, MEDIUM_DRAW, -1, 1, false);
        a->has_medium = a->done = a->ended = true;
        a->medium = (struct media_block){.kind = i ? STREAM_AUDIO : STREAM_IMAGE_OUT, .frames = !i};
    }
    group.rollouts[0].answer.medium.bits = memory_alloc(shape_tokens(shape) * TOY_BITS);
    group.rollouts[1].answer.medium.codes = memory_alloc(4);
}

static void close_answers(void)
{
    rollout_group_release(&group);
    prompts_release(&graded);
}

/* Grades both by `script`, which sees its lines on stdin. */
static int grade(const char *script, int sandbox)
{
    char *words[] = {"sh", "-c", (char *)script};
    const struct grader_settings s = {.verifier = VERIFY_PROGRAM,
                                      .program = {words, 3},
                                      .limits = {.seconds = 20, .processes = 64, .file_mb = 16, .sandbox = sandbox}};
    struct rollout_group *list = &group;
    i64 open;
    struct grader *grader = grader_open(&s, tokenizer, &media.generator, NULL, NULL, 0);
    require(grader, "%s", error_text());
    for (i64 i = 0; i < 2; i++)
        group.rollouts[i].graded = group.rollouts[i].ungraded = false;
    int status = grade_rollouts(&open, grader, &list, 1, 0, 10);
    grader_close(grader);
    return status;
}

/* The files are named .png and .wav, and their first bytes are those of a PNG and of a WAV of a frame; behind it
 * they are gone. */
TEST(programs_get_paths_of_files)
{
    char *seen = path_join(root, "seen");
    char *script = string_format(
        "while read -r line; do f=$(printf %%s \"$line\" | sed 's/.*\"\\(image\\|audio\\)\": "
        "*\"\\([^\"]*\\)\".*/\\2/'); "
        "case \"$f\" in *.png | *.wav) ;; *) exit 1 ;; esac; "
        "echo \"$f\" >> %s; head -c 4 \"$f\" | grep -q -e PNG -e RIFF && echo '{\"score\": '$(wc -c < \"$f\")'}'; done",
        seen);
    struct buffer paths = {0};
    open_answers();
    if (grade(script, 0))
        fail_msg("%s", error_text());
    assert_true(group.rollouts[0].graded && !group.rollouts[0].ungraded && group.rollouts[0].reward > 60);
    assert_true(group.rollouts[1].reward == 44 + 2 * AUDIO_FRAME_SAMPLES);
    assert_int_equal(file_read(&paths, seen), 0);
    char *end = strchr(paths.data, '\n');
    assert_non_null(end);
    *end = 0;
    assert_non_null(strstr(paths.data, "weft-answers"));
    assert_false(file_exists(paths.data));
    buffer_release(&paths);
    memory_free(script);
    memory_free(seen);
    close_answers();
}

TEST(a_missing_tmpdir_is_named)
{
    char *kept = string_copy(getenv("TMPDIR") ? getenv("TMPDIR") : "");
    open_answers();
    setenv("TMPDIR", "/no/such/folder", 1);
    assert_int_equal(grade("exit 1", 0), -1);
    assert_non_null(strstr(error_text(), "in TMPDIR or else /tmp: "));
    assert_non_null(strstr(error_text(), "/no/such/folder"));
    if (*kept)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    close_answers();
    memory_free(kept);
}

/* A medium has no turns: what is no score fails, as a program that breaks does. */
TEST(a_medium_needs_a_score)
{
    open_answers();
    assert_int_equal(grade("while read -r line; do echo '{\"observation\": \"go on\"}'; done", 0), -1);
    assert_non_null(strstr(error_text(), "sh gave no score for line 1, a medium"));
    close_answers();
}

TEST(rules_do_not_score_media)
{
    const struct grader_settings s = {.verifier = VERIFY_EXACT};
    struct grader *grader = grader_open(&s, tokenizer, &media.generator, NULL, NULL, 0);
    struct prompts p;
    load_one(&p, "{\"prompt\": \"the words\", \"to\": \"image\"" TRUTH);
    assert_int_equal(grader_check(grader, &p), -1);
    assert_non_null(
        strstr(error_text(), "rules score text, and this prompt asks for pictures: expected verifier: program"));
    prompts_release(&p);
    grader_close(grader);
}

int main(void)
{
    return tests_run(make, clear);
}
