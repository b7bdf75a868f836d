/*
 * A byte stream to a server whose protocol is its own (Redis, ZooKeeper): connects, collects what is written in a turn
 * of the loop into one send, and hands over what arrives, with what was not used the last time before it.
 */
#ifndef LH_BENCH_STREAM_H
#define LH_BENCH_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"
#include "loop/loop.h"

struct stream {
    struct lh_loop *loop;
    struct lh_watch watch;
    struct lh_deferred flush;
    struct lh_buffer in, out;
    size_t out_at;
    int fd;
    /* Returns how many of the bytes were used. */
    size_t (*on_bytes)(void *arg, const unsigned char *bytes, size_t size);
    void *arg;
};

/* "HOST:PORT", numeric. False: nobody listens there (yet). Anything else ends the process. */
bool stream_open(struct stream *stream, struct lh_loop *loop, const char *target,
                 size_t (*on_bytes)(void *arg, const unsigned char *bytes, size_t size), void *arg);
/* Whether a server that is asked on a connection of its own answers with these first bytes. Blocks, for 200 ms at most.
 */
bool stream_is_answered(const char *target, const char *question, const char *answer);
void stream_write(struct stream *stream, const void *bytes, size_t size);

#endif
