/*
 * What the files of the library's gRPC half share: the client and its parts.
 *
 * All of it belongs to the client's one thread, which runs its loop. What other threads may touch is said where it
 * stands: what `mutex` guards, atomics, and what never changes. They hand their work over as tasks.
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
#include "base/table.h"
#include "client/deadlines.h"
#include "client/endpoints.h"
#include "client/releases.h"
#include "client/renewals.h"
#include "client/retry.h"
#include "leasehold.h"
#include "loop/loop.h"

/* A piece of work for the client's thread; inside of what it works on. */
struct client_task {
    struct client_task *next;
    void (*run)(struct client_task *task);
};

enum client_state {
    CLIENT_OPEN,
    CLIENT_CLOSING, /* takes no more requests; sends what is left of the releases */
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
    pthread_t thread; /* of who destroys it */
    int wake_fd;

    atomic_uint refs; /* the caller's, and one for each lease */
    struct client_counts counts;

    /* Guarded by `mutex`. */
    pthread_mutex_t mutex;
    enum client_state state;
    struct client_task *tasks;
    struct client_task **tasks_end;
    pthread_cond_t ended;
    bool has_ended; /* the thread did all that it had to */
    bool is_woken;  /* the thread was told that there are tasks or releases */
    struct lh_link declarations;
    struct release_inbox inbox;

    /* The thread's own. */
    struct lh_loop *loop;
    struct lh_watch wake;
    struct endpoints endpoints;
    struct retrier retrier;
    struct lh_link requests;
    size_t request_count;
    struct lh_table leases; /* that are held, by lease key */
    struct deadlines deadlines;
    struct lh_timer deadline_timer;
    struct renewals renewals;
    struct releases releases;
    struct lh_timer flush_limit;
    struct lh_deferred settle; /* while closing: is it done? */
    lh_closed_cb *on_closed;
    void *on_closed_arg;
};

/* Any thread. */
bool client_is_here(const struct lh_client *client); /* is this the client's own thread? */
void client_ref(struct lh_client *client);
void client_unref(struct lh_client *client);
bool client_is_open(struct lh_client *client);

/* Wakes the thread; with the mutex held. */
void client_wake_locked(struct lh_client *client);

/* To run on the client's thread, soon. LH_CLOSED: it never will. */
enum lh_status client_post(struct lh_client *client, struct client_task *task);

/* This thread is the client's from now on. */
void client_serve(const struct lh_client *client);
void client_on_woken(void *arg, unsigned ready);
void client_run_tasks(struct lh_client *client);

/*
 * First of all at every entry from the loop: leases whose time has passed while this process slept are lost before
 * anything else is done.
 */
void client_look_at_clock(struct lh_client *client);

void declarations_destroy(struct lh_client *client);

/* While closing: look whether that is done, at the end of the turn. */
void client_settle(struct lh_client *client);

#endif
