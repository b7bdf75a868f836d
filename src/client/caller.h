/*
 * Blocking calls to a Leasehold server, one at a time, for programs that have no other work meanwhile.
 *
 *     caller = lh_caller_create("127.0.0.1:7420", NULL, &error);
 *     lh_caller_call(caller, service, "GetStatus", &request.base, deadline_us, &reply);
 *     if (reply.code == LH_GRPC_OK)
 *         print((Leasehold__V1__GetStatusResponse *)reply.message);
 *     lh_reply_finish(&reply);
 *
 * It does not retry: `delivery` and `reason` tell the effect of a repetition.
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

/* Sleeps; returns early when a signal was caught. */
void lh_caller_sleep(struct lh_caller *caller, int64_t duration_us);

#endif
