/*
 * libleasehold: leases that look after themselves.
 *
 *     struct lh_client *client = lh_client_create(&(struct lh_client_options){.endpoints = "127.0.0.1:7420"}, &error);
 *     struct lh_declared *jobs = lh_declare(client, "payments.invoices", NULL, &error);
 *     struct lh_lease *lease;
 *     if (lh_acquire(jobs, "invoice-42", NULL, &lease, &error) != LH_OK)
 *         errx(1, "%s", error.message);
 *     pay(lh_lease_token(lease));                 // renewed by itself meanwhile
 *     lh_release(lease, NULL, &error);
 *     lh_lease_destroy(lease);
 *     lh_client_destroy(client);
 *
 * Conventions. Times are microseconds in an int64_t, their names end in _us; points in time are on CLOCK_BOOTTIME.
 * Structures of options are the caller's and needed during the call only; a member that is zero means its default, and
 * NULL in the place of one means all defaults. Strings passed in are copied. Strings handed out live as long as the
 * object they were asked of, in callbacks as long as the callback. `struct lh_error *` may always be NULL. Misuse
 * (NULL where something is needed, a value out of bounds, a client that was closed) is answered by a status with
 * words.
 *
 * Threads. A client has its own thread, or lives on the caller's libevent base (lh_client_options.event_base). With a
 * thread of its own, every function may be called from every thread, and callbacks run on the client's thread. On an
 * event base every function is for the thread that runs the base, except where it says otherwise, and callbacks come
 * from inside of its loop; functions that block are refused there (LH_WOULD_BLOCK), as they are from inside of any
 * callback. Callbacks may call everything else.
 *
 * The callback promise. A function that takes a callback and answers another status than LH_OK never calls it. After
 * LH_OK it is called exactly once, later, never before the function has returned.
 */
#ifndef LEASEHOLD_H
#define LEASEHOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_MILLISECOND INT64_C(1000)
#define LH_SECOND INT64_C(1000000)
#define LH_FOREVER INT64_MAX

struct event_base; /* of libevent */

/* --- 1. Status ---------------------------------------------------------------------------------------------------- */

/* Leasehold's own sources know these from their own headers. */
#ifndef LH_BASE_STATUS_H

enum lh_status {
    LH_OK,
    LH_CANCELED, /* by lh_cancel, by its context, or because the client was closed meanwhile */
    LH_INVALID_ARGUMENT,
    LH_WAIT_TIMEOUT, /* the scope was held for as long as the acquire was to wait */
    LH_NOT_HELD,
    LH_ACCESS_DENIED,
    LH_QUOTA_EXCEEDED,
    LH_OVERLOADED, /* a limit of the server's or of the client's is reached */
    LH_MESSAGE_TOO_LARGE,
    LH_NAMESPACE_FROZEN,
    LH_HOOK_REJECTED,
    LH_LEASE_ENDED, /* an acquire with the lease key of a lease that has ended */
    LH_LEASE_HELD,  /* by another; the acquire was not to wait */
    LH_SCOPE_BUSY,
    LH_BLOCKING_TIMEOUT,
    LH_WATCH_LAGGED,
    LH_UNIMPLEMENTED,
    LH_INTERNAL,
    LH_DATABASE_UNAVAILABLE,
    LH_SHUTTING_DOWN,
    LH_UNAUTHENTICATED,

    /* The client's own. */
    LH_LOST,        /* the lease is not held any more, and never will be again */
    LH_TIMED_OUT,   /* the request's own time has passed; what was sent may have had its effect */
    LH_UNAVAILABLE, /* no endpoint could be reached, or the connection broke, and the strategy did not go on */
    LH_CLOSED,      /* the client was closed before the call */
    LH_WOULD_BLOCK, /* a call that blocks, from a thread that must not */
};

/* Words for people; `status` says what to do about it. */
struct lh_error {
    enum lh_status status;
    char sqlstate[6];  /* of PostgreSQL, or "" */
    char message[512]; /* one sentence, without a final full stop or newline */
    char field[64];    /* LH_INVALID_ARGUMENT: the field's name, or "" */
    char bound[128];   /* LH_INVALID_ARGUMENT: the limit in words, or "" */
};

/* "LEASE_HELD", and a few words about it. Any thread. */
const char *lh_status_name(enum lh_status status);
const char *lh_status_text(enum lh_status status);

#endif

#ifndef LH_BASE_LOG_H
enum lh_log_level { LH_LOG_DEBUG, LH_LOG_INFO, LH_LOG_WARN, LH_LOG_ERROR };
#endif

/*
 * What the library says goes to `on_line`, one sentence a time, from whichever thread says it; NULL: to stderr. Only
 * lines of `level` and above; the default is LH_LOG_WARN: leases lost or left to expire. LH_LOG_INFO adds every retry
 * and every refusal with its reasons, and connections. One setting for the process: make it before the first client.
 */
typedef void lh_log_cb(void *arg, enum lh_log_level level, const char *line);
void lh_log_to(enum lh_log_level level, lh_log_cb *on_line, void *arg);

/* --- 2. Clients --------------------------------------------------------------------------------------------------- */

struct lh_client;
struct lh_context;
struct lh_declared;
struct lh_lease;
struct lh_request;
struct lh_strategy;

struct lh_client_options {
    /*
     * One to LH_ENDPOINTS_MAX of "HOST:PORT", "[IPv6]:PORT", "unix:/path", with commas between, the preferred first.
     * All must lead to coordinators of the same database. NULL: the environment's LEASEHOLD_SERVER, or 127.0.0.1:7420.
     */
    const char *endpoints;
    struct event_base *event_base; /* NULL: a thread of its own */
    const char *namespace_prefix;  /* dotted; all that is declared lies below it. NULL: none */
    const char *owner;             /* who asks, for people; NULL: HOST/PROGRAM/PID */
    int64_t timeout_us;            /* of a request, beyond any wait; default 5 s */
    int64_t connect_timeout_us;    /* of an attempt to connect to one address; default 2 s */

    /* Retries, section 7. */
    const struct lh_strategy *strategy; /* NULL: best effort */
    uint32_t max_retrying;              /* requests in retry at once; beyond, they fail. Default 65,536 */
    uint32_t breaker_failures;          /* in a row: the endpoint's circuit opens; default 5 */
    int64_t breaker_open_us;            /* then one probe at a time; default 1 s */

    /* Limits. */
    uint32_t max_requests; /* going on at once, the blocking ones too; beyond: LH_OVERLOADED. Default 65,536 */
    uint32_t max_releases; /* waiting in the set of lh_try_release; beyond: LH_OVERLOADED. Default 2,097,152 */
    int64_t flush_us;      /* how long lh_client_close goes on sending releases; default 5 s, negative: not at all */

    void *reserved[8]; /* zero; TLS will have its place here */
};

#define LH_ENDPOINTS_MAX 16

/*
 * Connects in the background; never waits for a server. NULL: `error` says why: an endpoint that cannot be read, or a
 * host name that cannot be resolved (names are looked up here, once; numbers never block).
 */
struct lh_client *lh_client_create(const struct lh_client_options *options, struct lh_error *error);

/*
 * From now on calls are answered LH_CLOSED. Requests that go on are answered LH_CANCELED; renewals end; the set of
 * lh_try_release is sent for at most flush_us, what is left of it is logged as left to expire. Leases still held are
 * left to expire too, without on_lost. With a thread of its own it returns when all that is done; on an event base
 * that goes on in the base's loop, and `on_closed` (may be NULL) tells when. Repeating it does nothing.
 */
typedef void lh_closed_cb(void *arg);
void lh_client_close(struct lh_client *client, lh_closed_cb *on_closed, void *arg);

/*
 * Closes it where that was not done (on an event base: without flushing), and frees it. Leases and contexts of it stay
 * valid until they are destroyed. Not from inside of a callback of the client's. NULL does nothing.
 */
void lh_client_destroy(struct lh_client *client);

/* What a client did so far. Any thread. */
struct lh_client_stats {
    uint64_t leases;          /* held now, by what the client knows */
    uint64_t requests;        /* going on now */
    uint64_t releases;        /* waiting in the set of lh_try_release now */
    uint64_t rpcs;            /* sent in all: calls, and messages on the stream of renewals */
    uint64_t renewal_batches; /* of those, renewals */
    uint64_t renewals;        /* leases renewed */
    uint64_t retries;
    uint64_t refusals;       /* failures that were not retried */
    uint64_t lost;           /* leases lost */
    uint64_t left_to_expire; /* releases that were not delivered */
    uint64_t reserved[8];
};
void lh_client_get_stats(struct lh_client *client, struct lh_client_stats *stats);

/* --- 3. Declarations ---------------------------------------------------------------------------------------------- */

enum lh_lost_reason {
    LH_LOST_RELEASED = 1, /* under its lease key, but not through this lease */
    LH_LOST_EXPIRED,      /* the server says so, or the deadline had passed when this process woke up */
    LH_LOST_FORCED,       /* by an administrator */
    LH_LOST_UNREACHABLE,  /* no renewal got through; the deadline is `margin` away */
    LH_LOST_LONGEST_HOLD,
    LH_LOST_UNKNOWN, /* the server does not know the lease any more, nor how it ended */
};
const char *lh_lost_reason_name(enum lh_lost_reason reason);

/*
 * Once for a lease, never after lh_release, lh_try_release or lh_lease_destroy was called for it: stop the work. Before
 * it is called the lease's context is cancelled. lh_lease_remaining_us says how long there is: `margin` in the case of
 * LH_LOST_UNREACHABLE, as long as the lease lives in that of LH_LOST_LONGEST_HOLD, nothing in the others. After the
 * first two the server may still have the lease, so a release is worth its while.
 */
typedef void lh_lost_cb(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words);

/*
 * The lease has been held for its longest hold. What it returns is how much longer it may be held, in microseconds; 0
 * (and having no such callback): renewals end, and on_lost follows.
 */
typedef int64_t lh_longest_hold_cb(void *arg, struct lh_lease *lease);

struct lh_declare_options {
    int64_t duration_us;     /* a lease lives so long without renewal; 100 ms to 365 d; default 30 s */
    int64_t margin_us;       /* on_lost comes so long before the deadline; default a tenth of the duration; below it */
    int64_t longest_hold_us; /* default: none */
    lh_lost_cb *on_lost;     /* may be NULL: then look at the lease, or at its context */
    lh_longest_hold_cb *on_longest_hold;
    void *arg;                          /* of both; lh_lease_user tells leases apart */
    const struct lh_strategy *strategy; /* NULL: the client's */
    void *reserved[8];
};

/*
 * How the leases of a namespace are to be. Once; then acquired with a key, any number of times. It lives as long as
 * the client, which frees it. NULL: `error` says what is out of bounds.
 */
struct lh_declared *lh_declare(struct lh_client *client, const char *namespace_text,
                               const struct lh_declare_options *options, struct lh_error *error);

/* --- 4. Leases ---------------------------------------------------------------------------------------------------- */

enum lh_holder_liveness {
    LH_HOLDER_UNKNOWN,
    LH_HOLDER_ALIVE,
    LH_HOLDER_SUSPECTED_DEAD,
    LH_HOLDER_OVERDUE, /* holds it unreasonably long */
    LH_HOLDER_EXPIRED,
};

/* Who stands in the way. */
struct lh_obstacle {
    const char *owner; /* "" where nobody holds it, but others wait */
    enum lh_holder_liveness liveness;
    int64_t token;
    int64_t held_us;   /* since it was acquired, by the database's clock */
    int64_t silent_us; /* since its last heartbeat, likewise */
    uint32_t waiters_ahead;
};
typedef void lh_waiting_cb(void *arg, const struct lh_obstacle *obstacle);

struct lh_acquire_options {
    /*
     * How long to wait for the lease; 0: not at all, LH_FOREVER: until granted. Of any length: what the server cuts in
     * pieces (BLOCKING_TIMEOUT) is put together again, in the same place of the queue.
     */
    int64_t wait_us;
    bool wait_while_alive;     /* wait as long as the holder is alive; wait_us counts from when it is not */
    int64_t timeout_us;        /* beyond the wait; default: the client's */
    const char *owner;         /* default: the client's */
    const char *lease_key;     /* a UUID; default: a new one. With that of a lease still held, it is this lease */
    const char *const *labels; /* "name=value" each, NULL at the end; at most 16 */
    lh_waiting_cb *on_waiting; /* told who stands in the way, at least every 5 s; may be NULL */
    void *on_waiting_arg;
    void *user;                         /* lh_lease_user of the lease */
    struct lh_context *context;         /* cancelled with it, and done within its time */
    const struct lh_strategy *strategy; /* default: the declaration's */
    void *strategy_arg;                 /* lh_request_arg: for the strategy */
    void *reserved[8];
};

/*
 * Take a lease. Idempotent by its lease key, so an answer that got lost is asked for again. After a lh_try_release of
 * the same scope by the same client it goes out when that release has been answered. LH_OK: *lease is the caller's, to
 * destroy; it is renewed from now on at a third of its duration.
 *
 * LH_LOST: granted, but this process stood still for so long that it is over
 * already. LH_LEASE_HELD and LH_WAIT_TIMEOUT are outcomes: `error` says in words who holds it.
 */
enum lh_status lh_acquire(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                          struct lh_lease **lease, struct lh_error *error);

/* The same, without blocking. `lease` is NULL unless `status` is LH_OK. */
typedef void lh_acquired_cb(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error);
enum lh_status lh_acquire_async(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                                lh_acquired_cb *on_done, void *arg, struct lh_request **request,
                                struct lh_error *error);

/*
 * Give up a request of one of the functions that end in _async. Its callback follows, with LH_CANCELED unless it is
 * done already; a waiter leaves the queue; a lease granted in the same instant is released again. `request` is valid
 * until its callback was called.
 */
void lh_cancel(struct lh_request *request);

/*
 * By what this process knows, on its own clock: not lost, not released, and the deadline not passed. Any thread, no
 * lock, no system call beyond reading the clock.
 */
bool lh_lease_is_held(const struct lh_lease *lease);

/* To the deadline of the last renewal; negative when that has passed. Any thread. */
int64_t lh_lease_remaining_us(const struct lh_lease *lease);
int64_t lh_lease_deadline_us(const struct lh_lease *lease);

/* The fencing token: hand it to whatever must refuse a stale holder. It never changes. The following: any thread. */
int64_t lh_lease_token(const struct lh_lease *lease);
const char *lh_lease_namespace(const struct lh_lease *lease); /* with the client's prefix, dotted */
const char *lh_lease_scope_key(const struct lh_lease *lease);
void lh_lease_key(const struct lh_lease *lease, char text[37]); /* the lease key, a UUID: a credential */
void *lh_lease_user(const struct lh_lease *lease);

/* Why it was lost, 0: it was not. Any thread. */
enum lh_lost_reason lh_lease_lost_reason(const struct lh_lease *lease);

/*
 * Cancelled when the lease is lost; its time is that to the deadline - margin, which each renewal moves on. A release
 * takes that limit away and cancels nothing. It lives as long as the lease, or as a child of it.
 */
struct lh_context *lh_lease_context(struct lh_lease *lease);

/* The handle is the caller's no longer. A lease that is still held is released as by lh_try_release. NULL: nothing. */
void lh_lease_destroy(struct lh_lease *lease);

/* --- 5. Heartbeats by hand ---------------------------------------------------------------------------------------- */

struct lh_call_options {
    int64_t timeout_us; /* default: the client's */
    struct lh_context *context;
    const struct lh_strategy *strategy; /* default: the declaration's */
    void *strategy_arg;
    void *reserved[4];
};

/*
 * Renew it now. Not needed for renewal: to make sure, before something that cannot be undone. LH_OK: it was held when
 * the server answered, and the deadline is that of this renewal. LH_LOST: on_lost was called or follows.
 */
enum lh_status lh_heartbeat(struct lh_lease *lease, const struct lh_call_options *options, struct lh_error *error);

typedef void lh_done_cb(void *arg, enum lh_status status, const struct lh_error *error);
enum lh_status lh_heartbeat_async(struct lh_lease *lease, const struct lh_call_options *options, lh_done_cb *on_done,
                                  void *arg, struct lh_request **request, struct lh_error *error);

/* --- 6. Release --------------------------------------------------------------------------------------------------- */

struct lh_release_options {
    const char *result;  /* JSON, at most 8 KiB; NULL: none */
    const char *failure; /* what went wrong, at most 8 KiB; not together with `result` */
    struct lh_call_options call;
};

/*
 * Give the lease back and wait for the answer. From the call on it is not renewed, and not held. Idempotent: an answer
 * that got lost is asked for again, and LOST because of the release itself counts as done. LH_LOST: it had ended
 * before, or was released before. LH_HOOK_REJECTED: a hook of the namespace refused, the lease is left to expire. Any
 * other failure: it is unknown whether it was released; if not, it expires.
 */
enum lh_status lh_release(struct lh_lease *lease, const struct lh_release_options *options, struct lh_error *error);
enum lh_status lh_release_async(struct lh_lease *lease, const struct lh_release_options *options, lh_done_cb *on_done,
                                void *arg, struct lh_request **request, struct lh_error *error);

/*
 * Give the lease back without waiting for anything: it is taken from what is renewed, then put into a set, which goes
 * out whole, one request at a time. A release that fails is logged and tried again until the lease's deadline, then it
 * is left to expire. Of `options` only result and failure count. LH_LOST: lost or released before. LH_OVERLOADED:
 * max_releases wait already; it is left to expire.
 */
enum lh_status lh_try_release(struct lh_lease *lease, const struct lh_release_options *options);

/* --- 7. Retries --------------------------------------------------------------------------------------------------- */

/*
 * Every request is done by one or more attempts. An attempt fails for a reason, and a strategy says whether and when
 * there is another one:
 *
 *   reason                                 also if not idempotent   always   at which endpoint
 *   UNKNOWN                                no                       no       the same
 *   SOCKET_NOT_AVAILABLE                   yes                      no       the next
 *   ENDPOINT_NOT_AVAILABLE                 yes                      no       the next
 *   SOCKET_CLOSED_WHILE_IN_FLIGHT          no                       no       the next
 *   CIRCUIT_BREAKER_OPEN                   yes                      no       the next
 *   BLOCKING_TIMEOUT                       yes                      yes      the same
 *   SHUTTING_DOWN                          yes                      yes      the next
 *   DATABASE_UNAVAILABLE, OVERLOADED       yes                      no       the next
 *   SCOPE_BUSY, OUTCOME_RETRY              yes                      no       the same
 *   LEASE_HELD                             yes                      no       the same
 *   RETRY_INFO                             yes                      no       the same
 *
 * What is always retried is so without asking a strategy, by the controlled backoff: 1, 10, 50, 100, 500, then
 * 1000 ms. BLOCKING_TIMEOUT goes on at once where the server did block for 1 s or more, with what is left of the wait,
 * and sets the count of failures back. The default strategy, best effort, retries a request that is idempotent for
 * every reason, another one for those marked "yes"; only LEASE_HELD, which is an outcome, it leaves at that. RETRY_INFO
 * is a reason this library does not know with a google.rpc.RetryInfo: the strategy decides, the server's delay does
 * not. Every delay is cut to what is left of the request's time; after a delay that was cut the request fails, unsent
 * (LH_TIMED_OUT). Every retry and every refusal is logged at LH_LOG_INFO, with all reasons so far. Acquire, heartbeat
 * and release are idempotent by their lease key.
 *
 * What comes of each gRPC code, and of each reason that the server gives with it, by how far the attempt had come. A
 * dash: cannot be; a name of section 1: that is the request's status, final; any other name: that retry reason.
 *
 *   code              reason given           before sending         in flight, no answer   answered
 *   0 OK              -                      -                      -                      done; of its items:
 *                     item OUTCOME_RETRY     -                      -                      OUTCOME_RETRY
 *                     item OUTCOME_LOST      -                      -                      LH_LOST
 *                     item OUTCOME_REJECTED  -                      -                      LH_HOOK_REJECTED
 *                     item OUTCOME_INVALID   -                      -                      LH_INVALID_ARGUMENT
 *   1 CANCELLED       by the caller          LH_CANCELED            LH_CANCELED            -
 *                     by a proxy or server   -                      SOCKET_CLOSED_...      LH_UNAVAILABLE
 *   2 UNKNOWN         none                   SOCKET_NOT_AVAILABLE   UNKNOWN                UNKNOWN
 *   3 INVALID_ARGUMENT  the same             -                      -                      LH_INVALID_ARGUMENT
 *   4 DEADLINE_EXCEEDED none                 LH_TIMED_OUT           LH_TIMED_OUT           LH_TIMED_OUT
 *                     cut short to ask       SOCKET_NOT_AVAILABLE   SOCKET_CLOSED_...      -
 *                       the next endpoint
 *                     WAIT_TIMEOUT           -                      -                      LH_WAIT_TIMEOUT
 *   5 NOT_FOUND       NOT_HELD               -                      -                      LH_NOT_HELD
 *   6 ALREADY_EXISTS  none                   -                      -                      LH_INTERNAL
 *   7 PERMISSION_DENIED ACCESS_DENIED        -                      -                      LH_ACCESS_DENIED
 *   8 RESOURCE_EXHAUSTED QUOTA_EXCEEDED      -                      -                      LH_QUOTA_EXCEEDED
 *                     OVERLOADED             LH_OVERLOADED (ours)   -                      OVERLOADED
 *                     MESSAGE_TOO_LARGE      -                      -                      LH_MESSAGE_TOO_LARGE
 *                     none                   -                      UNKNOWN                LH_OVERLOADED
 *   9 FAILED_PRECONDITION NAMESPACE_FROZEN, HOOK_REJECTED, LEASE_ENDED: -   -              the same
 *   10 ABORTED        LEASE_HELD             -                      -                      LEASE_HELD
 *                     SCOPE_BUSY             -                      -                      SCOPE_BUSY
 *                     BLOCKING_TIMEOUT       -                      -                      BLOCKING_TIMEOUT
 *                     WATCH_LAGGED, none     -                      -                      LH_WATCH_LAGGED, LH_INTERNAL
 *   11 OUT_OF_RANGE   none                   -                      -                      LH_INTERNAL
 *   12 UNIMPLEMENTED  none                   -                      -                      LH_UNIMPLEMENTED
 *   13 INTERNAL       INTERNAL, none         -                      UNKNOWN (broken stream) LH_INTERNAL
 *   14 UNAVAILABLE    DATABASE_UNAVAILABLE   -                      -                      DATABASE_UNAVAILABLE
 *                     SHUTTING_DOWN          -                      -                      SHUTTING_DOWN
 *                     none                   SOCKET_NOT_AVAILABLE   SOCKET_CLOSED_...      UNKNOWN (a proxy's)
 *   15 DATA_LOSS      none                   -                      -                      LH_INTERNAL
 *   16 UNAUTHENTICATED the same              -                      -                      LH_UNAUTHENTICATED
 *   any               unknown, + RetryInfo   -                      -                      RETRY_INFO
 *   no endpoint can be asked                 ENDPOINT_NOT_AVAILABLE -                      -
 *   the circuit of all that can is open      CIRCUIT_BREAKER_OPEN   -                      -
 *
 * Before sending includes what the server says it did not look at (GOAWAY, REFUSED_STREAM). When the strategy refuses,
 * the request ends with the status of that name, or LH_UNAVAILABLE where there is none.
 */
enum lh_retry_reason {
    LH_RETRY_UNKNOWN,
    LH_RETRY_SOCKET_NOT_AVAILABLE,
    LH_RETRY_ENDPOINT_NOT_AVAILABLE,
    LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT,
    LH_RETRY_CIRCUIT_BREAKER_OPEN,
    LH_RETRY_BLOCKING_TIMEOUT,
    LH_RETRY_SHUTTING_DOWN,
    LH_RETRY_DATABASE_UNAVAILABLE,
    LH_RETRY_OVERLOADED,
    LH_RETRY_SCOPE_BUSY,
    LH_RETRY_OUTCOME_RETRY,
    LH_RETRY_LEASE_HELD,
    LH_RETRY_RETRY_INFO,
};
#define LH_RETRY_REASON_COUNT 13

const char *lh_retry_reason_name(enum lh_retry_reason reason);           /* "SCOPE_BUSY" */
bool lh_retry_reason_allows_non_idempotent(enum lh_retry_reason reason); /* the table's two properties */
bool lh_retry_reason_is_always(enum lh_retry_reason reason);

/* What a strategy may ask of a request, from inside of `decide`. */
const char *lh_request_verb(const struct lh_request *request); /* "Acquire" */
uint64_t lh_request_id(const struct lh_request *request);      /* for lh_retry_decide; unique within its client */
bool lh_request_is_idempotent(const struct lh_request *request);
uint32_t lh_request_attempts(const struct lh_request *request);      /* made so far, the failed one included */
uint32_t lh_request_failures(const struct lh_request *request);      /* of those, what the delay counts by: from 1 on */
uint32_t lh_request_reasons(const struct lh_request *request);       /* all so far: bit 1 << enum lh_retry_reason */
int64_t lh_request_remaining_us(const struct lh_request *request);   /* of its time; LH_FOREVER: no limit */
int64_t lh_request_retry_after_us(const struct lh_request *request); /* what the server asked for, 0: nothing */
void *lh_request_arg(const struct lh_request *request);              /* strategy_arg of its options */

/*
 * A strategy. `decide` is called on the client's thread after an attempt failed for `reason`. It returns how long to
 * wait before the next one, in microseconds; or LH_RETRY_REFUSE: the request fails; or LH_RETRY_DEFER: the answer comes
 * later, by lh_retry_decide with the request's id. A request whose answer never comes ends when its time has passed.
 * Fail fast is three lines:
 *
 *     static int64_t fail_fast(const struct lh_strategy *s, const struct lh_request *r, enum lh_retry_reason reason) {
 *         return LH_RETRY_REFUSE;
 *     }
 */
struct lh_strategy;
#define LH_RETRY_REFUSE INT64_C(-1)
#define LH_RETRY_DEFER INT64_C(-2)
typedef int64_t lh_decide_cb(const struct lh_strategy *strategy, const struct lh_request *request,
                             enum lh_retry_reason reason);
typedef int64_t lh_backoff_cb(void *arg, uint32_t failures); /* in microseconds, after so many failures: from 1 on */

struct lh_strategy {
    lh_decide_cb *decide;   /* NULL: lh_best_effort */
    lh_backoff_cb *backoff; /* for lh_best_effort; NULL: lh_best_effort_backoff_us */
    void *arg;              /* the backoff's, and whatever decide makes of it */
};

/* The default's decide; for strategies that decide some reasons themselves and leave the others to it. */
int64_t lh_best_effort(const struct lh_strategy *strategy, const struct lh_request *request,
                       enum lh_retry_reason reason);
int64_t lh_best_effort_backoff_us(void *arg, uint32_t failures); /* 1, 2, 4 ... 256, 500 ms; `arg` is not looked at */
int64_t lh_controlled_backoff_us(void *arg, uint32_t failures);  /* 1, 10, 50, 100, 500, 1000 ms; likewise */

/*
 * The answer that `decide` deferred: a delay, or LH_RETRY_REFUSE. Any thread; also from inside of decide, ahead of its
 * LH_RETRY_DEFER. An answer that comes too late (the request is over, or was answered before) does nothing.
 */
void lh_retry_decide(struct lh_client *client, uint64_t request_id, int64_t delay_us);

/* --- 8. Contexts -------------------------------------------------------------------------------------------------- */

/*
 * A tree of what is to end together. A context is cancelled by hand, with its parent, or with the lease that it is of;
 * then its children are, and the callbacks of all of them are called. It may have a time as well: when that, or that of
 * a context above it, has passed, it counts as cancelled, for good, and its descriptor is readable; callbacks are for
 * cancellation alone. Requests made under it end with LH_CANCELED and carry its remaining time as grpc-timeout (not an
 * acquire that waits, under a lease's context: renewals move that time). All functions: any thread.
 *
 *     lh_acquire(jobs, "a", NULL, &first, &error);
 *     lh_acquire(jobs, "b", &(struct lh_acquire_options){.context = lh_lease_context(first)}, &second, &error);
 *         // the context of `second` is a child of that of `first`: who loses the first stops with both
 */

/* Ends at `deadline_us` or with `parent`, whichever is first. parent NULL: a root; LH_FOREVER: no time of its own. */
struct lh_context *lh_context_create(struct lh_context *parent, int64_t deadline_us);

/* Gives up the caller's hold of it; it stays while it has children or requests. Cancels nothing. NULL: nothing. */
void lh_context_destroy(struct lh_context *context);

/* `words` is why, for people; may be NULL. The second time does nothing. Callbacks are called from in here. */
void lh_context_cancel(struct lh_context *context, const char *words);
bool lh_context_is_cancelled(const struct lh_context *context);
const char *lh_context_words(const struct lh_context *context); /* "" while it is not cancelled */

/* The least of its own and its parents'; LH_FOREVER: no limit; 0: cancelled, or the time has passed. */
int64_t lh_context_remaining_us(const struct lh_context *context);

/*
 * Readable once it is cancelled or its time has passed, for poll(2); made when first asked for. Never read or close it,
 * it is the context's. -1: too many files are open. A lease's context is cancelled by its client, not by this.
 */
int lh_context_fd(struct lh_context *context);

/*
 * Called once when it is cancelled, on the thread that cancels; from inside of lh_context_add where it is cancelled
 * already. `callback` is the caller's memory, in place until it was called or removed; the callback itself may free
 * it. lh_context_remove returns when the callback is not running and never will (called from inside of it, at once).
 */
struct lh_context_callback {
    void (*on_cancel)(void *arg, struct lh_context *context);
    void *arg;
    void *internal[4]; /* zero at first */
};
void lh_context_add(struct lh_context *context, struct lh_context_callback *callback);
void lh_context_remove(struct lh_context *context, struct lh_context_callback *callback);

/* --- 9. Without a daemon: the same verbs over a PGconn ------------------------------------------------------------ */

/*
 * Leases by the caller's own connection (libpq), in a database that has the schema; daemons may run beside. All of it
 * blocks, and is for the thread that uses the connection. Nothing is renewed by itself.
 *
 *     PGconn *conn = PQconnectdb("postgresql:///app");
 *     struct lh_embed_lease lease;
 *     if (lh_embed_acquire(conn, "payments", "invoice-42", NULL, &lease, &error) == LH_OK) {
 *         pay(lease.token);
 *         lh_embed_release_ok(conn, &lease, NULL, NULL, &error);
 *     }
 *
 * A verb on a connection without an open transaction makes one (READ COMMITTED), calls the callback that belongs to it
 * inside, and commits. A serialization failure, a deadlock or a broken connection repeats all of that, callback
 * included, after 10 ms doubling to 1 s, at most `max_attempts` times; a broken connection is made anew by PQreset, so
 * that settings, prepared statements and LISTENs of the session are gone. Whether a commit without an answer was done
 * is looked up, so nothing is done twice.
 *
 * In a transaction of the caller's own the verb joins it, behind a savepoint: a failure takes back the verb and its
 * callback and leaves the transaction usable; nothing is repeated, and nothing is certain before the caller's commit.
 * 40001 and 40P01 are LH_SCOPE_BUSY there, with the SQLSTATE in `error`: repeat the whole transaction.
 */
#ifndef LIBPQ_FE_H
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
#endif

/* A lease as the database has it. "_at_us" is the database's clock, since 1970. */
struct lh_embed_lease {
    char namespace_text[256]; /* dotted */
    char key[1025];
    char lease_key[37]; /* the credential to renew and release it */
    char owner[256];    /* "" where that was not told */
    const char *labels; /* a JSON object; in callbacks only, NULL elsewhere */
    int64_t token;
    int64_t heartbeats;
    int64_t duration_us;
    int64_t grace_us;
    int64_t acquired_at_us;
    int64_t heartbeat_at_us;
    int64_t deadline_at_us;
    int64_t deadline_us; /* the holder's own, on CLOCK_BOOTTIME: stop the work by then. 0 in callbacks of reaping */
    int64_t limit_us;    /* in callbacks of reaping: how long they may take; 0: no limit */
    void *reserved[4];
};

/*
 * Called in the transaction of the change, after the change and before the commit. What it does by `conn` is committed
 * with it, or not at all; it must not end the transaction. 0: go on. Anything else takes the change back, and the verb
 * answers LH_HOOK_REJECTED with what the callback left in error->message. `words`: the result (JSON or NULL) for
 * will_release_ok, the failure for will_release_fail, else NULL. Called again where the transaction is repeated.
 */
typedef int lh_will_cb(void *arg, PGconn *conn, const struct lh_embed_lease *lease, const char *words,
                       struct lh_error *error);

/*
 * For callbacks: fill `error` from a statement that failed, its SQLSTATE too, by which a serialization failure or
 * deadlock is known as one and the transaction is repeated. Returns 1: return lh_embed_failed(conn, result, error).
 */
int lh_embed_failed(PGconn *conn, const PGresult *result, struct lh_error *error);

struct lh_embed_options {
    lh_will_cb *will_insert;    /* the lease is granted */
    lh_will_cb *will_heartbeat; /* it is renewed, also by an acquire with its own lease key */
    lh_will_cb *will_release_ok;
    lh_will_cb *will_release_fail;
    void *arg;             /* of all four */
    uint32_t max_attempts; /* of one transaction; default 8 */
    void *reserved[4];
};

struct lh_embed_acquire_options {
    int64_t duration_us;       /* default 30 s */
    int64_t wait_us;           /* 0: do not; LH_FOREVER: until granted. Not in a transaction of the caller's */
    const char *owner;         /* default: HOST/PROGRAM/PID */
    const char *lease_key;     /* default: a new one */
    const char *const *labels; /* "name=value" each, NULL at the end */
    struct lh_embed_options embed;
};

/*
 * LH_OK: *lease is held from now on. LH_LEASE_HELD: held or queued for by another. With wait_us it queues, first come
 * first served with all other waiters, hears of its turn by NOTIFY (what else is notified on `conn` meanwhile is
 * dropped) and looks once a second; LH_WAIT_TIMEOUT: the place is given up.
 */
enum lh_status lh_embed_acquire(PGconn *conn, const char *namespace_text, const char *key,
                                const struct lh_embed_acquire_options *options, struct lh_embed_lease *lease,
                                struct lh_error *error);

/* Renews; deadlines and heartbeats in *lease are then new. LH_LOST: it ended, and will not come back. */
enum lh_status lh_embed_heartbeat(PGconn *conn, struct lh_embed_lease *lease, const struct lh_embed_options *options,
                                  struct lh_error *error);

/* `result` is JSON, or NULL. LH_LOST: it was not held any more, and the callback was not called. */
enum lh_status lh_embed_release_ok(PGconn *conn, const struct lh_embed_lease *lease, const char *result,
                                   const struct lh_embed_options *options, struct lh_error *error);
enum lh_status lh_embed_release_fail(PGconn *conn, const struct lh_embed_lease *lease, const char *failure,
                                     const struct lh_embed_options *options, struct lh_error *error);

/* --- 10. Reaping: what holders left behind ------------------------------------------------------------------------ */

/*
 * An expired lease, in the transaction and the savepoint in which it ends; hooks in SQL have run. What the callback
 * does by `conn` commits with that. 0: done. Anything else, an error in the transaction that it left, a connection that
 * it broke, or more time than its limit: all of it is rolled back to the savepoint, the failure is counted, recorded in
 * leasehold.reap_failure with error->message (or what PostgreSQL said), and tried again with backoff; other leases are
 * not held up. It must not end the transaction. It may be called again for a lease whose transaction did not commit.
 */
typedef int lh_reap_cb(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error);

/*
 * Reap until nothing is due: the expired leases of these namespaces (dotted; n = 0: of all but those with
 * reaper = external), and of those below them. Any number of reapers and daemons may run at once. A transaction is at
 * most 100 leases or a second long. `conn` must be in no transaction, its role a member of leasehold_admin or
 * leasehold_coordinator; where it breaks, it is made anew by PQreset.
 *
 * LH_OK: nothing failed. LH_HOOK_REJECTED: a hook or callback failed for at least one lease, the others are done.
 */
enum lh_status lh_reap_stale(PGconn *conn, const char *const *namespaces, size_t n, bool include_children,
                             lh_reap_cb *callback, void *arg);

/* What became of a lease, told after the commit. */
struct lh_reap_outcome {
    const struct lh_embed_lease *lease;
    bool is_reaped;
    const char *error;      /* why not; NULL where it was reaped */
    int32_t reap_failures;  /* so far */
    int64_t next_try_at_us; /* by the database's clock, since 1970; 0: not by itself any more */
};
typedef void lh_reap_outcome_cb(void *arg, const struct lh_reap_outcome *outcome);

struct lh_reap_options {
    const char *const *namespaces;
    size_t namespace_count;
    bool include_children;
    lh_reap_cb *on_lease;           /* NULL: hooks in SQL alone */
    lh_reap_outcome_cb *on_outcome; /* may be NULL */
    void *arg;                      /* of both */
    int64_t max;                    /* leases reaped or failed in all; default: no limit */
    uint32_t transaction_max;       /* leases in one transaction, 1 to 10,000; default 100 */
    int64_t transaction_us;         /* no further lease in a transaction that is older; default 1 s */
    int64_t statement_timeout_us;   /* of statements that run neither hook nor callback; default: the session's */
    int64_t limit_us;               /* of on_lease; default: the hook_timeout of the namespace's policy */
    /*
     * What failed before waits until its next try, unless its namespace is named: then it is tried at once, and even
     * where that was given up. Not so with this; and never what has failed since `skip_failed_since_us` (the database's
     * clock, since 1970; default: now).
     */
    bool keep_backoff;
    int64_t skip_failed_since_us;
    void *reserved[4];
};

struct lh_reap_counts {
    int64_t reaped;
    int64_t failed;
};

/* The same with everything that can be set. LH_OK: see the counts. *counts is right whatever is answered. */
enum lh_status lh_reap_stale_with(PGconn *conn, const struct lh_reap_options *options, struct lh_reap_counts *counts,
                                  struct lh_error *error);

/*
 * A plugin of `leasehold reap --plugin FILE.so` exports this one symbol:
 *
 *     const struct lh_reap_plugin leasehold_reap_plugin = {.version = LH_REAP_PLUGIN_VERSION, .on_lease = put_back};
 */
#define LH_REAP_PLUGIN_VERSION 1

struct lh_reap_plugin {
    uint32_t version;
    lh_reap_cb *on_lease;
    void *arg;
    void *reserved[4];
};

#ifdef __cplusplus
}
#endif

#endif
