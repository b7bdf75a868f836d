/*
 * Readiness: can this daemon do its work, and if not, why. The same judgement serves /readyz, gRPC health, GetStatus
 * and the errors of calls that are refused because of it.
 */
#ifndef LH_LEASE_READINESS_H
#define LH_LEASE_READINESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "lease/store.h"

struct lh_coordinator;

#define LH_READY_WITHIN_US INT64_C(5000000)
#define LH_READY_WORDS_BYTES 768
#define LH_READY_CAUSE_BYTES 192

struct lh_readiness {
    bool is_ready;
    /* The server it works with, or why it is not ready; for operators. */
    char words[LH_READY_WORDS_BYTES];
    /* A fault in the database that does not stop the work, or ""; for operators. */
    char warning[LH_READY_WORDS_BYTES];
    /* Reason that the database cannot be used, for clients: it names no host and no role. "": no cause is known. */
    char cause[LH_READY_CAUSE_BYTES];
};

struct lh_ready_facts {
    const char *phase;             /* before the start: the step it waits for. Else NULL */
    struct lh_server_facts server; /* the store's knowledge of the server */
    const char *refusal;           /* error of the last registration or tick if it failed, or NULL */
    bool is_registered;
    bool is_connected;
    bool lacks_lanes;     /* no lane for several seconds, or since the database came back */
    const char *lacks;    /* words about data that has to be read first, or NULL */
    int64_t last_tick_us; /* 0: never */
    int64_t now_us;
};

void lh_ready_judge(const struct lh_ready_facts *facts, struct lh_readiness *readiness);

void lh_coordinator_readiness(const struct lh_coordinator *coordinator, struct lh_readiness *readiness);

/* Sets, before the start, the step that the daemon waits for (a literal) and the error of its last attempt; both may
   be NULL. */
void lh_coordinator_set_phase(struct lh_coordinator *coordinator, const char *phase, const char *trouble,
                              const char *cause);

/* Says why a database that works does not serve yet (a literal); NULL: it does. */
void lh_coordinator_set_lack(struct lh_coordinator *coordinator, const char *lack);

/* --- for the other files of src/lease --- */

/* Returns LH_OK while calls are taken: DATABASE_UNAVAILABLE before the start, SHUTTING_DOWN after the stop began. */
enum lh_status lh_readiness_of_life(const struct lh_coordinator *c);

/* Returns true if callers should not wait for the database: it has not answered for several seconds, refuses this
   daemon, or needs an administrator first. */
bool lh_readiness_is_given_up(const struct lh_coordinator *c);

#endif
