#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"
#include "cli/server.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "json/row_message.h"

/* "serving: host=db1, timeline 1, 0 waiters; has orders, shop.eu, and all other namespaces" */
static void add_database(struct lh_grid *card, const Leasehold__V1__DatabaseStatus *database, struct lh_arena *arena)
{
    const char *has = "";

    for (size_t i = 0; i < database->n_namespaces; i++) {
        const Leasehold__V1__Namespace *ns = database->namespaces[i];
        has = lh_arena_format(arena, "%s%s%s", has, i > 0 ? ", " : "",
                              lh_message_dotted(ns->segments, ns->n_segments, arena));
    }
    lh_grid_add(card, "database %s", database->name);
    lh_grid_add(card, "%s%s: %s, timeline %" PRId64 ", %" PRId64 " waiters; has %s%s",
                database->trouble[0] == '\0' ? "serving" : "not serving, ", database->trouble,
                database->server[0] != '\0' ? database->server : "no server was reached yet", database->timeline,
                database->waiters, has,
                !database->is_default        ? ""
                : database->n_namespaces > 0 ? ", and all other namespaces"
                                             : "all other namespaces");
}

/* "slots of jobs   eu 2060, home 2035, no database or several 1": of each namespace the last has no database. */
static void add_slots(struct lh_grid *card, const Leasehold__V1__GetStatusResponse *response, struct lh_arena *arena)
{
    const char *slots = "";

    for (size_t i = 0; i < response->n_spread; i++) {
        const Leasehold__V1__SpreadStatus *one = response->spread[i];
        const Leasehold__V1__Namespace *ns = one->namespace_;
        bool is_last = one->database[0] == '\0';
        if (!is_last || one->slots > 0)
            slots = lh_arena_format(arena, "%s%s%s %" PRId32, slots, slots[0] != '\0' ? ", " : "",
                                    is_last ? "no database or several" : one->database, one->slots);
        if (!is_last)
            continue;
        lh_grid_add(card, "slots of %s", lh_message_dotted(ns->segments, ns->n_segments, arena));
        lh_grid_add(card, "%s", slots);
        slots = "";
    }
}

static void print_text(struct lh_cli *cli, const Leasehold__V1__GetStatusResponse *response)
{
    struct lh_grid card = {.columns = 2};
    int64_t max_block_us = response->max_block != NULL ? lh_duration_us(response->max_block) : 0;

    lh_grid_row(&card, "server", "%s", cli->server);
    lh_grid_row(&card, "version", "%s", response->version);
    lh_grid_row(&card, "schema", "%" PRId32, response->schema_version);
    lh_grid_row(&card, "coordinator", "%s",
                response->coordinator_id[0] != '\0' ? response->coordinator_id : "shown to administrators");
    lh_grid_row(&card, "state", "%s", response->trouble[0] == '\0' ? "serving" : "not serving");
    lh_grid_row(&card, "database server", "%s",
                response->server[0] != '\0' ? response->server : "none was reached yet");
    if (response->timeline > 0)
        lh_grid_row(&card, "timeline", "%" PRId64, response->timeline);
    else
        lh_grid_row(&card, "timeline", "unknown: the database was not reached yet");
    if (response->common_path[0] != '\0')
        lh_grid_row(&card, "common path", "%s", response->common_path);
    if (response->warning[0] != '\0')
        lh_grid_row(&card, "warning", "%s", response->warning);
    lh_grid_row(&card, "longest wait of a call", "%s", max_block_us > 0 ? LH_DURATION_TEXT(max_block_us) : "none");
    lh_grid_row(&card, "waiters here", "%" PRId64, response->waiters);
    for (size_t i = 0; i < response->n_databases; i++)
        add_database(&card, response->databases[i], &cli->arena);
    add_slots(&card, response, &cli->arena);
    lh_grid_print(&card, stdout);
}

static enum lh_exit run(struct lh_cli *cli)
{
    Leasehold__V1__GetStatusRequest request = LEASEHOLD__V1__GET_STATUS_REQUEST__INIT;
    const Leasehold__V1__GetStatusResponse *answer = lh_ask(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_READ});

    if (answer != NULL && !lh_print_json(cli, answer))
        print_text(cli, answer);
    if (answer == NULL || answer->trouble[0] == '\0')
        return cli->status;
    lh_error_print("%s does not serve: %s; its log and /readyz on its admin port say more", cli->server,
                   answer->trouble);
    return LH_EXIT_UNAVAILABLE;
}

const struct lh_command lh_command_status = {
    .name = "status",
    .summary = "the daemon that answers: version, database, waiters",
    .usage = (const char *const[]){"status", NULL},
    .description = "Asks the daemon about itself. Exit status 5 says that none answers, or that it\n"
                   "cannot serve now: then it says why.\n",
    .examples = "  leasehold status\n"
                "  leasehold status --server unix:/run/leasehold/leaseholdd.sock -o json\n",
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
