/* Fuzz target: any answer against any ground truth. The first byte selects the verifier, the first
 * 0 byte after it separates the truth from the answer. A score is from 0 to 1 and does not depend
 * on what was verified before; a short answer equals itself. */
#include "rl/verify.h"

#include <ctype.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LENGTH_MOST = 4096 };

static bool has_words(const char *text)
{
    while (*text && isspace((u8)*text))
        text++;
    return *text && !strstr(text, "think>");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum verifier verifiers[] = {VERIFY_MATH,   VERIFY_EXACT, VERIFY_GSM8K, VERIFY_CHOICE,
                                              VERIFY_FORMAT, VERIFY_WER,   VERIFY_REGEX};
    double score = 0, again = 0;
    if (size < 2 || size > LENGTH_MOST)
        return 0;
    enum verifier verifier = verifiers[data[0] % COUNT_OF(verifiers)];
    char *truth = string_format("%.*s", (int)size - 1, (const char *)data + 1);
    size_t begin = strlen(truth) + 2;
    char *answer = begin < size ? string_format("%.*s", (int)(size - begin), (const char *)data + begin) : NULL;
    log_set_level(LOG_SILENT);
    int status = verify(&score, verifier, truth, answer ? answer : truth);
    require(status == 0 || *error_text(), "a refused truth leaves no message");
    if (status == 0) {
        require(score >= 0 && score <= 1, "a score of %g", score);
        require(verify(&again, verifier, truth, answer ? answer : truth) == 0 && again == score, "%g became %g", score,
                again);
    }
    if (verifier == VERIFY_EXACT && has_words(truth))
        require(verify(&score, verifier, truth, truth) == 0 && score == 1, "\"%s\" does not equal itself", truth);
    memory_free(truth);
    memory_free(answer);
    return 0;
}
