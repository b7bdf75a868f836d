/*
 * The soak: sessions that acquire, wait, guard, release and die on two hot scopes, all through SQL; and now and then
 * on four cool ones, whose rows come and go. Half of the requests are shared, for 1 to 3 units; three of the scopes have a
 * capacity of 3. Exclusive leases are made shared at times. Every sixth request is for three scopes at once. Every third of the others has a
 * priority. SQL users ask holders to hand over, and hear of it.
 *
 * Each actor is a thread with a connection of its own. What happened is written by soak.sql, in the transaction in
 * which it happened; these files only decide what to do next, from a seed. A calm run has no kills, no reaper and no
 * polling: a waiter asks again only when it is told to, so that one lost wake-up stops everything and is seen. A rough
 * run has all of that, and dying coordinators.
 */
#ifndef LH_SOAK_H
#define LH_SOAK_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#define SCOPES 6
#define UNITS_MAX 3 /* the capacity */
#define PRIORITY_MAX 3
#define ITEMS_MAX 3
#define UUID_SIZE 37

struct soak {
    bool is_calm;
    bool has_coordinators; /* without one nobody passes on what a release in an old snapshot could not tell */
    uint64_t seed;
    volatile bool is_stopping; /* no new requests; what waits is served */
    volatile bool has_failed;
    volatile uint64_t progress; /* grants and goodbyes: when it stands still for long, somebody was forgotten */
    volatile int running;
};

enum outcome {
    DONE,
    AGAIN,    /* a serialization failure or a cancelled statement: rolled back */
    LOST,     /* LH001 */
    BROKEN,   /* the connection is gone, and with it everything this actor knew */
    SOAK_BUG, /* anything else: said on stderr, and the soak has failed */
};

struct actor {
    struct soak *soak;
    int number;
    uint64_t random;
    PGconn *conn;
    PGresult *result;         /* of the last statement */
    volatile int backend_pid; /* whom the killer may end; 0: nobody */
    uint64_t grants, waits, gave_up, retries;
};

extern const char *const scope_names[SCOPES];

uint64_t dice(struct actor *actor, uint64_t sides);
/* What a request is for: mostly one scope, or ITEMS_MAX different ones; its units, 0: exclusive. Returns how many. */
struct item {
    int scope;
    int units;
};
int pick_items(struct actor *actor, struct item items[ITEMS_MAX]);
int pick_priority(struct actor *actor); /* of a request for one scope */
const char *units_text(int units);      /* for SQL: null or the number */
void make_uuid(struct actor *actor, char uuid[UUID_SIZE]);
int64_t now_ms(void);
void sleep_ms(int64_t ms);

bool actor_connect(struct actor *actor);
enum outcome run(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool answer_is(const struct actor *actor, const char *text);
/* Wait for a notification; true when there was one. Its payload goes to `payload` (size bytes). */
bool wait_for_notify(struct actor *actor, int64_t ms, char *payload, size_t size);

void *user_main(void *actor);        /* user.c: a SQL user with acquire, join_queue, guard */
void *coordinator_main(void *actor); /* coordinator.c: a daemon's batches */

#endif
