/* What the files of the store share. */
#ifndef LH_STORE_INTERNAL_H
#define LH_STORE_INTERNAL_H

#include <libpq-fe.h>

#include "base/memory.h"
#include "loop/loop.h"
#include "pg/conn.h"
#include "pg/listener.h"
#include "pg/servers.h"
#include "store/batch.h"
#include "store/store.h"

enum pg_store_state {
    STORE_NEW,           /* -> RUNNING */
    STORE_RUNNING,       /* -> FINISHING */
    STORE_FINISHING,     /* batches in flight are waited for: -> UNREGISTERING */
    STORE_UNREGISTERING, /* -> CLOSING */
    STORE_CLOSING,       /* connections are closed: -> STOPPED */
    STORE_STOPPED,
};

struct pg_store {
    struct lh_store base; /* first */
    struct lh_loop *loop;
    struct lh_store_options options;
    struct lh_pg_servers *servers; /* for all connections */
    char *name;                    /* which of several databases, or "" */
    char *host;
    char *version;
    const struct lh_store_events *events;
    void *arg;

    enum pg_store_state state;
    struct lane lanes[2 * LH_STORE_LANES_MAX]; /* the hook lanes behind the others */
    unsigned lane_count;                       /* all of them */
    struct lh_pg_conn *control;
    struct lh_pg_listener *listener;
    struct lh_pg_params params;       /* of the control call that is being made */
    struct lh_arena arena;            /* of the control answer that is being read */
    struct lh_pg_server_facts server; /* as last reported */
    bool cannot_write;                /* a renewal or a reap failed for that since the last tick that told it */
    int64_t timeline;
    int32_t schema_version;
    bool has_core;               /* the extension leasehold_core takes the common path */
    char common_path[256];       /* the same in words */
    int64_t core_rests_until_us; /* whatever the control connection says of it: a batch found otherwise */

    struct lh_timer stop_timer;
    struct lh_deferred advance;  /* look how far the stop has come */
    struct lh_store_stats stats; /* what is counted here; all of it once the connections are closed */
    unsigned open_count;         /* connections that are not closed */
    lh_store_cb *on_stopped;
    void *on_stopped_arg;
};

static inline struct pg_store *pg_store_of(struct lh_store *store)
{
    return (struct pg_store *)(void *)store;
}

/* control.c, admin.c, policy.c */
enum lh_status lh_pg_store_enroll(struct lh_store *store, lh_tick_cb *on_done, void *arg);
enum lh_status lh_pg_store_tick(struct lh_store *store, int64_t clock_us, lh_tick_cb *on_done, void *arg);
void lh_pg_store_look_elsewhere(struct lh_store *store);
enum lh_status lh_pg_store_survey(struct lh_store *store, lh_survey_cb *on_done, void *arg);
enum lh_status lh_pg_store_end_long_guards(struct lh_store *store, int64_t max_us, lh_guards_cb *on_done, void *arg);
enum lh_status lh_pg_store_pass_on(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_reap(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                                size_t namespace_count, bool include_children, int32_t max, enum lh_reap_kind kind,
                                const struct lh_requester *requester, lh_reap_cb *on_done, void *arg);
enum lh_status lh_pg_store_unregister(struct pg_store *store, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done,
                               void *arg);
enum lh_status lh_pg_store_list(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                                void *arg);
enum lh_status lh_pg_store_holders(struct lh_store *store, const char *ns, const char *key, int32_t max,
                                   lh_list_cb *on_done, void *arg);
enum lh_status lh_pg_store_force_release(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                         int64_t token, bool all, const struct lh_requester *requester,
                                         lh_scope_cb *on_done, void *arg);
enum lh_status lh_pg_store_set_policy(struct lh_store *store, const struct lh_policy *policy, uint32_t mask,
                                      const struct lh_requester *requester, lh_policy_cb *on_done, void *arg);
enum lh_status lh_pg_store_get_policy(struct lh_store *store, const char *ns, lh_policy_cb *on_done, void *arg);
enum lh_status lh_pg_store_list_policies(struct lh_store *store, int32_t page_size, const char *after_ns,
                                         lh_policy_cb *on_done, void *arg);

/* view.c */
enum lh_status lh_pg_store_view(struct lh_store *store, const struct lh_view_request *request, lh_view_cb *on_done,
                                void *arg);

/* access_admin.c */
enum lh_status lh_pg_store_change_access(struct lh_store *store, const struct lh_requester *by,
                                         const struct lh_access_change *change, lh_access_admin_cb *on_done, void *arg);
enum lh_status lh_pg_store_list_access(struct lh_store *store, int32_t page_size, const char *after_principal,
                                       const char *after_ns, lh_access_admin_cb *on_done, void *arg);
enum lh_status lh_pg_store_create_token(struct lh_store *store, const struct lh_requester *by, const char *name,
                                        int64_t expires_us, lh_access_admin_cb *on_done, void *arg);
enum lh_status lh_pg_store_revoke_token(struct lh_store *store, const struct lh_requester *by, const char *name_or_id,
                                        lh_access_admin_cb *on_done, void *arg);
enum lh_status lh_pg_store_list_tokens(struct lh_store *store, int32_t page_size, const char *after_name,
                                       const char *after_id, lh_access_admin_cb *on_done, void *arg);

/* access.c */
/* Of a text[], as enum lh_right. */
unsigned lh_rights_read(const PGresult *result, int row, int column, struct lh_arena *arena);
enum lh_status lh_pg_store_read_access(struct lh_store *store, lh_access_cb *on_done, void *arg);
enum lh_status lh_pg_store_audit(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_token_used(struct lh_store *store, const char *const *ids, size_t count);

/* watch.c */
enum lh_status lh_pg_store_watch_add(struct lh_store *store, const char *ns, bool include_children,
                                     lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_remove(struct lh_store *store, const char *ns, bool include_children,
                                        lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_clear(struct lh_store *store, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_barrier(struct lh_store *store, lh_barrier_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_settled(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg);
enum lh_status lh_pg_store_take_events(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg);

/*
 * A control call on its way. `read` is called with a result or an error and ends with the caller's callback; the arena
 * is the answer's and is reset afterwards.
 */
struct control_call {
    struct pg_store *store;
    struct lh_pg_conn *conn; /* control's, unless it is put on another one; NULL: there is none */
    void (*read)(struct control_call *call, enum lh_status status, const PGresult *result,
                 const struct lh_error *error);
    void (*on_done)(void); /* cast back by `read` */
    void *arg;
    char *ns; /* where the answer needs it again, else NULL */
    char *key;
    int32_t page_size;
    bool told_cannot_write;
    bool is_clients; /* a client asked: the coordinator's own calls do not wait behind it */
};

/* A call whose parameters are written into store->params next; then send it. */
struct control_call *lh_control_call_begin(struct pg_store *store,
                                           void (*read)(struct control_call *, enum lh_status, const PGresult *,
                                                        const struct lh_error *),
                                           void (*on_done)(void), void *arg);
/* Refused: the call is freed. */
enum lh_status lh_control_call_send(struct control_call *call, const struct lh_pg_statement *statement);

/* What leasehold_internal.core_state() says: NULL, there is no leasehold_core; "", it is used; else why it is not. */
void lh_pg_store_set_core(struct pg_store *store, const char *state);
/* A batch could not call it, for this reason. */
void lh_pg_store_lose_core(struct pg_store *store, const char *reason);

/* A renewal or a reap failed: the next tick tells it where the server could not write. */
void lh_pg_store_note_failure(struct pg_store *store, const struct lh_error *error);

/* stats.c; while the connections are there */
void lh_pg_store_measure(const struct pg_store *store, struct lh_store_stats *stats);

void lh_pg_store_add_clock(struct lh_pg_params *params, int64_t clock_us);
/* Its principal and its peer; nulls for NULL. */
void lh_pg_store_add_requester(struct lh_pg_params *params, const struct lh_requester *requester);

#endif
