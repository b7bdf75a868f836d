/*
 * The benchmark's driver: one process, one event loop, the same workloads against each peer.
 *
 *     drive pairs leasehold 127.0.0.1:7420 --clients 256 --connections 16 --seconds 5
 *
 * A workload (workload_*.c) says what to ask for and when; a peer (peer_*.c) says it in its protocol, checks the reply,
 * and answers in the drive's on_* callbacks. An answer that is not what the workload must get ends the run, status 1.
 */
#ifndef LH_BENCH_DRIVE_H
#define LH_BENCH_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/loop.h"

struct drive;

/* A name to lease, or one of many who want the same name. Its credential follows from run, number and generation. */
struct slot {
    struct drive *drive;
    uint32_t number;
    uint32_t generation; /* counts its acquisitions */
    int64_t started_us;
    int64_t token;    /* a number that the peer orders grants by; 0: it has none */
    char *credential; /* where the peer gives one out; freed by the peer */
    void *lease;      /* what the peer has of it */
};

/* Leases to renew together: slots first .. first + count - 1. */
struct batch {
    struct drive *drive;
    uint32_t lane;
    size_t first, count, answered;
    int64_t started_us;
};

struct peer {
    const char *name;
    void (*open)(struct drive *drive); /* drive->channels connections; comes back when they work */
    void (*acquire)(struct slot *slot, bool wait);
    void (*release)(struct slot *slot);
    void (*renew)(struct batch *batch);
    /* Until so many wait for a lease; may be NULL: a time has to do. */
    void (*await_waiters)(struct drive *drive, size_t waiters);
    void (*finish)(struct drive *drive); /* what was given back, but is not answered yet; may be NULL */
};

struct drive {
    struct lh_loop *loop;
    const struct peer *peer;
    void *state; /* the peer's */
    const char *target;
    size_t clients, channels, leases, batch, rounds;
    size_t units, capacity; /* shared leases of so many units, of a scope of so many; 0: exclusive, no capacity */
    size_t holders;         /* of the name that is handed over: it stays with them */
    int64_t duration_s, every_s, grace_s;
    int64_t warmup_us, measure_us;
    bool is_batched; /* releases that are due together go together */
    bool is_kept;    /* what may outlive an acquisition does (etcd: the lease) */
    bool is_stream;  /* renew by a stream */
    bool is_hot;     /* one name for all slots */
    bool is_fresh;   /* a name that was never used before, each time */
    bool is_lasting; /* names of this run alone: its leases may outlive it */
    bool is_patient; /* open() tries until the server is there */
    bool is_over;
    char ns[32];  /* the namespace: bench, or with a number behind it */
    uint32_t run; /* a number that tells this run's credentials from others */
    struct slot *slots;
    size_t slot_count;
    size_t uncounted; /* leases that the peer took for itself */
    void (*on_acquired)(struct slot *slot);
    void (*on_released)(struct slot *slot);
    void (*on_renewed)(struct batch *batch);
    struct samples *samples;
};

#define DRIVE_KEY_BYTES 32
#define DRIVE_CREDENTIAL_BYTES 40

extern const struct peer peer_leasehold, peer_library, peer_etcd, peer_redis, peer_zookeeper;

void workload_pairs(struct drive *drive);
void workload_handoff(struct drive *drive);
void workload_expiry(struct drive *drive);
void workload_heartbeats(struct drive *drive);
void workload_steady(struct drive *drive);
void workload_fill(struct drive *drive);
void workload_waiters(struct drive *drive);
void workload_connections(struct drive *drive);
void workload_first(struct drive *drive);

/* Ends the process: what was measured is not what it should be. */
_Noreturn void drive_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

void drive_make_slots(struct drive *drive, size_t count);
void drive_key(const struct slot *slot, char key[DRIVE_KEY_BYTES]);
void drive_credential(const struct slot *slot, char text[DRIVE_CREDENTIAL_BYTES]); /* a UUID */
void drive_run_for(struct drive *drive, int64_t us);
void drive_run_until(struct drive *drive, bool *is_true, int64_t limit_us, const char *what);
/* Acquires every slot, `window` at a time. */
void drive_acquire_all(struct drive *drive, size_t window);
/* Says READY on stdout and waits for a line on stdin, while the loop goes on. */
void drive_pause(struct drive *drive);

#endif
