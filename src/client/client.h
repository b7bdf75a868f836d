/*
 * The client and its parts, for the files of the library's gRPC half.
 *
 * All of it belongs to the client's one thread, which runs its loop. Other threads may touch only the members marked
 * below: those guarded by `mutex`, atomics, and those that never change. They hand their work over as tasks.
 */
#ifndef LH_CLIENT_CLIENT_H
#define LH_CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "client/batches_internal.h"
#include "client/endpoints.h"
#include "client/lease_internal.h"
#include "client/request_internal.h"
#include "client/retry_internal.h"
#include "leasehold.h"
#include "loop/loop.h"

enum client_state {
    CLIENT_OPEN,
    CLIENT_CLOSING, /* takes no more requests; sends the rest of the releases */
    CLIENT_CLOSED,  /* takes no more tasks */
};

struct client_counts {
    atomic_uint_fast64_t leases, requests, rpcs, renewal_batches, renewals, lost, left_to_expire;
    atomic_uint_fast64_t retries, refusals; /* copies of the retrier's, for other threads */
};

struct lh_client {
    /* Never changes. */
    char *prefix; /* dotted, or "" */
    char *owner;
    int64_t timeout_us;
    int64_t flush_us;
    uint32_t max_requests;
    bool has_thread;
    pthread_t thread; /* lh_client_destroy joins it */
    int wake_fd;
    unsigned forks; /* lh_client_count_forks() when it was made */

    atomic_uint refs; /* references: the caller's, and one for each lease */
    struct client_counts counts;

    /* Guarded by `mutex`. */
    pthread_mutex_t mutex;
    enum client_state state;
    struct client_task *tasks;
    struct client_task **tasks_end;
    pthread_cond_t ended;
    bool has_ended; /* the thread has done all its work */
    bool is_woken;  /* `wake_fd` tells the thread of tasks or releases */
    struct lh_link declarations;
    struct release_inbox inbox;

    /* The thread's own. */
    struct lh_loop *loop;
    struct lh_watch wake;
    struct endpoints endpoints;
    struct retrier retrier;
    struct lh_link requests;
    size_t request_count;
    struct leases leases;
    struct renewals renewals;
    struct releases releases;
    struct lh_timer flush_limit;
    struct lh_deferred settle; /* while closing: checks whether the client is done */
    lh_closed_cb *on_closed;
    void *on_closed_arg;
};

#endif
