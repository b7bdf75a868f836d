/*
 * access list, grant, revoke: who may do what. All end as messages of the AdminService, asked of the server or made
 * from the database.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "pg/values.h"
#include "json/row_message.h"

/* --- the words of rights --- */

#define RIGHTS 5

static const char *const right_names[RIGHTS + 1] = {
    [LEASEHOLD__V1__RIGHT__RIGHT_UNSPECIFIED] = "", [LEASEHOLD__V1__RIGHT__RIGHT_READ] = "read",
    [LEASEHOLD__V1__RIGHT__RIGHT_LEASE] = "lease",  [LEASEHOLD__V1__RIGHT__RIGHT_GUARD] = "guard",
    [LEASEHOLD__V1__RIGHT__RIGHT_ADMIN] = "admin",
};

static enum lh_status parse_rights(const char *const *words, size_t count, Leasehold__V1__Right *rights,
                                   struct lh_error *error)
{
    for (size_t i = 0; i < count; i++) {
        size_t at;
        if (lh_check_word("right: ", words[i], right_names + 1, &at, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
        rights[i] = (Leasehold__V1__Right)(at + 1);
    }
    return LH_OK;
}

static char *rights_text(const Leasehold__V1__Right *rights, size_t count)
{
    char *text = lh_strdup("");

    for (size_t i = 0; i < count; i++) {
        const char *comma = i > 0 ? "," : "";
        char *longer = rights[i] > 0 && rights[i] < RIGHTS ? lh_format("%s%s%s", text, comma, right_names[rights[i]])
                                                           : lh_format("%s%s%d", text, comma, (int)rights[i]);
        free(text);
        text = longer;
    }
    return text;
}

/* --- without a daemon --- */

#define RULES                                                                                                          \
    "select r.principal, r.namespace, r.created_by, array_to_string(r.rights, ',') as rights,"                         \
    " (extract(epoch from r.created_at) * 1000000)::bigint as created_at_us"                                           \
    "  from leasehold.access_rule r"

static enum lh_exit database_change(const struct lh_cli *cli, bool is_grant, const char *principal, const char *ns,
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

/* --- the command --- */

#define SERVICE (&leasehold__v1__admin_service__descriptor)
#define PAGE_SIZE 1000

struct access_command {
    struct lh_cli *cli;
    const char *principal;
    const char *ns; /* "" is the root */
    struct lh_segments segments;
    Leasehold__V1__Right *rights;
    size_t right_count;
    struct lh_arena arena;
};

/* --- list --- */

static void print_rules(const Leasehold__V1__ListAccessResponse *response)
{
    struct lh_grid table = {.columns = 5};

    if (response->n_rules == 0) {
        fprintf(stderr, "no rules\n");
        return;
    }
    lh_grid_texts(&table, "PRINCIPAL", "NAMESPACE", "RIGHTS", "CREATED", "BY", NULL);
    for (size_t i = 0; i < response->n_rules; i++) {
        const Leasehold__V1__AccessRule *rule = response->rules[i];
        char *principal = lh_clean(rule->principal), *by = lh_clean(rule->created_by);
        char *ns = lh_namespace_text(rule->namespace_ != NULL ? rule->namespace_->segments : NULL,
                                     rule->namespace_ != NULL ? rule->namespace_->n_segments : 0);
        char *rights = rights_text(rule->rights, rule->n_rights);
        char when[LH_TIME_TEXT_BYTES] = "";
        if (rule->created_at != NULL)
            lh_time_format(rule->created_at->seconds, when);
        lh_grid_texts(&table, principal, ns, rights, when, by, NULL);
        free(principal);
        free(by);
        free(ns);
        free(rights);
    }
    lh_grid_print(&table, stdout);
}

static enum lh_exit list(struct access_command *command)
{
    Leasehold__V1__ListAccessRequest request = LEASEHOLD__V1__LIST_ACCESS_REQUEST__INIT;
    const Leasehold__V1__ListAccessResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    request.page_size = PAGE_SIZE;
    response = lh_admin_ask(command->cli,
                            &(struct lh_admin_call){LH_DATABASE_READ, "ListAccess", &request.base,
                                                    .sql = RULES " order by r.principal, r.namespace"},
                            &command->arena, &reply, &status);
    if (response != NULL && !lh_print_json(command->cli, response))
        print_rules(response);
    lh_reply_finish(&reply);
    return status;
}

/* --- grant and revoke --- */

/* "token:ci in payments and below: read,lease" */
static void print_rule(const struct access_command *command, const Leasehold__V1__AccessRule *rule)
{
    char *principal = lh_clean(command->principal);
    char *ns = lh_namespace_text(command->segments.list, command->segments.count);
    char *rights = rule != NULL ? rights_text(rule->rights, rule->n_rights) : lh_strdup("no rule");

    printf("%s in %s and below: %s\n", principal, ns, rights);
    free(principal);
    free(ns);
    free(rights);
}

/* The requests of both have the same fields, in the same places, and so have the responses. */
_Static_assert(sizeof(Leasehold__V1__GrantAccessRequest) == sizeof(Leasehold__V1__RevokeAccessRequest) &&
                   offsetof(Leasehold__V1__GrantAccessRequest, rights) ==
                       offsetof(Leasehold__V1__RevokeAccessRequest, rights) &&
                   offsetof(Leasehold__V1__GrantAccessResponse, rule) ==
                       offsetof(Leasehold__V1__RevokeAccessResponse, rule),
               "grant and revoke are one function");

static enum lh_exit change(struct access_command *command, bool is_grant)
{
    Leasehold__V1__GrantAccessRequest request = LEASEHOLD__V1__GRANT_ACCESS_REQUEST__INIT;
    Leasehold__V1__GrantAccessResponse made = LEASEHOLD__V1__GRANT_ACCESS_RESPONSE__INIT, *response = &made;
    struct lh_reply reply = {0};
    enum lh_exit status;

    if (!is_grant)
        request.base.descriptor = &leasehold__v1__revoke_access_request__descriptor;
    if (!is_grant)
        made.base.descriptor = &leasehold__v1__revoke_access_response__descriptor;
    request.principal = (char *)(uintptr_t)command->principal;
    request.namespace_ = &command->segments.message;
    request.rights = command->rights;
    request.n_rights = command->right_count;
    if (command->cli->uses_database) {
        char *rights = rights_text(command->rights, command->right_count);
        status = database_change(command->cli, is_grant, command->principal, command->ns, rights, &command->arena,
                                 &made.rule);
        free(rights);
    } else {
        status = lh_server_ask(command->cli, SERVICE, is_grant ? "GrantAccess" : "RevokeAccess", &request.base,
                               LH_REPEAT, &reply);
        response = (Leasehold__V1__GrantAccessResponse *)reply.message;
    }
    if (status == LH_EXIT_DONE && !lh_print_json(command->cli, response))
        print_rule(command, response->rule);
    lh_reply_finish(&reply);
    return status;
}

/* --- the words --- */

static enum lh_exit take_arguments(struct access_command *command, bool is_grant)
{
    const struct lh_args *args = &command->cli->args;
    struct lh_error error = {0};

    if (args->word_count < (is_grant ? 4 : 3))
        return lh_error_usage(command->cli->command,
                              "missing argument; usage: leasehold access %s PRINCIPAL NAMESPACE %s", args->words[0],
                              is_grant ? "RIGHT..." : "[RIGHT...]");
    command->principal = args->words[1];
    command->ns = args->words[2];
    command->right_count = args->word_count - 3;
    command->rights = lh_arena_alloc(&command->arena, (command->right_count + 1) * sizeof(*command->rights));
    if (lh_check_namespace_or_root(command->ns, &error) != LH_OK ||
        parse_rights(args->words + 3, command->right_count, command->rights, &error) != LH_OK)
        return lh_error_value(command->cli, &error);
    if (strcmp(command->ns, ".") == 0)
        command->ns = "";
    lh_segments_split(&command->segments, command->ns);
    return LH_EXIT_DONE;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct access_command command = {.cli = cli};
    const char *verb = cli->args.words[0];
    bool is_grant = strcmp(verb, "grant") == 0;
    enum lh_exit status;

    if (strcmp(verb, "list") == 0) {
        if (cli->args.word_count > 1)
            return lh_error_usage(cli->command, "unexpected argument: %s", cli->args.words[1]);
        status = list(&command);
    } else {
        status = take_arguments(&command, is_grant);
        if (status == LH_EXIT_DONE)
            status = change(&command, is_grant);
    }
    lh_segments_finish(&command.segments);
    lh_arena_finish(&command.arena);
    return status;
}

const struct lh_command lh_command_access = {
    .name = "access",
    .summary = "show and change who may do what",
    .usage = (const char *const[]){"access list", "access grant PRINCIPAL NAMESPACE RIGHT...",
                                   "access revoke PRINCIPAL NAMESPACE [RIGHT...]", NULL},
    .description = "A rule gives a principal rights in a namespace and in all below it; . is the\n"
                   "root, which is everything. Rules add up. revoke takes rights from the rule of\n"
                   "this principal and this namespace; without rights it removes the rule. A change\n"
                   "takes effect on every daemon within a second, on open streams too.\n"
                   "\n"
                   "Principals\n"
                   "  token:NAME            a bearer token, see leasehold token\n"
                   "  dns:NAME, spiffe://   the first name in a client's certificate\n"
                   "  user:NAME             the user at the other end of a unix socket\n"
                   "  role:NAME             a role of PostgreSQL, for the functions in SQL\n"
                   "  anonymous             a client that proves nothing\n"
                   "  PREFIX*, *            all that begin so; everybody\n"
                   "\n"
                   "Rights\n"
                   "  read    see leases, waiters and policies\n"
                   "  lease   acquire, renew and release\n"
                   "  guard   call guard() in SQL\n"
                   "  admin   force-release, reap and policies; it includes read and lease. In the\n"
                   "          root it includes rules and tokens\n"
                   "\n"
                   "Rules are in force where the daemon has authorization, which is the default\n"
                   "where it listens beyond loopback addresses and unix sockets.\n",
    .examples = "  leasehold access grant token:ci jobs read lease\n"
                "  leasehold access grant 'spiffe://example.org/payments/*' payments lease\n"
                "  leasehold access revoke token:ci jobs lease\n"
                "  leasehold access list --database postgresql:///leasehold\n",
    .verbs = (const char *const[]){"list", "grant", "revoke", NULL},
    .words_min = 1,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
    .run = run,
};
