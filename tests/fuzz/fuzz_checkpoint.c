/* Fuzz target: any bytes as the state of a checkpoint, or as its optimizer file (the first byte
 * selects; the checksums are fixed up where it says so), are read or refused. A checkpoint that is
 * intact is resumed or refused with a message. */
#include "core/json.h"
#include "train/train.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static struct weights weights;
static struct buffer fitting; /* an optimizer file of these weights */

static void put(const char *name, const void *bytes, i64 count)
{
    char *path = path_join(folder, name);
    FILE *file = fopen(path, "wb");
    require(file && fwrite(bytes, 1, (size_t)count, file) == (size_t)count && fclose(file) == 0, "%s cannot be written",
            path);
    memory_free(path);
}

static void make(void)
{
    static struct device device;
    const struct weight_spec spec = weight_matrix("w", 2, 3);
    snprintf(folder, sizeof folder, "/dev/shm/fuzz-checkpoint-%ld", (long)getpid());
    char *below = path_join(folder, "step-000004/weft");
    require(directory_make(below) == 0, "%s", error_text());
    memory_free(below);
    device_open_cpu(&device);
    weights_open(&weights, &device, DTYPE_F32, true, NULL);
    weights_add(&weights, &spec);
    weights_allocate(&weights);
    struct weight_list list;
    char *path = path_join(folder, "fitting.safetensors");
    weights_list_optimizer(&list, &weights, NULL);
    require(safetensors_save(path, list.tensors, list.count, NULL) == 0 && file_read(&fitting, path) == 0, "%s",
            error_text());
    weight_list_release(&list);
    memory_free(path);
    log_set_level(LOG_SILENT);
}

static char *digest(const void *bytes, i64 count)
{
    return string_format("%016llx", (unsigned long long)hash_bytes(bytes, count, 0));
}

/* The state of a checkpoint whose only file is the optimizer's. */
static struct json *state_of(const void *optimizer, i64 bytes)
{
    struct json *j = json_object(), *files = json_object(), *entry = json_object(), *state = json_object();
    char *sum = digest(optimizer, bytes);
    json_set(entry, "bytes", json_of_integer(bytes));
    json_set(entry, "xxh3", json_of_string(sum));
    json_set(files, "weft/optimizer.safetensors", entry);
    json_set(j, "format", json_of_integer(2));
    json_set(j, "step", json_of_integer(4));
    json_set(j, "state", state);
    json_set(j, "files", files);
    memory_free(sum);
    return j;
}

/* Writes the state with the checksum that checkpoint.c expects. */
static void put_state(struct json *j)
{
    static const char *const keys[] = {"step", "state", "files"};
    struct buffer printed = {0};
    for (i64 i = 0; i < COUNT_OF(keys); i++)
        if (json_get(j, keys[i]))
            json_print(&printed, json_get(j, keys[i]), 0);
    char *sum = digest(printed.data, printed.length);
    json_set(j, "xxh3", json_of_string(sum));
    buffer_clear(&printed);
    json_print(&printed, j, 0);
    put("step-000004/weft/state.json", printed.data, printed.length);
    buffer_release(&printed);
    memory_free(sum);
    json_free(j);
}

static void resume(void)
{
    char *path = NULL, *step_folder = checkpoint_path(folder, 4);
    struct json *state = NULL;
    i64 step;
    bool whole = checkpoint_verify(folder, &path) == 0;
    require(whole || *error_text(), "a refused checkpoint leaves no message");
    require((checkpoint_check(step_folder) == 0) == whole, "two opinions on a checkpoint");
    int status = checkpoint_resume(folder, &step, &(struct checkpoint_parts){.weights = &weights}, &state);
    require(status == 0 ? whole && step >= 0 : step == -1 && *error_text(), "step %lld, status %d", (long long)step,
            status);
    json_free(state);
    json_free(checkpoint_oldest(folder, 2));
    memory_free(path);
    memory_free(step_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { STATE, STATE_SUMMED, OPTIMIZER, KINDS };
    if (size == 0)
        return 0;
    if (!*folder)
        make();
    int kind = data[0] % KINDS;
    const void *rest = data + 1;
    i64 count = (i64)size - 1;
    struct json *j = kind == STATE_SUMMED ? json_parse(rest, count, "fuzz") : NULL;
    if (kind == OPTIMIZER) {
        put("step-000004/weft/optimizer.safetensors", rest, count);
        put_state(state_of(rest, count));
    } else if (json_kind(j) == JSON_OBJECT) {
        put("step-000004/weft/optimizer.safetensors", fitting.data, fitting.length);
        put_state(j);
    } else {
        json_free(j);
        put("step-000004/weft/state.json", rest, count);
    }
    resume();
    return 0;
}
