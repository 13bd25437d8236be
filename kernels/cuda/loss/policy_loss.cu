#include "kernels/cuda/cuda.h"

#include "kernels/policy_loss.h"

enum { SUMS = 9 };

/* One block per response; sums is [responses, SUMS]. */
static __global__ void score_responses(float *coefficient, double *sums, const float *loss, const float *old,
                                       const float *rollout, const float *start, const float *share, const i32 *segment,
                                       const double *advantage, const double *weight,
                                       struct policy_loss_options options)
{
    grid_wait();
    i64 i = blockIdx.x;
    struct policy_loss_response y =
        policy_loss_response_of(loss, old, rollout, start, share, segment[i], segment[i + 1], advantage[i], weight[i]);
    struct policy_loss_means mean = {0, 0};
    struct policy_loss_id_sums of_ids = {0, 0, 0, 0, 0, 0};
    COLUMNS(j, y.n)
    {
        mean.ratio += policy_loss_log_ratio(&y, j) * policy_loss_share(&y, j) / y.total;
        mean.mismatch += policy_loss_log_mismatch(&y, j) * policy_loss_share(&y, j) / y.total;
    }
    mean = {block_sum(mean.ratio), block_sum(mean.mismatch)};
    COLUMNS(j, y.n)
    coefficient[segment[i] + j] = policy_loss_coefficient(&of_ids, &options, &y, j, mean);
    double all[SUMS] = {1,
                        (double)y.n,
                        block_sum(of_ids.clipped),
                        block_sum(of_ids.masked),
                        block_sum(of_ids.mismatch),
                        block_sum(of_ids.ratio),
                        block_sum(of_ids.kl),
                        block_sum(of_ids.value),
                        0};
    all[8] = policy_loss_all_masked(&y, all[3]);
    for (int s = 0; s < SUMS && threadIdx.x == 0; s++)
        sums[i * SUMS + s] = all[s];
}

static __global__ void add_responses(double *sums, const double *each, i64 responses)
{
    grid_wait();
    for (i64 i = 0; i < responses && threadIdx.x < SUMS; i++)
        sums[threadIdx.x] += each[i * SUMS + threadIdx.x];
}

extern "C" void cuda_policy_loss(struct device *device, float *coefficient, double *sums, const float *loss,
                                 const float *old, const float *rollout, const float *start, const float *share,
                                 const i32 *segment, const double *advantage, const double *weight, i64 responses,
                                 const struct policy_loss_options *options)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    double *each = (double *)handles->workspace;
    require(responses * SUMS * 8 <= handles->workspace_bytes, "policy_loss: %lld responses", (long long)responses);
    if (responses == 0)
        return;
    LAUNCH(device, score_responses, (unsigned)responses, BLOCK_THREADS, 0, coefficient, each, loss, old, rollout, start,
           share, segment, advantage, weight, *options);
    LAUNCH(device, add_responses, 1, WARP_THREADS, 0, sums, each, responses);
}
