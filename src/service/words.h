/*
 * The sentences for people about a lease that somebody else has:
 *
 *     lease payments/invoice-42 is held by worker-3, alive: 12 heartbeats, the last 0.8 s ago; held for 35 s
 *
 * Keys are cut at 128 bytes, owners too. `text` always ends in NUL.
 */
#ifndef LH_SERVICE_WORDS_H
#define LH_SERVICE_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "lease/types.h"

#define LH_WORDS_BYTES 1024
#define LH_WORDS_NAME_MAX_BYTES 128

/* A name as it is shown: at most 128 bytes, "..." where it was cut. */
#define LH_WORDS_NAME_BYTES (LH_WORDS_NAME_MAX_BYTES + 4)
const char *lh_words_name(const char *name, char text[LH_WORDS_NAME_BYTES]);

/* Who has it. `contention` may be NULL when that is not known. */
void lh_words_held(const char *ns, const char *key, const struct lh_contention *contention, char text[LH_WORDS_BYTES]);

/* The wait has passed: who has it, and what can be done about it. */
void lh_words_wait_timeout(const char *ns, const char *key, int64_t wait_us, const struct lh_contention *contention,
                           char text[LH_WORDS_BYTES]);

/* Why nobody gets it now: the namespace is frozen or has used up its quota, the row is locked, the lease key has ended.
   Other statuses are told in their general words. `bound` may be NULL. */
void lh_words_refused(enum lh_status status, const char *ns, const char *key, const char *bound,
                      char text[LH_WORDS_BYTES]);

/* The server's blocking limit has passed first: what to do. */
void lh_words_blocking_timeout(const char *ns, const char *key, int64_t max_block_us,
                               const struct lh_contention *contention, char text[LH_WORDS_BYTES]);

#endif
