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
#ifndef LH_CLIENT_LEASE_H
#define LH_CLIENT_LEASE_H

#include <stdatomic.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/table.h"
#include "base/uuid.h"
#include "client/declare.h"
#include "leasehold.h"
#include "loop/loop.h"

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
    struct lh_heap_timer due; /* latest time for on_lost */
    struct lh_link held;      /* link in the declaration's `held` */
    /* Entry in the client's leases; later in its releases, by scope. */
    struct lh_table_entry entry;
    struct lh_lease *next;    /* next one in the releases */
    struct lh_link followers; /* acquires of its scope, until its release is answered */
    char *result;
    bool is_failure; /* `result` is the text of an error */
    bool is_counted; /* counted among those held */
    bool is_final;   /* the policy ends it at its deadline */

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
void lh_leases_stop(struct leases *leases); /* ends the timer */
/* Lets the leases expire at the client's end, without a release. */
void lh_leases_abandon(struct lh_client *client);

#endif
