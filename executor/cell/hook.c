/* How does a fork of the cell become the hook?
 *
 * Everything that is the hook's alone happens here, in this order: session and descriptors,
 * signals, weight, limits, working directory, then the walls that cannot be taken back: Landlock,
 * and seccomp last. Capabilities and no-new-privileges were settled by PID 1 before.
 *
 * What fails is told through a close-on-exec pipe; its silent end means that the hook runs.
 */
#define _GNU_SOURCE
#include "cell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REPORT = EMIT + 1, NICENESS = 10 };
#define RESOLVE_NO_LINKS 0x6U /* RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS */

struct how {
    uint64_t flags, mode, resolve;
};

static _Noreturn void give_up(int error, const char *stage)
{
    struct hook_error report = {.error = error};

    snprintf(report.stage, sizeof report.stage, "%s", stage);
    if (write(REPORT, &report, sizeof report) < 0)
        _exit(126);
    _exit(127);
}

/* ------------------------------------------------------------------------------------ Landlock */

/* linux/landlock.h of older systems ends at ABI 1 or 2. */
struct ruleset {
    uint64_t files, network, scopes;
};
struct __attribute__((packed)) beneath {
    uint64_t allowed;
    int32_t parent;
};
enum {
    MAY_EXECUTE = 1 << 0, MAY_WRITE = 1 << 1, MAY_READ = 1 << 2, MAY_LIST = 1 << 3,
    MAY_REMOVE_DIR = 1 << 4, MAY_REMOVE_FILE = 1 << 5, MAY_MAKE_CHAR = 1 << 6, MAY_MAKE_DIR = 1 << 7,
    MAY_MAKE_FILE = 1 << 8, MAY_MAKE_SOCKET = 1 << 9, MAY_MAKE_FIFO = 1 << 10,
    MAY_MAKE_BLOCK = 1 << 11, MAY_MAKE_LINK = 1 << 12, MAY_REFER = 1 << 13, MAY_TRUNCATE = 1 << 14,
    MAY_IOCTL = 1 << 15,
};
enum {
    SEE = MAY_READ | MAY_LIST,
    SEE_AND_RUN = SEE | MAY_EXECUTE,
    CHANGE = MAY_WRITE | MAY_REMOVE_DIR | MAY_REMOVE_FILE | MAY_MAKE_DIR | MAY_MAKE_FILE |
        MAY_MAKE_FIFO | MAY_MAKE_LINK | MAY_REFER | MAY_TRUNCATE,
};

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1U);

    return abi < 0 ? 0 : (int)abi;
}

static int allow(int ruleset, const char *path, uint64_t rights, uint64_t handled)
{
    struct stat seen;
    struct beneath rule = {.parent = open(path, O_PATH | O_CLOEXEC)};

    if (rule.parent < 0)
        return errno == ENOENT ? 0 : -1;
    if (fstat(rule.parent, &seen) == 0 && !S_ISDIR(seen.st_mode))
        rights &= MAY_EXECUTE | MAY_WRITE | MAY_READ | MAY_TRUNCATE | MAY_IOCTL;
    rule.allowed = rights & handled;
    int result = (int)syscall(SYS_landlock_add_rule, ruleset, 1, &rule, 0U);
    int error = errno;
    close(rule.parent);
    errno = error;
    return result;
}

/* The mounts once more, as rules: they hold where a mount might be undone. Without Landlock in the
 * kernel the first wall stands alone; the R frame told so. */
static void restrict_paths(const struct job *job)
{
    int abi = landlock_abi();
    struct ruleset rules = {.files = MAY_MAKE_LINK * 2 - 1};

    if (abi <= 0)
        return;
    if (abi >= 2)
        rules.files |= MAY_REFER;
    if (abi >= 3)
        rules.files |= MAY_TRUNCATE;
    if (abi >= 4)
        rules.network = 3; /* bind and connect, TCP */
    if (abi >= 5)
        rules.files |= MAY_IOCTL;
    if (abi >= 6)
        rules.scopes = 3; /* abstract sockets, signals */
    size_t size = abi >= 6 ? sizeof rules : abi >= 4 ? 16 : 8;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0U);
    if (ruleset < 0)
        give_up(errno, "landlock");
    int bad = allow(ruleset, "/", SEE_AND_RUN, rules.files);
    bad |= allow(ruleset, "/tmp", SEE | CHANGE, rules.files);
    bad |= allow(ruleset, "/dev", SEE | MAY_WRITE | MAY_TRUNCATE | MAY_IOCTL, rules.files);
    for (size_t i = 0; i < job->verify.count; i++)
        if (job->verify.items[i].flags & MOUNT_WRITABLE)
            bad |= allow(ruleset, job->verify.items[i].target, SEE_AND_RUN | CHANGE, rules.files);
    if (bad != 0 || syscall(SYS_landlock_restrict_self, ruleset, 0U) < 0)
        give_up(errno, "landlock");
    close(ruleset);
}

/* -------------------------------------------------------------------------------- the small walls */

static void take_descriptors(int input, int output, int errors, int emit, int report)
{
    /* PID 1 sees to it that all are above 2. Out of each other's way first. */
    report = fcntl(report, F_DUPFD_CLOEXEC, REPORT + 2);
    emit = emit < 0 ? emit : fcntl(emit, F_DUPFD_CLOEXEC, REPORT + 2);
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0)
        _exit(126);
    if (dup3(report, REPORT, O_CLOEXEC) < 0)
        _exit(126);
    close(EMIT);
    if (emit >= 0 && dup2(emit, EMIT) < 0)
        _exit(126);
    syscall(SYS_close_range, REPORT + 1U, ~0U, 0U);
}

/* PID 1 made all others default, for itself. */
static void take_signals(void)
{
    sigset_t none;

    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A limit that we inherited and may not raise stays: it is only the tighter. */
static void limit(int resource, uint64_t value)
{
    struct rlimit now;

    if (getrlimit(resource, &now) == 0 && now.rlim_max < value)
        value = now.rlim_max;
    struct rlimit wanted = {.rlim_cur = value, .rlim_max = value};
    if (setrlimit(resource, &wanted) < 0)
        give_up(errno, "rlimit");
}

static void take_limits(const struct job *job)
{
    /* One byte, not none: a core_pattern with a pipe ignores 0, and refuses 1 (core(5)). */
    limit(RLIMIT_CORE, 1);
    limit(RLIMIT_FSIZE, job->file_bytes);
    limit(RLIMIT_NOFILE, job->open_files);
    limit(RLIMIT_STACK, 8 << 20);
    limit(RLIMIT_MEMLOCK, 64 << 10);
    limit(RLIMIT_MSGQUEUE, 0);
    limit(RLIMIT_SIGPENDING, 256);
    limit(RLIMIT_NICE, 0);
    limit(RLIMIT_RTPRIO, 0);
    if (job->processes > 0)
        limit(RLIMIT_NPROC, job->processes);
    if (job->data_bytes > 0)
        limit(RLIMIT_DATA, job->data_bytes);
}

static void take_directory(const struct job *job)
{
    struct how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_LINKS};
    char path[PATH_MAX];

    int directory = (int)syscall(SYS_openat2, AT_FDCWD, job->cwd, &how, sizeof how);
    if (directory < 0 || fchdir(directory) < 0)
        give_up(errno, "cwd");
    close(directory);
    /* A directory that is not below our root reads "(unreachable)/…" (CVE-2024-21626). */
    if (syscall(SYS_getcwd, path, sizeof path) < 0)
        give_up(errno, "cwd");
    if (path[0] != '/')
        give_up(EXDEV, "cwd");
}

static void filter_calls(const struct job *job)
{
    struct sock_fprog program = {.len = (unsigned short)job->filter_length, .filter = job->filter};

    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        give_up(errno, "seccomp");
}

/* ------------------------------------------------------------------------------------------ exec */

/* One file. Comes back with the errno; ENOENT of a file that exists is its interpreter's. */
static int try_to_run(const char *path, char **arguments, char **environment, const char **stage)
{
    struct stat seen;

    execve(path, arguments, environment);
    int error = errno;
    if (error == ENOENT && stat(path, &seen) == 0)
        *stage = "interpreter";
    return error;
}

static void run(const struct job *job)
{
    static char *nothing[] = {NULL};
    char **environment = job->environment.items != NULL ? job->environment.items : nothing;
    const char *stage = "exec", *path = "";
    char file[PATH_MAX];
    int error = ENOENT;

    if (job->command[0] == '/') {
        error = try_to_run(job->command, job->arguments.items, environment, &stage);
        give_up(error, stage);
    }
    if (strchr(job->command, '/') != NULL)
        give_up(EINVAL, "exec");
    for (size_t i = 0; i < job->environment.count; i++)
        if (strncmp(environment[i], "PATH=", 5) == 0)
            path = environment[i] + 5;
    while (*path != 0) {
        size_t size = strcspn(path, ":");
        if (path[0] == '/' && snprintf(file, sizeof file, "%.*s/%s", (int)size, path, job->command) < PATH_MAX) {
            int now = try_to_run(file, job->arguments.items, environment, &stage);
            if (now != ENOENT && now != ENOTDIR)
                error = now;
            if (strcmp(stage, "interpreter") == 0 || (now != ENOENT && now != ENOTDIR && now != EACCES))
                give_up(now, stage);
        }
        path += size + (path[size] == ':');
    }
    give_up(error, stage);
}

_Noreturn void become_hook(const struct job *job, int input, int output, int errors, int emit, int report)
{
    setsid();
    take_descriptors(input, output, errors, emit, report);
    take_signals();
    /* Not dumpable, our own /proc files would belong to root; exec sets it like this anyway. */
    prctl(PR_SET_DUMPABLE, 1);
    write_file("/proc/self/oom_score_adj", "1000");
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    umask(077);
    take_limits(job);
    take_directory(job);
    restrict_paths(job);
    filter_calls(job);
    if (job->hold)
        kill(getpid(), SIGSTOP);
    run(job);
    _exit(127);
}
