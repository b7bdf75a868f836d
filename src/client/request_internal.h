/* A request from its start to its callback: the threads that it is done on, its attempts, its end, and what requests about one lease share. */
#ifndef LH_CLIENT_REQUEST_INTERNAL_H
#define LH_CLIENT_REQUEST_INTERNAL_H

#include <protobuf-c/protobuf-c.h>
#include <semaphore.h>
#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"
#include "client/endpoints.h"
#include "client/lease_internal.h"
#include "client/reply.h"
#include "client/retry_internal.h"
#include "leasehold.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/loop.h"

/*
 * The client as its parts see it: the references to it, and the work that other threads hand over to its thread.
 *
 *     operation->task.run = run_operation;
 *     if (lh_client_post(client, &operation->task) != LH_OK)
 *         the client is closed: run_operation is never called
 */

struct lh_client;

/* A piece of work for the client's thread, embedded in its subject. */
struct client_task {
    struct client_task *next;
    void (*run)(struct client_task *task);
};

/* Take and drop a reference, on any thread. The last one frees the client. */
void lh_client_ref(struct lh_client *client);
void lh_client_unref(struct lh_client *client);
bool lh_client_is_here(const struct lh_client *client); /* whether this is its thread */
bool lh_client_is_open(struct lh_client *client);

/* Wakes the thread. Call it with the mutex held. */
void lh_client_wake_locked(struct lh_client *client);

/* Hands over a task to run on the client's thread, soon. LH_CLOSED: it never runs. */
enum lh_status lh_client_post(struct lh_client *client, struct client_task *task);

/* Makes this thread the client's. */
void lh_client_serve(const struct lh_client *client);
void lh_client_run_tasks(struct lh_client *client);

/* Checks at the end of the turn whether a closing client is done. */
void lh_client_settle(struct lh_client *client);

/* A call that blocks its thread until the client's thread is done. On the caller's stack. */

struct blocked {
    sem_t done;
    struct lh_lease *lease;
    struct lh_error *error; /* the caller's, or NULL */
    enum lh_status status;
};

/* Begins a blocking call. LH_WOULD_BLOCK: this thread must not block. `client` NULL: there is no lease, which is
   LH_INVALID_ARGUMENT. */
enum lh_status lh_blocked_begin(struct blocked *blocked, struct lh_client *client, struct lh_error *error);

/* Waits for the callback of the call, which wakes this one. `started`: the refusal of lh_blocked_begin, or the
   return of the call. */
enum lh_status lh_blocked_wait(struct blocked *blocked, enum lh_status started);

void lh_blocked_wake(struct blocked *blocked, enum lh_status status, const struct lh_error *error);
lh_done_cb lh_blocked_on_done; /* `arg` is the struct blocked */

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

#define REQUEST_AGAIN (RETRY_NO_REASON + 1)

struct request_verb {
    const char *name; /* "Acquire" */
    const char *path;
    const ProtobufCMessageDescriptor *output;

    /* Packs the message of the next attempt. */
    void (*pack)(struct lh_request *request, struct lh_buffer *message);

    /*
     * Judges a call that is over, with any result. Sets status and error to those that the request ends with if there
     * is no further attempt, and returns the reason for one, RETRY_NO_REASON, or REQUEST_AGAIN: from
     * its `on_start` on.
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
    bool is_in_doubt; /* an attempt was sent, and its answer lost */
    bool is_cut_off;  /* cancelled while an attempt was on its way */

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

/* The end of a request: once, with a status and words. */

/* Ends the request with `status`. */
void lh_request_end(struct lh_request *request, enum lh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* End the request: with the status that is set, and with LH_TIMED_OUT. lh_request_set_status sets the status without
   ending it. */
void lh_request_become_over(struct lh_request *request);
void lh_request_time_out(struct lh_request *request);
void lh_request_set_status(struct lh_request *request, enum lh_status status, const char *words);

/* Calls `finish` of the verb, at the end of the turn. */
void lh_request_finish(void *request);

/* An attempt of a request: a call to an endpoint, and the judgement of its end. */

/* Begins an attempt at once. The request may be over when it returns. */
void lh_attempt_begin(struct lh_request *request);
void lh_attempt_wait_for_turn(struct lh_request *request); /* `on_start` says when that is */

/* Judges every reply that is not the verb's own answer, as `judge` of the verbs. */
unsigned lh_attempt_judge_error(struct lh_request *request, const struct lh_reply *reply);

/* Returns true, with the request ended, if its context has ended. */
bool lh_attempt_is_context_over(struct lh_request *request);

/* The common part of lh_heartbeat, lh_downgrade, lh_lease_refuse_hand_over and lh_release: one lease in one request, and a caller that gets the
   answer. */

struct lease_op {
    struct lh_request request;
    struct lh_lease *lease;
    bool was_sent; /* an attempt may have been carried out */
    int32_t units; /* units of a downgrade */
    char *reason;  /* words of a refusal to hand over */
    lh_done_cb *on_done;
    void *arg;
};

struct lease_op *lh_lease_op_of(struct lh_request *request);

struct lease_op *lh_lease_op_create(struct lh_lease *lease, const struct request_verb *verb,
                                    const struct lh_call_options *options, lh_done_cb *on_done, void *arg);

/* Submits `op` and takes it over. LH_OK: on_done follows, by lh_lease_op_finish, which is the `finish` of the verb.
   Any other status: refused, on_done never fires. */
enum lh_status lh_lease_op_submit(struct lease_op *op, void (*on_start)(struct lh_request *request),
                                  struct lh_request **request, struct lh_error *error);
void lh_lease_op_finish(struct lh_request *request);

/* Judge an answer and return the reason for `judge`: an answer with the wrong number of leases, and the answer for
   the one lease. */
unsigned lh_lease_op_miscounted(struct lh_request *request, size_t count);
unsigned lh_lease_op_misdirected(struct lh_request *request); /* the answer is about another lease */
unsigned lh_lease_op_answered(struct lh_request *request, enum lh_status status, Leasehold__V1__EndReason end_reason,
                              const char *message);

#endif
