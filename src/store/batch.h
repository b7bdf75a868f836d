/*
 * A lane: a connection that carries one batch at a time.
 *
 * The story of a batch: it is sent as one statement and answered as one result. When the data of an item make the
 * whole statement fail, the batch is halved, and the halves are sent one after the other, in order, until the culprit
 * is alone and gets its own bad outcome. A batch that is one request for several scopes stays whole: its first item gets
 * it. When the server has no room in its lock table, the batch is halved too, but a single item is then busy. A
 * serialization failure or a deadlock is repeated a few times, and ends as busy, which the coordinator repeats with its
 * own patience; so does a statement that timed out, unless that is a hook's: then it is rejected. A lost connection ends
 * all of it.
 *
 * Riders are acquires in the transaction of a batch of releases. When that fails, for whatever reason but a lost
 * connection, the releases are sent alone, and then the riders as a batch of their own.
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

/* How one kind of batch is written, read, and given up. `items` is an array of pointers to that kind's items. */
struct batch_kind {
    const char *name;
    const struct lh_pg_statement *statement;
    void (*write)(struct lane *lane, const void *items, size_t n);
    void (*read)(struct lane *lane, const void *items, size_t n, const PGresult *result);
    void (*set_busy)(const void *items, size_t n);
    void (*set_invalid)(struct lane *lane, const void *items, const struct lh_error *error); /* the first one */
    const void *(*skip)(const void *items, size_t n);                                /* the items behind the first n */
    void (*set_rejected)(struct lane *lane, const void *items, const char *message); /* the first one */
    int64_t (*hook_timeout_us)(const void *items);                                   /* of the first one */
    bool is_whole;                                /* its items are one request: all or none, and never halved */
    const struct lh_pg_statement *core_statement; /* the same by the extension leasehold_core, which may have it */
};

extern const struct batch_kind lh_acquire_kind, lh_acquire_all_kind, lh_heartbeat_kind, lh_release_kind,
    lh_downgrade_kind, lh_leave_kind, lh_hand_over_kind;

/* For lh_hand_over_kind: rows first..last-1 of a result that has the columns of both. */
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
    struct lh_arena arena; /* what the items of the batch point to... */
    bool is_arena_stale;   /* ...of the batch before, still */

    const struct batch_kind *kind; /* NULL: idle */
    const void *items;
    const void *riders; /* of releases: acquires... */
    size_t rider_count; /* ...that are not answered yet */
    int64_t clock_us;   /* what the caller believed the database's clock to be... */
    int64_t sent_us;    /* ...then; 0 in the first: no belief */
    int64_t part_sent_us;
    struct part parts[PARTS_MAX]; /* a stack; the last is in flight */
    size_t part_count;
    unsigned attempts; /* of the part in flight */
    bool is_by_core;   /* so is the part in flight: by core_statement */
    bool is_riding;    /* the riders are in its transaction */
    bool is_partly_done;
    lh_store_cb *on_done;
    void *arg;

    bool is_hook;
    struct hook_run *run; /* a hook lane's; see hook_run.c */
};

/* Not when it is sent: its sender may still be reading the answers of the batch before. */
void lh_pg_lane_refresh_arena(struct lane *lane);
/* Of the next batch that is sent. */
void lh_pg_lane_set_riders(struct lane *lane, const void *riders, size_t n);
enum lh_status lh_pg_lane_send(struct lane *lane, const struct batch_kind *kind, int64_t clock_us, const void *items,
                               size_t n, lh_store_cb *on_done, void *arg);

#endif
