/* Checks addresses and expands patterns of them. */
#include "data/remote/remote.h"

#include <stdlib.h>
#include <string.h>

enum { ADDRESSES_MOST = 1 << 20, DIGITS_MOST = 9 };

/* Rejects an address without host, with credentials, a query or a fragment. Messages never repeat a
 * possible secret. */
int address_check(const char *address)
{
    const char *host = strstr(address, "://") + 3, *slash = host + strcspn(host, "/");
    const char *at = memchr(host, '@', (size_t)(slash - host));
    int scheme = (int)(host - address), known = (int)strcspn(host, "?#");
    if (slash == host)
        return error_set("%s: an address without a host or bucket: expected https://HOST/PATH or s3://BUCKET/KEY",
                         address);
    if (at)
        return error_set("%.*s...%s: an address with credentials in it, which would be written into what is made of "
                         "it: put them into ~/.netrc (s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
                         scheme, address, at);
    if (strncmp(address, "s3:", 3) != 0 && host[known])
        return error_set(
            "%.*s: an address with `%c`: expected https://HOST/PATH, as data of a recipe also with the signature "
            "behind `?` that it was given; other credentials stand in ~/.netrc or AWS_ACCESS_KEY_ID",
            scheme + known, address, host[known]);
    return 0;
}

/* ---- {0..9}, {a,b} ---- */

struct address_names {
    char **list;
    i64 count, capacity;
};

static void push(struct address_names *n, char *name)
{
    if (n->count == n->capacity) {
        i64 next = max_i64(64, 2 * n->capacity);
        n->list = memory_resize(n->list, n->capacity * 8, next * 8);
        n->capacity = next;
    }
    n->list[n->count++] = name;
}

/* Parses "000..127}": the first and last number and the digits to pad to. False if it is not a
 * range. */
static bool read_numbers(const char *begin, i64 *first, i64 *last, int *digits)
{
    size_t a = strspn(begin, "0123456789"), b = strncmp(begin + a, "..", 2) ? 0 : strspn(begin + a + 2, "0123456789");
    if (a == 0 || b == 0 || a > DIGITS_MOST || b > DIGITS_MOST || begin[a + 2 + b] != '}')
        return false;
    *first = strtoll(begin, NULL, 10);
    *last = strtoll(begin + a + 2, NULL, 10);
    *digits = *begin == '0' || begin[a + 2] == '0' ? (int)(a > b ? a : b) : 1;
    return *last >= *first;
}

static int expand(struct address_names *names, const char *head, const char *pattern);

static int expand_numbers(struct address_names *names, const char *head, i64 first, i64 last, int digits,
                          const char *rest)
{
    int status = 0;
    for (i64 i = first; i <= last && status == 0; i++) {
        char *next = string_format("%s%0*lld", head, digits, (long long)i);
        status = expand(names, next, rest);
        memory_free(next);
    }
    return status;
}

static int expand_words(struct address_names *names, const char *head, const char *begin, const char *end)
{
    int status = 0;
    for (const char *at = begin; at <= end && status == 0;) {
        size_t length = strcspn(at, ",}");
        char *next = string_format("%s%.*s", head, (int)length, at);
        status = expand(names, next, end + 1);
        memory_free(next);
        at += length + 1;
    }
    return status;
}

/* Expands `pattern` and appends each result to `head`, the part already expanded. */
static int expand(struct address_names *names, const char *head, const char *pattern)
{
    size_t before = strcspn(pattern, "{}");
    if (names->count == ADDRESSES_MOST)
        return error_set("more than %d addresses", ADDRESSES_MOST);
    if (!pattern[before]) {
        push(names, string_format("%s%s", head, pattern));
        return 0;
    }
    const char *begin = pattern + before + 1, *end = begin + strcspn(begin, "{}");
    i64 first = 0, last = 0;
    int digits = 0;
    bool range = read_numbers(begin, &first, &last, &digits);
    if (pattern[before] == '}' || *end != '}' || (!range && !memchr(begin, ',', (size_t)(end - begin))))
        return error_set("`%s` is no range: expected {000..127} or {a,b}, not within each other", pattern + before);
    char *next = string_format("%s%.*s", head, (int)before, pattern);
    int status =
        range ? expand_numbers(names, next, first, last, digits, end + 1) : expand_words(names, next, begin, end);
    memory_free(next);
    return status;
}

int address_expand(char ***out, i64 *count, const char *pattern)
{
    struct address_names names = {0};
    int status = expand(&names, "", pattern);
    *out = names.list;
    *count = names.count;
    if (status == 0)
        return 0;
    string_list_free(names.list, names.count);
    return error_prefix("%s", pattern);
}
