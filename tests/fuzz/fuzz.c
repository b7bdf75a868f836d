#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define FRAME_MAX_BYTES 16384
#define DATA 0
#define END_STREAM 1

void fuzz_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, condition);
    abort();
}

static void nobody(void *arg, enum lh_log_level level, const char *line)
{
}

void fuzz_quiet(void)
{
    lh_log_set_sink(nobody, NULL);
    lh_log_set_level(LH_LOG_ERROR);
}

uint8_t fuzz_byte(struct fuzz_input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->at++;
}

size_t fuzz_bytes(struct fuzz_input *input, const uint8_t **bytes)
{
    size_t size = fuzz_byte(input);

    if (size >= 0x80)
        size = (size & 0x7f) << 8 | fuzz_byte(input);
    if (size > input->left)
        size = input->left;
    *bytes = input->at;
    input->at += size;
    input->left -= size;
    return size;
}

char *fuzz_text(struct fuzz_input *input)
{
    char *text = lh_alloc(input->left + 1);

    if (input->left > 0)
        memcpy(text, input->at, input->left);
    text[input->left] = '\0';
    return text;
}

void fuzz_frame(struct lh_buffer *out, uint8_t type, uint8_t flags, uint32_t stream, const void *payload, size_t size)
{
    uint8_t header[9] = {
        (uint8_t)(size >> 16),   (uint8_t)(size >> 8),    (uint8_t)size,          type,           flags,
        (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};

    lh_buffer_append(out, header, sizeof(header));
    lh_buffer_append(out, payload, size);
}

static void put_string(struct lh_buffer *block, const void *text, size_t size)
{
    uint8_t length[4] = {(uint8_t)size};
    size_t used = 1;

    if (size >= 0x7f) {
        size_t rest = size - 0x7f;
        length[0] = 0x7f;
        for (; rest >= 0x80; rest >>= 7)
            length[used++] = (uint8_t)(0x80 | (rest & 0x7f));
        length[used++] = (uint8_t)rest;
    }
    lh_buffer_append(block, length, used);
    lh_buffer_append(block, text, size);
}

void fuzz_field(struct lh_buffer *block, const char *name, const void *value, size_t size)
{
    lh_buffer_append(block, "\0", 1);
    put_string(block, name, strlen(name));
    put_string(block, value, size);
}

void fuzz_message(struct lh_buffer *out, uint32_t stream, const void *message, size_t size, bool is_last)
{
    uint8_t prefix[5] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    struct lh_buffer whole = {0};

    lh_buffer_append(&whole, prefix, sizeof(prefix));
    lh_buffer_append(&whole, message, size);
    for (size_t at = 0; at < whole.size; at += FRAME_MAX_BYTES) {
        size_t step = whole.size - at < FRAME_MAX_BYTES ? whole.size - at : FRAME_MAX_BYTES;
        fuzz_frame(out, DATA, is_last && at + step == whole.size ? END_STREAM : 0, stream, whole.data + at, step);
    }
    lh_buffer_finish(&whole);
}
