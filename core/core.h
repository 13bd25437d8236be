/* core: the vocabulary every other folder uses. It knows nothing of machine learning.
 *
 * This file: errors, log and progress, memory, strings, random draws, hashes, worker threads, arenas, files.
 * Beside it: json.h, safetensors.h, settings.h (settings tables and the YAML that fills them).
 *
 * Conventions of the whole project: sizes and counts are i64; `*_bytes`, `*_ms`, `*_hz` carry their unit in the name;
 * open/close own resources, init/release fill a caller's struct, save/load touch files; outputs come first. */
#ifndef WEFT_CORE_H
#define WEFT_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef int32_t i32;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef uint16_t bf16; /* the upper half of a float; see bf16_to_f32 */

#define PRINTF(text, first) __attribute__((format(printf, text, first)))
#define COUNT_OF(array) ((i64)(sizeof(array) / sizeof((array)[0])))

static inline i64 min_i64(i64 a, i64 b)
{
    return a < b ? a : b;
}
static inline i64 max_i64(i64 a, i64 b)
{
    return a > b ? a : b;
}
static inline i64 ceil_div(i64 a, i64 b)
{
    return (a + b - 1) / b;
}
static inline i64 round_up(i64 a, i64 b)
{
    return ceil_div(a, b) * b;
}

/* ---- Errors ---- */
/* The world may be wrong (files, media, recipes, prompts): such a function returns 0 or -1 (or a pointer or NULL) and
 * leaves a message for the person who reads it: what is wrong, where (file, line, byte), what was expected, what to do.
 * The program may be wrong: panic() says where and stops. Never both.
 * The message belongs to the calling thread and stands until its next error. */
int error_set(const char *format, ...) PRINTF(1, 2);   /* sets the message; returns -1 */
int error_usage(const char *format, ...) PRINTF(1, 2); /* the same, for wrong usage: the program will exit with 2 */
int error_errno(const char *format, ...) PRINTF(1, 2); /* the same, ": " strerror(errno) appended */
int error_interrupted(void); /* the same, where work stops because interrupted() said so: 130 */
int error_prefix(const char *format, ...) PRINTF(1, 2); /* puts "CONTEXT: " before the message; returns -1 */
const char *error_text(void);
enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_INTERRUPTED = 130 };
int error_status(void); /* exit status for the message that stands */

_Noreturn void panic_at(const char *file, int line, const char *format, ...) PRINTF(3, 4);
/* A device that is full is found where nothing can be returned: says so and ends the program with STATUS_FAILED. */
_Noreturn void out_of_memory(const char *format, ...) PRINTF(1, 2);
#define panic(...) panic_at(__FILE__, __LINE__, __VA_ARGS__)
#define require(condition, ...) ((condition) ? (void)0 : panic(__VA_ARGS__))

/* ---- Log: everything said along the way goes to stderr ---- */
enum log_level { LOG_SILENT, LOG_QUIET, LOG_NORMAL };
enum log_level log_set_level(enum log_level level); /* returns what it was */
void log_info(const char *format, ...) PRINTF(1, 2);
void log_warn(const char *format, ...) PRINTF(1, 2); /* "warning: " */

/* A bar with time left on a terminal; in a log a plain line at most every 10 seconds, and the last one. */
struct progress {
    const char *label; /* borrowed until progress_close */
    i64 total, done;
    double begin_s, shown_s;
    bool terminal;
    i64 before; /* done when it began: what is left is foreseen from what came since */
};
void progress_init(struct progress *progress, const char *label, i64 total);
void progress_update(struct progress *progress, i64 done, const char *note_format, ...) PRINTF(3, 4);
void progress_close(struct progress *progress);

double clock_s(void);        /* monotonic seconds */
double clock_cpu_s(void);    /* of CPU time of the calling thread */
i64 memory_peak_bytes(void); /* the process's largest resident size so far */

/* Set by SIGINT and SIGTERM once signals_catch() ran: long work saves and returns when it sees it. Where nothing looks,
 * signals_end() lets them end the program at once, with status 128 + the signal's number. */
void signals_catch(void);
void signals_end(void);
bool interrupted(void);

/* ---- Memory and strings ---- */
/* Allocation cannot fail: no memory is a panic that names the size. Blocks are 64-byte aligned and zeroed. */
void *memory_alloc(i64 bytes);
void *memory_resize(void *block, i64 old_bytes, i64 new_bytes); /* new bytes are zeroed */
void memory_free(void *block);
char *string_copy(const char *text);
char *string_format(const char *format, ...) PRINTF(1, 2);

/* A growing byte string, always terminated by a 0 that `length` does not count. {0} is empty. */
struct text {
    char *data;
    i64 length, capacity;
};
void text_append(struct text *text, const void *bytes, i64 length);
void text_printf(struct text *text, const char *format, ...) PRINTF(2, 3);
void text_clear(struct text *text); /* keeps the memory */
void text_release(struct text *text);

/* The nearest of `names` (NULL-terminated) to `word` by edit distance, or NULL if none is near: "did you mean". */
const char *string_nearest(const char *word, const char *const *names);

/* ---- Random draws ---- */
/* No generator has state: philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), keyed by
 * seed and purpose, counted by a logical identity. Values of the enum never change; new ones are appended. */
enum rng_purpose {
    RNG_INIT = 1,         /* weight index, element */
    RNG_SHUFFLE = 2,      /* epoch, index; the packer's: slots of a pass, rows of a window */
    RNG_MIXTURE = 3,      /* pass, group, copy */
    RNG_DEPTH = 4,        /* step, slice, layer */
    RNG_EXPERTS = 5,      /* step, slice; layer and expert group in the seed */
    RNG_TOPK = 6,         /* step, sample */
    RNG_BIT_FLIP = 7,     /* row, position, bit */
    RNG_CONDITION = 8,    /* sample: dropped conditions for guidance */
    RNG_FRAME_MASK = 9,   /* sample, frame */
    RNG_SAMPLING = 10,    /* prompt, rollout, token, level */
    RNG_CROP = 11,        /* step, item */
    RNG_AUGMENT = 12,     /* step, item, draw */
    RNG_CODEBOOK = 13,    /* step, level, code: revived codes, k-means starts */
    RNG_PHASE = 14,       /* frame, bin: Griffin-Lim's first phase */
    RNG_BPE_DROPOUT = 15, /* document, merge */
    RNG_CORPUS = 16,      /* item, draw */
    RNG_PROMPT = 17,      /* step, index: prompts of an RL step */
    RNG_TEST = 18,        /* tests, benchmarks, and made-up inputs: plan, and proofs of extract and export */
    RNG_SPLIT = 19,       /* item */
    RNG_DRAFT = 20,       /* as RNG_SAMPLING: ids drafted for the model to accept */
    RNG_RESAMPLE = 21,    /* resample, item: intervals of a mean */
};
struct rng_key {
    u64 seed;
    enum rng_purpose purpose;
};
void rng_draw(u32 out[4], struct rng_key key, u32 a, u32 b, u32 c, u32 d);
u32 rng_u32(struct rng_key key, u32 a, u32 b, u32 c, u32 d);
double rng_uniform(struct rng_key key, u32 a, u32 b, u32 c, u32 d);       /* [0, 1), 32 bits */
i64 rng_below(struct rng_key key, i64 bound, u32 a, u32 b, u32 c, u32 d); /* 0 .. bound-1 */
double rng_normal(struct rng_key key, u32 a, u32 b, u32 c, u32 d);
/* Where index i of 0..n-1 goes in a permutation of them, by a few rounds on that index alone. */
i64 rng_permuted(i64 index, i64 n, struct rng_key key, u32 a, u32 b, u32 c);
void rng_permutation(i32 *out, i64 n, struct rng_key key, u32 a, u32 b); /* of 0..n-1 */

u64 hash_bytes(const void *data, i64 bytes, u64 seed); /* XXH3, 64 bits */
u32 crc32c(const void *data, i64 bytes);               /* Castagnoli, as in TensorBoard's event files */

/* ---- Workers ---- */
/* One pool for the process. A job is cut into tiles whose number and shape depend on shapes alone, never on the number
 * of threads, wherever a sum follows the cut; tiles write disjoint memory. So results do not depend on how many workers
 * there are. Tiles are begun in
 * about their order; one may wait for those before it. Where the process has all CPUs of a machine of several memories
 * (NUMA), workers stay near to theirs and pages come from all in turn (WEFT_PIN=0: not; 1: a CPU for each worker). */
typedef void worker_fn(void *context, i64 tile, int worker);
int workers_cores(void);       /* that this process may run on */
void workers_start(int count); /* 0: one per core, WEFT_THREADS overrides; called again it replaces the pool */
void workers_stop(void);
int workers_count(void);
int workers_groups(void);        /* of neighbours that wake, take tiles and end together */
int workers_cut(void);           /* how many a job is cut for where no sum follows the cut */
void workers_cut_for(int count); /* 0: as many as there are */
/* CPU time of each tile as it is done, of a pool of one worker; NULL: no more. */
typedef void workers_watch_fn(void *context, i64 tile, i64 tiles, double seconds);
void workers_watch(workers_watch_fn *watch, void *context);
void workers_run(i64 tiles, worker_fn *run, void *context); /* returns when all tiles are done; not re-entrant */

/* ---- Arena: one bump allocator per micro-batch in flight ---- */
/*
 *   base                      used            peak                                  reserved
 *    |  live blocks, 64-aligned |  free again    |  address space, no memory behind it  |
 *
 * Address space is reserved, memory appears when first touched and stays: a warm step neither allocates nor faults.
 * Arenas of device memory (kernels.h) may need more than a touch: `grow` puts memory behind the first `bytes`. */
struct arena {
    char *base;
    i64 used_bytes, peak_bytes, reserved_bytes;
    i64 backed_bytes;                             /* with memory behind it, where there is a `grow` */
    void (*grow)(struct arena *arena, i64 bytes); /* NULL: memory appears when touched */
    void *owner;                                  /* of grow */
};
void arena_open(struct arena *arena, i64 reserved_bytes);
void arena_close(struct arena *arena);
void *arena_alloc(struct arena *arena, i64 bytes); /* panics past reserved_bytes; memory is not zeroed */
static inline i64 arena_mark(const struct arena *arena)
{
    return arena->used_bytes;
}
static inline void arena_reset(struct arena *arena, i64 mark)
{
    arena->used_bytes = mark;
}

/* ---- Files ---- */
/* What others may read while it is written is written beside, fsynced and renamed. Paths are UTF-8 bytes. */
struct file_view { /* a read-only mapping */
    const u8 *data;
    i64 bytes;
};
int file_map(struct file_view *view, const char *path);
void file_unmap(struct file_view *view);
u64 hash_pieces(const struct file_view *pieces, i64 count, u64 seed); /* hash_bytes of them, one behind the other */
int file_read(struct text *out, const char *path);
int file_replace(const char *path, const void *data, i64 bytes); /* atomic */
int file_copy(const char *to, const char *from);                 /* atomic too */
bool is_address(const char *path);                               /* http://, https://, s3://: no file of this machine */
bool file_exists(const char *path);
bool file_is_directory(const char *path);
i64 file_bytes(const char *path);     /* -1 and a message if there is none */
int directory_make(const char *path); /* with its parents */
/* A fresh empty folder PATH.tmp-PID-N for directory_replace; its name, or NULL and a message. What stood there stays.
 */
char *directory_make_beside(const char *path);
int directory_remove(const char *path); /* with all in it; absent is fine */
int directory_sweep(const char *path); /* removes what killed writers left below: *.tmp, *.tmp-PID-N; follows no link */
int directory_sync(const char *path);  /* fsync every file and folder below */
int directory_replace(const char *temporary, const char *path); /* sync, then rename over whatever stood at `path` */
/* sorted by bytes, without . and ..; string_list_free */
int directory_list(char ***names, i64 *count, const char *path);
void string_list_free(char **names, i64 count);
/* Whether the disk of `path` takes so many bytes more and keeps WEFT_SPARE_BYTES (16 MiB) besides; -1 and a message
 * before it is full: `what` is what they are for. */
int disk_check(const char *path, i64 bytes, const char *what);
char *path_join(const char *directory, const char *name); /* memory_free */

/* A stream being written beside its path; a failed write is remembered and reported by commit. */
struct file_writer {
    int descriptor;
    char *path, *temporary;
    u8 *buffer;
    i64 buffered_bytes, written_bytes;
    int failed_errno;
};
int file_writer_open(struct file_writer *writer, const char *path);
void file_write(struct file_writer *writer, const void *data, i64 bytes);
int file_writer_commit(struct file_writer *writer); /* flush, fsync, rename; on failure removes the temporary */
void file_writer_abandon(struct file_writer *writer);

/* ---- Number formats ---- */
enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_F16, DTYPE_F64, DTYPE_OTHER };
i64 dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype); /* as in safetensors: F32, BF16, ... */

static inline float bf16_to_f32(bf16 value)
{
    union {
        u32 bits;
        float value;
    } both = {(u32)value << 16};
    return both.value;
}
/* Round to nearest, ties to even; a NaN stays one. */
static inline bf16 bf16_from_f32(float value)
{
    union {
        float value;
        u32 bits;
    } both = {value};
    u32 rounded = (both.bits + 0x7fffu + ((both.bits >> 16) & 1)) >> 16;
    return (bf16)(value == value ? rounded : 0x7fc0u);
}

#endif
