/*
 * token create, list, revoke: bearer tokens. All end as messages of the AdminService, asked of the server or made from
 * the database. A new token is all of the standard output, so that it can go to a file; what is to be said about it goes
 * to the standard error.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"
#include "cli/server.h"

#define PAGE_SIZE 1000

/* --- create --- */

static void print_created(const char *name, const Leasehold__V1__CreateTokenResponse *response)
{
    char when[LH_TIME_TEXT_BYTES] = "";

    printf("%s\n", response->token);
    if (response->expires_at != NULL)
        lh_time_format(response->expires_at->seconds, when);
    fprintf(stderr, "token %s of token:%s %s%s; it is shown only now\n", response->id, name,
            response->expires_at != NULL ? "expires " : "does not expire", when);
}

static enum lh_exit create(struct lh_cli *cli, const char *name, struct lh_arena *arena)
{
    static const char sql[] =
        "select t.token, t.id, (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us"
        "  from leasehold.token_create($1, $2::bigint * interval '1 us') t";
    Leasehold__V1__CreateTokenRequest request = LEASEHOLD__V1__CREATE_TOKEN_REQUEST__INIT;
    const Leasehold__V1__CreateTokenResponse *response;
    Google__Protobuf__Duration duration;
    const char *expires = lh_args_value(&cli->args, "expires");
    char us[24];
    const char *const values[] = {name, expires != NULL ? us : NULL};
    struct lh_error error = {0};
    struct lh_reply reply;
    int64_t expires_us = 0;
    enum lh_exit status;

    if (expires != NULL && lh_check_duration("expires", expires, 1, &expires_us, &error) != LH_OK)
        return lh_error_value(cli, &error);
    snprintf(us, sizeof(us), "%" PRId64, expires_us);
    duration = lh_duration_message(expires_us);
    request.name = (char *)(uintptr_t)name;
    request.expires = expires != NULL ? &duration : NULL;
    response =
        lh_admin_ask(cli, &(struct lh_admin_call){LH_DATABASE_WRITE, "CreateToken", &request.base, sql, values, 2},
                     arena, &reply, &status);
    if (response != NULL && !lh_print_json(cli, response))
        print_created(name, response);
    lh_reply_finish(&reply);
    return status;
}

/* --- list --- */

static void add_time(struct lh_grid *table, const Google__Protobuf__Timestamp *at)
{
    char text[LH_TIME_TEXT_BYTES] = "never";

    if (at != NULL)
        lh_time_format(at->seconds, text);
    lh_grid_texts(table, text, NULL);
}

static void print_tokens(const Leasehold__V1__ListTokensResponse *response)
{
    struct lh_grid table = {.columns = 5};

    if (response->n_tokens == 0) {
        fprintf(stderr, "no tokens\n");
        return;
    }
    lh_grid_texts(&table, "ID", "NAME", "CREATED", "EXPIRES", "LAST USED", NULL);
    for (size_t i = 0; i < response->n_tokens; i++) {
        const Leasehold__V1__AccessToken *token = response->tokens[i];
        lh_grid_texts(&table, token->id, token->name, NULL);
        add_time(&table, token->created_at);
        add_time(&table, token->expires_at);
        add_time(&table, token->last_used_at);
    }
    lh_grid_print(&table, stdout);
}

static enum lh_exit list(struct lh_cli *cli, struct lh_arena *arena)
{
    static const char sql[] = "select t.id, t.name, t.created_by,"
                              " (extract(epoch from t.created_at) * 1000000)::bigint as created_at_us,"
                              " (extract(epoch from t.expires_at) * 1000000)::bigint as expires_at_us,"
                              " (extract(epoch from t.last_used_at) * 1000000)::bigint as last_used_at_us"
                              "  from leasehold.access_token t"
                              " order by t.name, t.id collate \"C\"";
    Leasehold__V1__ListTokensRequest request = LEASEHOLD__V1__LIST_TOKENS_REQUEST__INIT;
    const Leasehold__V1__ListTokensResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    request.page_size = PAGE_SIZE;
    response = lh_admin_ask(cli, &(struct lh_admin_call){LH_DATABASE_READ, "ListTokens", &request.base, .sql = sql},
                            arena, &reply, &status);
    if (response != NULL && !lh_print_json(cli, response))
        print_tokens(response);
    lh_reply_finish(&reply);
    return status;
}

/* --- revoke --- */

static enum lh_exit revoke(struct lh_cli *cli, const char *name_or_id, struct lh_arena *arena)
{
    Leasehold__V1__RevokeTokenRequest request = LEASEHOLD__V1__REVOKE_TOKEN_REQUEST__INIT;
    const Leasehold__V1__RevokeTokenResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    request.name_or_id = (char *)(uintptr_t)name_or_id;
    response = lh_admin_ask(cli,
                            &(struct lh_admin_call){LH_DATABASE_WRITE, "RevokeToken", &request.base,
                                                    "select leasehold.token_revoke($1) as revoked", &name_or_id, 1},
                            arena, &reply, &status);
    if (response != NULL && !lh_print_json(cli, response) && response->revoked > 0)
        printf("%" PRId64 " token%s revoked\n", response->revoked, response->revoked == 1 ? "" : "s");
    if (response != NULL && response->revoked == 0)
        status = lh_error_print("no token has the name or the ID %s", name_or_id);
    lh_reply_finish(&reply);
    return status;
}

/* --- the words --- */

static enum lh_exit run(struct lh_cli *cli)
{
    const struct lh_args *args = &cli->args;
    const char *verb = args->words[0];
    bool is_list = strcmp(verb, "list") == 0, is_create = strcmp(verb, "create") == 0;
    struct lh_arena arena = {0};
    enum lh_exit status;

    if (is_list && args->word_count > 1)
        return lh_error_usage(cli->command, "unexpected argument: %s", args->words[1]);
    if (!is_list && args->word_count < 2)
        return lh_error_usage(cli->command, "missing argument; usage: leasehold token %s",
                              is_create ? "create NAME" : "revoke NAME|ID");
    if (!is_create && lh_args_has(args, "expires"))
        return lh_error_usage(cli->command, "--expires is for token create only");
    if (is_list)
        status = list(cli, &arena);
    else
        status = is_create ? create(cli, args->words[1], &arena) : revoke(cli, args->words[1], &arena);
    lh_arena_finish(&arena);
    return status;
}

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
    .verbs = (const char *const[]){"create", "list", "revoke", NULL},
    .words_min = 1,
    .words_max = 2,
    .reach = LH_REACH_EITHER,
    .run = run,
};
