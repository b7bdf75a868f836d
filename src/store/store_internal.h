/* State of a store and of its lanes, and the functions that its files share. */
#ifndef LH_STORE_STORE_INTERNAL_H
#define LH_STORE_STORE_INTERNAL_H

#include <libpq-fe.h>

#include "base/memory.h"
#include "loop/loop.h"
#include "pg/conn.h"
#include "pg/listener.h"
#include "pg/servers.h"
#include "pg/values.h"
#include "store/store.h"

struct pg_store;
struct lane;

/* --- lease_row.c: the columns token..is_manual, units and slots, which the functions of the schema return in one form,
   as a struct lh_held_lease; and other columns that several answers have --- */

#define LEASE_COLUMNS 17

struct lease_columns {
    int at[LEASE_COLUMNS];
};

void lh_lease_columns_find(const PGresult *result, struct lease_columns *columns);

/*
 * Reads a lease. Returns false, with `lease` cleared, if there is none (token is null). The strings are copied into the
 * arena; the caller fills ns, key and lease_key.
 */
bool lh_lease_read(const PGresult *result, int row, const struct lease_columns *columns, struct lh_arena *arena,
                   struct lh_held_lease *lease);

/* Reads units_free; null is LH_UNITS_UNBOUNDED. */
int32_t lh_units_free_read(const PGresult *result, int row, int column);

/* Returns which of `words` the text is, NULL standing for no word; -1: it is none of them, or null. */
int lh_word_read(const PGresult *result, int row, int column, const char *const *words, size_t count);
#define LH_WORD_READ(result, row, column, words)                                                                       \
    lh_word_read(result, row, column, words, sizeof(words) / sizeof((words)[0]))

/* Copies a text to the arena; NULL for null. */
const char *lh_text_read(const PGresult *result, int row, int column, struct lh_arena *arena);

/* The columns of reap_batch, reap_hooked, reap_failed. */
struct reap_columns {
    int at[8];
    struct lease_columns lease;
};

void lh_reap_columns_find(const PGresult *result, struct reap_columns *columns);
/* Returns `reaped`, `failed` or `hooked`; read the row's kind first. */
const char *lh_reap_row_kind(const PGresult *result, int row, const struct reap_columns *columns);
void lh_reap_row_read(struct lh_reaped *reaped, const PGresult *result, int row, const struct reap_columns *columns,
                      struct lh_arena *arena);

/* Reads, from the answer HOOKED, how long the hooks of an item may run. */
int64_t lh_hook_timeout_read(const PGresult *result, int row, int column);

enum lh_end_reason lh_end_reason_read(const PGresult *result, int row, int column);

/* --- batches --- */

/* A parameter of a batch: an array with a value of each item. */
struct batch_column {
    uint32_t type; /* type of an element */
    size_t offset; /* offset of the item's member, unless `add` is set */
    void (*add)(struct lh_pg_params *params, const void *item);
    bool is_of_scope;         /* an array even where all items are one request */
    bool is_null_when_unused; /* null in place of an array of nulls alone */
};

#define BATCH_ANSWER_COLUMNS_MAX 12

struct batch_answer_columns {
    int at[BATCH_ANSWER_COLUMNS_MAX];
    struct lease_columns lease;
};

void lh_batch_columns_find(const PGresult *result, const char *const *names, bool has_lease,
                           struct batch_answer_columns *found);

/* A kind of batch: how to write it, read its answer, and give it up. */
struct batch_kind {
    const char *name;
    const struct lh_pg_statement *statement;
    const struct lh_pg_statement *core_statement; /* the same statement in the extension leasehold_core, or NULL */
    bool (*is_for_sql)(const void *item); /* NULL: no item. A batch with such an item is not sent by core_statement */
    /* The parameters: the coordinator's id, the database's clock, and the columns; or `write` adds all of them. */
    bool names_coordinator;
    bool tells_clock;
    const struct batch_column *columns;
    size_t column_count;
    void (*write)(struct lane *lane, const void *items, size_t n);
    /* The columns of its answer, the item's number first, with those of a lease; NULL ends them. Or `read` reads all
       rows. */
    const char *const *answer_names;
    bool has_lease;
    void (*read_item)(struct lane *lane, void *item, const PGresult *result, int row,
                      const struct batch_answer_columns *found);
    void (*read)(struct lane *lane, const void *items, size_t n, const PGresult *result);
    void (*set_busy)(void *item);
    /* Set an item that is busy. */
    void (*set_invalid)(struct lane *lane, void *item, const struct lh_error *error);
    void (*set_rejected)(struct lane *lane, void *item, const char *message);
    size_t hook_timeout_at;              /* offset of the limit on a hook lane in an item */
    const struct batch_kind *rider_kind; /* NULL, unless this is a hand-over */
    bool is_whole;                       /* its items are one request: all or none, and never halved */
};

extern const struct batch_kind lh_acquire_kind, lh_acquire_all_kind, lh_heartbeat_kind, lh_release_kind,
    lh_downgrade_kind, lh_leave_kind, lh_hand_over_kind;

/* The parameters of lh_release_kind, which begin those of lh_hand_over_kind. */
#define LH_BATCH_RELEASE_TYPES                                                                                         \
    LH_PG_UUID, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_TEXT_ARRAY

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
    const struct batch_kind *hand_over;
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

/* --- batch_lane.c; `items` is an array of pointers to the kind's items --- */

void lh_batch_write(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n);
void lh_batch_write_columns(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n);
/* Reads rows first..last-1. */
void lh_batch_read_rows(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n,
                        const PGresult *result, int first, int last);
void lh_batch_set_busy(const struct batch_kind *kind, const void *items, size_t n);

/* Empties the arena before the first answer of a batch, not when it is sent: its sender may still read the answers
   of the batch before. */
void lh_pg_lane_refresh_arena(struct lane *lane);
/* Sets the riders of the next batch. `hand_over` is the kind of one release with one rider. */
void lh_pg_lane_set_riders(struct lane *lane, const struct batch_kind *hand_over, const void *riders, size_t n);
enum lh_status lh_pg_lane_send(struct lane *lane, const struct batch_kind *kind, int64_t clock_us, const void *items,
                               size_t n, lh_store_cb *on_done, void *arg);

/* --- hook_lane.c --- */

#define HOOK_LANE_WORDS_BYTES 80

/* Sets the limits of the next statement: statement_timeout, and how long to wait for its answer; 0: no limit. */
void lh_hook_lane_set_limits(struct lane *lane, int64_t timeout_us, int64_t answer_us);
void lh_hook_lane_set(struct lane *lane, int64_t timeout_us); /* sets both limits */
void lh_hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES]);

/* Returns the lane with the shortest line, or NULL if none is up. The caller sets its limit. */
struct lane *lh_hook_lane_any(struct pg_store *store);
/* Sends the reap of one lease, or of several that are joined: a statement, and a transaction, of its own. The answer for
   one is a row as reap_columns has it, or none; for several the tokens of the reaped ones. `is_last`: its commit is
   durable, and makes those before it so. */
enum lh_status lh_hook_reap_send(struct lane *lane, struct lh_reap_item *const *items, size_t n, bool is_last,
                                 lh_pg_query_cb *on_answer);

/* --- hook_run.c: a run of reaps on a hook lane --- */

void lh_hook_run_create(struct lane *lane);
enum lh_status lh_hook_run_start(struct lane *lane, int64_t clock_us, struct lh_reap_item **items, size_t n,
                                 lh_store_cb *on_done, void *arg);

/* --- the store --- */

#define LH_STORE_FINDING_BYTES 512

enum pg_store_state {
    STORE_NEW,           /* -> RUNNING */
    STORE_RUNNING,       /* -> FINISHING */
    STORE_FINISHING,     /* waits for the batches in flight: -> UNREGISTERING */
    STORE_UNREGISTERING, /* -> CLOSING */
    STORE_CLOSING,       /* closes the connections: -> STOPPED */
    STORE_STOPPED,
};

struct pg_store {
    struct lh_store base; /* first */
    struct lh_loop *loop;
    struct lh_store_options options;
    struct lh_pg_servers *servers; /* shared by all connections */
    char *name;                    /* name among several databases, or "" */
    char *host;
    char *version;
    const struct lh_store_events *events;
    void *arg;

    enum pg_store_state state;
    struct lane lanes[2 * LH_STORE_LANES_MAX]; /* the hook lanes behind the others */
    unsigned lane_count;                       /* with the hook lanes */
    struct lh_pg_conn *control;
    struct lh_pg_listener *listener;
    struct lh_pg_params params;       /* parameters of the control call that is being made */
    struct lh_arena arena;            /* strings of the control answer that is being read */
    struct lh_pg_server_facts server; /* as last reported */
    /* The server could not write a renewal or a reap, and no tick has reported it yet. */
    bool cannot_write;
    int64_t timeline;
    int32_t schema_version;
    bool has_core;         /* the extension leasehold_core takes the common path */
    char common_path[256]; /* `has_core` in words */
    /* Until then leasehold_core is not used, because a batch could not call it. */
    int64_t core_rests_until_us;
    char keeping[LH_STORE_FINDING_BYTES]; /* see struct lh_server_facts; "": no fault */
    char privileges[LH_STORE_FINDING_BYTES];
    struct lh_pg_statement look_at_privileges; /* privileges_sql of its options */
    unsigned privileges_rest;                  /* surveys until the next look */

    struct lh_store_standing standings[LH_STORE_STANDINGS_MAX];
    size_t standing_count;
    struct lh_store_ticks ticks[LH_STORE_STANDINGS_MAX];
    size_t ticks_count;
    struct lh_store_hand_overs hand_overs;
    int64_t standings_asked_us;
    int64_t standings_due_us;
    bool is_looking_at_namespaces;

    struct lh_timer stop_timer;
    struct lh_deferred advance;  /* continues the stop */
    struct lh_store_stats stats; /* counters; complete once the connections are closed */
    unsigned open_count;         /* connections that are not closed */
    lh_store_cb *on_stopped;
    void *on_stopped_arg;
};

static inline struct pg_store *pg_store_of(struct lh_store *store)
{
    return (struct pg_store *)(void *)store;
}

/* --- stats.c --- */

/* Measures the open connections. */
void lh_pg_store_measure(const struct pg_store *store, struct lh_store_stats *stats);

/* --- control.c: each control call is a statement on the control connection --- */

/*
 * A control call in flight. `read` gets a result or an error and ends with the caller's callback; the arena is the
 * answer's and is reset afterwards.
 */
struct control_call {
    struct pg_store *store;
    /* The control connection or another one; NULL: none is up. */
    struct lh_pg_conn *conn;
    void (*read)(struct control_call *call, enum lh_status status, const PGresult *result,
                 const struct lh_error *error);
    void (*on_done)(void); /* `read` casts it back */
    void *arg;
    char *ns; /* set if the answer needs it again, else NULL */
    char *key;
    const struct lh_pg_statement *statement;
    struct lh_pg_params params;
    bool is_again; /* sent for the second time */
    int32_t page_size;
    int64_t fingerprint; /* the fingerprint of the known requests to hand over */
    bool told_cannot_write;
    /* Made for a client: the coordinator's own calls do not wait behind it. */
    bool is_clients;
};

/* Begins a call. Write its parameters into store->params next, then send it. */
struct control_call *lh_control_call_begin(struct pg_store *store,
                                           void (*read)(struct control_call *, enum lh_status, const PGresult *,
                                                        const struct lh_error *),
                                           void (*on_done)(void), void *arg);
/* The `read` of a call whose answer is its status: `on_done` is an lh_store_cb, or NULL. */
void lh_control_call_done(struct control_call *call, enum lh_status status, const PGresult *result,
                          const struct lh_error *error);
/* Sends the call. Refused: the call is freed. */
enum lh_status lh_control_call_send(struct control_call *call, const struct lh_pg_statement *statement);

/* Notes that a batch could not call leasehold_core, with the reason. */
void lh_pg_store_lose_core(struct pg_store *store, const char *reason);

/* Notes a failed renewal or reap: the next tick reports it if the server could not write. */
void lh_pg_store_note_failure(struct pg_store *store, const struct lh_error *error);

void lh_pg_store_add_clock(struct lh_pg_params *params, int64_t clock_us);
/* Adds the database's clock now, as the sender of the batch knew it. */
void lh_lane_add_clock(struct lane *lane);
/* Adds the principal and the peer; nulls for NULL. */
void lh_pg_store_add_requester(struct lh_pg_params *params, const struct lh_requester *requester);

/* Sends the last call of a stopping store. */
enum lh_status lh_pg_store_unregister(struct pg_store *store, lh_store_cb *on_done, void *arg);

/* --- operations for the table of store.c alone --- */

enum lh_status lh_pg_store_enroll(struct lh_store *store, lh_tick_cb *on_done, void *arg);
enum lh_status lh_pg_store_tick(struct lh_store *store, int64_t clock_us, lh_tick_cb *on_done, void *arg);
void lh_pg_store_look_elsewhere(struct lh_store *store);
enum lh_status lh_pg_store_survey(struct lh_store *store, lh_survey_cb *on_done, void *arg);
enum lh_status lh_pg_store_end_long_guards(struct lh_store *store, int64_t max_us, lh_guards_cb *on_done, void *arg);
enum lh_status lh_pg_store_pass_on(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_reap(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                                size_t namespace_count, bool include_children, const char *key, int32_t max,
                                enum lh_reap_kind kind, const struct lh_requester *requester, lh_reap_pass_cb *on_done,
                                void *arg);
enum lh_status lh_pg_store_get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done,
                               void *arg);
enum lh_status lh_pg_store_list(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                                void *arg);
enum lh_status lh_pg_store_holders(struct lh_store *store, const char *ns, const char *key, int32_t max,
                                   lh_list_cb *on_done, void *arg);
enum lh_status lh_pg_store_force_release(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                         int64_t token, bool all, const struct lh_requester *requester,
                                         lh_scope_cb *on_done, void *arg);
enum lh_status lh_pg_store_administer(struct lh_store *store, const struct lh_admin_request *request,
                                      lh_rows_cb *on_done, void *arg);
enum lh_status lh_pg_store_list_rows(struct lh_store *store, const struct lh_list_page *page, lh_rows_cb *on_done,
                                     void *arg);
enum lh_status lh_pg_store_view(struct lh_store *store, const struct lh_view_request *request, lh_rows_cb *on_done,
                                void *arg);

enum lh_status lh_pg_store_read_access(struct lh_store *store, lh_access_cb *on_done, void *arg);
enum lh_status lh_pg_store_audit(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_token_used(struct lh_store *store, const char *const *ids, size_t count);

enum lh_status lh_pg_store_read_asked(struct lh_store *store, int64_t known, lh_asked_read_cb *on_done, void *arg);
enum lh_status lh_pg_store_ask_holders(struct lh_store *store, const struct lh_acquire_item *waiters, size_t count,
                                       lh_store_cb *on_done, void *arg);

enum lh_status lh_pg_store_read_spread(struct lh_store *store, int64_t read_us, lh_spread_read_cb *on_done, void *arg);
enum lh_status lh_pg_store_claim_spread(struct lh_store *store, const struct lh_spread_claim *claim,
                                        lh_store_cb *on_done, void *arg);

enum lh_status lh_pg_store_watch_add(struct lh_store *store, const char *ns, bool include_children,
                                     lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_remove(struct lh_store *store, const char *ns, bool include_children,
                                        lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_clear(struct lh_store *store, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_barrier(struct lh_store *store, lh_barrier_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_settled(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg);
enum lh_status lh_pg_store_take_events(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg);

#endif
