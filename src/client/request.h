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

    /* The message of the next attempt. */
    void (*pack)(struct lh_request *request, struct lh_buffer *message);

    /*
     * What to make of a call that is over, whatever it says. Sets status and error to what the request ends with if
     * there is no further attempt, and returns the reason for one, RETRY_NO_REASON, or REQUEST_AGAIN: at once.
     */
    unsigned (*judge)(struct lh_request *request, const struct lh_reply *reply);

    /* Of a call that is answered by a stream, each message of it; NULL: the call is unary. `judge` follows, at its end.
     */
    void (*on_message)(struct lh_request *request, const void *data, size_t size);

    /* Cancelled, and answered OK in the same instant; may be NULL. */
    void (*undo)(struct lh_request *request, const struct lh_reply *reply);

    /* It is over, with status and error; the verb's memory is its own again. */
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
    struct retry retry; /* first: strategies look at it */
    const struct request_verb *verb;
    struct lh_client *client;
    struct lh_link link;      /* in the client's requests */
    struct lh_link following; /* among those that wait until a release is answered */
    struct lh_timer timer;
    struct lh_deferred finishing;
    struct lh_rpc_client_call *call;
    struct endpoint *endpoint; /* of this attempt, or of the last one */
    uint64_t ticket;
    size_t wanted;       /* the endpoint of the next one */
    int64_t deadline_us; /* LH_FOREVER: none */
    int64_t own_us;      /* of its time, what is not waiting */
    int64_t sent_us;     /* when the attempt began */
    int64_t wait_us;     /* how long the server may let it wait, of this attempt; set by `pack` */
    int64_t cut_us;      /* when the attempt ends if it is not answered */
    struct lh_strategy strategy;
    void *strategy_arg;
    const char *name; /* of what, for the log; the verb's memory */
    enum request_state state;
    enum lh_status status;
    struct lh_error error;
    bool is_cancelled;
    bool is_internal;
    bool is_in_doubt; /* an attempt was sent, and its answer lost */

    struct lh_context *context;
    struct lh_context_callback on_context;

    /* From other threads. */
    struct client_task start;
    struct lh_deferred starting; /* where it was made on the client's thread */
    void (*on_start)(struct lh_request *request);
    struct client_task cancel;
    bool is_cancel_posted; /* guarded by the client's mutex */
    bool is_held_back;     /* over, but its task of cancelling is still on its way; likewise */
};

/*
 * Any thread. `deadline_us` LH_FOREVER: none. `options` and `strategy` (what they have before the client's) may be
 * NULL. lh_request_drop undoes it where nothing else follows.
 */
void lh_request_init(struct lh_request *request, struct lh_client *client, const struct request_verb *verb,
                     int64_t deadline_us, const struct lh_call_options *options, const struct lh_strategy *strategy);
void lh_request_drop(struct lh_request *request);

/*
 * Hand it to the client: `on_start` runs on the client's thread, after request_begin; it calls lh_request_go, now or
 * later. Not LH_OK: refused, it is still the caller's.
 */
enum lh_status lh_request_submit(struct lh_request *request, void (*on_start)(struct lh_request *request),
                                 struct lh_error *error);

/* A request of the client itself, on its thread: without limit, also while the client closes. */
void lh_request_begin_internal(struct lh_request *request);

void lh_request_go(struct lh_request *request);

/* What these waited for is over: `on_start` of each runs again. */
void lh_requests_resume(struct lh_link *waiting);

/* As lh_cancel, with words; the client's thread. */
void lh_request_cancel(struct lh_request *request, enum lh_status status, const char *words);

#endif
