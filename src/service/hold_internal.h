/*
 * The fields of a Hold stream, for hold.c (the client's messages, and the end), hold_renew.c (the lease), hold_alive.c
 * (signs of life), hold_event.c (the messages to the client) and hold_state.c (its state and memory).
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
    uint64_t rights_round;          /* last round of rights that looked at it */
    struct lh_link link;            /* link in lh_service.hold_list, while it has a call */
    struct lh_table_entry by_lease; /* entry in lh_service.holds, while HELD */
    struct lh_service *service;
    struct lh_rpc_call *call; /* NULL: the stream is gone */
    enum hold_state state;
    /* The call, and each request in flight: acquire, heartbeat, release, look-up. */
    int users;

    struct lh_acquire acquire;
    struct lh_access_caller who;
    struct lh_usage *caller; /* the caller that the acquire counts against, until it is done */
    char *strings;           /* strings of `acquire` */
    struct lh_held_lease lease;
    /* Slots of `lease`, owned by the stream like `principal`. */
    int32_t *slots;
    /* Principal of `lease`: after a downgrade by another caller not that of the acquire. */
    char *principal;
    int64_t deadline_us; /* deadline on our clock, not before the database's */
    int64_t next_us;     /* time of the next renewal */

    bool is_beating;
    bool is_looking;
    struct lh_holder_request beat;
    struct lh_holder_entry beat_item;
    int64_t beat_alive; /* alive_sequence when the renewal was sent */

    int64_t alive_sequence; /* the highest one */
    int64_t alive_us;       /* time of the last `alive`; 0: never */
    /* An `alive` came since the last renewal was sent, or since the grant. */
    bool has_proof;
    bool by_ping;    /* the answer to a PING is proof enough */
    int64_t told_us; /* time of the last event sent */
    int64_t look_us; /* time to look at the lease; INT64_MAX: never */

    struct lh_holder_request release;
    struct lh_holder_entry release_item;
    char *release_value;
};

#endif
