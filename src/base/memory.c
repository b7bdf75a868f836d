#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define ARENA_FIRST_BLOCK_BYTES 4096
#define ARENA_LARGEST_BLOCK_BYTES (256 * 1024)
#define ARENA_ALIGNMENT 16

struct lh_arena_block {
    struct lh_arena_block *older;
    size_t capacity;
    _Alignas(ARENA_ALIGNMENT) unsigned char bytes[];
};

static void *checked(void *memory, size_t size)
{
    if (memory == NULL && size != 0) {
        lh_err("out of memory: %zu bytes were refused; stopping", size);
        abort();
    }
    return memory;
}

static size_t product(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        lh_err("out of memory: %zu times %zu bytes; stopping", count, size);
        abort();
    }
    return bytes;
}

void *lh_alloc(size_t size)
{
    return checked(malloc(size), size);
}

void *lh_alloc_zero(size_t count, size_t size)
{
    return checked(calloc(count, size), product(count, size));
}

void *lh_realloc(void *memory, size_t count, size_t size)
{
    size_t bytes = product(count, size);
    return checked(realloc(memory, bytes == 0 ? 1 : bytes), bytes);
}

char *lh_strdup(const char *text)
{
    return text == NULL ? NULL : checked(strdup(text), strlen(text) + 1);
}

char *lh_format(const char *format, ...)
{
    va_list arguments;
    char *text;
    int size;

    va_start(arguments, format);
    size = vasprintf(&text, format, arguments);
    va_end(arguments);
    return checked(size < 0 ? NULL : text, 1);
}

size_t lh_buffer_growth(const struct lh_buffer *buffer, size_t extra)
{
    size_t needed = buffer->size + extra, capacity = buffer->capacity;

    if (needed <= capacity && buffer->data != NULL)
        return 0;
    if (capacity < 256)
        capacity = 256;
    while (capacity < needed)
        capacity *= 2;
    return capacity - buffer->capacity;
}

unsigned char *lh_buffer_reserve(struct lh_buffer *buffer, size_t extra)
{
    size_t growth = lh_buffer_growth(buffer, extra);

    if (growth > 0) {
        buffer->data = lh_realloc(buffer->data, buffer->capacity + growth, 1);
        buffer->capacity += growth;
    }
    return buffer->data + buffer->size;
}

void lh_buffer_append(struct lh_buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return;
    memcpy(lh_buffer_reserve(buffer, size), data, size);
    buffer->size += size;
}

void lh_buffer_finish(struct lh_buffer *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof(*buffer));
}

void *lh_arena_alloc(struct lh_arena *arena, size_t size)
{
    struct lh_arena_block *block = arena->blocks;
    void *memory;

    size = (size + ARENA_ALIGNMENT - 1) & ~(size_t)(ARENA_ALIGNMENT - 1);
    if (block == NULL || block->capacity - arena->used < size) {
        size_t capacity = block == NULL ? ARENA_FIRST_BLOCK_BYTES : block->capacity * 2;
        if (capacity > ARENA_LARGEST_BLOCK_BYTES)
            capacity = ARENA_LARGEST_BLOCK_BYTES;
        if (capacity < size)
            capacity = size;
        block = lh_alloc(sizeof(*block) + capacity);
        block->older = arena->blocks;
        block->capacity = capacity;
        arena->blocks = block;
        arena->used = 0;
    }
    memory = block->bytes + arena->used;
    arena->used += size;
    return memory;
}

char *lh_arena_strdup(struct lh_arena *arena, const char *text)
{
    size_t size = text == NULL ? 0 : strlen(text) + 1;

    return text == NULL ? NULL : memcpy(lh_arena_alloc(arena, size), text, size);
}

const char **lh_arena_strdup_all(struct lh_arena *arena, const char *const *texts, size_t count)
{
    const char **copies = lh_arena_alloc(arena, (count + 1) * sizeof(*copies));

    for (size_t i = 0; i < count; i++)
        copies[i] = lh_arena_strdup(arena, texts[i]);
    return copies;
}

char *lh_arena_format(struct lh_arena *arena, const char *format, ...)
{
    va_list arguments;
    char *text, *copy;

    va_start(arguments, format);
    text = checked(vasprintf(&text, format, arguments) < 0 ? NULL : text, 1);
    va_end(arguments);
    copy = lh_arena_strdup(arena, text);
    free(text);
    return copy;
}

void lh_arena_reset(struct lh_arena *arena)
{
    while (arena->blocks != NULL && arena->blocks->older != NULL) {
        struct lh_arena_block *older = arena->blocks->older;
        free(arena->blocks);
        arena->blocks = older;
    }
    arena->used = 0;
}

void lh_arena_finish(struct lh_arena *arena)
{
    lh_arena_reset(arena);
    free(arena->blocks);
    arena->blocks = NULL;
}
