/* Ways out of the sandbox of reward programs, as this user and, if that is root, as another one too. This
 * program is also the one that tries them: `test_sandbox attack NAME TARGET` answers 1 if it got out. */
#define _GNU_SOURCE /* syscall, posix_openpt */
#include "rl/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/scratch.h"

enum { NOBODY = 65534 };
static char self[4096]; /* path of this program */

/* ---- Attacks: true if they succeed. They say on stderr what did. ---- */

static bool opens(const char *path, int mode)
{
    int file = open(path, mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file >= 0)
        fprintf(stderr, "opened %s\n", path);
    return file >= 0;
}

/* A call on a pipe, which is no terminal, says ENOTTY unless it is refused. */
static bool is_refused_as_ioctl(unsigned long number)
{
    char letter[] = "\n";
    return syscall(SYS_ioctl, STDIN_FILENO, number, letter) == -1 && errno == EPERM;
}

static bool terminal(const char *target)
{
    bool refused =
        is_refused_as_ioctl(TIOCSTI) && is_refused_as_ioctl(TIOCSTI | 1UL << 40) && is_refused_as_ioctl(TIOCLINUX);
    if (!refused)
        fprintf(stderr, "TIOCSTI or TIOCLINUX is not refused\n");
    return opens("/dev/tty", O_RDWR) || opens(target, O_RDWR) || opens("/dev/ptmx", O_RDWR) ||
           opens("/dev/console", O_WRONLY) || !refused;
}

static bool own_terminal(const char *target) /* that of the session */
{
    (void)target;
    return opens("/dev/tty", O_RDWR) || tcgetpgrp(STDIN_FILENO) >= 0;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static bool stream_socket(const char *target)
{
    struct sockaddr_un address = address_of(target);
    int s = socket(AF_UNIX, SOCK_STREAM, 0), pair[2];
    if (s >= 0 && connect(s, (struct sockaddr *)&address, sizeof address) == 0)
        return true;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 &&
           connect(pair[0], (struct sockaddr *)&address, sizeof address) == 0;
}

static bool datagram_socket(const char *target)
{
    static const int kinds[] = {SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM};
    struct sockaddr_un address = address_of(target);
    for (i64 i = 0; i < COUNT_OF(kinds); i++) {
        int pair[2];
        char letter;
        if (socketpair(AF_UNIX, kinds[i] | SOCK_CLOEXEC, 0, pair) == 0 &&
            sendto(pair[0], "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof address) == 1 &&
            recv(pair[1], &letter, 1, MSG_DONTWAIT) != 1) /* not to the other end of the pair */
            return fprintf(stderr, "a datagram was sent to %s\n", target);
    }
    return false;
}

static bool families(const char *target)
{
    bool any = false;
    (void)target;
    for (int family = 1; family < 50; family++)
        for (int kind = SOCK_STREAM; kind <= SOCK_SEQPACKET; kind++) {
            bool allowed = (family == AF_INET || family == AF_INET6) && kind <= SOCK_DGRAM;
            int s = socket(family, kind, 0), number = errno;
            if (!allowed && (s >= 0 || number != EAFNOSUPPORT))
                fprintf(stderr, "a socket of family %d: %s\n", family, s < 0 ? strerror(number) : "opened");
            any |= !allowed && (s >= 0 || number != EAFNOSUPPORT);
            close(s);
        }
    return any;
}

static bool open_files(const char *target)
{
    (void)target;
    for (int i = 3; i < 4096; i++)
        if (fcntl(i, F_GETFD) >= 0)
            return fprintf(stderr, "file %d is open\n", i);
    return false;
}

static bool devices(const char *target)
{
    static const char *const paths[] = {"/dev/kmsg",  "/dev/loop0",   "/dev/loop-control", "/dev/fuse",
                                        "/dev/kvm",   "/dev/mem",     "/dev/net/tun",      "/dev/vda",
                                        "/dev/sda",   "/dev/nvme0n1", "/dev/rtc0",         "/dev/hwrng",
                                        "/dev/vsock", "/dev/mqueue",  "/dev/pts/ptmx"};
    bool any = opens(target, O_RDONLY);
    for (i64 i = 0; i < COUNT_OF(paths); i++)
        any |= opens(paths[i], O_RDONLY) || opens(paths[i], O_WRONLY);
    return any;
}

static bool named_pipe(const char *target)
{
    return opens(target, O_WRONLY) || opens(target, O_RDWR);
}

static bool processes(const char *target)
{
    i64 others = 0;
    DIR *folder = opendir("/proc");
    (void)target;
    for (struct dirent *e; folder && (e = readdir(folder));)
        others += atoi(e->d_name) > 0 && atoi(e->d_name) != getpid();
    return others > 0;
}

static bool system_settings(const char *target)
{
    static const char *const paths[] = {"/proc/sys/kernel/core_pattern",
                                        "/proc/sys/kernel/hostname",
                                        "/proc/sys/net/ipv4/ip_forward",
                                        "/proc/sysrq-trigger",
                                        "/proc/self/oom_score_adj",
                                        "/proc/self/mem",
                                        "/proc/self/exe",
                                        "/sys/power/state",
                                        "/sys/kernel/mm/transparent_hugepage/enabled",
                                        "/sys/fs/cgroup/cgroup.procs",
                                        "/sys/fs/cgroup/unified/cgroup.procs",
                                        "/sys/fs/cgroup/memory/cgroup.procs",
                                        "/sys/kernel/uevent_helper",
                                        "/dev/x"};
    bool any = false;
    (void)target;
    for (i64 i = 0; i < COUNT_OF(paths); i++)
        any |= opens(paths[i], O_WRONLY | (strncmp(paths[i], "/dev/", 5) == 0 ? O_CREAT : 0));
    return any;
}

/* Their arguments are wrong or harmless, so that they say something else unless they are refused. */
static bool calls(const char *target)
{
    static const struct {
        const char *name;
        long number, arguments[4];
    } list[] = {
#define CALL(name, ...)                                                                                                \
    {                                                                                                                  \
#name, SYS_##name,                                                                                             \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
        CALL(process_vm_readv, 1),
        CALL(process_vm_writev, 1),
        CALL(pidfd_getfd, -1),
        CALL(kcmp, 1, 1, 1),
        CALL(keyctl, 0, -3),
        CALL(add_key),
        CALL(request_key),
        CALL(bpf, 0),
        CALL(perf_event_open, 0, 0, -1, -1),
        CALL(userfaultfd, 1),
        CALL(io_uring_setup, 1),
        CALL(io_uring_enter, -1),
        CALL(io_uring_register, -1),
        CALL(unshare, 0),
        CALL(unshare, CLONE_NEWUSER),
        CALL(setns, -1),
        CALL(clone3),
        CALL(clone, CLONE_NEWUSER | SIGCHLD),
        CALL(clone, CLONE_NEWPID | SIGCHLD),
        CALL(mount),
        CALL(umount2),
        CALL(pivot_root),
        CALL(open_tree, AT_FDCWD, (long)"/"),
        CALL(move_mount, -1),
        CALL(fsopen),
        CALL(fspick, -1),
        CALL(mount_setattr, -1),
        CALL(personality, -1),
        CALL(memfd_create, (long)"x"),
        CALL(semget, 0, 1, 0600),
        CALL(inotify_init1, 0),
        CALL(msgget, 0, 0600),
        CALL(fcntl, STDIN_FILENO, F_SETLEASE, F_RDLCK),
        CALL(shmget, 0, 4096, 0600),
        CALL(syslog, 10),
        CALL(prctl, PR_SET_PDEATHSIG, 0),
        CALL(prctl, PR_SET_PDEATHSIG | 1L << 40, 0),
        {"one that is too new", 463, {0}},
        {"an unknown one", 5000, {0}},
        {"one of x32", 0x40000000L | SYS_getpid, {0}},
        CALL(ptrace, 0), /* last: signals stop it from then on */
#undef CALL
    };
    bool any = false;
    (void)target;
    for (i64 i = 0; i < COUNT_OF(list); i++) {
        const long *a = list[i].arguments;
        errno = 0;
        long result = syscall((long)list[i].number, a[0], a[1], a[2], a[3], 0, 0);
        if (result == 0 && list[i].number == SYS_clone)
            _exit(0);
        int number = errno;
        waitpid(-1, NULL, __WALL);
        if (result >= 0 && list[i].number == SYS_shmget)
            shmctl((int)result, IPC_RMID, NULL);
        if (result >= 0 && list[i].number == SYS_semget)
            semctl((int)result, 0, IPC_RMID);
        if (result >= 0 && list[i].number == SYS_msgget)
            msgctl((int)result, IPC_RMID, NULL);
        if (result == -1 && (number == EPERM || number == ENOSYS))
            continue;
        fprintf(stderr, "%s gives %ld (%s)\n", list[i].name, result, strerror(number));
        any = true;
    }
    return any;
}

static void answer(bool success)
{
    printf("{\"score\":%d}\n", success);
    fflush(stdout);
}

static void answer_no(int number)
{
    (void)number;
    _exit(write(STDOUT_FILENO, "{\"score\":0}\n", 12) != 12);
}

/* The calls of 32-bit programs have other numbers. */
static bool calls_of_i386(const char *target)
{
    (void)target;
#ifdef __x86_64__
    long result = 20;           /* getpid */
    signal(SIGSEGV, answer_no); /* a system without them */
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return result > 0;
#else
    return false;
#endif
}

/* ---- What a program may do ---- */

static void *return_it(void *context)
{
    return context;
}

/* Threads, processes, pairs of sockets, programs, its devices and its TMPDIR work. */
static bool usual(const char *target)
{
    pthread_t thread;
    int pair[2];
    (void)target;
    bool fine = pthread_create(&thread, NULL, return_it, NULL) == 0 && pthread_join(thread, NULL) == 0;
    fine = fine && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && write(pair[0], "x", 1) == 1;
    fine =
        fine && socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP) >= 0 && socket(AF_INET6, SOCK_DGRAM, 0) >= 0;
    fine = fine && prctl(PR_SET_NAME, "judge") == 0;
    return fine &&
           system("set -e; cd \"$TMPDIR\"; echo x > /dev/null; [ $(head -c 3 /dev/zero | wc -c) = 3 ]\n"
                  "[ $(head -c 3 /dev/urandom | wc -c) = 3 ]\n"
                  "if [ -e /proc/self ]; then echo x > /dev/stderr; [ \"$(echo y | cat /dev/stdin)\" = y ]; fi\n"
                  "mkdir a b; echo z > a/f; ln a/f b/f; mv a/f b/g; [ \"$(cat b/f b/g | tr -d '\\n')\" = zz ]\n"
                  "mkfifo p; (echo q > p) & [ \"$(cat p)\" = q ]; wait; chmod 700 b; rm -r a b p") == 0;
}

/* ---- Memory ---- */

enum { HOGS = 6, HOG_BYTES = 80 << 20 };

static void *fill(void *context)
{
    char *bytes = mmap(NULL, HOG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)context;
    for (i64 i = 0; bytes != MAP_FAILED && i < HOG_BYTES; i += 4096)
        bytes[i] = 1;
    return bytes;
}

static void *fill_and_wait(void *context)
{
    fill(context);
    while (pause()) {
    }
    return context;
}

/* Processes that take much together, but little each. */
static bool hogs(const char *target)
{
    pthread_t thread;
    bool leaderless =
        strcmp(target, "leaderless") == 0; /* their first threads end, so that /proc shows no size of theirs */
    for (int i = 0; i < HOGS; i++)
        if (fork() == 0) {
            if (!leaderless)
                fill_and_wait(NULL);
            pthread_create(&thread, NULL, fill_and_wait, NULL);
            pthread_exit(NULL);
        }
    usleep(20000000); /* its limit is met long before */
    return true;
}

/* Processes that share what one of them has taken. */
static bool sharers(const char *target)
{
    volatile char *bytes = fill(NULL);
    (void)target;
    for (int i = 0; i < HOGS; i++)
        if (fork() == 0) {
            for (i64 k = 0; k < HOG_BYTES; k += 4096)
                (void)bytes[k];
            for (;;)
                pause();
        }
    usleep(700000);
    return true;
}

static void *wait_forever(void *context)
{
    while (pause()) {
    }
    return context;
}

static bool threads(const char *target)
{
    for (int i = 0; i < atoi(target); i++) {
        pthread_t thread;
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        if (pthread_create(&thread, &small, wait_forever, NULL))
            return false;
    }
    usleep(700000);
    return true;
}

/* Tries to outlive its parent. */
static bool stay(const char *target)
{
    (void)target;
    prctl(PR_SET_PDEATHSIG, 0);
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0)
        setsid();
    for (int i = 0; i < 3; i++)
        close(i);
    while (pause()) {
    }
    return true;
}

static const struct attack {
    const char *name;
    bool (*run)(const char *target);
} attacks[] = {{"terminal", terminal},
               {"own_terminal", own_terminal},
               {"stream_socket", stream_socket},
               {"datagram_socket", datagram_socket},
               {"families", families},
               {"open_files", open_files},
               {"devices", devices},
               {"named_pipe", named_pipe},
               {"processes", processes},
               {"system_settings", system_settings},
               {"calls", calls},
               {"calls_of_i386", calls_of_i386},
               {"usual", usual},
               {"stay", stay},
               {"hogs", hogs},
               {"sharers", sharers},
               {"threads", threads}};

static _Noreturn void attack(const char *name, const char *target)
{
    for (i64 i = 0; i < COUNT_OF(attacks); i++)
        if (strcmp(attacks[i].name, name) == 0)
            answer(attacks[i].run(target));
    _exit(0); /* no search for leaks, which needs ptrace */
}

/* ---- Asking them ---- */

/* 1: the attack succeeded, 0: it did not, -1: no answer. */
static double score_of(const char *name, const char *target, const struct program_limits *limits)
{
    char *const argv[] = {self, "attack", (char *)(uintptr_t)name, (char *)(uintptr_t)target, NULL};
    struct json *answers[1], *question = json_object();
    double score = -1;
    if (program_ask(answers, argv, &question, 1, limits) == 0) {
        score = json_number(json_get(answers[0], "score"), -1);
        json_free(answers[0]);
    }
    json_free(question);
    return score;
}

/* Runs a check in a process of its own: as this user, or as nobody with his terminal. */
static int check_as(int user, const char *terminal_path, int (*check)(void))
{
    int how = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int file = open(terminal_path, O_RDWR | O_CLOEXEC); /* becomes that of the session */
        if (user && (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
            _exit(99);
        prctl(PR_SET_DUMPABLE, 1); /* else its files in /proc are root's */
        if (access(self, X_OK) || chdir("/")) {
            fprintf(stderr, "not tried as another user, who may not run %s\n", self);
            _exit(0);
        }
        int failed = file < 0;
        _exit(failed + check());
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 100;
}

static char stream_path[128], datagram_path[128], pipe_path[128], device_path[128], terminal_path[128];

static int expect_score(double expected, const char *name, const char *target, bool sandbox)
{
    const struct program_limits limits = {
        .seconds = TEST_SECONDS_MOST, .memory_mb = 1000000000 /* for sanitizers */, .sandbox = sandbox};
    if (sandbox && program_check_sandbox()) {
        fprintf(stderr, "%s is not tried as user %d: %s\n", name, (int)getuid(), error_text());
        return 0;
    }
    int shown = dup(STDERR_FILENO), dropped = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (expected == 1)
        dup2(dropped, STDERR_FILENO); /* what succeeded is of no interest then */
    double score = score_of(name, target, &limits);
    dup2(shown, STDERR_FILENO);
    close(shown);
    close(dropped);
    if (score != expected)
        fprintf(stderr, "%s %s as user %d, sandbox %s: %g, expected %g %s\n", name, target, (int)getuid(),
                sandbox ? "on" : "off", score, expected, score < 0 ? error_text() : "");
    return score != expected;
}

/* Without a sandbox these reach something, so that each is known to work. */
static int attacks_work_outside(void)
{
    return expect_score(1, "terminal", terminal_path, false) + expect_score(1, "stream_socket", stream_path, false) +
           expect_score(1, "datagram_socket", datagram_path, false) + expect_score(1, "named_pipe", pipe_path, false) +
           expect_score(1, "families", "", false) + expect_score(1, "processes", "", false) +
           expect_score(1, "calls", "", false);
}

static int attacks_fail_inside(void)
{
    return expect_score(0, "terminal", terminal_path, true) + expect_score(0, "stream_socket", stream_path, true) +
           expect_score(0, "datagram_socket", datagram_path, true) + expect_score(0, "families", "", true) +
           expect_score(0, "devices", device_path, true) + expect_score(0, "processes", "", true) +
           expect_score(0, "system_settings", "", true) + expect_score(0, "calls", "", true) +
           expect_score(0, "calls_of_i386", "", true) + expect_score(1, "usual", "", true);
}

static int pipes_are_barred(void)
{
    return expect_score(0, "named_pipe", pipe_path, true);
}

/* Whether there is a sandbox or not. */
static int nothing_is_inherited(void)
{
    return expect_score(0, "open_files", "", false) + expect_score(0, "open_files", "", true) +
           expect_score(0, "own_terminal", "", false) + expect_score(0, "own_terminal", "", true);
}

static int listen_at(const char *path, int kind)
{
    struct sockaddr_un address = address_of(path);
    int s = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    assert_true(kind == SOCK_DGRAM || listen(s, 50) == 0);
    assert_int_equal(chmod(path, 0777), 0);
    return s;
}

static int count_failures(int (*check)(void))
{
    int failed = check_as(0, terminal_path, check);
    if (getuid() == 0)
        return failed + check_as(NOBODY, terminal_path, check);
    print_message("not tried as another user, because this one is not root\n");
    return failed;
}

TEST(ways_out_are_closed)
{
    int pty = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_int_equal(chmod(directory, 0755), 0);
    snprintf(stream_path, sizeof stream_path, "%s/stream", directory);
    snprintf(datagram_path, sizeof datagram_path, "%s/datagram", directory);
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", directory);
    snprintf(device_path, sizeof device_path, "%s/device", directory);
    assert_true(pty >= 0 && grantpt(pty) == 0 && unlockpt(pty) == 0);
    assert_int_equal(ptsname_r(pty, terminal_path, sizeof terminal_path), 0);
    assert_int_equal(chmod(terminal_path, 0666), 0);
    int stream = listen_at(stream_path, SOCK_STREAM), datagram = listen_at(datagram_path, SOCK_DGRAM);
    assert_true(mkfifo(pipe_path, 0666) == 0 && chmod(pipe_path, 0666) == 0);
    int pipe_end = open(pipe_path, O_RDWR | O_CLOEXEC), kept = open("/dev/null", O_RDWR); /* not to be closed by exec */
    assert_true(pipe_end >= 0 && kept >= 0);
    if (getuid() || mknod(device_path, S_IFCHR | 0666, 1 << 8 | 5 /* zero */))
        print_message("a device outside /dev is not tried, because this user may not make one\n");
    else
        chmod(device_path, 0666);

    assert_int_equal(count_failures(attacks_work_outside), 0);
    if (program_check_sandbox()) {
        print_message("%s\n", error_text());
        assert_says("sandbox: off");
    } else {
        assert_int_equal(count_failures(attacks_fail_inside), 0);
        assert_int_equal(count_failures(nothing_is_inherited), 0);
        if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0)
            assert_int_equal(count_failures(pipes_are_barred), 0);
        else
            print_message("named pipes are not tried, because this system has no Landlock\n");
    }
    close(stream);
    close(datagram);
    close(pipe_end);
    close(kept);
    close(pty);
}

/* Processes with this word in their command line. */
static i64 running(const char *word)
{
    char **names;
    i64 count, found = 0;
    assert_int_equal(directory_list(&names, &count, "/proc"), 0);
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("/proc/%s/cmdline", names[i]), line[4096];
        FILE *file = fopen(path, "re");
        size_t n = file ? fread(line, 1, sizeof line, file) : 0;
        found += memmem(line, n, word, strlen(word)) != NULL;
        if (file)
            fclose(file);
        memory_free(path);
    }
    string_list_free(names, count);
    return found;
}

TEST(a_sandboxed_program_ends_when_weft_is_killed)
{
    const struct program_limits limits = {.seconds = TEST_SECONDS_MOST, .memory_mb = 1000000000, .sandbox = 1};
    char word[64];
    int how;
    if (program_check_sandbox()) {
        print_message("%s\n", error_text());
        skip();
    }
    snprintf(word, sizeof word, "stays-of-%ld", (long)getpid());
    pid_t weft = fork();
    if (weft == 0) {
        score_of("stay", word, &limits);
        _exit(0);
    }
    while (running(word) < 2)
        usleep(10000);
    assert_int_equal(waitpid(weft, &how, WNOHANG), 0);
    kill(weft, SIGKILL);
    assert_int_equal(waitpid(weft, &how, 0), weft);
    for (int i = 0; running(word) > 0; i++) {
        assert_true(i < 6000);
        usleep(10000);
    }
}

TEST(memory_is_limited_together)
{
    if (is_sanitized()) {
        print_message("not under a sanitizer, whose shadow has no room in the limits\n");
        skip();
    }
    for (int sandbox = 0; sandbox < 2; sandbox++) {
        const struct program_limits limits = {
            .seconds = TEST_SECONDS_MOST, .memory_mb = 400, .processes = 20, .sandbox = sandbox};
        if (sandbox && program_check_sandbox()) {
            print_message("%s\n", error_text());
            continue;
        }
        assert_true(score_of("hogs", "", &limits) == -1);
        assert_says("program_memory");
        assert_true(score_of("hogs", "leaderless", &limits) == -1);
        assert_says("program_memory");
        assert_true(score_of("sharers", "", &limits) == 1);
        assert_true(score_of("threads", "1000", &limits) == 1);
        assert_true(score_of("threads", "1200", &limits) == -1);
        assert_says("program_processes");
    }
}

int main(int count, char **arguments)
{
    if (count > 3 && strcmp(arguments[1], "attack") == 0)
        attack(arguments[2], arguments[3]);
    char *slash = strrchr(arguments[0], '/');
    require(slash != NULL, "call it by its path");
    *slash = 0;
    char *folder = realpath(arguments[0], NULL);
    snprintf(self, sizeof self, "%s/%s", folder, slash + 1);
    free(folder);
    log_set_level(LOG_QUIET);
    return tests_run(make_directory, remove_directory);
}
