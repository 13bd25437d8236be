/* The policy as sampling and training share it: temperature and forbidden ids. */
#include "rl/policy.h"

#include <string.h>

float policy_scale(const struct policy *p)
{
    return p->temperature > 0 ? 1 / p->temperature : 1;
}

/* ---- Sets of ids, as the decoder has them (model/draw.c) ---- */

enum { SET_TEXT, SET_FRAME_END, SET_PICTURES, SET_CLIPS, SETS };

/* The set that an id was drawn from: outside of the first, every id belongs to one alone. */
static i32 set_of(const struct policy *p, i32 id)
{
    const struct vocabulary *v = p->media;
    if (!v || id < 0)
        return SET_TEXT;
    if (id == v->bracket[BRACKET_NEXT] || id == v->bracket[BRACKET_EOV])
        return SET_FRAME_END;
    for (i64 i = 0; i < v->shape_count; i++)
        if (v->shape[i] == id)
            return v->shapes[i].video ? SET_CLIPS : SET_PICTURES;
    return SET_TEXT;
}

static void allow(u32 *set, i32 id)
{
    if (id >= 0)
        set[id / 32] |= 1u << id % 32;
}

/* allowed: [SETS, words], zeroed. */
static void fill_sets(u32 *allowed, i64 words, const struct policy *p)
{
    const struct vocabulary *v = p->media;
    memset(allowed, 0xff, (size_t)words * 4);
    for (i64 j = 0; j < p->forbidden_count; j++)
        allowed[p->forbidden[j] / 32] &= ~(1u << p->forbidden[j] % 32);
    if (!v)
        return;
    allow(allowed + SET_FRAME_END * words, v->bracket[BRACKET_NEXT]);
    allow(allowed + SET_FRAME_END * words, v->bracket[BRACKET_EOV]);
    for (i64 i = 0; i < v->shape_count; i++)
        allow(allowed + (v->shapes[i].video ? SET_CLIPS : SET_PICTURES) * words, v->shape[i]);
}

/* ---- Losses ---- */

/* The tape has saved the log-sum-exp of the model's logits, and the backward computes softmax as
 * exp(z - lse). Rows are therefore shifted so that the saved value is the policy's lse, too. */
void policy_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *target, const struct policy *p)
{
    struct device *device = tape->device;
    struct matrix m = tensor_matrix(logits);
    float scale = policy_scale(p);
    i64 words = ceil_div(m.columns, 32), bytes = (p->media ? SETS : 1) * words * 4;
    void *allowed_host, *set_host;
    if (scale == 1 && p->forbidden_count == 0 && !p->media)
        return;
    const i32 *ids = tape_stage_copy(tape, target, m.rows * 4);
    const u32 *allowed = tape_stage(tape, &allowed_host, bytes);
    const i32 *set = tape_stage(tape, &set_host, m.rows * 4);
    memset(allowed_host, 0, (size_t)bytes);
    fill_sets(allowed_host, words, p);
    for (i64 i = 0; i < m.rows; i++)
        ((i32 *)set_host)[i] = set_of(p, target[i]);
    tape_put(tape);
    float *kept = tape_alloc(tape, m.rows * 4), *lse = tape_alloc(tape, m.rows * 4);
    device->ops->log_normalizers(device, kept, loss, m, ids);
    if (scale != 1)
        device->ops->copy(device, m, m, scale, false);
    device->ops->forbid(device, m, allowed, set);
    device->ops->cross_entropy(device, loss, lse, NULL, m, ids);
    device->ops->shift_rows(device, m, kept, lse);
}

void policy_code_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *codes, i64 stride,
                        const struct policy *p)
{
    const struct policy all = {.temperature = p->temperature};
    i32 *target = arena_alloc(&tape->host, logits->rows * 4);
    for (i64 i = 0; i < logits->rows; i++)
        target[i] = codes[i * stride];
    policy_losses(loss, tape, logits, target, &all);
}

/* The backward reads no log-sum-exp: sigmoid of the logits as they are then. */
void policy_bit_losses(float *loss, struct tape *tape, struct tensor *logits, const u8 *bits, const struct policy *p)
{
    struct device *device = tape->device;
    struct matrix m = tensor_matrix(logits);
    if (policy_scale(p) == 1)
        return;
    const u8 *there = tape_stage_copy(tape, bits, m.rows * m.columns);
    tape_put(tape);
    device->ops->copy(device, m, m, policy_scale(p), false);
    device->ops->bit_cross_entropy(device, loss, NULL, m, there);
}
