/* The system calls that a sandboxed program is refused: those that reach the user's terminal, sockets
 * by path, other processes, keys, mounts, new namespaces, and rarely used parts of the kernel in which
 * faults are found often. The filter is plain BPF: it has no loops and one table, so a library for it
 * would replace nothing but the macros below. */
#include "rl/program_sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
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
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define REFUSE_BY(number) RETURN(SECCOMP_RET_ERRNO | (number))
/* Goes on with the next instruction, or passes `other` of them over. */
#define IF(value, other) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, other)
#define IF_ABOVE(value, other) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, value, 0, other)
#define IF_ANY_BIT(bits, other) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, other)
#define REFUSE(call) IF(SYS_##call, 1), REFUSE_BY(EPERM)

static struct sock_filter filter[] = {
#ifdef OWN_CALLS
    LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_CALLS, 1, 0), REFUSE_BY(ENOSYS), /* calls of i386 */
#endif
    LOAD(nr), IF_ABOVE(LAST_KNOWN, 1), REFUSE_BY(ENOSYS),
    /* terminals */
    IF(SYS_ioctl, 6), LOAD(args[1]), IF(TIOCSTI, 1), REFUSE_BY(EPERM), IF(TIOCLINUX, 1), REFUSE_BY(EPERM), ALLOW,
    REFUSE(vhangup),
    /* Sockets: no AF_UNIX, whose addresses are paths, and no AF_VSOCK, which the namespace of the
     * network does not cover. A pair of datagram sockets could send to any path. */
    IF(SYS_socket, 6), LOAD(args[0]), IF(AF_INET, 1), ALLOW, IF(AF_INET6, 1), ALLOW, REFUSE_BY(EAFNOSUPPORT),
    IF(SYS_socketpair, 9), LOAD(args[0]), IF(AF_UNIX, 6), LOAD(args[1]),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf /* SOCK_TYPE_MASK */), IF(SOCK_STREAM, 1), ALLOW, IF(SOCK_SEQPACKET, 1),
    ALLOW, REFUSE_BY(EPERM), REFUSE(io_uring_setup), REFUSE(io_uring_enter), REFUSE(io_uring_register),
    /* namespaces and mounts; the flags of clone3 are in memory, and callers go back to clone */
    IF(SYS_clone, 4), LOAD(args[0]), IF_ANY_BIT(NEW_NAMESPACES, 1), REFUSE_BY(EPERM), ALLOW, IF(SYS_clone3, 1),
    REFUSE_BY(ENOSYS), REFUSE(unshare), REFUSE(setns), REFUSE(mount), REFUSE(umount2), REFUSE(pivot_root),
    REFUSE(chroot), REFUSE(open_tree), REFUSE(move_mount), REFUSE(fsopen), REFUSE(fsconfig), REFUSE(fsmount),
    REFUSE(fspick), REFUSE(mount_setattr), REFUSE(open_by_handle_at), REFUSE(fanotify_init), REFUSE(quotactl),
    REFUSE(quotactl_fd), REFUSE(swapon), REFUSE(swapoff),
    /* processes: the first of a sandbox must end with its parent */
    IF(SYS_prctl, 4), LOAD(args[0]), IF(PR_SET_PDEATHSIG, 1), REFUSE_BY(EPERM), ALLOW, REFUSE(ptrace),
    REFUSE(process_vm_readv), REFUSE(process_vm_writev), REFUSE(process_madvise), REFUSE(pidfd_getfd), REFUSE(kcmp),
    REFUSE(personality), REFUSE(move_pages), REFUSE(migrate_pages),
    /* keys of the user */
    REFUSE(keyctl), REFUSE(add_key), REFUSE(request_key),
    /* memory that no process's size shows, so that no limit counts it */
    IF(SYS_memfd_create, 1), REFUSE_BY(ENOSYS), REFUSE(memfd_secret), REFUSE(shmget),
    /* parts of the kernel */
    REFUSE(bpf), REFUSE(perf_event_open), REFUSE(userfaultfd), REFUSE(syslog), REFUSE(acct), REFUSE(reboot),
    REFUSE(kexec_load), REFUSE(init_module), REFUSE(finit_module), REFUSE(delete_module), REFUSE(lookup_dcookie),
    REFUSE(settimeofday), REFUSE(clock_settime), REFUSE(adjtimex), REFUSE(clock_adjtime), REFUSE(sethostname),
    REFUSE(setdomainname), REFUSE(nfsservctl),
#ifdef __x86_64__
    REFUSE(kexec_file_load), REFUSE(iopl), REFUSE(ioperm), REFUSE(modify_ldt), REFUSE(uselib), REFUSE(ustat),
    REFUSE(sysfs), REFUSE(_sysctl),
#endif
    ALLOW};

int sandbox_bar_calls(void)
{
    struct sock_fprog program = {COUNT_OF(filter), filter};
    /* SPEC_ALLOW: older kernels otherwise make the whole program slower, against itself. */
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}
