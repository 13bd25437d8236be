/* The reader's side of a ring: requests shards, waits for them, and runs the fillers. */
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#include "data/remote/remote.h"
#include "data/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS_MS = 5, RESTARTS_MOST = 8 }; /* limit for a filler killed each time before it closes a shard */

struct ring_partition {
    char *directory;
    i64 end;    /* number of shards; -1: not known yet */
    i64 wanted; /* shard last requested; -1: none */
    i64 sought; /* the next shard to look for while the count of a later pass is unknown */
    pid_t filler;
    int control, in_vain;
};
struct ring {
    char *stream;
    const char *const *words;
    struct ring_partition *partitions;
    i64 count, restarts;
    i64 reader; /* index among several readers; -1: sole reader */
    double waited_s;
    bool keep;
};

struct ring *ring_open(const char *directory, const char *stream, const char *const *filler)
{
    struct shard_stream plan;
    if (shard_stream_load(&plan, stream) < 0)
        return NULL;
    struct ring *r = memory_alloc(sizeof *r);
    int status = 0;
    *r = (struct ring){.stream = string_copy(stream),
                       .words = filler,
                       .count = plan.settings.stream.parts,
                       .reader = -1,
                       .keep = plan.settings.stream.keep};
    r->partitions = memory_alloc(r->count * (i64)sizeof *r->partitions);
    for (i64 i = 0; i < r->count; i++) {
        struct ring_partition *p = &r->partitions[i];
        *p = (struct ring_partition){.end = -1, .wanted = -1, .control = -1};
        p->directory = string_format("%s/%lld", directory, (long long)i);
        if (filler && status == 0)
            status = directory_make(p->directory);
    }
    shard_stream_release(&plan);
    if (status == 0)
        return r;
    ring_close(r);
    return NULL;
}

void ring_read_as(struct ring *r, i64 reader)
{
    r->reader = reader;
}

bool ring_keeps(const struct ring *r)
{
    return r->keep;
}

i64 ring_shards(const struct ring *r, i64 partition)
{
    return r->partitions[partition].end;
}

i64 ring_partitions(const struct ring *r)
{
    return r->count;
}

double ring_waited_s(const struct ring *r)
{
    return r->waited_s;
}

i64 ring_restarts(const struct ring *r)
{
    return r->restarts;
}

/* ---- The fillers ---- */

/* Runs the filler in the child, which the kernel kills when its parent ends. queries: a descriptor
 * that it inherits; -1: none. */
static _Noreturn void exec_filler(char **words, int control, int queries, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(control, STDIN_FILENO) >= 0 && (queries < 0 || fcntl(queries, F_SETFD, 0) == 0))
        execvp(words[0], words);
    _exit(127);
}

static char **filler_command(const struct ring *r, i64 partition, int queries)
{
    i64 count = 0;
    while (r->words[count])
        count++;
    char **words = memory_alloc((count + 8) * (i64)sizeof *words);
    for (i64 i = 0; i < count; i++)
        words[i] = string_copy(r->words[i]);
    if (queries >= 0) {
        words[count++] = string_copy("--queries");
        words[count++] = string_format("%d", queries);
    }
    words[count] = string_copy("--fill");
    words[count + 1] = string_copy(r->partitions[partition].directory);
    words[count + 2] = string_copy("--part");
    words[count + 3] = string_format("%lld/%lld", (long long)partition, (long long)r->count);
    words[count + 4] = string_copy(r->stream);
    return words;
}

static int start(struct ring *r, i64 partition)
{
    struct ring_partition *p = &r->partitions[partition];
    int pair[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return error_errno("cannot start the filler of %s", p->directory);
    int queries = address_queries_file();
    char **words = filler_command(r, partition, queries);
    p->filler = fork();
    if (p->filler == 0)
        exec_filler(words, pair[1], queries, parent);
    int status = p->filler < 0 ? error_errno("cannot start %s", words[0]) : 0;
    for (i64 i = 0; words[i]; i++)
        memory_free(words[i]);
    memory_free(words);
    if (queries >= 0)
        close(queries);
    close(pair[1]);
    p->control = pair[0];
    if (status < 0)
        p->filler = 0;
    return status;
}

static void reset_filler(struct ring_partition *p)
{
    if (p->control >= 0)
        close(p->control);
    p->control = -1;
    p->filler = 0;
}

static int handle_exit(struct ring *r, struct ring_partition *p, int status)
{
    reset_filler(p);
    if (WIFSIGNALED(status) && p->in_vain++ < RESTARTS_MOST) {
        log_warn("%s: its filler was killed by signal %d; restarting it", p->directory, WTERMSIG(status));
        r->restarts++;
        return 0;
    }
    if (WIFSIGNALED(status))
        return error_set("%s: its filler was killed by signal %d, %d %s before it wrote a shard: is there "
                         "enough memory for a second process?",
                         p->directory, WTERMSIG(status), RESTARTS_MOST, plural(RESTARTS_MOST, "time", "times"));
    if (WEXITSTATUS(status) == STATUS_INTERRUPTED)
        return error_interrupted();
    return error_set("%s: its filler exited with status %d: see its messages above", p->directory, WEXITSTATUS(status));
}

/* Tells the filler which shard is wanted. One of several readers stores its position in a file that
 * every filler reads, and may go back; a sole reader only sends it forward. */
static int send_position(struct ring *r, struct ring_partition *p, i64 number)
{
    if (r->reader < 0 ? number <= p->wanted : number == p->wanted)
        return 0;
    if (r->reader >= 0 && ring_put_reader(p->directory, r->reader, number) < 0)
        return -1;
    if (send(p->control, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof number || r->reader >= 0)
        p->wanted = number;
    return 0;
}

/* Makes sure that the filler runs and knows that shard `number` is wanted. A lost message is
 * harmless, because the next call sends it again. */
static int ensure_filler(struct ring *r, i64 partition, i64 number)
{
    struct ring_partition *p = &r->partitions[partition];
    int status;
    pid_t gone = p->filler ? waitpid(p->filler, &status, WNOHANG) : 0;
    if (!r->words)
        return 0;
    if (gone == p->filler && gone > 0 && handle_exit(r, p, status) < 0)
        return -1;
    if (!p->filler) {
        p->wanted = -1;
        if (start(r, partition) < 0)
            return -1;
    }
    return send_position(r, p, number);
}

bool ring_stop(struct ring *r)
{
    bool ended = true;
    for (i64 i = 0; i < r->count; i++) {
        struct ring_partition *p = &r->partitions[i];
        pid_t filler = p->filler;
        if (filler && p->control >= 0)
            kill(filler, SIGTERM);
        reset_filler(p); /* a signal before the filler's exec is lost, the end of its control is not */
        p->filler = filler && waitpid(filler, NULL, WNOHANG) == 0 ? filler : 0;
        ended &= p->filler == 0;
    }
    return ended;
}

void ring_close(struct ring *r)
{
    if (!r)
        return;
    ring_stop(r);
    for (i64 i = 0; i < r->count; i++) {
        if (r->partitions[i].filler)
            while (waitpid(r->partitions[i].filler, NULL, 0) < 0 && errno == EINTR)
                ;
        memory_free(r->partitions[i].directory);
    }
    memory_free(r->partitions);
    memory_free(r->stream);
    memory_free(r);
}

/* ---- Looking for shards ---- */

/* True if shard `number` exists or, with or_end, the partition is known to end before it. *status: 0,
 * or -1 and a message. */
static bool is_known(int *status, struct ring *r, i64 partition, i64 number, bool or_end)
{
    struct ring_partition *p = &r->partitions[partition];
    *status = ensure_filler(r, partition, number);
    if (*status < 0)
        return false;
    p->end = p->end < 0 ? ring_end(p->directory) : p->end;
    bool there = ring_has(p->directory, number);
    p->in_vain = there ? 0 : p->in_vain;
    return there || (or_end && p->end >= 0 && number >= p->end);
}

/* Finds a partition's shard count after its ring was lost in a later pass: lets the first pass be made
 * again and discards its shards until the count is known. */
static int seek_end(struct ring *r, i64 partition)
{
    struct ring_partition *p = &r->partitions[partition];
    int status;
    bool known = is_known(&status, r, partition, p->sought, true);
    if (known && p->end < 0 && r->reader < 0)
        status = ring_remove_before(p->directory, p->sought);
    p->sought += known && p->end < 0;
    return status;
}

int ring_look(char **directory, struct ring *r, i64 partition, i64 pass, i64 number)
{
    struct ring_partition *p = &r->partitions[partition];
    int status = 0;
    p->end = p->end < 0 ? ring_end(p->directory) : p->end;
    if (pass > 0 && p->end < 0)
        return seek_end(r, partition) < 0 ? -1 : RING_MAKING;
    i64 wanted = pass * max_i64(0, p->end) + number;
    bool known = (p->end >= 0 && number >= p->end) || is_known(&status, r, partition, wanted, pass == 0);
    if (status < 0)
        return -1;
    if (p->end >= 0 && number >= p->end)
        return RING_ENDED;
    if (!known)
        return RING_MAKING;
    *directory = ring_shard_path(p->directory, wanted);
    return RING_SHARD;
}

int ring_shard(char **directory, struct ring *r, i64 partition, i64 pass, i64 number)
{
    double begin = clock_s();
    int status = ring_look(directory, r, partition, pass, number);
    while (status == RING_MAKING) {
        status = interrupted() ? error_interrupted() : RING_MAKING;
        poll(NULL, 0, LOOKS_MS);
        if (status >= 0)
            status = ring_look(directory, r, partition, pass, number);
    }
    r->waited_s += clock_s() - begin;
    return status;
}

/* Drops passed shards. A partition that ended in an earlier round counts as passed up to its last
 * shard, behind which the next pass begins. */
int ring_passed(struct ring *r, i64 partition, i64 pass, i64 number)
{
    struct ring_partition *p = &r->partitions[partition];
    p->end = p->end < 0 ? ring_end(p->directory) : p->end;
    if (!r->words || (pass > 0 && p->end < 0))
        return 0;
    if (p->end >= 0)
        number = pass * p->end + min_i64(number, p->end);
    return ring_remove_before(p->directory, number);
}
