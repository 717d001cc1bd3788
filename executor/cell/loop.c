/* What does PID 1 do while the hook runs, and how does the run end?
 *
 * Theory of operation
 * -------------------
 * One poll loop over: the executor's frames, the hook's two pipes and, where it may emit events, its
 * socket (bytes like the pipes', with a cap of their own), the pipe that tells of its exec,
 * SIGCHLD, and the room in the stream to the executor. The clock starts at the exec.
 *
 *   deadline, or T     TERM to everything, CONT to wake what is stopped
 *   + grace, or K      KILL to everything
 *   end of the input   KILL to everything, and nothing more is said: nobody listens
 *   the hook ended     what it left is killed and counted, the pipes' remaining bytes are taken,
 *                      X is sent; then the cell waits, for a bounded time, until it is hung up on
 *
 * Nothing that the executor does can hold up the hook, or TERM: the captured output has a bound
 * (the cap), so it is kept here in full until it can be sent, and all writes are non-blocking.
 * What exceeds the cap is read and counted. A chunk is framed at the moment of sending.
 *
 * kill(-1) reaches all processes of the namespace but ourselves. It is repeated until ESRCH; the
 * kernel walks the processes under the lock that fork takes, so that none slips through. A process
 * that cannot die (in a system call that hangs) does not hold up the report for longer than
 * PATIENCE_SECONDS: with our own end the kernel ends the namespace.
 */
#define _GNU_SOURCE
#include "cell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEVER INT64_MAX
enum { MILLISECOND = 1000000, SETUP_SECONDS = 10 };
enum { OUTPUT, ERRORS, EMITTED, STREAMS };

struct capture {
    char kind;
    int fd;              /* the pipe's end; -1 when it has ended */
    unsigned char *data; /* room for the whole cap */
    uint64_t cap;
    size_t kept, sent;
    uint64_t seen;
};

struct outbox {
    struct bytes control; /* S, then X: small frames that go before any output at hand */
    size_t control_sent;
    struct capture *current; /* whose chunk is under way */
    unsigned char header[HEADER_BYTES];
    size_t header_sent, chunk_left;
};

static struct {
    const struct job *job;
    struct capture streams[STREAMS];
    struct outbox out;
    int signals, report;
    pid_t hook;
    bool started, ended, lost;
    int status;
    int stopped;
    struct hook_error failure;
    int64_t started_at, ended_at, next_term, next_kill, give_up;
    uint64_t strays;
    struct reader *input;
    unsigned char command[HEADER_BYTES]; /* a T or K on its way in */
    size_t command_size;
} run;

void verify_mounts(const struct job *job)
{
    for (size_t i = 0; i < job->verify.count; i++) {
        const struct mount_spec *spec = &job->verify.items[i];
        struct stat seen;
        MUST(lstat(spec->target, &seen), "verify", spec->target);
        if (seen.st_dev != spec->device || seen.st_ino != spec->inode)
            setup_failed(ESTALE, "verify", spec->target);
    }
}

/* ------------------------------------------------------------------------------------- the streams */

static void hang_up(void)
{
    run.lost = true;
}

/* One step of output; false when there is nothing to send or no room for it. */
static bool send_some(void)
{
    struct outbox *out = &run.out;
    struct iovec pieces[2];
    int count = 0;

    if (out->current == NULL && out->control_sent < out->control.size) {
        pieces[count++] = (struct iovec){out->control.data + out->control_sent, out->control.size - out->control_sent};
    } else {
        for (int i = 0; out->current == NULL && i < STREAMS; i++) {
            struct capture *stream = &run.streams[i];
            if (!run.started || stream->kept == stream->sent)
                continue;
            size_t size = stream->kept - stream->sent;
            out->current = stream;
            out->chunk_left = size < CHUNK_BYTES ? size : CHUNK_BYTES;
            out->header_sent = 0;
            put_header(out->header, stream->kind, (uint32_t)out->chunk_left);
        }
        if (out->current == NULL)
            return false;
        if (out->header_sent < HEADER_BYTES)
            pieces[count++] = (struct iovec){out->header + out->header_sent, HEADER_BYTES - out->header_sent};
        pieces[count++] = (struct iovec){out->current->data + out->current->sent, out->chunk_left};
    }
    ssize_t put = writev(1, pieces, count);
    if (put < 0) {
        if (errno != EAGAIN && errno != EINTR)
            hang_up();
        return false;
    }
    if (out->current == NULL) {
        out->control_sent += (size_t)put;
        return true;
    }
    size_t head = HEADER_BYTES - out->header_sent;
    head = (size_t)put < head ? (size_t)put : head;
    out->header_sent += head;
    out->current->sent += (size_t)put - head;
    out->chunk_left -= (size_t)put - head;
    if (out->chunk_left == 0)
        out->current = NULL;
    return true;
}

static bool has_something_to_send(void)
{
    bool output = false;

    for (int i = 0; run.started && i < STREAMS; i++)
        output |= run.streams[i].kept > run.streams[i].sent;

    return run.out.current != NULL || run.out.control_sent < run.out.control.size || output;
}

/* What the hook wrote: kept up to the cap, counted beyond. False when there is no more for now. */
static bool take_output(struct capture *stream)
{
    static unsigned char rest[64 * 1024];
    size_t room = stream->cap - stream->kept;
    struct iovec pieces[2] = {{stream->data + stream->kept, room}, {rest, sizeof rest}};

    if (stream->fd < 0)
        return false;
    ssize_t got = readv(stream->fd, pieces, 2);
    if (got > 0) {
        stream->kept += (size_t)got < room ? (size_t)got : room;
        stream->seen += (uint64_t)got;
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(stream->fd);
        stream->fd = -1;
    }
    return false;
}

static void kill_everything(void)
{
    run.next_kill = now_ns() + 5 * MILLISECOND; /* again, until there is nobody */
    kill(-1, SIGKILL);
}

static void terminate_everything(void)
{
    run.next_term = NEVER;
    run.next_kill = now_ns() + (int64_t)run.job->grace_ms * MILLISECOND;
    kill(-1, SIGTERM);
    kill(-1, SIGCONT);
}

static void obey(void)
{
    char kind = (char)run.command[0];
    bool bare = memcmp(run.command + 1, "\0\0\0\0", 4) == 0;

    if (bare && kind == 'T') {
        if (run.stopped == STOPPED_NO) {
            run.stopped = STOPPED_ASKED_TERM;
            terminate_everything();
        }
    } else if (bare && kind == 'K') {
        if (run.stopped == STOPPED_NO || run.stopped == STOPPED_ASKED_TERM)
            run.stopped = STOPPED_ASKED_KILL;
        kill_everything();
    } else {
        hang_up();
    }
}

/* The reader may hold what came in one piece with the job. */
static void take_command(void)
{
    struct reader *input = run.input;

    if (input->head == input->tail) {
        ssize_t got = read(0, input->buffer, sizeof input->buffer);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            hang_up();
            return;
        }
        input->head = 0;
        input->tail = (size_t)got;
    }
    while (input->head < input->tail && !run.lost) {
        run.command[run.command_size++] = input->buffer[input->head++];
        if (run.command_size == sizeof run.command) {
            run.command_size = 0;
            obey();
        }
    }
}

/* ------------------------------------------------------------------------------------ the processes */

static void say_started(void)
{
    run.started = true;
    run.started_at = now_ns();
    run.next_term = run.started_at + (int64_t)run.job->timeout_ms * MILLISECOND;
    run.next_kill = NEVER;
    if (run.stopped != STOPPED_NO) /* asked to stop before it began to run */
        run.next_term = run.started_at;
    frame_begin(&run.out.control, 'S');
    frame_end(&run.out.control);
    run.out.control_sent = 0;
}

static void take_report(void)
{
    ssize_t got = read(run.report, &run.failure, sizeof run.failure);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(run.report);
    run.report = -1;
    if (got == 0 && !run.started)
        say_started();
    else if (got != sizeof run.failure && got != 0)
        run.failure.error = EPROTO;
    run.failure.stage[sizeof run.failure.stage - 1] = 0;
}

static void reap(void)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(run.signals, &info, sizeof info) > 0)
        ;
    while ((pid = waitpid(-1, &status, WNOHANG | (run.job->hold ? WUNTRACED : 0))) > 0) {
        if (pid == run.hook && WIFSTOPPED(status)) {
            say_started();
        } else if (pid == run.hook && !run.ended) {
            run.ended = true;
            run.status = status;
            run.ended_at = now_ns();
        } else if (run.ended) {
            run.strays++;
        }
    }
}

/* The hook has ended: so does everything that it left. */
static void end_strays(void)
{
    int64_t patience = now_ns() + (int64_t)PATIENCE_SECONDS * 1000 * MILLISECOND;

    /* What had died already is nobody's stray. */
    reap();
    run.strays = 0;
    while (kill(-1, SIGKILL) == 0 && now_ns() < patience) {
        struct pollfd child = {.fd = run.signals, .events = POLLIN};
        /* Full pipes hold nobody who was killed; but read on, the cap's rest may be there. */
        poll(&child, 1, 20);
        reap();
    }
    reap();
}

static void do_what_is_due(void)
{
    int64_t now = now_ns();

    if (now >= run.next_term) {
        if (run.stopped == STOPPED_NO)
            run.stopped = STOPPED_DEADLINE_TERM;
        terminate_everything();
    } else if (now >= run.next_kill) {
        if (!run.started) {
            run.failure.error = ETIMEDOUT;
            strcpy(run.failure.stage, "setup");
        }
        if (run.stopped == STOPPED_DEADLINE_TERM)
            run.stopped = STOPPED_DEADLINE_KILL;
        if (run.stopped == STOPPED_ASKED_TERM)
            run.stopped = STOPPED_ASKED_KILL;
        if (run.give_up == NEVER)
            run.give_up = now + (int64_t)PATIENCE_SECONDS * 1000 * MILLISECOND;
        kill_everything();
        if (now >= run.give_up) {
            run.ended = true;
            run.status = SIGKILL;
            run.ended_at = now;
        }
    }
}

/* ------------------------------------------------------------------------------------------ the end */

static void say_exit(void)
{
    struct bytes *frame = &run.out.control;
    struct rusage usage;
    bool failed = run.failure.error != 0 || !run.started;
    int64_t wall = run.started && run.ended_at > run.started_at ? run.ended_at - run.started_at : 0;

    if (run.started && run.stopped == STOPPED_NO && wall >= (int64_t)run.job->timeout_ms * MILLISECOND)
        run.stopped = STOPPED_DEADLINE_TERM;
    getrusage(RUSAGE_CHILDREN, &usage);
    uint64_t cpu = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
        (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    frame_begin(frame, 'X');
    run.out.control_sent = 0;
    if (failed) {
        frame_number(frame, 'k', KIND_NOT_STARTED);
        frame_number(frame, 'c', (uint64_t)(run.failure.error != 0 ? run.failure.error : ECANCELED));
        frame_text(frame, 's', run.failure.stage[0] != 0 ? run.failure.stage : "setup");
    } else if (WIFSIGNALED(run.status)) {
        frame_number(frame, 'k', KIND_SIGNALLED);
        frame_number(frame, 'c', (uint64_t)WTERMSIG(run.status));
    } else {
        frame_number(frame, 'k', KIND_EXITED);
        frame_number(frame, 'c', (uint64_t)WEXITSTATUS(run.status));
    }
    frame_number(frame, 'x', (uint64_t)run.stopped);
    frame_number(frame, 'w', (uint64_t)wall / 1000);
    frame_number(frame, 'u', cpu);
    frame_number(frame, 'm', (uint64_t)usage.ru_maxrss * 1024);
    frame_number(frame, '1', run.streams[OUTPUT].seen);
    frame_number(frame, '2', run.streams[ERRORS].seen);
    frame_number(frame, 'z', run.strays);
    frame_end(frame);
}

/* Everything out, then wait to be hung up on. */
static _Noreturn void finish(void)
{
    int64_t patience = now_ns() + (int64_t)PATIENCE_SECONDS * 1000 * MILLISECOND;
    bool told = false;

    while (!run.lost && now_ns() < patience) {
        if (!told && !has_something_to_send()) {
            say_exit();
            told = true;
        }
        if (send_some())
            continue;
        struct pollfd ends[2] = {{.fd = 0, .events = POLLIN}, {.fd = 1}};
        if (has_something_to_send())
            ends[1].events = POLLOUT;
        else
            ends[1].fd = -1;
        poll(ends, 2, 1000);
        if (ends[0].revents != 0) {
            unsigned char late[64];
            ssize_t got = read(0, late, sizeof late);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                hang_up();
        }
    }
    _exit(0);
}

static void wait_for_something(void)
{
    int64_t due = run.next_term < run.next_kill ? run.next_term : run.next_kill;
    int64_t left = due == NEVER ? NEVER : due - now_ns();
    struct timespec wait = {left / 1000000000, left % 1000000000};
    struct pollfd at[7] = {
        {.fd = 0, .events = POLLIN},
        {.fd = run.signals, .events = POLLIN},
        {.fd = run.report, .events = POLLIN},
        {.fd = run.streams[OUTPUT].fd, .events = POLLIN},
        {.fd = run.streams[ERRORS].fd, .events = POLLIN},
        {.fd = run.streams[EMITTED].fd, .events = POLLIN},
        {.fd = has_something_to_send() ? 1 : -1, .events = POLLOUT},
    };

    if (left <= 0)
        wait = (struct timespec){0, 0};
    if (ppoll(at, 7, &wait, NULL) <= 0)
        return;
    if (at[0].revents != 0)
        take_command();
    if (at[2].revents != 0)
        take_report();
    for (int i = 0; i < STREAMS; i++)
        if (at[3 + i].revents != 0)
            take_output(&run.streams[i]);
    if (at[1].revents != 0)
        reap();
    while (send_some())
        ;
}

static void start(int payload)
{
    int output[2], errors[2], report[2], emit[2] = {-1, -1};

    MUST(pipe2(output, O_CLOEXEC), "pipe", NULL);
    MUST(pipe2(errors, O_CLOEXEC), "pipe", NULL);
    MUST(pipe2(report, O_CLOEXEC), "pipe", NULL);
    if (run.job->emit_bytes > 0)
        MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, emit), "emit", NULL);
    int input = run.job->stdin_payload ? payload : open("/dev/null", O_RDONLY | O_CLOEXEC);
    MUST(input, "stdin", NULL);
    run.streams[OUTPUT] = (struct capture){.kind = '1', .fd = output[0], .cap = run.job->output_bytes};
    run.streams[ERRORS] = (struct capture){.kind = '2', .fd = errors[0], .cap = run.job->output_bytes};
    run.streams[EMITTED] = (struct capture){.kind = 'E', .fd = emit[0], .cap = run.job->emit_bytes};
    for (int i = 0; i < STREAMS; i++) {
        struct capture *stream = &run.streams[i];
        if (stream->fd < 0)
            continue;
        stream->data = malloc(stream->cap + 1);
        if (stream->data == NULL)
            setup_failed(ENOMEM, "output", NULL);
        fcntl(stream->fd, F_SETFL, O_NONBLOCK);
    }
    fcntl(report[0], F_SETFL, O_NONBLOCK);
    run.hook = fork();
    MUST(run.hook, "fork", NULL);
    if (run.hook == 0)
        become_hook(run.job, input, output[1], errors[1], emit[1], report[1]);
    run.report = report[0];
    close(output[1]);
    close(errors[1]);
    close(report[1]);
    if (emit[1] >= 0)
        close(emit[1]);
    close(input);
    if (!run.job->stdin_payload)
        close(payload);
}

_Noreturn void run_job(const struct job *job, int payload, struct reader *input)
{
    sigset_t children;

    run.job = job;
    run.input = input;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    run.signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    MUST(run.signals, "signalfd", NULL);
    run.next_term = run.give_up = NEVER;
    run.next_kill = now_ns() + (int64_t)SETUP_SECONDS * 1000 * MILLISECOND;
    start(payload);
    if (input->head < input->tail)
        take_command();
    while (!run.ended && !run.lost) {
        wait_for_something();
        do_what_is_due();
    }
    if (run.lost) {
        kill(-1, SIGKILL);
        _exit(0); /* and the kernel ends whatever is left */
    }
    if (run.report >= 0)
        take_report();
    end_strays();
    for (int i = 0; i < STREAMS; i++)
        while (take_output(&run.streams[i]))
            ;
    finish();
}
