/*
 * When something has to be looked at: a heap of points in time, the earliest first. It has no clock of its own.
 *
 *     deadlines_set(&client->deadlines, &lease->deadline, at_us);
 *     while ((entry = deadlines_due(&client->deadlines, now_us)) != NULL) ...
 */
#ifndef LH_CLIENT_DEADLINES_H
#define LH_CLIENT_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

struct deadline {
    int64_t at_us;
    uint32_t place; /* in the heap, from 1; 0: in none */
};

/* Zero-initialised it is empty. */
struct deadlines {
    struct deadline **slots; /* place 0 is unused */
    uint32_t count;
    uint32_t capacity;
};

void deadlines_set(struct deadlines *heap, struct deadline *entry, int64_t at_us); /* puts it in, or moves it */
void deadlines_remove(struct deadlines *heap, struct deadline *entry);  /* does nothing where it is in none */
int64_t deadlines_next_us(const struct deadlines *heap);                /* INT64_MAX: it is empty */
struct deadline *deadlines_due(struct deadlines *heap, int64_t now_us); /* takes one out, or NULL */
void deadlines_finish(struct deadlines *heap);

#endif
