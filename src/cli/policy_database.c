#include "cli/policy_database.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/policy_fields.h"

#define PAGE_SIZE 1000

/* A row of policy_get or policy_list. */
static Leasehold__V1__Policy *policy_from_row(struct lh_arena *arena, const PGresult *result, int row)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    size_t count = lh_policy_fields(fields);
    Leasehold__V1__Policy *policy = lh_arena_alloc(arena, sizeof(*policy));
    const char *ns = lh_row_text(result, row, "namespace");

    leasehold__v1__policy__init(policy);
    policy->namespace_ = lh_arena_alloc(arena, sizeof(*policy->namespace_));
    leasehold__v1__namespace__init(policy->namespace_);
    policy->namespace_->segments = lh_segments_in_arena(arena, ns != NULL ? ns : "", &policy->namespace_->n_segments);
    for (size_t i = 0; i < count; i++) {
        char *column = lh_policy_column(fields[i]);
        const char *value = lh_row_text(result, row, column);
        if (value != NULL)
            lh_policy_set_sql(arena, policy, fields[i], value);
        free(column);
    }
    return policy;
}

/* Where each setting that is in force comes from. */
static void add_sources(struct lh_arena *arena, const PGresult *result, int row,
                        Leasehold__V1__GetPolicyResponse *response)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    size_t count = lh_policy_fields(fields);

    response->source = lh_arena_alloc(arena, count * sizeof(*response->source));
    for (size_t i = 0; i < count; i++) {
        Leasehold__V1__GetPolicyResponse__SourceEntry *entry;
        char *column = lh_format("source_%zu", i);
        const char *source = lh_row_text(result, row, column);

        free(column);
        if (source == NULL || !lh_policy_has(response->effective, fields[i]))
            continue;
        entry = lh_arena_alloc(arena, sizeof(*entry));
        leasehold__v1__get_policy_response__source_entry__init(entry);
        entry->key = (char *)(uintptr_t)fields[i]->name;
        entry->value = lh_arena_strdup(arena, source);
        response->source[response->n_source++] = entry;
    }
}

/* "select p.*, p.sources[1] as source_0, ...": an array is easier taken apart there than here. */
static char *get_sql(void)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    size_t count = lh_policy_fields(fields);
    struct lh_buffer sql = {0};
    static const char head[] = "select p.*", tail[] = " from leasehold.policy_get($1) p";

    lh_buffer_append(&sql, head, sizeof(head) - 1);
    for (size_t i = 0; i < count; i++) {
        char *column = lh_format(", p.sources[%zu] as source_%zu", i + 1, i);
        lh_buffer_append(&sql, column, strlen(column));
        free(column);
    }
    lh_buffer_append(&sql, tail, sizeof(tail));
    return (char *)sql.data;
}

static enum lh_exit get(struct lh_session *session, const struct lh_cli *cli, const char *ns, struct lh_arena *arena,
                        Leasehold__V1__GetPolicyResponse *response)
{
    const char *const values[] = {ns};
    char *sql = get_sql();
    enum lh_exit status;
    PGresult *result = lh_database_query(session, cli, sql, values, 1, &status);

    leasehold__v1__get_policy_response__init(response);
    if (result != NULL && PQntuples(result) > 1) {
        response->own = policy_from_row(arena, result, 0);
        response->effective = policy_from_row(arena, result, 1);
        add_sources(arena, result, 1, response);
    }
    PQclear(result);
    free(sql);
    return status;
}

enum lh_exit lh_policy_database_get(const struct lh_cli *cli, const char *ns, struct lh_arena *arena,
                                    Leasehold__V1__GetPolicyResponse *response)
{
    struct lh_session *session;
    enum lh_exit status = lh_database_open(&session, cli);

    if (status == LH_EXIT_DONE)
        status = get(session, cli, ns, arena, response);
    lh_session_close(session);
    return status;
}

enum lh_exit lh_policy_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListPoliciesResponse *response)
{
    static const char sql[] = "select p.* from leasehold.policy_list(2147483647, null) p";
    struct lh_session *session;
    PGresult *result = NULL;
    enum lh_exit status = lh_database_open(&session, cli);

    leasehold__v1__list_policies_response__init(response);
    if (status == LH_EXIT_DONE)
        result = lh_database_query(session, cli, sql, NULL, 0, &status);
    if (result != NULL) {
        response->policies = lh_arena_alloc(arena, ((size_t)PQntuples(result) + 1) * sizeof(*response->policies));
        for (int row = 0; row < PQntuples(result); row++)
            response->policies[response->n_policies++] = policy_from_row(arena, result, row);
    }
    PQclear(result);
    lh_session_close(session);
    return status;
}

/* One call of set_policy with every field that has a value. */
static enum lh_exit set_values(struct lh_session *session, const struct lh_cli *cli, const char *ns,
                               const Leasehold__V1__Policy *policy)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    size_t count = lh_policy_fields(fields), value_count = 1;
    const char *values[LH_POLICY_FIELDS_MAX + 1] = {ns};
    struct lh_buffer sql = {0};
    enum lh_exit status = LH_EXIT_DONE;
    static const char head[] = "select leasehold.set_policy(namespace => $1";

    lh_buffer_append(&sql, head, sizeof(head) - 1);
    for (size_t i = 0; i < count; i++) {
        const char *type;
        char *parameter;

        if (!lh_policy_has(policy, fields[i]))
            continue;
        values[value_count++] = lh_policy_sql(policy, fields[i], &type);
        parameter = lh_format(", %s => $%zu::%s", fields[i]->name, value_count, type);
        lh_buffer_append(&sql, parameter, strlen(parameter));
        free(parameter);
    }
    lh_buffer_append(&sql, ")", 2);
    if (value_count > 1)
        PQclear(lh_database_query(session, cli, (const char *)sql.data, values, value_count, &status));
    for (size_t i = 1; i < value_count; i++)
        free((char *)(uintptr_t)values[i]);
    lh_buffer_finish(&sql);
    return status;
}

static enum lh_exit reset_values(struct lh_session *session, const struct lh_cli *cli, const char *ns,
                                 const Leasehold__V1__Policy *policy, const Google__Protobuf__FieldMask *mask)
{
    enum lh_exit status = LH_EXIT_DONE;

    for (size_t i = 0; i < mask->n_paths && status == LH_EXIT_DONE; i++) {
        const ProtobufCFieldDescriptor *field = lh_policy_field(mask->paths[i], NULL);
        const char *const values[] = {ns, mask->paths[i]};
        if (field != NULL && !lh_policy_has(policy, field))
            PQclear(lh_database_query(session, cli, "select leasehold.reset_policy(namespace => $1, column_name => $2)",
                                      values, 2, &status));
    }
    return status;
}

enum lh_exit lh_policy_database_set(const struct lh_cli *cli, const char *ns, const Leasehold__V1__Policy *policy,
                                    const Google__Protobuf__FieldMask *mask, struct lh_arena *arena,
                                    Leasehold__V1__SetPolicyResponse *response)
{
    Leasehold__V1__GetPolicyResponse after;
    struct lh_session *session;
    enum lh_exit status = lh_database_open(&session, cli);

    leasehold__v1__set_policy_response__init(response);
    if (status == LH_EXIT_DONE)
        PQclear(lh_database_query(session, cli, "begin", NULL, 0, &status));
    if (status == LH_EXIT_DONE)
        status = set_values(session, cli, ns, policy);
    if (status == LH_EXIT_DONE)
        status = reset_values(session, cli, ns, policy, mask);
    if (status == LH_EXIT_DONE)
        PQclear(lh_database_query(session, cli, "commit", NULL, 0, &status));
    if (status == LH_EXIT_DONE)
        status = get(session, cli, ns, arena, &after);
    if (status == LH_EXIT_DONE)
        response->effective = after.effective;
    lh_session_close(session);
    return status;
}
