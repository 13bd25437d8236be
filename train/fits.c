#include "train/fits.h"

#include <stdarg.h>
#include <stdio.h>

/* Appends the nonzero parts in MB: "weights 1.2, moments 2.4". */
static void add_parts(struct text *out, const struct step_memory *m)
{
    const struct {
        const char *name;
        i64 bytes;
    } parts[] = {{"weights", m->copies},      {"masters", m->masters},  {"moments", m->moments},
                 {"gradients", m->gradients}, {"cache", m->cache},      {"activations", m->activations},
                 {"buckets", m->buckets},     {"rounding", m->rounding}};
    bool first = true;
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        if (parts[i].bytes) {
            text_printf(out, "%s%s %.1f", first ? "" : ", ", parts[i].name, (double)parts[i].bytes * 1e-6);
            first = false;
        }
}

int memory_check(const struct memory_wanted *w, const struct device *device)
{
    struct text said = {0};
    i64 left_bytes = device_left_bytes(device), bytes = step_memory_gpu(&w->memory);
    int status = 0;
    if (bytes <= left_bytes)
        return 0;
    text_printf(&said, "%s takes %.1f MB of GPU memory (", w->what, (double)bytes * 1e-6);
    add_parts(&said, &w->memory);
    text_printf(&said, "), %.1f are left; ", (double)left_bytes * 1e-6);
    w->say_what_fits(&said, w->context, left_bytes);
    if (w->certain_bytes > left_bytes)
        status = error_set("%s", said.data);
    else
        log_warn("%s", said.data);
    text_release(&said);
    return status;
}

bool memory_offer(struct text *out, const struct step_memory *m, i64 left_bytes, const char *settings, ...)
{
    char given[256];
    va_list list;
    if (step_memory_gpu(m) > left_bytes)
        return false;
    va_start(list, settings);
    vsnprintf(given, sizeof given, settings, list);
    va_end(list);
    text_printf(out, "%s would take %.1f MB", given, (double)step_memory_gpu(m) * 1e-6);
    return true;
}
