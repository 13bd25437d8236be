/* Fixture for tests of prompts and graders: a tokenizer, and prompts from the text of a file. */
#ifndef WEFT_TESTS_PROMPT_FIXTURE_H
#define WEFT_TESTS_PROMPT_FIXTURE_H
#include "rl/prompts.h"
#include "sequence/grammar.h"
#include "tests/test.h"

#include <unistd.h>

static struct text_tokenizer *tokenizer;

static inline char *write_file(const char *name, const char *content)
{
    char *path = string_format("/dev/shm/weft-verify-%ld-%s", (long)getpid(), name);
    require(file_replace(path, content, (i64)strlen(content)) == 0, "%s", error_text());
    return path;
}

static inline int load(struct prompts *out, const char *name, const char *content)
{
    char *path = write_file(name, content);
    int status = prompts_load(out, path, tokenizer, NULL, 0);
    unlink(path);
    memory_free(path);
    return status;
}

static inline int open_tokenizer(void **state)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 320, .special_tokens = grammar_special_tokens});
    (void)state;
    log_set_level(LOG_QUIET);
    text_trainer_feed(trainer, "the words of this text, and these words again", 45);
    tokenizer = text_trainer_finish(trainer);
    return tokenizer ? 0 : -1;
}

static inline int close_tokenizer(void **state)
{
    (void)state;
    text_tokenizer_free(tokenizer);
    return 0;
}

#endif
