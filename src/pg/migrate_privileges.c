#include "pg/migrate_privileges.h"

#include <stdio.h>

#include "pg/migrate_session.h"

void lh_privileges_describe(const PGresult *result, char words[LH_PRIVILEGES_BYTES])
{
    int count = PQntuples(result);

    words[0] = '\0';
    if (count > 0)
        snprintf(words, LH_PRIVILEGES_BYTES,
                 "%d %s in the schema %s not as Leasehold made %s (%.200s%s): run leasehold migrate --repair", count,
                 count > 1 ? "owners and rights" : "owner or right", count > 1 ? "are" : "is",
                 count > 1 ? "them" : "it", PQgetvalue(result, 0, PQfnumber(result, "words")),
                 count > 1 ? ", ..." : "");
}

void lh_migrate_look_at_privileges(struct lh_migrate_session *session, const char *query,
                                   char words[LH_PRIVILEGES_BYTES])
{
    struct lh_error kept = *session->error;
    PGresult *result = NULL;

    words[0] = '\0';
    if (query != NULL && lh_migrate_execute(session, query, &result) == LH_OK)
        lh_privileges_describe(result, words);
    PQclear(result);
    *session->error = kept;
}

/* The rows that are for the installer, or those for leasehold_owner. */
static enum lh_status repair_rows(struct lh_migrate_session *session, const char *query, const char *is_owner,
                                  size_t *count)
{
    PGresult *result = NULL;
    enum lh_status status = lh_migrate_execute(session, query, &result);

    for (int row = 0; status == LH_OK && row < PQntuples(result); row++) {
        if (PQgetvalue(result, row, PQfnumber(result, "is_owner"))[0] != is_owner[0])
            continue;
        status = lh_migrate_execute(session, PQgetvalue(result, row, PQfnumber(result, "repair")), NULL);
        *count += status == LH_OK;
    }
    PQclear(result);
    return status;
}

enum lh_status lh_migrate_repair_privileges(struct lh_migrate_session *session, const char *query, size_t *count)
{
    enum lh_status status = repair_rows(session, query, "t", count);

    if (status == LH_OK)
        status = lh_migrate_execute(session, "set local role leasehold_owner", NULL);
    /* Asked again: rights follow their objects to a new owner. */
    if (status == LH_OK)
        status = repair_rows(session, query, "f", count);
    return status;
}
