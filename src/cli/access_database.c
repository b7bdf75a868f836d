#include "cli/access_database.h"

#include <stdio.h>

#include "pg/values.h"
#include "json/row_message.h"

#define RULES                                                                                                          \
    "select r.principal, r.namespace, r.created_by, array_to_string(r.rights, ',') as rights,"                         \
    " (extract(epoch from r.created_at) * 1000000)::bigint as created_at_us"                                           \
    "  from leasehold.access_rule r"

/* --- rules --- */

enum lh_exit lh_access_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListAccessResponse **response)
{
    struct lh_rows rows = {0};
    enum lh_exit status =
        lh_database_rows(cli, LH_DATABASE_READ, RULES " order by r.principal, r.namespace", NULL, 0, arena, &rows);

    *response = lh_rows_message(&leasehold__v1__list_access_response__descriptor, &rows, arena);
    return status;
}

enum lh_exit lh_access_database_change(const struct lh_cli *cli, bool is_grant, const char *principal, const char *ns,
                                       const char *rights, struct lh_arena *arena, Leasehold__V1__AccessRule **rule)
{
    const char *const values[] = {principal, ns, rights};
    struct lh_session *session;
    PGresult *result = NULL;
    enum lh_exit status = lh_database_open(&session, cli, LH_DATABASE_WRITE);

    *rule = NULL;
    if (status == LH_EXIT_DONE)
        PQclear(lh_database_query(session, cli,
                                  is_grant
                                      ? "select leasehold.access_grant($1, $2, variadic string_to_array($3, ','))"
                                      : "select leasehold.access_revoke($1, $2, variadic string_to_array($3, ','))",
                                  values, 3, &status));
    if (status == LH_EXIT_DONE)
        result =
            lh_database_query(session, cli, RULES " where r.principal = $1 and r.namespace = $2", values, 2, &status);
    if (result != NULL && PQntuples(result) > 0) {
        struct lh_rows rows = lh_pg_rows(result, 0, arena);
        *rule = lh_row_message(&leasehold__v1__access_rule__descriptor, &rows, 0, arena);
    }
    PQclear(result);
    lh_session_close(session);
    return status;
}

/* --- tokens --- */

enum lh_exit lh_token_database_create(const struct lh_cli *cli, const char *name, int64_t expires_us,
                                      struct lh_arena *arena, Leasehold__V1__CreateTokenResponse **response)
{
    static const char sql[] =
        "select t.token, t.id, (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us"
        "  from leasehold.token_create($1, $2::bigint * interval '1 us') t";
    char expires[24];
    const char *const values[] = {name, expires_us > 0 ? expires : NULL};
    struct lh_rows rows = {0};
    enum lh_exit status;

    snprintf(expires, sizeof(expires), "%lld", (long long)expires_us);
    status = lh_database_rows(cli, LH_DATABASE_WRITE, sql, values, 2, arena, &rows);
    *response = lh_rows_message(&leasehold__v1__create_token_response__descriptor, &rows, arena);
    return status;
}

enum lh_exit lh_token_database_revoke(const struct lh_cli *cli, const char *name_or_id, struct lh_arena *arena,
                                      Leasehold__V1__RevokeTokenResponse **response)
{
    struct lh_rows rows = {0};
    enum lh_exit status = lh_database_rows(cli, LH_DATABASE_WRITE, "select leasehold.token_revoke($1) as revoked",
                                           &name_or_id, 1, arena, &rows);

    *response = lh_rows_message(&leasehold__v1__revoke_token_response__descriptor, &rows, arena);
    return status;
}

enum lh_exit lh_token_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                    Leasehold__V1__ListTokensResponse **response)
{
    static const char sql[] = "select t.id, t.name, t.created_by,"
                              " (extract(epoch from t.created_at) * 1000000)::bigint as created_at_us,"
                              " (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us,"
                              " (extract(epoch from t.last_used_at) * 1000000)::bigint as last_used_at_us"
                              "  from leasehold.access_token t"
                              " order by t.name, t.id collate \"C\"";
    struct lh_rows rows = {0};
    enum lh_exit status = lh_database_rows(cli, LH_DATABASE_READ, sql, NULL, 0, arena, &rows);

    *response = lh_rows_message(&leasehold__v1__list_tokens_response__descriptor, &rows, arena);
    return status;
}
