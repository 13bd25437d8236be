/* The device of a command: the CPU unless --device says otherwise. auto selects a GPU if there is
 * one that can run all ops. */
#include "cli/cli.h"
#include "dist/dist.h"
#include "kernels/cuda/device.h"

#include <stdlib.h>
#include <string.h>

const char *cli_device_wanted;
static struct device device;

/* Without a number, each rank takes the GPU of its local rank,
 * or the one that its launcher makes visible. */
static int open_gpu(const char *number)
{
    struct launch_info launch;
    i64 index = 0;
    int status = 0;
    if (*number)
        index = option_integer(number, "device cuda", 0, 0, 1023, &status);
    else if ((status = launch_detect(&launch)) == 0)
        index = launch.local_rank % max_i64(cuda_count(), 1);
    if (status == 0)
        status = cuda_check_ops(NULL);
    return status == 0 ? device_open_cuda(&device, (int)index) : status;
}

int cli_device_open(void)
{
    const char *wanted = cli_device_wanted ? cli_device_wanted : "cpu";
    if (device.ops)
        return 0;
    if (strcmp(wanted, "cpu") == 0 || device_is_guarded()) {
        device_open_host(&device);
        return 0;
    }
    if (strcmp(wanted, "auto") == 0) {
        if (open_gpu(""))
            device_open_host(&device);
        return 0;
    }
    if (strncmp(wanted, "cuda", 4) == 0 && (!wanted[4] || (wanted[4] == ':' && wanted[5])))
        return open_gpu(wanted[4] ? wanted + 5 : "");
    return error_usage("--device %s: expected auto, cpu, cuda or cuda:N", wanted);
}

struct device *cli_device(void)
{
    require(cli_device_open() == 0, "%s", error_text());
    return &device;
}
