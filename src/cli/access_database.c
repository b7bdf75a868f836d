#include "cli/access_database.h"

#include <stdio.h>
#include <string.h>

#include "cli/rights.h"

#define RIGHTS_MAX 8

/* The rights in the order in which a daemon tells them. */
#define RULES                                                                                                          \
    "select r.principal, r.namespace, r.created_by,"                                                                   \
    " array_to_string(array(select u from unnest(array['read', 'lease', 'guard', 'admin']) u"                          \
    "                        where u = any (r.rights)), ',') as rights,"                                               \
    " (extract(epoch from r.created_at) * 1000000)::bigint as created_at_us"                                           \
    "  from leasehold.access_rule r"

static char *text_of(struct lh_arena *arena, const PGresult *result, int row, const char *column)
{
    const char *text = lh_query_text(result, row, column);
    return lh_arena_strdup(arena, text != NULL ? text : "");
}

/* --- rules --- */

static Leasehold__V1__AccessRule *rule_from_row(struct lh_arena *arena, const PGresult *result, int row)
{
    Leasehold__V1__AccessRule *rule = lh_arena_alloc(arena, sizeof(*rule));
    char *rest = text_of(arena, result, row, "rights"), *word;
    struct lh_error error;

    leasehold__v1__access_rule__init(rule);
    rule->principal = text_of(arena, result, row, "principal");
    rule->namespace_ = lh_arena_alloc(arena, sizeof(*rule->namespace_));
    leasehold__v1__namespace__init(rule->namespace_);
    rule->namespace_->segments =
        lh_segments_in_arena(arena, text_of(arena, result, row, "namespace"), &rule->namespace_->n_segments);
    rule->rights = lh_arena_alloc(arena, RIGHTS_MAX * sizeof(*rule->rights));
    while ((word = strsep(&rest, ",")) != NULL && rule->n_rights < RIGHTS_MAX)
        if (lh_rights_parse((const char *const *)&word, 1, &rule->rights[rule->n_rights], &error) == LH_OK)
            rule->n_rights++;
    rule->created_at = lh_row_timestamp(arena, result, row, "created_at_us");
    rule->created_by = text_of(arena, result, row, "created_by");
    return rule;
}

enum lh_exit lh_access_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListAccessResponse *response)
{
    enum lh_exit status;
    PGresult *result =
        lh_database_ask(cli, LH_DATABASE_READ, RULES " order by r.principal, r.namespace", NULL, 0, &status);

    leasehold__v1__list_access_response__init(response);
    if (result != NULL) {
        response->rules = lh_arena_alloc(arena, ((size_t)PQntuples(result) + 1) * sizeof(*response->rules));
        for (int row = 0; row < PQntuples(result); row++)
            response->rules[response->n_rules++] = rule_from_row(arena, result, row);
    }
    PQclear(result);
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
    if (result != NULL && PQntuples(result) > 0)
        *rule = rule_from_row(arena, result, 0);
    PQclear(result);
    lh_session_close(session);
    return status;
}

/* --- tokens --- */

enum lh_exit lh_token_database_create(const struct lh_cli *cli, const char *name, int64_t expires_us,
                                      struct lh_arena *arena, Leasehold__V1__CreateTokenResponse *response)
{
    static const char sql[] =
        "select t.token, t.id, (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us"
        "  from leasehold.token_create($1, $2::bigint * interval '1 us') t";
    char expires[24];
    const char *const values[] = {name, expires_us > 0 ? expires : NULL};
    enum lh_exit status;
    PGresult *result;

    snprintf(expires, sizeof(expires), "%lld", (long long)expires_us);
    result = lh_database_ask(cli, LH_DATABASE_WRITE, sql, values, 2, &status);
    leasehold__v1__create_token_response__init(response);
    if (result != NULL) {
        response->token = text_of(arena, result, 0, "token");
        response->id = text_of(arena, result, 0, "id");
        response->expires_at = lh_row_timestamp(arena, result, 0, "expires_at_us");
    }
    PQclear(result);
    return status;
}

enum lh_exit lh_token_database_revoke(const struct lh_cli *cli, const char *name_or_id,
                                      Leasehold__V1__RevokeTokenResponse *response)
{
    enum lh_exit status;
    PGresult *result = lh_database_ask(cli, LH_DATABASE_WRITE, "select leasehold.token_revoke($1) as revoked",
                                       &name_or_id, 1, &status);

    leasehold__v1__revoke_token_response__init(response);
    if (result != NULL)
        response->revoked = lh_query_number(result, 0, "revoked", 0);
    PQclear(result);
    return status;
}

enum lh_exit lh_token_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                    Leasehold__V1__ListTokensResponse *response)
{
    static const char sql[] = "select t.id, t.name, t.created_by,"
                              " (extract(epoch from t.created_at) * 1000000)::bigint as created_at_us,"
                              " (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us,"
                              " (extract(epoch from t.last_used_at) * 1000000)::bigint as last_used_at_us"
                              "  from leasehold.access_token t"
                              " order by t.name, t.id collate \"C\"";
    enum lh_exit status;
    PGresult *result = lh_database_ask(cli, LH_DATABASE_READ, sql, NULL, 0, &status);

    leasehold__v1__list_tokens_response__init(response);
    if (result != NULL)
        response->tokens = lh_arena_alloc(arena, ((size_t)PQntuples(result) + 1) * sizeof(*response->tokens));
    for (int row = 0; result != NULL && row < PQntuples(result); row++) {
        Leasehold__V1__AccessToken *token = lh_arena_alloc(arena, sizeof(*token));
        leasehold__v1__access_token__init(token);
        token->id = text_of(arena, result, row, "id");
        token->name = text_of(arena, result, row, "name");
        token->created_by = text_of(arena, result, row, "created_by");
        token->created_at = lh_row_timestamp(arena, result, row, "created_at_us");
        token->expires_at = lh_row_timestamp(arena, result, row, "expires_at_us");
        token->last_used_at = lh_row_timestamp(arena, result, row, "last_used_at_us");
        response->tokens[response->n_tokens++] = token;
    }
    PQclear(result);
    return status;
}
