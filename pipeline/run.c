/* Runs the stages of a recipe in order. Finished stages are skipped, interrupted ones resumed. */
#include "pipeline/identity.h"
#include "pipeline/members.h"
#include "pipeline/pipeline.h"
#include "core/inventory.h"
#include "core/json.h"
#include "core/processes.h"
#include "core/temporary.h"
#include "dist/cluster.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 2 };

struct runner {
    struct recipe_runs runs;
    struct recipe *recipe; /* the one of `runs` that goes on now, and what it says of it */
    char *label;
    const struct run_options *options;
    enum dtype dtype;
    bool fp8;
    struct layout sizes;
    struct comm *world;
    struct parallel ranks;
    int folder;             /* of all runs; -1: not open */
    int lock;               /* on the current stage's folder; -1: none */
    bool change;            /* a stage was saved because other ranks are to go on */
    struct cluster cluster; /* --cluster, on the first rank; else empty */
};

/* ---- Ranks: the first decides and writes, so that a common error is reported once ---- */

void ranks_start_workers(const struct launch_info *launch)
{
    bool bound = workers_cores() < sysconf(_SC_NPROCESSORS_ONLN); /* the launcher set an affinity */
    if (launch->size > 1 && !getenv("WEFT_THREADS"))
        workers_start((int)max_i64(1, bound ? workers_cores() : workers_cores() / launch->local_size));
    if (launch->rank > 0)
        log_set_level(LOG_QUIET);
}

static int open_world(struct runner *run)
{
    struct launch_info launch;
    if (launch_detect(&launch))
        return -1;
    launch.program = run->options->program;
    ranks_start_workers(&launch);
    run->world = comm_open(run->options->device, &launch);
    return run->world ? 0 : -1;
}

static void close_ranks(struct runner *run)
{
    parallel_close(&run->ranks);
    comm_close(run->world);
}

static bool is_first(const struct runner *run)
{
    return run->world->rank == 0;
}

static int first_then_others(struct runner *run, int (*call)(struct runner *run, struct recipe_stage *stage),
                             struct recipe_stage *stage)
{
    int status = is_first(run) ? call(run, stage) : 0;
    if (status == 0)
        comm_barrier(run->world);
    return is_first(run) ? status : call(run, stage);
}

static int read_layout(struct runner *run, struct recipe_stage *none)
{
    (void)none;
    return layout_parse(&run->sizes, run->options->layout, run->world->size);
}

/* Checks that this rank has read the same as the first, and ends the run where not. what: for the
 * message. `same` is freed. */
static int agree_with_first(struct runner *run, struct json *same, const char *what)
{
    struct comm *world = comm_host(run->world);
    struct buffer text = {0}, names = {0};
    json_print(&text, same, 0);
    i64 bytes = text.length;
    comm_broadcast(world, &bytes, sizeof bytes, 0);
    char *of_first = memory_alloc(max_i64(bytes, 1));
    memcpy(of_first, text.data, (size_t)min_i64(bytes, text.length));
    comm_broadcast(world, of_first, bytes, 0);
    struct json *first = world->rank ? json_parse(of_first, bytes, "the first rank") : NULL;
    if (first)
        json_differences(&names, first, same, "", " on the first rank");
    int status = names.length == 0 ? 0
                                   : error_set("%s: this rank and the first differ in %s: give all ranks the same "
                                               "recipe, arguments and files",
                                               what, names.data);
    buffer_release(&text);
    buffer_release(&names);
    memory_free(of_first);
    json_free(first);
    json_free(same);
    return status;
}

/* Ranks of one launch, in a world of their own. */
static int open_ranks(struct runner *run)
{
    if (open_world(run) || first_then_others(run, read_layout, NULL))
        return -1;
    struct json *layout = json_object();
    json_set(layout, "--layout", json_of_string(run->options->layout ? run->options->layout : ""));
    if (agree_with_first(run, layout, "weft run"))
        return -1;
    return parallel_open(&run->ranks, run->world, &run->sizes);
}

/* Broadcasts the first rank's status. A rank that failed does not get here, and ends the run. */
static int status_of_first(const struct runner *run, int status)
{
    if (status < 0)
        return status;
    comm_barrier(run->world);
    comm_broadcast(comm_host(run->world), &status, sizeof status, 0);
    return status;
}

/* ---- Identity of a stage: settings and inputs ---- */

/* Seed of a stage. Each has its own, so that two stages see the same shards in different orders. */
static u64 seed_of(const struct recipe_stage *s)
{
    return hash_bytes(s->name, (i64)strlen(s->name), s->seed);
}

static const char *precision_name(const struct runner *run)
{
    return run->fp8 ? "fp8" : run->dtype == DTYPE_BF16 ? "bf16" : "f32";
}

static struct json *identity_of(const struct runner *run, const struct recipe_stage *s)
{
    char seed[20];
    struct json *j = json_object();
    json_set(j, "kind", json_of_string(s->kind->name));
    snprintf(seed, sizeof seed, "%016llx", (unsigned long long)seed_of(s));
    json_set(j, "seed", json_of_integer((i64)s->seed));
    json_set(j, "stage_seed", json_of_string(seed));
    json_set(j, "precision", json_of_string(precision_name(run)));
    json_set(j, "settings", json_copy(s->resolved));
    json_set(j, "inputs", json_copy(s->inputs));
    return j;
}

static int refuse_change(const char *folder, const struct json *was, const struct json *now, const char *names)
{
    error_set(
        "%s was made with other settings or inputs: %s%s. Choose another run folder, or pass --redo to rerun the stage",
        folder, *names ? names : "its inputs",
        identity_has_old_digest(was, now) ? " (by an older version, which did not look into the files of its inputs: "
                                            "whether they are the same cannot be known)"
                                          : "");
    return -1;
}

/* Loads a JSON file. NULL and 0 if it does not exist, or if it
 * is damaged and --redo replaces it. */
static int load_optional(struct json **out, const char *path, const char *folder, bool redo)
{
    *out = file_exists(path) ? json_load(path) : NULL;
    if (*out || redo || !file_exists(path))
        return 0;
    char *why = string_copy(error_text());
    error_set("%s; the contents of %s are unknown: --redo reruns the stage", why, folder);
    memory_free(why);
    return -1;
}

static int refuse_foreign(const char *folder)
{
    return error_set("%s has no done.json: weft run did not create it and does not touch it. Move it away, or choose "
                     "another run folder",
                     folder);
}

/* Returns SKIPPED if the stage is finished, or was skipped, with the same identity, apart from a
 * missing stage seed in older ones. An outdated folder is removed with --redo, or if the stage was
 * skipped, and refused otherwise. */
static int check_finished(const struct runner *run, const char *folder, const struct json *identity,
                          const struct recipe_stage *s)
{
    char *path = path_join(folder, "done.json");
    struct json *done = NULL;
    struct buffer names = {0};
    bool anew = run->options->redo || s->kind->each_time;
    int status = load_optional(&done, path, folder, anew);
    const struct json *was = json_get(done, "identity");
    buffer_append(&names, "", 0);
    if (was)
        identity_compare(&names, was, identity, s, run->recipe->root);
    anew |= json_get(done, "skipped") != NULL; /* tried again once its settings or inputs differ */
    if (status == 0 && was && names.length == 0 && !s->kind->each_time &&
        !(run->options->redo && json_get(done, "skipped")))
        status = SKIPPED;
    else if (status == 0 && file_exists(folder) && !file_exists(path))
        status = refuse_foreign(folder);
    else if (status == 0 && file_exists(folder))
        status = anew ? directory_remove(folder) : refuse_change(folder, was, identity, names.data);
    if (status == SKIPPED && json_get(done, "skipped"))
        log_info("%s%s: skipped: %s", s->name, run->label, json_string(json_get(done, "skipped"), ""));
    else if (status == SKIPPED)
        log_info("%s%s: done before", s->name, run->label);
    buffer_release(&names);
    json_free(done);
    memory_free(path);
    return status;
}

/* Two processes may run different stages of a run at the same time, but not the same stage. */
static int lock_folder(struct runner *run, const char *folder)
{
    run->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->lock < 0)
        return error_errno("%s: cannot be opened", folder);
    if (flock(run->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) /* no lock on file systems without flock */
        return file_check_there(run->lock, folder);
    long owner = lock_holder(folder);
    return owner > 0 ? error_set("%s: in use by another weft run, process %ld; wait for it, or stop it", folder, owner)
                     : error_set("%s: in use by another weft run; wait for it, or stop it", folder);
}

static void unlock_folder(struct runner *run)
{
    if (run->lock >= 0)
        close(run->lock);
    run->lock = -1;
}

/* Appends the reasons why a partial folder cannot be resumed. */
static void compare_partial(struct buffer *out, const struct json *was, const struct json *identity,
                            const struct recipe_stage *s, const char *run)
{
    buffer_append(out, "", 0);
    if (!was)
        buffer_printf(out, "it has no identity.json");
    else if (!json_get(was, "stage_seed"))
        buffer_printf(out, "stage_seed (stages have seeds of their own now; an older program made this from the "
                           "recipe's)");
    if (was)
        identity_compare(out, was, identity, s, run);
}

/* Refuses checkpoints that another stage, or the same one with other settings, has made. */
static int check_makers(const char *checkpoints, const struct json *identity, const struct recipe_stage *s,
                        const char *run)
{
    struct json *makers = checkpoint_makers(checkpoints), *own = identity_maker(identity);
    struct json_iterator it;
    int status = 0;
    for (bool more = json_first(&it, makers); more && status == 0; more = json_next(&it, makers)) {
        struct buffer names = {0};
        identity_compare(&names, it.value, own, s, run);
        if (names.length)
            status = error_set("%s is a checkpoint of another stage or of other settings: %s. Restore the right one, "
                               "or pass --redo to rerun the stage",
                               it.key, names.data);
        buffer_release(&names);
    }
    json_free(makers);
    json_free(own);
    return status;
}

/* Opens or creates a partial folder and locks it.
 * identity.json in it records the stage's identity. */
static int open_partial(struct runner *run, const char *folder, const struct json *identity,
                        const struct recipe_stage *s)
{
    char *path = path_join(folder, "identity.json"), *checkpoints = path_join(folder, "checkpoints");
    char *inventory = path_join(folder, INVENTORY_FILE);
    struct json *was = NULL;
    struct buffer names = {0};
    int status = file_exists(folder) ? lock_folder(run, folder) : 0;
    if (status == 0) /* of a call that was killed when all was done but the folder's name */
        status = directory_remove(inventory);
    if (status == 0)
        status = load_optional(&was, path, folder, run->options->redo);
    compare_partial(&names, was, identity, s, run->recipe->root);
    if (status == 0 && was && names.length && file_exists(checkpoints) && !run->options->redo)
        status = refuse_change(folder, was, identity, names.data);
    else if (status == 0 && file_exists(folder) && names.length)
        status = directory_remove(folder); /* no checkpoints, or --redo */
    else if (status == 0 && check_makers(checkpoints, identity, s, run->recipe->root))
        status = run->options->redo ? directory_remove(folder) : -1;
    if (status == 0)
        status = directory_make(folder);
    if (status == 0) {
        unlock_folder(run);
        status = lock_folder(run, folder);
    }
    if (status == 0)
        status = directory_sweep(folder);
    if (status == 0)
        status = json_save(path, identity);
    buffer_release(&names);
    json_free(was);
    memory_free(path);
    memory_free(checkpoints);
    memory_free(inventory);
    return status;
}

/* skipped: why the stage made nothing, or NULL. */
static int finish(const char *partial, const char *folder, const struct json *identity, const char *skipped)
{
    char *path = path_join(partial, "done.json"), hash[20];
    struct json *done = json_object();
    identity_hash(hash, identity);
    json_set(done, "hash", json_of_string(hash));
    json_set(done, "identity", json_copy(identity));
    if (skipped)
        json_set(done, "skipped", json_of_string(skipped));
    int status = json_save(path, done);
    if (status == 0)
        status = inventory_save(partial);
    if (status == 0)
        status = directory_replace(partial, folder);
    json_free(done);
    memory_free(path);
    return status;
}

static const char timings_file[] = "timings.jsonl";

/* Finds out before the work that the timings cannot be written. */
static int check_timings(const struct recipe_stage *s)
{
    char *path = path_join(s->home, timings_file);
    int descriptor = file_exists(path) ? file_open_append(path) : -1, status = file_exists(path) && descriptor < 0;
    if (descriptor >= 0)
        close(descriptor);
    memory_free(path);
    return status ? -1 : 0;
}

static void append_timing(const char *path, const char *text, i64 bytes)
{
    int descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (descriptor < 0 || write(descriptor, text, (size_t)bytes) != bytes)
        log_warn("%s: cannot be written: %s; it lacks the time of this stage", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
}

static void log_line(const struct recipe_stage *s, struct json *line)
{
    char *path = path_join(s->home, timings_file);
    struct buffer text = {0};
    json_seal(line);
    json_print(&text, line, 0);
    buffer_append(&text, "\n", 1);
    append_timing(path, text.data, text.length);
    buffer_release(&text);
    json_free(line);
    memory_free(path);
}

static struct json *line_of(const struct recipe_stage *s)
{
    struct json *line = json_object();
    json_set(line, "stage", json_of_string(s->name));
    json_set(line, "kind", json_of_string(s->kind->name));
    json_set(line, "time", json_of_integer((i64)time(NULL)));
    return line;
}

/* Says in timings.jsonl that this process is at the stage: `weft report` tells by it whether a stage
 * goes on, and one that was killed from one that failed. */
static void log_begin(const struct recipe_stage *s)
{
    char host[256] = "";
    struct json *line = line_of(s);
    gethostname(host, sizeof host - 1);
    json_set(line, "begun", json_of_bool(true));
    json_set(line, "host", json_of_string(host));
    json_set(line, "process", json_of_integer(getpid()));
    json_set(line, "process_began", json_of_integer(process_began(getpid())));
    log_line(s, line);
}

/* Appends time and memory to timings.jsonl, as they are not part of a stage's result. Lines after
 * one with "finished" belong to a repeated stage. status: that of the stage; error: its message. */
static void log_timing(const struct recipe_stage *s, double seconds, int status, const char *error)
{
    struct json *line = line_of(s);
    json_set(line, "seconds", json_of_number(round(10 * seconds) / 10));
    json_set(line, "peak_bytes", json_of_integer(memory_peak_bytes()));
    if (status == 0)
        json_set(line, "finished", json_of_bool(true));
    else
        json_set(line, "ended", json_of_string(status < 0 ? "failed" : "interrupted"));
    if (status < 0)
        json_set(line, "error", json_of_string(error));
    log_line(s, line);
}

/* The line of a stage that ends the program, made without an allocation. */
static struct {
    char path[4096], begin[512];
    double begin_s;
    pid_t process; /* children that it forks do not end the stage */
} fatal;

static void hear_fatal(const char *message)
{
    char text[4096];
    if (getpid() != fatal.process)
        return;
    int n = snprintf(text, sizeof text,
                     "%s,\"time\":%lld,\"seconds\":%.1f,\"peak_bytes\":%lld,\"ended\":\"failed\",\"error\":\"",
                     fatal.begin, (long long)time(NULL), clock_s() - fatal.begin_s, (long long)memory_peak_bytes());
    for (; *message && n < (int)sizeof text - 16; message++) {
        if (*message == '"' || *message == '\\')
            text[n++] = '\\';
        text[n++] = (u8)*message < ' ' ? ' ' : *message;
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "\"}\n");
    append_timing(fatal.path, text, n);
}

static void listen_for_the_end(const struct recipe_stage *s)
{
    struct json *line = json_object();
    struct buffer text = {0};
    json_set(line, "stage", json_of_string(s->name));
    json_set(line, "kind", json_of_string(s->kind->name));
    json_print(&text, line, 0);
    snprintf(fatal.path, sizeof fatal.path, "%s/%s", s->home, timings_file);
    snprintf(fatal.begin, sizeof fatal.begin, "%.*s", (int)text.length - 1, text.data);
    fatal.begin_s = clock_s();
    fatal.process = getpid();
    fatal_listen(hear_fatal);
    buffer_release(&text);
    json_free(line);
}

/* Removes a partial folder in which the stage wrote nothing. */
static void remove_empty_partial(const char *partial)
{
    char **names;
    i64 count;
    if (!file_exists(partial) || directory_list(&names, &count, partial))
        return;
    if (count == 1 && strcmp(names[0], "identity.json") == 0)
        directory_remove(partial);
    string_list_free(names, count);
}

static int run_partial(struct runner *run, struct recipe_stage *s, const char *partial, const char *folder,
                       const struct json *identity)
{
    struct stage stage = {.name = s->name,
                          .out = partial,
                          .seed = seed_of(s),
                          .recipe_seed = s->seed,
                          .device = run->options->device,
                          .dtype = run->dtype,
                          .fp8 = run->fp8,
                          .calibrated = s->kind->work != LIGHT,
                          .ranks = s->kind->work == ON_RANKS ? &run->ranks : parallel_alone(),
                          .filler = run->options->filler,
                          .cluster = run->cluster.count ? &run->cluster : NULL};
    struct json *made_by = identity_maker(identity);
    struct members members = {.options = run->options, .stage = &stage, .identity = identity};
    stage.made_by = made_by;
    if (s->kind->work == ON_RANKS) {
        members_watch(&members, &stage);
        stage.snapshots = run->options->snapshots;
    }
    double begin = clock_s();
    char *what = string_format("stage %s (%s)", s->name, s->kind->name);
    memory_advise(what, s->kind->smaller);
    temporaries_remove_empty(partial, "identity.json");
    signals_say("%s: %s", s->name, s->kind->stops ? s->kind->stops : "it begins anew with the next call");
    if (is_first(run)) {
        log_begin(s);
        listen_for_the_end(s);
    }
    int status = s->kind->check ? s->kind->check(s->settings) : 0;
    status = status == 0 ? s->kind->run(s->settings, &stage) : status;
    if (members_end(&members, status) && status >= 0)
        status = -1;
    run->change = status == STAGE_RANKS;
    status = run->change ? STAGE_INTERRUPTED : status;
    memory_advise(NULL, NULL);
    temporaries_remove_empty(NULL, NULL);
    signals_say("stages that are done stay");
    fatal_listen(NULL);
    json_free(made_by);
    memory_free(what);
    if (status < 0 && error_status() == STATUS_INTERRUPTED)
        status = STAGE_INTERRUPTED;
    if (!is_first(run))
        return status;
    if (file_check_there(run->lock, partial)) /* whatever failed because of that */
        return -1;
    if (status == 0)
        status = finish(partial, folder, identity, NULL);
    char *error = string_copy(status < 0 ? error_text() : "");
    if (status < 0)
        remove_empty_partial(partial);
    log_timing(s, clock_s() - begin, status, error);
    memory_free(error);
    if (status == 0)
        log_info("%s%s: done in %.0f s", s->name, run->label, clock_s() - begin);
    return status;
}

/* Why the stage has nothing to do (memory_free), or NULL. */
static char *reason_to_skip(const struct recipe_stage *s)
{
    if (s->lacks)
        return string_format("it reads %s, which was skipped", s->lacks);
    return s->kind->absent ? s->kind->absent(s->settings) : NULL;
}

/* Returns 0 if the stage is due, with its partial folder open, or SKIPPED. */
static int begin_stage(struct runner *run, const struct recipe_stage *s, const char *partial, const char *folder,
                       const struct json *identity)
{
    int status = file_check_there(run->folder, run->recipe->root);
    if (status == 0)
        status = check_finished(run, folder, identity, s);
    if (status == 0)
        status = check_timings(s);
    if (status)
        return status;
    char *why = reason_to_skip(s);
    log_info("%s%s: %s%s", s->name, run->label, why ? "skipped: " : "", why ? why : s->kind->help);
    status = open_partial(run, partial, identity, s);
    if (status == 0) /* another process may have finished the stage before this one had the lock */
        status = check_finished(run, folder, identity, s);
    if (status == SKIPPED)
        directory_remove(partial);
    if (status == 0 && why)
        status = finish(partial, folder, identity, why) < 0 ? -1 : SKIPPED;
    memory_free(why);
    return status;
}

static int resolve_stage(struct runner *run, struct recipe_stage *s)
{
    return recipe_resolve(run->recipe, s);
}

static int run_stage(struct runner *run, struct recipe_stage *s)
{
    if (first_then_others(run, resolve_stage, s))
        return -1;
    char *folder = path_join(s->home, s->name), *partial = string_format("%s.partial", folder);
    struct json *identity = identity_of(run, s);
    char *what = string_format("stage %s%s", s->name, run->label);
    if (agree_with_first(run, json_copy(identity), what)) {
        memory_free(what);
        return -1;
    }
    memory_free(what);
    int status = is_first(run) ? begin_stage(run, s, partial, folder, identity) : 0;
    if (status >= 0 && is_first(run) && overrides_keep(run->recipe, s, precision_name(run), run->folder))
        status = -1;
    status = status_of_first(run, status);
    if (status == 0 && (is_first(run) || s->kind->work == ON_RANKS))
        status = run_partial(run, s, partial, folder, identity);
    status = status_of_first(run, status == SKIPPED ? 0 : status);
    unlock_folder(run);
    if (status < 0)
        error_prefix("stage %s%s", s->name, run->label);
    json_free(identity);
    memory_free(folder);
    memory_free(partial);
    return status;
}

/* ---- Runs: their folders, and the order of all stages ---- */

/* run.json of the folder of all runs names those that `weft report` shows, in the order of the recipe. */
static struct json *names_of_runs(const struct runner *run)
{
    struct json *names = json_array();
    size_t root = strlen(run->recipe->root);
    for (i64 i = 0; i < run->runs.count; i++)
        json_push(names, json_of_string(run->runs.list[i].run + root + 1));
    return names;
}

static bool has_parts(const struct runner *run)
{
    return run->runs.arm_count || run->runs.seed_count;
}

/* Brings "runs" of run.json up to date. stored: its content. */
static int store_runs(const struct runner *run, const char *path, const struct json *stored)
{
    struct json *now = json_object();
    struct json_iterator it;
    struct buffer was = {0}, is = {0};
    for (bool more = json_first(&it, stored); more; more = json_next(&it, stored))
        if (strcmp(it.key, "runs") != 0)
            json_set(now, it.key, json_copy(it.value));
    if (has_parts(run))
        json_set(now, "runs", names_of_runs(run));
    json_print(&was, stored, 0);
    json_print(&is, now, 0);
    bool same = json_kind(stored) != JSON_OBJECT || strcmp(was.data, is.data) == 0;
    int status = same ? 0 : json_save_sealed(path, now);
    buffer_release(&was);
    buffer_release(&is);
    json_free(now);
    return status;
}

/* run.json of a run of an arm or a seed. */
static int store_run(const struct runner *run, const struct recipe *r, const char *precision)
{
    char *path = path_join(r->run, "run.json");
    struct json *j = json_object();
    json_set(j, "precision", json_of_string(precision));
    json_set(j, "recipe", json_of_string(r->path));
    if (r->arm)
        json_set(j, "arm", json_of_string(r->arm));
    if (r->has_seeds)
        json_set(j, "seed", json_of_integer((i64)r->seed));
    int status = file_exists(path) && !run->options->redo ? 0 : directory_make(r->run);
    if (status == 0 && (!file_exists(path) || run->options->redo))
        status = json_save_sealed(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

/* Resolves precision=auto when the run begins and stores it in run.json. */
static int resolve_precision(struct runner *run, struct recipe_stage *none)
{
    (void)none;
    const struct recipe *r = run->recipe;
    char *path = path_join(r->root, "run.json");
    struct json *stored = NULL;
    if (load_optional(&stored, path, r->root, run->options->redo)) {
        memory_free(path);
        return -1;
    }
    bool can = run->options->device->has_bf16, automatic = strcmp(r->precision, "auto") == 0;
    const char *wanted = !automatic ? r->precision : json_string(json_get(stored, "precision"), can ? "bf16" : "f32");
    int status = 0;
    run->fp8 = strcmp(wanted, "fp8") == 0;
    run->dtype = run->fp8 || strcmp(wanted, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    if (run->dtype == DTYPE_BF16 && !can)
        status = error_set(
            "this run uses %s, which this device does not support efficiently%s: precision=f32 starts another run",
            wanted, run->fp8 ? " (products of 8 bits are computed in bf16)" : "");
    if (!stored && status == 0) {
        stored = json_object();
        json_set(stored, "precision", json_of_string(wanted));
        json_set(stored, "recipe", json_of_string(r->path));
        status = directory_make(r->root);
        if (status == 0)
            status = json_save_sealed(path, stored);
    }
    if (status == 0 && is_first(run))
        status = store_runs(run, path, stored);
    for (i64 i = 0; i < run->runs.count && status == 0 && has_parts(run) && is_first(run); i++)
        if (run->runs.list[i].chosen)
            status = store_run(run, &run->runs.list[i], wanted);
    json_free(stored);
    memory_free(path);
    return status;
}

/* The first rank keeps the folder of all runs open, to notice if somebody removes it. */
static int hold_folder(struct runner *run)
{
    run->folder = open(run->recipe->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->folder < 0)
        return error_errno("%s: cannot be opened", run->recipe->root);
    temporaries_sweep(run->recipe->root, NULL);
    for (i64 i = 0; i < run->runs.count && has_parts(run); i++)
        if (file_exists(run->runs.list[i].run))
            temporaries_sweep(run->runs.list[i].run, NULL);
    overrides_compare(run->recipe, precision_name(run));
    return 0;
}

/* One stage in all chosen runs, once in each folder. */
static int run_in_all(struct runner *run, i64 stage)
{
    int status = 0;
    for (i64 i = 0; i < run->runs.count && status == 0; i++) {
        struct recipe *r = &run->runs.list[i];
        if (!r->chosen || !r->stages[stage].selected || recipe_runs_maker(&run->runs, i, stage, true) != i)
            continue;
        if (comm_any(run->world, interrupted()))
            return STAGE_INTERRUPTED;
        char *which = recipe_runs_label(&run->runs, i, stage);
        run->recipe = r;
        run->label = *which ? string_format(" (%s)", which) : string_copy("");
        status = run_stage(run, &r->stages[stage]);
        memory_free(run->label);
        memory_free(which);
    }
    return status;
}

/* Stage by stage, and each run by run. What shows the results of all runs comes last. */
static int run_all(struct runner *run)
{
    int status = first_then_others(run, resolve_precision, NULL);
    if (status == 0 && is_first(run))
        status = hold_folder(run);
    for (int last = 0; last < 2; last++)
        for (i64 i = 0; i < run->recipe->count && status == 0; i++)
            if ((has_parts(run) && run->recipe->stages[i].kind->each_time) == last)
                status = run_in_all(run, i);
    return status;
}

/* A page of the run that was written while it went on would say that it does. */
static void renew_page(const struct runner *run)
{
    const char *root = run->recipe->root;
    char *page = path_join(root, "report.html"), *why = string_copy(error_text());
    int status = error_status();
    if (is_first(run) && file_exists(page)) {
        enum log_level level = log_set_level(LOG_SILENT);
        report_write(page, &root, 1); /* what ended the run is the message, not this */
        log_set_level(level);
        (void)(status == STATUS_USAGE ? error_usage("%s", why) : error_set("%s", why));
    }
    memory_free(page);
    memory_free(why);
}

static int open_recipe(struct runner *run, struct recipe_stage *none)
{
    const struct run_options *o = run->options;
    (void)none;
    if (o->cluster && is_first(run) && cluster_load(&run->cluster, o->cluster))
        return -1;
    int status = recipe_runs_open(&run->runs, o->words[0], o->words + 1, o->word_count - 1, o->arm, o->seed);
    for (i64 i = 0; i < run->runs.count && status == 0; i++) {
        struct recipe *r = &run->runs.list[i];
        if (!r->chosen)
            continue;
        run->recipe = run->recipe ? run->recipe : r;
        r->redo = o->redo;
        if (o->kinds)
            status = recipe_select_kinds(r, o->kinds);
        if (status == 0)
            status = recipe_check(r, &run->ranks.layout, true);
    }
    return status;
}

/* The stages of all chosen runs, in order. */
static struct json *stages_due(const struct runner *run)
{
    struct json *j = json_object(), *list = json_array();
    for (i64 i = 0; i < run->runs.count; i++)
        for (i64 s = 0; s < run->runs.list[i].count && run->runs.list[i].chosen; s++)
            if (run->runs.list[i].stages[s].selected)
                json_push(list, json_of_string(run->runs.list[i].stages[s].name));
    json_set(j, "the stages to run", list);
    return j;
}

int recipe_run(const struct run_options *options)
{
    struct runner run = {.options = options, .lock = -1, .folder = -1};
    int status = open_ranks(&run);
    if (status == 0)
        status = first_then_others(&run, open_recipe, NULL);
    if (status == 0)
        status = agree_with_first(&run, stages_due(&run), "weft run");
    if (status == 0)
        status = run_all(&run);
    if (status && run.folder >= 0)
        renew_page(&run);
    if (status < 0) { /* what other ranks may still use stays open */
        if (run.world && run.world->size > 1)
            comm_stop_with(run.world, error_status(), "%s", error_text());
        return -1;
    }
    if (status == STAGE_INTERRUPTED)
        log_info(run.change ? "saved, so that other ranks go on"
                            : "interrupted and saved; rerun the same command to resume");
    if (run.folder >= 0)
        close(run.folder);
    recipe_runs_close(&run.runs);
    cluster_release(&run.cluster);
    close_ranks(&run);
    return status;
}
