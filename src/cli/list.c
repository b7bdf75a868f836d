#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/bounds.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/server.h"
#include "json/print.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)
#define PAGE_SIZE 1000

static void print(const struct lh_cli *cli, const Leasehold__V1__ListLeasesResponse *all)
{
    struct lh_grid table = {.columns = LH_LEASE_TABLE_COLUMNS, .right = LH_LEASE_TABLE_RIGHT};

    if (cli->output == LH_OUTPUT_JSON) {
        lh_json_print(stdout, &all->base);
        return;
    }
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

static enum lh_exit by_server(const struct lh_cli *cli, const char *ns, const char *owner)
{
    Leasehold__V1__ListLeasesRequest request = LEASEHOLD__V1__LIST_LEASES_REQUEST__INIT;
    struct lh_segments segments;
    struct lh_reply reply;
    enum lh_exit status;

    lh_segments_split(&segments, ns);
    request.namespace_ = segments.list;
    request.n_namespace_ = segments.count;
    request.include_children = lh_args_has(&cli->args, "children");
    request.page_size = PAGE_SIZE;
    if (owner != NULL)
        request.owner = (char *)(uintptr_t)owner;
    status = lh_server_list(cli, SERVICE, "ListLeases", &request.base, &reply);
    if (status == LH_EXIT_DONE)
        print(cli, (const Leasehold__V1__ListLeasesResponse *)reply.message);
    lh_reply_finish(&reply);
    lh_segments_finish(&segments);
    return status;
}

/* What the server would have answered, made from the view. */
static enum lh_exit by_database(const struct lh_cli *cli, const char *ns, const char *owner, struct lh_arena *arena)
{
    Leasehold__V1__ListLeasesResponse all = LEASEHOLD__V1__LIST_LEASES_RESPONSE__INIT;
    char *sql =
        lh_format("select %s from leasehold.lease l"
                  " where ($1 = '' or l.namespace = $1 or ($2::boolean and starts_with(l.namespace, $1 || '.')))"
                  " and ($3::text is null or l.owner = $3) order by l.namespace, l.key, l.token",
                  lh_lease_columns);
    const char *const values[] = {strcmp(ns, ".") == 0 ? "" : ns,
                                  lh_args_has(&cli->args, "children") ? "true" : "false", owner};
    enum lh_exit status;
    PGresult *rows = lh_database_ask(cli, LH_DATABASE_READ, sql, values, 3, &status);

    if (rows != NULL) {
        all.leases = lh_arena_alloc(arena, ((size_t)PQntuples(rows) + 1) * sizeof(*all.leases));
        for (int row = 0; row < PQntuples(rows); row++)
            all.leases[all.n_leases++] = lh_lease_from_row(arena, rows, row);
        print(cli, &all);
    }
    PQclear(rows);
    free(sql);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    const char *ns = cli->args.word_count > 0 ? cli->args.words[0] : "";
    const char *owner = lh_args_value(&cli->args, "owner");
    struct lh_arena arena = {0};
    struct lh_error error = {0};
    enum lh_exit status;

    if (lh_check_namespace_or_root(ns, &error) != LH_OK || (owner != NULL && lh_check_owner(owner, &error) != LH_OK))
        return lh_error_value(cli, &error);
    status = cli->uses_database ? by_database(cli, ns, owner, &arena) : by_server(cli, ns, owner);
    lh_arena_finish(&arena);
    return status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "Include the namespaces below."},
    {"owner", 0, "TEXT", "Only the leases of this owner."},
    {0},
};

const struct lh_command lh_command_list = {
    .name = "list",
    .summary = "print the leases that are held",
    .usage = (const char *const[]){"list [NAMESPACE] [--children] [--owner TEXT]", NULL},
    .description = "Prints every lease of a namespace, or of all of them, ordered by namespace and\n"
                   "key, with a row for each holder of a shared one. STATE is alive, suspected dead\n"
                   "(its heartbeats are missing), overdue (held for longer than max_hold of the\n"
                   "policy) or expired (about to be ended). If no lease is held, the exit status is\n"
                   "still 0. On a terminal, columns that do not fit are left out; -o json has all.\n",
    .options = options,
    .examples = "  leasehold list payments --children\n"
                "  leasehold list --database postgresql:///leasehold\n"
                "  leasehold list -o json | jq -r '.leases[] | .owner' | sort | uniq -c\n",
    .words_min = 0,
    .words_max = 1,
    .reach = LH_REACH_EITHER,
    .run = run,
};
