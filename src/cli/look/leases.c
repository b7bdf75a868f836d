/* list and show: leases, many in a table or one with all that is known of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/row_message.h"

/* --- list --- */

static void print(struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__ListLeasesResponse *all = answer;
    struct lh_grid table = {.columns = LH_LEASE_TABLE_COLUMNS, .right = LH_LEASE_TABLE_RIGHT};

    lh_lease_table_fit(&table, stdout);
    lh_add_lease_table_header(&table);
    for (size_t i = 0; i < all->n_leases; i++)
        lh_add_lease_table_row(&table, all->leases[i]);
    if (all->n_leases > 0)
        lh_grid_print(&table, stdout);
    else
        fputs("no lease is held\n", stderr);
    lh_grid_finish(&table);
}

/* As typed, in the order of LeaseState. */
static const char *const states[] = {"overdue", "silent", "held-too-long", "expired", NULL};

/* What the server would have answered, made from the view. */
static enum lh_exit by_database(struct lh_cli *cli, const char *ns, const Leasehold__V1__ListLeasesRequest *request)
{
    Leasehold__V1__ListLeasesResponse all = LEASEHOLD__V1__LIST_LEASES_RESPONSE__INIT;
    const char *state = lh_message_word(&leasehold__v1__lease_state__descriptor, (int)request->state, &cli->arena);
    const char *sql =
        lh_arena_format(&cli->arena,
                        "select %s from leasehold.lease l"
                        " where ($1 = '' or l.namespace = $1 or ($2::boolean and starts_with(l.namespace, $1 || '.')))"
                        " and ($3::text is null or l.owner = $3) and ($4::text is null or %s)"
                        " and l.held >= $5::bigint * interval '1 us' order by l.namespace, l.key, l.token",
                        lh_lease_columns, state != NULL ? "$4 = any (l.states)" : "true");
    const char *const values[] = {
        strcmp(ns, ".") == 0 ? "" : ns, request->include_children ? "true" : "false",
        lh_args_value(&cli->args, "owner"), state,
        lh_arena_format(&cli->arena, "%" PRId64,
                        request->longer_than != NULL ? lh_duration_us(request->longer_than) : 0)};
    struct lh_rows rows;

    if (lh_ask_rows(cli, &(struct lh_ask){.sql = sql, .values = values, .value_count = 5}, &rows)) {
        all.leases = lh_leases_from_rows(&cli->arena, &rows);
        all.n_leases = rows.row_count;
        if (!lh_print_json(cli, &all))
            print(cli, &all);
    }
    return cli->status;
}

static enum lh_exit run_list(struct lh_cli *cli)
{
    static const struct lh_taken owner[] = {{.option = "owner", .text = LH_TEXT_OWNER},
                                            {.option = "children", .field = "include_children"},
                                            {0}},
                                 longer_than[] = {{.option = "longer-than", .least = 0}, {0}};
    Leasehold__V1__ListLeasesRequest request = LEASEHOLD__V1__LIST_LEASES_REQUEST__INIT;
    const char *ns = cli->args.word_count > 0 ? cli->args.words[0] : "", *state = lh_args_value(&cli->args, "state");
    const Leasehold__V1__Namespace *in;
    struct lh_error error = {0};
    size_t at;

    if (lh_check_namespace_or_root(ns, &error) != LH_OK ||
        lh_take_options(&cli->args, owner, &request.base, &cli->arena, &error) != LH_OK ||
        (state != NULL && lh_check_word("state: ", state, states, &at, &error) != LH_OK) ||
        lh_take_options(&cli->args, longer_than, &request.base, &cli->arena, &error) != LH_OK)
        return lh_error_value(cli, &error);
    in = lh_take_namespace(ns, &cli->arena);
    request.namespace_ = in->segments;
    request.n_namespace_ = in->n_segments;
    if (state != NULL)
        request.state = (Leasehold__V1__LeaseState)(at + 1); /* 0 is none */
    return cli->uses_database ? by_database(cli, ns, &request)
                              : lh_ask_and_print(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_READ}, print);
}

static const struct lh_option list_options[] = {
    {"children", 'r', NULL, "Include the namespaces below."},
    {"owner", 0, "TEXT", "Only the leases of this owner."},
    {"state", 0, "STATE",
     "Only leases that somebody should look at: overdue (past the deadline, within the grace), silent (suspected "
     "dead), "
     "held-too-long (for longer than max_hold) or expired."},
    {"longer-than", 0, "DURATION", "Only leases that have been held for so long."},
    {0},
};

const struct lh_command lh_command_list = {
    .name = "list",
    .summary = "print the leases that are held",
    .usage = (const char *const[]){"list [NAMESPACE] [--children] [--owner TEXT]",
                                   "list [NAMESPACE] [--state STATE] [--longer-than DURATION]", NULL},
    .description = "Prints every lease of a namespace, or of all of them, ordered by namespace and\n"
                   "key, with a row for each holder of a shared one. STATE is alive, suspected dead\n"
                   "(its heartbeats are missing), held too long (for longer than max_hold of the\n"
                   "policy) or expired (about to be ended). If no lease is held, the exit status is\n"
                   "still 0. On a terminal, columns that do not fit are left out; -o json has all.\n",
    .options = list_options,
    .examples = "  leasehold list payments --children\n"
                "  leasehold list --state held-too-long --longer-than 1h\n"
                "  leasehold list --database postgresql:///leasehold\n"
                "  leasehold list -o json | jq -r '.leases[] | .owner' | sort | uniq -c\n",
    .words_min = 0,
    .words_max = 1,
    .reach = LH_REACH_EITHER,
    .run = run_list,
};

/* --- show --- */

static void add_last_hold(struct lh_grid *card, const Leasehold__V1__LastHold *last)
{
    lh_grid_row(card, "last hold", "%s, token %" PRId64 ", %s, %s",
                last->owner[0] != '\0' ? last->owner : "(owner unknown)", last->token,
                lh_end_reason_text(last->end_reason),
                last->ended_at != NULL ? LH_TIME_TEXT(last->ended_at->seconds) : "at an unknown time");
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

static void print_text_show(const struct lh_cli *cli, const Leasehold__V1__GetLeaseResponse *response)
{
    struct lh_grid card = {.columns = 2};
    bool is_at_rest = response->contention != NULL && response->contention->rests != NULL;

    if (response->lease != NULL && response->holder_count <= 1) {
        lh_add_lease_rows(&card, response->lease);
    } else {
        lh_grid_row(&card, "lease", "%s", lh_scope_text_of(cli->args.words[0], cli->args.words[1], &card.arena));
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
}

static enum lh_exit run_show(struct lh_cli *cli)
{
    Leasehold__V1__GetLeaseRequest request = LEASEHOLD__V1__GET_LEASE_REQUEST__INIT;
    const Leasehold__V1__GetLeaseResponse *response;
    struct lh_error error = {0};

    request.scope = lh_take_scope(cli->args.words[0], cli->args.words[1], &cli->arena, &error);
    if (request.scope == NULL)
        return lh_error_value(cli, &error);
    response = lh_ask(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_READ});
    if (response != NULL && !lh_print_json(cli, response))
        print_text_show(cli, response);
    return response != NULL && response->lease == NULL ? LH_EXIT_LOST : cli->status;
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
    .run = run_show,
};
