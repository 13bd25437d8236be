/* weft tokenize: JSON lines on stdin, {"text":..} -> {"ids":[..]} and back. */
#include "cli/cli.h"
#include "core/json.h"
#include "tokenizers/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int encode_line(struct text *out, const struct text_tokenizer *tokenizer, const struct json *line, bool bare)
{
    const struct encode_options options = {.add_template = !bare};
    const struct json *text = json_get(line, "text");
    struct id_list ids = {0};
    if (json_kind(text) != JSON_STRING)
        return error_set("expected an object with a string \"text\"");
    int status = text_encode(tokenizer, &ids, json_string(text, ""), json_string_length(text), &options);
    text_printf(out, "{\"ids\":[");
    for (i64 i = 0; i < ids.count; i++)
        text_printf(out, "%s%d", i ? "," : "", ids.ids[i]);
    text_printf(out, "]}\n");
    id_list_release(&ids);
    return status;
}

static int decode_line(struct text *out, const struct text_tokenizer *tokenizer, const struct json *line)
{
    const struct json *list = json_get(line, "ids");
    struct id_list ids = {0};
    struct text decoded = {0};
    int status = 0;
    if (json_kind(list) != JSON_ARRAY)
        return error_set("expected an object with an array \"ids\"");
    for (i64 i = 0; i < json_count(list) && status == 0; i++) {
        i64 id = json_integer(json_at(list, i), -1);
        if (id < 0 || id > INT32_MAX)
            status = error_set("ids[%lld]: expected a whole number from 0", (long long)i);
        id_list_push(&ids, (i32)id);
    }
    bool skip = json_bool(json_get(line, "skip_special"), false);
    if (status == 0)
        status = text_decode(tokenizer, &decoded, ids.ids, ids.count, skip);
    if (status == 0) {
        struct json *j = json_object();
        json_set(j, "text", json_of_bytes(decoded.data ? decoded.data : "", decoded.length));
        json_print(out, j, 0);
        text_append(out, "\n", 1);
        json_free(j);
    }
    text_release(&decoded);
    id_list_release(&ids);
    return status;
}

static int run_lines(const struct text_tokenizer *tokenizer, bool decode, bool bare)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    struct text out = {0};
    int status = 0;
    for (i64 number = 1; status == 0 && (length = getline(&line, &capacity, stdin)) >= 0; number++) {
        if (length && line[length - 1] == '\n')
            length--;
        if (length == 0)
            continue;
        struct json *j = json_parse_line(line, length, "stdin", number);
        text_clear(&out);
        status = !j ? -1 : decode ? decode_line(&out, tokenizer, j) : encode_line(&out, tokenizer, j, bare);
        if (status && j)
            error_prefix("stdin:%lld", (long long)number);
        json_free(j);
        if (status)
            break;
        if (fwrite(out.data, 1, (size_t)out.length, stdout) != (size_t)out.length)
            status = error_errno("stdout");
    }
    if (status == 0 && ferror(stdin))
        status = error_errno("stdin: cannot be read");
    if (status == 0 && fflush(stdout))
        status = error_errno("stdout");
    text_release(&out);
    free(line);
    return status;
}

int command_tokenize(int argc, char **argv)
{
    struct arguments a;
    bool decode = false, plain = false;
    const struct option options[] = {
        {"decode", NULL, NULL, &decode, "ids to text"},
        {"plain", NULL, NULL, &plain, "without the ids that the tokenizer's post-processor puts around a text"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status)
        return status < 0 ? command_failed() : 0;
    struct text_tokenizer *tokenizer = text_tokenizer_load(a.positional[0]);
    if (!tokenizer)
        return command_failed();
    status = run_lines(tokenizer, decode, plain);
    text_tokenizer_free(tokenizer);
    return status ? command_failed() : 0;
}
