/*
 * The fields of a Hold stream, for hold.c (what the client says, and the end), hold_renew.c (the lease), hold_alive.c
 * (who is there), hold_event.c (the messages to the client) and hold_state.c (its state and memory).
 *
 *     NEW -- acquire --> WAITING -- granted --> HELD -- release, half-close --> RELEASING -- answered --> OVER
 *                           |                     `-- lost, shutdown, taken over, stream gone ----------> OVER
 *                           `-- refused, stream gone, half-close, release -----------------------------> OVER
 */
#ifndef LH_SERVICE_HOLD_INTERNAL_H
#define LH_SERVICE_HOLD_INTERNAL_H

#include "service/acquire.h"

enum hold_state { HOLD_NEW, HOLD_WAITING, HOLD_HELD, HOLD_RELEASING, HOLD_OVER };

struct hold {
    uint64_t rights_round;          /* that looked at it last */
    struct lh_link link;            /* in lh_service.hold_list, while it has a call */
    struct lh_table_entry by_lease; /* in lh_service.holds, while HELD */
    struct lh_service *service;
    struct lh_rpc_call *call; /* NULL: the stream is gone */
    enum hold_state state;
    int users; /* the call, and whatever is out: acquire, heartbeat, release, look-up */

    struct lh_acquire acquire;
    struct lh_access_caller who;
    struct lh_usage *caller; /* of the acquire, until it is done */
    char *strings;           /* of acquire */
    struct lh_held_lease lease;
    int32_t *slots;      /* of the lease, like this */
    char *principal;     /* who downgraded it may be another than who acquired it */
    int64_t deadline_us; /* on our clock, not before the database's */
    int64_t next_us;     /* when the next one is due */

    bool is_beating;
    bool is_looking;
    struct lh_holder_request beat;
    struct lh_holder_entry beat_item;
    int64_t beat_alive; /* alive_sequence when it was sent */

    int64_t alive_sequence; /* the highest */
    int64_t alive_us;       /* when the last one came; 0: none did */
    bool has_proof;         /* one came since the last renewal was sent, or the grant */
    bool by_ping;           /* a PING's answer is proof enough */
    int64_t told_us;        /* when the last event was sent */
    int64_t look_us;        /* when the lease is to be looked at; INT64_MAX: never */

    struct lh_holder_request release;
    struct lh_holder_entry release_item;
    char *release_value;
};

#endif
