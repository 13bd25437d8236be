/* weft eval MODEL --data DIR|FILE: held-out loss on shards, or rewards on prompts. */
#include "cli/cli.h"
#include "core/json.h"
#include "rl/eval.h"

#include <stdio.h>
#include <string.h>

static int run_eval(const struct eval_settings *s, const struct submodel_options *o, const struct model_source *weights,
                    u64 seed, bool json)
{
    struct model model;
    struct submodel sub;
    struct arena arena;
    struct json *result = NULL;
    struct buffer out = {0};
    if (!strchr(s->data, '\n') && !is_address(s->data) && !file_exists(s->data))
        return error_set("--data %s: there is no such folder or file", s->data);
    if (eval_check_memory(weights, o, s, cli_device()) || model_load_source(&model, cli_device(), weights))
        return -1;
    arena_open(&arena, 64 << 20);
    if (submodel_parse(&sub, &arena, o, &model) == 0)
        result = eval_model(&model, &sub, s, seed);
    arena_close(&arena);
    model_close(&model);
    if (!result)
        return interrupted() ? error_interrupted() : -1;
    if (json)
        json_print(&out, result, 0);
    else
        eval_print(&out, result);
    buffer_append(&out, "\n", 1);
    output_text(out.data, out.length);
    buffer_release(&out);
    json_free(result);
    return 0;
}

static int parse_verifier(const char *text)
{
    static const char *const names[] = {"auto", "exact", "gsm8k", "math", "choice", "regex", "format", "wer", NULL};
    for (int i = 0; names[i]; i++)
        if (!text || strcmp(text, names[i]) == 0)
            return i;
    return error_usage("--verifier %s: expected auto, exact, gsm8k, math, choice, regex, format or wer", text);
}

int command_eval(int argc, char **argv)
{
    struct arguments a;
    struct submodel_options o = {0};
    bool json = false;
    const char *data = NULL, *split = "validation", *rows = NULL, *length = NULL, *limit = NULL, *copies = NULL;
    const char *temperature = NULL, *tokens = NULL, *seed = NULL, *verifier = NULL, *program = NULL, *weights = NULL;
    const struct option options[] = {
        {"data", "DIR|FILE", &data, NULL, "folder of shards, or prompts (.jsonl, .json)"},
        {"part", "NAME", &split, NULL, "part of the shards (default validation)"},
        {"rows", "N", &rows, NULL, "rows to read from the shards; 0: all (default 0)"},
        {"length", "T", &length, NULL, "positions per row (default 512)"},
        {"limit", "N", &limit, NULL, "prompts to answer; 0: all (default 0)"},
        {"copies", "N", &copies, NULL, "answers per prompt (default 1)"},
        {"temperature", "X", &temperature, NULL, "sampling temperature; 0: greedy (default 0)"},
        {"max-tokens", "N", &tokens, NULL, "maximum ids per answer (default 256)"},
        {"seed", "N", &seed, NULL, "sampling seed (default 1)"},
        {"verifier", "NAME", &verifier, NULL,
         "exact, gsm8k, math, choice, regex, format, wer, or auto: as each prompt specifies (default auto)"},
        {"program", "FILE", &program, NULL, "verifier for prompts of style program: JSON lines in, scores out"},
        {"json", NULL, NULL, &json, "print one JSON object"},
        WEIGHTS_OPTION(weights),
        SUBMODEL_OPTIONS(o),
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !data)
        status = error_usage("weft eval: --data DIR|FILE is needed");
    char *program_argv[1] = {(char *)program};
    struct eval_settings s = {
        .from = (char *)a.positional[0],
        .data = (char *)data,
        .split = (char *)split,
        .grader = {.program = {program_argv, program != NULL},
                   .limits = {.seconds = 600, .memory_mb = 16384, .processes = 256, .file_mb = 1024}}};
    s.rows = option_integer(rows, "rows", 0, 0, 1000000000, &status);
    s.length = option_integer(length, "length", 512, 8, 1 << 20, &status);
    s.limit = option_integer(limit, "limit", 0, 0, 1000000000, &status);
    s.copies = option_integer(copies, "copies", 1, 1, 10000, &status);
    s.max_tokens = option_integer(tokens, "max-tokens", 256, 1, 1 << 20, &status);
    s.temperature = option_number(temperature, "temperature", 0, 0, 100, &status);
    u64 number = (u64)option_integer(seed, "seed", 1, 0, INT64_MAX, &status);
    struct model_source source = {.dtype = DTYPE_OTHER};
    if (status == 0)
        status = option_weights(&source, weights);
    s.grader.verifier = status ? 0 : parse_verifier(verifier);
    if (status || s.grader.verifier < 0)
        return status > 0 ? 0 : command_failed();
    struct submodel_name model;
    if (submodel_name_open(&model, a.positional[0], &o))
        return command_failed();
    s.from = model.directory;
    source.directory = model.directory;
    status = run_eval(&s, &model.options, &source, number, json) ? command_failed() : 0;
    submodel_name_release(&model);
    return status;
}
