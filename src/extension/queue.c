/* The queue of a scope: who is live in it, and a place in it. The twins are in migrations/functions/queue.sql. */
#include "core.h"

#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* live_coordinators() in migrations/functions/queue.sql. */
#define LIVE_US INT64CONST(3500000)
/* timestamptz_gt(); fmgroids.h calls it by other names in other versions. */
#define TIMESTAMPTZ_GT 1157

/* By the time: of a coordinator's row there are as many versions as it has given signs of life since the oldest snapshot. */
static void read_live(const struct lh_core_call *call, Snapshot snapshot, struct lh_core_queue *queue)
{
    Relation table = lh_core_table(call->oids->coordinator, AccessShareLock);
    Relation index = index_open(call->oids->coordinator_seen_at, AccessShareLock);
    TupleTableSlot *slot = table_slot_create(table, NULL);
    IndexScanDesc scan = lh_core_beginscan(table, index, snapshot, 1);
    ScanKeyData key;
    int room = 8;

    queue->live = palloc(room * sizeof(pg_uuid_t));
    queue->live_count = 0;
    ScanKeyEntryInitialize(&key, 0, 1, BTGreaterStrategyNumber, TIMESTAMPTZOID, InvalidOid, TIMESTAMPTZ_GT,
                           TimestampTzGetDatum(queue->now - LIVE_US));
    index_rescan(scan, &key, 1, NULL, 0);
    while (index_getnext_slot(scan, ForwardScanDirection, slot)) {
        slot_getallattrs(slot);
        if (queue->live_count == room)
            queue->live = repalloc(queue->live, (room *= 2) * sizeof(pg_uuid_t));
        queue->live[queue->live_count++] = *DatumGetUUIDP(slot->tts_values[0]);
    }
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(slot);
    index_close(index, NoLock);
    table_close(table, NoLock);
}

void lh_core_queue_begin(const struct lh_core_call *call, Relation waiter, Snapshot snapshot, Datum ns, Datum key,
                         TimestampTz now, struct lh_core_queue *queue)
{
    ScanKeyData keys[2];

    queue->now = now;
    queue->index = index_open(call->oids->waiter_pkey, AccessShareLock);
    queue->slot = table_slot_create(waiter, NULL);
    queue->scan = lh_core_beginscan(waiter, queue->index, snapshot, 2);
    lh_core_scope_keys(keys, ns, key);
    index_rescan(queue->scan, keys, 2, NULL, 0);
    read_live(call, snapshot, queue);
}

bool lh_core_queue_next(struct lh_core_queue *queue)
{
    if (!index_getnext_slot(queue->scan, ForwardScanDirection, queue->slot))
        return false;
    slot_getallattrs(queue->slot);
    return true;
}

void lh_core_queue_end(struct lh_core_queue *queue)
{
    index_endscan(queue->scan);
    ExecDropSingleTupleTableSlot(queue->slot);
    index_close(queue->index, NoLock);
    pfree(queue->live);
}

bool lh_core_queue_knows(const struct lh_core_queue *queue, Datum coordinator)
{
    for (int i = 0; i < queue->live_count; i++)
        if (memcmp(&queue->live[i], DatumGetUUIDP(coordinator), UUID_LEN) == 0)
            return true;
    return false;
}

bool lh_core_queue_is_live(const struct lh_core_queue *queue)
{
    const Datum *values = queue->slot->tts_values;
    const bool *nulls = queue->slot->tts_isnull;

    if (!nulls[WAITER_AWAY_UNTIL])
        return false;
    if (!nulls[WAITER_WAIT_UNTIL] && DatumGetTimestampTz(values[WAITER_WAIT_UNTIL]) <= queue->now)
        return false;
    return nulls[WAITER_COORDINATOR] || lh_core_queue_knows(queue, values[WAITER_COORDINATOR]);
}
