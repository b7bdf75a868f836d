/* The states of a Hold stream, as hold_internal.h draws them; finding the stream that holds a lease; the end of its
   memory. */
#include "service/streams_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- by lease --- */

static uint64_t hash_of(const struct hold *hold)
{
    return lh_hash(hold->acquire.lease_key.bytes, sizeof(hold->acquire.lease_key.bytes), 0);
}

static bool is_same_lease(const struct lh_table_entry *entry, const void *key)
{
    const struct hold *hold = LH_CONTAINER(const struct hold, by_lease, entry), *other = key;
    return lh_uuid_equal(&hold->acquire.lease_key, &other->acquire.lease_key) &&
           strcmp(hold->acquire.key, other->acquire.key) == 0 && strcmp(hold->acquire.ns, other->acquire.ns) == 0;
}

void lh_hold_start(struct lh_service *service)
{
    lh_table_init(&service->holds, is_same_lease);
    lh_list_init(&service->hold_list);
}

void lh_hold_finish(struct lh_service *service)
{
    lh_table_finish(&service->holds);
}

struct hold *lh_hold_find(const struct lh_service *service, const char *ns, const char *key, struct lh_uuid lease_key)
{
    const struct hold wanted = {.acquire = {.ns = ns, .key = key, .lease_key = lease_key}};
    struct lh_table_entry *entry = lh_table_find(&service->holds, hash_of(&wanted), &wanted);

    return entry == NULL ? NULL : LH_CONTAINER(struct hold, by_lease, entry);
}

/* --- state and end --- */

#define TO(state) (1u << HOLD_##state)

/* As hold_internal.h draws them. What is over stays so when its stream ends. */
static const unsigned legal_moves[] = {
    [HOLD_NEW] = TO(WAITING) | TO(OVER),
    [HOLD_WAITING] = TO(HELD) | TO(OVER),
    [HOLD_HELD] = TO(RELEASING) | TO(OVER),
    [HOLD_RELEASING] = TO(OVER),
    [HOLD_OVER] = TO(OVER),
};

void lh_hold_set_state(struct hold *hold, enum hold_state state)
{
    assert(legal_moves[hold->state] & (1u << state));
    if (hold->state == HOLD_HELD)
        lh_table_remove(&hold->service->holds, &hold->by_lease);
    if (state == HOLD_HELD)
        lh_table_insert(&hold->service->holds, &hold->by_lease, hash_of(hold));
    hold->state = state;
}

void lh_hold_leave(struct hold *hold)
{
    if (--hold->users > 0)
        return;
    lh_access_leave(&hold->who);
    free(hold->strings);
    free(hold->slots);
    free(hold->principal);
    free(hold->release_value);
    free(hold);
}
