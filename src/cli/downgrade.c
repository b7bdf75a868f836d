#include <stdio.h>

#include "cli/bounds.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/print.h"

static void print_lease(const struct lh_cli *cli, const Leasehold__V1__Lease *lease)
{
    struct lh_grid card = {.columns = 2};

    if (cli->output == LH_OUTPUT_JSON) {
        lh_json_print(stdout, &lease->base);
        return;
    }
    lh_add_lease_rows(&card, lease);
    lh_grid_print(&card, stdout);
}

static enum lh_exit report(const struct lh_cli *cli, const struct lh_reply *reply)
{
    const Leasehold__V1__DowngradeResponse *response = (const void *)reply->message;

    if (response == NULL)
        return lh_error_reply(cli, reply);
    if (response->lease == NULL)
        return lh_error_print("the server answered without a lease; it is not a leaseholdd, or it is broken");
    print_lease(cli, response->lease);
    return LH_EXIT_DONE;
}

static enum lh_exit run(struct lh_cli *cli)
{
    const char *units_text = lh_args_value(&cli->args, "units");
    struct lh_server_lease lease;
    struct lh_error error = {0};
    struct lh_reply reply;
    int64_t units = 1;
    enum lh_exit status;

    if (units_text != NULL && lh_check_number("units", units_text, 1, LH_UNITS_MAX, &units, &error) != LH_OK)
        return lh_error_value(cli, &error);
    status = lh_server_open_lease(&lease, cli);
    if (status == LH_EXIT_DONE) {
        lh_by_key_downgrade(&lease.by_key, (int32_t)units, &reply);
        status = report(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close_lease(&lease);
    return status;
}

static const struct lh_option options[] = {
    {"units", 0, "N", "How many units of the policy's capacity it keeps, 1 to 1000000. Default: 1."},
    {0},
};

const struct lh_command lh_command_downgrade = {
    .name = "downgrade",
    .summary = "make an exclusive lease shared",
    .usage = (const char *const[]){"downgrade NAMESPACE KEY [LEASE_KEY] [--units N]", NULL},
    .description = "Makes an exclusive lease shared, in one step, and prints it: shared requests\n"
                   "that wait behind it are granted, and no exclusive one comes between. The lease\n"
                   "keeps its lease key, gets a new token, and is renewed. A shared lease gives\n"
                   "units back with it. There is no way back to an exclusive lease: release it, and\n"
                   "acquire it again. Exit status 4: the lease is lost for good.\n"
                   "\n"
                   "Without LEASE_KEY the environment variable LEASEHOLD_LEASE_KEY is used; - reads\n"
                   "it from stdin. Both keep it out of the list of processes (ps).\n",
    .options = options,
    .examples = "  leasehold downgrade reports sales \"$LEASEHOLD_LEASE_KEY\"\n"
                "  leasehold downgrade apis search --units 2 - < lease-key\n",
    .words_min = 2,
    .words_max = 3,
    .run = run,
};
