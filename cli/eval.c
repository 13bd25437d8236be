/* weft eval MODEL --data DIR|FILE: held-out loss on shards, or rewards on prompts. */
#include "cli/cli.h"
#include "core/json.h"
#include "core/settings.h"
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

int command_eval(int argc, char **argv)
{
    static const char *const without[] = {"from", "data", NULL};
    struct arguments a;
    struct submodel_options o = {0};
    struct setting_options of_stage;
    bool json = false;
    const char *data = NULL, *seed = NULL, *weights = NULL;
    const struct option own[] = {{"data", "DIR|FILE", &data, NULL, "folder of shards, or prompts (.jsonl, .json)"},
                                 {"seed", "N", &seed, NULL, "sampling seed (default 1)"},
                                 {"json", NULL, NULL, &json, "print one JSON object"},
                                 WEIGHTS_OPTION(weights),
                                 SUBMODEL_OPTIONS(o),
                                 DEVICE_OPTION};
    struct option options[COUNT_OF(own) + SETTING_OPTIONS_MOST + 1] = {{NULL}};
    setting_options_open(&of_stage, eval_table, without);
    memcpy(options, own, sizeof own);
    memcpy(options + COUNT_OF(own), of_stage.options, (size_t)of_stage.count * sizeof *options);
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !data)
        status = error_usage("weft eval: --data DIR|FILE is needed");
    u64 number = (u64)option_integer(seed, "seed", 1, 0, INT64_MAX, &status);
    struct model_source source = {.dtype = DTYPE_OTHER};
    if (status == 0)
        status = option_weights(&source, weights);
    struct eval_settings s = {0};
    const struct setting_override paths[] = {{"from", "./", NULL}, {"data", "./", NULL}}; /* set below, as they are */
    if (status == 0)
        status = setting_options_read(&s, eval_table, &of_stage, paths, COUNT_OF(paths));
    if (status == 0 && (grader_check_settings(&s.grader) || grader_check_machine(&s.grader)))
        status = -1;
    setting_options_close(&of_stage);
    if (status)
        return status > 0 ? 0 : command_failed();
    struct submodel_name model;
    if (submodel_name_open(&model, a.positional[0], &o))
        return command_failed();
    s.from = model.directory;
    s.data = (char *)data;
    source.directory = model.directory;
    status = run_eval(&s, &model.options, &source, number, json) ? command_failed() : 0;
    submodel_name_release(&model);
    return status;
}
