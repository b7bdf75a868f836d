/* The state of this folder: namespaces with hooks, and the reaper. */
#ifndef LH_LEASE_HOOKS_HOOKS_H
#define LH_LEASE_HOOKS_HOOKS_H

#include "base/heap.h"
#include "base/list.h"
#include "base/table.h"

/* Work for the hook lanes; see hook_queue.h. */
struct lh_hooks {
    struct lh_table queues; /* struct lh_hook_queue, by namespace */
    struct lh_link used;    /* all queues, the longest unused first */
    struct lh_link working; /* queues with scopes in line, in turn */
    struct lh_link reaping; /* queues with reaps in line, in turn */
    size_t waiting;         /* scopes in line */
    struct lh_heap_timer timer;
};

/* The reaper; see lease/reaping.h. */
struct lh_reaping {
    struct lh_table jobs; /* struct lh_reap_job, by scope */
    struct lh_link done;  /* struct lh_reap_request, to be delivered */
    struct lh_heap_timer timer;
    int64_t looked_us;
    bool is_looking;
    bool has_more; /* expired leases are left: look again when the line is short */
};

#endif
