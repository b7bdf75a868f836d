/* Facts in the words and messages of an answer. Private to src/service. */
#ifndef LH_SERVICE_WORDS_INTERNAL_H
#define LH_SERVICE_WORDS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "lease/types.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "json/row_message.h"

/* --- json --- */

/* Conversions between JSON and messages: labels, and the check of a release's result. */

/* Returns {"name":"value",...} in the arena; {} without labels. */
const char *lh_json_from_labels(Leasehold__V1__AcquireRequest__LabelsEntry *const *labels, size_t count,
                                struct lh_arena *arena);

/* Reads the entries of a JSON object of strings into the arena and returns their number; members of other types are
   left out. */
size_t lh_json_to_labels(const char *json, struct lh_arena *arena, Leasehold__V1__Lease__LabelsEntry ***labels);

/* Returns NULL if jsonb takes `text`, else the fault (in the arena). Numbers beyond numeric's range pass, because
   only the database can check that. */
const char *lh_json_problem(const char *text, struct lh_arena *arena);

/* --- message --- */

/* Facts of the coordinator and the store, as messages in an arena. Strings are borrowed: they must live until the
   message is packed. */

/* The parts of a lease that go into a message. */
enum lh_lease_parts {
    LH_LEASE_PUBLIC = 0,
    LH_LEASE_WITH_KEY = 1, /* the receiver is its holder */
    /* Without labels and slots, and with the first words of a request to hand over: in the details of an error. */
    LH_LEASE_SHORT = 2,
};

Leasehold__V1__Lease *lh_message_lease(const struct lh_held_lease *lease, unsigned parts, struct lh_arena *arena);
Leasehold__V1__HandOver *lh_message_hand_over(const struct lh_hand_over *asked, struct lh_arena *arena);
Leasehold__V1__Contention *lh_message_contention(const struct lh_contention *contention, struct lh_arena *arena);

/* Limit of the words of the database or a hook within an item of a batch. */
#define LH_ITEM_MESSAGE_MAX_BYTES 256
/* Copies a message to the arena, cut at that limit; NULL for NULL. */
char *lh_message_cut(const char *message, struct lh_arena *arena);

/* Packs into the arena and returns the size. */
size_t lh_message_pack(const ProtobufCMessage *message, struct lh_arena *arena, const void **data);

/* --- page token --- */

/*
 * Page tokens: the place where the page before ended, opaque to clients. A token carries its version, the kind of list,
 * and a checksum over these and the filters, so that one that was cut, edited or used with other filters is refused. It
 * is no secret and holds no authority: forging one only starts a page elsewhere.
 */

enum lh_page_kind {
    LH_PAGE_LEASES = 1,
    LH_PAGE_POLICIES,
    LH_PAGE_RULES,
    LH_PAGE_TOKENS,
    LH_PAGE_VIEW = 16 /* plus the number of the view */
};

/* Returns a hash of the request's filters, chained through `seed` (0 to begin). It is the same in every daemon. */
uint64_t lh_page_filter(uint64_t seed, const char *text);

/* Make a token in the arena, and read one. The reader returns false for a token that is not valid for this kind and
   filter. */
char *lh_page_token_make(enum lh_page_kind kind, uint64_t filter, const char *ns, const char *key,
                         struct lh_arena *arena);
bool lh_page_token_parse(const char *token, enum lh_page_kind kind, uint64_t filter, struct lh_arena *arena,
                         const char **ns, const char **key);

/* --- contention text --- */

/*
 * Sentences for people about a lease that another holds:
 *
 *     lease payments/invoice-42 is held by worker-3, alive: 12 heartbeats, the last 0.8 s ago; held for 35 s
 *
 * Keys are cut at 128 bytes, owners too. `text` always ends in NUL.
 */

#define LH_CONTENTION_TEXT_BYTES 1024
#define LH_CONTENTION_NAME_MAX_BYTES 128

/* Returns a name as people see it: at most 128 bytes, with "..." if it was cut. */
#define LH_CONTENTION_NAME_BYTES (LH_CONTENTION_NAME_MAX_BYTES + 4)
const char *lh_contention_name(const char *name, char text[LH_CONTENTION_NAME_BYTES]);

/* Writes the words about the holder. `contention` is NULL where the holder is unknown. */
void lh_contention_held(const char *ns, const char *key, const struct lh_contention *contention,
                        char text[LH_CONTENTION_TEXT_BYTES]);

/* Writes that the wait has passed: the holder, and advice. */
void lh_contention_wait_timeout(const char *ns, const char *key, int64_t wait_us,
                                const struct lh_contention *contention, char text[LH_CONTENTION_TEXT_BYTES]);

/* Writes the reason of a refusal: the namespace is frozen or has used up its quota, the row is locked, the lease key
   has ended. Other statuses have their general words. `bound` may be NULL. */
void lh_contention_refused(enum lh_status status, const char *ns, const char *key, const char *bound,
                           char text[LH_CONTENTION_TEXT_BYTES]);

/* Writes that the server's blocking limit has passed first, and advice. */
void lh_contention_blocking_timeout(const char *ns, const char *key, int64_t max_block_us,
                                    const struct lh_contention *contention, char text[LH_CONTENTION_TEXT_BYTES]);

#endif
