/* meta: a third backend, which computes nothing. meta.c adds the flops and bytes of each call to
 * device->cost, from shapes alone, so that a dry run of a step tells its cost. scratch.c notes
 * what the CPU backend would need as scratch, with the sizes of kernels/cpu/tiles.h. In: the
 * same calls as for a real device, with memory that is reserved and hardly touched. Out:
 * device->cost and meta_scratch_bytes. The struct meta_scratch belongs to the device (its
 * `handles`) and ends with device_close. */
#ifndef WEFT_META_H
#define WEFT_META_H
#include "kernels/kernels.h"

enum { META_SLOTS = 11 };
struct meta_scratch { /* the `handles` of a meta device */
    /* Slots of kernels/cpu. Slots 5 to 7 and 10 exist once, the others once per worker. */
    i64 slot_bytes[META_SLOTS];
};
/* meta_scratch_OP records the scratch that the CPU backend would request for OP with these shapes.
 * Tensors are not read. */
void meta_scratch_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                         bool transpose_b, bool add);
void meta_scratch_skinny(struct device *device, struct matrix out, struct matrix x, struct matrix w);
void meta_scratch_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, bool transpose,
                          const struct groups *groups);
void meta_scratch_grouped_swiglu(struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,
                                 const i32 *rows, struct matrix w, const struct groups *groups);
void meta_scratch_experts_skinny_in(struct device *device, struct matrix inside, struct matrix x,
                                    const struct skinny_experts *e);
void meta_scratch_experts_skinny_out(struct device *device, struct matrix x, struct matrix inside,
                                     const struct skinny_experts *e);
void meta_scratch_grouped_weights(struct device *device, struct matrix dw, i64 experts, struct matrix dy,
                                  struct matrix x, const i32 *rows, const struct groups *groups);
void meta_scratch_quantized(struct device *device, struct matrix a, const struct quantized_weight *w);
void meta_scratch_conv(struct device *device, struct matrix y, struct matrix x, struct matrix w,
                       const struct conv *conv);
void meta_scratch_conv_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                            const struct conv *conv, bool add);
void meta_scratch_conv_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                               const struct conv *conv);
void meta_scratch_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                            const struct intervals *intervals, bool backward);
void meta_scratch_fp8(struct device *device, i64 depth);
void meta_scratch_stft(struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, bool to_time);
void meta_scratch_nearest(struct device *device, struct matrix x, i64 levels, i64 codes_count);
void meta_scratch_scales(struct device *device, i64 elements); /* `elements`: of one image */
void meta_scratch_losses_of_bits(struct device *device, struct matrix logits);
void meta_scratch_codebook(struct device *device, const struct codebooks *books);
/* Bytes of scratch for everything seen: shared slots once, per-worker slots times
 * workers_count(). */
i64 meta_scratch_bytes(const struct device *device);

#endif
