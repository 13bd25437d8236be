/* core: the base library that every other folder uses. It contains no machine learning.
 *
 * This header declares errors, logging and progress bars, memory, strings, counter-based random
 * numbers, hashes, the worker pool, arenas and files. Its siblings are json.h (JSON trees),
 * safetensors.h (checkpoint files), gguf.h (files of llama.cpp), secret.h (proof of a shared secret) and settings.h
 * (settings tables and the YAML that fills them).
 *
 * Ownership: a function that returns a new block says so in its comment, usually by naming the
 * function that frees it (memory_free, string_list_free). Everything else is borrowed.
 *
 * Conventions of the whole project: sizes and counts are i64. The suffixes `_bytes`, `_ms` and
 * `_hz` give the unit. open/close own resources, init/release fill a caller's struct, save/load
 * access files. Output parameters come first.
 *
 * Where is what:
 *   error.c      error messages, exit statuses, panic
 *   log.c        log lines, clocks; progress.c: progress bars; signals.c: signals (interrupted);
 *                log_inside.h is what the three share
 *   file.c       opening, mapping, whole reads, atomic writes, folders, the check for free space
 *   folder_visits.c  links of folders that a walk follows
 *   escape.c     control characters of foreign texts
 *   memory.c     blocks, strings, struct text; arena.c: arenas, which only grow and are reset
 *   memory_limit.c   limits of memory and threads, the end where one is met
 *   rng.c        keyed draws, permutations; philox.h is the generator that kernels share
 *   workers.c    the thread pool and how tiles are dealt; topology.c: CPUs and NUMA nodes
 *   settings.c   tables of settings, --help; settings_values.c and settings_sources.c: their values;
 *                settings_json.c: what a run stores of them
 *   yaml.c       YAML with line numbers; json.c, json_line.c
 *   hash.c       XXH3, CRC-32C; safetensors.c: checkpoints; library.c: libraries of vendors
 *   temporary.c  temporaries: made, locked, removed by signals, swept
 *   processes.c  descendants of this process */
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
typedef uint16_t bf16; /* upper 16 bits of a float; see bf16_to_f32 */

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
/* Bad input (files, media, recipes, prompts): the function returns -1 or NULL instead of 0 or a
 * pointer, and sets a message for the user. The message says what is wrong, where (file, line,
 * byte), what was expected and what to do.
 * Bugs in this program: panic() prints the source location and aborts. No function does both.
 * The message is thread-local and stays valid until the next error on the same thread. It is one
 * line: control characters of the names and texts in it are escaped (text_escape). */
int error_set(const char *format, ...) PRINTF(1, 2);    /* sets the message; returns -1 */
int error_usage(const char *format, ...) PRINTF(1, 2);  /* same, wrong usage: the program exits with 2 */
int error_errno(const char *format, ...) PRINTF(1, 2);  /* same, appends ": " strerror(errno) */
int error_interrupted(void);                            /* same, for work stopped by interrupted(): exit status 130 */
int error_prefix(const char *format, ...) PRINTF(1, 2); /* puts "CONTEXT: " before the message; returns -1 */
const char *error_text(void);
/* STATUS_OTHER_RANK: this rank ended because another one did, or did not respond */
enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_OTHER_RANK = 3, STATUS_INTERRUPTED = 130 };
int error_status(void); /* exit status of the current message */

/* What a program says that ends without a return: `hear` is called once, by fatal_tell, and must not
 * allocate. NULL: nobody hears. */
void fatal_listen(void (*hear)(const char *message));
void fatal_tell(const char *message);
_Noreturn void panic_at(const char *file, int line, const char *format, ...) PRINTF(3, 4);
/* For a full device, detected where no error can be returned. Prints the message, removes
 * unfinished files and exits with STATUS_FAILED. */
_Noreturn void out_of_memory(const char *format, ...) PRINTF(1, 2);
#define panic(...) panic_at(__FILE__, __LINE__, __VA_ARGS__)
#define require(condition, ...) ((condition) ? (void)0 : panic(__VA_ARGS__))

/* ---- Log: all messages go to stderr ---- */
/* A message is one line: a line feed in it is escaped like other control characters. A terminal gets
 * it in lines of its width, broken between words; those after the first are indented. */
enum log_level { LOG_SILENT, LOG_QUIET, LOG_NORMAL };
enum log_level log_set_level(enum log_level level); /* returns the previous level */
/* The program for commands that a reader pastes: as it was called, if that was by a path, else weft. */
void program_called(const char *argument);
const char *program_name(void); /* borrowed */
void log_info(const char *format, ...) PRINTF(1, 2);
void log_warn(const char *format, ...) PRINTF(1, 2); /* prefixed with "warning: " */
void log_put(const char *prefix, const char *text);  /* a message at every level, such as an error */
/* Columns of the terminal that shows messages: COLUMNS, else what it says, else 80. 0: no terminal. */
int terminal_columns(void);
/* Columns of UTF-8: characters of East Asia take two. */
i64 text_columns(const char *text, i64 bytes);
/* Appends text in lines of so many columns, broken between words, indented behind the first; a longer
 * word stays whole. columns 0: as it is. */
struct buffer;
void text_wrap(struct buffer *out, const char *text, int columns);

/* Progress display. On a terminal: a bar with the estimated time left. Otherwise: one plain line at
 * most every 10 seconds, and a final one. */
struct progress {
    const char *label; /* borrowed until progress_close */
    i64 total, done;
    double begin_s, shown_s;
    bool terminal;
    i64 before; /* `done` at the start; the estimate uses progress since then */
};
void progress_init(struct progress *progress, const char *label, i64 total);
void progress_update(struct progress *progress, i64 done, const char *note_format, ...) PRINTF(3, 4);
void progress_close(struct progress *progress);
/* Without the final line: for a part of work that has a bar of its own. */
void progress_clear(struct progress *progress);
/* A bar that a terminal shows only if the work takes longer than a moment. */
void progress_init_late(struct progress *progress, const char *label, i64 total);

double clock_s(void);        /* seconds of the monotonic clock */
double clock_cpu_s(void);    /* CPU seconds of the calling thread */
i64 memory_peak_bytes(void); /* peak resident set size of the process */
/* Bytes that only this process holds, private pages of files included; 0: not known. */
i64 memory_private_bytes(void);

/* SIGINT, SIGTERM, SIGHUP and the warnings of batch systems (SIGUSR1, SIGUSR2, SIGXCPU) set the flag
 * that interrupted() returns, once signals_catch() has run. A second signal ends the program, unless
 * one of the two is a warning. Long-running work polls the flag, saves and returns. Code that does
 * not poll calls signals_end(): a signal then ends the program at once, with status 128 + its number,
 * and so does SIGPIPE if nobody reads stdout any more. Temporaries are removed.
 *
 * The first signal is answered at once by a line on stderr, "stopping: WHAT", also while the work does
 * not poll. signals_say sets WHAT, one thread at a time; "": no line. */
void signals_catch(void);
void signals_end(void);
void signals_say(const char *format, ...) PRINTF(1, 2);
bool interrupted(void);
/* Forgets a SIGINT, so that a dialogue goes on after it. False if another signal came: it stays. */
bool interrupted_forget(void);
/* Waits until a descriptor can be read. False: interrupted(), also if the signal came before. */
bool interrupted_wait(int descriptor);
bool output_is_unread(void); /* stdout is a pipe whose reader has gone */

/* ---- Memory and strings ---- */
/* Allocation never returns NULL: without memory the program ends in memory_exhausted. Blocks are
 * zeroed and 64-byte aligned; the pages of a large one are taken when they are first used. Strings
 * come from string_copy and string_format, are released by memory_free, and have no special
 * alignment. */
void *memory_alloc(i64 bytes);
void *memory_resize(void *block, i64 old_bytes, i64 new_bytes); /* new bytes are zeroed */
void memory_free(void *block);
char *string_copy(const char *text);
char *string_format(const char *format, ...) PRINTF(1, 2);
/* The noun, or the noun and verb, behind a number in a message: "%lld %s", n, plural(n, "step", "steps"). */
static inline const char *plural(i64 n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

/* Ends the program with STATUS_FAILED, without unfinished files, because no memory is left. The
 * message says that `what` needs `bytes` more (0: unknown how many), what is in use, the limit, and what to make
 * smaller. */
_Noreturn void memory_exhausted(i64 bytes, const char *what);
#define require_memory(block, what) ((block) ? (void)0 : memory_exhausted(0, what)) /* a library's block */
/* Counts memory that was handed out, or with negative `bytes` given back, whether it has been touched
 * or not. Ends the program as memory_exhausted does if a control group, which the system enforces with
 * SIGKILL, or WEFT_MEMORY_LIMIT allows less than what is promised and used by then. */
void memory_promise(i64 bytes, const char *what);
/* The most that was promised at a time since the last call, beyond what was promised then. */
i64 memory_promised_since(void);
struct memory_room {
    const char *limit; /* that leaves the least: a control group, WEFT_MEMORY_LIMIT, ulimit; NULL: none */
    i64 bytes, left;   /* of the limit; INT64_MAX without one */
};
struct memory_room memory_room(void);
/* For the message: the work that goes on and the settings that make it smaller. Borrowed until the
 * next call; NULL: unknown. */
void memory_advise(const char *work, const char *smaller);
/* Raises the limit of the stack (ulimit -s), of this thread and of those to come, where it is too low to
 * work with. Returns -1 and a message if the system does not allow it. */
int stack_check(void);
/* The count behind a name that begins a line of a file of /proc ("MemAvailable:" of /proc/meminfo, in
 * KiB); -1: the system does not say. */
i64 system_count(const char *path, const char *name);
i64 memory_address_left(void); /* address space that ulimit -v and -d leave; INT64_MAX: no limit */
/* Capacity of a list or string that outgrew the present one and needs `least`. */
i64 grown_capacity(i64 capacity, i64 least, i64 size);

/* A growable byte string. A 0 byte that `length` does not count always follows the data. {0} is the
 * empty string. */
struct buffer {
    char *data;
    i64 length, capacity;
};
void buffer_append(struct buffer *text, const void *bytes, i64 length);
void buffer_printf(struct buffer *text, const char *format, ...) PRINTF(2, 3);
void buffer_vprintf(struct buffer *text, const char *format, va_list arguments) PRINTF(2, 0);
void buffer_clear(struct buffer *text); /* keeps the allocation */
void buffer_release(struct buffer *text);

/* Appends a text of a stranger so that a terminal shows it and does not obey it: control characters and
 * marks of direction as \u001b, bytes that are not UTF-8 as \xff. `kept`: characters that stay, such as
 * "\n". JSON stays JSON. Errors, log lines and progress are escaped without it. */
void text_escape(struct buffer *out, const char *text, i64 length, const char *kept);
char *text_escaped(const char *text); /* the same with nothing kept; memory_free */
/* Bytes of the well-formed UTF-8 sequence that `text` begins with; 0: none. */
i64 utf8_length(const char *text, i64 available);

/* Returns the entry of `names` (NULL-terminated) closest to `word` by edit distance, or NULL if
 * none is close. Used for "did you mean". */
const char *string_nearest(const char *word, const char *const *names);

/* ---- Random draws ---- */
/* Random numbers are stateless: philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
 * easy as 1, 2, 3"). The key is (seed, purpose) and the counter (a, b, c, d) identifies the draw.
 * The comment behind each purpose lists its counter words. Values of the enum never change; new
 * ones are appended. */
enum rng_purpose {
    RNG_INIT = 1,         /* hash of the weight's name, element */
    RNG_SHUFFLE = 2,      /* epoch, index; in the packer: slots of a pass, rows of a window */
    RNG_MIXTURE = 3,      /* pass, group, copy; for windows: sample, pass; in the mixer: step */
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
    RNG_PHASE = 14,       /* frame, bin: initial phase of Griffin-Lim */
    RNG_BPE_DROPOUT = 15, /* document, merge */
    RNG_CORPUS = 16,      /* item, draw */
    RNG_PROMPT = 17,      /* epoch: order of the prompts of an RL run */
    RNG_TEST = 18,        /* inputs of tests, benchmarks, dry runs, and the self-checks of extract and export */
    RNG_SPLIT = 19,       /* hash of the item; for sample sets: kind */
    RNG_RESAMPLE = 21,    /* resample, item: bootstrap confidence interval of a mean */
    RNG_DISTILL = 22,     /* step, slice */
    RNG_FAMILY = 23,      /* step, slice; for the order of sizes: round, slice, pass in the seed */
    RNG_EXCHANGE = 24,    /* direction: whose prompt a sample is given; share: which texts are counted */
    RNG_LEVELS = 25,      /* step, item: how many levels of codes the decoder hears of a crop */
};
struct rng_key {
    u64 seed;
    enum rng_purpose purpose;
};
void rng_draw(u32 out[4], struct rng_key key, u32 a, u32 b, u32 c, u32 d);
u32 rng_u32(struct rng_key key, u32 a, u32 b, u32 c, u32 d);
double rng_uniform(struct rng_key key, u32 a, u32 b, u32 c, u32 d);       /* [0, 1), 32 bits of resolution */
i64 rng_below(struct rng_key key, i64 bound, u32 a, u32 b, u32 c, u32 d); /* 0 .. bound-1 */
double rng_normal(struct rng_key key, u32 a, u32 b, u32 c, u32 d);
/* The image of index i under a random permutation of 0..n-1. Needs O(1) time and no table. */
i64 rng_permuted(i64 index, i64 n, struct rng_key key, u32 a, u32 b, u32 c);
void rng_permutation(i32 *out, i64 n, struct rng_key key, u32 a, u32 b); /* fills out[n] with 0..n-1, shuffled */

u64 hash_bytes(const void *data, i64 bytes, u64 seed); /* XXH3, 64 bits */
/* Hashes of the samples of a part, to find those that another part holds too. {0} is empty. */
struct hash_list {
    u64 *hashes;
    i64 count;
};
void hash_list_add(struct hash_list *list, u64 hash);
void hash_list_sort(struct hash_list *list);
bool hash_list_has(const struct hash_list *sorted, u64 hash);
/* The number of elements of `some` that are in `among`. Sorts `among`. */
i64 hash_list_common(const struct hash_list *some, struct hash_list *among);
void hash_list_release(struct hash_list *list);
/* Hashes met so far, in a table with open addressing. {0} is empty. */
struct hash_set {
    u64 *slots; /* [capacity], a power of two; 0: free */
    i64 count, capacity;
};
bool hash_set_add(struct hash_set *set, u64 hash); /* false: it is there already */
void hash_set_release(struct hash_set *set);
u32 crc32c(const void *data, i64 bytes); /* Castagnoli, as in TensorBoard's event files */

/* ---- Workers ---- */
/* One thread pool per process. A job consists of tiles, and tiles write disjoint memory. If a sum
 * depends on the partition, the number and shape of the tiles depend on tensor shapes only, never
 * on the thread count, so results are identical for every number of workers. Tiles start in roughly
 * ascending order; a tile may wait for earlier ones.
 * On a NUMA machine, if the process may use all CPUs, workers stay on the CPUs of their node and
 * pages are interleaved over the nodes. WEFT_PIN=0 disables pinning; WEFT_PIN=1 pins each worker to
 * its own CPU. */
enum { WORKERS_MOST = 1024 }; /* the CPUs of the kernel's usual cpu_set_t */
typedef void worker_fn(void *context, i64 tile, int worker);
int workers_cores(void);       /* number of CPUs this process may run on */
void workers_start(int count); /* 0: one per core, or WEFT_THREADS; a second call replaces the pool */
void workers_stop(void);
int workers_count(void);
int workers_groups(void);        /* number of groups; a group is up to 8 neighbouring workers */
int workers_cut(void);           /* number of parts to split a job into if no sum depends on it */
void workers_cut_for(int count); /* 0: the number of workers */
/* Reports the CPU seconds of each finished tile. Requires a pool of one worker. NULL: stop
 * reporting. */
typedef void workers_watch_fn(void *context, i64 tile, i64 tiles, double seconds);
void workers_watch(workers_watch_fn *watch, void *context);
void workers_run(i64 tiles, worker_fn *run, void *context); /* returns once all tiles are done; not reentrant */

/* ---- Arena: one bump allocator per micro-batch in flight ---- */
/*
 *   base                      used            peak                                  reserved
 *    |  live blocks, 64-aligned |  free again    |  address space, no memory behind it  |
 *
 * The arena reserves address space. The system commits a page on first touch and the arena keeps
 * it, so a warm step neither allocates nor faults. Arenas in device memory (kernels.h) may need
 * explicit commits: `grow` commits the first `bytes`.
 * Where ulimit -v or -d has no room for the reservation, it takes a quarter of what is left. */
struct arena {
    char *base;
    i64 used_bytes, peak_bytes, reserved_bytes;
    i64 wanted_bytes;                             /* reserved_bytes before a limit cut it */
    i64 backed_bytes;                             /* committed bytes; used only with `grow` */
    bool sparse;                                  /* much is never touched: nothing is promised (memory_promise) */
    void (*grow)(struct arena *arena, i64 bytes); /* NULL: pages are committed on touch */
    void *owner;                                  /* context for `grow` */
};
void arena_open(struct arena *arena, i64 reserved_bytes);
void arena_close(struct arena *arena);
/* Memory is not zeroed. Past reserved_bytes: a panic, or memory_exhausted if the reservation was cut. */
void *arena_alloc(struct arena *arena, i64 bytes);
/* Maps address space without memory behind it, at least 1 and at most `bytes`; *bytes becomes what
 * was taken. */
void *arena_reserve(i64 *bytes);
static inline i64 arena_mark(const struct arena *arena)
{
    return arena->used_bytes;
}
static inline void arena_reset(struct arena *arena, i64 mark)
{
    arena->used_bytes = mark;
}

/* ---- Files ---- */
/* Files that other processes may read during a write are written to a temporary beside the target
 * (temporary.h), fsynced and renamed. Paths are UTF-8. */
/* Returns a descriptor to read from, or -1 and a message. Refuses folders, pipes, sockets and devices,
 * also behind links, and never waits for a pipe's writer. A pipe or a device is read if it is named as
 * a descriptor of this process: /dev/stdin, /dev/fd/N or /proc/self/fd/N, as a shell's <(COMMAND) is.
 * All functions below that read a file by name open it so. */
int file_open(const char *path);
/* Opens a file to append to it, and makes it if it is not there. What is no file is refused. */
int file_open_append(const char *path);
struct file_view { /* a read-only mapping */
    const u8 *data;
    i64 bytes;
};
/* Reading a page of the mapping that cannot be read, because the file was made shorter or its disk
 * failed, ends the program with a message and STATUS_FAILED. */
int file_map(struct file_view *view, const char *path);
void file_unmap(struct file_view *view);
/* After `bytes` at `data` were read: those of a mapping leave the memory of this process, the system's
 * cache keeps them. Reading them again is allowed. Other memory is left alone. */
void file_pass(const void *data, i64 bytes);
/* XXH3 and size of a file's content, without mapping it. -1 and a message if it cannot be read. */
int hash_file(u64 *hash, i64 *bytes, const char *path);
u64 hash_pieces(const struct file_view *pieces, i64 count, u64 seed); /* hash_bytes of the concatenation */
/* Reads a whole file, of at most FILE_READ_BYTES_MAX or `most_bytes`. */
#define FILE_READ_BYTES_MAX ((i64)1 << 32)
int file_read(struct buffer *out, const char *path);
int file_read_most(struct buffer *out, const char *path, i64 most_bytes);
int file_replace(const char *path, const void *data, i64 bytes); /* atomic */
int file_copy(const char *to, const char *from);                 /* atomic */
bool is_address(const char *path);                               /* http://, https://, s3://: not a local file */
/* These two end the program, with a message and STATUS_FAILED, if the disk fails: any answer could be
 * wrong. */
bool file_exists(const char *path);
bool file_is_directory(const char *path);
i64 file_bytes(const char *path);         /* -1 and a message if it does not exist */
int directory_make(const char *path);     /* creates parents too */
int directory_make_one(const char *path); /* the parent must exist */
/* 0, or -1 and a message if `path` exists. */
int file_check_new(const char *path);
/* 0, or -1 and a message if `path` does not name the open file or directory any more. */
int file_check_there(int descriptor, const char *path);
/* Creates an empty directory beside PATH (core/temporary.h) for directory_replace or
 * directory_rename_new. Returns its name (memory_free), or NULL and a message. Leaves PATH
 * untouched. _beside creates the parents of PATH too. */
char *directory_make_temporary(const char *path);
char *directory_make_beside(const char *path);
int directory_remove(const char *path); /* recursive; absent is not an error */
/* Removes all temporaries below `path`. Follows no links. No other process may write there. */
int directory_sweep(const char *path);
int directory_sync(const char *path);                              /* fsyncs every file and directory below path */
int directory_replace(const char *temporary, const char *path);    /* syncs, then renames over `path` */
int directory_rename_new(const char *temporary, const char *path); /* fails if `path` exists; never replaces it */
/* Sorted by byte value, without . and .. Free with string_list_free. */
int directory_list(char ***names, i64 *count, const char *path);
void string_list_free(char **names, i64 count);
/* The folders that a walk has entered, by device and inode. {0} before the first. */
struct folder_visits {
    u64 (*entered)[2]; /* [capacity] device and inode, hashed; the inode 0: free */
    i64 count, capacity;
    char *root;     /* the first folder, without links */
    int depth_most; /* deepest folders that the walk lists, counted from the first; 0: all */
};
/* Enters a folder. False if the walk shall not list it: it was entered before, or its name is a link
 * to a folder that the walk also meets under its own name, below the first and not hidden. So a link
 * that leads back ends the walk, and a folder keeps its own name. */
bool folder_visit(struct folder_visits *visits, const char *path);
void folder_visits_release(struct folder_visits *visits);
/* True for a link into /proc, /sys or /dev (but for /dev/shm), which no walk follows: what is there has
 * no end, no size, or acts when it is read. */
bool leads_to_system(const char *path);
/* Checks that the disk of `path` can take `bytes` more and still keep WEFT_SPARE_BYTES (default 16
 * MiB) free. Otherwise returns -1 and a message that names `what`, the purpose of the bytes. */
int disk_check(const char *path, i64 bytes, const char *what);
/* Bytes that may be written to a path that need not exist yet, without those to spare; NAN: not known. */
double disk_left(const char *path);
char *path_join(const char *directory, const char *name); /* memory_free the result */

/* Buffered writer to a temporary beside `path`. A failed write is remembered and reported by
 * file_writer_commit. */
struct file_writer {
    int descriptor;
    char *path, *temporary;
    u8 *buffer;
    i64 buffered_bytes, written_bytes;
    int failed_errno;
    bool is_new;
};
int file_writer_open(struct file_writer *writer, const char *path);
/* Refuses an existing `path`, and fails in file_writer_commit if it appeared in the meantime. */
int file_writer_open_new(struct file_writer *writer, const char *path);
void file_write(struct file_writer *writer, const void *data, i64 bytes);
/* Replaces bytes from `at` on that were written before. Not for pipes (temporary NULL). */
void file_write_again(struct file_writer *writer, i64 at, const void *data, i64 bytes);
int file_writer_commit(struct file_writer *writer); /* flush, fsync, rename; on failure removes the temporary */
void file_writer_abandon(struct file_writer *writer);

/* ---- Number formats ---- */
enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_F16, DTYPE_F64, DTYPE_OTHER };
i64 dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype); /* safetensors spelling: F32, BF16, ... */

static inline float bf16_to_f32(bf16 value)
{
    union {
        u32 bits;
        float value;
    } both = {(u32)value << 16};
    return both.value;
}
/* Round to nearest, ties to even. NaN stays NaN. */
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
