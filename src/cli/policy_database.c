#include "cli/policy_database.h"

#include <stdlib.h>

#include "cli/policy_fields.h"

/* Both are given away. */
static char *extend(char *text, char *more)
{
    char *extended = lh_format("%s%s", text, more);
    free(text);
    free(more);
    return extended;
}

/* A row of policy_get or policy_list. */
static Leasehold__V1__Policy *policy_from_row(struct lh_arena *arena, const PGresult *result, int row)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    size_t count = lh_policy_fields(fields);
    Leasehold__V1__Policy *policy = lh_arena_alloc(arena, sizeof(*policy));
    const char *ns = lh_query_text(result, row, "namespace");

    leasehold__v1__policy__init(policy);
    policy->namespace_ = lh_arena_alloc(arena, sizeof(*policy->namespace_));
    leasehold__v1__namespace__init(policy->namespace_);
    policy->namespace_->segments = lh_segments_in_arena(arena, ns != NULL ? ns : "", &policy->namespace_->n_segments);
    for (size_t i = 0; i < count; i++) {
        char *column = lh_policy_column(fields[i]);
        const char *value = lh_query_text(result, row, column);
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
        const char *source = lh_query_text(result, row, column);

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

/*
 * policy_get and policy_update answer alike: the namespace's own row, then what is in force. Sources come one by one
 * ("p.sources[...] as source_0, ..."): an array is easier taken apart there than here.
 */
static enum lh_exit ask(const struct lh_cli *cli, enum lh_database_use use, const char *call, const char *const *values,
                        size_t value_count, struct lh_arena *arena, Leasehold__V1__GetPolicyResponse *response)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    size_t count = lh_policy_fields(fields);
    char *sql = lh_strdup("select p.*");
    enum lh_exit status;
    PGresult *result;

    for (size_t i = 0; i < count; i++)
        sql = extend(sql, lh_format(", p.sources[array_position(n.names, '%s')] as source_%zu", fields[i]->name, i));
    sql = extend(sql, lh_format(" from leasehold_internal.%s p,"
                                " (select leasehold_internal.policy_columns() as names) n",
                                call));
    leasehold__v1__get_policy_response__init(response);
    result = lh_database_ask(cli, use, sql, values, value_count, &status);
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
    return ask(cli, LH_DATABASE_READ, "policy_get($1)", &ns, 1, arena, response);
}

enum lh_exit lh_policy_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListPoliciesResponse *response)
{
    static const char sql[] = "select p.* from leasehold_internal.policy_list(2147483647, null) p";
    enum lh_exit status;
    PGresult *result = lh_database_ask(cli, LH_DATABASE_READ, sql, NULL, 0, &status);

    leasehold__v1__list_policies_response__init(response);
    if (result != NULL) {
        response->policies = lh_arena_alloc(arena, ((size_t)PQntuples(result) + 1) * sizeof(*response->policies));
        for (int row = 0; row < PQntuples(result); row++)
            response->policies[response->n_policies++] = policy_from_row(arena, result, row);
    }
    PQclear(result);
    return status;
}

enum lh_exit lh_policy_database_set(const struct lh_cli *cli, const char *ns, const Leasehold__V1__Policy *policy,
                                    const Google__Protobuf__FieldMask *mask, struct lh_arena *arena,
                                    Leasehold__V1__SetPolicyResponse *response)
{
    Leasehold__V1__GetPolicyResponse after;
    char *columns = lh_strdup("{"), *settings = lh_strdup("{");
    const char *values[3] = {ns};
    enum lh_exit status;

    /* Neither names nor values have anything in them that an array's text would need quotes for. */
    for (size_t i = 0; i < mask->n_paths; i++) {
        const ProtobufCFieldDescriptor *field = lh_policy_field(mask->paths[i], NULL);
        char *value = lh_policy_sql(policy, field);
        columns = extend(columns, lh_format("%s%s", i > 0 ? "," : "", field->name));
        settings = extend(settings, lh_format("%s%s", i > 0 ? "," : "", value != NULL ? value : "NULL"));
        free(value);
    }
    values[1] = columns = extend(columns, lh_strdup("}"));
    values[2] = settings = extend(settings, lh_strdup("}"));
    status = ask(cli, LH_DATABASE_WRITE, "policy_update($1, $2::text[], $3::text[])", values, 3, arena, &after);
    leasehold__v1__set_policy_response__init(response);
    if (status == LH_EXIT_DONE)
        response->effective = after.effective;
    free(columns);
    free(settings);
    return status;
}
