/*
 * The port behind which the leases live: src/store implements it on PostgreSQL, the tests with a fake. The coordinator
 * never sees SQL. No function here blocks.
 *
 * Callbacks: all run on the thread of the store's event loop, which is the only thread that may call these
 * functions. A call that returns LH_OK runs its `on_done` exactly once: later, from the loop, never before the call
 * has returned. That holds when the connection breaks, and while the store stops. A call that is refused (any other
 * status) never runs it. From inside of a callback the coordinator may call every function here.
 *
 * Memory: `arg` is the caller's. The batch calls borrow `items` and all they point to until on_done has been called;
 * the outcomes are written into the items before. All other calls copy their arguments before they return. What a
 * callback gets, and what the items' outcomes point to, is the store's and is valid until the callback returns. The
 * answer of a control call may be read when the status is LH_OK, and `error` when it is not.
 *
 * A lane carries one batch at a time. It is free again when on_done is called, so that on_done may send the next batch.
 * Control calls travel on a connection of their own. The calls that the coordinator makes for itself are answered in
 * order, and so are those that it makes for clients.
 *
 * An item of a namespace that has a hook is answered HOOKED, and nothing was done. The coordinator then sends it
 * alone on a hook lane, where the hook runs in the item's transaction for at most hook_timeout. The other lanes
 * never wait for a hook. The numbers of the hook lanes follow those of the other lanes.
 *
 * The status of an answer:
 *   LH_OK                    every item has its outcome
 *   LH_DATABASE_UNAVAILABLE  the connection was lost: whether the batch was committed is unknown
 *   LH_CANCELED              the store is stopping
 *   anything else            nothing was committed; `error` has the words
 * When the data of one item makes a batch fail, the store splits the batch: that item gets the outcome INVALID, the
 * others get theirs.
 */
#ifndef LH_LEASE_STORE_H
#define LH_LEASE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access/access.h"
#include "base/heap.h"
#include "base/status.h"
#include "lease/access_admin.h"
#include "lease/types.h"
#include "lease/view.h"

struct lh_store;

enum lh_acquire_outcome {
    LH_ACQUIRE_GRANTED,
    LH_ACQUIRE_RENEWED, /* the lease key held it already */
    LH_ACQUIRE_QUEUED,  /* `queue` was asked for: there is a waiter row with `ticket` */
    LH_ACQUIRE_HELD,    /* held or queued for, and `queue` was not asked for */
    LH_ACQUIRE_BUSY,    /* another session has the row: nothing was done */
    LH_ACQUIRE_FROZEN,
    LH_ACQUIRE_QUOTA,    /* max_leases, or max_waiters */
    LH_ACQUIRE_ENDED,    /* the lease key has ended */
    LH_ACQUIRE_INVALID,  /* `field`, `bound` say why */
    LH_ACQUIRE_REJECTED, /* a hook refused: `message` */
    LH_ACQUIRE_HOOKED,   /* for a hook lane: nothing was done */
};

/* What a rejection by the limit of a hook begins with. */
#define LH_HOOK_TIMEOUT_WORDS "the hook ran over its limit"

/* Of at_least_us. */
#define LH_AT_LEAST_POLICY INT64_C(-1)

struct lh_acquire_item {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    const char *owner;
    const char *principal;
    const char *labels; /* a JSON object of strings */
    int64_t duration_us;
    int32_t units;           /* of a shared lease; 0: exclusive */
    int64_t at_least_us;     /* the minimum hold; LH_AT_LEAST_POLICY: the policy's */
    bool queue;              /* join the queue where it is not granted */
    int64_t wait_us;         /* how long at most, from now; LH_NEVER */
    int64_t ticket;          /* 0, or the place it had: kept when the row was lost */
    int64_t hook_timeout_us; /* on a hook lane: 0 is no limit; the answer HOOKED tells it */

    enum lh_acquire_outcome outcome;
    int64_t new_ticket; /* QUEUED */
    bool has_lease;     /* GRANTED, RENEWED: this lease; QUEUED, HELD: the holder's, if any */
    struct lh_held_lease lease;
    int32_t holder_count;    /* of the scope, with this one */
    int32_t units_free;      /* of its capacity then, or LH_UNITS_UNBOUNDED; 0 while it is held exclusively */
    int32_t waiters_ahead;   /* HELD; QUEUED too. REJECTED: -1 is a wake-up for our own next one */
    int64_t rests_in_us;     /* how long the scope still rests: it is granted to nobody before; 0: it does not rest */
    int64_t expires_in_us;   /* QUEUED: when to ask again; LH_NEVER: only an administrator ends it */
    int64_t suspected_in_us; /* QUEUED: when the holder, if silent, stops being ALIVE; 0: it is not now */
    const char *message;     /* or NULL */
    const char *field;       /* INVALID: the field's name as in the proto, or NULL */
    const char *bound;       /* INVALID, QUOTA: the limit in words, or NULL */
};

/* The fields of a downgrade, beyond those that every holder's item has. */
struct lh_downgrade {
    int32_t units;
    const char *principal; /* who asks */

    struct lh_held_lease lease; /* OK */
    const char *field;          /* INVALID: as of an acquire */
    const char *bound;
    bool is_over_quota; /* INVALID: too many units are taken in the scope; `bound` */
};

/* A renewal answers these for a shared lease, because somebody else may have downgraded it. Its slots are the lowest
   of those that it had, or 1 to `units` where it was exclusive. */
struct lh_shared_terms {
    int64_t token;
    int32_t units;
    bool has_slots;
};

/* What a holder does with its lease: a heartbeat, a release or a downgrade. */
struct lh_holder_item {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    bool is_failure;   /* of a release: `value` is the error's text, else the result as JSON, or NULL for none */
    bool is_unheard;   /* a release, only while the lease was never renewed: its holder did not hear of the grant */
    const char *value; /* of a release */
    struct lh_downgrade *downgrade; /* of a downgrade: the caller's */
    int64_t hook_timeout_us;

    bool is_busy;                  /* another session has the row: nothing was done, `outcome` is unset */
    bool is_hooked;                /* for a hook lane: the same */
    enum lh_outcome outcome;       /* OK, LOST, REJECTED, INVALID */
    enum lh_end_reason end_reason; /* LOST */
    const char *message;           /* or NULL */
    int64_t remaining_us;          /* these three of a heartbeat */
    int64_t deadline_us;
    int64_t heartbeats;
    struct lh_shared_terms shared; /* of a heartbeat: `units` is 0 for an exclusive lease */
    bool wake; /* of a release or downgrade: the first live waiter of the scope is this coordinator's, and nothing but
                  a rest is in its way. It asks again, and where the scope rests it learns for how long */
};

enum lh_leave_kind {
    LH_LEAVE_GONE, /* the caller went away or its wait has passed: the place is given up, and a lease granted in the
                      same instant is released again */
    LH_LEAVE_AWAY, /* the place is kept for 10 s, skipped if its turn comes; a lease that was granted is returned */
};

struct lh_leave_item {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    enum lh_leave_kind kind;
    int64_t hook_timeout_us;

    bool is_busy;
    bool is_hooked;
    bool was_granted; /* AWAY: it holds the lease, see `lease` */
    bool has_lease;   /* the holder's lease, if any */
    struct lh_held_lease lease;
    int32_t holder_count; /* as of an acquire, like units_free and rests_in_us */
    int32_t units_free;
    int32_t waiters_ahead; /* that were ahead of it */
    int64_t rests_in_us;
    bool wake;
};

/* The scope that a wake-up is about; ns NULL: look at every scope with waiters again. */
struct lh_wake {
    const char *ns;
    const char *key;
    int64_t first_ticket; /* of pass_on: of our first waiter there, 0 where we have none */
};

/* The store calls these from the loop, between `start` and the on_done of `stop`, never inside a call to the store. */
struct lh_store_events {
    void (*on_lane_up)(void *arg, unsigned lane);
    void (*on_lane_down)(void *arg, unsigned lane); /* after the batch in flight was answered */
    void (*on_control_up)(void *arg);               /* connected (again): register, look everything up again */
    void (*on_control_down)(void *arg);
    void (*on_listener_up)(void *arg); /* notifications may have been missed before */
    void (*on_wake)(void *arg, const struct lh_wake *wake);
    void (*on_watch)(void *arg); /* there are events to take */
};

typedef void lh_store_cb(void *arg, enum lh_status status, const struct lh_error *error);

/* --- control answers --- */

struct lh_tick_answer {
    int64_t database_now_us;
    bool is_registered; /* false: another one took this coordinator for dead and cleaned up: register again */
    const struct lh_wake *wakes;
    size_t wake_count;
    int64_t access_version; /* of rules and tokens; another one: they have changed */
};

struct lh_access_answer {
    const struct lh_access_rule *rules;
    size_t rule_count;
    const struct lh_access_token *tokens; /* the valid ones */
    size_t token_count;
};

/* A line of the audit. NULL where there is nothing to say. */
struct lh_audit {
    const char *principal;
    const char *peer;
    const char *action;
    const char *ns;
    const char *key;
    int64_t token; /* 0: none */
    const char *reason;
    const char *outcome;
    int64_t count;
};

enum lh_reap_kind {
    LH_REAP_BY_ITSELF, /* the daemon, all namespaces */
    LH_REAP_DUE,       /* a caller, the same; `namespaces` are those that it may reap in */
    LH_REAP_BY_NAME,   /* a caller, what only an external reaper ends too */
};

struct lh_reap_answer {
    struct lh_reaped {
        struct lh_held_lease lease; /* of an automatic reap only names, token, owner and principal */
        bool is_failure;
        const char *error; /* is_failure */
        int32_t reap_failures;
        int64_t next_try_at_us; /* INT64_MAX: not by itself any more */
        bool wake;
        bool is_hooked; /* not done yet: its hooks are to run by reap_hooked, within hook_timeout_us */
        int64_t hook_timeout_us;
    } const *leases;
    size_t lease_count;
    const struct lh_wake *wakes; /* free scopes whose first live waiter is ours */
    size_t wake_count;
    bool has_more; /* `max` was reached */
};

enum lh_reap_outcome {
    LH_REAP_UNANSWERED, /* the connection was lost: the first of these was being reaped, perhaps; those behind were not.
                           Or, with LH_OK, it was not sent, for one before it took long */
    LH_REAP_DONE,
    LH_REAP_FAILED,
    LH_REAP_ERROR, /* the statement failed: reaped.error. Nothing is recorded */
    LH_REAP_GONE,  /* not held with that token any more, or not expired, or busy */
    LH_REAP_ALONE, /* not done with those it was joined to, whyever: it is to be sent by itself. Nothing is recorded */
};

/* A lease whose reap hooks are to run, in a transaction of its own or with those it is joined to. */
struct lh_reap_item {
    const char *ns;
    const char *key;
    int64_t token;
    int64_t hook_timeout_us;
    const char *loss; /* not NULL: do not run them, record this failure */
    bool is_joined;   /* in one transaction with the item before it, which is of the same namespace */

    enum lh_reap_outcome outcome;
    struct lh_reaped reaped; /* DONE, FAILED; without the lease */
    int64_t took_us;
};

/* The database server behind the store. Strings live until the next call of the store. */
struct lh_server_facts {
    bool is_up;         /* there is a connection to it */
    const char *server; /* as the configuration names it; "": none was seen yet */
    uint64_t system_identifier;
    int64_t timeline;        /* 0: none was seen yet */
    int64_t answered_us;     /* when it last answered anything, on the coordinator's clock; 0: never */
    uint64_t failovers;      /* times that another primary was found */
    const char *trouble;     /* why there is no connection, or NULL */
    const char *cause;       /* the same in few words that name no host and no role, or NULL */
    bool is_permanent;       /* it does not pass by waiting: a person has to change something */
    const char *common_path; /* what does the usual acquires, renewals and releases: in words */
    const char *keeping;     /* why partitions of history or audit cannot be looked after, or NULL */
    const char *privileges;  /* what is wrong with owners and rights in the schema, or NULL */
};

/* What is measured now and then, beside the work. */
struct lh_survey_answer {
    int64_t held;       /* leases */
    int64_t oldest_us;  /* how long the transaction that holds back vacuum has been open; 0: there is none; -1: unknown,
                           because the role may not see other sessions (pg_monitor) */
    const char *oldest; /* its session, in words */
};

/* A transaction whose guard was open for too long. */
struct lh_long_guard {
    const char *session; /* in words */
    const char *trouble; /* why its session could not be ended; NULL: it was */
};

struct lh_scope_answer {
    bool is_held;
    struct lh_held_lease lease;          /* the exclusive one, or the oldest shared one */
    const struct lh_held_lease *holders; /* of a force-release: all that were ended, the oldest first */
    size_t listed;                       /* how many these are */
    int32_t holder_count;                /* these two as of an acquire */
    int32_t units_free;
    int32_t waiters;
    int64_t rests_in_us; /* as of an acquire */
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
    int64_t after_token; /* and of the last lease in it; 0: the page begins behind that scope; -1: with it */
    const char *owner;   /* NULL or "" for any */
    const char *search;  /* is in name, owner, principal or token; NULL or "" for any */
};

struct lh_list_answer {
    const struct lh_held_lease *leases;
    size_t lease_count;
    bool has_more;
    const char
        *stop_ns; /* the page is not full, but the store has looked far enough: to this scope; NULL: it has not */
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
    struct lh_held_lease lease; /* of an ended one: as it was then */
    const char *reason;         /* FORCED, or NULL */
    enum lh_end_reason end_reason;
    const char *result; /* JSON, or NULL */
    const char *error;  /* or NULL */
};

struct lh_events_answer {
    const struct lh_lease_event *events; /* in order for a scope */
    size_t event_count;
    bool has_more;  /* `max` came */
    bool is_lagged; /* events are missing, and nothing is watched any more */
};

/* A policy; presence in `set`, one bit for each enum lh_policy_field. */
enum lh_policy_field {
    LH_POLICY_MIN_DURATION,
    LH_POLICY_MAX_DURATION,
    LH_POLICY_GRACE,
    LH_POLICY_MAX_HOLD,
    LH_POLICY_DEAD_AFTER,
    LH_POLICY_EXPIRY,
    LH_POLICY_REAPER,
    LH_POLICY_FROZEN,
    LH_POLICY_MAX_LEASES,
    LH_POLICY_MAX_WAITERS,
    LH_POLICY_HISTORY,
    LH_POLICY_MAX_REAP_FAILURES,
    LH_POLICY_HOOK_TIMEOUT,
    LH_POLICY_FREE_RETENTION,
    LH_POLICY_HISTORY_RETENTION,
    LH_POLICY_AT_LEAST,
    LH_POLICY_CAPACITY,
    LH_POLICY_FIELD_COUNT
};

struct lh_policy_value {
    int64_t number;   /* microseconds for durations, 0 or 1 for booleans, counts */
    const char *text; /* expiry ("takeover", "reap", "manual") and reaper ("auto", "external"), else NULL */
};

struct lh_policy {
    const char *ns; /* "" is the root */
    uint32_t set;
    struct lh_policy_value values[LH_POLICY_FIELD_COUNT];
    const char
        *sources[LH_POLICY_FIELD_COUNT]; /* effective policies: the prefix each comes from ("" root), else NULL */
};

/* The column's name, which is also the proto field's: "min_duration" ... */
const char *lh_policy_field_name(enum lh_policy_field field);

struct lh_policy_answer {
    const struct lh_policy *policies; /* get: own, effective; set: effective; list: own ones */
    size_t policy_count;
    bool has_more;
    const char *stop_ns; /* list: it goes on behind this one; NULL: behind the last policy */
};

typedef void lh_tick_cb(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *answer);
typedef void lh_survey_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_survey_answer *answer);
typedef void lh_guards_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_long_guard *guards, size_t count);
typedef void lh_access_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_access_answer *answer);
typedef void lh_reap_cb(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_reap_answer *answer);
typedef void lh_scope_cb(void *arg, enum lh_status status, const struct lh_error *error,
                         const struct lh_scope_answer *answer);
typedef void lh_list_cb(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_list_answer *answer);
typedef void lh_policy_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_policy_answer *answer);
typedef void lh_barrier_cb(void *arg, enum lh_status status, const struct lh_error *error, uint64_t horizon);
typedef void lh_settled_cb(void *arg, enum lh_status status, const struct lh_error *error, bool is_settled);
typedef void lh_events_cb(void *arg, enum lh_status status, const struct lh_error *error,
                          const struct lh_events_answer *answer);

/*
 * `clock_us` is what the caller believes the database's clock to show now (0: no belief). Where the database's own is
 * over 1 s ahead of it, nothing counts as expired in that call (promise 9: a clock that stepped forward).
 */
struct lh_store_ops {
    unsigned (*lane_count)(struct lh_store *store);
    unsigned (*hook_lane_count)(struct lh_store *store);
    void (*start)(struct lh_store *store, const struct lh_store_events *events, void *arg);
    /* Finish what is in flight, unregister, close; then on_done, after which no event comes. */
    void (*stop)(struct lh_store *store, lh_store_cb *on_done, void *arg);

    /* Batches: n is 1..LH_BATCH_MAX, and the lane has none in flight. LH_DATABASE_UNAVAILABLE: the lane is down. */
    enum lh_status (*acquire)(struct lh_store *store, unsigned lane, int64_t clock_us, struct lh_acquire_item **items,
                              size_t n, lh_store_cb *on_done, void *arg);
    /* One request for several scopes, at most LH_ALL_ITEMS_MAX: items of one lease key that differ in scope, units and at_least_us
       alone. All are GRANTED, or all RENEWED; else one has the outcome for them all, and the others are BUSY. */
    enum lh_status (*acquire_all)(struct lh_store *store, unsigned lane, int64_t clock_us,
                                  struct lh_acquire_item **items, size_t n, lh_store_cb *on_done, void *arg);
    enum lh_status (*heartbeat)(struct lh_store *store, unsigned lane, struct lh_holder_item **items, size_t n,
                                lh_store_cb *on_done, void *arg);
    enum lh_status (*release)(struct lh_store *store, unsigned lane, struct lh_holder_item **items, size_t n,
                              lh_store_cb *on_done, void *arg);
    /* Makes exclusive leases shared; an answer is as of `heartbeat`, and in item->downgrade. */
    enum lh_status (*downgrade)(struct lh_store *store, unsigned lane, int64_t clock_us, struct lh_holder_item **items,
                                size_t n, lh_store_cb *on_done, void *arg);
    enum lh_status (*leave)(struct lh_store *store, unsigned lane, struct lh_leave_item **items, size_t n,
                            lh_store_cb *on_done, void *arg);
    /* From how many acquires and releases on they are quicker in one batch than in two that run beside each other. */
    size_t (*worth_a_batch)(struct lh_store *store);
    /*
     * Releases, and behind them in the same transaction `riders`: acquires of waiters for the released scopes, and of
     * others. Where one of both makes it fail, they are done one after the other.
     */
    enum lh_status (*hand_over)(struct lh_store *store, unsigned lane, int64_t clock_us, struct lh_holder_item **items,
                                size_t n, struct lh_acquire_item **riders, size_t rider_count, lh_store_cb *on_done,
                                void *arg);

    /* On a hook lane: one item after the other, at most LH_REAP_PIPELINE_MAX; durable, all of them, with on_done. */
    enum lh_status (*reap_hooked)(struct lh_store *store, unsigned lane, int64_t clock_us, struct lh_reap_item **items,
                                  size_t n, lh_store_cb *on_done, void *arg);

    /* Control. Refused with LH_DATABASE_UNAVAILABLE when not connected, LH_OVERLOADED when the bounded queue is full. */
    enum lh_status (*enroll)(struct lh_store *store, lh_tick_cb *on_done, void *arg); /* register this coordinator */
    enum lh_status (*tick)(struct lh_store *store, int64_t clock_us, lh_tick_cb *on_done, void *arg);
    /* Nothing was committed for long: make the control connection again, at another server first. */
    void (*look_elsewhere)(struct lh_store *store);
    enum lh_status (*survey)(struct lh_store *store, lh_survey_cb *on_done, void *arg); /* NULL: it does not measure */
    /* End the sessions that guard a lease for longer. NULL: the store knows of none. */
    enum lh_status (*end_long_guards)(struct lh_store *store, int64_t max_us, lh_guards_cb *on_done, void *arg);
    /* Access; each NULL where the store does not know of it. */
    enum lh_status (*read_access)(struct lh_store *store, lh_access_cb *on_done, void *arg);
    enum lh_status (*audit)(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg);
    enum lh_status (*token_used)(struct lh_store *store, const char *const *ids, size_t count);
    enum lh_status (*pass_on)(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg);
    enum lh_status (*reap)(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                           size_t namespace_count, bool include_children, int32_t max, enum lh_reap_kind kind,
                           const struct lh_requester *requester, lh_reap_cb *on_done, void *arg);
    enum lh_status (*get)(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done, void *arg);
    enum lh_status (*list)(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                           void *arg);
    /* The holders of a scope, the oldest first. */
    enum lh_status (*holders)(struct lh_store *store, const char *ns, const char *key, int32_t max, lh_list_cb *on_done,
                              void *arg);
    /* Of several holders one needs `token` or `all`; else LH_INVALID_ARGUMENT.
       The answer is what was ended, or not is_held where only a rest was; LH_NOT_HELD otherwise;
       LH_SCOPE_BUSY names the sessions in `error`.
       `requester` is whom the history and the audit name, here and elsewhere; NULL: the daemon itself. */
    enum lh_status (*force_release)(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                    int64_t token, bool all, const struct lh_requester *requester, lh_scope_cb *on_done,
                                    void *arg);
    /* For each field in `mask`: set it where policy->set has it, else inherit again. */
    enum lh_status (*set_policy)(struct lh_store *store, const struct lh_policy *policy, uint32_t mask,
                                 const struct lh_requester *requester, lh_policy_cb *on_done, void *arg);
    enum lh_status (*get_policy)(struct lh_store *store, const char *ns, lh_policy_cb *on_done, void *arg);
    enum lh_status (*list_policies)(struct lh_store *store, int32_t page_size, const char *after_ns,
                                    lh_policy_cb *on_done, void *arg);
    /* Rules and tokens: lease/access_admin.h. `after` NULL: from the first on. */
    enum lh_status (*change_access)(struct lh_store *store, const struct lh_requester *by,
                                    const struct lh_access_change *change, lh_access_admin_cb *on_done, void *arg);
    enum lh_status (*list_access)(struct lh_store *store, int32_t page_size, const char *after_principal,
                                  const char *after_ns, lh_access_admin_cb *on_done, void *arg);
    enum lh_status (*create_token)(struct lh_store *store, const struct lh_requester *by, const char *name,
                                   int64_t expires_us, lh_access_admin_cb *on_done, void *arg);
    enum lh_status (*revoke_token)(struct lh_store *store, const struct lh_requester *by, const char *name_or_id,
                                   lh_access_admin_cb *on_done, void *arg);
    enum lh_status (*list_tokens)(struct lh_store *store, int32_t page_size, const char *after_name,
                                  const char *after_id, lh_access_admin_cb *on_done, void *arg);

    enum lh_status (*view)(struct lh_store *store, const struct lh_view_request *request, lh_view_cb *on_done,
                           void *arg);

    /*
     * Watching; each NULL where the store does not offer it. From watch_add on, changes under `ns` ("" is everything)
     * become events of this coordinator. A watch misses nothing from when the horizon that the barrier told after it
     * (0: nothing is watched any more) has settled. Take with one call at a time; LH_DATABASE_UNAVAILABLE: what it took
     * is lost.
     */
    enum lh_status (*watch_add)(struct lh_store *store, const char *ns, bool include_children, lh_store_cb *on_done,
                                void *arg);
    enum lh_status (*watch_remove)(struct lh_store *store, const char *ns, bool include_children, lh_store_cb *on_done,
                                   void *arg);
    enum lh_status (*watch_clear)(struct lh_store *store, lh_store_cb *on_done, void *arg); /* events too */
    enum lh_status (*watch_barrier)(struct lh_store *store, lh_barrier_cb *on_done, void *arg);
    enum lh_status (*watch_settled)(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg);
    enum lh_status (*take_events)(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg);

    /* What GetStatus and health need; no round trip. */
    int64_t (*timeline)(struct lh_store *store); /* WAL timeline, 0 before the first connection */
    int32_t (*schema_version)(struct lh_store *store);
    bool (*is_connected)(struct lh_store *store);
    void (*server)(struct lh_store *store, struct lh_server_facts *facts);
};

#define LH_BATCH_MAX 500
#define LH_REAP_PIPELINE_MAX 256
#define LH_REAP_TOGETHER_MAX 32

/* Implementations put this first. */
struct lh_store {
    const struct lh_store_ops *ops;
    struct lh_uuid coordinator; /* this daemon's id */
};

#endif
