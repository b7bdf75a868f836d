#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/error.h"
#include "cli/message.h"
#include "cli/print.h"
#include "cli/server.h"
#include "json/print.h"

static void print_renewed(const struct lh_cli *cli, const Leasehold__V1__HeartbeatResult *result)
{
    char remaining[LH_DURATION_TEXT_BYTES] = "?", when[LH_TIME_TEXT_BYTES] = "?";

    if (cli->output == LH_OUTPUT_JSON) {
        lh_json_print(stdout, &result->base);
        return;
    }
    if (result->remaining != NULL)
        lh_duration_format(lh_duration_us(result->remaining), remaining);
    if (result->deadline != NULL)
        lh_time_format(result->deadline->seconds, when);
    printf("renewed: deadline in %s, %s; heartbeat %" PRId64 "\n", remaining, when, result->heartbeats);
}

static enum lh_exit report(const struct lh_cli *cli, const Leasehold__V1__HeartbeatResult *result,
                           enum lh_status status)
{
    if (status == LH_OK) {
        print_renewed(cli, result);
        return LH_EXIT_DONE;
    }
    if (cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &result->base);
    if (status == LH_LOST)
        lh_error_lost(result->end_reason, result->message, "stop what it protected");
    else
        lh_error_outcome(status, result->message, "not renewed, and not lost either", "try again before the deadline");
    return lh_exit_of_status(status);
}

static enum lh_exit run(struct lh_cli *cli)
{
    const Leasehold__V1__HeartbeatResult *result;
    struct lh_server_lease lease;
    struct lh_reply reply;
    enum lh_status outcome;
    enum lh_exit status = lh_server_open_lease(&lease, cli);

    if (status == LH_EXIT_DONE) {
        result = lh_by_key_heartbeat(&lease.by_key, &reply, &outcome);
        status = result != NULL ? report(cli, result, outcome) : lh_error_reply(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close_lease(&lease);
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
    .run = run,
};
