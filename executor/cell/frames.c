/* How do bytes become a build or a job, and an answer bytes?
 *
 * A frame is a kind, a little-endian u32 length, a body; a body is fields of the same shape.
 * Everything is read through a reader, so that the fuzzer can stand where the stream is. Memory
 * that a frame takes is never given back: a cell reads two frames in its life.
 */
#define _GNU_SOURCE
#include "cell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int mad(void)
{
    errno = EPROTO;
    return -1;
}

static uint32_t get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get_u64(const unsigned char *at)
{
    return (uint64_t)get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

int read_exactly(struct reader *reader, void *to, size_t size)
{
    unsigned char *at = to;

    while (size > 0) {
        size_t ready = reader->tail - reader->head;
        if (ready == 0) {
            ssize_t got = reader->fill(reader, reader->buffer, sizeof reader->buffer);
            if (got < 0)
                return -1;
            if (got == 0) {
                errno = EPIPE;
                return -1;
            }
            reader->head = 0;
            reader->tail = (size_t)got;
            continue;
        }
        size_t piece = ready < size ? ready : size;
        memcpy(at, reader->buffer + reader->head, piece);
        reader->head += piece;
        at += piece;
        size -= piece;
    }
    return 0;
}

int read_header(struct reader *reader, char *kind, uint32_t *length)
{
    unsigned char header[HEADER_BYTES];

    if (read_exactly(reader, header, sizeof header) < 0)
        return -1;
    *kind = (char)header[0];
    *length = get_u32(header + 1);
    return *length > MAX_FRAME_BYTES ? mad() : 0;
}

/* A field's value, with a NUL behind it that does not count. */
static unsigned char *read_value(struct reader *reader, size_t size)
{
    unsigned char *value = malloc(size + 1);

    if (value != NULL && read_exactly(reader, value, size) < 0) {
        free(value);
        return NULL;
    }
    if (value != NULL)
        value[size] = 0;
    return value;
}

static int take_text(const char **to, unsigned char *value, size_t size)
{
    if (*to != NULL || memchr(value, 0, size) != NULL)
        return mad();
    *to = (char *)value;
    return 0;
}

static int take_number(uint64_t *to, const unsigned char *value, size_t size)
{
    if (size != 8)
        return mad();
    *to = get_u64(value);
    return 0;
}

static int take_item(struct list *list, unsigned char *value, size_t size)
{
    if (memchr(value, 0, size) != NULL || list->count >= MAX_LIST)
        return mad();
    /* Grow at powers of two; there is always room for the NULL at the end. */
    if ((list->count & (list->count + 1)) == 0) {
        char **items = realloc(list->items, (2 * list->count + 2) * sizeof *items);
        if (items == NULL)
            return -1;
        list->items = items;
    }
    list->items[list->count++] = (char *)value;
    list->items[list->count] = NULL;
    return 0;
}

static int take_mount(struct mounts *mounts, unsigned char *value, size_t size, bool with_source)
{
    struct mount_spec spec = {0};
    const char *end = (char *)value + size;
    const char *at = (char *)value + 17;

    if (size < 18 || end[-1] != 0 || mounts->count >= MAX_LIST)
        return mad();
    spec.flags = value[0];
    spec.device = get_u64(value + 1);
    spec.inode = get_u64(value + 9);
    if (with_source) {
        spec.source = at;
        at += strlen(at) + 1;
    }
    if (at >= end)
        return mad();
    spec.target = at;
    if (at + strlen(at) + 1 != end || spec.target[0] != '/')
        return mad();
    if (with_source && spec.source[0] != '/')
        return mad();
    if ((mounts->count & (mounts->count + 1)) == 0) {
        size_t room = 2 * mounts->count + 1;
        struct mount_spec *items = realloc(mounts->items, room * sizeof *items);
        if (items == NULL)
            return -1;
        mounts->items = items;
    }
    mounts->items[mounts->count++] = spec;
    return 0;
}

static int take_build_field(struct build *build, char tag, unsigned char *value, size_t size)
{
    switch (tag) {
    case 'u': return take_number(&build->uid, value, size);
    case 'g': return take_number(&build->gid, value, size);
    case 't': return take_number(&build->tmp_bytes, value, size);
    case 'p': return take_number(&build->payload_bytes, value, size);
    case 'r': return take_text(&build->root, value, size);
    case 'm': return take_mount(&build->mounts, value, size, true);
    case 'k': return take_item(&build->tasks, value, size);
    case 'l': return take_text(&build->leaf, value, size);
    case 'n': return take_text(&build->network, value, size);
    default: return mad();
    }
}

static int take_job_field(struct job *job, char tag, unsigned char *value, size_t size)
{
    switch (tag) {
    case 'c': return take_text(&job->command, value, size);
    case 'd': return take_text(&job->cwd, value, size);
    case 'a': return take_item(&job->arguments, value, size);
    case 'e': return take_item(&job->environment, value, size);
    case 'w': return take_number(&job->timeout_ms, value, size);
    case 'q': return take_number(&job->grace_ms, value, size);
    case 'o': return take_number(&job->output_bytes, value, size);
    case 'f': return take_number(&job->file_bytes, value, size);
    case 'n': return take_number(&job->open_files, value, size);
    case 'i': return take_number(&job->stdin_payload, value, size);
    case 'N': return take_number(&job->processes, value, size);
    case 'D': return take_number(&job->data_bytes, value, size);
    case 'h': return take_number(&job->hold, value, size);
    case 'x': return take_number(&job->emit_bytes, value, size);
    case 'v': return take_mount(&job->verify, value, size, false);
    case 's':
        if (job->filter != NULL || size % 8 != 0 || size / 8 > MAX_FILTER || size == 0)
            return mad();
        job->filter = value;
        job->filter_length = size / 8;
        return 0;
    default: return mad();
    }
}

/* The next field's tag and size, taken off what is left of the body. */
static int read_field(struct reader *reader, uint32_t *left, char *tag, uint32_t *size)
{
    if (*left < HEADER_BYTES || read_header(reader, tag, size) < 0)
        return *left < HEADER_BYTES ? mad() : -1;
    *left -= HEADER_BYTES;
    return *size > *left ? mad() : 0;
}

int read_build(struct reader *reader, struct build *build)
{
    char kind, tag;
    uint32_t left, size;

    memset(build, 0, sizeof *build);
    if (read_header(reader, &kind, &left) < 0)
        return -1;
    if (kind != 'B' || left > MAX_FIELDS_BYTES)
        return mad();
    while (left > 0) {
        if (read_field(reader, &left, &tag, &size) < 0)
            return -1;
        unsigned char *value = read_value(reader, size);
        if (value == NULL || take_build_field(build, tag, value, size) < 0)
            return -1;
        left -= size;
    }
    return build->root == NULL ? mad() : 0;
}

int read_job(struct reader *reader, uint32_t left, struct job *job)
{
    char tag = 0;
    uint32_t size = 0, seen = 0;

    memset(job, 0, sizeof *job);
    while (left > 0) {
        if (read_field(reader, &left, &tag, &size) < 0)
            return -1;
        if (tag == 'P')
            break;
        seen += size;
        if (seen > MAX_FIELDS_BYTES)
            return mad();
        unsigned char *value = read_value(reader, size);
        if (value == NULL || take_job_field(job, tag, value, size) < 0)
            return -1;
        left -= size;
    }
    /* The payload is last, and goes to its file without a stop in memory. */
    if (tag != 'P' || size != left)
        return mad();
    job->payload_bytes = size;
    if (job->command == NULL || job->command[0] == 0 || job->cwd == NULL || job->filter == NULL)
        return mad();
    if (job->arguments.count == 0 || job->timeout_ms == 0 || job->open_files == 0)
        return mad();
    if (job->timeout_ms > INT_MAX || job->grace_ms > INT_MAX || job->output_bytes > MAX_OUTPUT_BYTES)
        return mad();
    if (job->emit_bytes > MAX_OUTPUT_BYTES)
        return mad();
    return 0;
}

void put_header(unsigned char *at, char kind, uint32_t length)
{
    at[0] = (unsigned char)kind;
    for (int i = 0; i < 4; i++)
        at[1 + i] = (unsigned char)(length >> (8 * i));
}

void frame_begin(struct bytes *frame, char kind)
{
    put_header(frame->data, kind, 0);
    frame->size = HEADER_BYTES;
}

void frame_number(struct bytes *frame, char tag, uint64_t number)
{
    if (frame->size + HEADER_BYTES + 8 > sizeof frame->data)
        return;
    put_header(frame->data + frame->size, tag, 8);
    for (int i = 0; i < 8; i++)
        frame->data[frame->size + HEADER_BYTES + i] = (unsigned char)(number >> (8 * i));
    frame->size += HEADER_BYTES + 8;
}

void frame_text(struct bytes *frame, char tag, const char *text)
{
    size_t size = strlen(text);
    size_t room = sizeof frame->data - frame->size;

    if (room < HEADER_BYTES)
        return;
    if (size > room - HEADER_BYTES)
        size = room - HEADER_BYTES;
    put_header(frame->data + frame->size, tag, (uint32_t)size);
    memcpy(frame->data + frame->size + HEADER_BYTES, text, size);
    frame->size += HEADER_BYTES + size;
}

void frame_end(struct bytes *frame)
{
    put_header(frame->data, (char)frame->data[0], (uint32_t)(frame->size - HEADER_BYTES));
}
