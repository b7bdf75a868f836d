#include <stdio.h>

#include "cli/bounds.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/server.h"
#include "json/print.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)

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

/* A repeat finds its own work done, and gets the same answer. */
static enum lh_exit ask(struct lh_server *server, const Leasehold__V1__DowngradeRequest *request)
{
    const Leasehold__V1__DowngradeResponse *response;
    struct lh_reply reply;
    enum lh_exit status = lh_server_call(server, SERVICE, "Downgrade", &request->base, LH_REPEAT, &reply);

    response = (const Leasehold__V1__DowngradeResponse *)reply.message;
    if (response != NULL && response->lease != NULL) {
        print_lease(server->cli, response->lease);
    } else if (response != NULL) {
        status = lh_error_print("the server answered without a lease; it is not a leaseholdd, or it is broken");
    }
    lh_reply_finish(&reply);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    Leasehold__V1__DowngradeRequest request = LEASEHOLD__V1__DOWNGRADE_REQUEST__INIT;
    Leasehold__V1__LeaseRef ref = LEASEHOLD__V1__LEASE_REF__INIT;
    const char *word = cli->args.word_count > 2 ? cli->args.words[2] : NULL;
    const char *units_text = lh_args_value(&cli->args, "units");
    char lease_key[LH_UUID_TEXT_BYTES];
    struct lh_error error = {0};
    struct lh_server server;
    struct lh_scope_message scope;
    int64_t units = 1;
    enum lh_exit status;

    if ((units_text != NULL && lh_check_number("units", units_text, 1, LH_UNITS_MAX, &units, &error) != LH_OK) ||
        lh_take_lease_key(word, lease_key, &error) != LH_OK ||
        !lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    ref.scope = &scope.message;
    ref.lease_key = lease_key;
    request.lease = &ref;
    request.units = (int32_t)units;
    status = lh_server_open(&server, cli);
    if (status == LH_EXIT_DONE)
        status = ask(&server, &request);
    lh_server_close(&server);
    lh_scope_message_finish(&scope);
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
