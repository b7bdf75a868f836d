/*
 * A request: one verb of the library, done by one or more calls (attempts), with retries, failover and cancellation.
 *
 *     WAITING --- its turn ---> CALLING --- answered, final -----------------> OVER --- end of the turn ---> finish()
 *        ^                         |
 *        '-- RETRYING <- reason ---'        cancelled, time passed: from everywhere to OVER
 *
 * It lies inside the memory of its verb (struct acquire_op, lease_op, ...). lh_request_submit gives it to the client;
 * `finish` gives it back, exactly once, never inside a function that the verb called.
 */
#ifndef LH_CLIENT_REQUEST_H
#define LH_CLIENT_REQUEST_H

#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "client/endpoints.h"
#include "client/reply.h"
#include "client/retry/retry.h"
#include "client/tasks.h"
#include "loop/loop.h"

#define REQUEST_AGAIN (RETRY_NO_REASON + 1)

struct request_verb {
    const char *name; /* "Acquire" */
    const char *path;
    const ProtobufCMessageDescriptor *output;

    /* Packs the message of the next attempt. */
    void (*pack)(struct lh_request *request, struct lh_buffer *message);

    /*
     * Judges a call that is over, with any result. Sets status and error to those that the request ends with if there
     * is no further attempt, and returns the reason for one, RETRY_NO_REASON, or REQUEST_AGAIN: at once.
     */
    unsigned (*judge)(struct lh_request *request, const struct lh_reply *reply);

    /* Handles each message of a call that is answered by a stream; NULL: the call is unary. `judge` follows at its
       end. */
    void (*on_message)(struct lh_request *request, const void *data, size_t size);

    /* Undoes a call that was canceled and answered OK in the same instant; may be NULL. */
    void (*undo)(struct lh_request *request, const struct lh_reply *reply);

    /* Ends the request, with status and error. The memory is the verb's own again. */
    void (*finish)(struct lh_request *request);
};

enum request_state {
    REQUEST_NEW,
    REQUEST_WAITING, /* until lh_request_go */
    REQUEST_CALLING,
    REQUEST_RETRYING,
    REQUEST_OVER,
};

struct lh_request {
    struct retry retry; /* the first member, as strategies require */
    const struct request_verb *verb;
    struct lh_client *client;
    struct lh_link link;      /* link in the client's requests */
    struct lh_link following; /* link among those that wait until a release is answered */
    struct lh_timer timer;
    struct lh_deferred finishing;
    struct lh_rpc_client_call *call;
    struct endpoint *endpoint; /* endpoint of this attempt, or of the last one */
    uint64_t ticket;
    size_t wanted;       /* index of the next attempt's endpoint */
    int64_t deadline_us; /* LH_FOREVER: no deadline */
    int64_t own_us;      /* the part of its time that is not a wait */
    int64_t sent_us;     /* start of the attempt */
    /* Longest wait of this attempt at the server; set by `pack`. */
    int64_t wait_us;
    int64_t cut_us; /* end of the attempt without an answer */
    struct lh_strategy strategy;
    void *strategy_arg;
    const char *name; /* name for the log; the verb's memory */
    enum request_state state;
    enum lh_status status;
    struct lh_error error;
    bool is_cancelled;
    bool is_internal;
    bool is_in_doubt; /* an attempt was sent, and its answer lost */

    struct lh_context *context;
    struct lh_context_callback on_context;

    /* Set from other threads. */
    struct client_task start;
    struct lh_deferred starting; /* used if the request was made on the client's thread */
    void (*on_start)(struct lh_request *request);
    struct client_task cancel;
    bool is_cancel_posted; /* guarded by the client's mutex */
    /* Over, but its task of canceling is still on its way; guarded by the client's mutex. */
    bool is_held_back;
};

/*
 * Initialises a request, on any thread. `deadline_us` LH_FOREVER: none. `options` and `strategy` (used before the
 * client's) may be NULL. lh_request_drop undoes it if the request is not submitted.
 */
void lh_request_init(struct lh_request *request, struct lh_client *client, const struct request_verb *verb,
                     int64_t deadline_us, const struct lh_call_options *options, const struct lh_strategy *strategy);
void lh_request_drop(struct lh_request *request);

/*
 * Hands the request to the client: `on_start` runs on the client's thread and calls lh_request_go, now or later. Any
 * status but LH_OK: refused, the request is still the caller's.
 */
enum lh_status lh_request_submit(struct lh_request *request, void (*on_start)(struct lh_request *request),
                                 struct lh_error *error);

/* Begins a request of the client itself, on its thread: without limit, also while the client closes. */
void lh_request_begin_internal(struct lh_request *request);

void lh_request_go(struct lh_request *request);

/* Runs `on_start` of each request of the list again, because the wait is over. */
void lh_requests_resume(struct lh_link *waiting);

/* Cancels as lh_cancel, with words; on the client's thread. */
void lh_request_cancel(struct lh_request *request, enum lh_status status, const char *words);

#endif
