#include "client/batches_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Tags and lengths of an item, its LeaseRef, its Scope, its strings; and the lease key. */
#define ITEM_BYTES (64 + LH_UUID_TEXT_BYTES)
#define SEGMENT_BYTES 3

static size_t item_bytes(const struct lh_lease *lease)
{
    size_t bytes = ITEM_BYTES + strlen(lease->scope_key) + strlen(lease->declared->text);

    bytes += lease->declared->segment_count * SEGMENT_BYTES;
    if (lease->result != NULL)
        bytes += strlen(lease->result);
    return bytes;
}

bool lh_lease_batch_add(struct lease_batch *batch, struct lh_lease *lease)
{
    size_t bytes = item_bytes(lease);

    if (batch->count == BATCH_ITEMS_MAX || (batch->count > 0 && batch->bytes + bytes > BATCH_BYTES_MAX))
        return false;
    if (batch->count == batch->capacity) {
        batch->capacity = batch->capacity == 0 ? 16 : batch->capacity * 2;
        batch->leases = lh_realloc(batch->leases, batch->capacity, sizeof(batch->leases[0]));
    }
    batch->leases[batch->count++] = lease;
    batch->bytes += bytes;
    return true;
}

void lh_lease_batch_finish(struct lease_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        lh_lease_unref(batch->leases[i]);
    free(batch->leases);
    *batch = (struct lease_batch){0};
}
