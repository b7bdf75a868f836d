#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/bounds.h"
#include "cli/complain.h"
#include "cli/json.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/server.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)
#define PAGE_SIZE 1000

/* All pages, each kept until everything is printed: their leases point into them. */
struct listing {
    struct lh_reply *pages;
    size_t page_count;
};

static Leasehold__V1__ListLeasesResponse *page(const struct listing *listing, size_t i)
{
    return (Leasehold__V1__ListLeasesResponse *)listing->pages[i].message;
}

static enum lh_exit fetch(struct lh_server *server, Leasehold__V1__ListLeasesRequest *request, struct listing *listing)
{
    for (;;) {
        struct lh_reply *reply;
        enum lh_exit status;

        listing->pages = lh_realloc(listing->pages, listing->page_count + 1, sizeof(*listing->pages));
        reply = &listing->pages[listing->page_count++];
        status = lh_server_call(server, SERVICE, "ListLeases", &request->base, LH_REPEAT, reply);
        if (status != LH_EXIT_DONE)
            return status;
        request->page_token = page(listing, listing->page_count - 1)->next_page_token;
        if (request->page_token[0] == '\0')
            return LH_EXIT_DONE;
    }
}

/* One message, as if the server knew no pages. */
static void print_json(const struct listing *listing)
{
    Leasehold__V1__ListLeasesResponse all = LEASEHOLD__V1__LIST_LEASES_RESPONSE__INIT;

    for (size_t i = 0; i < listing->page_count; i++)
        all.n_leases += page(listing, i)->n_leases;
    all.leases = lh_alloc_zero(all.n_leases + 1, sizeof(Leasehold__V1__Lease *));
    all.n_leases = 0;
    for (size_t i = 0; i < listing->page_count; i++) {
        const Leasehold__V1__ListLeasesResponse *from = page(listing, i);
        for (size_t j = 0; j < from->n_leases; j++)
            all.leases[all.n_leases++] = from->leases[j];
    }
    lh_json_print(stdout, &all.base);
    free(all.leases);
}

static void print_text(const struct listing *listing)
{
    struct lh_grid table = {.columns = LH_LEASE_TABLE_COLUMNS, .right = LH_LEASE_TABLE_RIGHT};
    size_t count = 0;

    lh_add_lease_table_header(&table);
    for (size_t i = 0; i < listing->page_count; i++) {
        const Leasehold__V1__ListLeasesResponse *from = page(listing, i);
        for (size_t j = 0; j < from->n_leases; j++, count++)
            lh_add_lease_table_row(&table, from->leases[j]);
    }
    if (count > 0)
        lh_grid_print(&table, stdout);
    else
        fputs("no lease is held\n", stderr);
    lh_grid_finish(&table);
}

static enum lh_exit run(struct lh_cli *cli)
{
    Leasehold__V1__ListLeasesRequest request = LEASEHOLD__V1__LIST_LEASES_REQUEST__INIT;
    const char *ns = cli->args.word_count > 0 ? cli->args.words[0] : "";
    const char *owner = lh_args_value(&cli->args, "owner");
    struct lh_segments segments = {0};
    struct listing listing = {0};
    struct lh_error error = {0};
    struct lh_server server;
    enum lh_exit status;

    if (lh_check_namespace_or_root(ns, &error) != LH_OK || (owner != NULL && lh_check_owner(owner, &error) != LH_OK))
        return lh_complain_value(cli, &error);
    lh_segments_split(&segments, ns);
    request.namespace_ = segments.list;
    request.n_namespace_ = segments.count;
    request.include_children = lh_args_has(&cli->args, "children");
    request.page_size = PAGE_SIZE;
    if (owner != NULL)
        request.owner = (char *)(uintptr_t)owner;
    status = lh_server_open(&server, cli);
    if (status == LH_EXIT_DONE)
        status = fetch(&server, &request, &listing);
    if (status == LH_EXIT_DONE && cli->output == LH_OUTPUT_JSON)
        print_json(&listing);
    else if (status == LH_EXIT_DONE)
        print_text(&listing);
    for (size_t i = 0; i < listing.page_count; i++)
        lh_reply_finish(&listing.pages[i]);
    free(listing.pages);
    lh_server_close(&server);
    lh_segments_finish(&segments);
    return status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "The namespaces below it too."},
    {"owner", 0, "TEXT", "Only what this owner holds."},
    {0},
};

const struct lh_command lh_command_list = {
    .name = "list",
    .summary = "what is held now",
    .usage = (const char *const[]){"list [NAMESPACE] [--children] [--owner TEXT]", NULL},
    .description = "Every lease of a namespace, or of all of them, ordered by namespace and key.\n"
                   "STATE is alive, suspected dead (its heartbeats are missed), overdue (held for\n"
                   "longer than the policy calls reasonable) or expired (about to be ended). Nothing\n"
                   "held is no error: the exit status is 0.\n",
    .options = options,
    .examples = "  leasehold list payments --children\n"
                "  leasehold list -o json | jq -r '.leases[] | .owner' | sort | uniq -c\n",
    .words_min = 0,
    .words_max = 1,
    .run = run,
};
