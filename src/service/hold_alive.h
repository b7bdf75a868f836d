/*
 * Signs of life at both ends of a Hold stream.
 *
 * A proxy answers PINGs in place of its clients, so a client proves that it lives by `alive` on the stream, which a
 * proxy never sends by itself. If by_ping is set, the answer to a PING is enough. A proxy also ends a stream on which
 * no message is sent for some time: to a client that sends `alive` we send `alive` when there is no other message.
 */
#ifndef LH_SERVICE_HOLD_ALIVE_H
#define LH_SERVICE_HOLD_ALIVE_H

#include "service/hold_internal.h"

void lh_hold_note_alive(struct hold *hold, int64_t sequence);
/* Returns true if the client has proved since the last renewal was sent that it lives, or if by_ping is set; false
   while it does not read, because it could not be told of a renewal. */
bool lh_hold_has_proof(const struct hold *hold);
/* Returns true for a client that waits, has sent `alive` before, and is silent now. */
bool lh_hold_is_silent(const struct hold *hold);
/* Sets the time of the next look at the lease, replacing the one before, and the alarm at or before it. */
void lh_hold_look_at(struct hold *hold, int64_t at_us);
/* Handles its alarm: sends `alive` if it is time, and arms the alarm again. */
void lh_hold_ring(struct hold *hold);
/* Returns true if a proxy has said that it is there: then the proxy may have ended the stream, or the client's half
   of it, and the client works on. */
bool lh_hold_has_proxy(const struct hold *hold);

#endif
