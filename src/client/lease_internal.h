/* Leases: how they are declared, what is known of each, and their fields of messages. */
#ifndef LH_CLIENT_LEASE_INTERNAL_H
#define LH_CLIENT_LEASE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/table.h"
#include "base/uuid.h"
#include "leasehold.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/loop.h"

/*
 * A client in a child of the process that made it: its thread, connections and leases are the parent's, and its lock may stay taken.
 *
 *     client->forks = lh_client_count_forks();
 *     if (lh_client_is_forked(client))
 *         return lh_error_set(error, LH_CLOSED, "%s", lh_client_closed_words(client));
 */

struct lh_client;

/* Counts the forks between this process and the one that made the first client. Any thread. */
unsigned lh_client_count_forks(void);
bool lh_client_is_forked(const struct lh_client *client);

/* Returns the words of a call that finds the client closed. */
const char *lh_client_closed_words(const struct lh_client *client);

/* Declarations: a namespace, and the options for its leases. */

struct lh_declared {
    struct lh_link link; /* link in the client's declarations */
    struct lh_client *client;
    /* Leases, by the time of their last try; the client's thread. */
    struct lh_link held;
    struct lh_link in_leases;          /* link in leases.declarations, while there are any */
    struct lh_declare_options options; /* with all defaults in place */
    bool has_strategy;
    struct lh_strategy strategy;
    size_t segment_count;
    char *segments[16];
    char *text; /* dotted */
    char *memory;
};

void lh_declarations_destroy(struct lh_client *client);

/*
 * A lease in the hands of this process.
 *
 *     HELD ---- lh_release, lh_try_release, lh_lease_destroy ---------> RELEASING ---- answered, given up ----> GONE
 *       '------ LOST from the server, its time has passed -----> LOST ---- a release that may help -----^
 *
 * The state changes by compare-and-swap, on whichever thread comes first: the thread that takes it from HELD owns
 * what follows.
 * A lease that has left HELD is not renewed any more.
 */

/* The leases that a client holds; its thread's. */
struct leases {
    struct lh_table by_key;
    struct lh_heap deadlines;
    struct lh_timer timer;       /* fires at the first deadline */
    struct lh_link declarations; /* declarations that have leases held */
};

/* One atomic byte has both: the state, and below it the enum lh_lost_reason of a lease that was ever lost. */
enum lease_state { LEASE_HELD = 0x00, LEASE_LOST = 0x10, LEASE_RELEASING = 0x20, LEASE_GONE = 0x30 };
#define LEASE_STATE(byte) ((byte)&0xf0)
#define LEASE_REASON(byte) ((byte)&0x0f)

/* The grant of the server. It never changes: a downgrade makes another one. */
struct lease_grant {
    struct lease_grant *before; /* kept as long as the lease, because a program may hold its slots */
    int64_t token;
    enum lh_mode mode;
    int32_t units;
    size_t slot_count;
    int32_t slots[];
};

struct lh_lease {
    /* Never changes. */
    struct lh_declared *declared;
    struct lh_client *client;
    struct lh_uuid key;
    void *user;
    int64_t granted_us;

    /* Any thread. */
    /* References: the caller's, the client's while it is held or on its way out, and passing ones. */
    atomic_uint refs;
    atomic_uchar state;
    atomic_int_fast64_t deadline_us;
    _Atomic(struct lh_context *) context; /* NULL: not made yet */
    _Atomic(struct lease_grant *) grant;  /* the newest; NULL: it never began */

    /* The client's thread; `result` and `next` belong to the thread that took it from HELD, then to the releases. */
    int64_t sent_us; /* time of the newest renewal that counts */
    /* Time of the newest renewal at all; 0: it is to be tried again at once. */
    int64_t tried_us;
    int64_t longest_us;       /* end of its longest hold; LH_FOREVER: never */
    struct lh_heap_timer due; /* latest time for on_lost; among the doubted, for the next release */
    /* The pause before a release that the server did not know is repeated; 0: it is not. */
    int64_t doubt_us;
    struct lh_link held; /* link in the declaration's `held` */
    /* Entry in the client's leases; later in its releases, by scope. */
    struct lh_table_entry entry;
    struct lh_lease *next;    /* next one in the releases */
    struct lh_link followers; /* acquires of its scope, until its release is answered */
    char *result;
    bool is_failure; /* `result` is the text of an error */
    bool is_counted; /* counted among those held */
    bool is_final;   /* the policy ends it at its deadline */
    /* The request to hand over that on_asked was called with: when it was asked, and when that renewal was sent. 0: none. */
    int64_t asked_at_us;
    int64_t asked_sent_us;

    char scope_key[];
};

/* Creates a lease that is not entered yet, with one reference. Copies `key`. */
struct lh_lease *lh_lease_create(struct lh_declared *declared, const char *scope_key, const struct lh_uuid *key);
void lh_lease_ref(struct lh_lease *lease);
void lh_lease_unref(struct lh_lease *lease);

/* Begins the lease, on the client's thread: it is held and watched from now on; lh_renewals_add has it renewed.
   Takes `grant` over. */
void lh_lease_begin(struct lh_lease *lease, struct lease_grant *grant, int64_t sent_us, int64_t waited_us,
                    int64_t remaining_us, bool is_final);

/* Applies the answer of a downgrade, on the client's thread. Takes `grant` over. */
void lh_lease_downgraded(struct lh_lease *lease, struct lease_grant *grant);
/* Applies the terms of a shared lease in a renewal, on the client's thread: another caller may have downgraded it.
   `units` 0: it is exclusive. */
void lh_lease_heard(struct lh_lease *lease, int64_t token, int32_t units, bool has_slots);

/*
 * Applies the answer to a renewal that was sent at sent_us. Only the newest counts: an older one never changes the
 * deadline that a newer one has set. `is_final`: no renewal will move it.
 */
void lh_lease_renewed(struct lh_lease *lease, int64_t sent_us, int64_t remaining_us, bool is_final);

/* Calls on_asked if `asked`, of an answer to a renewal that was sent at sent_us, is a request that is new. NULL: none. */
void lh_lease_asked(struct lh_lease *lease, int64_t sent_us, const Leasehold__V1__HandOver *asked);

/* Ends a held lease because the server said LOST, or its time has passed. Does nothing to a lease that is not held
   any more. */
void lh_lease_lose(struct lh_lease *lease, enum lh_lost_reason reason, const char *words);

bool lh_lease_is_kept(const struct lh_lease *lease);

/* Takes the lease out of renewals, deadlines and the table. Does nothing the second time. */
void lh_lease_leave(struct lh_lease *lease);

/*
 * Ends the leases whose time has passed while this process slept. Call it first at every entry from the loop.
 */
void lh_leases_look_at_clock(struct lh_client *client);
void lh_leases_expire(struct lh_client *client, int64_t now_us); /* ends the leases whose time has come by now_us */

/* Moves a lease that is HELD, or LOST while a release may still help, to RELEASING. LH_LOST with words: it cannot be
   released any more. */
enum lh_status lh_lease_take_for_release(struct lh_lease *lease, struct lh_error *error);

/* Adds; returns LH_FOREVER, or INT64_MIN, if the sum does not fit. */
int64_t lh_plus_us(int64_t at_us, int64_t more_us);

/* Returns the lease that is held with this lease key in this namespace and scope, or NULL. */
struct lh_lease *lh_leases_find(const struct lh_declared *declared, const char *scope_key, const struct lh_uuid *key);
void lh_leases_init(struct lh_client *client);
/* Lets the leases expire at the client's end, without a release. */
void lh_leases_abandon(struct lh_client *client);

/* Leases in messages: packing them into requests, and reading the end of a lease from answers. */

/* Returns the server's words, or words for the reason if it gave none. */
const char *lh_lost_words(enum lh_lost_reason reason, const char *words);
enum lh_lost_reason lh_lost_reason_of(Leasehold__V1__EndReason reason);
/* Returns the status of an item of a batch; LH_UNAVAILABLE: it was not done, and may be tried again. */
enum lh_status lh_status_of_outcome(Leasehold__V1__Outcome outcome);
/* Returns the status of a release. A repetition finds its own work done: with `may_be_done`, an attempt that had no
   verdict, a lease that ended as this release ends it is LH_OK. */
enum lh_status lh_status_of_release(const Leasehold__V1__ReleaseResult *result, bool may_be_done, bool is_failure);

/* Reads a grant from a message, in memory of its own. */
struct lease_grant *lh_unpack_grant(const Leasehold__V1__Lease *lease);

/* Pack into the arena; the messages borrow strings of the lease and its declaration. */
Leasehold__V1__Scope *lh_pack_scope(const struct lh_declared *declared, const char *key, struct lh_arena *arena);
Leasehold__V1__LeaseRef *lh_pack_lease_ref(const struct lh_lease *lease, struct lh_arena *arena);
Google__Protobuf__Duration *lh_pack_duration(int64_t duration_us, struct lh_arena *arena);
int64_t lh_unpack_duration_us(const Google__Protobuf__Duration *duration);
/* Returns the time waited, at most the time since the request was sent: no grant is later than its answer. */
int64_t lh_unpack_waited_us(const Google__Protobuf__Duration *waited, int64_t sent_us);
/* Returns the time that a lease has left, at most the duration that it was asked for. */
int64_t lh_unpack_remaining_us(const Google__Protobuf__Duration *remaining, const struct lh_declared *declared);
/* Returns false if the answer names another lease than `key`. It may name none. */
bool lh_is_answer_about(const char *lease_key, const struct lh_uuid *key);

/* Appends the message. */
void lh_pack_message(const ProtobufCMessage *message, struct lh_buffer *buffer);
void lh_heartbeat_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *buffer);
void lh_release_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *buffer);

#endif
