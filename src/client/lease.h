/*
 * A lease in the hands of this process.
 *
 *     HELD ---- lh_release, lh_try_release, lh_lease_destroy ---------> RELEASING ---- answered, given up ----> GONE
 *       '------ LOST from the server, its time has passed -----> LOST ---- a release that may help -----^
 *
 * The state changes by compare-and-swap, on whichever thread comes first: whoever takes it from HELD owns what follows.
 * A lease that has left HELD is not renewed any more.
 */
#ifndef LH_CLIENT_LEASE_H
#define LH_CLIENT_LEASE_H

#include "base/text.h"
#include "client/client.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct lh_declared {
    struct lh_link link; /* in the client's declarations */
    struct lh_client *client;
    struct lh_link held;               /* leases, the one that was tried the longest ago first; the client's thread */
    struct lh_link in_renewals;        /* while there are any */
    struct lh_declare_options options; /* with all defaults in place */
    bool has_strategy;
    struct lh_strategy strategy;
    size_t segment_count;
    char *segments[16];
    char *text; /* dotted */
    char *memory;
};

/* One atomic byte has both: the state, and below it the enum lh_lost_reason of a lease that was ever lost. */
enum lease_state { LEASE_HELD = 0x00, LEASE_LOST = 0x10, LEASE_RELEASING = 0x20, LEASE_GONE = 0x30 };
#define LEASE_STATE(byte) ((byte)&0xf0)
#define LEASE_REASON(byte) ((byte)&0x0f)

struct lh_lease {
    /* Never changes. */
    struct lh_declared *declared;
    struct lh_client *client;
    struct lh_uuid key;
    int64_t token;
    void *user;
    int64_t granted_us;

    /* Any thread. */
    atomic_uint refs; /* the caller's, the client's while it is held or on its way out, and passing ones */
    atomic_uchar state;
    atomic_int_fast64_t deadline_us;
    _Atomic(struct lh_context *) context; /* NULL: nobody has asked for it yet */

    /* The client's thread; `result` and `next` belong to whoever took it from HELD, then to the releases. */
    int64_t sent_us;             /* of the newest renewal that counts */
    int64_t tried_us;            /* of the newest renewal at all; 0: it is to be tried again at once */
    int64_t longest_us;          /* when its longest hold is over; LH_FOREVER: never */
    struct deadline due;         /* of on_lost, never later than that */
    struct lh_link held;         /* in the declaration's */
    struct lh_table_entry entry; /* in the client's leases; later in its releases, by scope */
    struct lh_lease *next;       /* in the releases */
    struct lh_link followers;    /* acquires of its scope, until its release is answered */
    char *result;
    bool is_failure; /* `result` is what went wrong */
    bool is_counted; /* among those held */

    char scope_key[];
};

/* A lease, HELD by nobody yet, with one reference. `key` is copied. */
struct lh_lease *lease_create(struct lh_declared *declared, const char *scope_key, const struct lh_uuid *key);
void lease_ref(struct lh_lease *lease);
void lease_unref(struct lh_lease *lease);

/* The client's thread: from now on it is renewed and watched. */
void lease_begin(struct lh_lease *lease, int64_t token, int64_t sent_us, int64_t waited_us, int64_t remaining_us);

/*
 * The answer to a renewal that was sent at sent_us. Only the newest counts: an older one never shortens or lengthens
 * what it said.
 */
void lease_renewed(struct lh_lease *lease, int64_t sent_us, int64_t remaining_us);

/* The server says LOST, or time does. Does nothing to a lease that is not held any more. */
void lease_lose(struct lh_lease *lease, enum lh_lost_reason reason, const char *words);
enum lh_lost_reason lost_reason_of(Leasehold__V1__EndReason reason);
/* Of an item of a batch; LH_UNAVAILABLE: it was not done, and may be tried again. */
enum lh_status status_of_outcome(Leasehold__V1__Outcome outcome);

bool lease_is_held(const struct lh_lease *lease);

/* Out of everything that keeps it: renewals, deadlines, the table. Does nothing the second time. */
void lease_leave(struct lh_lease *lease);

/* Everything whose time has come at now_us. */
void leases_expire(struct lh_client *client, int64_t now_us);
void leases_arm(struct lh_client *client);

/* From HELD, or LOST where a release may still help, to RELEASING. LH_LOST with words: it cannot be released any more.
 */
enum lh_status lease_take_for_release(struct lh_lease *lease, struct lh_error *error);

/* The held lease with this lease key, or NULL. */
struct lh_lease *leases_find(struct lh_client *client, const struct lh_uuid *key);
void leases_init(struct lh_client *client);
void leases_abandon(struct lh_client *client); /* at the client's end: left to expire, without a word */

/* For messages; in the arena, but for what lives as long as lease and declaration. */
Leasehold__V1__LeaseRef *lease_ref_message(const struct lh_lease *lease, struct lh_arena *arena);
Leasehold__V1__Scope *scope_message(const struct lh_declared *declared, const char *key, struct lh_arena *arena);
Google__Protobuf__Duration *duration_message(int64_t duration_us, struct lh_arena *arena);
int64_t duration_from_message(const Google__Protobuf__Duration *duration);

#endif
