/* What do the cell's parts share?
 *
 *   frames.c   bytes to structures, and back: no system call but through a reader's fill()
 *   enter.c    who the sandbox's first process is: namespaces, identity, the plain parent
 *   root.c     what it sees: the mounts
 *   hook.c     the hook's process, from fork to exec
 *   loop.c     PID 1: the clock, the output, the end
 *   cell.c     main, and how a failure is told
 *
 * Rules for editors: protocol.py holds the same tags. Nothing here may trust a length, and
 * nothing may call kill(-1) before getpid() == 1 was seen.
 */
#ifndef CELL_H
#define CELL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PROTOCOL_VERSION = 1,
    HEADER_BYTES = 5,
    CHUNK_BYTES = 32 * 1024,
    MAX_FRAME_BYTES = 32 * 1024 * 1024,
    MAX_FIELDS_BYTES = 8 * 1024 * 1024, /* everything but the payload */
    MAX_LIST = 16384,                   /* entries of argv, env, mounts */
    MAX_FILTER = 4096,                  /* BPF_MAXINSNS */
    MAX_OUTPUT_BYTES = 64 * 1024 * 1024,
    PATIENCE_SECONDS = 10, /* for a peer that should read or hang up, a child that should die */
};

enum { EMIT = 3 }; /* the hook's end of its emit channel, ZERO_HOOK_EMIT_FD */
enum { MOUNT_WRITABLE = 1, MOUNT_DIRECTORY = 2 };
enum { KIND_EXITED = 0, KIND_SIGNALLED = 1, KIND_NOT_STARTED = 2 };
enum { STOPPED_NO, STOPPED_DEADLINE_TERM, STOPPED_DEADLINE_KILL, STOPPED_ASKED_TERM, STOPPED_ASKED_KILL };

struct list {
    char **items; /* ends with NULL */
    size_t count;
};

struct mount_spec {
    const char *source; /* NULL in a job frame */
    const char *target;
    uint64_t device, inode;
    unsigned flags;
};

struct mounts {
    struct mount_spec *items;
    size_t count;
};

struct build {
    uint64_t uid, gid, tmp_bytes, payload_bytes;
    const char *root;
    struct mounts mounts;
    struct list tasks; /* cgroup v1 "tasks" files to enter */
    const char *leaf;  /* cgroup v2 directory to be born in; NULL: none */
    const char *network; /* an empty network namespace to enter; NULL: one of our own */
};

struct job {
    const char *command, *cwd;
    struct list arguments, environment;
    uint64_t timeout_ms, grace_ms, output_bytes, file_bytes, open_files;
    uint64_t processes, data_bytes, stdin_payload, hold;
    uint64_t emit_bytes; /* what is relayed of descriptor EMIT; 0: the hook has none */
    struct mounts verify;
    void *filter;
    size_t filter_length; /* in instructions */
    size_t payload_bytes; /* still in the reader, the last thing of the frame */
};

/* A buffered source of bytes. fill() returns 0 at the end, -1 with errno. */
struct reader {
    ssize_t (*fill)(struct reader *, void *, size_t);
    int fd;
    int64_t deadline_ns; /* CLOCK_MONOTONIC; fill() gives up then with ETIMEDOUT */
    size_t head, tail;
    unsigned char buffer[64 * 1024];
};

/* frames.c: 0, or -1 with errno; EPROTO where the peer is of another version or mad */
int read_exactly(struct reader *, void *to, size_t);
int read_header(struct reader *, char *kind, uint32_t *length);
int read_build(struct reader *, struct build *);
int read_job(struct reader *, uint32_t length, struct job *);

struct bytes { /* a small frame being written */
    unsigned char data[1024];
    size_t size;
};
void frame_begin(struct bytes *, char kind);
void frame_number(struct bytes *, char tag, uint64_t);
void frame_text(struct bytes *, char tag, const char *);
void frame_end(struct bytes *);
void put_header(unsigned char *at, char kind, uint32_t length);

/* cell.c */
int64_t now_ns(void);
ssize_t fill_from_fd(struct reader *, void *, size_t);
/* Tells the executor that nothing was started, waits until it hung up, and exits. */
_Noreturn void setup_failed(int error, const char *stage, const char *detail);
/* The same for "x failed, errno says why". */
#define MUST(call, stage, detail) \
    do { \
        if ((call) < 0) \
            setup_failed(errno, stage, detail); \
    } while (0)
int write_file(const char *path, const char *text);
void default_signals(void);

/* root.c */
struct parts;
struct parts *collect_parts(const struct build *);
void build_root(const struct build *, struct parts *);
void close_payload_directory(void);

/* enter.c */
void enter_sandbox(struct reader *); /* returns as PID 1 inside, as the hook's user */
void drop_privileges(bool mandatory);
void refuse_core_dumps(void);

/* hook.c */
struct hook_error {
    int error;
    char stage[24];
};
int landlock_abi(void);
_Noreturn void become_hook(const struct job *, int input, int output, int errors, int emit, int report);

/* loop.c */
void verify_mounts(const struct job *);
_Noreturn void run_job(const struct job *, int payload, struct reader *);

#endif
