/*
 * The nouns that coordinator, store and service share. Durations and times are microseconds; wall-clock times count
 * from the Unix epoch and are the database's. Namespaces are dotted strings. Strings end in NUL and hold no NUL.
 */
#ifndef LH_LEASE_TYPES_H
#define LH_LEASE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/uuid.h"

/* The numbers are those of leasehold.v1. */
enum lh_liveness {
    LH_LIVENESS_UNSPECIFIED = 0,
    LH_LIVENESS_ALIVE = 1,
    LH_LIVENESS_SUSPECTED_DEAD = 2,
    LH_LIVENESS_OVERDUE = 3, /* held longer than max_hold */
    LH_LIVENESS_EXPIRED = 4,
};

enum lh_end_reason {
    LH_END_UNSPECIFIED = 0,
    LH_END_RELEASED = 1,
    LH_END_FAILED = 2,
    LH_END_EXPIRED = 3,
    LH_END_FORCED = 4,
    LH_END_UNKNOWN = 5,
    LH_END_MAX_HOLD = 6, /* the policy ended it */
    LH_END_REASONS
};

enum lh_outcome {
    LH_OUTCOME_UNSPECIFIED = 0,
    LH_OUTCOME_OK = 1,
    LH_OUTCOME_LOST = 2,
    LH_OUTCOME_REJECTED = 3,
    LH_OUTCOME_RETRY = 4,
    LH_OUTCOME_INVALID = 5,
    LH_OUTCOME_DENIED = 6,
};

/* The caller of an administrator's operation, for the history and the audit. */
struct lh_requester {
    const char *principal; /* "anonymous" without a proved principal */
    const char *peer;      /* the caller's address */
};

/* A request to hand a lease over. */
struct lh_hand_over {
    const char *ns;
    const char *key;
    int64_t token; /* the lease's token */
    struct lh_uuid lease_key;
    int64_t asked_at_us;
    const char *asked_by;
    const char *principal;
    const char *reason;
    int64_t answer_by_us;
    int64_t answer_in_us; /* until then, when it was looked up; 0: it has passed */
    const char *refusal;  /* NULL: not refused */
};

/* A lease as the database has it. The function that hands one out says how long its strings live. */
struct lh_held_lease {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key; /* zero unless the receiver is its holder or an administrator */
    int64_t token;
    const char *owner;     /* "" when unknown */
    const char *principal; /* the proved principal that acquired it; "" when unknown */
    const char *labels;    /* a JSON object of strings */
    int64_t duration_us;
    int64_t grace_us;
    int64_t remaining_us; /* to the deadline, when the database answered; negative when it has passed */
    int64_t deadline_us;
    int64_t acquired_at_us;
    int64_t heartbeat_at_us; /* the last renewal; acquired_at_us without a renewal */
    int64_t held_us;         /* time since acquired_at, when the database answered */
    int64_t silent_us;       /* time since heartbeat_at, when the database answered */
    int64_t heartbeats;
    enum lh_liveness liveness;
    bool is_manual; /* expiry = manual: only a release or an administrator ends it */
    bool is_final;  /* the policy ends it at its deadline */
    int32_t units;  /* units of a shared lease; 0: exclusive */
    int32_t slot_count;
    /* Ascending; only a shared lease that was granted under a capacity has some. */
    const int32_t *slots;
    /* NULL, or what its holder was asked; set by who tells it on. */
    const struct lh_hand_over *asked;
};

/* A value of units_free: the scope has no capacity. */
#define LH_UNITS_UNBOUNDED INT32_MAX

/* The holders that an acquire waits for. */
struct lh_contention {
    /* If not: the scope is free, but at rest or queued for. */
    bool has_holder;
    struct lh_held_lease holder;         /* the exclusive one, or the oldest shared one */
    const struct lh_held_lease *holders; /* the oldest shared ones if they were looked up, else NULL */
    int32_t listed;                      /* length of `holders` */
    int32_t holder_count;                /* number of all holders */
    int32_t units_free;                  /* free units of the capacity, or LH_UNITS_UNBOUNDED */
    int32_t waiters_ahead;
    /* Rest, from the database's answer on, in which the scope is not granted; 0: no rest. */
    int64_t rests_us;
    bool is_holder_hidden; /* `holder` has names only: the caller may not see more */
};

#endif
