/*
 * Blocking calls to a Leasehold server, one at a time, for programs that have no other work meanwhile.
 *
 *     caller = lh_caller_create("127.0.0.1:7420", NULL, &error);
 *     lh_caller_call(caller, service, "GetStatus", &request.base, deadline_us, &reply);
 *     if (reply.code == LH_GRPC_OK)
 *         print((Leasehold__V1__GetStatusResponse *)reply.message);
 *     lh_reply_finish(&reply);
 *
 * lh_caller_call does not retry: `delivery` and `reason` tell the effect of a repetition. lh_caller_repeat does.
 */
#ifndef LH_CLIENT_CALLER_H
#define LH_CLIENT_CALLER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "client/reply.h"
#include "rpc/client.h"

struct lh_caller;
struct lh_client_tls;

/*
 * Creates a caller. `targets` is as lh_client_options.endpoints, `tls` as lh_client_options.tls. The first call
 * connects. A call goes to the first server that can be reached, beginning with the one that answered last. Returns
 * NULL, with `error`, if they are not valid.
 */
struct lh_caller *lh_caller_create(const char *targets, const struct lh_client_tls *tls, struct lh_error *error);
void lh_caller_destroy(struct lh_caller *caller);

/*
 * Lets SIGINT and SIGTERM, from now on, cancel the current call, which is then answered CANCELLED, and all that follow,
 * until lh_caller_take_signal has returned the signal's number (0: no signal came).
 */
void lh_caller_catch_signals(struct lh_caller *caller);
int lh_caller_take_signal(struct lh_caller *caller);

/*
 * Makes one call. `deadline_us` is on lh_clock_us(), or LH_RPC_FOREVER. `method` must be one of `service`, `request` of
 * its input. `reply` is filled in every case, and is to be finished.
 */
void lh_caller_call(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                    const ProtobufCMessage *request, int64_t deadline_us, struct lh_reply *reply);

/*
 * Makes a call that is answered with a stream: calls on_message with each message; `reply` is the end of the stream.
 * `on_message` returns whether to go on; if not, the call is canceled, and answered CANCELLED.
 */
typedef bool lh_caller_message_cb(void *arg, const ProtobufCMessage *message);
void lh_caller_read(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                    const ProtobufCMessage *request, lh_caller_message_cb *on_message, void *arg,
                    struct lh_reply *reply);

/* The way to repeat a call. Every member may be NULL. */
struct lh_caller_repetition {
    void (*before_attempt)(void *arg); /* the last chance to change the request */
    /* Returns the time until the next attempt; negative: this answer is the last. NULL: lh_caller_again_in_us. */
    int64_t (*again_in_us)(void *arg, const struct lh_reply *reply, unsigned failures);
    void (*before_again)(void *arg, const struct lh_reply *reply); /* before that pause */
    void *arg;
};

/*
 * Makes a call that is safe to repeat, until an answer is the last, `deadline_us` comes before the next attempt, or a
 * signal was caught. `how` NULL: the default. `reply` is the last one.
 */
void lh_caller_repeat(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                      const ProtobufCMessage *request, int64_t deadline_us, const struct lh_caller_repetition *how,
                      struct lh_reply *reply);

/* Returns true if the same request may have a better answer in a moment. For a server that was never reached it does
   not. */
bool lh_reply_is_passing(const struct lh_reply *reply);

/* Returns 50 ms doubling to 1 s, or the server's RetryInfo if that is longer. `failures` counts from 0. */
int64_t lh_caller_backoff_us(unsigned failures, const struct lh_reply *reply);

/* Returns the backoff after a passing failure, -1 after any other answer. `arg` is not used. */
int64_t lh_caller_again_in_us(void *arg, const struct lh_reply *reply, unsigned failures);

/* Sleeps; returns early when a signal was caught. */
void lh_caller_sleep(struct lh_caller *caller, int64_t duration_us);

#endif
