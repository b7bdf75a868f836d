/*
 * A hash table with the links inside the objects (chained, grows by doubling). Keys are compared by the caller.
 * The hash is keyed with a secret for each process, so that no client can choose names that collide.
 */
#ifndef LH_BASE_TABLE_H
#define LH_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lh_table_entry {
    struct lh_table_entry *next;
    uint64_t hash;
};

/* Returns true if `entry` has this key. Called only when the hashes are equal. */
typedef bool lh_table_equal(const struct lh_table_entry *entry, const void *key);

struct lh_table {
    struct lh_table_entry **slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t count;
    lh_table_equal *is_equal;
};

void lh_table_init(struct lh_table *table, lh_table_equal *is_equal);
void lh_table_finish(struct lh_table *table); /* the entries stay the caller's */
struct lh_table_entry *lh_table_find(const struct lh_table *table, uint64_t hash, const void *key);
void lh_table_insert(struct lh_table *table, struct lh_table_entry *entry, uint64_t hash);
void lh_table_remove(struct lh_table *table, struct lh_table_entry *entry); /* must be in it */

/* Walk: start with *slot = 0, *next = NULL; the entry returned may be removed before the next call, no other. */
struct lh_table_entry *lh_table_walk(const struct lh_table *table, size_t *slot, struct lh_table_entry **next);

/* A keyed hash (SipHash-1-3, https://www.aumasson.jp/siphash/) of `size` bytes, chained through `seed` (0 to begin). */
uint64_t lh_hash(const void *data, size_t size, uint64_t seed);

#endif
