#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "pg/values.h"

static void print_line(struct lh_cli *cli, const Leasehold__V1__Lease *lease)
{
    const char *scope = lh_scope_text_of(cli->args.words[0], cli->args.words[1], &cli->arena);

    if (lease == NULL)
        lh_print_line("ended the rest of %s; nobody held it", scope);
    else
        lh_print_line("ended the lease %s of %s, token %" PRId64, scope,
                      lease->owner[0] != '\0' ? lease->owner : "an unknown owner", lease->token);
}

/* No lease: the scope was not held, and its rest was ended. */
static void print_ended(struct lh_cli *cli, const Leasehold__V1__ForceReleaseResponse *response)
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
static void print_rows(struct lh_cli *cli, const PGresult *result)
{
    Leasehold__V1__ForceReleaseResponse response = LEASEHOLD__V1__FORCE_RELEASE_RESPONSE__INIT;
    struct lh_rows rows = lh_pg_rows(result, 0, &cli->arena);

    response.leases = lh_leases_from_rows(&cli->arena, &rows);
    response.n_leases = rows.row_count;
    response.lease = response.leases[0];
    print_ended(cli, &response);
}

static bool is_text(const PGresult *result, const char *column, const char *text)
{
    const char *value = lh_query_text(result, 0, column);
    return value != NULL && strcmp(value, text) == 0;
}

/* It has no row for a rest that it ended. */
static bool is_rest_over(PGconn *session, const struct lh_cli *cli, enum lh_exit *status)
{
    const char *const values[] = {cli->args.words[0], cli->args.words[1]};
    PGresult *result =
        lh_database_query(session, cli, "select e.state from leasehold.explain($1, $2) e", values, 2, status);
    bool is_over = result != NULL && !is_text(result, "state", "resting");

    PQclear(result);
    return is_over;
}

static enum lh_exit by_database(struct lh_cli *cli, const char *reason, const char *token)
{
    const char *sql =
        lh_arena_format(&cli->arena,
                        "with e as materialized (select state from leasehold.explain($1, $2))"
                        " select e.state, %s from e left join lateral"
                        " leasehold.force_release(namespace => $1, key => $2, reason => $3, token => $4::bigint,"
                        " all_holders => $5::boolean) l on true order by l.token",
                        lh_lease_columns);
    const char *const values[] = {cli->args.words[0], cli->args.words[1], reason, token,
                                  lh_args_has(&cli->args, "all") ? "true" : "false"};
    static const Leasehold__V1__ForceReleaseResponse nothing = LEASEHOLD__V1__FORCE_RELEASE_RESPONSE__INIT;
    PGconn *session;
    PGresult *result = NULL;
    enum lh_exit status = lh_database_open(&session, cli, LH_DATABASE_WRITE);

    if (status == LH_EXIT_DONE)
        result = lh_database_query(session, cli, sql, values, 5, &status);
    if (result != NULL && lh_query_text(result, 0, "token") == NULL && is_text(result, "state", "resting") &&
        is_rest_over(session, cli, &status)) {
        print_ended(cli, &nothing);
    } else if (result != NULL && lh_query_text(result, 0, "token") == NULL) {
        lh_error_print("lease %s is not held%s", LH_SCOPE_NAME(cli->args.words[0], cli->args.words[1]),
                       token != NULL ? " with this token" : "");
        status = LH_EXIT_LOST;
    } else if (result != NULL) {
        print_rows(cli, result);
    }
    PQclear(result);
    PQfinish(session);
    return status;
}

/* With a token a repetition can only end the lease that was meant; without one it might end the next. */
static enum lh_exit by_server(struct lh_cli *cli, Leasehold__V1__ForceReleaseRequest *request)
{
    const void *response =
        lh_ask(cli, &request->base, &(struct lh_ask){.kind = request->token != 0 ? LH_ASK_AGAIN : LH_ASK_ONCE});

    if (response != NULL)
        print_ended(cli, response);
    return cli->status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    static const struct lh_taken taken[] = {{.option = "reason", .text = LH_TEXT_REASON},
                                            {.option = "token", .least = 1, .most = INT64_MAX},
                                            {.option = "all"},
                                            {0}};
    Leasehold__V1__ForceReleaseRequest request = LEASEHOLD__V1__FORCE_RELEASE_REQUEST__INIT;
    const char *token = lh_args_value(&cli->args, "token");
    struct lh_error error = {0};
    enum lh_exit status;

    if (lh_args_value(&cli->args, "reason") == NULL)
        return lh_error_usage(cli->command, "force-release needs --reason TEXT; the holder and the history get it");
    if (token != NULL && lh_args_has(&cli->args, "all"))
        return lh_error_usage(cli->command, "--token and --all cannot be combined");
    if (lh_take_options(&cli->args, taken, &request.base, &cli->arena, &error) == LH_OK)
        request.scope = lh_take_scope(cli->args.words[0], cli->args.words[1], &cli->arena, &error);
    if (request.scope == NULL)
        return lh_error_value(cli, &error);
    status = cli->uses_database ? by_database(cli, request.reason, token) : by_server(cli, &request);
    /* busy: not a refused lease, but one that could not be ended */
    return status == LH_EXIT_HELD ? LH_EXIT_FAILED : status;
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
