#include "kernels/device/rehearsal.h"

bool rehearsal_open(struct rehearsal *r, const struct device *device)
{
    *r = (struct rehearsal){.left_bytes = device_left_bytes(device)};
    if (r->left_bytes == INT64_MAX)
        return false;
    device_open_meta(&r->meta);
    device_meta_gpu(&r->meta, device->has_fp8);
    r->meta.has_bf16 = device->has_bf16;
    return true;
}

void rehearsal_close(struct rehearsal *r)
{
    device_close(&r->meta);
}

int rehearsal_check(const struct rehearsal *r, const char *what, const char *instead)
{
    if (rehearsal_fits(r))
        return 0;
    return error_set("%s takes %.1f MB of GPU memory, %.1f are left; %s", what, (double)rehearsal_bytes(r) * 1e-6,
                     (double)r->left_bytes * 1e-6, instead);
}
