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
 * else. In a child of fork() the parent's clients stay the parent's: calls return LH_CLOSED, no lease is held, and close
 * and destroy do nothing. A child makes a client of its own.
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
#define LH_NO_MINIMUM INT64_C(-1) /* value of at_least_us */

struct event_base; /* libevent's */

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
    LH_NOT_ASKED, /* there is no request to hand the lease over that could be refused */

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
    char sqlstate[6];  /* PostgreSQL's code, or "" */
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
 * Certificates and the token, by which server and client prove who they are. The files but the last are PEM, and read
 * for each attempt to connect: they may be replaced at any time. A certificate that the client or the server does not
 * accept, a file that cannot be used, a token that the server does not know: LH_UNAUTHENTICATED, with words that name
 * it. A right that is missing: LH_ACCESS_DENIED. Neither is retried; only the renewals of leases that are held go on.
 *
 * The client sends the token with each call. It reads the file for each attempt to connect, and again within a second
 * after the file has changed. Without TLS it sends tokens to loopback addresses and unix sockets only: with other
 * endpoints lh_client_create fails.
 */
struct lh_client_tls {
    const char *ca_file; /* the authorities that may sign the server's certificate; NULL: those of the system */
    /* Shown to the server, with the chain behind it; NULL: none. */
    const char *cert_file;
    const char *key_file; /* its private key, without a passphrase */
    /* Name that the server's certificate must be for; NULL: the endpoint's HOST. */
    const char *server_name;
    const char *token_file; /* a bearer token, alone in the file; NULL: none */
    bool plaintext;         /* no TLS: only token_file counts */
    const char *crl_file;   /* with ca_file: a revocation list of each of these authorities; NULL: none is looked at */
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
    int64_t timeout_us;            /* time of a request, beyond any wait; default 5 s */
    int64_t connect_timeout_us;    /* time of an attempt to connect to one address; default 2 s */

    /* Retries, section 7. */
    const struct lh_strategy *strategy; /* NULL: best effort */
    uint32_t max_retrying;              /* requests that wait for a retry; any more fail. Default 65,536 */
    uint32_t breaker_failures;          /* failures in a row that open the endpoint's circuit; default 5 */
    int64_t breaker_open_us;            /* time until it is probed, one call at a time; default 1 s */

    /* Limits. */
    /* Requests open at once, blocking ones included; any more: LH_OVERLOADED. Default 65,536. */
    uint32_t max_requests;
    /* Releases in the set of lh_try_release; any more: LH_OVERLOADED. Default 2,097,152. */
    uint32_t max_releases;
    /* Longest time for lh_client_close to send releases; default 5 s, negative: none. */
    int64_t flush_us;

    /*
     * Unix sockets are connected to without TLS. NULL: as the environment says with LEASEHOLD_CA, LEASEHOLD_CRL,
     * LEASEHOLD_CERT, LEASEHOLD_KEY and LEASEHOLD_SERVER_NAME. Each of them means TLS, unless LEASEHOLD_TLS=no; LEASEHOLD_TLS=yes alone
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
    uint64_t renewal_batches; /* included in rpcs: calls and messages that renew */
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
    /* The server said so, or the deadline passed while this process stood still. */
    LH_LOST_EXPIRED,
    LH_LOST_FORCED,      /* by an administrator */
    LH_LOST_UNREACHABLE, /* no renewal succeeded; the deadline is `margin` away */
    LH_LOST_LONGEST_HOLD,
    LH_LOST_UNKNOWN,  /* the server does not know the lease, nor how it ended */
    LH_LOST_MAX_HOLD, /* the policy of the namespace ends it; the deadline, if not past, is `margin` away */
};
const char *lh_lost_reason_name(enum lh_lost_reason reason);

/*
 * Stop the work. Called at most once for a lease, never after lh_release, lh_try_release or lh_lease_destroy; the
 * lease's context is cancelled before. lh_lease_remaining_us tells how much time is left: `margin` after
 * LH_LOST_UNREACHABLE, the rest of the lease after LH_LOST_LONGEST_HOLD, none or `margin` after the others. After these two the
 * server may still hold the lease for this holder, so release it.
 */
typedef void lh_lost_cb(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words);

/*
 * The lease has been held for its longest hold. Return how much longer it may be held, in microseconds. After 0, or
 * without this callback, renewals end and on_lost follows.
 */
typedef int64_t lh_longest_hold_cb(void *arg, struct lh_lease *lease);

/* A request to hand a lease over. */
struct lh_hand_over_request {
    const char *asked_by;  /* the owner of the asker, in its own words */
    const char *principal; /* the proved asker, "dns:worker-3"; "": unknown */
    const char *reason;
    /* Time to answer in, by the policy's hand_over_grace, when the server said so; 0: it has passed. */
    int64_t answer_in_us;
};

/*
 * Somebody asks for the lease. Called once for each request that a renewal tells. Finish the work and release the lease,
 * or refuse by lh_lease_refuse_hand_over, or do nothing: the server never ends a lease for a request, and the library
 * does not either.
 */
typedef void lh_hand_over_cb(void *arg, struct lh_lease *lease, const struct lh_hand_over_request *asked);

struct lh_declare_options {
    int64_t duration_us;     /* the life of a lease without renewal; 100 ms to 365 d; default 30 s */
    int64_t margin_us;       /* from on_lost to the deadline; below the duration; default a tenth of it */
    int64_t longest_hold_us; /* default: none */
    lh_lost_cb *on_lost;     /* NULL: watch the lease or its context instead */
    lh_longest_hold_cb *on_longest_hold;
    void *arg;                          /* passed to all callbacks; lh_lease_user tells leases apart */
    const struct lh_strategy *strategy; /* NULL: the client's */
    lh_hand_over_cb *on_asked;          /* NULL: the lease is kept, and nobody gets an answer */
    void *reserved[7];
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
    int64_t held_us;   /* time since it was acquired, by the database's clock */
    int64_t silent_us; /* time since its last heartbeat, by the database's clock */
    uint32_t waiters_ahead;
    /* The proved holder, "dns:worker-3"; "": unknown, or this client may not see it. */
    const char *principal;
    /* Time in which the scope is not granted, because of a minimum hold; 0: it does not rest. */
    int64_t rests_us;
    enum lh_mode mode;     /* the holder's */
    int32_t units;         /* the holder's; 0: it is exclusive */
    uint32_t holder_count; /* holders of the scope, this one included */
    /* Units of the scope's capacity that are free; -1: it has no capacity. */
    int32_t units_free;
};
typedef void lh_waiting_cb(void *arg, const struct lh_obstacle *obstacle);

struct lh_acquire_options {
    /*
     * The longest wait for the lease; 0: no wait, LH_FOREVER: until granted. Any length: the library repeats a wait
     * that the server cuts (BLOCKING_TIMEOUT), and keeps its place in the queue.
     */
    int64_t wait_us;
    bool wait_while_alive; /* wait as long as the holder is alive; then wait_us begins to count */
    int64_t timeout_us;    /* beyond the wait; default: the client's */
    const char *owner;     /* default: the client's */
    /*
     * A UUID; default: a new one. The key of a held lease returns that lease. If the request fails, a lease that it was
     * granted stays until its deadline: acquire again with the key to get it.
     */
    const char *lease_key;
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
    /* Units of a shared lease: 1 to 1,000,000, at most the capacity; 0: 1. Exclusive: 0. */
    int32_t units;
    /* 0 to 1000: among waiters of one priority it is first come, first served; how far a higher one goes first is the
       policy's. Above its max_priority with the right admin only: LH_ACCESS_DENIED. */
    int32_t priority;
    bool ask_hand_over; /* while it waits, each holder is asked once to hand over; invalid without a wait */
    bool reserved_flags[3];
    void *reserved[5];
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

/* Acquires without blocking. `lease` is NULL unless `status` is LH_OK. */
typedef void lh_acquired_cb(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error);
enum lh_status lh_acquire_async(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                                lh_acquired_cb *on_done, void *arg, struct lh_request **request,
                                struct lh_error *error);

/*
 * One of the scopes of lh_acquire_all. mode, units and at_least_us are as in lh_acquire_options.
 */
struct lh_acquire_scope {
    /* The namespace and its options. All of one client, with one duration. */
    struct lh_declared *declared;
    const char *key;
    enum lh_mode mode;
    int32_t units;
    int64_t at_least_us;
    void *user; /* lh_lease_user of the lease */
    void *reserved[4];
};

#define LH_ACQUIRE_ALL_MAX 100 /* scopes of one lh_acquire_all */

/*
 * Acquires several scopes in one step: all of them, or none.
 *
 *     struct lh_acquire_scope both[] = {{.declared = accounts, .key = "alice"}, {.declared = accounts, .key = "bob"}};
 *     struct lh_lease *leases[2];
 *     lh_acquire_all(both, 2, &(struct lh_acquire_options){.wait_us = LH_FOREVER}, leases, &error);
 *
 * While it waits it holds none of them, and it has a place in the queue of each: callers may name their scopes in any
 * order, and none waits for another in a circle. Who comes later to any of the queues waits behind it.
 *
 * LH_OK: leases[i] is the lease of scopes[i], the caller's, to destroy. They have one lease key, and each its own token;
 * from then on each is renewed, released and lost by itself. Otherwise every leases[i] is NULL. `options` are as of
 * lh_acquire, but mode, units, at_least_us and user are those of each scope, and wait_while_alive and on_waiting must not
 * be set. A repeat with the lease key of leases that are held names the same scopes; it returns the same leases.
 * LH_LEASE_HELD and LH_WAIT_TIMEOUT: `error` names the first scope that is in the way, and its holder.
 */
enum lh_status lh_acquire_all(const struct lh_acquire_scope *scopes, size_t count,
                              const struct lh_acquire_options *options, struct lh_lease **leases,
                              struct lh_error *error);

/* Acquires several scopes without blocking. `leases` has `count` leases, and lives as long as the callback; it is
   NULL unless `status` is LH_OK. */
typedef void lh_acquired_all_cb(void *arg, enum lh_status status, struct lh_lease *const *leases,
                                const struct lh_error *error);
enum lh_status lh_acquire_all_async(const struct lh_acquire_scope *scopes, size_t count,
                                    const struct lh_acquire_options *options, lh_acquired_all_cb *on_done, void *arg,
                                    struct lh_request **request, struct lh_error *error);

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
 * The fencing token, for whatever must refuse a stale holder. Only a downgrade changes it: lh_downgrade, or one by another
 * program under the same lease key, which the next renewal tells. A resource keeps the highest exclusive token that it saw, and the highest of all: it
 * takes a shared token that is greater than the first, and an exclusive one that is not less than the second. The
 * functions below: any thread.
 */
int64_t lh_lease_token(const struct lh_lease *lease);
enum lh_mode lh_lease_mode(const struct lh_lease *lease);
int32_t lh_lease_units(const struct lh_lease *lease); /* 0: it is exclusive */

/*
 * The numbers that the lease has for itself, ascending: of 1 to the scope's capacity, as many as its units. *count is 0
 * for an exclusive lease and without a capacity. They live as long as the lease; after a downgrade, ask again.
 */
const int32_t *lh_lease_slots(const struct lh_lease *lease, size_t *count);
const char *lh_lease_namespace(const struct lh_lease *lease); /* with the client's prefix, dotted */
const char *lh_lease_scope_key(const struct lh_lease *lease);
void lh_lease_key(const struct lh_lease *lease, char text[37]); /* the lease key, a UUID: a credential */
void *lh_lease_user(const struct lh_lease *lease);

/* Returns the reason of the loss; 0: the lease was not lost. Any thread. */
enum lh_lost_reason lh_lease_lost_reason(const struct lh_lease *lease);

/*
 * Cancelled when the lease is lost. Its time ends at the deadline less the margin, and each renewal moves that on. A
 * release removes this limit and cancels nothing. It lives as long as the lease or a child of the context.
 */
struct lh_context *lh_lease_context(struct lh_lease *lease);

/* Gives up the handle. A lease that is still held is released as by lh_try_release. NULL: nothing. */
void lh_lease_destroy(struct lh_lease *lease);

/* --- 5. Heartbeats by hand, downgrades, refusals ------------------------------------------------------------------- */

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

/*
 * Refuses a request to hand the lease over; its asker sees the reason, of 1 to 1024 bytes. The lease goes on. Idempotent: the first
 * words stay. LH_NOT_ASKED: there is no request. LH_LOST: the lease has ended.
 */
enum lh_status lh_lease_refuse_hand_over(struct lh_lease *lease, const char *reason,
                                         const struct lh_call_options *options, struct lh_error *error);
enum lh_status lh_lease_refuse_hand_over_async(struct lh_lease *lease, const char *reason,
                                               const struct lh_call_options *options, lh_done_cb *on_done, void *arg,
                                               struct lh_request **request, struct lh_error *error);

/* --- 6. Release --------------------------------------------------------------------------------------------------- */

struct lh_release_options {
    const char *result; /* JSON, at most 8 KiB; NULL: none */
    /* Text of an error, at most 8 KiB; not together with `result`. */
    const char *failure;
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

/* --- 7. Retries: leasehold_retry.h -------------------------------------------------------------------------------- */

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

/* --- 9. and 10. Leases and reaping over a PGconn: leasehold_embed.h ----------------------------------------------- */

#ifdef __cplusplus
}
#endif

#include "leasehold_embed.h"
#include "leasehold_retry.h"

#endif
