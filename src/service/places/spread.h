/*
 * Which of several databases has a key. A key has a slot, and each slot goes to the database whose name gives the largest
 * number with it (rendezvous hashing): one more database takes its share from all others, and moves nothing between
 * them. In SQL the slot of a key is
 *
 *     ('x' || substr(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 1, 3))::bit(12)::int
 *
 * and its database the first by sha256(convert_to(name || ' ' || slot, 'UTF8')) desc. Leases are where an older release
 * put them, so neither may change.
 *
 *     spread = lh_spread_create(names, count);
 *     name = names[lh_spread_find(spread, "invoice-42")];
 */
#ifndef LH_SERVICE_SPREAD_H
#define LH_SERVICE_SPREAD_H

#include <stddef.h>

struct lh_spread;

/* Names are read here only; their order does not matter. 1 to 255 of them. */
struct lh_spread *lh_spread_create(const char *const *names, size_t count);
void lh_spread_destroy(struct lh_spread *spread); /* NULL does nothing */
/* Returns the index of a name. */
size_t lh_spread_find(const struct lh_spread *spread, const char *key);

#endif
