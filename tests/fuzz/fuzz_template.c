/* Fuzz target: bytes up to the first 0 as a chat template, the others as its variables in JSON; where
 * those are none, a small conversation. The template is rendered or refused with its line, its text
 * is UTF-8, and the places of answers lie in the text in their order. */
#include "tokenizers/template/template.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"a <b> "
                                   "\\u00e9\\u65e5\"},{\"role\":\"user\",\"content\":\" x\\r\\ny \"},"
                                   "{\"role\":\"assistant\",\"content\":\"<think>t</"
                                   "think>z\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
                                   "{\"k\":1,\"q\":[true,null,2.5e20,-0.0]}}}]}],\"tools\":[{\"name\":\"f\"}],\"bos_"
                                   "token\":\"<s>\",\"n\":7,\"items\":[]}";

static struct json *variables_of(const char *text, i64 length)
{
    struct json *variables = length ? json_parse(text, length, "variables") : NULL;
    if (json_kind(variables) == JSON_OBJECT)
        return variables;
    json_free(variables);
    return json_parse(conversation, sizeof conversation - 1, "conversation");
}

static void check_text(const struct template_output *out)
{
    for (i64 at = 0, step; at < out->text.length; at += step) {
        step = utf8_length(out->text.data + at, out->text.length - at);
        require(step > 0, "the text is not UTF-8 at byte %lld", (long long)at);
    }
    for (i64 i = 0; i < out->generated_count; i++) {
        struct template_span span = out->generated[i];
        i64 before = i ? out->generated[i - 1].end : 0;
        require(before <= span.begin && span.begin <= span.end && span.end <= out->text.length,
                "an answer lies outside");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *)data : "", *end = size ? memchr(data, 0, size) : NULL;
    i64 length = end ? end - text : (i64)size;
    struct template_output out = {0};
    struct template *template = template_open(text, length, "fuzz");
    if (!template) {
        require(strncmp(error_text(), "fuzz:", 5) == 0, "a refused template leaves no place: %s", error_text());
        return 0;
    }
    struct json *variables = variables_of(end ? end + 1 : "", end ? (i64)size - length - 1 : 0);
    template_set_time(template, 0);
    if (template_render(&out, template, variables) == 0)
        check_text(&out);
    else
        require(strncmp(error_text(), "fuzz:", 5) == 0, "a failed render leaves no place: %s", error_text());
    template_output_release(&out);
    template_close(template);
    json_free(variables);
    return 0;
}
