/* The system calls that a sandboxed program is refused: those that reach the user's terminal, sockets
 * by path, other processes, keys, mounts, new namespaces, and rarely used parts of the kernel in which
 * faults are found often. The filter is plain BPF: it has no loops and one table, so a library for it
 * would replace nothing but the macros below. */
#define _GNU_SOURCE /* F_SETLEASE */
#include "rl/program_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define OWN_CALLS AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define OWN_CALLS AUDIT_ARCH_AARCH64
#endif

/* The last call whose effect is known here (mseal). Newer ones are refused, and so are those of x32,
 * whose numbers are far above. */
enum { LAST_KNOWN = 462 };
enum {
    NEW_NAMESPACES =
        CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
};

/* Both machines are little-endian, so the low half of an argument comes first. The kernel ignores the
 * high half of those that are looked at, and so must the filter. */
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define SOCKET_KIND BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf) /* without flags such as SOCK_CLOEXEC */
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define REFUSE_BY(number) RETURN(SECCOMP_RET_ERRNO | (number))
#define COMPARE(how, value, yes, no) BPF_JUMP(BPF_JMP | (how) | BPF_K, value, yes, no)
/* IF goes on with the next instruction, or skips `other` of them. */
#define IF(value, other) COMPARE(BPF_JEQ, value, 0, other)
#define IF_ABOVE(value, other) COMPARE(BPF_JGT, value, 0, other)
#define IF_ANY_BIT(bits, other) COMPARE(BPF_JSET, bits, 0, other)
#define SKIP_IF(value, skipped) COMPARE(BPF_JEQ, value, skipped, 0)
#define SKIP_IF_ABOVE(value, skipped) COMPARE(BPF_JGT, value, skipped, 0)
#define REFUSE(call) IF(SYS_##call, 1), REFUSE_BY(EPERM)

/* clang-format off */
static struct sock_filter filter[] = {
#ifdef OWN_CALLS
    LOAD(arch), SKIP_IF(OWN_CALLS, 1), REFUSE_BY(ENOSYS), /* calls of i386 */
#endif
    LOAD(nr), IF_ABOVE(LAST_KNOWN, 1), REFUSE_BY(ENOSYS),

    /* terminals */
    IF(SYS_ioctl, 6), LOAD(args[1]), IF(TIOCSTI, 1), REFUSE_BY(EPERM), IF(TIOCLINUX, 1), REFUSE_BY(EPERM), ALLOW,
    REFUSE(vhangup),

    /* Sockets of the own network, which has no other end, and of no kind that loads a driver. None of
     * AF_UNIX, whose addresses are paths; a pair of datagram sockets could send to any. None of AF_VSOCK,
     * which reaches beyond the own network. */
    IF(SYS_socket, 14), LOAD(args[0]), SKIP_IF(AF_INET, 1), IF(AF_INET6, 10),
        LOAD(args[1]), SOCKET_KIND, SKIP_IF_ABOVE(SOCK_DGRAM, 7),
        LOAD(args[2]), IF(0, 1), ALLOW, IF(IPPROTO_TCP, 1), ALLOW, IF(IPPROTO_UDP, 1), ALLOW,
        REFUSE_BY(EAFNOSUPPORT),
    IF(SYS_socketpair, 9), LOAD(args[0]), IF(AF_UNIX, 6),
        LOAD(args[1]), SOCKET_KIND, IF(SOCK_STREAM, 1), ALLOW, IF(SOCK_SEQPACKET, 1), ALLOW,
        REFUSE_BY(EPERM),
    REFUSE(io_uring_setup), REFUSE(io_uring_enter), REFUSE(io_uring_register),

    /* namespaces and mounts; the flags of clone3 are in memory, and callers go back to clone */
    IF(SYS_clone, 4), LOAD(args[0]), IF_ANY_BIT(NEW_NAMESPACES, 1), REFUSE_BY(EPERM), ALLOW,
    IF(SYS_clone3, 1), REFUSE_BY(ENOSYS),
    REFUSE(unshare), REFUSE(setns), REFUSE(mount), REFUSE(umount2), REFUSE(pivot_root), REFUSE(chroot),
    REFUSE(open_tree), REFUSE(move_mount), REFUSE(fsopen), REFUSE(fsconfig), REFUSE(fsmount), REFUSE(fspick),
    REFUSE(mount_setattr), REFUSE(quotactl), REFUSE(quotactl_fd), REFUSE(swapon), REFUSE(swapoff),

    /* files: a lease makes those who open the file wait, and inotify is scarce for all programs of a user */
    IF(SYS_fcntl, 4), LOAD(args[1]), IF(F_SETLEASE, 1), REFUSE_BY(EPERM), ALLOW,
    REFUSE(open_by_handle_at), REFUSE(inotify_init1), REFUSE(fanotify_init),

    /* processes: the first of a sandbox must end with its parent */
    IF(SYS_prctl, 4), LOAD(args[0]), IF(PR_SET_PDEATHSIG, 1), REFUSE_BY(EPERM), ALLOW,
    REFUSE(ptrace), REFUSE(process_vm_readv), REFUSE(process_vm_writev), REFUSE(process_madvise), REFUSE(pidfd_getfd),
    REFUSE(kcmp), REFUSE(personality), REFUSE(move_pages), REFUSE(migrate_pages),

    /* keys of the user */
    REFUSE(keyctl), REFUSE(add_key), REFUSE(request_key),

    /* memory that the size of no process shows */
    IF(SYS_memfd_create, 1), REFUSE_BY(ENOSYS), REFUSE(memfd_secret), REFUSE(shmget), REFUSE(semget), REFUSE(msgget),

    /* parts of the kernel */
    REFUSE(bpf), REFUSE(perf_event_open), REFUSE(userfaultfd), REFUSE(syslog), REFUSE(acct), REFUSE(reboot),
    REFUSE(kexec_load), REFUSE(init_module), REFUSE(finit_module), REFUSE(delete_module), REFUSE(lookup_dcookie),
    REFUSE(settimeofday), REFUSE(clock_settime), REFUSE(adjtimex), REFUSE(clock_adjtime), REFUSE(sethostname),
    REFUSE(setdomainname), REFUSE(nfsservctl),
#ifdef __x86_64__
    REFUSE(kexec_file_load), REFUSE(iopl), REFUSE(ioperm), REFUSE(modify_ldt), REFUSE(uselib), REFUSE(ustat),
    REFUSE(sysfs), REFUSE(_sysctl), REFUSE(inotify_init),
#endif
    ALLOW};
/* clang-format on */

int sandbox_bar_calls(void)
{
    struct sock_fprog program = {COUNT_OF(filter), filter};
    /* SPEC_ALLOW: older kernels otherwise make the whole program slower, against itself. */
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}
