/* Storage of answers: ids, log-probabilities, entropies, routes and a medium. */
#include "model/decode_inside.h"

#include <string.h>

void routes_push(struct routes *routes, i64 width, const u16 *route)
{
    if (routes->count == routes->capacity) {
        i64 next = max_i64(32, 2 * routes->capacity);
        routes->list = memory_resize(routes->list, routes->capacity * width * 2, next * width * 2);
        routes->capacity = next;
    }
    memcpy(routes->list + routes->count++ * width, route, (size_t)width * 2);
}

void answer_push(struct answer *a, i32 id, float logprob, float entropy, bool given)
{
    if (a->count == a->capacity) {
        i64 next = max_i64(32, 2 * a->capacity);
        a->ids = memory_resize(a->ids, a->capacity * 4, next * 4);
        a->logprob = memory_resize(a->logprob, a->capacity * 4, next * 4);
        a->entropy = memory_resize(a->entropy, a->capacity * 4, next * 4);
        a->given = memory_resize(a->given, a->capacity, next);
        a->capacity = next;
    }
    a->ids[a->count] = id;
    a->logprob[a->count] = logprob;
    a->entropy[a->count] = entropy;
    a->given[a->count++] = given;
}

void answer_release(struct answer *a)
{
    memory_free(a->ids);
    memory_free(a->logprob);
    memory_free(a->entropy);
    memory_free(a->given);
    memory_free(a->routes.list);
    memory_free(a->medium.bits);
    memory_free(a->medium.codes);
    *a = (struct answer){0};
}
