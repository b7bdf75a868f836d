/* Facts of the coordinator and the store, as messages in an arena. Strings are borrowed: they must live until the
   message is packed. */
#ifndef LH_SERVICE_MESSAGE_H
#define LH_SERVICE_MESSAGE_H

#include <stdint.h>

#include "base/memory.h"
#include "lease/types.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "json/row_message.h"

/* The parts of a lease that go into a message. */
enum lh_lease_parts {
    LH_LEASE_PUBLIC = 0,
    LH_LEASE_WITH_KEY = 1, /* the receiver is its holder */
    LH_LEASE_SHORT = 2,    /* without labels and slots: in the details of an error */
};

Leasehold__V1__Lease *lh_message_lease(const struct lh_held_lease *lease, unsigned parts, struct lh_arena *arena);
Leasehold__V1__Contention *lh_message_contention(const struct lh_contention *contention, struct lh_arena *arena);

/* Limit of the words of the database or a hook within an item of a batch. */
#define LH_ITEM_MESSAGE_MAX_BYTES 256
/* Copies a message to the arena, cut at that limit; NULL for NULL. */
char *lh_message_cut(const char *message, struct lh_arena *arena);

/* Packs into the arena and returns the size. */
size_t lh_message_pack(const ProtobufCMessage *message, struct lh_arena *arena, const void **data);

#endif
