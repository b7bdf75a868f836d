/*
 * leasehold_core: the common path of acquire, heartbeat and release inside of PostgreSQL, in C. Optional.
 *
 *     create extension leasehold_core;      -- then daemons use it by themselves
 *
 * Each function of schema leasehold_core has the name, the arguments and the rows of its twin in leasehold_internal. It
 * finds a scope's row by the primary key, and writes the next version of it, without planner and executor. It does so
 * only in the common cases: a free scope without waiters, a live lease that its holder renews or releases.
 * All other items go to the SQL function, in the same transaction and in their order. So the rules stand in SQL, and
 * what is here is a second way to write the same rows; tests/core compares them.
 *
 * The life of a call: lh_core_begin() judges the session and the tables, and reads the facts. The function's own file
 * goes through the items. lh_core_end() does what follows a change (watches, history, SQL users who wait), and gives the
 * items that are left to SQL.
 *
 * What makes it safe without a lock before the condition is checked: the condition is checked on one version of
 * the row. The update succeeds only while that version is the newest and no other transaction has locked it. Otherwise SQL
 * handles the item.
 */
#ifndef LH_CORE_H
#define LH_CORE_H

#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "datatype/timestamp.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"

/* Grows when the SQL functions change what the common path does; leasehold_internal.core_life() has the schema's. */
#define LH_CORE_CONTRACT 7
/* The largest namespace, in bytes. */
#define LH_CORE_NAMESPACE_MAX 255
/* A bit for each of the 4,096 slots of keys. */
#define LH_CORE_SLOT_BYTES 512
/* The last column of leasehold_internal.acquired, `more`. */
#define LH_CORE_MORE 8
/* The columns of leasehold_internal.answer, in their order: what an acquire met, and the lease. */
#define LH_CORE_ANSWER_COLUMNS                                                                                         \
    N, OUTCOME, TICKET, AHEAD, EXPIRES_IN, SUSPECTED_IN, MESSAGE, FIELD, BOUND, TOKEN, OWNER, PRINCIPAL, LABELS,       \
        DURATION, GRACE, ACQUIRED_AT, DEADLINE, REMAINING, HELD, SILENT, HEARTBEATS, HEARTBEAT_AT, LIVENESS,           \
        IS_MANUAL, RESTS_IN, MODE, UNITS, SLOTS, UNITS_FREE, HOLDERS

/* The columns of leasehold.scope: X(NAME, name, type, is_never_null). The name comes first in each database, the others in an order of its own. */
#define LH_CORE_SCOPE_COLUMNS(X)                                                                                       \
    X(NAMESPACE, "namespace", TEXTOID, true)                                                                           \
    X(KEY, "key", TEXTOID, true)                                                                                       \
    X(STATE, "state", TEXTOID, true)                                                                                   \
    X(LEASE_KEY, "lease_key", UUIDOID, false)                                                                          \
    X(TOKEN, "token", INT8OID, true)                                                                                   \
    X(ACQUIRED_AT, "acquired_at", TIMESTAMPTZOID, true)                                                                \
    X(HEARTBEAT_AT, "heartbeat_at", TIMESTAMPTZOID, true)                                                              \
    X(DEADLINE, "deadline", TIMESTAMPTZOID, true)                                                                      \
    X(HEARTBEATS, "heartbeats", INT8OID, true)                                                                         \
    X(INCARNATION, "incarnation", INT8OID, false)                                                                      \
    X(CHECK_AT, "check_at", TIMESTAMPTZOID, true)                                                                      \
    X(ENDED_AT, "ended_at", TIMESTAMPTZOID, false)                                                                     \
    X(GRANTED_BY, "granted_by", UUIDOID, false)                                                                        \
    X(REAP_FAILURES, "reap_failures", INT4OID, true)                                                                   \
    X(LAPSED, "lapsed", BOOLOID, true)                                                                                 \
    X(QUEUED, "queued", BOOLOID, true)                                                                                 \
    X(DURATION, "duration", INTERVALOID, true)                                                                         \
    X(GRACE, "grace", INTERVALOID, true)                                                                               \
    X(OWNER, "owner", TEXTOID, false)                                                                                  \
    X(LABELS, "labels", JSONBOID, true)                                                                                \
    X(LAST_OUTCOME, "last_outcome", TEXTOID, false)                                                                    \
    X(LAST_RESULT, "last_result", JSONBOID, false)                                                                     \
    X(LAST_ERROR, "last_error", TEXTOID, false)                                                                        \
    X(ENDED_KEYS, "ended_keys", UUIDARRAYOID, true)                                                                    \
    X(ENDED_OUTCOMES, "ended_outcomes", TEXTARRAYOID, true)                                                            \
    X(REAP_ERROR, "reap_error", TEXTOID, false)                                                                        \
    X(REAP_FAILED_AT, "reap_failed_at", TIMESTAMPTZOID, false)                                                         \
    X(NEXT_TRY_AT, "next_try_at", TIMESTAMPTZOID, false)                                                               \
    X(PRINCIPAL, "principal", TEXTOID, false)                                                                          \
    X(AT_LEAST, "at_least", INTERVALOID, false)                                                                        \
    X(AT_LEAST_INCARNATION, "at_least_incarnation", INT8OID, false)                                                    \
    X(UNITS, "units", INT4OID, false)                                                                                  \
    X(HOLDERS, "holders", INT4OID, false)                                                                              \
    X(SLOTS, "slots", INT4ARRAYOID, false)                                                                             \
    X(TOGETHER, "together", INT8ARRAYOID, false)

#define SCOPE_NUMBER(name, ...) SCOPE_##name,
enum lh_core_scope_column { LH_CORE_SCOPE_COLUMNS(SCOPE_NUMBER) SCOPE_COLUMNS };
#undef SCOPE_NUMBER

/* The columns of leasehold.share, in their order. */
#define LH_CORE_SHARE_COLUMNS(X)                                                                                       \
    X(NAMESPACE, "namespace", TEXTOID, true)                                                                           \
    X(KEY, "key", TEXTOID, true)                                                                                       \
    X(LEASE_KEY, "lease_key", UUIDOID, true)                                                                           \
    X(STATE, "state", TEXTOID, true)                                                                                   \
    X(TOKEN, "token", INT8OID, true)                                                                                   \
    X(UNITS, "units", INT4OID, true)                                                                                   \
    X(SLOTS, "slots", INT4ARRAYOID, false)                                                                             \
    X(ACQUIRED_AT, "acquired_at", TIMESTAMPTZOID, true)                                                                \
    X(HEARTBEAT_AT, "heartbeat_at", TIMESTAMPTZOID, true)                                                              \
    X(DEADLINE, "deadline", TIMESTAMPTZOID, true)                                                                      \
    X(HEARTBEATS, "heartbeats", INT8OID, true)                                                                         \
    X(INCARNATION, "incarnation", INT8OID, true)                                                                       \
    X(CHECK_AT, "check_at", TIMESTAMPTZOID, true)                                                                      \
    X(GRANTED_BY, "granted_by", UUIDOID, false)                                                                        \
    X(LAPSED, "lapsed", BOOLOID, true)                                                                                 \
    X(DURATION, "duration", INTERVALOID, true)                                                                         \
    X(GRACE, "grace", INTERVALOID, true)                                                                               \
    X(OWNER, "owner", TEXTOID, false)                                                                                  \
    X(PRINCIPAL, "principal", TEXTOID, false)                                                                          \
    X(LABELS, "labels", JSONBOID, true)                                                                                \
    X(REAP_FAILURES, "reap_failures", INT4OID, true)                                                                   \
    X(REAP_ERROR, "reap_error", TEXTOID, false)                                                                        \
    X(REAP_FAILED_AT, "reap_failed_at", TIMESTAMPTZOID, false)                                                         \
    X(NEXT_TRY_AT, "next_try_at", TIMESTAMPTZOID, false)                                                               \
    X(ENDED_AT, "ended_at", TIMESTAMPTZOID, false)                                                                     \
    X(OUTCOME, "outcome", TEXTOID, false)                                                                              \
    X(RESULT, "result", JSONBOID, false)                                                                               \
    X(ERROR, "error", TEXTOID, false)                                                                                  \
    X(ITEMS, "items", INT2OID, false)

#define SHARE_NUMBER(name, ...) SHARE_##name,
enum lh_core_share_column { LH_CORE_SHARE_COLUMNS(SHARE_NUMBER) SHARE_COLUMNS };
#undef SHARE_NUMBER

/* The columns of leasehold.waiter, in their order. */
#define LH_CORE_WAITER_COLUMNS(X)                                                                                      \
    X(NAMESPACE, "namespace", TEXTOID, true)                                                                           \
    X(KEY, "key", TEXTOID, true)                                                                                       \
    X(TICKET, "ticket", INT8OID, true)                                                                                 \
    X(LEASE_KEY, "lease_key", UUIDOID, true)                                                                           \
    X(COORDINATOR, "coordinator", UUIDOID, false)                                                                      \
    X(ENQUEUED_AT, "enqueued_at", TIMESTAMPTZOID, false)                                                               \
    X(WAIT_UNTIL, "wait_until", TIMESTAMPTZOID, false)                                                                 \
    X(AWAY_UNTIL, "away_until", TIMESTAMPTZOID, false)                                                                 \
    X(DURATION, "duration", INTERVALOID, false)                                                                        \
    X(OWNER, "owner", TEXTOID, false)                                                                                  \
    X(PRINCIPAL, "principal", TEXTOID, false)                                                                          \
    X(UNITS, "units", INT4OID, false)                                                                                  \
    X(ITEMS, "items", INT2OID, false)                                                                                  \
    X(PRIORITY, "priority", INT4OID, true)

#define WAITER_NUMBER(name, ...) WAITER_##name,
enum lh_core_waiter_column { LH_CORE_WAITER_COLUMNS(WAITER_NUMBER) WAITER_COLUMNS };
#undef WAITER_NUMBER

/* The relations of this database that the common path opens; found again after a change of any of them. */
struct lh_core_oids {
    Oid scope, scope_pkey, token, ticket;
    Oid incarnation, policy, watch, coordinator, coordinator_seen_at, waiter, waiter_pkey, waiter_sql_user,
        waiter_by_priority;
    Oid share, share_pkey, share_held;
    Oid creation, creation_pkey, turn;
};

/* The rules of a namespace as leasehold_internal.core_rules returns them; valid as long as policies and hooks do not
   change. */
struct lh_core_rules {
    char namespace[LH_CORE_NAMESPACE_MAX + 1]; /* the hash key */
    bool is_known;                             /* if not: no namespace has this name */
    bool is_plain;                             /* not frozen, no quota, no minimum hold */
    bool is_manual;                            /* its leases do not expire by themselves */
    bool has_capacity;
    int32 capacity; /* units of each scope */
    bool has_history;
    bool has_acquire_hook, has_heartbeat_hook, has_release_ok_hook, has_release_fail_hook;
    bool has_dead_after;
    bool may_wait;  /* its queues have no limit */
    bool has_slots; /* if not: this database has all of its keys */
    uint8 slots[LH_CORE_SLOT_BYTES];
    Interval min_duration, max_duration, grace, dead_after, max_hold;
    int64 grace_us, dead_after_us, max_hold_us;
};

/* This life of the database (leasehold.incarnation). */
struct lh_core_life {
    int64 id;
    TimestampTz started_at;
};

#define LH_CORE_COLUMNS_MAX 40

/* A row of leasehold.scope, leasehold.share or leasehold.waiter, by the numbers of its columns. */
struct lh_core_row {
    ItemPointerData tid;
    Datum values[LH_CORE_COLUMNS_MAX];
    bool nulls[LH_CORE_COLUMNS_MAX];
};

StaticAssertDecl((int)SCOPE_COLUMNS <= LH_CORE_COLUMNS_MAX && (int)SHARE_COLUMNS <= LH_CORE_COLUMNS_MAX &&
                     (int)WAITER_COLUMNS <= LH_CORE_COLUMNS_MAX,
                 "a row has room for the columns of each table");

/* One of these tables, open for a call. */
struct lh_core_heap {
    Relation table, index; /* `index`: its rows are found by it; NULL: none is looked for */
    const int *places;     /* place in the table of each column of a lh_core_row; NULL: the same order */
    IndexScanDesc scan;    /* by the snapshot of the call */
    TupleTableSlot *found_slot, *new_slot;
    EState *estate; /* made for the first row that needs an entry in an index */
    ResultRelInfo *result_rel;
};

/* One call of one function. */
struct lh_core_call {
    FunctionCallInfo fcinfo;
    const char *name; /* name of the function, here and in SQL */
    Tuplestorestate *rows;
    TupleDesc row_type;

    const struct lh_core_oids *oids;
    struct lh_core_life life;
    Snapshot snapshot;
    CommandId command;
    struct lh_core_heap scope;
    struct lh_core_heap share, waiter; /* open from their first use on; table is NULL before */

    int count;        /* items */
    int done_count;   /* items that the common path has done */
    int change_count; /* items among them that changed a lease */
    int place_count;  /* items among them that took a place in a queue */
    bool *is_done, *is_change;
    bool *is_shared;  /* items that changed a shared lease */
    bool is_alone;    /* the transaction wrote nothing before */
    bool has_history; /* a lease was released that history is to keep */
    uint32 *hashes;   /* items' scopes, 0 where there is none; or NULL */
    uint32 *left;     /* a table of hashes of the scopes whose later items are left */
    int left_slots;
};

/* --- core.c --- */

/* An array argument; `n` is -1 for an argument that is null. Its elements point into the argument. */
struct lh_core_array {
    Datum *values;
    bool *nulls;
    int n;
};

/*
 * Begins the call. Returns false if SQL has answered the whole call, because the session, the tables or the facts are
 * not those of the common path. `count` is the number of items: of each array argument, unless that is null.
 */
bool lh_core_begin(struct lh_core_call *call, FunctionCallInfo fcinfo, const char *name, int count);
/* Returns true if an item of the same scope was left in this call. Then this one is left, too, because items of one
   scope keep their order. */
bool lh_core_is_left(const struct lh_core_call *call, Datum ns, Datum key);
/* Returns true if two items are about the same scope, of which `item` is named. */
bool lh_core_is_same_scope(struct lh_core_call *call, const struct lh_core_array *ns, const struct lh_core_array *key,
                           int item, int other);
/* Leaves the items of this scope that follow. */
void lh_core_leave(struct lh_core_call *call, Datum ns, Datum key);
/* Answers the item with this row: it has changed a lease, or it waits. */
void lh_core_answer(struct lh_core_call *call, int item, const Datum *values, const bool *nulls);
void lh_core_answer_wait(struct lh_core_call *call, int item, const Datum *values, const bool *nulls);
/* Does the work that follows a change of the done items, and lets SQL answer the others. `after` is the SQL function
   for the former, or NULL. */
Datum lh_core_end(struct lh_core_call *call, const char *after);
struct lh_core_array lh_core_array(FunctionCallInfo fcinfo, int argument, Oid type);
/* leasehold_internal.relax_commit(): renewals alone, and places alone, need not be on disk when they are answered. */
void lh_core_relax_commit(void);

/* --- tables.c --- */

/* Returns the relations, or NULL if one is missing or differs; the difference is in `reason`. */
const struct lh_core_oids *lh_core_oids(const char **reason);
/* Returns a number that grows when the tables, or functions of the database, may have changed: facts are read again
   then. */
uint64 lh_core_generation(void);
/* Opens a relation; raises an error if it has changed so that the common path does not fit it any more: then SQL
   does the work. */
Relation lh_core_table(Oid oid, LOCKMODE mode);
/* Opens a table for the call once its Relation is set; `index` may be InvalidOid. */
void lh_core_open(const struct lh_core_call *call, struct lh_core_heap *heap, Oid index);
void lh_core_open_indexes(struct lh_core_heap *heap, bool is_speculative);
void lh_core_close(struct lh_core_call *call);
/* index_beginscan() of each version. */
IndexScanDesc lh_core_beginscan(Relation table, Relation index, Snapshot snapshot, int keys);
/* Set the 2 conditions of an index scan for what a scope has, the 3 for a shared holder. */
void lh_core_scope_keys(ScanKeyData *keys, Datum ns, Datum key);
void lh_core_share_keys(ScanKeyData *keys, Datum ns, Datum key, Datum lease_key);
/* Returns true if there is a row that this snapshot sees. `index`: where the partial index that has just these rows is
   told once the table is locked, or NULL. */
bool lh_core_has_row(Oid table, const Oid *index, Snapshot snapshot);
/* Returns true if there is one about this scope; the index begins with the scope's columns. */
bool lh_core_has_entry(Relation table, Oid index, Snapshot snapshot, Datum ns, Datum key);

/* --- row.c --- */

/* Find the row of a scope, and of a shared holder. */
bool lh_core_find(struct lh_core_call *call, Datum ns, Datum key, struct lh_core_row *row);
bool lh_core_find_share(struct lh_core_call *call, Datum ns, Datum key, Datum lease_key, struct lh_core_row *row);
/* Locks the row without waiting; LockTupleExclusive is FOR UPDATE, which ends a lease. Returns false if another transaction has locked or changed it. */
bool lh_core_lock(struct lh_core_call *call, struct lh_core_heap *heap, struct lh_core_row *row, LockTupleMode mode);
/* Returns true if this transaction wrote the version of the scope that was found last, and no later one: that locks it. All others find the version
   before it, and wait for us or skip it. */
bool lh_core_is_ours(const struct lh_core_call *call);
/* Writes the next version of the row. Returns false if the row is not the newest any more, or another transaction
   has locked it. `is_locked`: we have. */
bool lh_core_update(struct lh_core_call *call, struct lh_core_heap *heap, const struct lh_core_row *row,
                    bool is_locked);
/* Locks the slot of a scope that has no row, then looks again. Returns false if another transaction creates the row,
   or has. */
bool lh_core_take_name(struct lh_core_call *call, Datum ns, Datum key);
/* Makes the row the heap's new one, to be inserted: of a scope whose name lh_core_take_name() has taken, or of one whose row is locked. */
void lh_core_make(struct lh_core_heap *heap, const struct lh_core_row *row);
void lh_core_insert(struct lh_core_call *call, struct lh_core_heap *heap, const struct lh_core_row *row);

static inline void lh_core_set(struct lh_core_row *row, int column, Datum value)
{
    row->values[column] = value;
    row->nulls[column] = false;
}

static inline void lh_core_set_null(struct lh_core_row *row, int column)
{
    row->values[column] = (Datum)0;
    row->nulls[column] = true;
}

bool lh_core_text_is(const struct lh_core_row *row, int column, const char *text);
bool lh_core_uuid_is(const struct lh_core_row *row, int column, Datum uuid);
/* Returns true if the key holds this lease, live, and its expiry has not passed. */
bool lh_core_is_held_by(const struct lh_core_row *row, Datum lease_key);
bool lh_core_is_live(const struct lh_core_call *call, const struct lh_core_row *row, TimestampTz now);
/* The same of a shared holder, whose state is held. */
bool lh_core_is_live_share(const struct lh_core_call *call, const struct lh_core_row *row, TimestampTz now);
TimestampTz lh_core_plus(TimestampTz at, const Interval *interval);

static inline void lh_core_set_or_null(struct lh_core_row *row, int column, Datum value)
{
    row->values[column] = value;
    row->nulls[column] = value == (Datum)0;
}

/* --- grant.c --- */

/* The indexes of a function's arguments that have the requests. */
struct lh_core_wish_arguments {
    int coordinator, ns, key, lease_key, owner, labels, duration, queue, wait, ticket, principal, at_least, units;
};

struct lh_core_wishes {
    struct lh_core_array ns, key, lease_key, owner, labels, duration, queue, wait, principal, at_least, units;
    Datum coordinator; /* (Datum) 0: null */
    bool has_places;   /* one of them has a place in a queue already */
    int count;         /* 0: there is no list of keys */
};

/* A request for a lease that only the scope's state can be against. */
struct lh_core_wish {
    const struct lh_core_rules *rules;
    Interval duration;
    Datum lease_key, owner, principal, coordinator; /* (Datum) 0 in owner, principal, coordinator: null */
    Datum labels;                                   /* jsonb */
    bool has_wait;                                  /* else the wait has no end */
    int64 wait_us;
    int32 units; /* 0: all of the scope, exclusively */
};

void lh_core_wishes(FunctionCallInfo fcinfo, const struct lh_core_wish_arguments *at, struct lh_core_wishes *wishes);
/* Reads a request. Returns false if any of the item's values is unusual. Reads only the rules. */
bool lh_core_wish(const struct lh_core_wishes *wishes, int item, struct lh_core_wish *wish);
/* Returns the units that the shared holders of one scope may take together. */
int32 lh_core_units_max(const struct lh_core_rules *rules);
/* Returns true if the scope remembers that a lease of this key has ended. */
bool lh_core_has_ended(const struct lh_core_row *row, Datum lease_key);
/* Makes the row held and draws its token. The row's update must fail if any transaction changed it since it was
   read, or its name must be taken. */
void lh_core_set_held(struct lh_core_call *call, const struct lh_core_wish *wish, TimestampTz now,
                      struct lh_core_row *row);
/* Returns the silence after which a holder of this duration is suspected dead. */
Interval lh_core_suspected_after(const struct lh_core_rules *rules, const Interval *duration);
/* Returns the time until the holder is suspected dead, from the grant on. */
int64 lh_core_suspected_in_us(const struct lh_core_wish *wish);
/* Sets the columns of leasehold_internal.answer that each grant has, exclusive or shared. */
void lh_core_tell_grant(const struct lh_core_wish *wish, int64 token, TimestampTz now, Datum *values, bool *nulls);
/* Answers with a row of leasehold_internal.acquired that says all in its last column: these columns of leasehold_internal.answer. */
void lh_core_answer_more(struct lh_core_call *call, int item, bool is_change, Datum *values, bool *nulls);

/* --- queue.c --- */

/* The waiters of a scope, in the order of their tickets, and the coordinators that are live at `now`. */
struct lh_core_queue {
    TimestampTz now;
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot *slot; /* the waiter that lh_core_queue_next() found */
    pg_uuid_t *live;
    int live_count;
};

void lh_core_queue_begin(const struct lh_core_call *call, Relation waiter, Snapshot snapshot, Datum ns, Datum key,
                         TimestampTz now, struct lh_core_queue *queue);
bool lh_core_queue_next(struct lh_core_queue *queue);
/* Returns false if the waiter is away, its wait is over, or its coordinator has died (live_head() in SQL). */
bool lh_core_queue_is_live(const struct lh_core_queue *queue);
/* Returns true if the coordinator is live. */
bool lh_core_queue_knows(const struct lh_core_queue *queue, Datum coordinator);
void lh_core_queue_end(struct lh_core_queue *queue);
/* --- result.c --- */

struct lh_core_result {
    bool is_failure, has_value;
    Datum value; /* jsonb, or the text of a failure */
};

/* Reads the result of a release. Returns false if SQL decides, because the item says neither, or has a hook. */
bool lh_core_result(const struct lh_core_array *failed, const struct lh_core_array *value, int item,
                    const struct lh_core_rules *rules, struct lh_core_result *result);
/* Ends the lease in the row. The row's lease key is still that of the lease. */
void lh_core_set_ended(struct lh_core_row *row, const struct lh_core_result *result, TimestampTz now);

/* --- join.c --- */

/* One request of a call. */
struct lh_core_joiner {
    int item;
    struct lh_core_wish wish;
};

/* Puts requests at the end of the queue of a scope that is held, and answers them. They are all that the call has for this scope, and no two have the
   same lease key. `row` is the scope's. Returns false if SQL is to decide about all of them: no place is taken then. */
bool lh_core_join(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns, Datum key,
                  struct lh_core_row *row);

/* --- share.c --- */

/* Grants requests as shared leases of a scope, and answers them. The same as of lh_core_join() holds for what is given, and for false. */
bool lh_core_share(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns, Datum key,
                   struct lh_core_row *row);
/* Renews a shared lease, and sets its new row. Returns false if SQL is to decide. */
bool lh_core_renew_share(struct lh_core_call *call, Datum ns, Datum key, Datum lease_key, struct lh_core_row *share);

/* One release of a call, of a shared lease. */
struct lh_core_leaver {
    int item;
    Datum lease_key;
    struct lh_core_result result;
};

/* Ends shared leases of a scope, all that the call has for it, and no two of the same lease key. `row` is the scope's. Returns false if SQL is to
   decide about all of them: none has ended then. */
bool lh_core_end_shares(struct lh_core_call *call, const struct lh_core_leaver *leavers, int count, Datum ns, Datum key,
                        struct lh_core_row *row);

/* --- facts.c --- */

/* Reads the life. Returns false if the recorded life is not this one, or the SQL functions are of another contract. */
bool lh_core_life(const struct lh_core_oids *oids, Snapshot snapshot, struct lh_core_life *life, const char **reason);
/* Forgets the rules if policies or hooks have changed since they were read. Returns false if that cannot be known. */
bool lh_core_refresh_rules(const struct lh_core_oids *oids, Snapshot snapshot);
const struct lh_core_rules *lh_core_rules(Datum ns);

#endif
