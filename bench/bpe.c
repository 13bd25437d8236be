/* Byte-level BPE on one thread: training of 16 k merges, and encoding, on the system's WordNet. */
#include "bench/bench.h"
#include "tokenizers/text/text.h"

#include <string.h>

enum { VOCABULARY = 16384, ROUNDS = 5 };
static const char *const files[] = {"/usr/share/wordnet/data.noun", "/usr/share/wordnet/data.verb",
                                    "/usr/share/wordnet/data.adj", "/usr/share/wordnet/data.adv"};

/* Reads the text after "|", glosses and examples, one document per line. */
int bench_read_glosses(struct buffer *out)
{
    struct buffer file = {0};
    int status = 0;
    for (i64 i = 0; status == 0 && i < COUNT_OF(files); i++) {
        status = file_read(&file, files[i]);
        for (char *at = file.data, *line; status == 0 && (line = strsep(&at, "\n"));) {
            const char *gloss = strstr(line, "| ");
            if (gloss && line[0] != ' ')
                buffer_printf(out, "%s\n", gloss + 2);
        }
        buffer_release(&file);
    }
    return status;
}

static struct text_tokenizer *train(double *rate, const struct buffer *text)
{
    struct text_training training = {"qwen2", false, VOCABULARY, NULL, false};
    struct text_trainer *trainer = text_trainer_open(&training);
    double begin = clock_s();
    if (text_trainer_feed(trainer, text->data, text->length)) {
        text_trainer_close(trainer);
        return NULL;
    }
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    *rate = (double)text->length / (clock_s() - begin) * 1e-6;
    return tokenizer;
}

int bench_encode(double *rate, const struct text_tokenizer *tokenizer, const struct buffer *text)
{
    struct id_list ids = {0};
    double begin = clock_s();
    int status = text_encode(tokenizer, &ids, text->data, text->length, NULL);
    *rate = (double)text->length / (clock_s() - begin) * 1e-6;
    id_list_release(&ids);
    return status;
}

int bench_bpe(struct device *device, bool json)
{
    static const char note[] = "HF tokenizers is not run from here; bench/archive/LOG.md has both beside each other";
    struct buffer text = {0};
    double trained[ROUNDS], encoded[ROUNDS];
    struct text_tokenizer *tokenizer = NULL;
    int status = bench_read_glosses(&text);
    (void)device;
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        if (tokenizer)
            text_tokenizer_free(tokenizer);
        tokenizer = train(&trained[round], &text);
        status = tokenizer ? bench_encode(&encoded[round], tokenizer, &text) : -1;
    }
    if (status == 0) {
        bench_print(&(struct bench_row){"bpe", "training, 16 k merges", "MB/s", "HF tokenizers",
                                        bench_median(trained, ROUNDS), 0, 2, false, note},
                    json);
        bench_print(&(struct bench_row){"bpe", "encoding", "MB/s", "HF tokenizers", bench_median(encoded, ROUNDS), 0, 8,
                                        false, note},
                    json);
    }
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    buffer_release(&text);
    return status;
}
