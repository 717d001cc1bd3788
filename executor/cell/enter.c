/* Who is the sandbox's first process, and how does it come to be?
 *
 * Theory of operation
 * -------------------
 * The process that was started is the outer one. It reads B, enters the cgroup, and clones the
 * inner one into new user, mount, pid, net, ipc and uts namespaces; then it writes the inner's
 * id maps and waits for it to end.
 *
 *   started by root   Sources are opened here, as detached mounts, while we may still see them.
 *                     The user namespace belongs to root, so that no process of the hook's uid
 *                     outside has any power over it. The inner one becomes the hook's uid.
 *   by another user   Detached mounts cannot cross into another user's mount namespace (EINVAL),
 *                     so the inner one opens the sources by path, and compares.
 *
 * One uid and one gid are mapped, onto themselves. Host uid 0 is never mapped: it could write
 * core_pattern without any capability, for sysctl looks at the uid.
 *
 * Making and ending a network namespace is the dearest step of all. Root's sandboxes enter one that
 * the executor keeps: nothing is in it, it belongs to root's user namespace and not to theirs, and
 * the filter leaves no call that could make a socket meet another there. An ordinary user may not
 * enter it, and gets one of its own.
 *
 * A v1 cgroup is entered through `tasks` with "0": a lone thread that moves itself does not take
 * the kernel's global lock, which costs 16 ms when nobody has taken it for a while. A v2 leaf is
 * entered by being born in it. The cgroup namespace is made after that: its root is the leaf.
 */
#define _GNU_SOURCE
#include "cell.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
enum { NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };
enum { KEYCTL_JOIN_SESSION = 1 };

struct clone3_arguments {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
};

static void enter_network(const char *path)
{
    int network = open(path, O_RDONLY | O_CLOEXEC);

    MUST(network, "namespaces", "network");
    MUST(setns(network, CLONE_NEWNET), "namespaces", "network");
    close(network);
}

static pid_t clone_inner(const struct build *build)
{
    unsigned long namespaces = NAMESPACES;

    if (build->network != NULL)
        namespaces &= ~(unsigned long)CLONE_NEWNET;
    if (build->leaf == NULL)
        return (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0);
    int leaf = open(build->leaf, O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(leaf, "cgroup", build->leaf);
    struct clone3_arguments arguments = {
        .flags = namespaces | CLONE_INTO_CGROUP,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)leaf,
    };
    pid_t inner = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    int error = errno;
    close(leaf);
    errno = error;
    return inner;
}

static void write_map(pid_t inner, const char *name, uint64_t id)
{
    char path[64], text[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)inner, name);
    snprintf(text, sizeof text, "%llu %llu 1\n", (unsigned long long)id, (unsigned long long)id);
    MUST(write_file(path, text), name, NULL);
}

static void deny_setgroups(pid_t inner)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/setgroups", (int)inner);
    if (write_file(path, "deny") < 0 && errno != ENOENT)
        setup_failed(errno, "setgroups", NULL);
}

/* The outer process from here on: nothing but the memory of a child. */
static _Noreturn void wait_for(pid_t inner)
{
    int status;

    syscall(SYS_close_range, 0U, ~0U, 0U);
    while (waitpid(inner, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static void check_identity(const struct build *build, bool root)
{
    const uint64_t none = (uint32_t)-1;

    if (build->uid == 0 || build->uid >= none || build->gid >= none || (root && build->gid == 0))
        setup_failed(EINVAL, "identity", "never host root");
    if (!root && (build->uid != geteuid() || build->gid != getegid()))
        setup_failed(EPERM, "identity", "only root chooses another id");
}

static void become(const struct build *build, bool root)
{
    gid_t groups[1];
    gid_t gid = (gid_t)build->gid;
    uid_t uid = (uid_t)build->uid;

    MUST(setresgid(gid, gid, gid), "setresgid", NULL);
    MUST(setresuid(uid, uid, uid), "setresuid", NULL);
    if (getuid() != uid || geteuid() != uid || getgid() != gid || getegid() != gid)
        setup_failed(EPERM, "identity", NULL);
    if (root && getgroups(1, groups) != 0)
        setup_failed(EPERM, "setgroups", NULL);
}

void enter_sandbox(struct reader *reader)
{
    struct build build;
    struct parts *parts = NULL;
    bool root = geteuid() == 0;
    int gate[2];
    char go;

    MUST(read_build(reader, &build), "build", NULL);
    check_identity(&build, root);
    MUST(chdir("/"), "chdir", "/");
    for (size_t i = 0; i < build.tasks.count; i++)
        MUST(write_file(build.tasks.items[i], "0"), "cgroup", build.tasks.items[i]);
    refuse_core_dumps();
    if (root) {
        MUST(setgroups(0, NULL), "setgroups", NULL);
        parts = collect_parts(&build);
    }
    if (build.network != NULL)
        enter_network(build.network);
    MUST(pipe2(gate, O_CLOEXEC), "pipe", NULL);
    pid_t inner = clone_inner(&build);
    MUST(inner, "namespaces", NULL);
    if (inner > 0) {
        close(gate[0]);
        deny_setgroups(inner);
        write_map(inner, "uid_map", build.uid);
        write_map(inner, "gid_map", build.gid);
        MUST(write(gate[1], "g", 1), "pipe", NULL);
        close(gate[1]);
        wait_for(inner);
    }
    close(gate[1]);
    if (read(gate[0], &go, 1) != 1)
        _exit(1); /* the outer process has told why */
    close(gate[0]);
    if (getpid() != 1)
        setup_failed(EPERM, "namespaces", "not the first process");
    MUST(unshare(CLONE_NEWCGROUP), "namespaces", "cgroup");
    become(&build, root);
    if (!root)
        parts = collect_parts(&build);
    build_root(&build, parts);
    sethostname("hook", 4);
    syscall(SYS_setdomainname, "(none)", 6);
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION, NULL);
    setsid();
    /* A change of ids clears it, so it comes late; a dead parent shows in the lifeline too. */
    MUST(prctl(PR_SET_PDEATHSIG, SIGKILL), "pdeathsig", NULL);
}

/* A core_pattern with a pipe ignores RLIMIT_CORE 0: an empty filter leaves it nothing to take. */
void refuse_core_dumps(void)
{
    write_file("/proc/self/coredump_filter", "0");
}

void drop_privileges(bool mandatory)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2], seen[2];
    unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
        SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
        SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

    memset(none, 0, sizeof none);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (prctl(PR_SET_SECUREBITS, bits) < 0 && mandatory)
        setup_failed(errno, "securebits", NULL);
    for (unsigned long number = 0; number < 64; number++) {
        if (prctl(PR_CAPBSET_DROP, number) == 0)
            continue;
        if (errno == EINVAL) /* beyond the last that this kernel knows */
            break;
        if (mandatory)
            setup_failed(errno, "capabilities", "bounding");
    }
    MUST(syscall(SYS_capset, &header, none), "capabilities", NULL);
    MUST(syscall(SYS_capget, &header, seen), "capabilities", NULL);
    for (int half = 0; half < 2; half++)
        if ((seen[half].effective | seen[half].permitted | seen[half].inheritable) != 0)
            setup_failed(EPERM, "capabilities", "left");
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs", NULL);
}
