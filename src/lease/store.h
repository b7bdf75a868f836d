/*
 * The port behind which the leases live: src/store implements it on PostgreSQL, the tests with a fake. The coordinator
 * never sees SQL. No function here blocks.
 *
 * Callbacks: all run on the thread of the store's event loop, which is the only thread that may call these functions. A
 * call that returns LH_OK runs its `on_done` exactly once: later, from the loop, never before the call has returned.
 * That holds when the connection breaks, and while the store stops. A call that is refused (any other status) never
 * runs it. From inside of a callback the coordinator may call every function here.
 *
 * Memory: `arg` is the caller's. The batch calls borrow `items` and all they point to until on_done has been called;
 * the outcomes are written into the items before. All other calls copy their arguments before they return. Answers
 * passed to a callback, and the memory that the items' outcomes point to, are the store's and valid until the callback
 * returns. The answer of a control call may be read when the status is LH_OK, and `error` when it is not.
 *
 * A lane carries one batch at a time. It is free again when on_done is called, so that on_done may send the next batch.
 * Control calls travel on a connection of their own. The calls that the coordinator makes for itself are answered in
 * order, and so are those that it makes for clients.
 *
 * An item of a namespace that has a hook is answered HOOKED and has had no effect. The coordinator then sends it alone
 * on a hook lane, where the hook runs in the item's transaction for at most hook_timeout. The other lanes never wait
 * for a hook. The numbers of the hook lanes follow those of the other lanes.
 *
 * The status of an answer:
 *   LH_OK                    every item has its outcome
 *   LH_DATABASE_UNAVAILABLE  the connection was lost: the batch may or may not be committed
 *   LH_CANCELED              the store is stopping
 *   any other                the batch was not committed; `error` has the words
 * When the data of one item makes a batch fail, the store splits the batch: that item gets the outcome INVALID, the
 * others get theirs.
 */
#ifndef LH_LEASE_STORE_H
#define LH_LEASE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access/access.h"
#include "base/bounds.h"
#include "base/heap.h"
#include "base/status.h"
#include "lease/types.h"
#include "lease/view.h"

struct lh_store;

/* The kinds of batches. */
enum lh_kind {
    LH_KIND_ACQUIRE,   /* its items are struct lh_acquire_item */
    LH_KIND_HEARTBEAT, /* its items, the next one's and DOWNGRADE's are struct lh_holder_item */
    LH_KIND_RELEASE,
    LH_KIND_LEAVE,     /* its items are struct lh_leave_item */
    LH_KIND_DOWNGRADE, /* makes exclusive leases shared; the answer is as of HEARTBEAT, and in item->downgrade */
    /* Several scopes for one request, at most LH_ALL_ITEMS_MAX: acquire items of one lease key that differ in scope,
       units and at_least_us only. All are GRANTED, or all RENEWED; otherwise one item has the outcome of all, and the
       others are BUSY. */
    LH_KIND_ACQUIRE_ALL,
    LH_SCOPE_KINDS, /* the kinds above are items of a scope */
    /* On a hook lane, of struct lh_reap_item, one after the other, at most LH_REAP_PIPELINE_MAX. All are durable at
       on_done. */
    LH_KIND_REAP = LH_SCOPE_KINDS,
    LH_KIND_COUNT
};

enum lh_acquire_outcome {
    LH_ACQUIRE_GRANTED,
    LH_ACQUIRE_RENEWED, /* the lease key held it already */
    LH_ACQUIRE_QUEUED,  /* `queue` was set: there is a waiter row with `ticket` */
    LH_ACQUIRE_HELD,    /* held or queued for, and `queue` was not set */
    LH_ACQUIRE_BUSY,    /* another session has the row; no effect */
    LH_ACQUIRE_FROZEN,
    LH_ACQUIRE_QUOTA,     /* the policy's max_leases or max_waiters */
    LH_ACQUIRE_ENDED,     /* the lease key has ended */
    LH_ACQUIRE_INVALID,   /* see `field` and `bound` */
    LH_ACQUIRE_DENIED,    /* the same: a priority above the policy's max_priority */
    LH_ACQUIRE_REJECTED,  /* a hook refused it: see `message` */
    LH_ACQUIRE_ELSEWHERE, /* the key of a spread namespace is in another database */
    LH_ACQUIRE_HOOKED,    /* to be sent on a hook lane; no effect */
};

/* The first words of a rejection because a hook ran over its limit. */
#define LH_HOOK_TIMEOUT_WORDS "the hook ran over its limit"

/* A value of at_least_us: the policy's. */
#define LH_AT_LEAST_POLICY INT64_C(-1)

/* Terms of a request that hold in all of its scopes: its items of a batch have them as they are. */
struct lh_acquire_terms {
    const char *owner;
    const char *principal; /* the proved caller, see lh_rpc_call_principal */
    const char *labels;    /* a JSON object of strings */
    int64_t duration_us;
    LH_ACQUIRE_NUMBERS(LH_NUMBER_MEMBER, ) /* a negative priority: the policy's max_priority does not bind the caller */
};

struct lh_acquire_item {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    struct lh_acquire_terms terms;
    int32_t units;       /* units of a shared lease; 0: exclusive */
    int64_t at_least_us; /* the minimum hold; LH_AT_LEAST_POLICY: the policy's */
    bool queue;          /* join the queue if it is not granted */
    int64_t wait_us;     /* longest wait from now; LH_NEVER: no limit */
    /* 0, or the place that the waiter had: the waiter gets it again if its row was lost. */
    int64_t ticket;
    /* Limit on a hook lane, as the answer HOOKED gave it; 0: no limit. */
    int64_t hook_timeout_us;

    enum lh_acquire_outcome outcome;
    int64_t new_ticket; /* QUEUED: the waiter's ticket */
    /* GRANTED, RENEWED: this lease is in `lease`; QUEUED, HELD: the holder's, if any. */
    bool has_lease;
    struct lh_held_lease lease;
    int32_t holder_count; /* holders of the scope, with this one */
    /* Units of the capacity that are free then, or LH_UNITS_UNBOUNDED; 0 while the scope is held exclusively. */
    int32_t units_free;
    /* HELD, QUEUED: waiters before it. REJECTED: -1 is a wake-up for our own next waiter. */
    int32_t waiters_ahead;
    /* Rest left to the scope, in which it is not granted; 0: no rest. */
    int64_t rests_in_us;
    /* QUEUED: when to ask again; LH_NEVER: only an administrator ends the lease. */
    int64_t expires_in_us;
    /* QUEUED: time until a silent holder stops being ALIVE; 0: it is not ALIVE now. */
    int64_t suspected_in_us;
    const char *message; /* a text, or NULL */
    const char *field;   /* INVALID, DENIED: the field's name as in the proto, or NULL */
    const char *bound;   /* INVALID, DENIED, QUOTA: the limit in words, or NULL */
};

/* The fields of a downgrade, beside those of every holder's item. */
struct lh_downgrade {
    int32_t units;
    const char *principal; /* the caller */

    struct lh_held_lease lease; /* OK: the shared lease */
    const char *field;          /* INVALID: as in lh_acquire_item */
    const char *bound;
    bool is_over_quota; /* INVALID: too many units are taken in the scope; see `bound` */
};

/* The terms of a shared lease in the answer to a renewal, because another call may have downgraded it. Its slots are
   the lowest of those that it had, or 1 to `units` if it was exclusive. */
struct lh_shared_terms {
    int64_t token;
    int32_t units;
    bool has_slots;
};

/* An operation of a holder: a heartbeat, a release or a downgrade. */
struct lh_holder_item {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    /* Release: `value` is the text of an error; else it is the result as JSON, or NULL for none. */
    bool is_failure;
    /* Release only if the lease was never renewed, because its holder did not get the grant. */
    bool is_unheard;
    const char *value;              /* release: see is_failure */
    struct lh_downgrade *downgrade; /* downgrade: its fields, owned by the caller */
    int64_t hook_timeout_us;

    bool is_busy;                  /* another session has the row; no effect, `outcome` is unset */
    bool is_hooked;                /* to be sent on a hook lane; no effect, `outcome` is unset */
    enum lh_outcome outcome;       /* OK, LOST, REJECTED or INVALID */
    enum lh_end_reason end_reason; /* LOST; of a heartbeat that is OK: MAX_HOLD, if the deadline is final */
    const char *message;           /* a text, or NULL */
    int64_t remaining_us;          /* heartbeat: the renewed lease */
    int64_t deadline_us;
    int64_t heartbeats;
    struct lh_shared_terms shared; /* heartbeat: the terms; `units` is 0 for an exclusive lease */
    /* Release, downgrade: the first live waiter of the scope is this coordinator's and waits at most for a rest. It
       asks again, and learns from the answer how long the scope rests. */
    bool wake;
};

enum lh_leave_kind {
    /* The caller went away or its wait has passed: the place is given up, and a lease granted in the same instant is
       released again. */
    LH_LEAVE_GONE,
    /* The place is kept for 10 s and skipped if its turn comes; a lease that was granted is returned. */
    LH_LEAVE_AWAY,
};

struct lh_leave_item {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    enum lh_leave_kind kind;
    int64_t unheard_since_us; /* GONE: a lease that was granted before goes on, by the database's clock; 0: none does */
    int64_t hook_timeout_us;

    bool is_busy;
    bool is_hooked;
    bool was_granted; /* AWAY: the lease key holds the lease in `lease` */
    bool has_lease;   /* the holder's lease, if any */
    struct lh_held_lease lease;
    /* holder_count, units_free and rests_in_us as in lh_acquire_item. */
    int32_t holder_count;
    int32_t units_free;
    int32_t waiters_ahead; /* waiters that were ahead of it */
    int64_t rests_in_us;
    bool wake;
};

/* The scope that a wake-up is about; ns NULL: look at every scope with waiters again. */
struct lh_wake {
    const char *ns;
    const char *key;
    /* Ticket of our first waiter there, for pass_on; 0: we have none. */
    int64_t first_ticket;
};

/* The store calls these from the loop, between `start` and the on_done of `stop`, never inside a call to the store. */
struct lh_store_events {
    void (*on_lane_up)(void *arg, unsigned lane);
    void (*on_lane_down)(void *arg, unsigned lane); /* after the batch in flight was answered */
    void (*on_control_up)(void *arg);               /* connected (again): register, look everything up again */
    void (*on_control_down)(void *arg);
    void (*on_listener_up)(void *arg); /* connected; notifications may have been missed before */
    void (*on_wake)(void *arg, const struct lh_wake *wake);
    void (*on_watch)(void *arg);  /* there are events to take */
    void (*on_asked)(void *arg);  /* requests to hand over have changed */
    void (*on_spread)(void *arg); /* rows of spread namespaces have changed */
};

typedef void lh_store_cb(void *arg, enum lh_status status, const struct lh_error *error);

/* --- control answers --- */

struct lh_tick_answer {
    int64_t database_now_us;
    /* If not: another daemon took this coordinator for dead and removed its rows; it must register again. */
    bool is_registered;
    const struct lh_wake *wakes;
    size_t wake_count;
    /* Version of rules and tokens; it differs after each change. */
    int64_t access_version;
};

struct lh_access_answer {
    const struct lh_access_rule *rules;
    size_t rule_count;
    const struct lh_access_token *tokens; /* valid tokens only */
    size_t token_count;
};

/* All requests to hand a lease over. */
struct lh_asked_answer {
    int64_t fingerprint;
    bool has_changed; /* the requests follow */
    const struct lh_hand_over *requests;
    size_t count;
};

#define LH_SPREAD_BYTES 512 /* 4,096 slots */

/* Which keys of a spread namespace a database has; see service/places/spread.h. */
struct lh_spread_row {
    const char *ns;
    const char *section;
    const char *const *sections; /* the names that the slots were made from */
    size_t section_count;
    uint8_t slots[LH_SPREAD_BYTES]; /* get_bit() of PostgreSQL */
    bool is_settled;                /* if not, it is a claim without slots */
    int64_t changed_at_us;
};

struct lh_spread_answer {
    const struct lh_spread_row *rows;
    size_t count;
};

struct lh_spread_claim {
    const char *ns;
    const char *section;
    const char *const *sections;
    size_t section_count;
    bool settles; /* the claim gets its slots */
};

/* A line of the audit. Strings may be NULL. */
struct lh_audit {
    const char *principal;
    const char *peer;
    const char *action;
    const char *ns;
    const char *key;
    int64_t token; /* 0: no token */
    const char *reason;
    const char *outcome;
    int64_t count;
};

enum lh_reap_kind {
    LH_REAP_BY_ITSELF, /* by the daemon, in all namespaces */
    /* By a caller, expired leases that the daemon reaps too; `namespaces` are those that it may reap in. */
    LH_REAP_DUE,
    /* By a caller, also the leases that only an external reaper ends. */
    LH_REAP_BY_NAME,
};

struct lh_reap_answer {
    struct lh_reaped {
        struct lh_held_lease lease; /* automatic reap: names, token, owner and principal only */
        bool is_failure;
        const char *error; /* is_failure: the error */
        int32_t reap_failures;
        /* INT64_MAX: the daemon does not try it again. */
        int64_t next_try_at_us;
        bool wake;
        /* Not ended yet: reap_hooked has to run its hooks, within hook_timeout_us. */
        bool is_hooked;
        int64_t hook_timeout_us;
    } const *leases;
    size_t lease_count;
    const struct lh_wake *wakes; /* free scopes whose first live waiter is ours */
    size_t wake_count;
    bool has_more; /* `max` was reached */
};

enum lh_reap_end {
    /* The connection was lost: the first such item was perhaps being reaped, those behind it were not. With LH_OK:
       the item was not sent, because one before it took long. */
    LH_REAP_UNANSWERED,
    LH_REAP_DONE,
    LH_REAP_FAILED,
    /* The statement failed, see reaped.error; no failure is recorded. */
    LH_REAP_ERROR,
    LH_REAP_GONE, /* not held with that token any more, or not expired, or busy */
    /* Not done together with the items it was joined to: send it by itself; no failure is recorded. */
    LH_REAP_ALONE,
};

/* A lease whose reap hooks are to run, in a transaction of its own or with the items it is joined to. */
struct lh_reap_item {
    const char *ns;
    const char *key;
    int64_t token;
    int64_t hook_timeout_us;
    /* Not NULL: record this failure and run no hook. */
    const char *loss;
    bool is_joined; /* in one transaction with the item before it, which is of the same namespace */

    enum lh_reap_end outcome;
    struct lh_reaped reaped; /* DONE, FAILED: the result, without the lease */
    int64_t took_us;
};

/* The database server behind the store. Strings live until the next call of the store. */
struct lh_server_facts {
    bool is_up;         /* the store is connected to it */
    const char *server; /* its name in the configuration; "": none was seen yet */
    uint64_t system_identifier;
    int64_t timeline; /* 0: none was seen yet */
    /* Its last answer, on the coordinator's clock; 0: never. */
    int64_t answered_us;
    uint64_t failovers;  /* times that the store found another primary */
    const char *trouble; /* the error of the last connect, or NULL */
    /* `trouble` in few words that name no host and no role, or NULL. */
    const char *cause;
    /* Waiting does not help: an administrator has to change something. */
    bool is_permanent;
    /* The code that does the usual acquires, renewals and releases, in words. */
    const char *common_path;
    /* Error that keeps partitions of history or audit from being maintained, or NULL. */
    const char *keeping;
    /* Fault of owners and rights in the schema, or NULL. */
    const char *privileges;
};

/* Measurements of the database, made now and then. */
struct lh_survey_answer {
    int64_t held; /* number of held leases */
    /* Age of the transaction that holds back vacuum; 0: no such transaction; -1: unknown, because
       the role may not see other sessions (pg_monitor). */
    int64_t oldest_us;
    const char *oldest; /* the session of that transaction, in words */
};

/* A transaction whose guard was open for too long. */
struct lh_long_guard {
    const char *session; /* in words */
    const char *trouble; /* error that kept its session from being ended; NULL: it was ended */
};

struct lh_scope_answer {
    bool is_held;
    struct lh_held_lease lease; /* the exclusive one, or the oldest shared one */
    /* Force-release: all ended leases, the oldest first. */
    const struct lh_held_lease *holders;
    size_t listed;        /* length of `holders` */
    int32_t holder_count; /* holder_count and units_free as in lh_acquire_item */
    int32_t units_free;
    int32_t waiters;
    int64_t rests_in_us; /* as in lh_acquire_item */
    bool has_last;
    struct lh_last_hold {
        int64_t token;
        const char *owner;
        const char *principal;
        enum lh_end_reason end_reason;
        const char *result; /* JSON, or "" */
        const char *error;
        int64_t ended_at_us;
    } last;
};

struct lh_list_request {
    const char *ns; /* "" for all */
    bool include_children;
    int32_t page_size;
    const char *after_ns; /* NULL, or the last scope of the page before */
    const char *after_key;
    /* The last lease of the page before; 0: begin behind that scope; -1: begin with it. */
    int64_t after_token;
    const char *owner; /* NULL or "" for any */
    /* A part of name, owner, principal or token; NULL or "" for any. */
    const char *search;
    const char *state;      /* overdue, silent, held_too_long or expired; NULL for any */
    int64_t longer_than_us; /* held for so long; 0 for any */
};

struct lh_list_answer {
    const struct lh_held_lease *leases;
    size_t lease_count;
    bool has_more;
    /* NULL, or the scope up to which the store has looked when it stopped before the page was full. */
    const char *stop_ns;
    const char *stop_key;
};

/* A lease that was granted or ended. The numbers are those of leasehold.v1. */
enum lh_event_type {
    LH_EVENT_NONE = 0,
    LH_EVENT_ACQUIRED = 1,
    LH_EVENT_RELEASED = 2,
    LH_EVENT_EXPIRED = 3,
    LH_EVENT_FORCED = 4,
    LH_EVENT_DOWNGRADED = 7, /* 5 and 6 are of the wire alone */
};

struct lh_lease_event {
    enum lh_event_type type;
    struct lh_held_lease lease; /* ended lease: its state before the end */
    const char *reason;         /* FORCED: the reason; else NULL */
    enum lh_end_reason end_reason;
    const char *result; /* JSON, or NULL */
    const char *error;  /* a text, or NULL */
};

struct lh_events_answer {
    const struct lh_lease_event *events; /* events of a scope are in order */
    size_t event_count;
    bool has_more;  /* `max` was reached */
    bool is_lagged; /* events are missing, and the watches are gone */
};

typedef void lh_tick_cb(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *answer);
typedef void lh_survey_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_survey_answer *answer);
typedef void lh_guards_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_long_guard *guards, size_t count);
typedef void lh_access_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_access_answer *answer);
typedef void lh_asked_read_cb(void *arg, enum lh_status status, const struct lh_error *error,
                              const struct lh_asked_answer *answer);
typedef void lh_spread_read_cb(void *arg, enum lh_status status, const struct lh_error *error,
                               const struct lh_spread_answer *answer);
typedef void lh_reap_pass_cb(void *arg, enum lh_status status, const struct lh_error *error,
                             const struct lh_reap_answer *answer);
typedef void lh_scope_cb(void *arg, enum lh_status status, const struct lh_error *error,
                         const struct lh_scope_answer *answer);
typedef void lh_list_cb(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_list_answer *answer);
typedef void lh_barrier_cb(void *arg, enum lh_status status, const struct lh_error *error, uint64_t horizon);
typedef void lh_settled_cb(void *arg, enum lh_status status, const struct lh_error *error, bool is_settled);
typedef void lh_events_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_events_answer *answer);

/*
 * `clock_us` is the database's clock now as the caller knows it (0: unknown). If the database's own clock is over 1 s
 * ahead of it, no lease counts as expired in that call (promise 9: a clock that stepped forward).
 */
struct lh_store_ops {
    unsigned (*lane_count)(struct lh_store *store);
    unsigned (*hook_lane_count)(struct lh_store *store);
    void (*start)(struct lh_store *store, const struct lh_store_events *events, void *arg);
    /* Finishes the calls in flight, unregisters, disconnects; then on_done, after which no event comes. */
    void (*stop)(struct lh_store *store, lh_store_cb *on_done, void *arg);

    /* Sends a batch of this kind: n is 1..LH_BATCH_MAX, and the lane has none in flight. `items` point to the kind's
       items. LH_DATABASE_UNAVAILABLE: the lane is down. */
    enum lh_status (*send)(struct lh_store *store, unsigned lane, enum lh_kind kind, int64_t clock_us, void **items,
                           size_t n, lh_store_cb *on_done, void *arg);
    /* Returns the number of acquires and releases from which one batch is quicker than two that run beside each
       other. */
    size_t (*worth_a_batch)(struct lh_store *store);
    /*
     * Releases, and behind them in the same transaction `riders`: acquires of waiters for the released scopes and of
     * others. If one part makes the transaction fail, they are done one after the other.
     */
    enum lh_status (*hand_over)(struct lh_store *store, unsigned lane, int64_t clock_us, struct lh_holder_item **items,
                                size_t n, struct lh_acquire_item **riders, size_t rider_count, lh_store_cb *on_done,
                                void *arg);

    /* Control calls. Refused: LH_DATABASE_UNAVAILABLE when not connected, LH_OVERLOADED when the bounded queue is
       full. */
    /* Registers this coordinator. */
    enum lh_status (*enroll)(struct lh_store *store, lh_tick_cb *on_done, void *arg);
    enum lh_status (*tick)(struct lh_store *store, int64_t clock_us, lh_tick_cb *on_done, void *arg);
    /* Connects the control connection again, to another server first, because no commit has succeeded for long. */
    void (*look_elsewhere)(struct lh_store *store);
    /* NULL: the store does not measure. */
    enum lh_status (*survey)(struct lh_store *store, lh_survey_cb *on_done, void *arg);
    /* Ends the sessions that guard a lease for longer than max_us. NULL: the store has no guards. */
    enum lh_status (*end_long_guards)(struct lh_store *store, int64_t max_us, lh_guards_cb *on_done, void *arg);
    /* Access rules; each is NULL if the store has none. */
    enum lh_status (*read_access)(struct lh_store *store, lh_access_cb *on_done, void *arg);
    enum lh_status (*audit)(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg);
    enum lh_status (*token_used)(struct lh_store *store, const char *const *ids, size_t count);
    /* Requests to hand over; each is NULL if the store has none. Reads them, unless they have the fingerprint `known`. */
    enum lh_status (*read_asked)(struct lh_store *store, int64_t known, lh_asked_read_cb *on_done, void *arg);
    /* Asks, for waiters, each holder that they wait behind, once. */
    enum lh_status (*ask_holders)(struct lh_store *store, const struct lh_acquire_item *waiters, size_t count,
                                  lh_store_cb *on_done, void *arg);
    /* Rows of spread namespaces; each is NULL if the store has none. Reads them, and notes that those until `read_us` (the
       newest changed_at_us; 0: none) are in force here. */
    enum lh_status (*read_spread)(struct lh_store *store, int64_t read_us, lh_spread_read_cb *on_done, void *arg);
    /* Makes a row, or gives it its slots; leaves one of other sections as it is. */
    enum lh_status (*claim_spread)(struct lh_store *store, const struct lh_spread_claim *claim, lh_store_cb *on_done,
                                   void *arg);
    enum lh_status (*pass_on)(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg);
    enum lh_status (*reap)(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                           size_t namespace_count, bool include_children, const char *key, int32_t max,
                           enum lh_reap_kind kind, const struct lh_requester *requester, lh_reap_pass_cb *on_done,
                           void *arg);
    enum lh_status (*get)(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done, void *arg);
    enum lh_status (*list)(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                           void *arg);
    /* Lists the holders of a scope, the oldest first. */
    enum lh_status (*holders)(struct lh_store *store, const char *ns, const char *key, int32_t max, lh_list_cb *on_done,
                              void *arg);
    /* Ends the lease of a scope. A scope with several holders needs `token` or `all`, else LH_INVALID_ARGUMENT. The
       answer has the ended leases, or not is_held if it ended only a rest; LH_NOT_HELD if neither; LH_SCOPE_BUSY
       names the sessions in `error`. History and audit name `requester`, here and below; NULL: the daemon itself. */
    enum lh_status (*force_release)(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                    int64_t token, bool all, const struct lh_requester *requester, lh_scope_cb *on_done,
                                    void *arg);
    /* Administration, and what people look at; the answers are rows. */
    enum lh_status (*administer)(struct lh_store *store, const struct lh_admin_request *request, lh_rows_cb *on_done,
                                 void *arg);
    enum lh_status (*list_rows)(struct lh_store *store, const struct lh_list_page *page, lh_rows_cb *on_done,
                                void *arg);
    enum lh_status (*view)(struct lh_store *store, const struct lh_view_request *request, lh_rows_cb *on_done,
                           void *arg);

    /*
     * Watching; each is NULL if the store does not offer it. From watch_add on, changes under `ns` ("" is everything)
     * become events of this coordinator. A watch is complete once the horizon that a later barrier returned has settled
     * (horizon 0: all watches are gone). Make one take_events call at a time; after LH_DATABASE_UNAVAILABLE the events
     * it took are lost.
     */
    enum lh_status (*watch_add)(struct lh_store *store, const char *ns, bool include_children, lh_store_cb *on_done,
                                void *arg);
    enum lh_status (*watch_remove)(struct lh_store *store, const char *ns, bool include_children, lh_store_cb *on_done,
                                   void *arg);
    /* Removes all watches and their events. */
    enum lh_status (*watch_clear)(struct lh_store *store, lh_store_cb *on_done, void *arg);
    enum lh_status (*watch_barrier)(struct lh_store *store, lh_barrier_cb *on_done, void *arg);
    enum lh_status (*watch_settled)(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg);
    enum lh_status (*take_events)(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg);

    /* Facts for GetStatus and health, without a round trip. */
    /* The WAL timeline, 0 before the first connection. */
    int64_t (*timeline)(struct lh_store *store);
    int32_t (*schema_version)(struct lh_store *store);
    bool (*is_connected)(struct lh_store *store);
    void (*server)(struct lh_store *store, struct lh_server_facts *facts);
};

#define LH_BATCH_MAX 500
#define LH_REAP_PIPELINE_MAX 256
#define LH_REAP_TOGETHER_MAX 32

/* The first member of every implementation. */
struct lh_store {
    const struct lh_store_ops *ops;
    struct lh_uuid coordinator; /* this daemon's id */
};

#endif
