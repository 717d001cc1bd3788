/* What is the first process of every sandbox, and how does it begin?
 *
 * Theory of operation
 * -------------------
 * In a container the cell is PID 1: it says R, waits for a job and runs it (loop.c). Natively,
 * `cell --enter` reads B first and builds the sandbox around itself (enter.c, root.c); the plain
 * process that was started stays outside and waits for the PID 1 that it made. From R on the two
 * are the same. Descriptors 0 and 1 are the streams of protocol.py. Whatever cannot be done is
 * told in an X frame that names the stage and the errno: a sandbox stands whole or not at all.
 *
 * `--max-age SECONDS` bounds how long a cell waits for its job.
 */
#define _GNU_SOURCE
#include "cell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct reader input = {.fill = fill_from_fd};

int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    ssize_t put = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return put == (ssize_t)strlen(text) ? 0 : -1;
}

/* Waits for events on a descriptor until a point in time; false when that has passed. */
static bool await(int fd, short events, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline - now_ns();
        if (left <= 0)
            return false;
        struct timespec wait = {left / 1000000000, left % 1000000000};
        struct pollfd one = {.fd = fd, .events = events};
        if (ppoll(&one, 1, &wait, NULL) > 0)
            return true;
    }
}

ssize_t fill_from_fd(struct reader *reader, void *to, size_t size)
{
    for (;;) {
        if (!await(reader->fd, POLLIN, reader->deadline_ns)) {
            errno = ETIMEDOUT;
            return -1;
        }
        ssize_t got = read(reader->fd, to, size);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR))
            return got;
    }
}

static void send_now(const struct bytes *frame)
{
    int64_t deadline = now_ns() + (int64_t)PATIENCE_SECONDS * 1000000000;
    size_t sent = 0;

    while (sent < frame->size && await(1, POLLOUT, deadline)) {
        ssize_t put = write(1, frame->data + sent, frame->size - sent);
        if (put < 0 && errno != EAGAIN && errno != EINTR)
            return;
        if (put > 0)
            sent += (size_t)put;
    }
}

_Noreturn void setup_failed(int error, const char *stage, const char *detail)
{
    struct bytes frame;
    char text[600];

    if (detail != NULL)
        snprintf(text, sizeof text, "%s %s", stage, detail);
    else
        snprintf(text, sizeof text, "%s", stage);
    frame_begin(&frame, 'X');
    frame_number(&frame, 'k', KIND_NOT_STARTED);
    frame_number(&frame, 'c', (uint64_t)error);
    for (const char *tag = "xwum12z"; *tag != 0; tag++)
        frame_number(&frame, *tag, 0);
    frame_text(&frame, 's', text);
    frame_end(&frame);
    send_now(&frame);
    /* The executor may still be sending; a reset would take the report with it. */
    input.deadline_ns = now_ns() + (int64_t)PATIENCE_SECONDS * 1000000000;
    while (fill_from_fd(&input, input.buffer, sizeof input.buffer) > 0)
        ;
    _exit(1);
}

/* Also the two that C libraries keep for themselves: they refuse to touch them in signal(), and
 * glibc's posix_spawn leaves them ignored. */
void default_signals(void)
{
    static const unsigned long nothing[8];
    sigset_t none;

    for (int number = 1; number <= 64; number++)
        syscall(SYS_rt_sigaction, number, nothing, NULL, 8UL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Whoever started us may have left us anything: odd signals, closed descriptors, an odd mask. */
static void be_nobodys_heir(void)
{
    struct rlimit limit;
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    syscall(SYS_close_range, 3U, ~0U, 0U);
    default_signals();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    umask(0);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    prctl(PR_SET_NAME, "cell");
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
}

static void say_ready(void)
{
    struct bytes frame;

    frame_begin(&frame, 'R');
    frame_number(&frame, 'V', PROTOCOL_VERSION);
    frame_number(&frame, 'L', (uint64_t)landlock_abi());
    frame_end(&frame);
    send_now(&frame);
}

/* The payload's file: written before any limit, open for reading when this returns. */
static int keep_payload(size_t left)
{
    const char *path = "/run/hook/payload.json";
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    MUST(file, "payload", path);
    while (left > 0) {
        char piece[32 * 1024];
        size_t size = left < sizeof piece ? left : sizeof piece;
        MUST(read_exactly(&input, piece, size), "payload", "cut");
        for (size_t put = 0; put < size;) {
            ssize_t step = write(file, piece + put, size - put);
            if (step < 0 && errno == EINTR)
                continue;
            MUST(step, "payload", path);
            put += (size_t)step;
        }
        left -= size;
    }
    MUST(fchmod(file, 0400), "payload", path);
    close(file);
    file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    MUST(file, "payload", path);
    return file;
}

int main(int argc, char **argv)
{
    int64_t max_age = 120;
    bool enter = false;
    struct job job;
    uint32_t length;
    char kind;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--enter") == 0)
            enter = true;
        else if (strcmp(argv[i], "--max-age") == 0 && i + 1 < argc)
            max_age = atoi(argv[++i]);
        else
            return 64;
    }
    if (!enter && getpid() != 1) {
        static const char text[] = "cell: this is the first process of a sandbox; nothing to run by hand\n";
        return write(2, text, sizeof text - 1) < 0 ? 65 : 64;
    }
    be_nobodys_heir();
    input.deadline_ns = now_ns() + max_age * 1000000000;
    if (enter)
        enter_sandbox(&input);
    prctl(PR_SET_DUMPABLE, 0);
    say_ready();
    MUST(read_header(&input, &kind, &length), "job", NULL);
    if (kind != 'J')
        setup_failed(kind == 'T' || kind == 'K' ? ECANCELED : EPROTO, "job", NULL);
    MUST(read_job(&input, length, &job), "job", NULL);
    int payload = keep_payload(job.payload_bytes);
    if (enter)
        close_payload_directory();
    else
        MUST(chmod("/run/hook", 0500), "payload", "/run/hook");
    drop_privileges(enter);
    verify_mounts(&job);
    run_job(&job, payload, &input);
}
