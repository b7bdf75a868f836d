/*
 * Which of several databases has a key. A key has a slot; in SQL it is
 *
 *     ('x' || substr(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 1, 3))::bit(12)::int
 *
 * Each database has a row of leasehold.spread that says which slots it has. At first each slot goes to the database whose
 * name gives the largest number with it (rendezvous hashing), the first by sha256(convert_to(name || ' ' || slot, 'UTF8'))
 * desc: that is what a claim asks for. Leases are where an older release put them, so neither may change.
 *
 * A claim has two steps, because two daemons with different sections may claim at the same time. First each database gets a
 * row with the sections' names and no slots, in the order of names. Only when all have a row of the same sections do they
 * get their slots. So a daemon that another one was quicker than leaves no slots behind.
 *
 *     spread = lh_spread_create(names, count);
 *     lh_spread_set_row(spread, i, &row);                        of each database, and again at each change
 *     place = lh_spread_find(spread, "invoice-42");
 *     if (place.state == LH_SPREAD_SERVED) ... names[place.of]
 */
#ifndef LH_SERVICE_SPREAD_H
#define LH_SERVICE_SPREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LH_SPREAD_SLOTS 4096

struct lh_spread;
struct lh_spread_row;

enum lh_spread_state {
    LH_SPREAD_SERVED,    /* one database has the slot */
    LH_SPREAD_UNREAD,    /* no row has it, and that of `other` was not read yet */
    LH_SPREAD_UNCLAIMED, /* `of` has no slots yet; the row of `other` keeps it from being claimed, if there is one */
    LH_SPREAD_SEVERAL,   /* `of` and `other` have it */
    LH_SPREAD_MOVING,    /* no row has it; `of` had it last */
    LH_SPREAD_MISSING,   /* no row has it, and it is not known who had */
};

struct lh_spread_place {
    enum lh_spread_state state;
    size_t of;    /* index of the name that calls about an old lease go to */
    size_t other; /* see above; else the number of names */
};

/* Names are copied; claims are made in their order. 1 to 255 of them. */
struct lh_spread *lh_spread_create(const char *const *names, size_t count);
void lh_spread_destroy(struct lh_spread *spread); /* NULL does nothing */

/* Takes what another one knows of the databases that both have. */
void lh_spread_adopt(struct lh_spread *spread, const struct lh_spread *before);

/* Takes what a database says of the namespace; NULL: it has no row. Returns false if nothing has changed. */
bool lh_spread_set_row(struct lh_spread *spread, size_t index, const struct lh_spread_row *row);
bool lh_spread_is_read(const struct lh_spread *spread, size_t index);
/* Returns NULL if it has no row, or was not read yet. */
const struct lh_spread_row *lh_spread_row(const struct lh_spread *spread, size_t index);

struct lh_spread_place lh_spread_find(const struct lh_spread *spread, const char *key);

/* Returns the index of the next database to claim, or the number of names. `settles`: it gets its slots. */
size_t lh_spread_next_claim(const struct lh_spread *spread, bool *settles);

/* Returns the index of the database that a claim gives the slot. */
size_t lh_spread_first(const struct lh_spread *spread, unsigned slot);
bool lh_spread_has(const struct lh_spread *spread, enum lh_spread_state state); /* returns true if a slot is so */
/* Returns true if leases may be on their way between databases, or in one that this daemon does not have. */
bool lh_spread_lacks_leases(const struct lh_spread *spread);
/* Counts the slots that came to another database. */
uint64_t lh_spread_moves(const struct lh_spread *spread);

/* The number of slots that only this database has; behind the last name, of those that none or several have. */
size_t lh_spread_count(const struct lh_spread *spread, size_t index);

#endif
