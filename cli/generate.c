/* weft generate: any modality in, any out. */
#include "cli/cli.h"
#include "studio/preview.h"

#include <stdio.h>
#include <string.h>

struct request {
    const char *prompt, *image, *video, *audio, *to, *shape, *out, *seed, *most, *temperature, *top_p, *weights,
        *speculate, *guidance;
    bool greedy;
    struct submodel_options sub;
    enum answer_kind kind;
};

static int parse_kind(struct request *r)
{
    static const char *const names[] = {"text", "image", "video", "audio"};
    for (int i = 0; i < 4; i++)
        if (strcmp(r->to, names[i]) == 0) {
            r->kind = (enum answer_kind)i;
            return 0;
        }
    return error_usage("--to %s: expected text, image, video or audio", r->to);
}

static int build(struct prompt *p, struct studio *s, const struct request *r, i64 most)
{
    if ((r->image && prompt_image(p, s, r->image)) || (r->video && prompt_video(p, s, r->video)) ||
        (r->audio && prompt_audio(p, s, r->audio)))
        return -1;
    if (r->prompt && prompt_text(p, s, r->prompt))
        return error_prefix("--prompt");
    return prompt_ask(p, s, r->shape, most);
}

static int deliver(struct studio *s, const struct prompt *p, const struct answer *a, const struct request *r, u64 seed)
{
    struct text text = {0};
    if (r->out)
        return answer_save(r->out, s, p, a, seed);
    int status = answer_text(&text, s, p, a);
    if (status == 0)
        printf("%s\n", text.data ? text.data : "");
    text_release(&text);
    return status;
}

static int run(const char *directory, const struct request *r)
{
    struct studio studio;
    struct prompt prompt;
    struct submodel sub;
    struct arena arena;
    struct answer answer = {0};
    int status = 0;
    i64 seed = option_integer(r->seed, "seed", 1, 0, INT64_MAX, &status);
    i64 most = option_integer(r->most, "max-tokens", 0, 1, 1 << 20, &status);
    double temperature = option_number(r->temperature, "temperature", r->greedy ? 0 : 1, 0, 100, &status);
    double top_p = option_number(r->top_p, "top-p", 1, 0, 1, &status);
    double guidance = option_number(r->guidance, "guidance", 1, 0, 100, &status);
    int bits = option_weights(r->weights, &status);
    i64 ahead = option_integer(r->speculate, "speculate", 0, 1, DRAFTS_MOST, &status);
    if (status || studio_open(&studio, cli_device(), directory, DTYPE_OTHER))
        return -1;
    narrow_model(&studio.model, bits);
    arena_open(&arena, 64 << 20);
    prompt_init(&prompt, r->kind);
    prompt.guidance = guidance;
    struct draft_counts counts = {0};
    struct studio_options options = {.sampling = {(float)temperature, (float)top_p, 0, {(u64)seed, RNG_SAMPLING}},
                                     .sub = &sub,
                                     .seats = 1,
                                     .speculate = ahead,
                                     .draft_counts = &counts};
    status = submodel_parse(&sub, &arena, &r->sub, &studio.model);
    if (status == 0 && ahead && !studio.model.config.mtp)
        status =
            error_usage("--speculate %lld: %s has no block of multi-token prediction", (long long)ahead, directory);
    if (status == 0)
        studio_check_guidance(&studio, guidance);
    if (status == 0)
        status = build(&prompt, &studio, r, most);
    struct generate_request request = prompt_request(&prompt, 0, 1);
    if (status == 0)
        status = studio_generate(&answer, &studio, &request, 1, &options);
    if (status == 0 && ahead)
        log_info("%lld of %lld drafted ids were accepted", (long long)counts.accepted, (long long)counts.drafted);
    if (status == 0)
        status = deliver(&studio, &prompt, &answer, r, (u64)seed);
    answer_release(&answer);
    prompt_release(&prompt);
    arena_close(&arena);
    studio_close(&studio);
    return status;
}

static int check_request(const struct request *r)
{
    if (!r->prompt && !r->image && !r->video && !r->audio)
        return error_usage("weft generate: a --prompt, --image, --video or --audio is needed");
    if (r->kind != ANSWER_TEXT && !r->out)
        return error_usage("weft generate: --to %s needs -o FILE", r->to);
    if (r->shape && r->kind != ANSWER_IMAGE && r->kind != ANSWER_VIDEO)
        return error_usage("weft generate: --shape %s is for --to image and --to video", r->shape);
    if (r->guidance && r->kind == ANSWER_TEXT)
        return error_usage("weft generate: --guidance %s is for --to image, video and audio: text is never guided",
                           r->guidance);
    if (r->greedy && (r->temperature || r->top_p))
        return error_usage("weft generate: --greedy draws nothing: leave --temperature and --top-p out");
    return 0;
}

int command_generate(int argc, char **argv)
{
    struct arguments a;
    struct request r = {.to = "text"};
    const struct option options[] = {
        {"prompt", "TEXT", &r.prompt, NULL, "words that come first or after the media"},
        {"image", "FILE", &r.image, NULL, "a picture to look at"},
        {"video", "FILE", &r.video, NULL, "a clip to look at"},
        {"audio", "FILE", &r.audio, NULL, "a sound to listen to"},
        {"to", "text|image|video|audio", &r.to, NULL, "what to make (text)"},
        {"shape", "NAME", &r.shape, NULL,
         "of the picture or clip: a name of the vision tokenizer's table, or proportions, as 3:2 (the model's choice)"},
        {"guidance", "G", &r.guidance, NULL,
         "of pictures, clips and sound by the prompt: logits without it + G times what it changes (1: none)"},
        {"greedy", NULL, NULL, &r.greedy, "the likeliest each time"},
        {"temperature", "T", &r.temperature, NULL, "of sampling (1)"},
        {"top-p", "P", &r.top_p, NULL, "nucleus (1)"},
        {"seed", "N", &r.seed, NULL, "of sampling (1)"},
        {"max-tokens", "N", &r.most, NULL, "ids of text (64) or frames of sound (100)"},
        {"speculate", "N", &r.speculate, NULL, "ids of text drafted ahead by multi-token prediction, 1 to 4 (none)"},
        {"o", "FILE", &r.out, NULL, "PNG, MP4, WAV or text to write; text goes to stdout without it"},
        WEIGHTS_OPTION(r.weights),
        SUBMODEL_OPTIONS(r.sub),
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0)
        status = parse_kind(&r);
    if (status == 0)
        status = check_request(&r);
    if (status)
        return status < 0 ? command_failed() : 0;
    return run(a.positional[0], &r) ? command_failed() : 0;
}
