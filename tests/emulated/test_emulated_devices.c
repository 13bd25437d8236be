/* Unusable GPUs, drivers and libraries are refused by one message each, before any computation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/test.h"
#include "tests/toy.h"
#include "train/memory_estimate.h"

static void expect_refused(int index, const char *variable, const char *value, const char *words)
{
    struct device device;
    setenv(variable, value, 1);
    assert_int_equal(device_open_cuda(&device, index), -1);
    if (strcmp(error_text(), words) != 0)
        fail_msg("expected \"%s\": \"%s\"", words, error_text());
    unsetenv(variable);
}

/* Runs before any library is opened: opened ones stay loaded. */
TEST(libraries_that_are_missing)
{
    struct device device;
    struct comm host = {.name = "world", .size = 2};
    struct buffer said = {0};
    setenv("WEFT_EMU_CUBLASLT", "libcublasLt.so.99", 1);
    assert_int_equal(device_open_cuda(&device, 0), -1);
    assert_non_null(strstr(error_text(), "products on a GPU are cuBLASLt's, of CUDA's major version 12: install it ("));
    assert_non_null(strstr(error_text(), "LD_LIBRARY_PATH: libcublasLt.so.99: cannot open shared object file"));
    assert_int_equal(cuda_describe(&said), -1);
    buffer_release(&said);
    setenv("WEFT_EMU_CUBLASLT", "libm.so.6", 1); /* not cuBLASLt */
    assert_int_equal(device_open_cuda(&device, 0), -1);
    assert_non_null(strstr(error_text(), "undefined symbol: cublasLt"));
    unsetenv("WEFT_EMU_CUBLASLT");
    assert_int_equal(device_open_cuda(&device, 0), 0);
    setenv("WEFT_EMU_NCCL_FILE", "libnccl.so.99", 1);
    assert_null(nccl_over(&host, &device));
    assert_non_null(strstr(error_text(), "ranks on GPUs talk over NCCL 2.19 or newer: install it ("));
    assert_non_null(strstr(error_text(), "LD_LIBRARY_PATH: libnccl.so.99: cannot open shared object file"));
    assert_int_equal(nccl_version(), 0);
    unsetenv("WEFT_EMU_NCCL_FILE");
    device_close(&device);
}

static void expect_described(const char *words)
{
    struct buffer said = {0};
    assert_int_equal(cuda_describe(&said), 0);
    if (!strstr(said.data, words))
        fail_msg("no \"%s\" in: %s", words, said.data);
    buffer_release(&said);
}

TEST(drivers_that_cannot_be_used)
{
    struct buffer said = {0};
    expect_refused(0, "WEFT_EMU_DRIVER", "0", "no GPU can be used: this machine has no driver for one (libcuda.so.1)");
    expect_refused(0, "WEFT_EMU_DRIVER", "12020",
                   "no GPU can be used: the driver is for CUDA 12.2, this program for 13.0: install a newer driver, "
                   "or build with an older toolkit");
    setenv("WEFT_EMU_DRIVER", "12020", 1);
    assert_int_equal(cuda_describe(&said), -1);
    unsetenv("WEFT_EMU_DRIVER");
}

TEST(devices_that_cannot_be_used)
{
    expect_refused(0, "WEFT_EMU_SM", "75", "GPU 0 (emulated GPU) is sm_75: sm_80 or newer is needed");
    expect_refused(2, "WEFT_EMU_SM", "90", "there is no GPU 2: this machine has 1, counted from 0");
    setenv("WEFT_EMU_SM", "75", 1); /* the listing marks it among others */
    expect_described("0: emulated GPU, sm_75 (too old)");
    unsetenv("WEFT_EMU_SM");
    expect_described("0: emulated GPU, sm_90, ");
}

/* An H100 runs a program compiled for an A100, without the Hopper kernels. */
TEST(programs_built_for_other_devices)
{
    struct device device;
    expect_refused(0, "WEFT_EMU_BUILT_FOR", "0",
                   "GPU 0 (emulated GPU) is sm_90: this program was built for others, build it with "
                   "-DCMAKE_CUDA_ARCHITECTURES=90a");
    setenv("WEFT_EMU_BUILT_FOR", "80", 1);
    assert_int_equal(device_open_cuda(&device, 0), 0);
    assert_false(device.has_fp8 || cuda_is_hopper(&device) || cuda_has_two_kernels(&device, "attention"));
    assert_false(cuda_handles_of(&device)->overlaps || cuda_handles_of(&device)->hopper);
    unsetenv("WEFT_EMU_BUILT_FOR");
    device_close(&device);
    assert_int_equal(device_open_cuda(&device, 0), 0);
    assert_true(device.has_fp8 && cuda_handles_of(&device)->hopper && cuda_handles_of(&device)->overlaps);
    device_close(&device);
}

/* The check comes before any message to other ranks. */
TEST(libraries_of_the_wrong_version)
{
    struct device device;
    struct comm host = {.name = "world", .size = 2};
    assert_int_equal(device_open_cuda(&device, 0), 0);
    for (int i = 0; i < 2; i++) {
        setenv("WEFT_EMU_NCCL", i ? "2708" : "21805", 1);
        assert_null(nccl_over(&host, &device));
        assert_non_null(strstr(error_text(), i ? "the one that is found here is 2.7:" : "here is 2.18: put a newer"));
    }
    unsetenv("WEFT_EMU_NCCL");
    assert_int_equal(nccl_version(), 22809);
    device_close(&device);
}

/* ---- Too little memory ---- */

static struct device gpu;
static struct model_config config;

/* Many rows at a time, of a small model. */
static struct step_work work_of_toy(void)
{
    static struct pretrain_settings settings;
    const struct setting_override values[] = {
        {"data", "./none"}, {"batch.rows", "16"}, {"batch.micro_rows", "8"}, {"batch.length", "4096"}};
    settings = (struct pretrain_settings){0};
    require(settings_read(&settings, pretrain_table, NULL, NULL, values, COUNT_OF(values)) == 0, "%s", error_text());
    config = toy_config(4, TOY_DENSE);
    return (struct step_work){.settings = &settings,
                              .config = &config,
                              .dtype = DTYPE_BF16,
                              .layout = {.bucket_bytes = 1 << 16},
                              .ranks = 1,
                              .gpu = true};
}

/* Runs `run` in a child with a memory limit that starts after `prepare` (NULL: at once); captures
 * its output and returns its status. */
static int run_with(i64 bytes, void (*prepare)(void), void (*run)(void), char said[2048])
{
    int pipe_of[2], status = 0;
    size_t length = 0;
    char limit[32];
    snprintf(limit, sizeof limit, "%lld", (long long)bytes);
    assert_int_equal(pipe(pipe_of), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_of[1], STDERR_FILENO);
        require(device_open_cuda(&gpu, 0) == 0, "%s", error_text());
        if (prepare)
            prepare();
        setenv("WEFT_EMU_MEMORY", limit, 1);
        run();
        _exit(0);
    }
    close(pipe_of[1]);
    for (ssize_t n; (n = read(pipe_of[0], said + length, 2047 - length)) > 0;)
        length += (size_t)n;
    said[length] = 0;
    close(pipe_of[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void check_toy(void)
{
    struct step_work work = work_of_toy();
    if (step_check_memory(&work, 0, &gpu)) {
        fprintf(stderr, "error: %s", error_text());
        _exit(5);
    }
}

static void fill_memory(void)
{
    struct arena arena;
    device_arena_open(&gpu, &arena, (i64)1 << 30);
    arena_alloc(&arena, 200 << 20);
}

static void expect_said(i64 bytes, void (*run)(void), int status, const char *words, const char *more)
{
    char said[2048];
    int is = run_with(bytes, NULL, run, said);
    if (is != status || (words ? !strstr(said, words) || !strstr(said, more) : said[0]))
        fail_msg("%lld bytes: status %d, expected %d and \"%s\", \"%s\": %s", (long long)bytes, is, status,
                 words ? words : "", words ? more : "", said);
}

/* Memory for all of the estimate, for 1 byte less, and for less than the model. */
TEST(steps_that_do_not_fit_say_what_would)
{
    struct step_work work = work_of_toy();
    struct step_needs needs = {0};
    const struct step_memory *m = &needs.memory;
    assert_int_equal(step_estimate(&needs, &work, 0), 0);
    i64 model = m->copies + m->masters + m->moments + m->gradients, step = step_memory_gpu(m);
    assert_true(m->activations > 4 * GROW_BYTES);
    expect_said(step, check_toy, 0, NULL, NULL);
    expect_said(step - 1, check_toy, 0, "warning: a step takes ", "batch.micro_rows=4 would take ");
    expect_said(model - 1, check_toy, 5, "error: a step takes ",
                "; nothing smaller would do, not even batch.micro_rows=1 recompute=true on 64 ranks: make "
                "the model smaller");
}

/* ---- Decoding ---- */

enum { LENGTH = 30000, SEATS = 8 };
static struct model toy;
static struct submodel full;
static i64 seats_wanted = SEATS, length_wanted = LENGTH, prompt_length = 64, slots_given;

/* Decodes like a stage: finds the number of slots that fit
 * and runs a few steps; `used` is their memory. */
static void decode_toy(void)
{
    static i32 ids[64];
    struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = prompt_length};
    struct generate_request requests[SEATS];
    struct answer answers[SEATS] = {0};
    struct decoder d;
    const struct decoder_options o = {.model = &toy, .sub = &full, .vocabulary = &vocabulary_of_text};
    for (int i = 0; i < SEATS; i++)
        requests[i] = (struct generate_request){
            .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = length_wanted, .copies = 1};
    struct decoding_work wanted = {.options = &o, .requests = requests, .count = SEATS, .slots = seats_wanted};
    if (decoding_check_memory(&wanted)) {
        fprintf(stderr, "error: %s", error_text());
        _exit(5);
    }
    if (slots_given)
        wanted.slots = slots_given;
    i64 before = device_left_bytes(&gpu);
    decoder_open(&d, &o, wanted.slots, request_cache_rows(&o, &requests[0]));
    for (int i = 0; i < SEATS && decoder_add(&d, &answers[i], &requests[i]) == 0; i++)
        ;
    for (int step = 0; step < (is_nightly() ? 4 : 2); step++)
        decoder_step(&d);
    fprintf(stderr, "seats %lld used %lld", (long long)wanted.slots, (long long)(before - device_left_bytes(&gpu)));
}

static void open_toy(void)
{
    config = toy_config(4, TOY_DENSE);
    config.max_positions = 16 * LENGTH;
    toy_open(&toy, &gpu, &config, false);
    submodel_full(&full, &config);
}

/* The model is opened before the limit applies, and takes one block. */
static void check_decoding(i64 bytes, int status, const char *words, const char *more)
{
    char said[2048] = "";
    int is = run_with(bytes + GROW_BYTES, open_toy, decode_toy, said);
    if (is != status || !strstr(said, words) || !strstr(said, more))
        fail_msg("%lld bytes: status %d, expected %d and \"%s\", \"%s\": %s", (long long)bytes, is, status, words, more,
                 said);
}

/* Estimated bytes for decoding the toy, on the meta backend. */
static i64 decoding_bytes(i64 slots, i64 length)
{
    static i32 ids[64];
    struct device meta;
    struct step_memory m = {0};
    struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = prompt_length};
    struct generate_request requests[SEATS];
    struct decoder_options o = {.model = &toy, .sub = &full, .vocabulary = &vocabulary_of_text};
    device_open_meta(&meta);
    device_meta_gpu(&meta, true);
    config = toy_config(4, TOY_DENSE);
    config.max_positions = 16 * LENGTH;
    require(model_open(&toy, &meta, &config, DTYPE_F32, false, NULL) == 0, "%s", error_text());
    submodel_full(&full, &config);
    for (int i = 0; i < SEATS; i++)
        requests[i] = (struct generate_request){
            .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = length, .copies = 1};
    decoding_estimate(&m, &(struct decoding_work){.options = &o, .requests = requests, .count = SEATS, .slots = slots},
                      &toy);
    model_close(&toy);
    device_close(&meta);
    return step_memory_gpu(&m);
}

/* Takes the largest number of slots that fits; their memory equals the estimate to the byte; 1 byte
 * less gives fewer slots. */
TEST(decoders_take_as_many_requests_as_fit)
{
    char used[64];
    i64 all = decoding_bytes(SEATS, LENGTH), half = decoding_bytes(SEATS / 2, LENGTH), one = decoding_bytes(1, LENGTH);
    assert_true(all > half + GROW_BYTES && half > one);
    snprintf(used, sizeof used, "used %lld", (long long)all);
    if (is_nightly())
        check_decoding(all, 0, "seats 8 ", used);
    snprintf(used, sizeof used, "used %lld", (long long)half);
    check_decoding(all - 1, 0, "seats 4 ", used);
    slots_given = SEATS;
    check_decoding(all - 1, STATUS_FAILED, "weft: the GPU has no ", "GiB more");
    slots_given = 0;
}

TEST(decoders_that_do_not_fit_say_what_would)
{
    i64 length = 5 * LENGTH, bytes;
    char words[64], used[64];
    bytes = decoding_bytes(1, length);
    seats_wanted = 1;
    length_wanted = 2 * length;
    snprintf(words, sizeof words, "answers of at most %lld would take %.1f MB", (long long)length,
             (double)bytes * 1e-6);
    check_decoding(bytes, 5, "error: decoding takes ", words);
    length_wanted = length;
    snprintf(used, sizeof used, "used %lld", (long long)bytes);
    if (is_nightly())
        check_decoding(bytes, 0, "seats 1 ", used);
    check_decoding(GROW_BYTES, 5, "error: decoding takes ",
                   "nothing smaller would do, not even answers of at most 1: take weights of 8 or 4 bits");
    seats_wanted = SEATS;
    length_wanted = LENGTH;
}

/* A full GPU is not a program error: one line and no core dump. */
TEST(a_full_device_ends_with_a_message)
{
    expect_said(100 << 20, fill_memory, STATUS_FAILED, "weft: the GPU has no 0.22 GiB more", "weft plan --gpu");
}

int main(void)
{
    return tests_run(NULL, NULL);
}
