/* Public interface of the CUDA backend: opens a device, describes GPUs and lists the ops it has.
 * Without a CUDA toolkit the same functions exist and return an error (absent.c), so callers need
 * no #if. The caller owns the struct device and closes it with device_close. */
#ifndef WEFT_CUDA_DEVICE_H
#define WEFT_CUDA_DEVICE_H
#include "kernels/kernels.h"

/* Ops that the backend has. The other pointers of cuda_kernels are NULL. */
/* clang-format off */
#define WEFT_CUDA_OPS(OP) \
    OP(matmul) OP(rmsnorm) OP(rmsnorm_backward) OP(add_rmsnorm) OP(rope) OP(rope_cache) OP(swiglu) OP(swiglu_backward) OP(copy) \
    OP(add) OP(zero) OP(attention) OP(activate) OP(activate_backward) OP(bias_add) OP(column_sums) OP(fill) \
    OP(fill_ids) OP(copy_ids) OP(widen_bytes) OP(narrow_bytes) OP(shift_divide) OP(running_mean) OP(gather) \
    OP(scatter_add) OP(scatter) OP(cross_entropy) OP(cross_entropy_backward) OP(entropy_backward) OP(coefficients) OP(zero_unwritten) \
    OP(sum_squares) OP(adamw) OP(sum_by_stream) OP(sum_values) OP(route) OP(route_given) OP(route_backward) \
    OP(route_balance) OP(route_sort) OP(route_regroup) OP(combine) OP(combine_backward) OP(dispatch) \
    OP(matmul_grouped) OP(matmul_grouped_swiglu) OP(matmul_grouped_weights) OP(resize) OP(resize_backward) OP(sample) OP(sample_bits) \
    OP(forbid) OP(settle_codes) OP(log_normalizers) OP(shift_rows) OP(map) OP(multiply_rows) OP(multiply_ratio) \
    OP(distance) OP(distance_backward) OP(bit_cross_entropy) OP(bit_cross_entropy_backward) OP(policy_loss) \
    OP(soft_cross_entropy) OP(soft_cross_entropy_backward) OP(soft_bit_cross_entropy) OP(soft_bit_cross_entropy_backward) \
    OP(permute) OP(attention_backward) OP(quantize_bits) OP(dequantize_bits) OP(bit_entropy) \
    OP(bit_entropy_backward) OP(quantize_vectors) OP(codebook_move) OP(codebook_mean) OP(phases_draw) \
    OP(phases_push) OP(polar) OP(polar_backward) OP(convergence) OP(stft) OP(stft_backward) OP(stft_inverse) OP(conv) OP(conv_backward_data) \
    OP(conv_backward_weights) \
    OP(route_count) OP(route_capacity) OP(matmul_quantized) OP(matmul_skinny) OP(experts_skinny_in) OP(experts_skinny_out) \
    OP(round_fp8) OP(pack_fp8) OP(matmul_fp8) OP(matmul_fp8_weights)
/* clang-format on */
extern const struct kernels cuda_kernels;

/* Ops with a second kernel for Hopper (sm_90a). A Hopper GPU uses it if the program was built for
 * sm_90a and the operands allow it. Tests and `weft bench op` switch it off and on. */
#define WEFT_CUDA_HOPPER_OPS(OP)                                                                                       \
    OP(matmul_grouped)                                                                                                 \
    OP(matmul_grouped_swiglu)                                                                                          \
    OP(matmul_grouped_weights) OP(attention) OP(attention_backward) OP(matmul_fp8) OP(matmul_fp8_weights)
bool cuda_is_hopper(const struct device *device);
bool cuda_has_two_kernels(const struct device *device, const char *op);
void cuda_use_hopper(struct device *device, bool use);

enum { CUDA_WORKSPACE_BYTES = 64 << 20 }; /* shared by all ops */
enum { CUDA_COUNTERS = 128, CUDA_HELD_BYTES = CUDA_WORKSPACE_BYTES + CUDA_COUNTERS * 4 };
int cuda_runtime(void); /* 1000 * major + 10 * minor of the CUDA runtime that is linked; 0: none is */
int cuda_count(void);   /* GPUs that this process sees */
/* Opens GPU `index`. Returns -1 and sets a message if there is no toolkit, no such GPU, or one
 * older than sm_80. */
int device_open_cuda(struct device *device, int index);
/* Appends versions of driver and libraries, and a line for each GPU: name, architecture, memory,
 * and the GPUs it reaches without the host. Returns -1 and sets a message if no GPU can be used. */
int cuda_describe(struct buffer *out);
/* Returns 0, or -1 and a message that lists the ops of `names` (NULL-terminated; NULL: all ops)
 * that the backend lacks. */
int cuda_check_ops(const char *const *names);

/* Number of convolutions that cuDNN has computed on this device (WEFT_CONV=cudnn). */
i64 cuda_cudnn_calls(const struct device *device);

/* Peak GFLOP/s of dense gemms on tensor cores (or f32 units), from the architecture and clock; 0:
 * unknown. */
double cuda_matrix_peak(const struct device *device, enum dtype dtype);

#endif
