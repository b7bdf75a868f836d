#include "cli/policy_database.h"

#include <string.h>

#include "pg/values.h"
#include "json/policy_setting.h"
#include "json/row_message.h"

#define COLUMNS "select p.*, array_to_string(p.sources, e'\\n') as source_lines from leasehold_internal."

static void add(struct lh_buffer *array, const char *element)
{
    lh_buffer_append(array, array->size > 0 ? "," : "{", 1);
    lh_buffer_append(array, element, strlen(element));
}

/* policy_get and policy_update answer alike: the namespace's own row, then what is in force. */
static enum lh_exit ask(const struct lh_cli *cli, enum lh_database_use use, const char *sql, const char *const *values,
                        size_t value_count, struct lh_arena *arena, Leasehold__V1__GetPolicyResponse *response)
{
    struct lh_rows rows = {0};
    enum lh_exit status = lh_database_rows(cli, use, sql, values, value_count, arena, &rows);
    size_t sources;

    lh_policy_from_rows(response, &rows, arena);
    sources = response->n_source;
    response->n_source = 0;
    for (size_t i = 0; i < sources; i++)
        if (lh_policy_has(response->effective, lh_policy_setting(response->source[i]->key)))
            response->source[response->n_source++] = response->source[i];
    return status;
}

enum lh_exit lh_policy_database_get(const struct lh_cli *cli, const char *ns, struct lh_arena *arena,
                                    Leasehold__V1__GetPolicyResponse *response)
{
    return ask(cli, LH_DATABASE_READ, COLUMNS "policy_get($1) p", &ns, 1, arena, response);
}

enum lh_exit lh_policy_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListPoliciesResponse **response)
{
    static const char sql[] = "select p.* from leasehold_internal.policy_list(2147483647, null) p";
    struct lh_rows rows = {0};
    enum lh_exit status = lh_database_rows(cli, LH_DATABASE_READ, sql, NULL, 0, arena, &rows);

    *response = lh_rows_message(&leasehold__v1__list_policies_response__descriptor, &rows, arena);
    return status;
}

enum lh_exit lh_policy_database_set(const struct lh_cli *cli, const char *ns, const Leasehold__V1__Policy *policy,
                                    const Google__Protobuf__FieldMask *mask, struct lh_arena *arena,
                                    Leasehold__V1__SetPolicyResponse *response)
{
    Leasehold__V1__GetPolicyResponse after;
    struct lh_buffer names = {0}, settings = {0};
    const char *values[3] = {ns};
    enum lh_exit status;

    /* Neither names nor values have anything in them that an array's text would need quotes for. */
    for (size_t i = 0; i < mask->n_paths; i++) {
        const char *value = lh_policy_value(policy, lh_policy_setting(mask->paths[i]), arena);
        add(&names, mask->paths[i]);
        add(&settings, value != NULL ? value : "NULL");
    }
    lh_buffer_append(&names, "}", 2);
    lh_buffer_append(&settings, "}", 2);
    values[1] = (const char *)names.data;
    values[2] = (const char *)settings.data;
    status =
        ask(cli, LH_DATABASE_WRITE, COLUMNS "policy_update($1, $2::text[], $3::text[]) p", values, 3, arena, &after);
    leasehold__v1__set_policy_response__init(response);
    if (status == LH_EXIT_DONE)
        response->effective = after.effective;
    lh_buffer_finish(&names);
    lh_buffer_finish(&settings);
    return status;
}
