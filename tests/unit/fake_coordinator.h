/*
 * A coordinator without a database, for tests of the client: it grants what it is asked for, and does with the next
 * call of each method what the test says. On the test's own loop, over a real socket.
 */
#ifndef LH_TEST_FAKE_COORDINATOR_H
#define LH_TEST_FAKE_COORDINATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/internal.h"
#include "rpc/server.h"

enum fake_verb {
    FAKE_ACQUIRE,
    FAKE_HEARTBEAT,
    FAKE_KEEP_ALIVE,
    FAKE_RELEASE,
    FAKE_DOWNGRADE,
    FAKE_ACQUIRE_ALL,
    FAKE_REFUSE,
    FAKE_VERB_COUNT
};

enum fake_deed {
    FAKE_ANSWER,
    FAKE_KEEP,   /* no answer until fake_let_go */
    FAKE_FAIL,   /* with `status`; LH_OK: as a proxy that has lost the server */
    FAKE_VANISH, /* does it, and the connection breaks before the answer */
    FAKE_UNDO,   /* the connection breaks, and what it did is taken back, as a coordinator does that notices */
};

struct fake_plan {
    enum fake_deed deed;
    unsigned times; /* of the next calls; 0: none */
    enum lh_status status;
};

struct fake {
    struct lh_loop *loop;
    struct lh_rpc_server *server;
    char target[32];

    struct fake_plan plan[FAKE_VERB_COUNT];
    int64_t waited_us; /* of the answers */
    int64_t remaining_us;
    Leasehold__V1__Outcome heartbeat; /* what each lease is told */
    Leasehold__V1__Outcome release;
    Leasehold__V1__EndReason end_reason;
    Leasehold__V1__Mode mode; /* of the lease that it grants */
    int32_t units;
    int32_t slots[8];
    size_t slot_count;
    int64_t downgraded_token; /* of a downgrade's answer, and from when it is set of renewals */

    int64_t hand_over_at_s; /* renewals tell a request of that time; 0: none */
    const char *hand_over_reason;
    bool has_ask_hand_over; /* of the last acquire */
    char refusal[64];       /* words of the last refusal */

    unsigned calls[FAKE_VERB_COUNT];  /* on a stream, messages */
    size_t items[FAKE_VERB_COUNT];    /* of the last one */
    size_t largest_bytes;             /* of any message */
    size_t in_flight, most_in_flight; /* releases */
    char lease_key[64];               /* of the last acquire or downgrade */
    char other_key[64];               /* that all answers name, if it is set */
    Leasehold__V1__Mode asked_mode;   /* likewise */
    int32_t asked_units;              /* likewise */
    char ended_key[64];               /* an acquire with that is refused, LEASE_ENDED */
    int64_t wait_us;                  /* of the last acquire */
    int64_t timeout_us;               /* grpc-timeout of the last call; INT64_MAX: none */
    char asked_scopes[256];           /* of the last AcquireAll: "key" or "key*units", with commas between */
    char lost[32];                    /* renewals of that key are told LOST */
    char locked[32];                  /* renewals of that key are kept, with all that came with them */
    struct lh_rpc_call *kept[64];
    bool is_locked;
    size_t lost_at; /* of the last renewals; SIZE_MAX: nowhere */
    size_t kept_count;
};

void fake_init(struct fake *fake, struct lh_loop *loop);
void fake_finish(struct fake *fake);
void fake_let_go(struct fake *fake);       /* answers all calls that were kept */
void fake_break(struct fake *fake);        /* every connection, and listens again */
void fake_listen_again(struct fake *fake); /* its server was destroyed */
void fake_next(struct fake *fake, enum fake_verb verb, enum fake_deed deed, unsigned times, enum lh_status status);

#endif
