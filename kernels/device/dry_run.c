/* The dry run, the search for smaller work that fits, and the message. */
#include "kernels/device/dry_run.h"

#include <string.h>

/* ---- Smaller settings ---- */

static const struct setting *setting_of(const struct dry_run *d, const struct reduction *r)
{
    const struct setting *s = d->table;
    while (s->key && strcmp(s->key, r->key) != 0)
        s++;
    require(s->key && (s->type == SETTING_INTEGER || s->type == SETTING_BOOL), "no flag or integer %s", r->key);
    return s;
}

static i64 value_of(const struct dry_run *d, const struct reduction *r)
{
    const struct setting *s = setting_of(d, r);
    const char *at = (const char *)d->settings + s->offset;
    return s->type == SETTING_BOOL ? *(const bool *)at : *(const i64 *)at;
}

static void set_value(const struct dry_run *d, const struct reduction *r, i64 value)
{
    const struct setting *s = setting_of(d, r);
    char *at = (char *)d->settings + s->offset;
    if (s->type == SETTING_BOOL)
        *(bool *)at = value;
    else
        *(i64 *)at = value;
}

/* True if the setting has become smaller. */
static bool reduce(const struct dry_run *d, const struct reduction *r)
{
    const struct setting *s = setting_of(d, r);
    i64 value = value_of(d, r), least = r->least ? r->least : (i64)s->low;
    i64 less = s->type == SETTING_BOOL ? 1 : least ? value / 2 : 0;
    if (less == value || less < least)
        return false;
    set_value(d, r, less);
    return true;
}

static void name_settings(struct buffer *name, const struct dry_run *d)
{
    const struct reduction *list = d->reductions;
    for (i64 i = 0; list[i].key; i++) {
        i64 value = value_of(d, &list[i]), first = 0;
        while (strcmp(list[first].key, list[i].key) != 0)
            first++;
        if (first < i || value == d->given[i])
            continue;
        buffer_printf(name, "%s%s=", name->length ? " " : "", list[i].key);
        if (setting_of(d, &list[i])->type == SETTING_BOOL)
            buffer_printf(name, "true");
        else
            buffer_printf(name, "%lld", (long long)value);
    }
}

bool dry_run_reduce(struct buffer *name, struct dry_run *d)
{
    const struct reduction *list = d->reductions;
    bool smaller = false;
    while (list && list[d->at].key && !smaller) {
        i64 i = d->at;
        for (i64 k = 0; list[i].from_given && !d->begun && list[k].key; k++)
            set_value(d, &list[k], d->given[k]);
        do
            smaller |= reduce(d, &list[i]);
        while (list[i++].with_next);
        d->begun = smaller;
        d->at = smaller ? d->at : i;
    }
    if (list)
        name_settings(name, d);
    return smaller;
}

void dry_run_restart(struct dry_run *d)
{
    for (i64 i = 0; d->reductions && d->reductions[i].key; i++)
        set_value(d, &d->reductions[i], d->given[i]);
    d->at = 0;
    d->begun = false;
}

/* ---- Dry runs ---- */

/* Small blocks of the host: a tensor on its way from a file to its weight, names, a tokenizer. */
enum { HEAP_BYTES = 16 << 20 };

/* On a CPU the memory of the host, which a dry run takes itself, and scratch of the ops count too. */
static int estimate(struct memory_estimate *out, const struct dry_run *d, const struct device *device)
{
    struct device meta;
    buffer_clear(&out->parts);
    out->bytes = out->data_bytes = 0;
    out->with_host = !device->memory->left;
    device_open_meta(&meta);
    if (!out->with_host)
        device_meta_gpu(&meta, device->has_fp8);
    meta.has_bf16 = device->has_bf16;
    enum log_level level = log_set_level(LOG_SILENT);
    memory_promised_since();
    int status = d->run(out, &meta, d->context);
    log_set_level(level);
    if (out->bytes == 0)
        out->bytes = meta.backed_most_bytes + (out->with_host ? device_held_bytes(&meta) + memory_promised_since() : 0);
    out->bytes += out->with_host && !d->slots ? HEAP_BYTES : 0; /* a decoder opens beside what is loaded */
    device_close(&meta);
    return status;
}

/* Lowers the slots until the work fits. */
static int estimate_slots(struct memory_estimate *out, const struct dry_run *d, const struct device *device,
                          i64 left_bytes)
{
    i64 asked = d->slots ? *d->slots : 0;
    int status = estimate(out, d, device);
    while (status == 0 && out->bytes > left_bytes && d->slots && *d->slots > 1) {
        *d->slots /= 2;
        status = estimate(out, d, device);
    }
    if (status == 0 && out->bytes <= left_bytes && d->slots && *d->slots < asked)
        log_info("%lld %s at a time, not %lld: so many fit into what is left of the GPU's memory", (long long)*d->slots,
                 d->slots_name, (long long)asked);
    return status;
}

static void say_what_fits(struct buffer *out, struct dry_run *d, const struct device *device, i64 left_bytes)
{
    struct memory_estimate e = {0};
    struct buffer name = {0}, last = {0};
    bool fits = false;
    while (!fits && (d->smaller ? d->smaller : dry_run_reduce)(&name, d)) {
        fits = estimate(&e, d, device) == 0 && e.bytes <= left_bytes;
        if (fits)
            buffer_printf(out, "%s would take %.1f MB", name.data, (double)e.bytes * 1e-6);
        buffer_clear(&last);
        buffer_append(&last, name.data, name.length);
        buffer_clear(&name);
    }
    if (!fits && last.length)
        buffer_printf(out, "nothing smaller would do, not even %s: ", last.data);
    static const char elsewhere[] = ", or --device cpu";
    const char *end = device->memory->left ? NULL : strstr(d->otherwise, elsewhere);
    if (!fits)
        buffer_printf(out, "%.*s", end ? (int)(end - d->otherwise) : (int)strlen(d->otherwise), d->otherwise);
    buffer_release(&e.parts);
    buffer_release(&name);
    buffer_release(&last);
}

static void say_what_is_left(struct buffer *out, const struct dry_run *d, const struct memory_estimate *e,
                             i64 left_bytes)
{
    struct memory_room room = memory_room();
    buffer_printf(out, "%s takes %.1f MB of %smemory", d->what, (double)e->bytes * 1e-6, e->with_host ? "" : "GPU ");
    if (e->parts.length)
        buffer_printf(out, " (%s)", e->parts.data);
    buffer_printf(out, ", %.1f are left", (double)left_bytes * 1e-6);
    if (e->with_host && room.limit)
        buffer_printf(out, " of the %.1f that %s allows", (double)room.bytes * 1e-6, room.limit);
    buffer_printf(out, "; ");
}

int dry_run_check(const struct dry_run *work, const struct device *device)
{
    struct dry_run d = *work;
    struct memory_estimate e = {0};
    struct buffer said = {0};
    i64 left_bytes = device_left_bytes(device);
    if (left_bytes == INT64_MAX)
        return 0;
    for (i64 i = 0; d.reductions && d.reductions[i].key; i++) {
        require(i < REDUCTIONS_MOST, "%s: more than %d reductions", d.what, REDUCTIONS_MOST);
        d.given[i] = value_of(&d, &d.reductions[i]);
    }
    int status = estimate_slots(&e, &d, device, left_bytes);
    if (status == 0 && e.bytes > left_bytes) {
        say_what_is_left(&said, &d, &e, left_bytes);
        say_what_fits(&said, &d, device, left_bytes);
        if (e.with_host || e.bytes - e.data_bytes > left_bytes)
            status = error_set("%s", said.data);
        else
            log_warn("%s", said.data);
    }
    buffer_release(&said);
    buffer_release(&e.parts);
    return status;
}
