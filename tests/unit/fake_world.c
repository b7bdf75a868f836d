/* The fake world's time and chance, its beginning and its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fake_lanes.h"

/* Instead of libc's: hash tables are keyed with it, and a seed has to give the same history each time. */
ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    memset(buffer, 0x5a, size);
    return (ssize_t)size;
}

static bool is_before(const struct fake_event *a, const struct fake_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

void fake_at(struct fake_world *world, int64_t at_us, fake_event_fn *fn, void *arg, uint64_t n)
{
    if (world->event_count + 1 >= world->event_capacity) {
        world->event_capacity = world->event_capacity == 0 ? 64 : world->event_capacity * 2;
        world->events = lh_realloc(world->events, world->event_capacity, sizeof(world->events[0]));
    }
    struct fake_event event = {at_us < world->now_us ? world->now_us : at_us, world->next_seq++, fn, arg, n};
    size_t slot = ++world->event_count;
    while (slot > 1 && is_before(&event, &world->events[slot / 2])) {
        world->events[slot] = world->events[slot / 2];
        slot /= 2;
    }
    world->events[slot] = event;
}

static struct fake_event take_event(struct fake_world *world)
{
    struct fake_event first = world->events[1];
    struct fake_event last = world->events[world->event_count--];
    size_t slot = 1;
    for (;;) {
        size_t child = slot * 2;
        if (child > world->event_count)
            break;
        if (child < world->event_count && is_before(&world->events[child + 1], &world->events[child]))
            child++;
        if (!is_before(&world->events[child], &last))
            break;
        world->events[slot] = world->events[child];
        slot = child;
    }
    world->events[slot] = last;
    return first;
}

bool fake_step(struct fake_world *world, int64_t until_us)
{
    if (world->event_count == 0 || world->events[1].at_us > until_us) {
        world->now_us = until_us;
        return false;
    }
    struct fake_event event = take_event(world);
    int64_t later_us = world->held_until_us == NULL ? 0 : world->held_until_us(event.arg);
    world->now_us = event.at_us;
    if (later_us > world->now_us) {
        fake_at(world, later_us, event.fn, event.arg, event.n);
        return true;
    }
    event.fn(world, event.arg, event.n);
    return true;
}

void fake_run(struct fake_world *world, int64_t duration_us)
{
    int64_t until_us = world->now_us + duration_us;
    while (fake_step(world, until_us)) {
    }
}

/* xorshift64*, https://vigna.di.unimi.it/ftp/papers/xorshift.pdf */
uint32_t fake_random(struct fake_world *world)
{
    uint64_t x = world->random_state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    world->random_state = x;
    return (uint32_t)(x * UINT64_C(2685821657736338717) >> 32);
}

int fake_below(struct fake_world *world, int n)
{
    return (int)(fake_random(world) % (uint32_t)n);
}

int64_t fake_delay_us(struct fake_world *world)
{
    int64_t span_us = world->max_delay_us - world->min_delay_us;
    return world->min_delay_us + (span_us > 0 ? (int64_t)(fake_random(world) % (uint64_t)span_us) : 0);
}

void fake_world_init(struct fake_world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    world->now_us = 1000 * LH_US_PER_S;
    world->clock_offset_us = INT64_C(1700000000) * LH_US_PER_S;
    world->random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (int i = 0; i < 8; i++)
        fake_random(world);
    world->min_delay_us = 500;
    world->max_delay_us = 500;
    world->worth_a_batch = 3;
    world->slow_poll_helps = true;
    world->next_ticket = 100;
    for (int i = 0; i < FAKE_SCOPES; i++) {
        world->scopes[i].ns = "payments.invoices";
        snprintf(world->scopes[i].key, sizeof(world->scopes[i].key), "k%d", i);
        world->scopes[i].stalled_since_us = -1;
    }
}

void fake_world_finish(struct fake_world *world)
{
    for (int i = 0; i < world->node_count; i++) {
        struct fake_node *node = world->nodes[i];
        lh_coordinator_destroy(node->coordinator);
        fake_lanes_finish(node);
        free(node);
    }
    for (int i = 0; i < FAKE_SCOPES; i++) {
        free(world->scopes[i].rows);
        free(world->scopes[i].ends);
        free(world->scopes[i].shares);
    }
    free(world->events);
}
