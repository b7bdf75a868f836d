/* Owners and rights in the schemas: what a restore without them changes (migrations/runner/privileges.sql), and putting it right. */
#ifndef LH_PG_MIGRATE_PRIVILEGES_H
#define LH_PG_MIGRATE_PRIVILEGES_H

#include <libpq-fe.h>
#include <stddef.h>

#include "base/status.h"

struct lh_migrate_session;

#define LH_PRIVILEGES_BYTES 384

/* What the query found, in one sentence; "": nothing is wrong. */
void lh_privileges_describe(const PGresult *result, char words[LH_PRIVILEGES_BYTES]);

/* The same for a set's `privileges_sql`. "" too where it cannot be asked. */
void lh_migrate_look_at_privileges(struct lh_migrate_session *session, const char *query,
                                   char words[LH_PRIVILEGES_BYTES]);

/* In a transaction, as the installer; afterwards the role is leasehold_owner. Adds to `count` how many were put right. */
enum lh_status lh_migrate_repair_privileges(struct lh_migrate_session *session, const char *query, size_t *count);

#endif
