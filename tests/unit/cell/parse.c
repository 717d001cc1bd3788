/* What does the frame parser make of anything at all?
 *
 * Cases come in on descriptor 0, each with a native u32 length in front, and are parsed as a build
 * and as a job. For each, one byte goes out: 'B' and 'J' where that could be read, '-' where neither.
 * Built with the sanitizers; a bad access ends it. With -DLIBFUZZER it is a libFuzzer target.
 */
#include "cell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const unsigned char *rest;
static size_t left;

static ssize_t fill(struct reader *reader, void *to, size_t size)
{
    /* Short and odd reads, as a stream gives them. */
    size_t piece = 1 + left % 7 * 97;

    (void)reader;
    if (piece > size)
        piece = size;
    if (piece > left)
        piece = left;
    memcpy(to, rest, piece);
    rest += piece;
    left -= piece;
    return (ssize_t)piece;
}

static unsigned long touch(const char *text)
{
    return text == NULL ? 0 : strlen(text);
}

static volatile unsigned long sink;

static char parse(const unsigned char *data, size_t size)
{
    static struct reader reader;
    struct build build;
    struct job job;
    char kind, answer = '-';
    uint32_t length;

    memset(&reader, 0, sizeof reader);
    reader.fill = fill;
    rest = data;
    left = size;
    if (read_build(&reader, &build) == 0) {
        answer = 'B';
        sink += touch(build.root) + touch(build.leaf);
        for (size_t i = 0; i < build.mounts.count; i++)
            sink += touch(build.mounts.items[i].source) + touch(build.mounts.items[i].target);
        for (size_t i = 0; i < build.tasks.count; i++)
            sink += touch(build.tasks.items[i]);
    }
    memset(&reader, 0, sizeof reader);
    reader.fill = fill;
    rest = data;
    left = size;
    if (read_header(&reader, &kind, &length) == 0 && kind == 'J' && read_job(&reader, length, &job) == 0) {
        answer = 'J';
        for (char **item = job.arguments.items; item != NULL && *item != NULL; item++)
            sink += touch(*item);
        for (char **item = job.environment.items; item != NULL && *item != NULL; item++)
            sink += touch(*item);
        for (size_t i = 0; i < job.verify.count; i++)
            sink += touch(job.verify.items[i].target);
        sink += ((unsigned char *)job.filter)[job.filter_length * 8 - 1];
        sink += touch(job.command) + touch(job.cwd) + job.payload_bytes;
    }
    return answer;
}

#ifdef LIBFUZZER
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    parse(data, size);
    return 0;
}
#else
static size_t read_all(void *to, size_t size)
{
    size_t got = 0;

    while (got < size) {
        ssize_t step = read(0, (char *)to + got, size - got);
        if (step <= 0)
            break;
        got += (size_t)step;
    }
    return got;
}

/* The cell gives no memory back; a case is a frame of its own here. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0:allocator_may_return_null=1";
}

int main(void)
{
    uint32_t size;

    while (read_all(&size, sizeof size) == sizeof size) {
        unsigned char *data = malloc(size == 0 ? 1 : size);
        if (data == NULL || read_all(data, size) != size)
            return 2;
        char answer = parse(data, size);
        free(data);
        if (write(1, &answer, 1) != 1)
            return 3;
    }
    return 0;
}
#endif
