/* The rows of the fake database: scopes, leases and waiters, and what its rules ask of them. */
#ifndef LH_TESTS_FAKE_SCOPE_H
#define LH_TESTS_FAKE_SCOPE_H

#include "fake_store.h"

bool fake_is_live(const struct fake_world *world, int index); /* the node */
bool fake_is_expired(const struct fake_world *world, const struct fake_scope *scope);
int64_t fake_rests_in_us(const struct fake_world *world, const struct fake_scope *scope); /* 0: it does not rest */
struct fake_row *fake_find_row(struct fake_scope *scope, const struct lh_uuid *lease_key);
void fake_remove_row(struct fake_scope *scope, const struct lh_uuid *lease_key);
/* In the order of the tickets; a ticket of 0: the next one. */
struct fake_row *fake_insert_row(struct fake_world *world, struct fake_scope *scope, struct fake_row new_row);
/* How the lease of this lease key ended here; LH_END_UNSPECIFIED: it did not. */
enum lh_end_reason fake_end_reason(const struct fake_scope *scope, const struct lh_uuid *lease_key);
/* Tell the first live waiter of a scope that nobody holds, at rest or not; true when it is one of this node. */
bool fake_wake_head(struct fake_world *world, int node, const struct fake_scope *scope);
int32_t fake_units_free(const struct fake_world *world, const struct fake_scope *scope);
int32_t fake_holder_count(const struct fake_scope *scope);
/* The exclusive lease, or the oldest shared one; NULL. */
const struct fake_scope *fake_oldest(const struct fake_scope *scope);
struct fake_scope *fake_add_share(struct fake_scope *scope, const struct fake_scope *share); /* with the lowest slots */
void fake_fill_lease(const struct fake_world *world, const struct fake_scope *scope, struct lh_arena *strings,
                     struct lh_held_lease *lease);

#endif
