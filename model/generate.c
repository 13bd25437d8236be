#include "model/generate.h"

#include <string.h>

int generate(struct answer *answers, const struct decoder_options *o, const struct generate_request *requests,
             i64 count, i64 slots, struct progress *bar)
{
    return generate_watched(answers, o, requests, count, slots, bar, NULL);
}

int generate_watched(struct answer *answers, const struct decoder_options *o, const struct generate_request *requests,
                     i64 count, i64 slots, struct progress *bar, const struct generate_watcher *watcher)
{
    struct decoder d;
    struct answer *waiting = answers;
    i64 rows = 0, next = 0, done = 0;
    for (i64 i = 0; i < count; i++) {
        i64 own = request_cache_rows(o, &requests[i]);
        if (own < 0)
            return error_prefix("prompt %lld", (long long)i);
        rows = max_i64(rows, own);
    }
    if (count == 0)
        return 0;
    decoder_open(&d, o, min_i64(slots ? slots : GENERATE_SLOTS, count), rows);
    const struct generate_request *ended;
    int status = 0;
    while (status == 0) {
        for (; next < count && decoder_add(&d, waiting, &requests[next]) == 0; next++)
            waiting += requests[next].copies;
        if (!decoder_step(&d))
            break;
        while ((ended = decoder_take(&d)))
            done += ended->copies;
        if (bar)
            progress_update(bar, done, NULL);
        if (watcher)
            watcher->see(watcher->context, answers);
        if (interrupted())
            status = error_interrupted();
    }
    decoder_close(&d);
    return status;
}

void decode_greedy(i32 *ids, struct model *model, const struct submodel *sub, const i32 *prompt, i64 length, i64 count)
{
    struct answer answer = {0};
    struct decoder d;
    struct decoder_options o = {.model = model, .sub = sub, .vocabulary = &vocabulary_of_text};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = length};
    struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = count, .copies = 1};
    decoder_open(&d, &o, 1, length + count);
    require(decoder_add(&d, &answer, &request) == 0, "%s", error_text());
    while (decoder_step(&d))
        ;
    decoder_close(&d);
    memcpy(ids, answer.ids, (size_t)count * 4);
    answer_release(&answer);
}
