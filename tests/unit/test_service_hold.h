/* One Hold stream of the tests, and what its client and its coordinator say. */
#ifndef LH_TEST_SERVICE_HOLD_H
#define LH_TEST_SERVICE_HOLD_H

#include "service/streams_internal.h"
#include "test_service_methods.h"

extern struct lh_rpc_call *call;
extern bool asks_by_ping;
extern int32_t lease_units; /* of the lease that is held; 0: exclusive */

void open_stream(void);
struct lh_held_lease lease_for(int64_t remaining_us);
/* Held with so much left of 30 s: a renewal is due at 20. In silence: its client has said nothing since. */
void hold(int64_t remaining_us);
void hold_in_silence(int64_t remaining_us);
struct hold *held(void);
void ring(void);

void send_alive(int64_t sequence);
void answer_ping(void);
void answer_heartbeat(enum lh_outcome outcome, int64_t remaining_us);
Leasehold__V1__HoldEvent *event(void); /* the last that was sent */

#endif
