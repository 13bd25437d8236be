/* weft serve-tokens STREAM: prepares a stream's shards for training stages on other machines, or,
 * when started by such a stage, into its ring. */
#include "cli/cli.h"
#include "data/remote/remote.h"
#include "data/stream/tokens.h"

#include <stdlib.h>
#include <unistd.h>

static int read_name(struct ring_name *out, const char *text)
{
    char *end;
    out->run = strtoull(text, &end, 16);
    if (*end == ':' && prepare_part(&out->reader, &out->readers, end + 1) == 0)
        return 0;
    return error_usage("--as %s: expected RUN:I/N", text);
}

static int fill(struct ring_request *request, const char *part, const char *readers, const char *name,
                const char *queries)
{
    i64 parts;
    int status = 0, descriptor = (int)option_integer(queries, "queries", -1, 0, INT32_MAX, &status);
    request->readers = option_integer(readers, "readers", 0, 0, TOKENS_READERS_MOST, &status);
    if (status || prepare_part(&request->partition, &parts, part) < 0 || read_name(&request->name, name) < 0)
        return -1;
    if (queries && address_queries_take(descriptor) < 0)
        return -1;
    log_set_level(LOG_QUIET); /* the stage prints the other messages */
    request->servers = getenv("WEFT_TOKENS");
    request->control = STDIN_FILENO;
    request->device = cli_device();
    return ring_fill(request);
}

static int serve(const char *stream, const char *data, const char *listen, const char *ring)
{
    const char *words[8] = {"/proc/self/exe", "serve-tokens"};
    char *address = NULL;
    int count = 2;
    if (!ring)
        return error_usage("weft serve-tokens: --ring DIR is required; it stores shards until they are fetched");
    if (data && address_hide(&address, data) < 0)
        return -1;
    if (data) {
        words[count++] = "--data";
        words[count++] = address;
    }
    if (cli_device_wanted) {
        words[count++] = "--device";
        words[count++] = cli_device_wanted;
    }
    unsetenv("WEFT_TOKENS"); /* the fillers started here prepare shards themselves */
    int status = tokens_serve(&(struct tokens_service){stream, ring, listen, words});
    memory_free(address);
    return status;
}

int command_serve_tokens(int argc, char **argv)
{
    struct arguments a = {.count = 0};
    struct ring_request request = {.directory = NULL};
    const char *part = "0/1", *readers = NULL, *name = "0:0/1", *queries = NULL, *listen = "7433", *ring = NULL;
    const struct option options[] = {
        {"listen", "HOST:PORT", &listen, NULL, "address to listen on; PORT alone: 127.0.0.1 only (default 7433)"},
        {"ring", "DIR", &ring, NULL, "folder for prepared shards not fetched yet; reused after a restart"},
        {"data", "PATH", &request.data, NULL,
         "location of the stream's sources on this machine (default: as in STREAM)"},
        {"fill", "DIR", &request.directory, NULL, "internal: fill a ring for the stage connected to stdin"},
        {"part", "I/N", &part, NULL, "with --fill: part I of N (default 0/1)"},
        {"readers", "N", &readers, NULL, "with --fill: number of readers registered in the ring"},
        {"queries", "FD", &queries, NULL, "with --fill: file descriptor with the query strings of URLs"},
        {"as", "RUN:I/N", &name, NULL,
         "with --fill: ring name for servers: run (hexadecimal), reader I of N (default 0:0/1)"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status)
        return status < 0 ? command_failed() : 0;
    request.stream = a.positional[0];
    status = request.directory ? fill(&request, part, readers, name, queries)
                               : serve(request.stream, request.data, listen, ring);
    return status < 0 ? command_failed() : status ? STATUS_INTERRUPTED : 0;
}
