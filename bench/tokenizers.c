/* Encoding with tokenizers of other models on one thread: WordNet's glosses by every tokenizer in
 * out/tokenizers. bench/tokenizer_peers.py fills the folder and measures the original libraries. */
#include "bench/bench.h"
#include "tokenizers/text/text.h"

#include <string.h>

enum { ROUNDS = 5 };
static const char folder[] = "out/tokenizers";

static int measure(const char *name, const struct buffer *text, bool json)
{
    char *path = path_join(folder, name);
    struct text_tokenizer *tokenizer = text_tokenizer_load(path);
    double rates[ROUNDS];
    int status = tokenizer ? 0 : -1;
    memory_free(path);
    for (int round = 0; status == 0 && round < ROUNDS; round++)
        status = bench_encode(&rates[round], tokenizer, text);
    if (status == 0)
        bench_print(&(struct bench_row){"tokenizers", name, "MB/s", "its library", bench_median(rates, ROUNDS), 0, 8,
                                        false, "bench/tokenizer_peers.py runs the library"},
                    json);
    text_tokenizer_free(tokenizer);
    return status;
}

int bench_tokenizers(struct device *device, bool json)
{
    char **names;
    i64 count;
    struct buffer text = {0};
    (void)device;
    if (!file_is_directory(folder)) {
        log_info("%s is not there: python bench/tokenizer_peers.py makes it", folder);
        return 0;
    }
    int status = directory_list(&names, &count, folder);
    if (status)
        return -1;
    status = bench_read_glosses(&text);
    for (i64 i = 0; status == 0 && i < count; i++)
        status = measure(names[i], &text, json);
    string_list_free(names, count);
    buffer_release(&text);
    return status;
}
