/* Counts of samples that no row has room for, by what they train. */
#include "core/json.h"
#include "data/loader/packer.h"

i64 left_out_total(const struct left_out *l)
{
    i64 total = 0;
    for (int d = 0; d < DIRECTIONS; d++)
        total += l->samples[d];
    return total;
}

void left_out_add(struct left_out *sum, const struct left_out *l)
{
    for (int d = 0; d < DIRECTIONS; d++)
        sum->samples[d] += l->samples[d];
}

void left_out_put(struct buffer *out, const struct left_out *l)
{
    const char *between = "";
    for (int d = 0; d < DIRECTIONS; d++)
        if (l->samples[d]) {
            buffer_printf(out, "%s%lld %s", between, (long long)l->samples[d], direction_rows[d].name);
            between = ", ";
        }
}

struct json *left_out_json(const struct left_out *l)
{
    struct json *j = json_object();
    for (int d = 0; d < DIRECTIONS; d++)
        if (l->samples[d])
            json_set(j, direction_rows[d].name, json_of_integer(l->samples[d]));
    return j;
}

struct left_out left_out_of_json(const struct json *j)
{
    struct left_out l;
    for (int d = 0; d < DIRECTIONS; d++)
        l.samples[d] = json_integer(json_get(j, direction_rows[d].name), 0);
    return l;
}
