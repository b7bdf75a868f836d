/*
 * A lane: a connection that carries one batch at a time.
 *
 * The story of a batch: it is sent as one statement and answered as one result. When the data of an item make the whole
 * statement fail, the batch is halved, and the halves are sent one after the other, in order, until the culprit is
 * alone and gets its own bad outcome. A batch that is one request for several scopes stays whole: its first item gets
 * the bad outcome. When the server has no room in its lock table, the batch is halved too, but a single item is then
 * busy. A serialization failure or a deadlock is repeated a few times, and ends as busy, which the coordinator repeats
 * with its own patience; so does a statement that timed out, unless a hook timed out: then it is rejected. A lost
 * connection ends all of it.
 *
 * Riders are acquires in the transaction of a batch of releases. When that fails for any reason but a lost connection,
 * the releases are sent alone, and then the riders as a batch of their own.
 *
 * A hook lane carries one item, after a statement that sets its session's limits; or a run of reaps (hook_run.h).
 */
#ifndef LH_STORE_BATCH_H
#define LH_STORE_BATCH_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"
#include "lease/store.h"
#include "pg/conn.h"

struct pg_store;
struct lane;

/* A kind of batch: how to write it, read its answer, and give it up. `items` is an array of pointers to that kind's
   items. */
struct batch_kind {
    const char *name;
    const struct lh_pg_statement *statement;
    void (*write)(struct lane *lane, const void *items, size_t n);
    void (*read)(struct lane *lane, const void *items, size_t n, const PGresult *result);
    void (*set_busy)(const void *items, size_t n);
    void (*set_invalid)(struct lane *lane, const void *items, const struct lh_error *error); /* sets the first item */
    /* Returns the items behind the first n. */
    const void *(*skip)(const void *items, size_t n);
    void (*set_rejected)(struct lane *lane, const void *items, const char *message); /* sets the first item */
    int64_t (*hook_timeout_us)(const void *items);                                   /* limit of the first item */
    bool is_whole;                                /* its items are one request: all or none, and never halved */
    const struct lh_pg_statement *core_statement; /* the same statement in the extension leasehold_core, or NULL */
};

extern const struct batch_kind lh_acquire_kind, lh_acquire_all_kind, lh_heartbeat_kind, lh_release_kind,
    lh_downgrade_kind, lh_leave_kind, lh_hand_over_kind;

/* Parts for lh_hand_over_kind; they read rows first..last-1 of a result that has the columns of both kinds. */
void lh_acquire_write_arrays(struct lane *lane, const void *items, size_t n);
void lh_acquire_read_rows(struct lane *lane, const void *items, size_t n, const PGresult *result, int first, int last);
void lh_release_read_rows(struct lane *lane, const void *items, size_t n, const PGresult *result, int first, int last);

/* A part of the batch that is still to be sent. Halving adds one at a time: at most log2(LH_BATCH_MAX) + 1 of them. */
#define PARTS_MAX 12

struct part {
    size_t first;
    size_t count;
};

struct lane {
    struct pg_store *store;
    unsigned number;
    struct lh_pg_conn *conn;
    struct lh_pg_params params;
    struct lh_arena arena; /* memory of the items' answers */
    bool is_arena_stale;   /* `arena` still has the answers of the batch before */

    const struct batch_kind *kind; /* NULL: idle */
    const void *items;
    const void *riders; /* acquires behind a batch of releases, in its transaction */
    size_t rider_count; /* riders that are not answered yet */
    int64_t clock_us;   /* the database's clock at sent_us as the caller knew it; 0: unknown */
    int64_t sent_us;    /* time when the batch was sent */
    int64_t part_sent_us;
    struct part parts[PARTS_MAX]; /* a stack; the last is in flight */
    size_t part_count;
    unsigned attempts; /* tries of the part in flight */
    bool is_by_core;   /* the part in flight was sent by core_statement */
    bool is_riding;    /* the riders are in the transaction in flight */
    bool is_partly_done;
    lh_store_cb *on_done;
    void *arg;

    bool is_hook;
    struct hook_run *run; /* runs of reaps on a hook lane; see hook_run.c */
};

/* Empties the arena before the first answer of a batch, not when it is sent: its sender may still read the answers
   of the batch before. */
void lh_pg_lane_refresh_arena(struct lane *lane);
/* Sets the riders of the next batch. */
void lh_pg_lane_set_riders(struct lane *lane, const void *riders, size_t n);
enum lh_status lh_pg_lane_send(struct lane *lane, const struct batch_kind *kind, int64_t clock_us, const void *items,
                               size_t n, lh_store_cb *on_done, void *arg);

#endif
