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
#include "pg/values.h"
#include "json/policy_setting.h"
#include "json/row_message.h"

/* --- without a daemon --- */

#define COLUMNS "select p.*, array_to_string(p.sources, e'\\n') as source_lines from leasehold_internal."

static void add_element(struct lh_buffer *array, const char *element)
{
    lh_buffer_append(array, array->size > 0 ? "," : "{", 1);
    lh_buffer_append(array, element, strlen(element));
}

/* policy_get and policy_update answer alike: the namespace's own row, then what is in force. */
static enum lh_exit ask_database(const struct lh_cli *cli, enum lh_database_use use, const char *sql,
                                 const char *const *values, size_t value_count, struct lh_arena *arena,
                                 Leasehold__V1__GetPolicyResponse *response)
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

static enum lh_exit database_set(const struct lh_cli *cli, const char *ns, const Leasehold__V1__Policy *policy,
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
        add_element(&names, mask->paths[i]);
        add_element(&settings, value != NULL ? value : "NULL");
    }
    lh_buffer_append(&names, "}", 2);
    lh_buffer_append(&settings, "}", 2);
    values[1] = (const char *)names.data;
    values[2] = (const char *)settings.data;
    status = ask_database(cli, LH_DATABASE_WRITE, COLUMNS "policy_update($1, $2::text[], $3::text[]) p", values, 3,
                          arena, &after);
    leasehold__v1__set_policy_response__init(response);
    if (status == LH_EXIT_DONE)
        response->effective = after.effective;
    lh_buffer_finish(&names);
    lh_buffer_finish(&settings);
    return status;
}

/* --- the command --- */

#define SERVICE (&leasehold__v1__admin_service__descriptor)
#define PAGE_SIZE 1000

struct policy_command {
    struct lh_cli *cli;
    const char *ns; /* "" is the root */
    struct lh_segments segments;
    struct lh_arena arena;
};

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
static void print_policies(const Leasehold__V1__ListPoliciesResponse *response)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_SETTINGS_MAX];
    size_t count = lh_policy_settings(fields);
    struct lh_grid table = {.columns = 3};

    lh_grid_texts(&table, "NAMESPACE", "SETTING", "VALUE", NULL);
    for (size_t i = 0; i < response->n_policies; i++) {
        const Leasehold__V1__Policy *policy = response->policies[i];
        char *ns = lh_namespace_text(policy->namespace_ != NULL ? policy->namespace_->segments : NULL,
                                     policy->namespace_ != NULL ? policy->namespace_->n_segments : 0);
        for (size_t j = 0; j < count; j++) {
            char *value = lh_policy_text(policy, fields[j]);
            if (value != NULL) {
                lh_grid_texts(&table, ns, fields[j]->name, value, NULL);
            }
            free(value);
        }
        free(ns);
    }
    lh_grid_print(&table, stdout);
}

/* --- show --- */

/* The response lives in the arena, or in `reply`, which is to be finished. */
static enum lh_exit get(struct policy_command *command, struct lh_reply *reply,
                        const Leasehold__V1__GetPolicyResponse **response)
{
    Leasehold__V1__GetPolicyRequest request = LEASEHOLD__V1__GET_POLICY_REQUEST__INIT;
    Leasehold__V1__GetPolicyResponse *made = lh_arena_alloc(&command->arena, sizeof(*made));
    enum lh_exit status;

    request.namespace_ = &command->segments.message;
    if (command->cli->uses_database)
        status = ask_database(command->cli, LH_DATABASE_READ, COLUMNS "policy_get($1) p", &command->ns, 1,
                              &command->arena, made);
    else
        status = lh_server_ask(command->cli, SERVICE, "GetPolicy", &request.base, LH_REPEAT, reply);
    *response = reply->message != NULL ? (const Leasehold__V1__GetPolicyResponse *)reply->message : made;
    return status;
}

static enum lh_exit show(struct policy_command *command)
{
    const Leasehold__V1__GetPolicyResponse *response;
    struct lh_reply reply = {0};
    enum lh_exit status = get(command, &reply, &response);

    if (status == LH_EXIT_DONE && !lh_print_json(command->cli, response) && response->effective != NULL)
        print_effective(response);
    lh_reply_finish(&reply);
    return status;
}

/* --- show, without a namespace: all that is configured --- */

static enum lh_exit list(struct policy_command *command)
{
    Leasehold__V1__ListPoliciesRequest request = LEASEHOLD__V1__LIST_POLICIES_REQUEST__INIT;
    const Leasehold__V1__ListPoliciesResponse *response;
    struct lh_reply reply = {0};
    enum lh_exit status;

    request.page_size = PAGE_SIZE;
    response = lh_admin_ask(
        command->cli,
        &(struct lh_admin_call){LH_DATABASE_READ, "ListPolicies", &request.base,
                                .sql = "select p.* from leasehold_internal.policy_list(2147483647, null) p"},
        &command->arena, &reply, &status);
    if (response != NULL && !lh_print_json(command->cli, response))
        print_policies(response);
    lh_reply_finish(&reply);
    return status;
}

/* --- set and reset --- */

static void print_set(const struct policy_command *command, const Leasehold__V1__SetPolicyResponse *response,
                      const Google__Protobuf__FieldMask *mask)
{
    if (lh_print_json(command->cli, response))
        return;
    for (size_t i = 0; i < mask->n_paths && response->effective != NULL; i++) {
        const ProtobufCFieldDescriptor *field = lh_policy_field(mask->paths[i], NULL);
        char *value = field != NULL ? lh_policy_text(response->effective, field) : NULL;
        printf("%s: %s is now %s\n", command->ns[0] != '\0' ? command->ns : "(root)", mask->paths[i],
               value != NULL ? value : unset_text(mask->paths[i]));
        free(value);
    }
}

static enum lh_exit change(struct policy_command *command, Leasehold__V1__Policy *policy,
                           Google__Protobuf__FieldMask *mask)
{
    Leasehold__V1__SetPolicyRequest request = LEASEHOLD__V1__SET_POLICY_REQUEST__INIT;
    Leasehold__V1__SetPolicyResponse response;
    struct lh_reply reply = {0};
    enum lh_exit status;

    policy->namespace_ = &command->segments.message;
    request.policy = policy;
    request.update_mask = mask;
    if (command->cli->uses_database)
        status = database_set(command->cli, command->ns, policy, mask, &command->arena, &response);
    else
        status = lh_server_ask(command->cli, SERVICE, "SetPolicy", &request.base, LH_REPEAT, &reply);
    if (status == LH_EXIT_DONE)
        print_set(command, reply.message != NULL ? (const Leasehold__V1__SetPolicyResponse *)reply.message : &response,
                  mask);
    lh_reply_finish(&reply);
    return status;
}

/* "name=value" each. */
static enum lh_exit set(struct policy_command *command, size_t count, const char **words)
{
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    struct lh_error error = {0};

    if (count == 0)
        return lh_error_usage(command->cli->command, "policy set needs at least one NAME=VALUE");
    mask.paths = lh_arena_alloc(&command->arena, count * sizeof(*mask.paths));
    for (size_t i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *field;
        char *name = lh_arena_strdup(&command->arena, words[i]);
        char *equals = strchr(name, '=');

        if (equals == NULL)
            return lh_error_usage(command->cli->command, "'%s' is not NAME=VALUE", words[i]);
        *equals = '\0';
        field = lh_policy_field(name, &error);
        if (field == NULL || lh_policy_parse(&command->arena, &policy, field, equals + 1, &error) != LH_OK)
            return lh_error_value(command->cli, &error);
        mask.paths[mask.n_paths++] = name;
    }
    return change(command, &policy, &mask);
}

/* The names given, or, without any, all that are set. */
static enum lh_exit reset(struct policy_command *command, size_t count, const char **words)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_SETTINGS_MAX];
    size_t field_count = lh_policy_settings(fields);
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    const Leasehold__V1__GetPolicyResponse *before;
    struct lh_reply reply = {0};
    struct lh_error error = {0};
    enum lh_exit status = LH_EXIT_DONE;

    mask.paths = lh_arena_alloc(&command->arena, (count + field_count) * sizeof(*mask.paths));
    for (size_t i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *field = lh_policy_field(words[i], &error);
        if (field == NULL)
            return lh_error_value(command->cli, &error);
        mask.paths[mask.n_paths++] = (char *)(uintptr_t)field->name;
    }
    if (count == 0)
        status = get(command, &reply, &before);
    for (size_t i = 0; count == 0 && status == LH_EXIT_DONE && before->own != NULL && i < field_count; i++)
        if (lh_policy_has(before->own, fields[i]))
            mask.paths[mask.n_paths++] = (char *)(uintptr_t)fields[i]->name;
    lh_reply_finish(&reply);
    if (status == LH_EXIT_DONE && mask.n_paths == 0)
        fprintf(stderr, "%s has no settings of its own\n", command->ns[0] != '\0' ? command->ns : "(root)");
    return status == LH_EXIT_DONE && mask.n_paths > 0 ? change(command, &policy, &mask) : status;
}

static enum lh_exit run_verb(struct policy_command *command, const char *verb, size_t count, const char **words)
{
    if (strcmp(verb, "show") == 0 && count > 0)
        return lh_error_usage(command->cli->command, "unexpected argument: %s", words[0]);
    if (strcmp(verb, "show") == 0)
        return show(command);
    if (strcmp(verb, "set") == 0)
        return set(command, count, words);
    return reset(command, count, words);
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct policy_command command = {.cli = cli};
    const char *verb = cli->args.words[0];
    struct lh_error error = {0};
    enum lh_exit status;

    if (cli->args.word_count == 1) {
        if (strcmp(verb, "show") != 0)
            return lh_error_usage(cli->command, "policy %s needs a namespace; . is the root", verb);
        status = list(&command);
        lh_arena_finish(&command.arena);
        return status;
    }
    command.ns = cli->args.words[1];
    if (lh_check_namespace_or_root(command.ns, &error) != LH_OK)
        return lh_error_value(cli, &error);
    if (strcmp(command.ns, ".") == 0)
        command.ns = "";
    lh_segments_split(&command.segments, command.ns);
    status = run_verb(&command, verb, cli->args.word_count - 2, cli->args.words + 2);
    lh_segments_finish(&command.segments);
    lh_arena_finish(&command.arena);
    return status;
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
    .verbs = (const char *const[]){"show", "set", "reset", NULL},
    .words_min = 1,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
    .run = run,
};
