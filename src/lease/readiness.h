/*
 * Whether this daemon can do its work, and if not, why. One judgement, for /readyz, gRPC health, GetStatus and the
 * words of each call that is refused for it.
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
    char words[LH_READY_WORDS_BYTES];   /* which server it works with, or why it is not ready: for those who run it */
    char warning[LH_READY_WORDS_BYTES]; /* what is wrong in the database though it works, or "": for those who run it */
    char cause[LH_READY_CAUSE_BYTES];   /* why the database cannot be used, for clients: it names no host and no role.
                                         "": nothing is known but that */
};

struct lh_ready_facts {
    const char *phase;             /* before it was started: what is waited for. Else NULL */
    struct lh_server_facts server; /* what the store knows */
    const char *refusal;           /* what the database answered to a registration or tick that failed, or NULL */
    bool is_registered;
    bool is_connected;
    bool lacks_lanes;     /* for several seconds, or since the database came back */
    bool lacks_rules;     /* access rules are needed and not loaded yet */
    int64_t last_tick_us; /* 0: none yet */
    int64_t now_us;
};

void lh_ready_judge(const struct lh_ready_facts *facts, struct lh_readiness *readiness);

void lh_coordinator_readiness(const struct lh_coordinator *coordinator, struct lh_readiness *readiness);

/* Until it is started: what is waited for (a literal), and what the last attempt met; both are NULL where there is
   nothing to say. */
void lh_coordinator_set_phase(struct lh_coordinator *coordinator, const char *phase, const char *trouble,
                              const char *cause);

/* --- for the other files of src/lease --- */

/* LH_OK where calls are taken: not before the start, and not any more when it stops. */
enum lh_status lh_readiness_of_life(const struct lh_coordinator *c);

/* No caller waits for a database that has not answered for several seconds, refuses this daemon, or needs a person
   first. */
bool lh_readiness_is_given_up(const struct lh_coordinator *c);

#endif
