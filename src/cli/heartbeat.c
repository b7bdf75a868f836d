#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/bounds.h"
#include "cli/error.h"
#include "cli/message.h"
#include "cli/print.h"
#include "cli/server.h"
#include "json/print.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)

/* RETRY says that nothing was done: it is asked again until --timeout has passed. */
static const Leasehold__V1__HeartbeatResult *ask(struct lh_server *server, Leasehold__V1__LeaseRef *ref,
                                                 struct lh_reply *reply)
{
    Leasehold__V1__HeartbeatRequest request = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    int64_t deadline_us = lh_clock_us() + server->cli->timeout_us;

    request.leases = &ref;
    request.n_leases = 1;
    for (unsigned attempt = 0;; attempt++) {
        const Leasehold__V1__HeartbeatResponse *response;
        int64_t pause_us;

        lh_server_try(server, SERVICE, "Heartbeat", &request.base, LH_REPEAT, deadline_us, reply);
        response = (const Leasehold__V1__HeartbeatResponse *)reply->message;
        if (response == NULL || response->n_results != 1)
            return NULL;
        pause_us = lh_backoff_us(attempt, reply);
        if (response->results[0]->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY ||
            lh_clock_us() + pause_us >= deadline_us)
            return response->results[0];
        lh_reply_finish(reply);
        lh_caller_sleep(server->caller, pause_us);
    }
}

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

static enum lh_exit report(const struct lh_cli *cli, const Leasehold__V1__HeartbeatResult *result)
{
    if (result->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_OK && cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &result->base);
    switch (result->outcome) {
    case LEASEHOLD__V1__OUTCOME__OUTCOME_OK:
        print_renewed(cli, result);
        return LH_EXIT_DONE;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_LOST:
        lh_error_lost(result->end_reason, result->message, "stop what it protected");
        return LH_EXIT_LOST;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID:
        lh_error_print("%s", result->message);
        return LH_EXIT_USAGE;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY:
        lh_error_print("not renewed, and not lost either%s%s; try again before the deadline",
                       result->message[0] != '\0' ? ": " : "", result->message);
        return LH_EXIT_UNAVAILABLE;
    default:
        return lh_error_print("refused: %s", result->message);
    }
}

static enum lh_exit run(struct lh_cli *cli)
{
    Leasehold__V1__LeaseRef ref = LEASEHOLD__V1__LEASE_REF__INIT;
    const Leasehold__V1__HeartbeatResult *result;
    const char *word = cli->args.word_count > 2 ? cli->args.words[2] : NULL;
    char lease_key[LH_UUID_TEXT_BYTES];
    struct lh_error error = {0};
    struct lh_server server;
    struct lh_scope_message scope;
    struct lh_reply reply;
    enum lh_exit status;

    if (lh_take_lease_key(word, lease_key, &error) != LH_OK ||
        !lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    ref.scope = &scope.message;
    ref.lease_key = lease_key;
    status = lh_server_open(&server, cli);
    if (status == LH_EXIT_DONE) {
        result = ask(&server, &ref, &reply);
        if (result != NULL)
            status = report(cli, result);
        else
            status = lh_error_reply(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close(&server);
    lh_scope_message_finish(&scope);
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
