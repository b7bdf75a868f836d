/*
 * Allocation that cannot fail: a process without memory aborts with a message. In a lock service an operation that is
 * half done is worse than a restart, because PostgreSQL holds the truth. Free with free().
 */
#ifndef LH_BASE_MEMORY_H
#define LH_BASE_MEMORY_H

#include <stddef.h>

void *lh_alloc(size_t size);                               /* not cleared */
void *lh_alloc_zero(size_t count, size_t size);            /* cleared; checks the product */
void *lh_realloc(void *memory, size_t count, size_t size); /* checks the product */
char *lh_strdup(const char *text);                         /* NULL for NULL */
char *lh_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A growable run of bytes. Zero-initialised it is empty; finish with lh_buffer_finish. */
struct lh_buffer {
    unsigned char *data;
    size_t size;
    size_t capacity;
};

/* Make room for `extra` bytes after `size` and return where they go; the caller then adds to `size`. */
unsigned char *lh_buffer_reserve(struct lh_buffer *buffer, size_t extra);
/* By how much its capacity would grow for that. */
size_t lh_buffer_growth(const struct lh_buffer *buffer, size_t extra);
void lh_buffer_append(struct lh_buffer *buffer, const void *data, size_t size);
void lh_buffer_finish(struct lh_buffer *buffer);

/*
 * A bump allocator: many small objects that die together. Zero-initialised it is empty. lh_arena_reset keeps the first
 * block, so that a steady load allocates nothing.
 */
struct lh_arena {
    struct lh_arena_block *blocks;
    size_t used; /* bytes used of the newest block */
};

void *lh_arena_alloc(struct lh_arena *arena, size_t size);       /* 16-byte aligned, not cleared */
char *lh_arena_strdup(struct lh_arena *arena, const char *text); /* NULL for NULL */
/* Returns a new array of copies, with room for one more. */
const char **lh_arena_strdup_all(struct lh_arena *arena, const char *const *texts, size_t count);
char *lh_arena_format(struct lh_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lh_arena_reset(struct lh_arena *arena);
void lh_arena_finish(struct lh_arena *arena);

#endif
