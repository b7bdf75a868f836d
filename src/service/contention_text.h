/*
 * Sentences for people about a lease that another holds:
 *
 *     lease payments/invoice-42 is held by worker-3, alive: 12 heartbeats, the last 0.8 s ago; held for 35 s
 *
 * Keys are cut at 128 bytes, owners too. `text` always ends in NUL.
 */
#ifndef LH_SERVICE_CONTENTION_TEXT_H
#define LH_SERVICE_CONTENTION_TEXT_H

#include <stdint.h>

#include "lease/types.h"

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
