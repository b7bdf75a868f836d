/*
 * The outcomes that a caller can act on (enum lh_status) and the words for people that go with them (struct lh_error);
 * both are declared in leasehold.h, which users of the library include.
 *
 * One line of LH_STATUS_MAP keeps together a status, the reason that travels in google.rpc.ErrorInfo, the gRPC status
 * code (https://grpc.github.io/grpc/core/md_doc_statuscodes.html) and a text.
 *
 *     if (status != LH_OK)
 *         lh_warn("acquire failed: %s", lh_status_text(status));
 */
#ifndef LH_BASE_STATUS_H
#define LH_BASE_STATUS_H

#include <stddef.h>

#include "base/public_status.h"

/* X(name, gRPC code, text) */
#define LH_STATUS_MAP(X)                                                                                               \
    X(OK, 0, "done")                                                                                                   \
    X(CANCELED, 1, "the call was cancelled")                                                                           \
    X(INVALID_ARGUMENT, 3, "a field is out of bounds")                                                                 \
    X(WAIT_TIMEOUT, 4, "the wait has passed")                                                                          \
    X(NOT_HELD, 5, "the scope is not held")                                                                            \
    X(ACCESS_DENIED, 7, "access denied")                                                                               \
    X(QUOTA_EXCEEDED, 8, "the quota of the namespace is used up")                                                      \
    X(OVERLOADED, 8, "the server is at one of its limits")                                                             \
    X(MESSAGE_TOO_LARGE, 8, "the message is too large")                                                                \
    X(NAMESPACE_FROZEN, 9, "the namespace is frozen")                                                                  \
    X(HOOK_REJECTED, 9, "a hook refused")                                                                              \
    X(LEASE_ENDED, 9, "the lease of this lease key has ended")                                                         \
    X(LEASE_HELD, 10, "the lease is held")                                                                             \
    X(SCOPE_BUSY, 10, "another transaction keeps the lease's row locked")                                              \
    X(BLOCKING_TIMEOUT, 10, "the server's blocking limit has passed")                                                  \
    X(WATCH_LAGGED, 10, "the watcher fell behind")                                                                     \
    X(UNIMPLEMENTED, 12, "not implemented")                                                                            \
    X(INTERNAL, 13, "internal error")                                                                                  \
    X(DATABASE_UNAVAILABLE, 14, "the database is unavailable")                                                         \
    X(SHUTTING_DOWN, 14, "the server is shutting down")                                                                \
    X(UNAUTHENTICATED, 16, "not authenticated")                                                                        \
    X(NOT_ASKED, 9, "nobody asked the holder to hand over")

/* Statuses of the client library only; a server returns TIMED_OUT too, when the deadline of a call has passed. */
#define LH_CLIENT_STATUS_MAP(X)                                                                                        \
    X(LOST, 9, "the lease is lost")                                                                                    \
    X(TIMED_OUT, 4, "the request's time has passed")                                                                   \
    X(UNAVAILABLE, 14, "no server was there to answer")                                                                \
    X(CLOSED, 1, "the client was closed")                                                                              \
    X(WOULD_BLOCK, 9, "a call that blocks, from a thread that must not")

/* The number of statuses in LH_STATUS_MAP. */
enum {
#define X(name, grpc, text) +1
    LH_STATUS_COUNT = 0 LH_STATUS_MAP(X)
#undef X
};

/* The gRPC status code, 0..16. */
int lh_status_grpc(enum lh_status status);

/* Fill `error` (which may be NULL); returns `status`, so that a function can end with it. */
enum lh_status lh_error_set(struct lh_error *error, enum lh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
