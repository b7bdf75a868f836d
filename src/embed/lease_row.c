#include "embed/lease_row.h"

#include <stdio.h>
#include <string.h>

/* Of a row of leasehold.lease called l. */
const char lh_embed_columns[] =
    " l.namespace, l.key, l.lease_key, l.token, l.owner, l.principal, l.labels, l.heartbeats,"
    " (extract(epoch from l.duration) * 1000000)::bigint as duration_us,"
    " (extract(epoch from l.grace) * 1000000)::bigint as grace_us,"
    " (extract(epoch from l.acquired_at) * 1000000)::bigint as acquired_at_us,"
    " (extract(epoch from l.heartbeat_at) * 1000000)::bigint as heartbeat_at_us,"
    " (extract(epoch from l.deadline) * 1000000)::bigint as deadline_at_us";
const char lh_embed_share_columns[] = ", l.mode, l.units, l.slots[1] as slot";

static void copy_text(char *to, size_t size, const PGresult *result, int row, const char *column)
{
    const char *text = lh_query_text(result, row, column);
    snprintf(to, size, "%s", text != NULL ? text : "");
}

void lh_lease_of_row(struct lh_embed_lease *lease, const PGresult *result, int row)
{
    const char *mode = lh_query_text(result, row, "mode");

    *lease = (struct lh_embed_lease){
        .mode = mode != NULL && strcmp(mode, "shared") == 0 ? LH_SHARED : LH_EXCLUSIVE,
        .units = (int32_t)lh_query_number(result, row, "units", 0),
        .slot = (int32_t)lh_query_number(result, row, "slot", 0),
        .principal = lh_query_text(result, row, "principal"),
        .labels = lh_query_text(result, row, "labels"),
        .token = lh_query_number(result, row, "token", 0),
        .heartbeats = lh_query_number(result, row, "heartbeats", 0),
        .duration_us = lh_query_number(result, row, "duration_us", 0),
        .grace_us = lh_query_number(result, row, "grace_us", 0),
        .acquired_at_us = lh_query_number(result, row, "acquired_at_us", 0),
        .heartbeat_at_us = lh_query_number(result, row, "heartbeat_at_us", 0),
        .deadline_at_us = lh_query_number(result, row, "deadline_at_us", 0),
    };
    copy_text(lease->namespace_text, sizeof(lease->namespace_text), result, row, "namespace");
    copy_text(lease->key, sizeof(lease->key), result, row, "key");
    copy_text(lease->lease_key, sizeof(lease->lease_key), result, row, "lease_key");
    copy_text(lease->owner, sizeof(lease->owner), result, row, "owner");
}
