/*
 * token create, list, revoke: bearer tokens. All end as messages of the AdminService, asked of the server or made from
 * the database. A new token is all of the standard output, so that it can go to a file; what is to be said about it goes
 * to the standard error.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/columns.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"
#include "cli/server.h"

/* --- create --- */

static void print_created(struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__CreateTokenResponse *response = answer;

    printf("%s\n", response->token);
    fprintf(stderr, "token %s of token:%s %s%s; it is shown only now\n", response->id, cli->args.words[1],
            response->expires_at != NULL ? "expires " : "does not expire",
            response->expires_at != NULL ? LH_TIME_TEXT(response->expires_at->seconds) : "");
}

static enum lh_exit create(struct lh_cli *cli)
{
    static const char sql[] =
        "select t.token, t.id, (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us"
        "  from leasehold.token_create($1, $2::bigint * interval '1 us') t";
    static const struct lh_taken taken[] = {{.option = "expires", .least = 1}, {0}};
    Leasehold__V1__CreateTokenRequest request = LEASEHOLD__V1__CREATE_TOKEN_REQUEST__INIT;
    const char *values[] = {cli->args.words[1], NULL};
    struct lh_error error = {0};

    request.name = (char *)(uintptr_t)cli->args.words[1];
    if (lh_take_options(&cli->args, taken, &request.base, &cli->arena, &error) != LH_OK)
        return lh_error_value(cli, &error);
    if (request.expires != NULL)
        values[1] = lh_arena_format(&cli->arena, "%" PRId64, lh_duration_us(request.expires));
    return lh_ask_and_print(cli, &request.base,
                            &(struct lh_ask){.kind = LH_ASK_ONCE, .sql = sql, .values = values, .value_count = 2},
                            print_created);
}

/* --- list --- */

static void print_tokens(struct lh_cli *cli, const void *answer)
{
    static const struct lh_column columns[] = {
        {"ID", "id", LH_COLUMN_TEXT},
        {"NAME", "name", LH_COLUMN_TEXT},
        {"CREATED", "created_at", LH_COLUMN_TIME_OR_NEVER},
        {"EXPIRES", "expires_at", LH_COLUMN_TIME_OR_NEVER},
        {"LAST USED", "last_used_at", LH_COLUMN_TIME_OR_NEVER},
        {0},
    };

    lh_columns_print_table(columns, answer, SIZE_MAX, "no tokens");
}

static enum lh_exit list(struct lh_cli *cli)
{
    static const char sql[] = "select t.id, t.name, t.created_by,"
                              " (extract(epoch from t.created_at) * 1000000)::bigint as created_at_us,"
                              " (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us,"
                              " (extract(epoch from t.last_used_at) * 1000000)::bigint as last_used_at_us"
                              "  from leasehold.access_token t"
                              " order by t.name, t.id collate \"C\"";
    Leasehold__V1__ListTokensRequest request = LEASEHOLD__V1__LIST_TOKENS_REQUEST__INIT;

    return lh_ask_and_print(cli, &request.base, &(struct lh_ask){.sql = sql}, print_tokens);
}

/* --- revoke --- */

static enum lh_exit revoke(struct lh_cli *cli)
{
    Leasehold__V1__RevokeTokenRequest request = LEASEHOLD__V1__REVOKE_TOKEN_REQUEST__INIT;
    const Leasehold__V1__RevokeTokenResponse *response;
    const char *name_or_id = cli->args.words[1];

    request.name_or_id = (char *)(uintptr_t)name_or_id;
    response = lh_ask(cli, &request.base,
                      &(struct lh_ask){.kind = LH_ASK_ONCE,
                                       .sql = "select leasehold.token_revoke($1) as revoked",
                                       .values = &name_or_id,
                                       .value_count = 1});
    if (response != NULL && !lh_print_json(cli, response) && response->revoked > 0)
        printf("%" PRId64 " token%s revoked\n", response->revoked, response->revoked == 1 ? "" : "s");
    if (response != NULL && response->revoked == 0)
        return lh_error_print("no token has the name or the ID %s", name_or_id);
    return cli->status;
}

/* --- the command --- */

static const struct lh_option options[] = {
    {"expires", 0, "DURATION", "create: how long the token is valid, such as 90d. Default: until it is revoked."},
    {0},
};

const struct lh_command lh_command_token = {
    .name = "token",
    .summary = "make, list and revoke bearer tokens",
    .usage = (const char *const[]){"token create NAME [--expires 90d]", "token list", "token revoke NAME|ID", NULL},
    .description = "A client that sends a bearer token is the principal token:NAME. create prints a\n"
                   "new token, this once; the database keeps its SHA-256 alone. Several tokens may\n"
                   "have one name: to replace one, create another, give it to the clients, and\n"
                   "revoke the old one by its ID when list shows that it is no longer used. revoke\n"
                   "with a name ends all tokens of that name, within a second.\n"
                   "\n"
                   "Clients send a token from a file: --token-file, or LEASEHOLD_TOKEN_FILE. A token\n"
                   "alone allows nothing: see leasehold access.\n",
    .options = options,
    .examples = "  leasehold token create ci --expires 90d > ci.token\n"
                "  leasehold access grant token:ci jobs read lease\n"
                "  leasehold list jobs --token-file ci.token\n"
                "  leasehold token revoke 3f9c01ab\n",
    .verbs = (const struct lh_verb[]){{"create", 2, 2, "NAME", create, " expires "},
                                      {"list", 1, 1, "", list, NULL},
                                      {"revoke", 2, 2, "NAME|ID", revoke, NULL},
                                      {0}},
    .words_min = 1,
    .words_max = 2,
    .reach = LH_REACH_EITHER,
};
