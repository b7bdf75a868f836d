/*
 * What a caller can act on (enum lh_status) and the words for people that go with it (struct lh_error).
 *
 * One line of LH_STATUS_MAP keeps together a status, the reason that travels in google.rpc.ErrorInfo, the gRPC
 * status code (https://grpc.github.io/grpc/core/md_doc_statuscodes.html) and a text.
 *
 *     if (status != LH_OK)
 *         lh_warn("acquire failed: %s", lh_status_text(status));
 */
#ifndef LH_BASE_STATUS_H
#define LH_BASE_STATUS_H

#include <stddef.h>

/* X(name, gRPC code, text) */
#define LH_STATUS_MAP(X)                                                                                               \
    X(OK, 0, "done")                                                                                                   \
    X(CANCELED, 1, "the call was cancelled")                                                                           \
    X(INVALID_ARGUMENT, 3, "a field is out of bounds")                                                                 \
    X(WAIT_TIMEOUT, 4, "the wait has passed")                                                                          \
    X(NOT_HELD, 5, "nobody holds this lease")                                                                          \
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
    X(UNAUTHENTICATED, 16, "not authenticated")

/* What only the client library says; no server does. */
#define LH_CLIENT_STATUS_MAP(X)                                                                                        \
    X(LOST, 9, "the lease is lost")                                                                                    \
    X(TIMED_OUT, 4, "the request's time has passed")                                                                   \
    X(UNAVAILABLE, 14, "no server was there to answer")                                                                \
    X(CLOSED, 1, "the client was closed")                                                                              \
    X(WOULD_BLOCK, 9, "a call that blocks, from a thread that must not")

/* The public header declares the same for callers; whichever is read first counts, and a test compares them. */
#ifndef LEASEHOLD_H

enum lh_status {
#define X(name, grpc, text) LH_##name,
    LH_STATUS_MAP(X) LH_CLIENT_STATUS_MAP(X)
#undef X
};

#endif

/* Of LH_STATUS_MAP. */
enum {
#define X(name, grpc, text) +1
    LH_STATUS_COUNT = 0 LH_STATUS_MAP(X)
#undef X
};

#ifndef LEASEHOLD_H

/* Words for people; `status` says what to do about it. Zero-initialised it means "nothing went wrong". */
struct lh_error {
    enum lh_status status;
    char sqlstate[6];  /* of PostgreSQL, or "" */
    char message[512]; /* one sentence, without a final full stop or newline */
    char field[64];    /* LH_INVALID_ARGUMENT: the field's name as in the proto, or "" */
    char bound[128];   /* LH_INVALID_ARGUMENT: the limit in words, or "" */
};

/* The reason as it travels in ErrorInfo, e.g. "LEASE_HELD". */
const char *lh_status_name(enum lh_status status);

/* A few words for logs. */
const char *lh_status_text(enum lh_status status);

#endif

/* The gRPC status code, 0..16. */
int lh_status_grpc(enum lh_status status);

/* Fill `error` (which may be NULL); returns `status`, so that a function can end with it. */
enum lh_status lh_error_set(struct lh_error *error, enum lh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
