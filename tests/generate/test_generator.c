/* Media prompts, their results, and the stage `generate`, on a random model. */
#include <string.h>
#include "tests/events_fixture.h"
#include "tests/model_fixture.h"
#include "generate/generator.h"
#include "samples/samples.h"
#include "samples/caption_accuracy.h"
#include "tests/test.h"

static struct device device;
static char *root, *model; /* a folder with media, and the model inside it */

static char *in_root(const char *name) /* memory_free */
{
    return path_join(root, name);
}

static void assert_says(const char *wanted)
{
    if (!strstr(error_text(), wanted))
        fail_msg("the message \"%s\" does not contain \"%s\"", error_text(), wanted);
}

static FILE *heard_in;
static int stderr_before;

static void hear(void) /* what is said from here on */
{
    heard_in = tmpfile();
    stderr_before = dup(STDERR_FILENO);
    assert_non_null(heard_in);
    fflush(stderr);
    dup2(fileno(heard_in), STDERR_FILENO);
}

static char *heard(void) /* memory_free */
{
    struct buffer said = {0};
    fflush(stderr);
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    rewind(heard_in);
    for (int c; (c = fgetc(heard_in)) != EOF;)
        buffer_append(&said, &(char){(char)c}, 1);
    buffer_append(&said, "", 1);
    fclose(heard_in);
    return said.data;
}

static void open_studio(struct generator *generator)
{
    if (generator_open(generator, &device, &(struct model_source){.directory = model, .dtype = DTYPE_F32}) < 0)
        fail_msg("%s", error_text());
}

/* Replaces the model's vision tokenizer by one with these shapes; clip_frames 0: stills only. */
static void save_vision(i64 clip_frames, double rate_hz)
{
    struct vision_config config = {
        .stride = 8, .bits = 6, .channels = {8, 5}, .blocks = {1, 1}, .inflated = clip_frames > 0};
    struct vision vision;
    char *folder = path_join(model, "weft/vision");
    require(!vision_add_shape(&config, 1, 32, 32, 0, NULL, 0), "%s", error_text());
    if (clip_frames)
        require(!vision_add_shape(&config, clip_frames, 16, 16, rate_hz, NULL, 0), "%s", error_text());
    vision_open(&vision, &device, &config, DTYPE_F32, false);
    vision_init(&vision, 1);
    require(!directory_remove(folder) && !directory_make(folder) && !vision_save(&vision, folder), "%s", error_text());
    vision_close(&vision);
    memory_free(folder);
}

/* Saves a tokenizer with squares and shapes of 5 x 3 and 3 x 5 cells. */
static void save_shapes(void)
{
    struct vision_config config = {.stride = 8, .bits = 6, .channels = {8, 5}, .blocks = {1, 1}};
    struct vision vision;
    char *folder = path_join(model, "weft/vision");
    require(!vision_add_shape(&config, 1, 32, 32, 0, NULL, 0) && !vision_add_shape(&config, 1, 24, 40, 0, NULL, 0) &&
                !vision_add_shape(&config, 1, 40, 24, 0, NULL, 0),
            "%s", error_text());
    vision_open(&vision, &device, &config, DTYPE_F32, false);
    vision_init(&vision, 1);
    require(!directory_remove(folder) && !directory_make(folder) && !vision_save(&vision, folder), "%s", error_text());
    vision_close(&vision);
    memory_free(folder);
}

static void write_clip(const char *path, i64 frames, double rate_hz)
{
    struct clip clip;
    clip_init(&clip, frames, 32, 32, rate_hz);
    for (i64 i = 0; i < frames * 32 * 32 * 3; i++)
        clip.pixels[i] = (u8)(i / 3072 * 9 + i % 40);
    require(clip_write_mp4(path, &clip) == 0, "%s", error_text());
    clip_release(&clip);
}

/* ---- Prompts ---- */

/* Five ids, in models of fewer positions, of as many, of some more, and of many. */
TEST(a_prompt_fits_into_the_model)
{
    const i32 ids[] = {3, 4, 5, 6, 7};
    static const struct {
        i64 positions, most; /* most 0: refused */
    } rows[] = {{4, 0}, {5, 0}, {6, 1}, {9, 4}, {69, 64}, {1000, 64}};
    struct generator generator;
    open_studio(&generator);
    i64 before = generator.model.config.max_positions;
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        struct prompt prompt;
        prompt_init(&prompt, MODALITY_TEXT);
        assert_int_equal(prompt_ids(&prompt, ids, COUNT_OF(ids)), 0);
        assert_int_equal(prompt_ask(&prompt, &generator, NULL, 0), 0);
        generator.model.config.max_positions = rows[i].positions;
        assert_int_equal(prompt_fit(&prompt, &generator), rows[i].most ? 0 : -1);
        if (rows[i].most)
            assert_int_equal(prompt.most, rows[i].most);
        else
            assert_non_null(strstr(error_text(), "the prompt does not fit into the model's length"));
        prompt_release(&prompt);
    }
    generator.model.config.max_positions = before;
    generator_close(&generator);
}

static int make_text(struct generator *generator)
{
    struct prompt prompt;
    struct answer answer = {0};
    struct generator_options options = {.sampling = {0, 1, 0, {1, RNG_SAMPLING}}, .slots = 1};
    prompt_init(&prompt, MODALITY_TEXT);
    int status = prompt_text(&prompt, generator, "these words") || prompt_ask(&prompt, generator, NULL, 4);
    struct generate_request request = prompt_request(&prompt, 0, 1);
    if (status == 0)
        status = generator_run(&answer, generator, &request, 1, &options);
    answer_release(&answer);
    prompt_release(&prompt);
    return status;
}

/* Captions were trained behind a space, texts from their first letter on. */
TEST(a_caption_begins_within_a_sentence)
{
    static const char *const want[MODALITIES] = {[MODALITY_TEXT] = "these words",
                                                 [MODALITY_IMAGE] = " these words",
                                                 [MODALITY_VIDEO] = " these words",
                                                 [MODALITY_AUDIO] = " these words"};
    struct generator generator;
    open_studio(&generator);
    for (int to = 0; to < MODALITIES; to++) {
        struct prompt prompt;
        struct buffer text = {0};
        prompt_init(&prompt, (enum modality)to);
        assert_int_equal(prompt_text(&prompt, &generator, "these words"), 0);
        assert_int_equal(text_decode(generator.text, &text, prompt.parts[0].ids, prompt.parts[0].count, false), 0);
        assert_string_equal(text.data, want[to]);
        assert_int_equal(prompt_ask(&prompt, &generator, NULL, 0), 0);
        if (to == MODALITY_TEXT || to == MODALITY_AUDIO) /* as --tokens says */
            assert_int_equal(prompt.most, to == MODALITY_TEXT ? 64 : 100);
        buffer_release(&text);
        prompt_release(&prompt);
    }
    generator_close(&generator);
}

/* As in shards: who writes a prompt begins no picture in it. */
TEST(a_spelled_control_token_stays_text)
{
    struct generator generator;
    open_studio(&generator);
    for (int i = 0; i < BRACKETS; i++) {
        struct prompt prompt;
        i32 id = text_token_id(generator.text, bracket_tokens[i]);
        prompt_init(&prompt, MODALITY_TEXT);
        assert_int_equal(prompt_text(&prompt, &generator, bracket_tokens[i]), 0);
        for (i64 k = 0; id >= 0 && k < prompt.parts[0].count; k++)
            assert_int_not_equal(prompt.parts[0].ids[k], id);
        prompt_release(&prompt);
    }
    generator_close(&generator);
}

/* What a model was taught to say of media begins with a space, which is no part of the answer. */
TEST(an_answer_of_media_begins_with_its_first_letter)
{
    static const struct {
        const char *said, *of_media, *of_text;
    } cases[] = {{" these words", "these words", " these words"},
                 {"  these", " these", "  these"},
                 {"these", "these", "these"},
                 {" ", "", " "},
                 {"", "", ""}};
    struct generator generator;
    struct prompt prompt;
    char *picture = in_root("picture.png");
    open_studio(&generator);
    for (i64 i = 0; i < 2 * COUNT_OF(cases); i++) {
        const char *said = cases[i / 2].said;
        struct id_list ids = {0};
        struct buffer text = {0};
        prompt_init(&prompt, MODALITY_TEXT);
        if (i % 2)
            assert_int_equal(prompt_medium(&prompt, &generator, MODALITY_IMAGE, picture), 0);
        assert_int_equal(text_encode(generator.text, &ids, said, (i64)strlen(said), NULL), 0);
        assert_int_equal(answer_text(&text, &generator, &prompt, &(struct answer){.ids = ids.ids, .count = ids.count}),
                         0);
        assert_string_equal(text.data ? text.data : "", i % 2 ? cases[i / 2].of_media : cases[i / 2].of_text);
        prompt_release(&prompt);
        id_list_release(&ids);
        buffer_release(&text);
    }
    generator_close(&generator);
    memory_free(picture);
}

/* 20000 samples at 16 kHz are 16 frames of 80 ms; behind the last one stands the code of the end. */
TEST(a_sound_of_a_prompt_ends_with_its_end)
{
    struct generator generator;
    struct prompt prompt;
    char *noise = in_root("noise.wav");
    open_studio(&generator);
    prompt_init(&prompt, MODALITY_TEXT);
    assert_int_equal(prompt_medium(&prompt, &generator, MODALITY_AUDIO, noise), 0);
    i64 levels = generator.audio.config.levels, frames = 16;
    assert_int_equal(prompt.media[0].frames, frames);
    assert_int_equal(prompt.parts[0].count, frames);
    for (i64 i = 0; i < (frames + 1) * levels; i++)
        assert_true(i < frames * levels ? prompt.media[0].codes[i] < 16 : prompt.media[0].codes[i] == 16);
    prompt_release(&prompt);
    generator_close(&generator);
    memory_free(noise);
}

/* ---- Voices ---- */

/* Writes MODEL/../voiced: the model again, with random weights for speaker vectors. */
static char *save_voiced(void)
{
    struct model voiced;
    struct model_config c = toy_config(4, TOY_ALL & ~(unsigned)TOY_SHARED);
    char *folder = in_root("voiced");
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    c.voice = VOICE_VALUES;
    toy_open(&voiced, &device, &c, false);
    struct fixture_parts saved = {&voiced, root};
    require(directory_make(folder) == 0 && fixture_save_model(&saved, folder) == 0, "%s", error_text());
    model_close(&voiced);
    fixture_save_tokenizers(folder, &device);
    return folder;
}

/* A buzz of `hz`; 0: silence. */
static char *save_buzz(const char *name, i64 hz, i64 samples)
{
    struct sound sound;
    char *path = in_root(name);
    sound_init(&sound, samples, AUDIO_RATE_HZ);
    for (i64 i = 0; i < samples; i++)
        sound.values[i] = hz ? 0.3f * (float)(i * hz % AUDIO_RATE_HZ) / AUDIO_RATE_HZ : 0;
    require(sound_write_wav(path, &sound) == 0, "%s", error_text());
    sound_release(&sound);
    return path;
}

static void ask_voice(struct prompt *p, struct generator *g, const char *voice)
{
    prompt_init(p, MODALITY_AUDIO);
    if ((voice && prompt_voice(p, g, voice)) || prompt_text(p, g, "the words") || prompt_ask(p, g, NULL, 6))
        fail_msg("%s", error_text());
}

/* Entropies of what is drawn for the first frame. */
static double entropy_of_first(struct generator *g, const char *voice)
{
    struct prompt p;
    struct answer a = {0};
    struct submodel sub;
    submodel_full(&sub, &g->model.config);
    ask_voice(&p, g, voice);
    struct generate_request request = prompt_request(&p, 0, 1);
    struct decoder_options o = {.model = &g->model,
                                .sub = &sub,
                                .vocabulary = &g->vocabulary,
                                .amplitude = g->amplitude,
                                .grid = g->grid,
                                .sampling = {1, 1, 0, {1, RNG_TEST}},
                                .want_entropy = true};
    struct decoder d;
    decoder_open(&d, &o, 1, 64);
    if (decoder_add(&d, &a, &request))
        fail_msg("%s", error_text());
    while (decoder_step(&d))
        continue;
    require(a.count > 0, "nothing was drawn");
    double entropy = a.entropy[0];
    decoder_close(&d);
    answer_release(&a);
    prompt_release(&p);
    return entropy;
}

TEST(a_voice_is_part_of_the_prompt)
{
    struct generator g;
    struct prompt p;
    char *folder = save_voiced(), *low = save_buzz("low.wav", 110, 9000), *high = save_buzz("high.wav", 300, 9000);
    if (generator_open(&g, &device, &(struct model_source){.directory = folder, .dtype = DTYPE_F32}) < 0)
        fail_msg("%s", error_text());
    ask_voice(&p, &g, low);
    assert_true(p.part_count == 2 && p.parts[0].voice && p.media_count == 1);
    prompt_release(&p);
    double of_low = entropy_of_first(&g, low), of_high = entropy_of_first(&g, high);
    assert_true(of_low != of_high && entropy_of_first(&g, NULL) != of_low);
    assert_true(entropy_of_first(&g, low) == of_low);
    generator_close(&g);
    memory_free(folder);
    memory_free(low);
    memory_free(high);
}

TEST(voices_that_cannot_be_used_are_refused)
{
    struct generator g;
    struct prompt p;
    char *folder = save_voiced(), *low = save_buzz("low.wav", 110, 9000), *silence = save_buzz("quiet.wav", 0, 9000),
         *brief = save_buzz("brief.wav", 110, 800), *gone = in_root("gone.wav"), *picture = in_root("picture.png");
    const struct {
        const char *file, *says;
    } cases[] = {{silence, "quiet.wav: nothing is heard in it"},
                 {brief, "brief.wav: nothing is heard in it"},
                 {gone, "gone.wav: cannot be opened"},
                 {picture, "picture.png: expected a sound"}};
    if (generator_open(&g, &device, &(struct model_source){.directory = folder, .dtype = DTYPE_F32}) < 0)
        fail_msg("%s", error_text());
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        prompt_init(&p, MODALITY_AUDIO);
        assert_int_equal(prompt_voice(&p, &g, cases[i].file), -1);
        assert_says(cases[i].says);
        prompt_release(&p);
    }
    generator_close(&g);
    open_studio(&g);
    prompt_init(&p, MODALITY_AUDIO);
    assert_int_equal(prompt_voice(&p, &g, low), -1);
    assert_says("low.wav: this model takes no voice");
    prompt_release(&p);
    generator_close(&g);
    char *paths[] = {folder, low, silence, brief, gone, picture};
    for (i64 i = 0; i < COUNT_OF(paths); i++)
        memory_free(paths[i]);
}

/* Guidance compares with the model without a prompt: it must have been trained so. */
TEST(guidance_of_a_model_without_dropped_conditions_is_told)
{
    static const struct {
        const char *settings; /* of the stage; NULL: no identity.json */
        double guidance;
        bool told;
    } cases[] = {{"{\"pack\": {\"condition_drop\": 0}}", 2, true},
                 {"{\"pack\": {\"condition_drop\": 0}, \"from\": null}", 0, true},
                 {"{\"pack\": {\"condition_drop\": 0}}", 1, false},
                 {"{\"pack\": {\"condition_drop\": 0.1}}", 2, false},
                 {"{\"pack\": {\"condition_drop\": 0}, \"from\": \"base\"}", 2, false},
                 {"{}", 2, false},
                 {NULL, 2, false}};
    struct generator generator;
    char *path = path_join(model, "identity.json");
    open_studio(&generator);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *text = string_format("{\"kind\": \"pretrain\", \"settings\": %s}", cases[i].settings);
        if (cases[i].settings)
            assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
        hear();
        generator_check_guidance(&generator, cases[i].guidance);
        char *said = heard();
        if ((strstr(said, "train with pack.condition_drop") != NULL) != cases[i].told)
            fail_msg("case %lld: %s", (long long)i, said);
        assert_int_equal(directory_remove(path), 0);
        memory_free(text);
        memory_free(said);
    }
    generator_close(&generator);
    memory_free(path);
}

TEST(text_needs_no_other_tokenizer)
{
    struct generator generator;
    struct prompt prompt;
    char *folder = path_join(model, "weft/vision"), *sounds = path_join(model, "weft/audio"),
         *away = path_join(model, "weft/elsewhere"), *picture = in_root("picture.png"), *noise = in_root("noise.wav");
    assert_int_equal(directory_remove(folder), 0);
    assert_int_equal(rename(sounds, away), 0);
    open_studio(&generator);
    if (make_text(&generator) < 0)
        fail_msg("%s", error_text());
    prompt_init(&prompt, MODALITY_IMAGE);
    assert_int_equal(prompt_medium(&prompt, &generator, MODALITY_IMAGE, picture), -1);
    assert_says("picture.png");
    assert_says("vision tokenizer is missing");
    assert_int_equal(prompt_ask(&prompt, &generator, NULL, 0), -1);
    assert_says("model/weft/vision");
    assert_int_equal(prompt_medium(&prompt, &generator, MODALITY_AUDIO, noise), -1);
    assert_says("model/weft/audio");
    prompt_release(&prompt);
    generator_close(&generator);
    assert_int_equal(rename(away, sounds), 0);
    save_vision(9, 8);
    char *all[] = {folder, sounds, away, picture, noise};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* Checks height and width of a picture generated in a shape. */
static void assert_made(struct generator *generator, const char *shape, i64 height, i64 width)
{
    struct prompt prompt;
    struct answer answer = {0};
    struct generator_options options = {.sampling = {0, 1, 0, {1, RNG_SAMPLING}}, .slots = 1};
    u8 *pixels = NULL;
    i64 size[3] = {0};
    double rate;
    prompt_init(&prompt, MODALITY_IMAGE);
    if (prompt_text(&prompt, generator, "these words") || prompt_ask(&prompt, generator, shape, 0))
        fail_msg("%s", error_text());
    struct generate_request request = prompt_request(&prompt, 0, 1);
    if (generator_run(&answer, generator, &request, 1, &options) ||
        answer_pixels(&pixels, size, &rate, generator, &answer))
        fail_msg("%s", error_text());
    assert_int_equal(size[1], height);
    assert_int_equal(size[2], width);
    memory_free(pixels);
    answer_release(&answer);
    prompt_release(&prompt);
}

TEST(pictures_are_read_and_made_in_their_shapes)
{
    struct generator generator;
    struct prompt prompt;
    struct clip clip;
    char *path = in_root("high.png");
    save_shapes();
    open_studio(&generator);
    clip_init(&clip, 1, 100, 60, 0);
    require(image_write_png(path, clip.pixels, 100, 60) == 0, "%s", error_text());
    clip_release(&clip);
    prompt_init(&prompt, MODALITY_IMAGE);
    if (prompt_medium(&prompt, &generator, MODALITY_IMAGE, path) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(prompt.parts[0].height, 3); /* 5 x 3 cells, merged 2 x 2 */
    assert_int_equal(prompt.parts[0].width, 2);
    assert_int_equal(prompt_ask(&prompt, &generator, NULL, 0), 0);
    assert_int_equal(prompt.opening[0], generator.vocabulary.shape[2]); /* the shape of the prompt's picture */
    assert_made(&generator, "40x24", 24, 40);
    assert_made(&generator, "16:9", 24, 40);
    assert_made(&generator, "2:3", 40, 24);
    assert_int_equal(prompt_ask(&prompt, &generator, "24x24", 0), -1);
    assert_says("it has: 32x32 40x24 24x40; or proportions");
    assert_int_equal(prompt_ask(&prompt, &generator, "10:3", 0), 0); /* twice as long as 5:3, the longest */
    assert_int_equal(prompt_ask(&prompt, &generator, "3:10", 0), 0);
    assert_int_equal(prompt_ask(&prompt, &generator, "10.1:3", 0), -1);
    assert_int_equal(prompt_ask(&prompt, &generator, "3:10.1", 0), -1);
    assert_int_equal(prompt_ask(&prompt, &generator, "9:99999", 0), -1);
    assert_says("--shape 9:99999: the vision tokenizer has no such shape for pictures; it has: 32x32 40x24 24x40; or "
                "proportions to within a factor of 2 of these");
    prompt_release(&prompt);
    generator_close(&generator);
    save_vision(9, 8);
    memory_free(path);
}

static struct generate_request ask(struct prompt *prompt, struct generator *generator, enum modality kind,
                                   const char *text, double guidance)
{
    prompt_init(prompt, kind);
    prompt->guidance = guidance;
    if (prompt_text(prompt, generator, text) || prompt_ask(prompt, generator, NULL, 0))
        fail_msg("%s", error_text());
    return prompt_request(prompt, 0, 1);
}

/* With several shapes and a prompt the model chooses; otherwise the opening fixes the shape. */
TEST(the_model_chooses_among_its_shapes)
{
    struct generator generator;
    struct prompt prompt;
    struct answer answer = {0};
    struct generator_options options = {.sampling = {1, 1, 0, {1, RNG_SAMPLING}}, .slots = 1};
    save_shapes();
    open_studio(&generator);
    struct generate_request r = ask(&prompt, &generator, MODALITY_IMAGE, "these words", 1);
    assert_int_equal(r.choice_count, 3);
    assert_memory_equal(r.choices, generator.vocabulary.shape, 3 * 4);
    assert_int_equal(r.opening_count, 0);
    for (r.identity = 0; r.identity < 4; r.identity++) {
        if (generator_run(&answer, &generator, &r, 1, &options))
            fail_msg("%s", error_text());
        assert_true(answer.ended && answer.count == 1 && answer.medium.bits);
        assert_int_equal(answer.ids[0], generator.vocabulary.shape[answer.medium.shape]);
        answer_release(&answer);
        answer = (struct answer){0};
    }
    prompt_release(&prompt);
    r = ask(&prompt, &generator, MODALITY_IMAGE, "", 1);
    assert_int_equal(r.choice_count, 0);
    assert_int_equal(r.opening[0], generator.vocabulary.shape[0]);
    prompt_release(&prompt);
    generator_close(&generator);
    save_vision(9, 8);
    open_studio(&generator);
    r = ask(&prompt, &generator, MODALITY_VIDEO, "these words", 1); /* only one shape exists */
    assert_int_equal(r.choice_count, 0);
    assert_int_equal(r.opening[0], generator.vocabulary.shape[1]);
    prompt_release(&prompt);
    generator_close(&generator);
}

TEST(media_are_guided_by_a_prompt_alone)
{
    static const struct {
        enum modality kind;
        const char *text;
        double guidance;
        bool guided;
    } rows[] = {{MODALITY_IMAGE, "words", 2, true}, {MODALITY_VIDEO, "words", 0, true},
                {MODALITY_AUDIO, "words", 2, true}, {MODALITY_IMAGE, "words", 1, false},
                {MODALITY_TEXT, "words", 2, false}, {MODALITY_IMAGE, "", 2, false}};
    struct generator generator;
    open_studio(&generator);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        struct prompt prompt;
        struct generate_request r = ask(&prompt, &generator, rows[i].kind, rows[i].text, rows[i].guidance);
        assert_int_equal(r.guided, rows[i].guided);
        assert_true(r.guidance == (float)rows[i].guidance);
        prompt_release(&prompt);
    }
    generator_close(&generator);
}

static i64 latent_frames_of(i64 frames, double rate_hz)
{
    struct generator generator;
    struct prompt prompt;
    char *path = in_root("some.mp4");
    write_clip(path, frames, rate_hz);
    open_studio(&generator);
    prompt_init(&prompt, MODALITY_TEXT);
    if (prompt_medium(&prompt, &generator, MODALITY_VIDEO, path) < 0)
        fail_msg("%s", error_text());
    i64 latent_frames = prompt.parts[0].frames;
    prompt_release(&prompt);
    generator_close(&generator);
    memory_free(path);
    return latent_frames;
}

/* Same rule as in shards: 7 frames count as 9 of which the last 3 are equal, not as 5. */
TEST(a_short_clip_stands_still_at_its_end)
{
    assert_int_equal(latent_frames_of(5, 8), 2);
    assert_int_equal(latent_frames_of(6, 8), 3);
    assert_int_equal(latent_frames_of(7, 8), 3);
    assert_int_equal(latent_frames_of(9, 8), 3);
    assert_int_equal(latent_frames_of(40, 8), 3);
}

TEST(without_a_rate_every_frame_is_taken)
{
    save_vision(9, 8);
    assert_int_equal(latent_frames_of(9, 32), 2); /* 0.28 s: 3 frames at 8 Hz and 2 repeats */
    save_vision(9, 0);
    assert_int_equal(latent_frames_of(9, 32), 3);
    save_vision(9, 8);
}

TEST(clips_of_a_shape_without_a_rate_are_played_at_the_default)
{
    struct generator generator;
    double rate_hz;
    i64 size[3];
    u8 *pixels, bits[3 * 5 * 6] = {0};
    save_vision(9, 0);
    open_studio(&generator);
    struct answer answer = {.has_medium = true, .medium = {.kind = STREAM_VIDEO_OUT, .shape = 1, .frames = 3}};
    answer.medium.bits = bits;
    assert_int_equal(answer_pixels(&pixels, size, &rate_hz, &generator, &answer), 0);
    assert_int_equal(size[0], 9);
    assert_true(rate_hz == VISION_RATE_HZ);
    memory_free(pixels);
    generator_close(&generator);
    save_vision(9, 8);
}

/* ---- A refiner ---- */

/* Saves one of pictures of side x side in ROOT/NAME; memory_free. */
static char *save_refiner(const char *name, i64 side)
{
    const struct refiner_config config = {.channels = {4, 4, 4},
                                          .blocks = 1,
                                          .noise = 0.5,
                                          .temperature = 1,
                                          .steps = 2,
                                          .size_count = 2,
                                          .sizes = {{32, 32}, {side, side}}};
    struct refiner refiner;
    char *folder = in_root(name);
    refiner_open(&refiner, &device, &config, DTYPE_F32, false);
    weights_init(&refiner.weights, 2);
    require(!directory_make(folder) && !refiner_save(&refiner, folder), "%s", error_text());
    refiner_close(&refiner);
    return folder;
}

TEST(files_of_answers_are_refined)
{
    struct generator generator;
    struct clip clip;
    struct file_view view;
    double rate_hz;
    i64 size[3];
    u8 *pixels, bits[3 * 21 * 6] = {1, 0, 1}, out[64 * 64 * 3];
    char *folder = save_refiner("refiner", 16), *other = save_refiner("other", 24), *path = in_root("refined.png");
    open_studio(&generator);
    struct answer answer = {.has_medium = true, .medium = {.kind = STREAM_IMAGE_OUT, .shape = 0, .frames = 1}};
    answer.medium.bits = bits;
    if (generator_refine(&generator, folder))
        fail_msg("%s", error_text());
    assert_int_equal(answer_save(path, &generator, NULL, &answer, 5), 0);
    assert_int_equal(answer_pixels(&pixels, size, &rate_hz, &generator, &answer), 0);
    assert_int_equal(size[1], 32); /* not refined */
    refiner_sample(&generator.refiner, out, pixels, 1, 32, 32, &(struct refiner_draw){.seed = 5});
    assert_int_equal(file_map(&view, path), 0);
    assert_int_equal(image_read(&clip, view.data, view.bytes, path), 0);
    assert_true(clip.height == 64 && clip.width == 64);
    assert_memory_equal(clip.pixels, out, sizeof out);
    file_unmap(&view);
    clip_release(&clip);
    memory_free(pixels);
    generator_close(&generator);
    open_studio(&generator);
    assert_int_equal(generator_refine(&generator, other), -1);
    assert_says("refines pictures of 32x32, 24x24, and the tokenizer makes 16x16: train a refiner on pictures of this "
                "tokenizer");
    generator_close(&generator);
    memory_free(folder);
    memory_free(other);
    memory_free(path);
}

/* ---- The stage `generate` ---- */

/* Writes ROOT/data/train: pictures and clips listed by these captions. */
static void write_data(const char *captions)
{
    char *folder = in_root("data/train"), *list = path_join(folder, "captions.jsonl"),
         *picture = path_join(folder, "a.png"), *clip = path_join(folder, "a.mp4"), *cut = path_join(folder, "cut.png"),
         *from = in_root("picture.png"), *data = in_root("data");
    assert_int_equal(directory_remove(data), 0);
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(file_copy(picture, from), 0);
    assert_int_equal(file_replace(cut, "\x89PNG\r\n\x1a\n", 8), 0);
    write_clip(clip, 9, 8);
    assert_int_equal(file_replace(list, captions, (i64)strlen(captions)), 0);
    char *all[] = {folder, list, picture, clip, cut, from, data};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static struct json *run_samples(struct samples_settings settings)
{
    char *out = in_root("samples"), *data = in_root("data"), *path = path_join(out, "samples.json");
    struct stage stage = {
        .name = "samples", .out = out, .seed = 1, .recipe_seed = 1, .device = &device, .dtype = DTYPE_F32};
    settings.from = model;
    settings.data = data;
    settings.top_p = 1;
    settings.guidance = settings.guidance ? settings.guidance : 1;
    settings.train_share = settings.train_share ? settings.train_share : 1;
    assert_int_equal(directory_remove(out), 0);
    assert_int_equal(directory_make(out), 0);
    if (samples_stage(&settings, &stage) != 0)
        fail_msg("%s", error_text());
    struct json *report = json_load(path);
    assert_non_null(report);
    memory_free(out);
    memory_free(data);
    memory_free(path);
    return report;
}

static const char three_pictures[] =
    "{\"image\":\"a.png\",\"text\":\"one\"}\n{\"image\":\"cut.png\",\"text\":\"two\"}\n"
    "{\"image\":\"gone.png\",\"text\":\"three\"}\n";

TEST(unreadable_files_are_left_out_and_counted)
{
    write_data(three_pictures);
    struct json *report = run_samples((struct samples_settings){.pictures = 3, .texts = 3, .show = 3});
    const struct json *made = json_get(report, "train/image"), *told = json_get(report, "train/image-to-text");
    assert_int_equal(json_integer(json_get(made, "captions"), -1), 1);
    assert_int_equal(json_integer(json_get(made, "unreadable"), -1), 2);
    assert_int_equal(json_count(json_get(made, "shown")), 1);
    assert_int_equal(json_integer(json_get(told, "media"), -1), 1);
    assert_int_equal(json_integer(json_get(told, "unreadable"), -1), 2);
    assert_int_equal(json_count(json_get(told, "shown")), 1);
    char *out = in_root("samples");
    assert_true(events_have(out, "train/image/00 made", 19) && events_have(out, "\032\003one", 5)); /* its caption */
    assert_true(events_have_file(out, "train-image-00.png") && events_have_file(out, "train-image-00-original.png"));
    memory_free(out);
    json_free(report);
}

/* Of clips that are longer than the model reads the first alone is named; one picture is compared
 * with no other. */
TEST(what_a_set_lacks_is_said_once)
{
    char *clip = in_root("data/train/a.mp4");
    write_data("{\"image\":\"a.png\",\"text\":\"one\"}\n{\"video\":\"a.mp4\",\"text\":\"two\"}\n"
               "{\"video\":\"a.mp4\",\"text\":\"three\"}\n");
    write_clip(clip, 30, 8);
    hear();
    json_free(run_samples((struct samples_settings){.pictures = 1, .clips = 2, .texts = 2, .show = 1}));
    char *said = heard();
    const char *longer = strstr(said, "longer than the 9 frames");
    assert_non_null(longer);
    assert_null(strstr(longer + 1, "longer than the 9 frames"));
    assert_non_null(strstr(said, "train image: one sample, and no other"));
    assert_non_null(strstr(said, "train video: nearer to its own original"));
    memory_free(said);
    memory_free(clip);
}

/* Two captions each for training, validation and test. Training is half as large. */
TEST(parts_are_measured_apart)
{
    static const char captions[] =
        "{\"image\":\"a.png\",\"text\":\"red one\"}\n{\"image\":\"a.png\",\"text\":\"two\"}\n";
    char *names[] = {"test", "train"};
    write_data(captions);
    for (i64 i = 0; i < 2; i++) {
        char *folder = in_root(i ? "data/test" : "data/validation"), *list = path_join(folder, "captions.jsonl"),
             *picture = path_join(folder, "a.png"), *from = in_root("picture.png");
        assert_int_equal(directory_make(folder), 0);
        assert_int_equal(file_copy(picture, from), 0);
        assert_int_equal(file_replace(list, captions, sizeof captions - 1), 0);
        char *all[] = {folder, list, picture, from};
        for (i64 k = 0; k < COUNT_OF(all); k++)
            memory_free(all[k]);
    }
    struct json *report = run_samples((struct samples_settings){.pictures = 2, .texts = 2, .show = 1});
    assert_non_null(json_get(report, "train/image"));
    assert_non_null(json_get(report, "validation/image"));
    assert_null(json_get(report, "test/image"));
    json_free(report);
    report = run_samples(
        (struct samples_settings){.pictures = 2, .texts = 2, .show = 1, .parts = {names, 2}, .train_share = 0.5});
    const struct json *test = json_get(report, "test/image"), *told = json_get(report, "test/image-to-text");
    assert_null(json_get(report, "validation/image"));
    assert_null(json_get(report, "validation/image-to-text"));
    assert_int_equal(json_integer(json_get(json_get(report, "train/image"), "captions"), -1), 1);
    assert_int_equal(json_integer(json_get(json_get(report, "train/image-to-text"), "media"), -1), 1);
    assert_int_equal(json_integer(json_get(test, "captions"), -1), 2);
    assert_float_equal(json_number(json_get(test, "retrieval"), -1), 0, 0); /* one picture, as near to both */
    assert_string_equal(json_string(json_get(told, "words_fixed_answer"), ""), "two red");
    assert_float_equal(json_number(json_get(told, "words_fixed"), -1), 7.0 / 12, 1e-6);
    assert_int_equal(json_count(json_get(told, "classes")), 1);
    json_free(report);
}

/* The file of the sound that is made at a temperature. */
static void make_sound(struct buffer *out, double sound_temperature, double temperature)
{
    char *from = in_root("noise.wav"), *to = in_root("data/train/a.wav"), *made = in_root("samples/train-audio-00.wav");
    write_data("{\"audio\":\"a.wav\",\"text\":\"one\"}\n");
    assert_int_equal(file_copy(to, from), 0);
    json_free(run_samples((struct samples_settings){
        .sounds = 1, .show = 1, .sound_temperature = sound_temperature, .temperature = temperature}));
    assert_int_equal(file_read(out, made), 0);
    memory_free(from);
    memory_free(to);
    memory_free(made);
}

TEST(sounds_have_a_temperature_of_their_own)
{
    struct buffer cold = {0}, again = {0}, hot = {0};
    make_sound(&cold, 0.1, 1);
    make_sound(&again, 0.1, 5);
    make_sound(&hot, 5, 1);
    assert_int_equal(again.length, cold.length);
    assert_memory_equal(again.data, cold.data, (size_t)cold.length);
    assert_true(hot.length != cold.length || memcmp(hot.data, cold.data, (size_t)cold.length) != 0);
    buffer_release(&cold);
    buffer_release(&again);
    buffer_release(&hot);
}

TEST(a_tokenizer_of_stills_makes_no_clips)
{
    save_vision(0, 0);
    write_data("{\"image\":\"a.png\",\"text\":\"one\"}\n{\"video\":\"a.mp4\",\"text\":\"two\"}\n");
    struct json *report = run_samples((struct samples_settings){.pictures = 1, .clips = 1, .texts = 1, .show = 1});
    assert_int_equal(json_integer(json_get(json_get(report, "train/image"), "captions"), -1), 1);
    assert_null(json_get(report, "train/video"));
    assert_null(json_get(report, "train/video-to-text"));
    json_free(report);
    save_vision(9, 8);
}

TEST(words_are_counted_as_often_as_both_have_them)
{
    assert_true(caption_accuracy("red apple", "Red  apple") == 1);
    assert_true(caption_accuracy("red apple", "apple tree red") == 0.8);
    assert_true(caption_accuracy("the cat the dog", "the the the") == 4.0 / 7);
    assert_true(caption_accuracy("the the dog", "the cat") == 0.4);
    assert_true(caption_accuracy("a", "b") == 0);
    assert_true(caption_accuracy("", "") == 0);
    assert_true(caption_accuracy("", "one") == 0);
}

/* 4 of 10 fully correct: the 95 % interval of the mean of 10 Bernoulli(0.4) draws is 0.1 to 0.7. */
TEST(right_words_stand_beside_exchanged_ones)
{
    char *captions[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    char *said[] = {"a", "b", "c", "d", "x", "x", "a", "x", "x", "x"};
    struct caption_accuracy all = caption_accuracy_all(captions, said, 10, (struct rng_key){1, RNG_RESAMPLE});
    assert_float_equal(all.right, 0.4, 1e-12);
    assert_float_equal(all.exchanged, 1 / 90.0, 1e-12);
    assert_float_equal(all.low, 0.1, 1e-9);
    assert_float_equal(all.high, 0.7, 1e-9);
    all = caption_accuracy_all(captions, said, 1, (struct rng_key){1, RNG_RESAMPLE});
    assert_true(all.right == 1 && all.low == 1 && all.high == 1 && all.exchanged == 0);
}

static int make(void **state)
{
    (void)state;
    device_open_cpu(&device);
    root = fixture_shards("studio", 40, 20);
    fixture_model(root, &device);
    fixture_media(root);
    model = in_root("model");
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(root);
    memory_free(root);
    memory_free(model);
    device_close(&device);
    return 0;
}

int main(void)
{
    return tests_run(make, clear);
}
