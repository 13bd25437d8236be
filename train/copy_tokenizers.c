#include "core/inventory.h"
#include "core/safetensors.h"
#include "train/pretrain.h"

/* Checks the tokenizer of a medium, if there is one. */
static int check_tokenizer(const char *folder)
{
    char *config = path_join(folder, "config.json"), *weights = path_join(folder, "weights.safetensors");
    int status = 0;
    if (file_is_directory(folder)) {
        struct json *j = json_load(config);
        status = !j || safetensors_check(weights) < 0 ? -1 : 0;
        json_free(j);
    }
    memory_free(config);
    memory_free(weights);
    return status;
}

int copy_tokenizers_check(const char *from)
{
    int status = inventory_check(from);
    for (i64 i = 0; i < 2 * TOKENIZERS && status == 0; i++) {
        const char *name = tokenizer_names[i / 2];
        char *folder = i % 2 ? string_format("%s/weft/%s", from, name) : path_join(from, name);
        if (i / 2 != TOKENIZER_TEXT)
            status = check_tokenizer(folder);
        memory_free(folder);
    }
    return status;
}

/* Copies the files of a folder, not its subfolders. */
static int copy_folder(const char *from, const char *to)
{
    char **names;
    i64 count;
    if (!file_is_directory(from))
        return 0;
    if (directory_make(to) || directory_list(&names, &count, from))
        return -1;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *in = path_join(from, names[i]), *out = path_join(to, names[i]);
        if (!file_is_directory(in))
            status = file_copy(out, in);
        memory_free(in);
        memory_free(out);
    }
    string_list_free(names, count);
    return status;
}

static int copy_between(const char *from, const char *below_from, const char *to, const char *below_to)
{
    char *in = path_join(from, below_from), *out = *below_to ? path_join(to, below_to) : string_copy(to);
    int status = copy_folder(in, out);
    memory_free(in);
    memory_free(out);
    return status;
}

int copy_tokenizers(const char *directory, const char *from)
{
    static const char *const text_files[] = {"tokenizer.json",          "tokenizer.model",     "tokenizer.tiktoken",
                                             "tiktoken.model",          "qwen.tiktoken",       "tokenizer_config.json",
                                             "special_tokens_map.json", "chat_template.jinja", "chat_template.json"};
    static const char templates[] = "additional_chat_templates";
    int status = copy_tokenizers_check(from);
    for (i64 i = 0; i < COUNT_OF(text_files) && status == 0; i++) {
        char *beside = path_join(from, text_files[i]), *inside = string_format("%s/text/%s", from, text_files[i]);
        char *out = path_join(directory, text_files[i]);
        const char *in = file_exists(inside) ? inside : beside;
        if (file_exists(in))
            status = file_copy(out, in);
        memory_free(beside);
        memory_free(inside);
        memory_free(out);
    }
    if (status == 0)
        status = copy_between(from, templates, directory, templates);
    for (int i = TOKENIZER_TEXT + 1; i < TOKENIZERS && status == 0; i++) {
        char *to = path_join("weft", tokenizer_names[i]);
        status = copy_between(from, tokenizer_names[i], directory, to);
        if (status == 0)
            status = copy_between(from, to, directory, to);
        memory_free(to);
    }
    return status;
}
