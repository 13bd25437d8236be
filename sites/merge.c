#include "sites/merge.h"
#include "sites/codec.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

bool site_name_is_good(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
            return false;
    return length > 0 && length < SITE_NAME_BYTES;
}

void part_write(struct buffer *out, const struct part_head *head, const double *use, const u8 *codes)
{
    buffer_append(out, head, sizeof *head);
    buffer_append(out, use, head->uses * 8);
    buffer_append(out, codes, head->code_bytes);
}

int part_read(struct part *out, const u8 *data, i64 bytes, const struct part_sizes *sizes)
{
    struct part_head *h = &out->head;
    if (bytes < (i64)sizeof *h)
        return error_set("a part of %lld bytes, expected at least %d", (long long)bytes, (int)sizeof *h);
    memcpy(h, data, sizeof *h);
    out->use = data + sizeof *h;
    out->codes = out->use + 8 * sizes->uses;
    if (!memchr(h->name, 0, sizeof h->name) || !site_name_is_good(h->name))
        return error_set("a part without the name of a site");
    i64 codes = codec_knows(h->bits) && !h->omitted ? sizes->code_bytes[h->bits] : 0;
    if (!codec_knows(h->bits) || (h->omitted & ~1) || h->uses != sizes->uses || h->code_bytes != codes ||
        bytes != (i64)sizeof *h + 8 * h->uses + codes)
        return error_set("the part of %s has %lld bytes of %d bits, which does not fit this model", h->name,
                         (long long)bytes, h->bits);
    bool finite = isfinite(h->tokens) && h->tokens >= 0;
    for (i64 i = 0; i < h->uses; i++)
        finite &= isfinite(part_use(out, i)) && part_use(out, i) >= 0;
    return finite ? 0 : error_set("the part of %s has counts that are none", h->name);
}

double part_use(const struct part *part, i64 i)
{
    double value;
    memcpy(&value, part->use + 8 * i, 8);
    return value;
}

static const char *name_of(const struct buffer *part)
{
    return part->data + offsetof(struct part_head, name);
}

void record_write(struct buffer *out, const struct buffer *parts, i64 count, const char *without)
{
    const struct buffer *sorted[SITES_MOST];
    require(count <= SITES_MOST, "%lld sites", (long long)count);
    for (i64 i = 0, k; i < count; i++) {
        for (k = i; k > 0 && strcmp(name_of(sorted[k - 1]), name_of(&parts[i])) > 0; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = &parts[i];
    }
    buffer_append(out, &count, sizeof count);
    for (i64 i = 0; i < count; i++) {
        struct part_head head;
        memcpy(&head, sorted[i]->data, sizeof head);
        bool omitted = without && strcmp(without, head.name) == 0;
        head.omitted = omitted;
        head.code_bytes = omitted ? 0 : head.code_bytes;
        i64 bytes = (i64)sizeof head + 8 * head.uses + head.code_bytes;
        buffer_append(out, &bytes, sizeof bytes);
        buffer_append(out, &head, sizeof head);
        buffer_append(out, sorted[i]->data + sizeof head, bytes - (i64)sizeof head);
    }
}

int record_read(struct record *out, const u8 *data, i64 bytes, const struct part_sizes *sizes)
{
    i64 count, length, at = sizeof count;
    out->count = 0;
    if (bytes < at)
        return error_set("a round of %lld bytes", (long long)bytes);
    memcpy(&count, data, sizeof count);
    if (count < 1 || count > SITES_MOST)
        return error_set("a round of %lld sites, expected 1 to %d", (long long)count, SITES_MOST);
    for (; out->count < count; at += length) {
        struct part *part = &out->parts[out->count];
        if (bytes - at < (i64)sizeof length)
            return error_set("a round is cut short");
        memcpy(&length, data + at, sizeof length);
        at += (i64)sizeof length;
        if (length < 0 || length > bytes - at)
            return error_set("a round is cut short");
        if (part_read(part, data + at, length, sizes))
            return -1;
        if (out->count > 0 && strcmp(part[-1].head.name, part->head.name) >= 0)
            return error_set("a round names %s behind %s", part->head.name, part[-1].head.name);
        out->count++;
    }
    return at == bytes ? 0 : error_set("a round has %lld bytes behind its end", (long long)(bytes - at));
}

const struct part *record_find(const struct record *record, const char *name)
{
    for (i64 i = 0; i < record->count; i++)
        if (strcmp(record->parts[i].head.name, name) == 0)
            return &record->parts[i];
    return NULL;
}

void record_shares(double *share, const struct record *record, i64 use)
{
    double sum = 0;
    for (i64 i = 0; i < record->count; i++)
        sum += share[i] = use < 0 ? record->parts[i].head.tokens : part_use(&record->parts[i], use);
    if (sum == 0 && use >= 0) {
        record_shares(share, record, -1);
        return;
    }
    for (i64 i = 0; i < record->count; i++)
        share[i] = sum > 0 ? share[i] / sum : 0;
}

int record_change(float *change, float *scratch, const struct record *record, const struct share_runs *runs,
                  const i64 at[33], bool exact, i64 count)
{
    memset(change, 0, (size_t)count * 4);
    for (i64 p = 0; p < record->count; p++) {
        const struct part *part = &record->parts[p];
        i64 end = runs->each - runs->first % runs->each;
        int bits = exact ? 32 : part->head.bits;
        const u8 *codes = part->codes + at[part->head.bits];
        if (!codec_is_finite(bits, codes, count))
            return error_set("site %s has sent numbers that are not finite", part->head.name);
        codec_decode(scratch, bits, codes, count);
        for (i64 i = 0, run = 0; i < count; run++, end += runs->each) {
            float share = (float)runs->shares[run * SITES_MOST + p];
            for (; i < min_i64(end, count); i++)
                change[i] += share * scratch[i];
        }
    }
    return 0;
}
