/* weft export MODEL -o OUT --to hf|gguf: exports the text
 * backbone for other software and verifies it by reloading. */
#include "cli/cli.h"
#include "inference/inference.h"
#include "tokenizers/text/text.h"

#include <stdio.h>
#include <string.h>

int command_export(int argc, char **argv)
{
    struct arguments a;
    const char *out = NULL, *to = "hf", *dtype_text = NULL;
    const struct option options[] = {{"o", "OUT", &out, NULL, "output folder (hf) or file (gguf)"},
                                     {"to", "hf|gguf", &to, NULL, "output format (default hf)"},
                                     {"dtype", "f32|bf16", &dtype_text, NULL, "weight dtype (default: as stored)"},
                                     {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !out)
        status = error_usage("weft export: -o OUT is needed");
    if (status == 0 && strcmp(to, "hf") != 0 && strcmp(to, "gguf") != 0)
        status = error_usage("--to %s: expected hf or gguf", to);
    if (status == 0 && strcmp(to, "gguf") == 0 && out[strlen(out) - 1] == '/')
        status = error_usage("-o %s: expected the name of a file", out);
    if (status == 0 && dtype_text && strcmp(dtype_text, "f32") != 0 && strcmp(dtype_text, "bf16") != 0)
        status = error_usage("--dtype %s: expected f32 or bf16", dtype_text);
    if (status)
        return status < 0 ? command_failed() : 0;
    enum dtype dtype = !dtype_text ? DTYPE_OTHER : strcmp(dtype_text, "f32") == 0 ? DTYPE_F32 : DTYPE_BF16;
    struct submodel_name model;
    if (submodel_name_open(&model, a.positional[0], &(struct submodel_options){0}))
        return command_failed();
    status = strcmp(to, "hf") == 0 ? export_hf(model.directory, &model.options, out, dtype, cli_device())
                                   : export_gguf(model.directory, &model.options, out, dtype, cli_device());
    submodel_name_release(&model);
    return status ? command_failed() : 0;
}
