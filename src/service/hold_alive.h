/*
 * Who is there at both ends of a Hold stream.
 *
 * A proxy answers PINGs for its clients, so a client proves that it lives by `alive` on the stream, which no proxy says
 * for it. Where by_ping is set, a PING's answer is enough. And a proxy ends a stream on which nothing is sent for some
 * time: a client that says `alive` hears `alive` from us when there was nothing else to say.
 */
#ifndef LH_SERVICE_HOLD_ALIVE_H
#define LH_SERVICE_HOLD_ALIVE_H

#include "service/hold_internal.h"

void lh_hold_note_alive(struct hold *hold, int64_t sequence);
/* May it be renewed, as far as its client is concerned? The proof is used up by the renewal. */
bool lh_hold_has_proof(const struct hold *hold);
/* Of a client that waits, and has said `alive` before. */
bool lh_hold_is_silent(const struct hold *hold);
/* Look at it then, and not later. */
void lh_hold_look_at(struct hold *hold, int64_t at_us);
/* Its alarm has rung: says `alive` if it is time, and arms the alarm anew. */
void lh_hold_ring(struct hold *hold);
/* A proxy says that it is there: then it may be what ended the stream, or its client's half, and the client works on. */
bool lh_hold_has_proxy(const struct hold *hold);

#endif
