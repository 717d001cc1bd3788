/* What does the sandbox see?
 *
 * Theory of operation
 * -------------------
 * Two steps. `collect` opens everything that is to be seen, as detached read-only mounts, with the
 * eyes of whoever may see it. `build` makes a small tmpfs the root, and puts each part in its
 * place; what is missing on the way to a place is made in our own tmpfs, and nowhere else: a
 * directory made through a bind would be a ghost on the host.
 *
 *   /                tmpfs, read-only at the end
 *   /usr, /bin …     of the host, or the top-level entries of an image's root
 *   /etc             with the host's /usr: written here, names no one but the hook
 *   /tmp             tmpfs, the only place to write
 *   the mounts       each at its own path, also below /tmp, /home, /run
 *   /dev             five devices and a few links
 *   /proc            the hook's own processes and nothing of the kernel (subset=pid)
 *   /run/hook        tmpfs of its own with the payload, read-only when the hook starts
 *
 * A source is compared with the device and inode that were checked earlier (a swapped directory is
 * found, not followed). Bind mounts are not recursive and not in any peer group: what the host
 * mounts later does not come in. An image's directory in which a mount's target is missing is
 * taken apart: a directory of ours, with a bind for each of its entries.
 */
#define _GNU_SOURCE
#include "cell.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Declared here, for C libraries and headers older than the calls. */
#define TREE_CLONE 1U
#define TREE_CLOEXEC ((unsigned)O_CLOEXEC)
#define TREE_RECURSIVE 0x8000U
#define MOVE_FROM_EMPTY 0x4U
#define MOVE_EMPTY_PATHS (MOVE_FROM_EMPTY | 0x40U)
#define ATTRIBUTE_RDONLY 1ULL
#define ATTRIBUTE_NOSUID 2ULL
#define ATTRIBUTE_NODEV 4ULL
#define ATTRIBUTE_NOEXEC 8ULL
#define RESOLVE_INSIDE 0xaU /* RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS */

struct how {
    uint64_t flags, mode, resolve;
};

struct attributes {
    uint64_t set, clear, propagation, userns;
};


struct part {
    const char *target;
    const char *link; /* a symbolic link's text */
    int fd;           /* a detached mount; -1: a link, or a directory of ours */
    bool directory;
};

struct parts {
    struct part *items;
    size_t count;
    size_t first_mount; /* the parts before it make the root, the others are the job's mounts */
};

static int payload_directory = -1;

static char *join(const char *left, const char *right)
{
    char *text;

    if (asprintf(&text, "%s/%s", left, right) < 0)
        setup_failed(ENOMEM, "root", NULL);
    return text;
}

static void add(struct parts *parts, struct part part)
{
    if (parts->count >= MAX_LIST)
        setup_failed(E2BIG, "root", part.target);
    if ((parts->count & (parts->count + 1)) == 0) {
        void *items = realloc(parts->items, (2 * parts->count + 1) * sizeof part);
        if (items == NULL)
            setup_failed(ENOMEM, "root", NULL);
        parts->items = items;
    }
    parts->items[parts->count++] = part;
}

static int set_attributes(int mount, unsigned flags, uint64_t set)
{
    struct attributes attributes = {.set = set, .propagation = MS_PRIVATE};

    return (int)syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH | flags, &attributes,
                        sizeof attributes);
}

/* A detached copy of one mount's part, nosuid and in no peer group. */
static int detached(int from, const char *path, uint64_t set, bool recursive)
{
    unsigned flags = TREE_CLONE | TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;

    if (recursive)
        flags |= TREE_RECURSIVE;
    int mount = (int)syscall(SYS_open_tree, from, path, flags);
    if (mount < 0)
        return -1;
    if (set_attributes(mount, recursive ? TREE_RECURSIVE : 0, set | ATTRIBUTE_NOSUID) < 0) {
        int error = errno;
        close(mount);
        errno = error;
        return -1;
    }
    return mount;
}

/* One part of the root. The mounts below a directory are left out where we may leave them out:
 * an ordinary user may not uncover what lies below a mount of someone else (EINVAL). */
static void show(struct parts *parts, int from, const char *path, const char *target, uint64_t set)
{
    struct stat seen;
    int mount = detached(from, path, set, false);

    if (mount < 0 && errno == EINVAL)
        mount = detached(from, path, set, true);
    MUST(mount, "root", target);
    MUST(fstat(mount, &seen), "root", target);
    add(parts, (struct part){.target = target, .fd = mount, .directory = S_ISDIR(seen.st_mode)});
}

static void show_link(struct parts *parts, int from, const char *path, const char *target)
{
    char text[PATH_MAX];
    ssize_t size = readlinkat(from, path, text, sizeof text - 1);

    MUST(size, "root", target);
    text[size] = 0;
    add(parts, (struct part){.target = target, .link = strdup(text), .fd = -1});
}

/* The host's programs and libraries. On a host where /bin is no link, it is shown like /usr. */
static void collect_host(struct parts *parts)
{
    static const char *const tops[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    static const char *const shared[] = {"/etc/alternatives", "/etc/ld.so.cache"};
    const uint64_t flags = ATTRIBUTE_RDONLY | ATTRIBUTE_NODEV;
    struct stat seen;

    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
        if (lstat(tops[i], &seen) < 0)
            continue;
        if (S_ISLNK(seen.st_mode))
            show_link(parts, AT_FDCWD, tops[i], tops[i]);
        else if (S_ISDIR(seen.st_mode))
            show(parts, AT_FDCWD, tops[i], tops[i], flags);
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (lstat(shared[i], &seen) == 0 && !S_ISLNK(seen.st_mode))
            show(parts, AT_FDCWD, shared[i], shared[i], flags | ATTRIBUTE_NOEXEC);
    if (lstat("/etc/localtime", &seen) == 0 && S_ISLNK(seen.st_mode))
        show_link(parts, AT_FDCWD, "/etc/localtime", "/etc/localtime");
}

/* Whether a mount's target lies below `target` and is missing in the image. */
static bool is_missing_below(const struct build *build, int root, const char *target)
{
    size_t size = strlen(target);
    struct stat seen;

    for (size_t i = 0; i < build->mounts.count; i++) {
        const char *wanted = build->mounts.items[i].target;
        if (strncmp(wanted, target, size) == 0 && wanted[size] == '/' &&
            fstatat(root, wanted + 1, &seen, AT_SYMLINK_NOFOLLOW) < 0)
            return true;
    }
    return false;
}

static void collect_directory(const struct build *, struct parts *, int root, int directory, const char *target);

static void collect_entry(const struct build *build, struct parts *parts, int root, int directory,
                          const char *name, const char *target)
{
    struct stat seen;

    MUST(fstatat(directory, name, &seen, AT_SYMLINK_NOFOLLOW), "root", target);
    if (S_ISLNK(seen.st_mode)) {
        show_link(parts, directory, name, target);
    } else if (S_ISDIR(seen.st_mode) && is_missing_below(build, root, target)) {
        int below = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        MUST(below, "root", target);
        add(parts, (struct part){.target = target, .fd = -1, .directory = true});
        collect_directory(build, parts, root, below, target);
    } else if (S_ISDIR(seen.st_mode) || S_ISREG(seen.st_mode)) {
        show(parts, directory, name, target, ATTRIBUTE_RDONLY | ATTRIBUTE_NODEV);
    }
}

/* Takes the descriptor. */
static void collect_directory(const struct build *build, struct parts *parts, int root,
                              int directory, const char *target)
{
    static const char *const ours[] = {"/dev", "/proc", "/run", "/sys", "/tmp"};
    struct dirent *entry;
    DIR *stream = fdopendir(directory);

    if (stream == NULL)
        setup_failed(errno, "root", target);
    while ((entry = readdir(stream)) != NULL) {
        bool skip = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        char *path = join(target, entry->d_name);
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            skip = skip || strcmp(path, ours[i]) == 0;
        if (!skip)
            collect_entry(build, parts, root, directory, entry->d_name, path);
    }
    closedir(stream);
}

static void collect_image(const struct build *build, struct parts *parts)
{
    int root = open(build->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int directory = open(build->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    MUST(root, "root", build->root);
    MUST(directory, "root", build->root);
    collect_directory(build, parts, root, directory, "");
    close(root);
}

static void collect_devices(struct parts *parts)
{
    static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};

    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        show(parts, AT_FDCWD, devices[i], devices[i], ATTRIBUTE_RDONLY | ATTRIBUTE_NOEXEC);
}

static bool is_below(const char *path, const char *top)
{
    size_t size = strlen(top);

    return strncmp(path, top, size) == 0 && (path[size] == 0 || path[size] == '/');
}

static void collect_mount(struct parts *parts, const struct mount_spec *spec)
{
    static const char *const ours[] = {"/dev", "/proc", "/sys", "/run/hook", "/.cell"};
    uint64_t set = ATTRIBUTE_NODEV | (spec->flags & MOUNT_WRITABLE ? 0 : ATTRIBUTE_RDONLY);
    struct stat seen;

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (is_below(spec->target, ours[i]))
            setup_failed(EINVAL, "target", spec->target);
    if (spec->target[1] == 0)
        setup_failed(EINVAL, "target", spec->target);
    int mount = detached(AT_FDCWD, spec->source, set, false);
    if (mount < 0 && errno == EINVAL)
        setup_failed(EINVAL, "submount", spec->source);
    MUST(mount, "mount", spec->source);
    MUST(fstat(mount, &seen), "mount", spec->source);
    if (seen.st_dev != spec->device || seen.st_ino != spec->inode)
        setup_failed(ESTALE, "mount", spec->source);
    bool directory = (spec->flags & MOUNT_DIRECTORY) != 0;
    if (directory ? !S_ISDIR(seen.st_mode) : !S_ISREG(seen.st_mode))
        setup_failed(directory ? ENOTDIR : EINVAL, "mount", spec->source);
    add(parts, (struct part){.target = spec->target, .fd = mount, .directory = directory});
}

struct parts *collect_parts(const struct build *build)
{
    struct parts *parts = calloc(1, sizeof *parts);

    if (parts == NULL)
        setup_failed(ENOMEM, "root", NULL);
    if (build->root[0] == 0)
        collect_host(parts);
    else
        collect_image(build, parts);
    collect_devices(parts);
    parts->first_mount = parts->count;
    for (size_t i = 0; i < build->mounts.count; i++)
        collect_mount(parts, &build->mounts.items[i]);
    return parts;
}

/* ---------------------------------------------------------------------------- inside, as PID 1 */

/* File systems of our own making, by device: only here may a missing directory be made. */
static dev_t own[2];

static bool is_ours(int directory)
{
    struct stat seen;

    return fstat(directory, &seen) == 0 && (seen.st_dev == own[0] || seen.st_dev == own[1]);
}

/* Our own links (bin -> usr/bin) are the only ones that a target may pass through. */
static int step_into(int at, const char *name, bool last, bool directory, const char *target)
{
    struct stat seen;
    int next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (next < 0 && errno == ENOENT) {
        if (!is_ours(at))
            setup_failed(ENOENT, "target", target);
        if (last && !directory) {
            int file = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
            MUST(file, "target", target);
            close(file);
        } else {
            MUST(mkdirat(at, name, 0755), "target", target);
        }
        next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
    MUST(next, "target", target);
    MUST(fstat(next, &seen), "target", target);
    if (S_ISLNK(seen.st_mode) && is_ours(at) && !last) {
        close(next);
        struct how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_INSIDE};
        next = (int)syscall(SYS_openat2, at, name, &how, sizeof how);
        MUST(next, "target", target);
    } else if (S_ISLNK(seen.st_mode)) {
        setup_failed(ELOOP, "target", target);
    }
    return next;
}

/* The place of a target below the current directory, the new root; made where it is missing. */
static int place(const char *target, bool directory)
{
    char *copy = strdup(target), *rest = copy, *name;
    int at = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (copy == NULL || at < 0)
        setup_failed(ENOMEM, "target", target);
    while ((name = strsep(&rest, "/")) != NULL) {
        if (*name == 0)
            continue;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            setup_failed(EINVAL, "target", target);
        bool last = rest == NULL || rest[strspn(rest, "/")] == 0;
        int next = step_into(at, name, last, directory, target);
        close(at);
        at = next;
    }
    free(copy);
    return at;
}

/* A part of the root, the quick way: its parent is a directory of ours that was just made, so
 * that there is nothing to walk through. False where the parent is still missing. */
static bool put_in_root(const struct part *part)
{
    const char *path = part->target + 1;
    int made;

    if (part->link != NULL) {
        made = symlink(part->link, path);
    } else if (part->directory) {
        made = mkdir(path, 0755);
    } else {
        made = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (made >= 0)
            close(made);
    }
    if (made < 0 && errno == ENOENT)
        return false;
    MUST(made, "root", part->target);
    if (part->fd >= 0) {
        MUST(syscall(SYS_move_mount, part->fd, "", AT_FDCWD, path, MOVE_FROM_EMPTY), "root", part->target);
        close(part->fd);
    }
    return true;
}

static void put(const struct part *part, const char *stage)
{
    if (part->link != NULL) {
        char *copy = strdup(part->target);
        char *slash = strrchr(copy, '/');
        *slash = 0;
        int parent = place(copy, true);
        MUST(symlinkat(part->link, parent, slash + 1), stage, part->target);
        close(parent);
        free(copy);
        return;
    }
    int at = place(part->target, part->directory);
    if (part->fd >= 0) {
        MUST(syscall(SYS_move_mount, part->fd, "", at, "", MOVE_EMPTY_PATHS), stage, part->target);
        close(part->fd);
    }
    close(at);
}

static void put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);

    MUST(fd, "etc", path);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        setup_failed(errno, "etc", path);
    close(fd);
}

/* Names for the hook's own ids and for nobody else on this machine. */
static void write_etc(const struct build *build)
{
    char text[256];
    unsigned uid = (unsigned)build->uid, gid = (unsigned)build->gid;

    close(place("/etc", true));
    snprintf(text, sizeof text, "root:x:0:0:root:/:/bin/sh\nhook:x:%u:%u:hook:/tmp:/bin/sh\n", uid, gid);
    put_text("etc/passwd", text);
    snprintf(text, sizeof text, "root:x:0:\nhook:x:%u:\n", gid);
    put_text("etc/group", text);
    put_text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n");
    put_text("etc/hosts", "127.0.0.1 localhost hook\n::1 localhost\n");
}

static void link_devices(void)
{
    MUST(symlink("/proc/self/fd", "dev/fd"), "dev", NULL);
    MUST(symlink("/proc/self/fd/0", "dev/stdin"), "dev", NULL);
    MUST(symlink("/proc/self/fd/1", "dev/stdout"), "dev", NULL);
    MUST(symlink("/proc/self/fd/2", "dev/stderr"), "dev", NULL);
}

static dev_t device_of(const char *path)
{
    struct stat seen;

    MUST(stat(path, &seen), "root", path);
    return seen.st_dev;
}

static void mount_tmp(uint64_t size)
{
    char text[128];
    uint64_t inodes = size / 4096 < 1024 ? 1024 : size / 4096;

    close(place("/tmp", true));
    snprintf(text, sizeof text, "size=%llu,nr_inodes=%llu,mode=1777", (unsigned long long)size,
             (unsigned long long)inodes);
    MUST(mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, text), "tmp", NULL);
    own[1] = device_of("tmp");
}

static void mount_payload(uint64_t size)
{
    char text[128];

    close(place("/run/hook", true));
    /* Whole pages, and one for the directory. */
    snprintf(text, sizeof text, "size=%llu,nr_inodes=4,mode=0700",
             (unsigned long long)((size / 4096 + 2) * 4096));
    MUST(mount("tmpfs", "run/hook", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, text), "payload", NULL);
    payload_directory = open("run/hook", O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(payload_directory, "payload", NULL);
}

/* Of /proc only the processes. The count of user namespaces is this namespace's own, not the
 * host's; at zero no nested one can undo a read-only mount. It needs the whole /proc, which is
 * still there below us, or, where a container shows it read-only, one more of our own. */
static void mount_proc(void)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

    close(place("/proc", true));
    if (write_file("/proc/sys/user/max_user_namespaces", "0") < 0) {
        MUST(mount("proc", "proc", "proc", flags, NULL), "proc", NULL);
        MUST(write_file("proc/sys/user/max_user_namespaces", "0"), "proc", "max_user_namespaces");
        MUST(umount2("proc", MNT_DETACH), "proc", NULL);
    }
    MUST(mount("proc", "proc", "proc", flags, "subset=pid,hidepid=invisible"), "proc", NULL);
}

void build_root(const struct build *build, struct parts *parts)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV;

    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "root", "private");
    MUST(mount("tmpfs", "/tmp", "tmpfs", flags, "size=512k,nr_inodes=4096,mode=0755"), "root", "tmpfs");
    MUST(chdir("/tmp"), "root", "tmpfs");
    own[0] = own[1] = device_of(".");
    for (size_t i = 0; i < parts->first_mount; i++)
        if (!put_in_root(&parts->items[i]))
            put(&parts->items[i], "root");
    if (build->root[0] == 0)
        write_etc(build);
    link_devices();
    mount_tmp(build->tmp_bytes);
    for (size_t i = parts->first_mount; i < parts->count; i++)
        put(&parts->items[i], "target");
    mount_payload(build->payload_bytes);
    mount_proc();
    MUST(syscall(SYS_pivot_root, ".", "."), "pivot_root", NULL);
    MUST(umount2(".", MNT_DETACH), "pivot_root", "detach");
    MUST(chdir("/"), "pivot_root", "chdir");
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(root, "root", "read-only");
    MUST(set_attributes(root, 0, ATTRIBUTE_RDONLY), "root", "read-only");
    close(root);
    free(parts->items);
    free(parts);
}

/* The payload is written: from here on nobody writes beside it. */
void close_payload_directory(void)
{
    MUST(fchmodat(payload_directory, ".", 0500, 0), "payload", "mode");
    MUST(set_attributes(payload_directory, 0, ATTRIBUTE_RDONLY), "payload", "read-only");
    close(payload_directory);
}
