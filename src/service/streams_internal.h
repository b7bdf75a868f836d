/* Streams: Hold, KeepAlive and WatchLeases. Private to src/service. */
#ifndef LH_SERVICE_STREAMS_INTERNAL_H
#define LH_SERVICE_STREAMS_INTERNAL_H

#include "service/call_internal.h"

/* --- hold --- */

/*
 * The fields of a Hold stream, for hold.c (the client's messages, and the end), hold_renew.c (the lease), hold_alive.c
 * (signs of life), hold_event.c (the messages to the client) and hold_state.c (its state and memory).
 *
 *     NEW -- acquire --> WAITING -- granted --> HELD -- release, half-close --> RELEASING -- answered --> OVER
 *                           |                     `-- lost, shutdown, taken over, stream gone ----------> OVER
 *                           `-- refused, stream gone, half-close, release -----------------------------> OVER
 */

enum hold_state { HOLD_NEW, HOLD_WAITING, HOLD_HELD, HOLD_RELEASING, HOLD_OVER };

struct hold {
    uint64_t rights_round;          /* last round of rights that looked at it */
    struct lh_link link;            /* link in lh_service.hold_list, while it has a call */
    struct lh_table_entry by_lease; /* entry in lh_service.holds, while HELD */
    struct lh_service *service;
    struct lh_rpc_call *call;           /* NULL: the stream is gone */
    struct lh_coordinator *coordinator; /* which the acquire was sent to */
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
    bool by_ping; /* the answer to a PING is proof enough */
    /* The last request to hand over that its client was told of. */
    int64_t told_asked_us;
    int64_t told_asked_token;
    int64_t told_us; /* time of the last event sent */
    int64_t look_us; /* time to look at the lease; INT64_MAX: never */

    struct lh_holder_request release;
    struct lh_holder_entry release_item;
    char *release_value;
};

/* --- hold state --- */

/* The state of a Hold stream, and its memory. */

void lh_hold_start(struct lh_service *service);
void lh_hold_finish(struct lh_service *service);
/* Changes the state. lh_hold_find finds the stream only while it is HELD. */
void lh_hold_set_state(struct hold *hold, enum hold_state state);
/* Returns the stream that holds this lease here, or NULL. */
struct hold *lh_hold_find(const struct lh_service *service, const char *ns, const char *key, struct lh_uuid lease_key);
void lh_hold_leave(struct hold *hold); /* drops one user; the last one frees it */

/* --- hold event --- */

/* The messages to the client of a Hold stream. */

void lh_hold_tell_queued(struct hold *hold, const struct lh_contention *contention);
void lh_hold_tell_granted(struct hold *hold, int64_t waited_us);
void lh_hold_tell_renewed(struct hold *hold);
void lh_hold_tell_asked(struct hold *hold, const struct lh_hand_over *asked);
void lh_hold_tell_alive(struct hold *hold);
void lh_hold_tell_lost(struct hold *hold, enum lh_end_reason reason, const char *message);
void lh_hold_tell_released(struct hold *hold, enum lh_outcome outcome, enum lh_end_reason reason, const char *message);

/* --- hold alive --- */

/*
 * Signs of life at both ends of a Hold stream.
 *
 * A proxy answers PINGs in place of its clients, so a client proves that it lives by `alive` on the stream, which a
 * proxy never sends by itself. If by_ping is set, the answer to a PING is enough. A proxy also ends a stream on which
 * no message is sent for some time: to a client that sends `alive` we send `alive` when there is no other message.
 */

void lh_hold_note_alive(struct hold *hold, int64_t sequence);
/* Returns true if the client has proved since the last renewal was sent that it lives, or if by_ping is set; false
   while it does not read, because it could not be told of a renewal. */
bool lh_hold_has_proof(const struct hold *hold);
/* Returns true for a client that waits, has sent `alive` before, and is silent now. */
bool lh_hold_is_silent(const struct hold *hold);
/* Sets the time of the next look at the lease, replacing the one before, and the alarm at or before it. */
void lh_hold_look_at(struct hold *hold, int64_t at_us);
/* Handles its alarm: sends `alive` if it is time, and arms the alarm again. */
void lh_hold_ring(struct hold *hold);
/* Returns true if a proxy has said that it is there: then the proxy may have ended the stream, or the client's half
   of it, and the client works on. */
bool lh_hold_has_proxy(const struct hold *hold);

/* --- hold renew --- */

/* The lease of a Hold stream. */

/* Takes over the lease as the database has just answered it, after the grant and after a downgrade. */
void lh_hold_take(struct hold *hold, const struct lh_held_lease *lease);
/* Looks at the lease: asks its client for a sign of life, waits, or finds the lease lost. */
void lh_hold_look(struct hold *hold);
void lh_hold_answered(struct hold *hold); /* renews if it is time, because its client is alive */
/* Releases with hold->release_value; `is_failure`: the value is an error. The client, if it listens, gets the
   result. */
void lh_hold_release(struct hold *hold, bool is_failure);

/* --- hold --- */

/* Hold streams, for the rest of the service. */

void lh_hold_drain(struct lh_service *service);
/* Ends at most `max` streams of this round whose callers have lost their right. Returns true if more streams are
   left. */
bool lh_hold_check_rights(struct lh_service *service, int max);
/* Tells the client of a stream that holds this lease here that a downgrade of it was answered. */
void lh_hold_downgraded(struct lh_service *service, const struct lh_held_lease *lease);

/* --- hold asked --- */

/* Requests to hand over the leases of Hold streams. */

void lh_hold_asked_start_place(struct lh_service *service, const struct lh_place *place);
/* Tells the client of an open request that it was not told of. */
void lh_hold_look_asked(struct hold *hold);
/* Refuses for the client of a stream. Returns false with violations. */
bool lh_hold_refuse(struct hold *hold, const Leasehold__V1__RefuseHandOver *refuse, struct lh_violations *violations);

/* --- keep alive --- */

/* Streams of heartbeats. */

/* Ends the streams before the coordinator stops; heartbeats in flight are still answered. */
void lh_keep_alive_drain(struct lh_service *service);

/* --- watch --- */

/* WatchLeases. Private to src/service. */

struct lh_service;

/* Ends the watches, which have no end of their own. */
void lh_watch_leases_drain(struct lh_service *service);

#endif
