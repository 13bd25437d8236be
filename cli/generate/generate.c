/* weft generate: generates text, pictures, clips or speech from prompts of any modality. */
#include "cli/generate/generation.h"
#include "core/json.h"
#include "data/sources/source_readers.h"
#include "kernels/device/dry_run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct generate_arguments {
    struct generation_settings drawing;
    double guidance;
    const char *prompt, *voice, *messages, *to, *shape, *refine, *out; /* refine: folder of a refiner */
    struct option_uses media; /* files of the prompt; the name of an option is that of a modality */
    enum modality kind;
    struct buffer conversations; /* contents of the file of messages */
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
    if (r->voice && prompt_voice(p, s, r->voice))
        return error_prefix("--voice");
    for (int i = 0; i < r->media.count; i++)
        if (prompt_medium(p, s, modality_named(r->media.uses[i].name), r->media.uses[i].value))
            return -1;
    if (r->prompt && prompt_text(p, s, r->prompt))
        return error_prefix("--prompt");
    return prompt_ask(p, s, r->shape, r->drawing.most) || prompt_fit(p, s) ? -1 : 0;
}

/* Says on stderr what was written. */
static void say_written(const struct generator *s, const struct answer *a, const char *out)
{
    const struct media_block *m = &a->medium;
    const struct vision_shape *shape = a->has_medium && m->bits ? &s->vision.config.shapes[m->shape] : NULL;
    double rate_hz = shape && shape->rate_hz > 0 ? shape->rate_hz : VISION_RATE_HZ;
    i64 factor = s->refines ? REFINER_FACTOR : 1;
    if (!a->has_medium)
        log_info("wrote %s, %lld %s", out, (long long)file_bytes(out),
                 plural(file_bytes(out), "byte of text", "bytes of text"));
    else if (!shape)
        log_info("wrote %s, %.2f s of sound", out, (double)(m->frames * AUDIO_FRAME_SAMPLES) / AUDIO_RATE_HZ);
    else if (stream_rows[m->kind].moves)
        log_info("wrote %s, %lld x %lld, a clip of %lld %s, %.2f s", out, (long long)(factor * shape->width),
                 (long long)(factor * shape->height), (long long)vision_frames(m->frames),
                 plural(vision_frames(m->frames), "frame", "frames"), (double)vision_frames(m->frames) / rate_hz);
    else
        log_info("wrote %s, %lld x %lld, a picture", out, (long long)(factor * shape->width),
                 (long long)(factor * shape->height));
}

static int print_answer(struct generator *s, const struct prompt *p, const struct answer *a,
                        const struct generate_arguments *r, u64 seed)
{
    struct buffer text = {0};
    if (r->out) {
        if (answer_save(r->out, s, p, a, seed))
            return -1;
        say_written(s, a, r->out);
        return 0;
    }
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
    struct generation generation;
};

static int job_open(struct generate_job *g, struct generator *s, const struct generate_arguments *r)
{
    prompt_init(&g->prompt, r->kind);
    g->prompt.guidance = r->guidance;
    if (generation_open(&g->generation, s, &r->drawing))
        return -1;
    g->generation.options.slots = 1;
    generator_check_guidance(s, r->guidance);
    return build_prompt(&g->prompt, s, r);
}

static void job_close(struct generate_job *g)
{
    prompt_release(&g->prompt);
    generation_close(&g->generation);
}

static int answer_messages(struct generator *s, const struct generate_arguments *r)
{
    struct generation g;
    i64 most = r->drawing.most ? r->drawing.most : CONVERSATION_IDS;
    const char *path = strcmp(r->messages, "-") == 0 ? "stdin" : r->messages;
    int status = generation_open(&g, s, &r->drawing);
    if (status == 0)
        status = messages_answer(s, &g, &r->conversations, path, most, r->out);
    generation_close(&g);
    return status;
}

/* ---- Memory estimate ---- */

struct generate_work {
    struct generate_arguments request;
    i64 given_ids;                  /* largest number of ids of an answer as asked for */
    struct vision_config tokenizer; /* vision tokenizer, once the dry run has opened it */
    i64 pixels;                     /* pixels of the shape tried last; 0: none yet */
    const char *asked_shape;
};

static int run_dry(struct memory_estimate *out, struct device *meta, void *context)
{
    struct generate_work *w = context;
    struct generator generator;
    struct generate_job g;
    (void)out;
    if (generator_open(&generator, meta, &w->request.drawing.source))
        return -1;
    w->tokenizer = generator.vision.config;
    int status = 0;
    if (w->request.messages) {
        status = answer_messages(&generator, &w->request);
    } else {
        status = job_open(&g, &generator, &w->request);
        if (status == 0)
            status = generator_dry_run_answer(&generator, &g.prompt, &g.generation.options);
        w->request.drawing.most = g.prompt.most;
        w->given_ids = max_i64(w->given_ids, g.prompt.most);
        job_close(&g);
    }
    generator_close(&generator);
    return status;
}

/* The shape of the same kind with the most pixels among those with fewer than the last. */
static bool other_shape(struct generate_work *w)
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
    return most > 0;
}

static bool shorter(struct generate_work *w)
{
    if (w->request.drawing.most <= 1)
        return false;
    w->request.drawing.most /= 2;
    return true;
}

/* The same request with fewer bits a weight. */
static bool fewer_bits(struct buffer *name, struct generate_work *w)
{
    w->request.drawing.most = w->given_ids;
    w->request.shape = w->asked_shape;
    w->pixels = 0;
    return model_source_smaller(name, &w->request.drawing.source);
}

static bool smaller(struct buffer *name, struct dry_run *d)
{
    struct generate_work *w = d->context;
    if (w->request.messages && !w->request.drawing.most)
        w->request.drawing.most = w->given_ids = CONVERSATION_IDS;
    if (modality_has_form(w->request.kind, FORM_SCALES) ? !other_shape(w) : !shorter(w))
        return fewer_bits(name, w);
    if (modality_has_form(w->request.kind, FORM_SCALES))
        buffer_printf(name, "--shape %s", w->request.shape);
    else
        buffer_printf(name, "--max-tokens %lld", (long long)w->request.drawing.most);
    model_source_name(name, &w->request.drawing.source);
    return true;
}

static int check_memory(const struct generate_arguments *r)
{
    struct generate_work w = {.request = *r, .asked_shape = r->shape};
    const struct dry_run check = {r->drawing.source.directory, run_dry, &w, .smaller = smaller,
                                  .otherwise = SMALLER_MODEL};
    return dry_run_check(&check, cli_device());
}

/* ---- Generation ---- */

static int generate_with(struct generator *s, const struct generate_arguments *r)
{
    struct generate_job g;
    struct answer answer = {0};
    int status = job_open(&g, s, r);
    struct generate_request request = prompt_request(&g.prompt, 0, 1);
    if (status == 0)
        status = generator_run(&answer, s, &request, 1, &g.generation.options);
    if (status == 0)
        status = print_answer(s, &g.prompt, &answer, r, (u64)r->drawing.seed);
    answer_release(&answer);
    job_close(&g);
    return status;
}

static int answer_one(const struct generate_arguments *r)
{
    struct generator generator;
    if (check_memory(r) || generator_open(&generator, cli_device(), &r->drawing.source))
        return -1;
    int status = r->refine ? generator_refine(&generator, r->refine) : 0;
    if (status == 0)
        status = r->messages ? answer_messages(&generator, r) : generate_with(&generator, r);
    generator_close(&generator);
    return status;
}

/* The suffix of -o names the format that is written; other suffixes may be anything. */
static int check_suffix(const struct generate_arguments *r)
{
    const char *slash = r->out ? strrchr(r->out, '/') : NULL,
               *dot = r->out ? strrchr(slash ? slash : r->out, '.') : NULL;
    const struct modality_row *asked = &modality_rows[r->kind];
    int named = dot ? medium_kind(dot) : -1;
    if (named < 0 && dot)
        named = medium_kind_unread(dot + 1);
    if (named < 0 || (named == (int)r->kind && (r->kind == MODALITY_TEXT || is_one_of(asked->ending, dot + 1))))
        return 0;
    if (named == (int)r->kind)
        return error_usage("weft generate: -o %s: a %s is written as .%s: expected that suffix", r->out, asked->one,
                           asked->ending);
    return error_usage("weft generate: -o %s: the file of a %s, and --to %s makes a %s, .%s", r->out,
                       modality_rows[named].one, asked->name, asked->one, asked->ending);
}

static int check_request(struct generate_arguments *r)
{
    if (parse_kind(r))
        return -1;
    bool given = r->prompt || r->media.count > 0;
    if (given && r->messages)
        return error_usage("weft generate: --messages %s holds all that is asked: leave --prompt, --image, --video and "
                           "--audio out",
                           r->messages);
    if (!given && !r->messages)
        return error_usage("weft generate: a --prompt, --image, --video, --audio or --messages is needed");
    if (r->messages && r->kind != MODALITY_TEXT)
        return error_usage("weft generate: --to %s: an answer to messages is text", r->to);
    if (r->kind != MODALITY_TEXT && !r->out)
        return error_usage("weft generate: --to %s needs -o FILE", r->to);
    if (r->voice && !modality_has_form(r->kind, FORM_CODES))
        return error_usage("weft generate: --voice %s is for --to audio: no %s is spoken", r->voice,
                           modality_rows[r->kind].one);
    if (r->shape && !modality_has_form(r->kind, FORM_SCALES))
        return error_usage("weft generate: --shape %s is for --to image and --to video", r->shape);
    if (r->refine && !modality_has_form(r->kind, FORM_SCALES))
        return error_usage("weft generate: --refine %s is for --to image and --to video", r->refine);
    if (r->guidance != 1 && r->kind == MODALITY_TEXT)
        return error_usage("weft generate: --guidance %g is for --to image, video and audio: text is never guided",
                           r->guidance);
    return check_suffix(r);
}

/* Reads the file of messages, or stdin, which a dry run and the run itself then share. */
static int read_messages(struct generate_arguments *r)
{
    if (strcmp(r->messages, "-") != 0)
        return file_read_most(&r->conversations, r->messages, JSON_BYTES_MAX);
    char block[1 << 16];
    ssize_t count;
    buffer_append(&r->conversations, "", 0);
    while ((count = read(STDIN_FILENO, block, sizeof block)) > 0 && r->conversations.length <= JSON_BYTES_MAX)
        buffer_append(&r->conversations, block, count);
    if (interrupted())
        return error_interrupted();
    if (count < 0)
        return error_errno("stdin: cannot be read");
    return count > 0 ? error_set("stdin: more than %lld %s", (long long)JSON_BYTES_MAX,
                                 plural(JSON_BYTES_MAX, "byte", "bytes"))
                     : 0;
}

static const struct setting generate_table[] = {
    GENERATION_ROWS(struct generate_arguments, drawing, "1",
                    "maximum text ids or sound frames; 0: 64 ids, with --messages 256, and 100 frames"),
    SETTING(struct generate_arguments, guidance, "guidance", NUMBER, "1", 0, 100, NULL,
            "classifier-free guidance scale for pictures, clips and sound; 1: none"),
    {0}};

static int check(const void *settings)
{
    struct generate_arguments r = *(const struct generate_arguments *)settings;
    return check_request(&r);
}

static int run(void *context, const char *argument)
{
    struct generate_arguments *r = context;
    (void)argument;
    if (parse_kind(r) || generation_take(&r->drawing, "generate", 1) || (r->messages && read_messages(r)))
        return -1;
    return answer_one(r);
}

int command_generate(int argc, char **argv)
{
    struct generate_arguments r = {.to = "text"};
    struct buffer kinds = {0};
    modality_names(&kinds, "|", "|");
    const struct option rest[] = {
        {"messages", "FILE|-", &r.messages, NULL,
         "answer conversations instead: JSON lines {\"messages\": [..]} or one JSON document; the answer to one is "
         "text, to several JSON lines"},
        {"to", kinds.data, &r.to, NULL, "modality to generate (default text)"},
        {"shape", "NAME", &r.shape, NULL,
         "picture or clip shape: name of a tokenizer shape or aspect ratio, e.g. 3:2 (default: the model's choice)"},
        {"refine", "DIR", &r.refine, NULL,
         "refiner (a folder of its stage) that makes the picture or clip twice as large, and sharper"},
        {"voice", "FILE", &r.voice, NULL, "sound whose speaker is to speak, with --to audio; before all media"},
        {"o", "FILE", &r.out, NULL, "output file: PNG, MP4, WAV or text (text: default stdout)"},
        GREEDY_OPTION(r.drawing),
        DEVICE_OPTION,
        {NULL}};
    struct option own[1 + MODALITIES + COUNT_OF(rest)] = {
        {"prompt", "TEXT", &r.prompt, NULL, "prompt text, placed after all media"}};
    i64 count = 1;
    for (int kind = 0; kind < MODALITIES; kind++)
        if (modality_rows[kind].prompt)
            own[count++] =
                (struct option){modality_rows[kind].name, "FILE", NULL, NULL, modality_rows[kind].prompt, &r.media};
    memcpy(own + count, rest, sizeof rest);
    const struct settings_command c = {generate_table, own, &r, &r.drawing.sub, check, run, &r, .own_first = true};
    int status = settings_command_run(argc, argv, &c);
    buffer_release(&kinds);
    buffer_release(&r.conversations);
    return status;
}
