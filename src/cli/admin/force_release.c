#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "pg/values.h"

#define SERVICE (&leasehold__v1__admin_service__descriptor)

static void print_line(const struct lh_cli *cli, const Leasehold__V1__Lease *lease)
{
    char *scope = lh_scope_text_of(cli->args.words[0], cli->args.words[1]);
    char *line = lease == NULL ? lh_format("ended the rest of %s; nobody held it", scope)
                               : lh_format("ended the lease %s of %s, token %" PRId64, scope,
                                           lease->owner[0] != '\0' ? lease->owner : "an unknown owner", lease->token);
    char *clean = lh_clean(line);

    puts(clean);
    free(clean);
    free(line);
    free(scope);
}

/* No lease: the scope was not held, and its rest was ended. */
static void print_ended(const struct lh_cli *cli, const Leasehold__V1__ForceReleaseResponse *response)
{
    if (lh_print_json(cli, response))
        return;
    if (response->n_leases == 0) /* also an older server's answer, which has `lease` alone */
        print_line(cli, response->lease);
    else
        for (size_t i = 0; i < response->n_leases; i++)
            print_line(cli, response->leases[i]);
}

/* A row for each lease. */
static void print_rows(const struct lh_cli *cli, const PGresult *result)
{
    Leasehold__V1__ForceReleaseResponse response = LEASEHOLD__V1__FORCE_RELEASE_RESPONSE__INIT;
    struct lh_arena arena = {0};
    struct lh_rows rows = lh_pg_rows(result, 0, &arena);

    response.leases = lh_arena_alloc(&arena, (rows.row_count + 1) * sizeof(*response.leases));
    for (size_t row = 0; row < rows.row_count; row++)
        response.leases[response.n_leases++] = lh_lease_from_row(&arena, &rows, row);
    response.lease = response.leases[0];
    print_ended(cli, &response);
    lh_arena_finish(&arena);
}

static bool is_text(const PGresult *result, const char *column, const char *text)
{
    const char *value = lh_query_text(result, 0, column);
    return value != NULL && strcmp(value, text) == 0;
}

/* It has no row for a rest that it ended. */
static bool is_rest_over(struct lh_session *session, const struct lh_cli *cli, enum lh_exit *status)
{
    const char *const values[] = {cli->args.words[0], cli->args.words[1]};
    PGresult *result =
        lh_database_query(session, cli, "select e.state from leasehold.explain($1, $2) e", values, 2, status);
    bool is_over = result != NULL && !is_text(result, "state", "resting");

    PQclear(result);
    return is_over;
}

static enum lh_exit by_database(const struct lh_cli *cli, const char *reason, const char *token)
{
    char *sql = lh_format("with e as materialized (select state from leasehold.explain($1, $2))"
                          " select e.state, %s from e left join lateral"
                          " leasehold.force_release(namespace => $1, key => $2, reason => $3, token => $4::bigint,"
                          " all_holders => $5::boolean) l on true order by l.token",
                          lh_lease_columns);
    const char *const values[] = {cli->args.words[0], cli->args.words[1], reason, token,
                                  lh_args_has(&cli->args, "all") ? "true" : "false"};
    static const Leasehold__V1__ForceReleaseResponse nothing = LEASEHOLD__V1__FORCE_RELEASE_RESPONSE__INIT;
    struct lh_session *session;
    PGresult *result = NULL;
    enum lh_exit status = lh_database_open(&session, cli, LH_DATABASE_WRITE);
    char name[LH_SCOPE_NAME_BYTES];

    if (status == LH_EXIT_DONE)
        result = lh_database_query(session, cli, sql, values, 5, &status);
    if (result != NULL && lh_query_text(result, 0, "token") == NULL && is_text(result, "state", "resting") &&
        is_rest_over(session, cli, &status)) {
        print_ended(cli, &nothing);
    } else if (result != NULL && lh_query_text(result, 0, "token") == NULL) {
        lh_error_print("lease %s is not held%s", lh_scope_name(cli->args.words[0], cli->args.words[1], name),
                       token != NULL ? " with this token" : "");
        status = LH_EXIT_LOST;
    } else if (result != NULL) {
        print_rows(cli, result);
    }
    PQclear(result);
    lh_session_close(session);
    free(sql);
    return status;
}

/* With a token a repetition can only end the lease that was meant; without one it might end the next. */
static enum lh_exit by_server(const struct lh_cli *cli, struct lh_scope_message *scope, const char *reason,
                              int64_t token)
{
    Leasehold__V1__ForceReleaseRequest request = LEASEHOLD__V1__FORCE_RELEASE_REQUEST__INIT;
    const Leasehold__V1__ForceReleaseResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    request.scope = &scope->message;
    request.reason = (char *)(uintptr_t)reason;
    request.token = token;
    request.all = lh_args_has(&cli->args, "all");
    status = lh_server_ask(cli, SERVICE, "ForceRelease", &request.base, token != 0 ? LH_REPEAT : LH_NO_REPEAT, &reply);
    response = (const Leasehold__V1__ForceReleaseResponse *)reply.message;
    if (response != NULL)
        print_ended(cli, response);
    lh_reply_finish(&reply);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    const char *reason = lh_args_value(&cli->args, "reason");
    const char *token_text = lh_args_value(&cli->args, "token");
    struct lh_error error = {0};
    struct lh_scope_message scope;
    enum lh_exit status;
    int64_t token = 0;

    if (reason == NULL)
        return lh_error_usage(cli->command, "force-release needs --reason TEXT; the holder and the history get it");
    if (token_text != NULL && lh_args_has(&cli->args, "all"))
        return lh_error_usage(cli->command, "--token and --all cannot be combined");
    if (lh_bounds_text("reason", LH_TEXT_REASON, reason, &error) != LH_OK ||
        (token_text != NULL && lh_check_number("token", token_text, 1, INT64_MAX, &token, &error) != LH_OK) ||
        !lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    if (cli->uses_database)
        status = by_database(cli, reason, token_text);
    else
        status = by_server(cli, &scope, reason, token);
    lh_scope_message_finish(&scope);
    if (status == LH_EXIT_HELD) /* busy: not a refused lease, but one that could not be ended */
        status = LH_EXIT_FAILED;
    return status;
}

static const struct lh_option options[] = {
    {"reason", 0, "TEXT", "The reason, mandatory. The holder and the history get it."},
    {"token", 0, "N", "End it only if it is still held with this token; of several holders, the one with it."},
    {"all", 0, NULL, "End the leases of all holders that share it."},
    {0},
};

const struct lh_command lh_command_force_release = {
    .name = "force-release",
    .summary = "end the lease of another holder, as an administrator",
    .usage = (const char *const[]){"force-release NAMESPACE KEY --reason TEXT [--token N | --all]", NULL},
    .description = "Ends a lease against the will of its holder. The holder gets LOST at its next\n"
                   "heartbeat; until then it may continue its work, so make sure that it is dead,\n"
                   "or that the systems it writes to refuse its token. With the --token that list\n"
                   "printed, a newer holder is never ended by mistake. A lease that several holders\n"
                   "share needs --token or --all. The rest of a minimum hold ends too.\n",
    .options = options,
    .examples = "  leasehold force-release payments invoice-42 --token 41 \\\n"
                "    --reason 'worker-3 is gone'\n"
                "  leasehold force-release payments invoice-42 --reason 'no daemon runs' \\\n"
                "    --database postgresql:///leasehold\n",
    .words_min = 2,
    .words_max = 2,
    .reach = LH_REACH_EITHER,
    .run = run,
};
