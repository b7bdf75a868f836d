/*
 * policy show, set, reset. All three end as one message of the AdminService, asked of the server or made from the
 * database, and are printed from there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/policy_setting.h"
#include "json/row_message.h"

/* --- without a daemon --- */

#define COLUMNS "select p.*, array_to_string(p.sources, e'\\n') as source_lines from leasehold_internal."

static void add_element(struct lh_buffer *array, const char *element)
{
    lh_buffer_append(array, array->size > 0 ? "," : "{", 1);
    lh_buffer_append(array, element, strlen(element));
}

/* policy_get and policy_update answer alike: the namespace's own row, then what is in force. NULL: an error was printed. */
static Leasehold__V1__GetPolicyResponse *ask_database(struct lh_cli *cli, const struct lh_ask *ask)
{
    Leasehold__V1__GetPolicyResponse *response = lh_arena_alloc(&cli->arena, sizeof(*response));
    struct lh_rows rows;
    size_t sources;

    if (!lh_ask_rows(cli, ask, &rows))
        return NULL;
    lh_policy_from_rows(response, &rows, &cli->arena);
    sources = response->n_source;
    response->n_source = 0;
    for (size_t i = 0; i < sources; i++)
        if (lh_policy_has(response->effective, lh_policy_setting(response->source[i]->key)))
            response->source[response->n_source++] = response->source[i];
    return response;
}

static const void *database_set(struct lh_cli *cli, const char *ns, const Leasehold__V1__SetPolicyRequest *request)
{
    Leasehold__V1__SetPolicyResponse *response =
        lh_message_new(&leasehold__v1__set_policy_response__descriptor, &cli->arena);
    const Leasehold__V1__GetPolicyResponse *after;
    struct lh_buffer names = {0}, settings = {0};

    /* Neither names nor values have anything in them that an array's text would need quotes for. */
    for (size_t i = 0; i < request->update_mask->n_paths; i++) {
        const char *name = request->update_mask->paths[i];
        const char *value = lh_policy_value(request->policy, lh_policy_setting(name), &cli->arena);
        add_element(&names, name);
        add_element(&settings, value != NULL ? value : "NULL");
    }
    lh_buffer_append(&names, "}", 2);
    lh_buffer_append(&settings, "}", 2);
    after = ask_database(cli, &(struct lh_ask){
                                  .kind = LH_ASK_AGAIN,
                                  .sql = COLUMNS "policy_update($1, $2::text[], $3::text[]) p",
                                  .values = (const char *const[]){ns, (char *)names.data, (char *)settings.data},
                                  .value_count = 3,
                              });
    if (after != NULL)
        response->effective = after->effective;
    lh_buffer_finish(&names);
    lh_buffer_finish(&settings);
    return after != NULL ? response : NULL;
}

/* --- printing --- */

static const char *source_of(const Leasehold__V1__GetPolicyResponse *response, const char *field)
{
    for (size_t i = 0; i < response->n_source; i++)
        if (strcmp(response->source[i]->key, field) == 0)
            return response->source[i]->value[0] != '\0' ? response->source[i]->value : "(root)";
    return "(default)";
}

/* What a setting without a value means. */
static const char *unset_text(const char *field)
{
    if (strcmp(field, "dead_after") == 0)
        return "2/3 of the duration";
    if (strncmp(field, "max_", 4) == 0)
        return "no limit";
    return "not set";
}

static void print_effective(const Leasehold__V1__GetPolicyResponse *response)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_SETTINGS_MAX];
    size_t count = lh_policy_settings(fields);
    struct lh_grid table = {.columns = 3};

    lh_grid_texts(&table, "SETTING", "VALUE", "FROM", NULL);
    for (size_t i = 0; i < count; i++) {
        char *value = lh_policy_text(response->effective, fields[i]);
        lh_grid_texts(&table, fields[i]->name, value != NULL ? value : unset_text(fields[i]->name),
                      value != NULL ? source_of(response, fields[i]->name) : "(default)", NULL);
        free(value);
    }
    lh_grid_print(&table, stdout);
}

/* "grace=5 s, frozen=true" */
static void print_policies(struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__ListPoliciesResponse *response = answer;
    const ProtobufCFieldDescriptor *fields[LH_POLICY_SETTINGS_MAX];
    size_t count = lh_policy_settings(fields);
    struct lh_grid table = {.columns = 3};

    lh_grid_texts(&table, "NAMESPACE", "SETTING", "VALUE", NULL);
    for (size_t i = 0; i < response->n_policies; i++) {
        const Leasehold__V1__Policy *policy = response->policies[i];
        const char *ns =
            lh_namespace_text(policy->namespace_ != NULL ? policy->namespace_->segments : NULL,
                              policy->namespace_ != NULL ? policy->namespace_->n_segments : 0, &cli->arena);
        for (size_t j = 0; j < count; j++) {
            char *value = lh_policy_text(policy, fields[j]);
            if (value != NULL) {
                lh_grid_texts(&table, ns, fields[j]->name, value, NULL);
            }
            free(value);
        }
    }
    lh_grid_print(&table, stdout);
}

/* --- show --- */

static const Leasehold__V1__GetPolicyResponse *get(struct lh_cli *cli, const char *ns)
{
    Leasehold__V1__GetPolicyRequest request = LEASEHOLD__V1__GET_POLICY_REQUEST__INIT;

    if (cli->uses_database)
        return ask_database(cli, &(struct lh_ask){.sql = COLUMNS "policy_get($1) p", .values = &ns, .value_count = 1});
    request.namespace_ = lh_take_namespace(ns, &cli->arena);
    return lh_ask(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_READ});
}

/* Without a namespace: all that is configured. */
static enum lh_exit list(struct lh_cli *cli)
{
    Leasehold__V1__ListPoliciesRequest request = LEASEHOLD__V1__LIST_POLICIES_REQUEST__INIT;

    return lh_ask_and_print(
        cli, &request.base,
        &(struct lh_ask){.sql = "select p.* from leasehold_internal.policy_list(2147483647, null) p"}, print_policies);
}

/* Returns the namespace that was given, "" for the root; NULL: an error was printed. */
static const char *namespace_of(struct lh_cli *cli)
{
    const char *ns = cli->args.words[1];
    struct lh_error error = {0};

    if (cli->args.word_count == 1)
        cli->status = lh_error_usage(cli->command, "policy %s needs a namespace; . is the root", cli->args.words[0]);
    else if (lh_check_namespace_or_root(ns, &error) != LH_OK)
        cli->status = lh_error_value(cli, &error);
    else
        return strcmp(ns, ".") == 0 ? "" : ns;
    return NULL;
}

static enum lh_exit show(struct lh_cli *cli)
{
    const Leasehold__V1__GetPolicyResponse *response;
    const char *ns;

    if (cli->args.word_count == 1)
        return list(cli);
    ns = namespace_of(cli);
    response = ns != NULL ? get(cli, ns) : NULL;
    if (response != NULL && !lh_print_json(cli, response) && response->effective != NULL)
        print_effective(response);
    return cli->status;
}

/* --- set and reset --- */

static void print_set(struct lh_cli *cli, const char *ns, const Leasehold__V1__SetPolicyResponse *response,
                      const Google__Protobuf__FieldMask *mask)
{
    if (lh_print_json(cli, response))
        return;
    for (size_t i = 0; i < mask->n_paths && response->effective != NULL; i++) {
        const ProtobufCFieldDescriptor *field = lh_policy_field(mask->paths[i], NULL);
        char *value = field != NULL ? lh_policy_text(response->effective, field) : NULL;
        printf("%s: %s is now %s\n", ns[0] != '\0' ? ns : "(root)", mask->paths[i],
               value != NULL ? value : unset_text(mask->paths[i]));
        free(value);
    }
}

static enum lh_exit change(struct lh_cli *cli, const char *ns, Leasehold__V1__Policy *policy,
                           Google__Protobuf__FieldMask *mask)
{
    Leasehold__V1__SetPolicyRequest request = LEASEHOLD__V1__SET_POLICY_REQUEST__INIT;
    const void *response;

    policy->namespace_ = lh_take_namespace(ns, &cli->arena);
    request.policy = policy;
    request.update_mask = mask;
    response = cli->uses_database ? database_set(cli, ns, &request)
                                  : lh_ask(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_AGAIN});
    if (response != NULL)
        print_set(cli, ns, response, mask);
    return cli->status;
}

/* "name=value" each. */
static enum lh_exit set(struct lh_cli *cli)
{
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    const char *ns = namespace_of(cli);
    struct lh_error error = {0};

    if (ns == NULL)
        return cli->status;
    if (cli->args.word_count == 2)
        return lh_error_usage(cli->command, "policy set needs at least one NAME=VALUE");
    mask.paths = lh_arena_alloc(&cli->arena, cli->args.word_count * sizeof(*mask.paths));
    for (size_t i = 2; i < cli->args.word_count; i++) {
        const ProtobufCFieldDescriptor *field;
        char *name = lh_arena_strdup(&cli->arena, cli->args.words[i]);
        char *equals = strchr(name, '=');

        if (equals == NULL)
            return lh_error_usage(cli->command, "'%s' is not NAME=VALUE", cli->args.words[i]);
        *equals = '\0';
        field = lh_policy_field(name, &error);
        if (field == NULL || lh_policy_parse(&cli->arena, &policy, field, equals + 1, &error) != LH_OK)
            return lh_error_value(cli, &error);
        mask.paths[mask.n_paths++] = name;
    }
    return change(cli, ns, &policy, &mask);
}

/* The names given, or, without any, all that are set. */
static enum lh_exit reset(struct lh_cli *cli)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_SETTINGS_MAX];
    size_t field_count = lh_policy_settings(fields), words = cli->args.word_count;
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    const Leasehold__V1__GetPolicyResponse *before = NULL;
    const char *ns = namespace_of(cli);
    struct lh_error error = {0};

    if (ns == NULL)
        return cli->status;
    mask.paths = lh_arena_alloc(&cli->arena, (words + field_count) * sizeof(*mask.paths));
    for (size_t i = 2; i < words; i++) {
        const ProtobufCFieldDescriptor *field = lh_policy_field(cli->args.words[i], &error);
        if (field == NULL)
            return lh_error_value(cli, &error);
        mask.paths[mask.n_paths++] = (char *)(uintptr_t)field->name;
    }
    if (words == 2 && (before = get(cli, ns)) == NULL)
        return cli->status;
    for (size_t i = 0; before != NULL && before->own != NULL && i < field_count; i++)
        if (lh_policy_has(before->own, fields[i]))
            mask.paths[mask.n_paths++] = (char *)(uintptr_t)fields[i]->name;
    if (mask.n_paths > 0)
        return change(cli, ns, &policy, &mask);
    fprintf(stderr, "%s has no settings of its own\n", ns[0] != '\0' ? ns : "(root)");
    return LH_EXIT_DONE;
}

const struct lh_command lh_command_policy = {
    .name = "policy",
    .summary = "show and change the settings of namespaces",
    .usage = (const char *const[]){"policy show [NAMESPACE]", "policy set NAMESPACE NAME=VALUE...",
                                   "policy reset NAMESPACE [NAME...]", NULL},
    .description = "A setting of a namespace also applies to the namespaces below it, unless they\n"
                   "have their own; . is the root. show prints the settings in force and the\n"
                   "namespace each comes from; without a namespace it prints all that are set.\n"
                   "reset removes settings, so that they are inherited again; without names it\n"
                   "removes all. A change takes effect on every daemon within a second.\n"
                   "\n"
                   "Settings\n"
                   "  min_duration, max_duration  bounds of a lease's duration\n"
                   "  grace                       how long after its deadline a lease is left alone\n"
                   "  max_hold                    longer holds are reported; no default\n"
                   "  end_at_max_hold             true: and ended, whatever their holders do\n"
                   "  hand_over_grace             time for a holder to answer a hand-over request\n"
                   "  max_priority                the highest priority of requests, up to 1000\n"
                   "  ageing                      how long one step of priority is worth\n"
                   "  dead_after                  a holder silent for longer is suspected dead\n"
                   "  expiry                      takeover (reaper or next acquirer), reap (reaper\n"
                   "                              only) or manual (an administrator only)\n"
                   "  reaper                      auto, or external (only a reap that names it)\n"
                   "  frozen                      true: no new grants\n"
                   "  max_leases, max_waiters     how many at once\n"
                   "  capacity                    how many units the shared leases of a key have\n"
                   "  at_least                    the minimum hold of exclusive leases\n"
                   "  history, history_retention  whether every hold is kept, and for how long\n"
                   "  max_reap_failures           after that many, an administrator must act\n"
                   "  hook_timeout                for the callbacks of one lease\n"
                   "  free_retention              how long a free lease is remembered\n",
    .examples = "  leasehold policy set payments grace=5s max_duration=1h\n"
                "  leasehold policy set gpus capacity=8\n"
                "  leasehold policy show payments.invoices\n"
                "  leasehold policy reset payments grace\n",
    .verbs =
        (const struct lh_verb[]){
            {"show", 1, 2, "", show, NULL}, {"set", 1, 0, "", set, NULL}, {"reset", 1, 0, "", reset, NULL}, {0}},
    .words_min = 1,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
};
