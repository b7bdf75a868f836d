#include <stdio.h>

#include "cli/bounds.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/print.h"

static void report_lost(const Leasehold__V1__ReleaseResult *result)
{
    if (result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_RELEASED ||
        result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_FAILED)
        lh_error_print("the lease was already released (%s)", lh_end_reason_text(result->end_reason));
    else
        lh_error_lost(result->end_reason, result->message, "what it protected may have been done twice");
}

static enum lh_exit report(const struct lh_cli *cli, const Leasehold__V1__ReleaseResult *result, enum lh_status status)
{
    if (cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &result->base);
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

static enum lh_exit run(struct lh_cli *cli)
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
        status = result != NULL ? report(cli, result, outcome) : lh_error_reply(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close_lease(&lease);
    return status;
}

static const struct lh_option options[] = {
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
    .options = options,
    .examples = "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\"\n"
                "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\" \\\n"
                "    --result '{\"rows\": 12}'\n"
                "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\" \\\n"
                "    --fail 'the bank is closed'\n",
    .words_min = 2,
    .words_max = 3,
    .run = run,
};
