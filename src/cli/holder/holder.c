/* heartbeat, downgrade and release: the commands of a holder, which knows its lease key. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/print.h"
#include "cli/server.h"

/* --- heartbeat --- */

static void print_renewed(const struct lh_cli *cli, const Leasehold__V1__HeartbeatResult *result)
{
    if (lh_print_json(cli, result))
        return;
    printf("renewed: deadline in %s, %s; heartbeat %" PRId64 "\n",
           result->remaining != NULL ? LH_DURATION_TEXT(lh_duration_us(result->remaining)) : "?",
           result->deadline != NULL ? LH_TIME_TEXT(result->deadline->seconds) : "?", result->heartbeats);
}

static enum lh_exit report_heartbeat(const struct lh_cli *cli, const Leasehold__V1__HeartbeatResult *result,
                                     enum lh_status status)
{
    if (status == LH_OK) {
        print_renewed(cli, result);
        return LH_EXIT_DONE;
    }
    lh_print_json(cli, result);
    if (status == LH_LOST)
        lh_error_lost(result->end_reason, result->message, "stop what it protected");
    else
        lh_error_outcome(status, result->message, "not renewed, and not lost either", "try again before the deadline");
    return lh_exit_of_status(status);
}

static enum lh_exit run_heartbeat(struct lh_cli *cli)
{
    const Leasehold__V1__HeartbeatResult *result;
    struct lh_server_lease lease;
    struct lh_reply reply;
    enum lh_status outcome;
    enum lh_exit status = lh_server_open_lease(&lease, cli);

    if (status == LH_EXIT_DONE) {
        result = lh_by_key_heartbeat(&lease.by_key, &reply, &outcome);
        status = result != NULL ? report_heartbeat(cli, result, outcome) : lh_error_reply(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close(&lease.server);
    return status;
}

const struct lh_command lh_command_heartbeat = {
    .name = "heartbeat",
    .summary = "renew a lease",
    .usage = (const char *const[]){"heartbeat NAMESPACE KEY [LEASE_KEY]", NULL},
    .description = "Moves the deadline of a lease to one duration from now. A third of the duration\n"
                   "is a good interval. Exit status 4: the lease is lost for good; stop the work\n"
                   "that it protects. Exit status 5: the lease could not be renewed now, but is not\n"
                   "known to be lost; try again before the deadline.\n"
                   "\n"
                   "Without LEASE_KEY the environment variable LEASEHOLD_LEASE_KEY is used; - reads\n"
                   "it from stdin. Both keep it out of the list of processes (ps).\n",
    .examples = "  leasehold heartbeat payments invoice-42 \"$LEASEHOLD_LEASE_KEY\"\n"
                "  leasehold heartbeat payments invoice-42 - < lease-key\n",
    .words_min = 2,
    .words_max = 3,
    .run = run_heartbeat,
};

/* --- downgrade --- */

static void print_lease(const struct lh_cli *cli, const Leasehold__V1__Lease *lease)
{
    struct lh_grid card = {.columns = 2};

    if (lh_print_json(cli, lease))
        return;
    lh_add_lease_rows(&card, lease);
    lh_grid_print(&card, stdout);
}

static enum lh_exit report_downgrade(const struct lh_cli *cli, const struct lh_reply *reply)
{
    const Leasehold__V1__DowngradeResponse *response = (const void *)reply->message;

    if (response == NULL)
        return lh_error_reply(cli, reply);
    if (response->lease == NULL)
        return lh_error_print("the server answered without a lease; it is not a leaseholdd, or it is broken");
    print_lease(cli, response->lease);
    return LH_EXIT_DONE;
}

static enum lh_exit run_downgrade(struct lh_cli *cli)
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
        status = report_downgrade(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close(&lease.server);
    return status;
}

static const struct lh_option downgrade_options[] = {
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
    .options = downgrade_options,
    .examples = "  leasehold downgrade reports sales \"$LEASEHOLD_LEASE_KEY\"\n"
                "  leasehold downgrade apis search --units 2 - < lease-key\n",
    .words_min = 2,
    .words_max = 3,
    .run = run_downgrade,
};

/* --- release --- */

static void report_lost(const Leasehold__V1__ReleaseResult *result)
{
    if (result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_RELEASED ||
        result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_FAILED)
        lh_error_print("the lease was already released (%s)", lh_end_reason_text(result->end_reason));
    else
        lh_error_lost(result->end_reason, result->message, "what it protected may have been done twice");
}

static enum lh_exit report_release(const struct lh_cli *cli, const Leasehold__V1__ReleaseResult *result,
                                   enum lh_status status)
{
    lh_print_json(cli, result);
    if (status == LH_LOST)
        report_lost(result);
    else if (status != LH_OK)
        lh_error_outcome(status, result->message, "not released yet", "try again");
    else if (cli->output == LH_OUTPUT_TEXT)
        printf("released%s\n", lh_args_has(&cli->args, "fail") ? ", as failed" : "");
    return lh_exit_of_status(status);
}

/* What goes with it: checked, and put into `options`, which borrows it. */
static enum lh_status take_result(const struct lh_cli *cli, struct lh_release_options *options, struct lh_error *error)
{
    options->result = lh_args_value(&cli->args, "result");
    options->failure = lh_args_value(&cli->args, "fail");
    if (options->result != NULL && options->failure != NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--result and --fail cannot be combined");
    if (options->failure != NULL)
        return lh_bounds_text("fail", LH_TEXT_REASON, options->failure, error);
    return options->result != NULL ? lh_check_result(options->result, error) : LH_OK;
}

static enum lh_exit run_release(struct lh_cli *cli)
{
    const Leasehold__V1__ReleaseResult *result;
    struct lh_release_options options = {0};
    struct lh_server_lease lease;
    struct lh_error error = {0};
    struct lh_reply reply;
    enum lh_status outcome;
    enum lh_exit status;

    if (take_result(cli, &options, &error) != LH_OK)
        return lh_error_value(cli, &error);
    status = lh_server_open_lease(&lease, cli);
    if (status == LH_EXIT_DONE) {
        result = lh_by_key_release(&lease.by_key, &options, &reply, &outcome);
        status = result != NULL ? report_release(cli, result, outcome) : lh_error_reply(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close(&lease.server);
    return status;
}

static const struct lh_option release_options[] = {
    {"result", 0, "JSON", "The result of the work, as JSON of at most 8 KiB."},
    {"fail", 0, "TEXT", "Release it as failed, with this error; at most 8 KiB."},
    {0},
};

const struct lh_command lh_command_release = {
    .name = "release",
    .summary = "end a lease that you hold, with a result or an error",
    .usage = (const char *const[]){"release NAMESPACE KEY [LEASE_KEY] [--result JSON | --fail TEXT]", NULL},
    .description = "Ends a lease for its holder; the first waiter is granted it at once. The result\n"
                   "or error can be read with show until the next grant. Exit status 4: the lease\n"
                   "was not held any more.\n"
                   "\n"
                   "Without LEASE_KEY the environment variable LEASEHOLD_LEASE_KEY is used; - reads\n"
                   "it from stdin. Both keep it out of the list of processes (ps).\n",
    .options = release_options,
    .examples = "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\"\n"
                "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\" \\\n"
                "    --result '{\"rows\": 12}'\n"
                "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\" \\\n"
                "    --fail 'the bank is closed'\n",
    .words_min = 2,
    .words_max = 3,
    .run = run_release,
};
