/* weft generate: generates text, pictures, clips or speech from prompts of any modality. */
#include "cli/cli.h"
#include "inference/generator.h"
#include "kernels/device/dry_run.h"

#include <stdio.h>
#include <string.h>

struct generate_arguments {
    const char *prompt, *to, *shape, *out, *seed, *most, *temperature, *top_p, *weights, *guidance;
    struct option_uses media; /* files of the prompt; the name of an option is that of a modality */
    bool greedy;
    struct submodel_options sub;
    enum modality kind;
    /* parsed from the strings above */
    i64 seed_number, most_ids;
    double temperature_number, top_p_number, guidance_number;
    int bits;
};

static int parse_kind(struct generate_arguments *r)
{
    struct buffer names = {0};
    r->kind = modality_named(r->to);
    if (r->kind != MODALITIES)
        return 0;
    modality_names(&names, ", ", " or ");
    error_usage("--to %s: expected %s", r->to, names.data);
    buffer_release(&names);
    return -1;
}

static int build_prompt(struct prompt *p, struct generator *s, const struct generate_arguments *r)
{
    for (int i = 0; i < r->media.count; i++)
        if (prompt_medium(p, s, modality_named(r->media.uses[i].name), r->media.uses[i].value))
            return -1;
    if (r->prompt && prompt_text(p, s, r->prompt))
        return error_prefix("--prompt");
    return prompt_ask(p, s, r->shape, r->most_ids);
}

static int print_answer(struct generator *s, const struct prompt *p, const struct answer *a,
                        const struct generate_arguments *r, u64 seed)
{
    struct buffer text = {0};
    if (r->out)
        return answer_save(r->out, s, p, a, seed);
    int status = answer_text(&text, s, p, a);
    buffer_append(&text, "\n", 1);
    if (status == 0)
        status = output_result(text.data, text.length);
    buffer_release(&text);
    return status;
}

/* The prompt and the decoding options of one request to an open generator. */
struct generate_job {
    struct prompt prompt;
    struct generator_options options;
    struct submodel sub;
    struct arena arena;
};

static int generation_open(struct generate_job *g, struct generator *s, const struct generate_arguments *r)
{
    model_quantize(&s->model, r->bits);
    *g = (struct generate_job){0};
    arena_open(&g->arena, 64 << 20);
    prompt_init(&g->prompt, r->kind);
    g->prompt.guidance = r->guidance_number;
    g->options = (struct generator_options){
        .sampling = {(float)r->temperature_number, (float)r->top_p_number, 0, {(u64)r->seed_number, RNG_SAMPLING}},
        .sub = &g->sub,
        .slots = 1};
    if (submodel_parse(&g->sub, &g->arena, &r->sub, &s->model))
        return -1;
    generator_check_guidance(s, r->guidance_number);
    return build_prompt(&g->prompt, s, r);
}

static void generation_close(struct generate_job *g)
{
    prompt_release(&g->prompt);
    arena_close(&g->arena);
}

/* ---- Memory estimate ---- */

struct generate_work {
    const char *directory;
    struct generate_arguments request;
    struct vision_config tokenizer; /* vision tokenizer, once the dry run has opened it */
    i64 pixels;                     /* pixels of the shape tried last; 0: none yet */
};

static int run_dry(struct memory_estimate *out, struct device *meta, void *context)
{
    struct generate_work *w = context;
    struct generator generator;
    struct generate_job g;
    (void)out;
    if (generator_open(&generator, meta, w->directory, DTYPE_OTHER))
        return -1;
    w->tokenizer = generator.vision.config;
    int status = generation_open(&g, &generator, &w->request);
    if (status == 0)
        status = generator_dry_run_answer(&generator, &g.prompt, &g.options);
    w->request.most_ids = g.prompt.most;
    generation_close(&g);
    generator_close(&generator);
    return status;
}

/* The shape of the same kind with the most pixels among those with fewer than the last. */
static bool other_shape(struct buffer *name, struct generate_work *w)
{
    i64 most = 0;
    for (i64 i = 0; i < w->tokenizer.shape_count; i++) {
        const struct vision_shape *shape = &w->tokenizer.shapes[i];
        i64 pixels = shape->frames * shape->height * shape->width;
        if ((shape->frames > 1) == (w->request.kind == MODALITY_VIDEO) && pixels > most &&
            (!w->pixels || pixels < w->pixels)) {
            most = pixels;
            w->request.shape = shape->name;
        }
    }
    w->pixels = most;
    if (most)
        buffer_printf(name, "--shape %s", w->request.shape);
    return most > 0;
}

static bool smaller(struct buffer *name, struct dry_run *d)
{
    struct generate_work *w = d->context;
    if (modality_has_form(w->request.kind, FORM_SCALES))
        return other_shape(name, w);
    if (w->request.most_ids <= 1)
        return false;
    w->request.most_ids /= 2;
    buffer_printf(name, "--max-tokens %lld", (long long)w->request.most_ids);
    return true;
}

static int check_memory(const char *directory, const struct generate_arguments *r)
{
    struct generate_work w = {.directory = directory, .request = *r};
    return dry_run_check(&(struct dry_run){directory, run_dry, &w, .smaller = smaller, .otherwise = SMALLER_MODEL},
                         cli_device());
}

/* ---- Generation ---- */

static int generate_with(struct generator *s, const struct generate_arguments *r)
{
    struct generate_job g;
    struct answer answer = {0};
    int status = generation_open(&g, s, r);
    struct generate_request request = prompt_request(&g.prompt, 0, 1);
    if (status == 0)
        status = generator_run(&answer, s, &request, 1, &g.options);
    if (status == 0)
        status = print_answer(s, &g.prompt, &answer, r, (u64)r->seed_number);
    answer_release(&answer);
    generation_close(&g);
    return status;
}

static int run(const char *directory, const struct generate_arguments *r)
{
    struct generator generator;
    if (check_memory(directory, r) || generator_open(&generator, cli_device(), directory, DTYPE_OTHER))
        return -1;
    int status = generate_with(&generator, r);
    generator_close(&generator);
    return status;
}

static int parse_numbers(struct generate_arguments *r)
{
    int status = 0;
    r->seed_number = option_integer(r->seed, "seed", 1, 0, INT64_MAX, &status);
    r->most_ids = option_integer(r->most, "max-tokens", 0, 1, 1 << 20, &status);
    r->temperature_number = option_number(r->temperature, "temperature", r->greedy ? 0 : 1, 0, 100, &status);
    r->top_p_number = option_number(r->top_p, "top-p", 1, 0, 1, &status);
    r->guidance_number = option_number(r->guidance, "guidance", 1, 0, 100, &status);
    r->bits = option_weights(r->weights, &status);
    return status;
}

static int check_request(const struct generate_arguments *r)
{
    if (!r->prompt && r->media.count == 0)
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
    struct generate_arguments r = {.to = "text"};
    struct buffer kinds = {0};
    modality_names(&kinds, "|", "|");
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
        {"o", "FILE", &r.out, NULL, "output file: PNG, MP4, WAV or text (text: default stdout)"},
        WEIGHTS_OPTION(r.weights),
        SUBMODEL_OPTIONS(r.sub),
        DEVICE_OPTION,
        {NULL}};
    struct option options[1 + MODALITIES + COUNT_OF(rest)] = {
        {"prompt", "TEXT", &r.prompt, NULL, "prompt text, placed after all media"}};
    i64 count = 1;
    for (int kind = 0; kind < MODALITIES; kind++)
        if (modality_rows[kind].prompt)
            options[count++] =
                (struct option){modality_rows[kind].name, "FILE", NULL, NULL, modality_rows[kind].prompt, &r.media};
    memcpy(options + count, rest, sizeof rest);
    int status = options_parse(&a, argc, argv, options, 1, 1);
    buffer_release(&kinds);
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
