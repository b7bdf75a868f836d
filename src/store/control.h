/* Control calls: each is a statement on the control connection. */
#ifndef LH_STORE_CONTROL_H
#define LH_STORE_CONTROL_H

#include "store/internal.h"

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

void lh_pg_store_add_clock(struct lh_pg_params *params, int64_t clock_us);
/* Its principal and its peer; nulls for NULL. */
void lh_pg_store_add_requester(struct lh_pg_params *params, const struct lh_requester *requester);

/* The last one. */
enum lh_status lh_pg_store_unregister(struct pg_store *store, lh_store_cb *on_done, void *arg);

#endif
