/* weft serve-tokens STREAM: prepares a stream's shards for who trains on it. */
#include "cli/cli.h"
#include "data/stream.h"

#include <unistd.h>

static int fill(const char *directory, const char *stream, const char *text)
{
    i64 part, parts;
    if (prepare_part(&part, &parts, text) < 0)
        return -1;
    log_set_level(LOG_QUIET); /* it speaks between the lines of the stage that it fills for */
    return ring_fill(directory, stream, part, STDIN_FILENO, cli_device());
}

int command_serve_tokens(int argc, char **argv)
{
    struct arguments a = {.count = 0};
    const char *directory = NULL, *part = "0/1";
    const struct option options[] = {
        {"fill", "DIR", &directory, NULL, "fill a part of a ring, for the stage that is at the other end of stdin"},
        {"part", "I/N", &part, NULL, "which part of the stream (0/1)"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !directory)
        status = error_usage("weft serve-tokens: --fill DIR is needed");
    if (status)
        return status < 0 ? command_failed() : 0;
    status = fill(directory, a.positional[0], part);
    return status < 0 ? command_failed() : status ? STATUS_INTERRUPTED : 0;
}
