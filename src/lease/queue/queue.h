/* The state of this folder: scopes, their waiters and requests, and the answers for callers. */
#ifndef LH_LEASE_QUEUE_QUEUE_H
#define LH_LEASE_QUEUE_QUEUE_H

#include "base/list.h"
#include "base/table.h"
#include "lease/operation.h"

/* A lookup of a scope for its subscribers; see wait_progress.h. */
#define LH_PROBES_MAX 8
struct lh_probe {
    struct lh_coordinator *coordinator;
    struct lh_wait_progress *progress; /* NULL: no subscriber is left */
    bool is_out;
};

/* State of ready.h. */
struct lh_ready {
    struct lh_table clients;              /* struct lh_ready_client, by kind and id */
    struct lh_link turns[LH_SCOPE_KINDS]; /* clients in turn */
    size_t count[LH_SCOPE_KINDS];         /* number of clients */
    size_t scopes[LH_SCOPE_KINDS];        /* number of their scopes */
};

struct lh_queue {
    struct lh_table scopes;
    struct lh_table waiters; /* by scope and lease key */
    struct lh_ready ready;
    struct lh_link answers; /* acquires to be answered */
    struct lh_link touched; /* struct lh_scope: scheduled at the end of the turn */
    struct lh_link gone;    /* struct lh_waiter: freed at the end of the turn */
    struct lh_link telling; /* struct lh_subscriber: gets its progress at the end of the turn */
    struct lh_probe probes[LH_PROBES_MAX];
    struct lh_scope *spare_scopes;
    size_t spare_count;
    uint64_t next_seq;
    size_t waiting; /* acquires that wait */
    /* Waiters without a request of their own: it has gone and they leave, or it is at another place. */
    size_t orphans;
};

#endif
