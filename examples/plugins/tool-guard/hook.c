/* May this tool call go on? A plugin for the gate, in C without a library.
 *
 * Build it: python ../build.py tool-guard
 *
 * The canonical ABI in short: strings come as address and length, in memory that cabi_realloc gave;
 * a result is an address. Each event meets a fresh instance, so nothing is ever freed.
 */

typedef unsigned long size_t;

#define EXPORT(name) __attribute__((export_name(name)))

extern unsigned char __heap_base;
static size_t next;

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size)
{
    (void)old, (void)old_size;
    if (next == 0)
        next = (size_t)&__heap_base;
    size_t at = (next + align - 1) & ~(align - 1);
    next = at + size;
    size_t have = __builtin_wasm_memory_size(0) * 65536;
    if (next > have && __builtin_wasm_memory_grow(0, (next - have + 65535) / 65536) == (size_t)-1)
        __builtin_trap();
    return (void *)at;
}

/* result<_, string> */
struct event_result {
    unsigned char error;
    const char *text;
    size_t length;
};

/* result<option<string>, string>: the option's tag and its text, or the error's text */
struct gate_result {
    unsigned char error;
    union {
        struct {
            unsigned char some;
            const char *text;
            size_t length;
        } ok;
        struct {
            const char *text;
            size_t length;
        } err;
    };
};

static int holds(const char *text, size_t length, const char *word, size_t size)
{
    for (size_t i = 0; i + size <= length; i++) {
        size_t same = 0;
        while (same < size && text[i + same] == word[same])
            same++;
        if (same == size)
            return 1;
    }
    return 0;
}

#define HOLDS(word) holds(payload, length, word, sizeof(word) - 1)

EXPORT("on_event")
struct event_result *on_event(const char *event, size_t event_length, const char *payload,
                              size_t length)
{
    static struct event_result result;
    (void)event, (void)event_length, (void)payload, (void)length;
    return &result;
}

EXPORT("on_gate")
struct gate_result *on_gate(const char *event, size_t event_length, const char *payload,
                            size_t length)
{
    static const char block[] = "it would delete everything";
    static const char warning[] = "This command ran with sudo; say so in your answer.";
    static struct gate_result result;

    (void)event, (void)event_length;
    if (HOLDS("rm -rf /")) {
        result.error = 1;
        result.err.text = block;
        result.err.length = sizeof block - 1;
    } else if (HOLDS("sudo ")) {
        result.ok.some = 1;
        result.ok.text = warning;
        result.ok.length = sizeof warning - 1;
    }
    return &result;
}
