/* Owners and rights in the schemas: finding those that a restore has changed (migrations/runner/privileges.sql), and
   correcting them. */
#ifndef LH_PG_MIGRATE_PRIVILEGES_H
#define LH_PG_MIGRATE_PRIVILEGES_H

#include <libpq-fe.h>
#include <stddef.h>

#include "base/status.h"

struct lh_migrate_session;

#define LH_PRIVILEGES_BYTES 384

/* Writes the findings of the query in one sentence; "": no fault. */
void lh_privileges_describe(const PGresult *result, char words[LH_PRIVILEGES_BYTES]);

/* Runs a set's `privileges_sql` and describes its findings. "" also if it cannot be run. */
void lh_migrate_look_at_privileges(struct lh_migrate_session *session, const char *query,
                                   char words[LH_PRIVILEGES_BYTES]);

/* Corrects owners and rights in a transaction, as the installer; the role is leasehold_owner afterwards. Adds the
   number of corrections to `count`. */
enum lh_status lh_migrate_repair_privileges(struct lh_migrate_session *session, const char *query, size_t *count);

#endif
