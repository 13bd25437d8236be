#include "model/foresee.h"

#include "kernels/device/rehearsal.h"

static int run(const struct model_work *w, struct device *meta)
{
    struct model *model = memory_alloc(sizeof *model);
    enum log_level level = log_set_level(LOG_SILENT); /* the real run logs the same lines */
    int status = model_load(model, meta, w->directory, w->dtype, false);
    if (status == 0) {
        if (w->bits)
            weights_narrow(&model->weights, w->bits); /* the peak holds the loaded weights and the quantized ones */
        status = w->run ? w->run(model, w->context) : 0;
        model_close(model);
    }
    memory_free(model);
    log_set_level(level);
    return status;
}

static bool fits(i64 *bytes, const struct model_work *w, const struct device *device)
{
    struct rehearsal r;
    if (!rehearsal_open(&r, device))
        return true;
    bool fits = run(w, &r.meta) == 0 && rehearsal_fits(&r);
    *bytes = rehearsal_bytes(&r);
    rehearsal_close(&r);
    return fits;
}

static void say_what_fits(struct text *out, const struct model_work *w, const struct device *device)
{
    struct model_work other = *w;
    struct text name = {0};
    i64 bytes;
    other.bits = 0;
    if (w->bits && fits(&bytes, &other, device)) {
        text_printf(out, "leave --weights out: that would take %.1f MB", (double)bytes * 1e-6);
        return;
    }
    bool done = false;
    while (!done && w->halve && w->halve(&name, w->context)) {
        done = fits(&bytes, w, device);
        if (done)
            text_printf(out, "%s would take %.1f MB", name.data, (double)bytes * 1e-6);
        text_clear(&name);
    }
    if (!done)
        text_printf(out, "%stake a smaller model (`weft extract` cuts one out), or --device cpu",
                    w->halve ? "nothing smaller would do: " : "");
    text_release(&name);
}

int model_check_memory(const struct model_work *w, const struct device *device)
{
    struct rehearsal r;
    struct text said = {0};
    if (!rehearsal_open(&r, device))
        return 0;
    int status = run(w, &r.meta);
    if (status == 0 && !rehearsal_fits(&r)) {
        say_what_fits(&said, w, device);
        status = rehearsal_check(&r, w->directory, said.data);
    }
    text_release(&said);
    rehearsal_close(&r);
    return status;
}
