#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/server.h"
#include "json/print.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)

static void add_last_hold(struct lh_grid *card, const Leasehold__V1__LastHold *last)
{
    char when[LH_TIME_TEXT_BYTES] = "at an unknown time";

    if (last->ended_at != NULL)
        lh_time_format(last->ended_at->seconds, when);
    lh_grid_row(card, "last hold", "%s, token %" PRId64 ", %s, %s",
                last->owner[0] != '\0' ? last->owner : "(owner unknown)", last->token,
                lh_end_reason_text(last->end_reason), when);
    lh_add_principal(card, last->principal);
    if (last->result[0] != '\0')
        lh_grid_row(card, "result", "%s", last->result);
    if (last->error[0] != '\0')
        lh_grid_row(card, "error", "%s", last->error);
}

static void print_holders(const Leasehold__V1__GetLeaseResponse *response)
{
    struct lh_grid table = {.columns = LH_LEASE_TABLE_COLUMNS, .right = LH_LEASE_TABLE_RIGHT};

    putchar('\n');
    lh_add_lease_table_header(&table);
    for (size_t i = 0; i < response->n_holders; i++)
        lh_add_lease_table_row(&table, response->holders[i]);
    lh_grid_print(&table, stdout);
}

static void print_text(const struct lh_cli *cli, const Leasehold__V1__GetLeaseResponse *response)
{
    struct lh_grid card = {.columns = 2};
    bool is_at_rest = response->contention != NULL && response->contention->rests != NULL;
    char *scope = lh_scope_text_of(cli->args.words[0], cli->args.words[1]);

    if (response->lease != NULL && response->holder_count <= 1) {
        lh_add_lease_rows(&card, response->lease);
    } else {
        lh_grid_row(&card, "lease", "%s", scope);
        if (response->lease != NULL)
            lh_grid_row(&card, "state", "shared by %" PRId32 " holders%s", response->holder_count,
                        (size_t)response->holder_count > response->n_holders ? "; the oldest are listed" : "");
        else
            lh_grid_row(&card, "state", is_at_rest ? "at rest" : "free");
    }
    lh_add_rest(&card, response->contention);
    lh_add_units_free(&card, response->contention);
    if (response->contention != NULL)
        lh_grid_row(&card, "waiters", "%" PRId32, response->contention->waiters_ahead);
    if (response->last != NULL)
        add_last_hold(&card, response->last);
    lh_grid_print(&card, stdout);
    if (response->holder_count > 1)
        print_holders(response);
    free(scope);
}

static enum lh_exit run(struct lh_cli *cli)
{
    Leasehold__V1__GetLeaseRequest request = LEASEHOLD__V1__GET_LEASE_REQUEST__INIT;
    const Leasehold__V1__GetLeaseResponse *response;
    struct lh_error error = {0};
    struct lh_scope_message scope;
    struct lh_reply reply;
    enum lh_exit status;

    if (!lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    request.scope = &scope.message;
    status = lh_server_ask(cli, SERVICE, "GetLease", &request.base, LH_REPEAT, &reply);
    response = (const Leasehold__V1__GetLeaseResponse *)reply.message;
    if (response != NULL && cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &response->base);
    else if (response != NULL)
        print_text(cli, response);
    if (response != NULL)
        status = response->lease != NULL ? LH_EXIT_DONE : LH_EXIT_LOST;
    lh_reply_finish(&reply);
    lh_scope_message_finish(&scope);
    return status;
}

const struct lh_command lh_command_show = {
    .name = "show",
    .summary = "print one lease: holders, waiters, end of the last hold",
    .usage = (const char *const[]){"show NAMESPACE KEY", NULL},
    .description = "Prints the holder of a lease, its state and the number of waiters; of a shared\n"
                   "lease all holders, the oldest first, at most 100. A lease that was released\n"
                   "lately shows how its last hold ended, with result or error, and how long it\n"
                   "rests if its minimum hold has not passed. Exit status 4: the lease is not held.\n",
    .examples = "  leasehold show payments invoice-42\n"
                "  leasehold show payments invoice-42 >/dev/null 2>&1 && echo held\n",
    .words_min = 2,
    .words_max = 2,
    .run = run,
};
