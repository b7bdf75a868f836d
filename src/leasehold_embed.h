/* libleasehold without a daemon: leases, and reaping, over a PGconn. Part of leasehold.h, which includes it. */
#ifndef LEASEHOLD_EMBED_H
#define LEASEHOLD_EMBED_H

#include "leasehold.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- 9. Without a daemon: the same verbs over a PGconn ------------------------------------------------------------ */

/*
 * Leases over the caller's own connection (libpq), in a database that has the schema; daemons may run beside. These
 * functions block, and belong to the thread that uses the connection. They renew nothing by themselves.
 *
 *     PGconn *conn = PQconnectdb("postgresql:///app");
 *     struct lh_embed_lease lease;
 *     if (lh_embed_acquire(conn, "payments", "invoice-42", NULL, &lease, &error) == LH_OK) {
 *         pay(lease.token);
 *         lh_embed_release_ok(conn, &lease, NULL, NULL, &error);
 *     }
 *
 * On a connection without an open transaction a verb begins one (READ COMMITTED), calls its callback inside, and
 * commits. After a serialization failure, a deadlock or a broken connection it repeats all of that, callback included,
 * after 10 ms doubling to 1 s, at most `max_attempts` times. PQreset restores a broken connection, so the session's
 * settings, prepared statements and LISTENs are gone. After a commit without an answer the verb looks up whether it was
 * done, so nothing is done twice.
 *
 * In a transaction of the caller the verb works behind a savepoint: a failure rolls back the verb and its callback and
 * leaves the transaction usable. It repeats nothing, and nothing is certain before the caller's commit. 40001 and 40P01
 * are LH_SCOPE_BUSY there, with the SQLSTATE in `error`: repeat the whole transaction.
 */
#ifndef LIBPQ_FE_H
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
#endif

/* A lease as the database has it. "_at_us" is the database's clock, since 1970. */
struct lh_embed_lease {
    char namespace_text[256]; /* dotted */
    char key[1025];
    char lease_key[37]; /* the credential to renew and release it */
    char owner[256];    /* "": unknown */
    /* The proved holder, "role:NAME"; in callbacks only, NULL elsewhere. */
    const char *principal;
    const char *labels; /* a JSON object; in callbacks only, NULL elsewhere */
    int64_t token;
    int64_t heartbeats;
    int64_t duration_us;
    int64_t grace_us;
    int64_t acquired_at_us;
    int64_t heartbeat_at_us;
    int64_t deadline_at_us;
    int64_t deadline_us; /* the holder's own, on CLOCK_BOOTTIME: stop the work by then. 0 in callbacks of reaping */
    int64_t limit_us;    /* in callbacks of reaping: their time limit; 0: none */
    enum lh_mode mode;
    int32_t units; /* units of a shared lease, else 0 */
    int32_t slot;  /* the lowest of its slots, 0: none; leasehold.lease has them all */
    int32_t reserved_number;
    void *reserved[1];
};

/*
 * Called in the transaction of the change, after the change and before the commit. What it does through `conn` commits
 * with the change or not at all; it must not end the transaction. Return 0 to go on. Any other value rolls the change
 * back, and the verb returns LH_HOOK_REJECTED with error->message as the callback set it. `words`: the result (JSON or
 * NULL) for will_release_ok, the failure for will_release_fail, else NULL. A repeated transaction calls it again.
 */
typedef int lh_will_cb(void *arg, PGconn *conn, const struct lh_embed_lease *lease, const char *words,
                       struct lh_error *error);

/*
 * Fills `error` from a statement that failed in a callback. Its SQLSTATE lets the verb repeat the transaction after a
 * serialization failure or deadlock. Returns 1: return lh_embed_failed(conn, result, error).
 */
int lh_embed_failed(PGconn *conn, const PGresult *result, struct lh_error *error);

struct lh_embed_options {
    lh_will_cb *will_insert;    /* called when the lease is granted */
    lh_will_cb *will_heartbeat; /* called when it is renewed, also by an acquire with its own lease key */
    lh_will_cb *will_release_ok;
    lh_will_cb *will_release_fail;
    void *arg;             /* passed to all four */
    uint32_t max_attempts; /* tries of one transaction; default 8 */
    /* lh_embed_acquire only, like mode and units: as in lh_acquire_options. */
    int64_t at_least_us;
    enum lh_mode mode;
    int32_t units;
    int32_t priority;
    int32_t reserved_number;
    void *reserved[1];
};

struct lh_embed_acquire_options {
    int64_t duration_us;       /* default 30 s */
    int64_t wait_us;           /* 0: do not wait; LH_FOREVER: until granted. 0 in a transaction of the caller */
    const char *owner;         /* default: HOST/PROGRAM/PID */
    const char *lease_key;     /* default: a new one */
    const char *const *labels; /* "name=value" each, NULL at the end */
    struct lh_embed_options embed;
};

/*
 * Acquires a lease. LH_OK: *lease is held from now on. LH_LEASE_HELD: others hold it or wait for it, or it rests. With
 * wait_us it queues, first come first served among all waiters. NOTIFY tells it its turn, and it looks once a second;
 * it drops other notifications on `conn`. LH_WAIT_TIMEOUT: it has given up its place.
 */
enum lh_status lh_embed_acquire(PGconn *conn, const char *namespace_text, const char *key,
                                const struct lh_embed_acquire_options *options, struct lh_embed_lease *lease,
                                struct lh_error *error);

/* One of the scopes of lh_embed_acquire_all. */
struct lh_embed_scope {
    const char *namespace_text; /* dotted */
    const char *key;
    enum lh_mode mode;
    /* Units of a shared lease: 1 to 1,000,000, at most the capacity; 0: 1. Exclusive: 0. */
    int32_t units;
    void *reserved[2];
};

/*
 * Acquires 1 to LH_ACQUIRE_ALL_MAX scopes in one transaction: all of them, or none. It never waits: wait_us is 0, and
 * LH_LEASE_HELD says that one of them is held, or rests, or is waited for. mode, units and at_least_us of options->embed
 * are 0, the first two are those of each scope; a minimum hold is that of the namespace's policy.
 *
 * LH_OK: leases[i] is the lease of scopes[i]. They have one lease key, and each its own token; from then on each is renewed,
 * released and lost by itself. will_insert is called for each, in the order of `scopes`, in the one transaction: a refusal
 * takes all of them back. A repeat with the lease key of leases that are held names the same scopes; it renews them.
 */
enum lh_status lh_embed_acquire_all(PGconn *conn, const struct lh_embed_scope *scopes, size_t count,
                                    const struct lh_embed_acquire_options *options, struct lh_embed_lease *leases,
                                    struct lh_error *error);

/* Renews, and updates deadlines and heartbeats in *lease. LH_LOST: the lease has ended, and will not come back. */
enum lh_status lh_embed_heartbeat(PGconn *conn, struct lh_embed_lease *lease, const struct lh_embed_options *options,
                                  struct lh_error *error);

/*
 * Makes the lease shared, as lh_downgrade; will_heartbeat is called. LH_OK: token, mode, units, slot and deadlines in
 * *lease are the new ones. LH_LOST: the lease has ended.
 */
enum lh_status lh_embed_downgrade(PGconn *conn, struct lh_embed_lease *lease, int32_t units,
                                  const struct lh_embed_options *options, struct lh_error *error);

/* Release the lease; `result` is JSON, or NULL. LH_LOST: it was no longer held; the callback was not called. */
enum lh_status lh_embed_release_ok(PGconn *conn, const struct lh_embed_lease *lease, const char *result,
                                   const struct lh_embed_options *options, struct lh_error *error);
enum lh_status lh_embed_release_fail(PGconn *conn, const struct lh_embed_lease *lease, const char *failure,
                                     const struct lh_embed_options *options, struct lh_error *error);

/* --- 10. Reaping: leases that their holders left to expire -------------------------------------------------------- */

/*
 * Called for an expired lease, in the transaction and the savepoint in which it ends, after the hooks in SQL. What the
 * callback does through `conn` commits with that. It must not end the transaction. Return 0 when done. It fails with
 * any other value, an error in the transaction, a broken connection, or more time than its limit. A failure rolls back
 * to the savepoint, is recorded in leasehold.reap_failure with error->message (or PostgreSQL's message), and is
 * repeated with backoff; it delays no other lease. The callback may be called again for a lease whose transaction did
 * not commit.
 */
typedef int lh_reap_cb(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error);

/*
 * Reaps until no lease is due: the expired leases of these namespaces (dotted; n = 0: of all except those with reaper =
 * external), with include_children also of those below them. Any number of reapers and daemons may run at once. A
 * transaction has at most 100 leases and takes no further lease after a second. `conn` must be in no transaction, and
 * its role a member of leasehold_admin or leasehold_coordinator. PQreset restores a broken connection.
 *
 * LH_OK: no reap failed. LH_HOOK_REJECTED: a hook or callback failed for at least one lease; the others are
 * done.
 */
enum lh_status lh_reap_stale(PGconn *conn, const char *const *namespaces, size_t n, bool include_children,
                             lh_reap_cb *callback, void *arg);

/* The end of a lease, or the failure to end it; reported after the commit. */
struct lh_reap_outcome {
    const struct lh_embed_lease *lease;
    bool is_reaped;
    const char *error;      /* the reason of a failure; NULL if it was reaped */
    int32_t reap_failures;  /* so far */
    int64_t next_try_at_us; /* by the database's clock, since 1970; 0: an administrator must act */
};
typedef void lh_reap_outcome_cb(void *arg, const struct lh_reap_outcome *outcome);

struct lh_reap_options {
    const char *const *namespaces;
    size_t namespace_count;
    bool include_children;
    lh_reap_cb *on_lease;           /* NULL: hooks in SQL only */
    lh_reap_outcome_cb *on_outcome; /* may be NULL */
    void *arg;                      /* passed to both */
    int64_t max;                    /* leases reaped or failed in all; default: no limit */
    uint32_t transaction_max;       /* leases in one transaction, 1 to 10,000; default 100 */
    int64_t transaction_us;         /* no further lease in a transaction that is older; default 1 s */
    /* Limit of statements that run neither hook nor callback; default: the session's. */
    int64_t statement_timeout_us;
    /* Limit of on_lease; default: the hook_timeout of the namespace's policy. */
    int64_t limit_us;
    /*
     * A lease that failed before waits for its next try. If its namespace is named it is tried at once, even after the
     * last automatic try. keep_backoff turns that off. A lease that failed after `skip_failed_since_us` (the database's
     * clock, since 1970; default: now) is never tried.
     */
    bool keep_backoff;
    int64_t skip_failed_since_us;
    void *reserved[4];
};

struct lh_reap_counts {
    int64_t reaped;
    int64_t failed;
};

/* Reaps as lh_reap_stale, with all options. LH_OK: see the counts. *counts is set with every status. */
enum lh_status lh_reap_stale_with(PGconn *conn, const struct lh_reap_options *options, struct lh_reap_counts *counts,
                                  struct lh_error *error);

/*
 * A plugin for `leasehold reap --plugin FILE.so` exports this symbol:
 *
 *     const struct lh_reap_plugin leasehold_reap_plugin = {.version = LH_REAP_PLUGIN_VERSION, .on_lease = put_back};
 */
#define LH_REAP_PLUGIN_VERSION 1

struct lh_reap_plugin {
    uint32_t version;
    lh_reap_cb *on_lease;
    void *arg;
    void *reserved[4];
};

#ifdef __cplusplus
}
#endif

#endif
