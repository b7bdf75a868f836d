/* Control calls: each is a statement on the control connection. */
#ifndef LH_STORE_CONTROL_H
#define LH_STORE_CONTROL_H

#include "store/store_internal.h"

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
    int32_t page_size;
    bool told_cannot_write;
    /* Made for a client: the coordinator's own calls do not wait behind it. */
    bool is_clients;
};

/* Begins a call. Write its parameters into store->params next, then send it. */
struct control_call *lh_control_call_begin(struct pg_store *store,
                                           void (*read)(struct control_call *, enum lh_status, const PGresult *,
                                                        const struct lh_error *),
                                           void (*on_done)(void), void *arg);
/* Sends the call. Refused: the call is freed. */
enum lh_status lh_control_call_send(struct control_call *call, const struct lh_pg_statement *statement);

/* Notes the answer of leasehold_internal.core_state(): NULL, there is no leasehold_core; "", it is used; else the
   reason that it is not. */
void lh_pg_store_set_core(struct pg_store *store, const char *state);
/* Notes that a batch could not call leasehold_core, with the reason. */
void lh_pg_store_lose_core(struct pg_store *store, const char *reason);

/* Notes a failed renewal or reap: the next tick reports it if the server could not write. */
void lh_pg_store_note_failure(struct pg_store *store, const struct lh_error *error);

void lh_pg_store_add_clock(struct lh_pg_params *params, int64_t clock_us);
/* Adds the principal and the peer; nulls for NULL. */
void lh_pg_store_add_requester(struct lh_pg_params *params, const struct lh_requester *requester);

/* Sends the last call of a stopping store. */
enum lh_status lh_pg_store_unregister(struct pg_store *store, lh_store_cb *on_done, void *arg);

#endif
