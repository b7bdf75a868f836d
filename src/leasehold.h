/*
 * libleasehold: leases that renew themselves.
 *
 *     struct lh_client *client = lh_client_create(&(struct lh_client_options){.endpoints = "127.0.0.1:7420"}, &error);
 *     struct lh_declared *jobs = lh_declare(client, "payments.invoices", NULL, &error);
 *     struct lh_lease *lease;
 *     if (lh_acquire(jobs, "invoice-42", NULL, &lease, &error) != LH_OK)
 *         errx(1, "%s", error.message);
 *     pay(lh_lease_token(lease));                 // the library renews the lease meanwhile
 *     lh_release(lease, NULL, &error);
 *     lh_lease_destroy(lease);
 *     lh_client_destroy(client);
 *
 * Conventions. Times are microseconds in an int64_t, and their names end in _us; points in time are on CLOCK_BOOTTIME.
 * The library reads option structures during the call only. A member that is zero means its default; NULL instead of a
 * structure means all defaults. The library copies strings that are passed in. Strings that it returns live as long as
 * their object, and in callbacks as long as the callback. `struct lh_error *` may always be NULL. Misuse (NULL where a
 * value is needed, a value out of bounds, a closed client) returns a status, with a sentence in the error.
 *
 * Threads. A client has its own thread, or runs on the caller's libevent base (lh_client_options.event_base). With its
 * own thread, any thread may call any function, and callbacks run on the client's thread. On an event base only the
 * thread that runs the base may call a function, unless the function says "any thread", and callbacks run inside the
 * base's loop. Functions that block return LH_WOULD_BLOCK there, and inside any callback. Callbacks may call everything
 * else.
 *
 * The callback promise. A function that takes a callback and returns another status than LH_OK never calls it. After
 * LH_OK the callback is called exactly once, and never before the function has returned.
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
#define LH_NO_MINIMUM INT64_C(-1) /* of at_least_us */

struct event_base; /* of libevent */

/* --- 1. Status ---------------------------------------------------------------------------------------------------- */

/* The build copies the part from here to #endif to base/public_status.h, which Leasehold's own sources include. */
#ifndef LEASEHOLD_STATUS_H
#define LEASEHOLD_STATUS_H

enum lh_status {
    LH_OK,
    LH_CANCELED, /* by lh_cancel, by its context, or because the client was closed */
    LH_INVALID_ARGUMENT,
    LH_WAIT_TIMEOUT, /* the acquire waited its time, and the scope was still held */
    LH_NOT_HELD,
    LH_ACCESS_DENIED,
    LH_QUOTA_EXCEEDED,
    LH_OVERLOADED, /* a limit of the server or of the client is reached */
    LH_MESSAGE_TOO_LARGE,
    LH_NAMESPACE_FROZEN,
    LH_HOOK_REJECTED,
    LH_LEASE_ENDED, /* the lease key of an acquire names a lease that has ended */
    LH_LEASE_HELD,  /* another holds it, and the acquire does not wait */
    LH_SCOPE_BUSY,
    LH_BLOCKING_TIMEOUT,
    LH_WATCH_LAGGED,
    LH_UNIMPLEMENTED,
    LH_INTERNAL,
    LH_DATABASE_UNAVAILABLE,
    LH_SHUTTING_DOWN,
    LH_UNAUTHENTICATED,

    /* The client's own. */
    LH_LOST,        /* the lease is no longer held, and never will be again */
    LH_TIMED_OUT,   /* the request's time has passed; an attempt that was sent may have had its effect */
    LH_UNAVAILABLE, /* no endpoint answered, or the connection broke, and the strategy gave up */
    LH_CLOSED,      /* the client was closed before the call */
    LH_WOULD_BLOCK, /* a blocking call on a thread that must not block */
};

/* A program decides by `status`; the rest is for people. */
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

enum lh_log_level { LH_LOG_DEBUG, LH_LOG_INFO, LH_LOG_WARN, LH_LOG_ERROR };

#endif

/*
 * The library writes its log to `on_line`, one line a call, on the thread that logs; NULL: to stderr. It writes lines
 * of `level` and above. The default, LH_LOG_WARN, reports leases that were lost or left to expire. LH_LOG_INFO adds
 * connections, and every retry and refusal with its reasons. The setting is the process's: make it before the first
 * client.
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

/*
 * Who the server is, and who the client is. The files but the last are PEM, and read for each attempt to connect: they
 * may be replaced at any time. A certificate that the client or the server does not accept, a file that cannot be used, a
 * token that the server does not know: LH_UNAUTHENTICATED, with words that name it. A right that is missing:
 * LH_ACCESS_DENIED. Neither is retried; only the renewals of leases that are held go on.
 *
 * The client sends the token with each call. It reads the file for each attempt to connect, and again within a second
 * after the file has changed. Without TLS it sends tokens to loopback addresses and unix sockets only: with other
 * endpoints lh_client_create fails.
 */
struct lh_client_tls {
    const char *ca_file;     /* the authorities that may sign the server's certificate; NULL: those of the system */
    const char *cert_file;   /* what is shown to the server, the chain behind it; NULL: nothing */
    const char *key_file;    /* its private key, without a passphrase */
    const char *server_name; /* that the server's certificate must be for; NULL: the endpoint's HOST */
    const char *token_file;  /* a bearer token, alone in the file; NULL: none */
    bool plaintext;          /* no TLS: only token_file counts */
};

struct lh_client_options {
    /*
     * One to LH_ENDPOINTS_MAX of "HOST:PORT", "[IPv6]:PORT", "unix:/path", with commas between, the preferred first.
     * All must lead to coordinators of the same database. NULL: the environment's LEASEHOLD_SERVER, or 127.0.0.1:7420.
     */
    const char *endpoints;
    struct event_base *event_base; /* NULL: a thread of its own */
    const char *namespace_prefix;  /* dotted; put before every declared namespace. NULL: none */
    const char *owner;             /* names the holder for people; NULL: HOST/PROGRAM/PID */
    int64_t timeout_us;            /* of a request, beyond any wait; default 5 s */
    int64_t connect_timeout_us;    /* of an attempt to connect to one address; default 2 s */

    /* Retries, section 7. */
    const struct lh_strategy *strategy; /* NULL: best effort */
    uint32_t max_retrying;              /* requests that wait for a retry; more fail. Default 65,536 */
    uint32_t breaker_failures;          /* so many in a row open the endpoint's circuit; default 5 */
    int64_t breaker_open_us;            /* until it is probed, one call at a time; default 1 s */

    /* Limits. */
    uint32_t max_requests; /* open at once, blocking ones included; more: LH_OVERLOADED. Default 65,536 */
    uint32_t max_releases; /* waiting in the set of lh_try_release; more: LH_OVERLOADED. Default 2,097,152 */
    int64_t flush_us;      /* how long lh_client_close sends releases; default 5 s, negative: not at all */

    /*
     * Unix sockets are connected to without TLS. NULL: as the environment says with LEASEHOLD_CA, LEASEHOLD_CERT,
     * LEASEHOLD_KEY and LEASEHOLD_SERVER_NAME. Each of them means TLS, unless LEASEHOLD_TLS=no; LEASEHOLD_TLS=yes alone
     * means TLS with the authorities of the system. LEASEHOLD_TOKEN_FILE is the token's file, with TLS or without.
     */
    const struct lh_client_tls *tls;

    void *reserved[7]; /* zero */
};

#define LH_ENDPOINTS_MAX 16

/*
 * Connects in the background; never waits for a server. NULL: `error` says why, for instance an endpoint that cannot be
 * parsed, or a host name that cannot be resolved. It resolves names once, here; numeric addresses never block.
 */
struct lh_client *lh_client_create(const struct lh_client_options *options, struct lh_error *error);

/*
 * From now on calls return LH_CLOSED. Open requests end with LH_CANCELED, and renewals end. The client sends the set of
 * lh_try_release for at most flush_us; it leaves the rest to expire and logs them. It leaves leases that are still held
 * to expire too, without on_lost. With a thread of its own it returns when all that is done. On an event base it
 * returns at once, and calls `on_closed` (may be NULL) when all is done. A second call does nothing.
 */
typedef void lh_closed_cb(void *arg);
void lh_client_close(struct lh_client *client, lh_closed_cb *on_closed, void *arg);

/*
 * Closes the client if that was not done (on an event base without flushing), and frees it. Its leases and contexts
 * stay valid until they are destroyed. Never call it inside a callback of the client. NULL does nothing.
 */
void lh_client_destroy(struct lh_client *client);

/* Counts of a client. Any thread. */
struct lh_client_stats {
    uint64_t leases;          /* held now, as far as the client knows */
    uint64_t requests;        /* open now */
    uint64_t releases;        /* waiting in the set of lh_try_release now */
    uint64_t rpcs;            /* calls, and messages on the stream of renewals */
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
    LH_LOST_RELEASED = 1, /* another call released it by its lease key */
    LH_LOST_EXPIRED,      /* the server says so, or the deadline passed while this process stood still */
    LH_LOST_FORCED,       /* by an administrator */
    LH_LOST_UNREACHABLE,  /* no renewal succeeded; the deadline is `margin` away */
    LH_LOST_LONGEST_HOLD,
    LH_LOST_UNKNOWN, /* the server does not know the lease, nor how it ended */
};
const char *lh_lost_reason_name(enum lh_lost_reason reason);

/*
 * Stop the work. Called at most once for a lease, never after lh_release, lh_try_release or lh_lease_destroy; the
 * lease's context is cancelled before. lh_lease_remaining_us tells how much time is left: `margin` after
 * LH_LOST_UNREACHABLE, the rest of the lease after LH_LOST_LONGEST_HOLD, none after the others. After these two the
 * server may still hold the lease for this holder, so release it.
 */
typedef void lh_lost_cb(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words);

/*
 * The lease has been held for its longest hold. Return how much longer it may be held, in microseconds. After 0, or
 * without this callback, renewals end and on_lost follows.
 */
typedef int64_t lh_longest_hold_cb(void *arg, struct lh_lease *lease);

struct lh_declare_options {
    int64_t duration_us;     /* the life of a lease without renewal; 100 ms to 365 d; default 30 s */
    int64_t margin_us;       /* from on_lost to the deadline; below the duration; default a tenth of it */
    int64_t longest_hold_us; /* default: none */
    lh_lost_cb *on_lost;     /* NULL: watch the lease or its context instead */
    lh_longest_hold_cb *on_longest_hold;
    void *arg;                          /* of both; lh_lease_user tells leases apart */
    const struct lh_strategy *strategy; /* NULL: the client's */
    void *reserved[8];
};

/*
 * Declares the leases of a namespace, once; then acquire any number of keys with it. The client frees it. NULL: `error`
 * says what is out of bounds.
 */
struct lh_declared *lh_declare(struct lh_client *client, const char *namespace_text,
                               const struct lh_declare_options *options, struct lh_error *error);

/* --- 4. Leases ---------------------------------------------------------------------------------------------------- */

/*
 * An exclusive lease has the whole scope. Shared leases hold a scope together: any number of them (readers beside a
 * writer), or as many as fit the capacity that the namespace's policy sets, counted in units (a semaphore). Requests of
 * both modes are served first come, first served; none overtakes another.
 *
 *     lh_acquire(apis, "search", &(struct lh_acquire_options){.mode = LH_SHARED, .wait_us = LH_FOREVER}, &lease, &error);
 */
enum lh_mode { LH_EXCLUSIVE, LH_SHARED };

enum lh_holder_liveness {
    LH_HOLDER_UNKNOWN,
    LH_HOLDER_ALIVE,
    LH_HOLDER_SUSPECTED_DEAD,
    LH_HOLDER_OVERDUE, /* has held it longer than max_hold */
    LH_HOLDER_EXPIRED,
};

/* The holder that an acquire waits for; of several shared ones, the oldest. */
struct lh_obstacle {
    const char *owner; /* "": not held, but at rest, or other waiters are ahead */
    enum lh_holder_liveness liveness;
    int64_t token;
    int64_t held_us;   /* since it was acquired, by the database's clock */
    int64_t silent_us; /* since its last heartbeat, likewise */
    uint32_t waiters_ahead;
    const char *principal; /* who has proved to hold it, "dns:worker-3"; "": unknown, or this client may not see it */
    int64_t rests_us;      /* before that nobody is granted the scope, because of a minimum hold; 0: it does not rest */
    enum lh_mode mode;     /* the holder's */
    int32_t units;         /* the holder's; 0: it is exclusive */
    uint32_t holder_count; /* of the scope, this one included */
    int32_t units_free;    /* of the scope's capacity; -1: it has none */
};
typedef void lh_waiting_cb(void *arg, const struct lh_obstacle *obstacle);

struct lh_acquire_options {
    /*
     * How long to wait for the lease; 0: not at all, LH_FOREVER: until granted. Any length: the library repeats a wait
     * that the server cuts (BLOCKING_TIMEOUT), and keeps its place in the queue.
     */
    int64_t wait_us;
    bool wait_while_alive;     /* wait as long as the holder is alive; then wait_us begins to count */
    int64_t timeout_us;        /* beyond the wait; default: the client's */
    const char *owner;         /* default: the client's */
    const char *lease_key;     /* a UUID; default: a new one. The key of a held lease returns that lease */
    const char *const *labels; /* "name=value" each, NULL at the end; at most 16 */
    lh_waiting_cb *on_waiting; /* called with the obstacle at least every 5 s; may be NULL */
    void *on_waiting_arg;
    void *user;                         /* lh_lease_user of the lease */
    struct lh_context *context;         /* cancels the request, and bounds its time */
    const struct lh_strategy *strategy; /* default: the declaration's */
    void *strategy_arg;                 /* lh_request_arg: for the strategy */
    /*
     * The minimum hold: nobody else is granted the scope until so long after the grant, however this lease ends, other
     * than by a force-release. At most 1 day. 0: as the namespace's policy says; LH_NO_MINIMUM: none. Exclusive leases
     * only.
     */
    int64_t at_least_us;
    enum lh_mode mode; /* a held lease keeps its mode and units: its lease key with others is LH_INVALID_ARGUMENT */
    int32_t units;     /* of a shared lease: 1 to 1,000,000, at most the capacity; 0: 1. Exclusive: 0 */
    void *reserved[6];
};

/*
 * Acquires a lease. It is idempotent by its lease key: the library repeats it after a lost answer. If this client has a
 * lh_try_release of the same scope under way, the acquire follows its answer. LH_OK: *lease is the caller's, to
 * destroy; the client renews it at a third of its duration.
 *
 * LH_LOST: the lease was granted, but this process stood still until it was over. LH_LEASE_HELD and LH_WAIT_TIMEOUT are
 * outcomes: `error` names the holder.
 */
enum lh_status lh_acquire(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                          struct lh_lease **lease, struct lh_error *error);

/* The same, without blocking. `lease` is NULL unless `status` is LH_OK. */
typedef void lh_acquired_cb(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error);
enum lh_status lh_acquire_async(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                                lh_acquired_cb *on_done, void *arg, struct lh_request **request,
                                struct lh_error *error);

/*
 * Cancels a request of a function whose name ends in _async. Its callback follows, with LH_CANCELED unless it was done
 * already. A waiter leaves the queue; a lease that is granted at the same moment is released. `request` is valid until
 * its callback is called.
 */
void lh_cancel(struct lh_request *request);

/*
 * As far as this process knows, by its own clock: not lost, not released, and the deadline has not passed. Any thread;
 * no lock, no system call except to read the clock.
 */
bool lh_lease_is_held(const struct lh_lease *lease);

/* The time to the deadline of the last renewal; negative after it. Any thread. */
int64_t lh_lease_remaining_us(const struct lh_lease *lease);
int64_t lh_lease_deadline_us(const struct lh_lease *lease);

/*
 * The fencing token, for whatever must refuse a stale holder. Only lh_downgrade changes it. A resource keeps the highest
 * exclusive token that it saw, and the highest of all: it takes a shared token that is greater than the first, and an
 * exclusive one that is not less than the second. The functions below: any thread.
 */
int64_t lh_lease_token(const struct lh_lease *lease);
enum lh_mode lh_lease_mode(const struct lh_lease *lease);
int32_t lh_lease_units(const struct lh_lease *lease); /* 0: it is exclusive */

/*
 * The numbers that the lease has for itself, ascending: of 1 to the scope's capacity, as many as its units. *count is 0
 * for an exclusive lease and without a capacity. They live as long as the lease; after a lh_downgrade, ask again.
 */
const int32_t *lh_lease_slots(const struct lh_lease *lease, size_t *count);
const char *lh_lease_namespace(const struct lh_lease *lease); /* with the client's prefix, dotted */
const char *lh_lease_scope_key(const struct lh_lease *lease);
void lh_lease_key(const struct lh_lease *lease, char text[37]); /* the lease key, a UUID: a credential */
void *lh_lease_user(const struct lh_lease *lease);

/* Why it was lost; 0: it was not. Any thread. */
enum lh_lost_reason lh_lease_lost_reason(const struct lh_lease *lease);

/*
 * Cancelled when the lease is lost. Its time ends at the deadline less the margin, and each renewal moves that on. A
 * release removes this limit and cancels nothing. It lives as long as the lease or a child of the context.
 */
struct lh_context *lh_lease_context(struct lh_lease *lease);

/* Gives up the handle. A lease that is still held is released as by lh_try_release. NULL: nothing. */
void lh_lease_destroy(struct lh_lease *lease);

/* --- 5. Heartbeats by hand, downgrades ---------------------------------------------------------------------------- */

struct lh_call_options {
    int64_t timeout_us; /* default: the client's */
    struct lh_context *context;
    const struct lh_strategy *strategy; /* default: the declaration's */
    void *strategy_arg;
    void *reserved[4];
};

/*
 * Renews the lease now. The client renews by itself; use this to make sure before a step that cannot be undone. LH_OK:
 * it was held when the server answered, and has the deadline of this renewal. LH_LOST: on_lost was called or follows.
 */
enum lh_status lh_heartbeat(struct lh_lease *lease, const struct lh_call_options *options, struct lh_error *error);

typedef void lh_done_cb(void *arg, enum lh_status status, const struct lh_error *error);
enum lh_status lh_heartbeat_async(struct lh_lease *lease, const struct lh_call_options *options, lh_done_cb *on_done,
                                  void *arg, struct lh_request **request, struct lh_error *error);

/*
 * Makes an exclusive lease shared, with so many units (1 to 1,000,000, at most the capacity; 0: 1), in one step: shared
 * requests that wait behind it are granted, and no exclusive one comes between. A shared lease gives units back with it;
 * its highest slots go. There is no way from shared to exclusive: release, and acquire again.
 *
 * LH_OK: lh_lease_token, _mode, _units and _slots have the new values, and the lease was renewed. It keeps its lease key.
 * Idempotent. LH_LOST: it had ended. LH_INVALID_ARGUMENT: more units than the capacity, or than the shared lease has.
 * LH_HOOK_REJECTED: the heartbeat hook of the namespace rejected it, and nothing changed. After any other failure the
 * lease may be shared already: from the call on, do only what a shared holder may do, and call again.
 */
enum lh_status lh_downgrade(struct lh_lease *lease, int32_t units, const struct lh_call_options *options,
                            struct lh_error *error);
enum lh_status lh_downgrade_async(struct lh_lease *lease, int32_t units, const struct lh_call_options *options,
                                  lh_done_cb *on_done, void *arg, struct lh_request **request, struct lh_error *error);

/* --- 6. Release --------------------------------------------------------------------------------------------------- */

struct lh_release_options {
    const char *result;  /* JSON, at most 8 KiB; NULL: none */
    const char *failure; /* what went wrong, at most 8 KiB; not together with `result` */
    struct lh_call_options call;
};

/*
 * Releases the lease and waits for the answer. From the call on it is neither renewed nor held. Idempotent: the library
 * repeats it after a lost answer, and LOST because of the release itself counts as done. LH_LOST: it had ended before.
 * LH_HOOK_REJECTED: a hook of the namespace rejected it, and the lease is left to expire. After any other failure the
 * lease was released, or will expire.
 */
enum lh_status lh_release(struct lh_lease *lease, const struct lh_release_options *options, struct lh_error *error);
enum lh_status lh_release_async(struct lh_lease *lease, const struct lh_release_options *options, lh_done_cb *on_done,
                                void *arg, struct lh_request **request, struct lh_error *error);

/*
 * Releases the lease without waiting: the client puts it into a set and sends the set, one request at a time. A release
 * that fails is logged and repeated until the lease's deadline; then it is left to expire. Only result and failure of
 * `options` are used. LH_LOST: lost or released before. LH_OVERLOADED: max_releases are waiting; it is left to expire.
 */
enum lh_status lh_try_release(struct lh_lease *lease, const struct lh_release_options *options);

/* --- 7. Retries --------------------------------------------------------------------------------------------------- */

/*
 * A request makes one or more attempts. An attempt fails for a reason, and a strategy decides whether and when another
 * one follows:
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
 * A reason marked "always" is retried without the strategy, by the controlled backoff: 1, 10, 50, 100, 500, then
 * 1000 ms. After BLOCKING_TIMEOUT the request goes on at once with what is left of its wait, if the server blocked for
 * 1 s or more, and its count of failures begins anew. The default strategy, best effort, retries an idempotent request
 * for every reason, and another one for the reasons marked "yes". It never retries LEASE_HELD, which is an outcome.
 * RETRY_INFO means an unknown reason with a google.rpc.RetryInfo: the strategy decides, not the server's delay. A delay
 * never exceeds what is left of the request's time; a request whose delay was cut fails unsent (LH_TIMED_OUT). Every
 * retry and every refusal is logged at LH_LOG_INFO, with all reasons so far. Acquire, heartbeat, downgrade and release
 * are idempotent by their lease key.
 *
 * The table shows what follows from each gRPC code and each reason of the server, by how far the attempt had come. A
 * dash: impossible. A name of section 1: the final status of the request. Any other name: that retry reason.
 *
 *   code              reason given           before sending         in flight, no answer   answered
 *   0 OK              -                      -                      -                      done; of its items:
 *                     item OUTCOME_RETRY     -                      -                      OUTCOME_RETRY
 *                     item OUTCOME_LOST      -                      -                      LH_LOST
 *                     item OUTCOME_REJECTED  -                      -                      LH_HOOK_REJECTED
 *                     item OUTCOME_INVALID   -                      -                      LH_INVALID_ARGUMENT
 *                     item OUTCOME_DENIED    -                      -                      LH_ACCESS_DENIED
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
 *   16 UNAUTHENTICATED the same              LH_UNAUTHENTICATED     -                      LH_UNAUTHENTICATED
 *                                            (a certificate)
 *   any               unknown, + RetryInfo   -                      -                      RETRY_INFO
 *   no endpoint can be asked                 ENDPOINT_NOT_AVAILABLE -                      -
 *   the circuit of all that can is open      CIRCUIT_BREAKER_OPEN   -                      -
 *
 * "Before sending" includes calls that the server says it did not process (GOAWAY, REFUSED_STREAM). When the strategy
 * refuses, the request ends with the status of the reason's name, or with LH_UNAVAILABLE if there is no such status.
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
uint32_t lh_request_attempts(const struct lh_request *request);      /* so far, including the failed one */
uint32_t lh_request_failures(const struct lh_request *request);      /* of those, what the backoff counts: from 1 on */
uint32_t lh_request_reasons(const struct lh_request *request);       /* all so far: bit 1 << enum lh_retry_reason */
int64_t lh_request_remaining_us(const struct lh_request *request);   /* of its time; LH_FOREVER: no limit */
int64_t lh_request_retry_after_us(const struct lh_request *request); /* what the server asked for, 0: nothing */
void *lh_request_arg(const struct lh_request *request);              /* strategy_arg of its options */

/*
 * A strategy. The client calls `decide` on its thread after an attempt failed for `reason`. It returns the delay before
 * the next attempt in microseconds; or LH_RETRY_REFUSE: the request fails; or LH_RETRY_DEFER: lh_retry_decide gives the
 * answer later, with the request's id. A request without an answer ends when its time has passed.
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
    void *arg;              /* passed to backoff; decide may use it too */
};

/* The default `decide`; a strategy that decides some reasons itself can call it for the others. */
int64_t lh_best_effort(const struct lh_strategy *strategy, const struct lh_request *request,
                       enum lh_retry_reason reason);
int64_t lh_best_effort_backoff_us(void *arg, uint32_t failures); /* 1, 2, 4 ... 256, 500 ms; `arg` is unused */
int64_t lh_controlled_backoff_us(void *arg, uint32_t failures);  /* 1, 10, 50, 100, 500, 1000 ms; likewise */

/*
 * The answer that `decide` deferred: a delay, or LH_RETRY_REFUSE. Any thread; also inside decide, before it returns
 * LH_RETRY_DEFER. A late answer (the request is over or was answered before) does nothing.
 */
void lh_retry_decide(struct lh_client *client, uint64_t request_id, int64_t delay_us);

/* --- 8. Contexts -------------------------------------------------------------------------------------------------- */

/*
 * Contexts form trees of work that ends together. A context is cancelled by lh_context_cancel, with its parent, or with
 * its lease; its children are cancelled with it, and all their callbacks are called. A context may also have a time.
 * When that time, or the time of a context above it, has passed, the context counts as cancelled for good and its
 * descriptor is readable, but no callback is called. A request under a context ends with it, as LH_CANCELED, and sends
 * its remaining time as grpc-timeout; an acquire that waits under a lease's context does not, because renewals move
 * that time. All functions: any thread.
 *
 *     lh_acquire(jobs, "a", NULL, &first, &error);
 *     lh_acquire(jobs, "b", &(struct lh_acquire_options){.context = lh_lease_context(first)}, &second, &error);
 *         // the context of `second` is a child of that of `first`: losing the first cancels both
 */

/* Ends at `deadline_us` or with `parent`, whichever is first. parent NULL: a root; LH_FOREVER: no time of its own. */
struct lh_context *lh_context_create(struct lh_context *parent, int64_t deadline_us);

/* Gives up the caller's reference; children and requests keep theirs. Cancels nothing. NULL: nothing. */
void lh_context_destroy(struct lh_context *context);

/* `words` gives the reason, for people; may be NULL. Calls the callbacks. A second call does nothing. */
void lh_context_cancel(struct lh_context *context, const char *words);
bool lh_context_is_cancelled(const struct lh_context *context);
const char *lh_context_words(const struct lh_context *context); /* "" while it is not cancelled */

/* The least of its own and its parents' times; LH_FOREVER: no limit; 0: cancelled, or the time has passed. */
int64_t lh_context_remaining_us(const struct lh_context *context);

/*
 * A descriptor for poll(2), readable once the context is cancelled or its time has passed; made at the first call. It
 * is the context's: never read or close it. -1: too many files are open. The client cancels a lease's context, not
 * this.
 */
int lh_context_fd(struct lh_context *context);

/*
 * Called once when the context is cancelled, on the thread that cancels; inside lh_context_add if it is cancelled
 * already. `callback` is the caller's memory and stays in place until it is called or removed; the callback may free
 * it. lh_context_remove returns when the callback is not running and never will; inside the callback it returns at
 * once.
 */
struct lh_context_callback {
    void (*on_cancel)(void *arg, struct lh_context *context);
    void *arg;
    void *internal[4]; /* initially zero */
};
void lh_context_add(struct lh_context *context, struct lh_context_callback *callback);
void lh_context_remove(struct lh_context *context, struct lh_context_callback *callback);

/* --- 9. Without a daemon: the same verbs over a PGconn ------------------------------------------------------------ */

/*
 * Leases over the caller's own connection (libpq), in a database that has the schema; daemons may run beside. These
 * functions block, and belong to the thread that uses the connection. They renew nothing by themselves.
 *
 *     PGconn *conn = PQconnectdb("postgresql:///app");
 *     struct lh_embed_lease lease;
 *     if (lh_embed_acquire(conn, "payments", "invoice-42", NULL, &lease, &error) == LH_OK) {
 *         pay(lease.token);
 *         lh_embed_release_ok(conn, &lease, NULL, NULL, &error);
 *     }
 *
 * On a connection without an open transaction a verb begins one (READ COMMITTED), calls its callback inside, and
 * commits. After a serialization failure, a deadlock or a broken connection it repeats all of that, callback included,
 * after 10 ms doubling to 1 s, at most `max_attempts` times. PQreset restores a broken connection, so the session's
 * settings, prepared statements and LISTENs are gone. After a commit without an answer the verb looks up whether it was
 * done, so nothing is done twice.
 *
 * In a transaction of the caller the verb works behind a savepoint: a failure rolls back the verb and its callback and
 * leaves the transaction usable. It repeats nothing, and nothing is certain before the caller's commit. 40001 and 40P01
 * are LH_SCOPE_BUSY there, with the SQLSTATE in `error`: repeat the whole transaction.
 */
#ifndef LIBPQ_FE_H
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
#endif

/* A lease as the database has it. "_at_us" is the database's clock, since 1970. */
struct lh_embed_lease {
    char namespace_text[256]; /* dotted */
    char key[1025];
    char lease_key[37];    /* the credential to renew and release it */
    char owner[256];       /* "": unknown */
    const char *principal; /* who has proved to hold it, "role:NAME"; in callbacks only, NULL elsewhere */
    const char *labels;    /* a JSON object; in callbacks only, NULL elsewhere */
    int64_t token;
    int64_t heartbeats;
    int64_t duration_us;
    int64_t grace_us;
    int64_t acquired_at_us;
    int64_t heartbeat_at_us;
    int64_t deadline_at_us;
    int64_t deadline_us; /* the holder's own, on CLOCK_BOOTTIME: stop the work by then. 0 in callbacks of reaping */
    int64_t limit_us;    /* in callbacks of reaping: their time limit; 0: none */
    enum lh_mode mode;
    int32_t units; /* of a shared lease, else 0 */
    int32_t slot;  /* the lowest of its slots, 0: none; leasehold.lease has them all */
    int32_t reserved_number;
    void *reserved[1];
};

/*
 * Called in the transaction of the change, after the change and before the commit. What it does through `conn` commits
 * with the change or not at all; it must not end the transaction. Return 0 to go on. Any other value rolls the change
 * back, and the verb returns LH_HOOK_REJECTED with error->message as the callback set it. `words`: the result (JSON or
 * NULL) for will_release_ok, the failure for will_release_fail, else NULL. A repeated transaction calls it again.
 */
typedef int lh_will_cb(void *arg, PGconn *conn, const struct lh_embed_lease *lease, const char *words,
                       struct lh_error *error);

/*
 * For callbacks: fills `error` from a statement that failed. Its SQLSTATE lets the verb repeat the transaction after a
 * serialization failure or deadlock. Returns 1: return lh_embed_failed(conn, result, error).
 */
int lh_embed_failed(PGconn *conn, const PGresult *result, struct lh_error *error);

struct lh_embed_options {
    lh_will_cb *will_insert;    /* the lease is granted */
    lh_will_cb *will_heartbeat; /* it is renewed, also by an acquire with its own lease key */
    lh_will_cb *will_release_ok;
    lh_will_cb *will_release_fail;
    void *arg;             /* of all four */
    uint32_t max_attempts; /* of one transaction; default 8 */
    int64_t at_least_us;   /* of lh_embed_acquire alone, as the next two: as in lh_acquire_options */
    enum lh_mode mode;
    int32_t units;
    void *reserved[2];
};

struct lh_embed_acquire_options {
    int64_t duration_us;       /* default 30 s */
    int64_t wait_us;           /* 0: do not wait; LH_FOREVER: until granted. 0 in a transaction of the caller */
    const char *owner;         /* default: HOST/PROGRAM/PID */
    const char *lease_key;     /* default: a new one */
    const char *const *labels; /* "name=value" each, NULL at the end */
    struct lh_embed_options embed;
};

/*
 * LH_OK: *lease is held from now on. LH_LEASE_HELD: others hold it or wait for it, or it rests. With wait_us it queues, first
 * come first served among all waiters. NOTIFY tells it its turn, and it looks once a second; it drops other
 * notifications on `conn`. LH_WAIT_TIMEOUT: it has given up its place.
 */
enum lh_status lh_embed_acquire(PGconn *conn, const char *namespace_text, const char *key,
                                const struct lh_embed_acquire_options *options, struct lh_embed_lease *lease,
                                struct lh_error *error);

/* Renews, and updates deadlines and heartbeats in *lease. LH_LOST: it ended, and will not come back. */
enum lh_status lh_embed_heartbeat(PGconn *conn, struct lh_embed_lease *lease, const struct lh_embed_options *options,
                                  struct lh_error *error);

/*
 * As lh_downgrade; will_heartbeat is called. LH_OK: token, mode, units, slot and deadlines in *lease are the new ones.
 * LH_LOST: it ended.
 */
enum lh_status lh_embed_downgrade(PGconn *conn, struct lh_embed_lease *lease, int32_t units,
                                  const struct lh_embed_options *options, struct lh_error *error);

/* `result` is JSON, or NULL. LH_LOST: it was no longer held; the callback was not called. */
enum lh_status lh_embed_release_ok(PGconn *conn, const struct lh_embed_lease *lease, const char *result,
                                   const struct lh_embed_options *options, struct lh_error *error);
enum lh_status lh_embed_release_fail(PGconn *conn, const struct lh_embed_lease *lease, const char *failure,
                                     const struct lh_embed_options *options, struct lh_error *error);

/* --- 10. Reaping: leases that their holders left to expire -------------------------------------------------------- */

/*
 * Called for an expired lease, in the transaction and the savepoint in which it ends, after the hooks in SQL. What the
 * callback does through `conn` commits with that. It must not end the transaction. Return 0 when done. It fails with
 * any other value, an error in the transaction, a broken connection, or more time than its limit. A failure rolls back
 * to the savepoint, is recorded in leasehold.reap_failure with error->message (or PostgreSQL's message), and is
 * repeated with backoff; it delays no other lease. The callback may be called again for a lease whose transaction did
 * not commit.
 */
typedef int lh_reap_cb(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error);

/*
 * Reaps until nothing is due: the expired leases of these namespaces (dotted; n = 0: of all except those with reaper =
 * external), with include_children also of those below them. Any number of reapers and daemons may run at once. A
 * transaction has at most 100 leases and takes no further lease after a second. `conn` must be in no transaction, and
 * its role a member of leasehold_admin or leasehold_coordinator. PQreset restores a broken connection.
 *
 * LH_OK: nothing failed. LH_HOOK_REJECTED: a hook or callback failed for at least one lease; the others are done.
 */
enum lh_status lh_reap_stale(PGconn *conn, const char *const *namespaces, size_t n, bool include_children,
                             lh_reap_cb *callback, void *arg);

/* The end of a lease, or the failure to end it; reported after the commit. */
struct lh_reap_outcome {
    const struct lh_embed_lease *lease;
    bool is_reaped;
    const char *error;      /* why not; NULL where it was reaped */
    int32_t reap_failures;  /* so far */
    int64_t next_try_at_us; /* by the database's clock, since 1970; 0: an administrator must act */
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
     * A lease that failed before waits for its next try. If its namespace is named it is tried at once, even after the
     * last automatic try. keep_backoff turns that off. A lease that failed after `skip_failed_since_us` (the database's
     * clock, since 1970; default: now) is never tried.
     */
    bool keep_backoff;
    int64_t skip_failed_since_us;
    void *reserved[4];
};

struct lh_reap_counts {
    int64_t reaped;
    int64_t failed;
};

/* The same with all options. LH_OK: see the counts. *counts is set whatever it returns. */
enum lh_status lh_reap_stale_with(PGconn *conn, const struct lh_reap_options *options, struct lh_reap_counts *counts,
                                  struct lh_error *error);

/*
 * A plugin for `leasehold reap --plugin FILE.so` exports this symbol:
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
