/* weft generate: generates text, pictures, clips or speech from prompts of any modality. */
#include "cli/cli.h"
#include "inference/foresee.h"

#include <stdio.h>
#include <string.h>

struct request {
    const char *prompt, *media[MODALITIES], *to, *shape, *out, *seed, *most, *temperature, *top_p, *weights, *speculate,
        *guidance;
    bool greedy;
    struct submodel_options sub;
    enum modality kind;
    /* parsed from the strings above */
    i64 seed_number, most_ids, ahead;
    double temperature_number, top_p_number, guidance_number;
    int bits;
};

static int parse_kind(struct request *r)
{
    struct text names = {0};
    r->kind = modality_named(r->to);
    if (r->kind != MODALITIES)
        return 0;
    modality_names(&names, "", ", ", " or ");
    error_usage("--to %s: expected %s", r->to, names.data);
    text_release(&names);
    return -1;
}

static int build(struct prompt *p, struct studio *s, const struct request *r)
{
    for (enum modality kind = 0; kind < MODALITIES; kind++)
        if (r->media[kind] && prompt_medium(p, s, kind, r->media[kind]))
            return -1;
    if (r->prompt && prompt_text(p, s, r->prompt))
        return error_prefix("--prompt");
    return prompt_ask(p, s, r->shape, r->most_ids);
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

/* The prompt and the decoding options of one request to an open studio. */
struct generation {
    struct prompt prompt;
    struct studio_options options;
    struct submodel sub;
    struct arena arena;
    struct draft_counts drafts;
};

static int generation_open(struct generation *g, struct studio *s, const struct request *r)
{
    narrow_model(&s->model, r->bits);
    *g = (struct generation){0};
    arena_open(&g->arena, 64 << 20);
    prompt_init(&g->prompt, r->kind);
    g->prompt.guidance = r->guidance_number;
    g->options = (struct studio_options){
        .sampling = {(float)r->temperature_number, (float)r->top_p_number, 0, {(u64)r->seed_number, RNG_SAMPLING}},
        .sub = &g->sub,
        .seats = 1,
        .speculate = r->ahead,
        .draft_counts = &g->drafts};
    if (submodel_parse(&g->sub, &g->arena, &r->sub, &s->model))
        return -1;
    if (r->ahead && !s->model.config.mtp)
        return error_usage("--speculate %lld: %s has no block of multi-token prediction", (long long)r->ahead,
                           s->directory);
    studio_check_guidance(s, r->guidance_number);
    return build(&g->prompt, s, r);
}

static void generation_close(struct generation *g)
{
    prompt_release(&g->prompt);
    arena_close(&g->arena);
}

/* ---- Memory estimate ---- */

struct generate_foreseen {
    struct request request;
    struct vision_config tokenizer; /* vision tokenizer, once the dry run has opened it */
};

static int rehearse(struct studio *meta, void *context)
{
    struct generate_foreseen *f = context;
    struct generation g;
    f->tokenizer = meta->vision.config;
    int status = generation_open(&g, meta, &f->request);
    if (status == 0)
        status = studio_rehearse_answer(meta, &g.prompt, &g.options);
    f->request.most_ids = g.prompt.most;
    generation_close(&g);
    return status;
}

/* Suggests the largest other shape of the same kind that fits. */
static bool other_shape_fits(struct text *out, const struct studio_work *work, struct generate_foreseen *f,
                             const struct device *device)
{
    const struct vision_config c = f->tokenizer;
    struct text said = {0};
    i64 most = 0;
    for (i64 i = 0; i < c.shape_count; i++) {
        const struct vision_shape *shape = &c.shapes[i];
        i64 pixels = shape->frames * shape->height * shape->width;
        char settings[64];
        snprintf(settings, sizeof settings, "--shape %s", shape->name);
        f->request.shape = shape->name;
        text_clear(&said);
        if ((shape->frames > 1) == (f->request.kind == MODALITY_VIDEO) && pixels > most &&
            studio_offer(&said, work, device, settings)) {
            text_clear(out);
            text_append(out, said.data, said.length);
            most = pixels;
        }
    }
    text_release(&said);
    return most > 0;
}

static bool shorter_answer_fits(struct text *out, const struct studio_work *work, struct generate_foreseen *f,
                                const struct device *device)
{
    char settings[64];
    for (; f->request.most_ids > 1;) {
        f->request.most_ids /= 2;
        snprintf(settings, sizeof settings, "--max-tokens %lld", (long long)f->request.most_ids);
        if (studio_offer(out, work, device, settings))
            return true;
    }
    return false;
}

static bool say_what_fits(struct text *out, const struct studio_work *work, const struct device *device)
{
    struct generate_foreseen f = *(const struct generate_foreseen *)work->context;
    struct studio_work other = *work;
    other.context = &f;
    bool picture = modality_has_form(f.request.kind, FORM_SCALES);
    return (picture ? other_shape_fits : shorter_answer_fits)(out, &other, &f, device);
}

static int check_memory(const char *directory, const struct request *r)
{
    struct generate_foreseen f = {.request = *r};
    return studio_check_memory(&(struct studio_work){directory, DTYPE_OTHER, rehearse, &f, say_what_fits},
                               cli_device());
}

/* ---- Generation ---- */

static int generate_with(struct studio *s, const struct request *r)
{
    struct generation g;
    struct answer answer = {0};
    int status = generation_open(&g, s, r);
    struct generate_request request = prompt_request(&g.prompt, 0, 1);
    if (status == 0)
        status = studio_generate(&answer, s, &request, 1, &g.options);
    if (status == 0 && r->ahead)
        log_info("%lld of %lld drafted ids were accepted", (long long)g.drafts.accepted, (long long)g.drafts.drafted);
    if (status == 0)
        status = deliver(s, &g.prompt, &answer, r, (u64)r->seed_number);
    answer_release(&answer);
    generation_close(&g);
    return status;
}

static int run(const char *directory, const struct request *r)
{
    struct studio studio;
    if (check_memory(directory, r) || studio_open(&studio, cli_device(), directory, DTYPE_OTHER))
        return -1;
    int status = generate_with(&studio, r);
    studio_close(&studio);
    return status;
}

static int parse_numbers(struct request *r)
{
    int status = 0;
    r->seed_number = option_integer(r->seed, "seed", 1, 0, INT64_MAX, &status);
    r->most_ids = option_integer(r->most, "max-tokens", 0, 1, 1 << 20, &status);
    r->temperature_number = option_number(r->temperature, "temperature", r->greedy ? 0 : 1, 0, 100, &status);
    r->top_p_number = option_number(r->top_p, "top-p", 1, 0, 1, &status);
    r->guidance_number = option_number(r->guidance, "guidance", 1, 0, 100, &status);
    r->bits = option_weights(r->weights, &status);
    r->ahead = option_integer(r->speculate, "speculate", 0, 1, DRAFTS_MOST, &status);
    return status;
}

static int check_request(const struct request *r)
{
    bool given = r->prompt != NULL;
    for (int kind = 0; kind < MODALITIES; kind++)
        given |= r->media[kind] != NULL;
    if (!given)
        return error_usage("weft generate: a --prompt, --image, --video or --audio is needed");
    if (r->kind != MODALITY_TEXT && !r->out)
        return error_usage("weft generate: --to %s needs -o FILE", r->to);
    if (r->shape && !modality_has_form(r->kind, FORM_SCALES))
        return error_usage("weft generate: --shape %s is for --to image and --to video", r->shape);
    if (r->guidance && r->kind == MODALITY_TEXT)
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
    struct text kinds = {0};
    modality_names(&kinds, "", "|", "|");
    const struct option rest[] = {
        {"to", kinds.data, &r.to, NULL, "modality to generate (default text)"},
        {"shape", "NAME", &r.shape, NULL,
         "picture or clip shape: name of a tokenizer shape or aspect ratio, e.g. 3:2 (default: the model's choice)"},
        {"guidance", "G", &r.guidance, NULL,
         "classifier-free guidance scale for pictures, clips and sound, 0 to 100 (default 1: none)"},
        {"greedy", NULL, NULL, &r.greedy, "greedy decoding"},
        {"temperature", "T", &r.temperature, NULL, "sampling temperature (default 1)"},
        {"top-p", "P", &r.top_p, NULL, "nucleus sampling threshold, 0 to 1 (default 1)"},
        {"seed", "N", &r.seed, NULL, "sampling seed (default 1)"},
        {"max-tokens", "N", &r.most, NULL, "maximum text ids (default 64) or sound frames (default 100)"},
        {"speculate", "N", &r.speculate, NULL, "text ids to draft by multi-token prediction, 1 to 4 (default none)"},
        {"o", "FILE", &r.out, NULL, "output file: PNG, MP4, WAV or text (text: default stdout)"},
        WEIGHTS_OPTION(r.weights),
        SUBMODEL_OPTIONS(r.sub),
        DEVICE_OPTION,
        {NULL}};
    struct option options[1 + MODALITIES + COUNT_OF(rest)] = {
        {"prompt", "TEXT", &r.prompt, NULL, "prompt text, placed after any media"}};
    i64 count = 1;
    for (int kind = 0; kind < MODALITIES; kind++)
        if (modality_rows[kind].prompt)
            options[count++] =
                (struct option){modality_rows[kind].name, "FILE", &r.media[kind], NULL, modality_rows[kind].prompt};
    memcpy(options + count, rest, sizeof rest);
    int status = options_parse(&a, argc, argv, options, 1, 1);
    text_release(&kinds);
    if (status == 0)
        status = parse_kind(&r);
    if (status == 0)
        status = check_request(&r);
    if (status == 0)
        status = parse_numbers(&r);
    if (status)
        return status < 0 ? command_failed() : 0;
    return run(a.positional[0], &r) ? command_failed() : 0;
}
