/* Writes a checkpoint of the model of `weft bench step`, relative to copying as many bytes into a
 * file, both with fsync. */
#include "bench/step.h"
#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 3, PIECE = 16 << 20 };

static i64 bytes_of(const struct weights *weights)
{
    i64 bytes = 0;
    for (i64 i = 0; i < weights->count; i++)
        bytes += 12 * weights->list[i].value.rows * weights->list[i].value.columns; /* f32 master and two moments */
    return bytes;
}

/* Copy rate in GB/s. */
static int copy_rate(double *rate, const char *folder, i64 bytes)
{
    char *path = path_join(folder, "copy"), *from = memory_alloc(PIECE), *to = memory_alloc(PIECE);
    int status = 0, file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    double begin = clock_s();
    if (file < 0)
        status = error_set("%s: %s", path, strerror(errno));
    for (i64 done = 0; status == 0 && done < bytes;) {
        i64 n = min_i64(PIECE, bytes - done);
        memcpy(to, from, (size_t)n);
        if (write(file, to, (size_t)n) != n)
            status = error_set("%s: %s", path, strerror(errno));
        done += n;
    }
    if (status == 0 && fsync(file))
        status = error_set("%s: %s", path, strerror(errno));
    *rate = (double)bytes / (clock_s() - begin) * 1e-9;
    if (file >= 0)
        close(file);
    unlink(path);
    memory_free(path);
    memory_free(from);
    memory_free(to);
    return status;
}

static int save_rate(double *rate, const char *folder, struct weights *weights, i64 bytes, i64 step)
{
    struct json *state = json_object();
    double begin = clock_s();
    int status = checkpoint_save(folder, step, &(struct checkpoint_parts){.weights = weights}, state);
    *rate = (double)bytes / (clock_s() - begin) * 1e-9;
    json_free(state);
    return status == 0 ? checkpoint_settle(folder, step, 1, -1) : status;
}

int bench_checkpoint(struct device *device, bool json)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    char *folder = bench_folder();
    double ratios[ROUNDS], rates[ROUNDS], copy, warm;
    int status = folder ? 0 : -1;
    if (status == 0)
        status = step_bench_open(b, device, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32, 32);
    i64 bytes = status == 0 ? bytes_of(&b->model.weights) : 0;
    if (status == 0)
        status = copy_rate(&warm, folder, bytes);
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        status =
            save_rate(&rates[round], folder, &b->model.weights, bytes, round + 1) || copy_rate(&copy, folder, bytes)
                ? -1
                : 0;
        ratios[round] = rates[round] / copy;
    }
    if (status == 0) {
        double rate = bench_median(rates, ROUNDS), ratio = bench_median(ratios, ROUNDS);
        bench_print(&(struct bench_row){"checkpoint", "masters and moments written, checksummed, fsynced", "GB/s",
                                        "copy + fsync", rate, rate / ratio, 0.8, false, NULL},
                    json);
        step_bench_close(b);
    }
    if (folder)
        directory_remove(folder);
    memory_free(folder);
    memory_free(b);
    return status;
}
