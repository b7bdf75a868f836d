/*
 * access list, grant, revoke: who may do what. All end as messages of the AdminService, asked of the server or made
 * from the database.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/columns.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
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

/* "read,lease" of a message with rights; "" without. */
static const char *rights_text(const void *message, struct lh_arena *arena)
{
    static const struct lh_column column = {"RIGHTS", "rights", LH_COLUMN_LIST};
    const char *text = lh_column_text(message, &column, arena);

    return text != NULL ? text : "";
}

#define RULES                                                                                                          \
    "select r.principal, r.namespace, r.created_by, array_to_string(r.rights, ',') as rights,"                         \
    " (extract(epoch from r.created_at) * 1000000)::bigint as created_at_us"                                           \
    "  from leasehold.access_rule r"

/* --- list --- */

static void print_rules(struct lh_cli *cli, const void *answer)
{
    static const struct lh_column columns[] = {
        {"PRINCIPAL", "principal", LH_COLUMN_TEXT}, {"NAMESPACE", "namespace", LH_COLUMN_NAMESPACE},
        {"RIGHTS", "rights", LH_COLUMN_LIST},       {"CREATED", "created_at", LH_COLUMN_TIME},
        {"BY", "created_by", LH_COLUMN_TEXT},       {0},
    };

    lh_columns_print_table(columns, answer, SIZE_MAX, "no rules");
}

static enum lh_exit list(struct lh_cli *cli)
{
    Leasehold__V1__ListAccessRequest request = LEASEHOLD__V1__LIST_ACCESS_REQUEST__INIT;

    return lh_ask_and_print(cli, &request.base, &(struct lh_ask){.sql = RULES " order by r.principal, r.namespace"},
                            print_rules);
}

/* --- grant and revoke --- */

/* The requests of both have the same fields, in the same places, and so have the responses. */
_Static_assert(sizeof(Leasehold__V1__GrantAccessRequest) == sizeof(Leasehold__V1__RevokeAccessRequest) &&
                   offsetof(Leasehold__V1__GrantAccessRequest, rights) ==
                       offsetof(Leasehold__V1__RevokeAccessRequest, rights) &&
                   offsetof(Leasehold__V1__GrantAccessResponse, rule) ==
                       offsetof(Leasehold__V1__RevokeAccessResponse, rule),
               "grant and revoke are one function");

/* "token:ci in payments and below: read,lease" */
static void print_rule(const Leasehold__V1__GrantAccessRequest *request, const Leasehold__V1__AccessRule *rule,
                       struct lh_arena *arena)
{
    const char *ns = lh_namespace_text(request->namespace_->segments, request->namespace_->n_segments, arena);

    lh_print_line("%s in %s and below: %s", request->principal, ns,
                  rule != NULL ? rights_text(rule, arena) : "no rule");
}

static enum lh_exit change(struct lh_cli *cli, const ProtobufCMessageDescriptor *type, const char *sql)
{
    const struct lh_args *args = &cli->args;
    Leasehold__V1__GrantAccessRequest *request = lh_message_new(type, &cli->arena);
    const Leasehold__V1__GrantAccessResponse *response;
    const char *principal = args->words[1], *ns = args->words[2];
    struct lh_error error = {0};
    const char *rights;

    request->n_rights = args->word_count - 3;
    request->rights = lh_arena_alloc(&cli->arena, args->word_count * sizeof(*request->rights));
    if (lh_check_namespace_or_root(ns, &error) != LH_OK ||
        parse_rights(args->words + 3, request->n_rights, request->rights, &error) != LH_OK)
        return lh_error_value(cli, &error);
    request->principal = (char *)(uintptr_t)principal;
    request->namespace_ = lh_take_namespace(ns, &cli->arena);
    rights = rights_text(request, &cli->arena);
    response =
        lh_ask(cli, &request->base,
               &(struct lh_ask){.kind = LH_ASK_AGAIN,
                                .sql = sql,
                                .values = (const char *const[]){principal, strcmp(ns, ".") == 0 ? "" : ns, rights},
                                .value_count = 3,
                                .then = RULES " where r.principal = $1 and r.namespace = $2",
                                .then_count = 2});
    if (response != NULL && !lh_print_json(cli, response))
        print_rule(request, response->rule, &cli->arena);
    return cli->status;
}

static enum lh_exit grant(struct lh_cli *cli)
{
    return change(cli, &leasehold__v1__grant_access_request__descriptor,
                  "select leasehold.access_grant($1, $2, variadic string_to_array($3, ','))");
}

static enum lh_exit revoke(struct lh_cli *cli)
{
    return change(cli, &leasehold__v1__revoke_access_request__descriptor,
                  "select leasehold.access_revoke($1, $2, variadic string_to_array($3, ','))");
}

/* --- the command --- */

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
    .verbs = (const struct lh_verb[]){{"list", 1, 1, "", list, NULL},
                                      {"grant", 4, 0, "PRINCIPAL NAMESPACE RIGHT...", grant, NULL},
                                      {"revoke", 3, 0, "PRINCIPAL NAMESPACE [RIGHT...]", revoke, NULL},
                                      {0}},
    .words_min = 1,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
};
