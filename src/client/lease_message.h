/* Leases in messages: packing them into requests, and reading the end of a lease from answers. */
#ifndef LH_CLIENT_LEASE_MESSAGE_H
#define LH_CLIENT_LEASE_MESSAGE_H

#include "base/memory.h"
#include "base/status.h"
#include "client/lease.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* Returns the server's words, or words for the reason if it gave none. */
const char *lh_lost_words(enum lh_lost_reason reason, const char *words);
enum lh_lost_reason lh_lost_reason_of(Leasehold__V1__EndReason reason);
/* Returns the status of an item of a batch; LH_UNAVAILABLE: it was not done, and may be tried again. */
enum lh_status lh_status_of_outcome(Leasehold__V1__Outcome outcome);
/* Returns the status of a release. A repetition finds its own work done: with `may_be_done`, an attempt that had no
   verdict, a lease that ended as this release ends it is LH_OK. */
enum lh_status lh_status_of_release(const Leasehold__V1__ReleaseResult *result, bool may_be_done, bool is_failure);

/* Reads a grant from a message, in memory of its own. */
struct lease_grant *lh_unpack_grant(const Leasehold__V1__Lease *lease);

/* Pack into the arena; the messages borrow strings of the lease and its declaration. */
Leasehold__V1__Scope *lh_pack_scope(const struct lh_declared *declared, const char *key, struct lh_arena *arena);
Leasehold__V1__LeaseRef *lh_pack_lease_ref(const struct lh_lease *lease, struct lh_arena *arena);
Google__Protobuf__Duration *lh_pack_duration(int64_t duration_us, struct lh_arena *arena);
int64_t lh_unpack_duration_us(const Google__Protobuf__Duration *duration);

/* Appends the message. */
void lh_pack_message(const ProtobufCMessage *message, struct lh_buffer *buffer);
void lh_heartbeat_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *buffer);
void lh_release_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *buffer);

#endif
