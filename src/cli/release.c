#include <stdio.h>

#include "base/clock.h"
#include "cli/bounds.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/server.h"
#include "json/print.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)

/*
 * Repeats while it is unknown whether it was done. A repetition that gets LOST because the lease was released has found
 * its own first attempt: `was_repeated` lets that be taken as done.
 */
static const Leasehold__V1__ReleaseResult *ask(struct lh_server *server, Leasehold__V1__ReleaseItem *item,
                                               bool *was_repeated, struct lh_reply *reply)
{
    Leasehold__V1__ReleaseRequest request = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    int64_t deadline_us = lh_clock_us() + server->cli->timeout_us;

    request.items = &item;
    request.n_items = 1;
    for (unsigned attempt = 0;; attempt++) {
        const Leasehold__V1__ReleaseResponse *response;
        bool may_be_done;
        int64_t pause_us;

        lh_caller_call(server->caller, SERVICE, "Release", &request.base, deadline_us, reply);
        response = (const Leasehold__V1__ReleaseResponse *)reply->message;
        may_be_done = response == NULL && reply->delivery != LH_RPC_NOT_SENT;
        pause_us = lh_backoff_us(attempt, reply);
        if (response != NULL && response->n_results != 1)
            return NULL;
        if (response != NULL && (response->results[0]->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY ||
                                 lh_clock_us() + pause_us >= deadline_us))
            return response->results[0];
        if (response == NULL && (!lh_reply_is_passing(reply) || lh_clock_us() + pause_us >= deadline_us))
            return NULL;
        *was_repeated |= may_be_done;
        lh_reply_finish(reply);
        lh_caller_sleep(server->caller, pause_us);
    }
}

static enum lh_exit report_lost(const Leasehold__V1__ReleaseResult *result, bool is_failure, bool was_repeated)
{
    Leasehold__V1__EndReason own =
        is_failure ? LEASEHOLD__V1__END_REASON__END_REASON_FAILED : LEASEHOLD__V1__END_REASON__END_REASON_RELEASED;

    if (was_repeated && result->end_reason == own)
        return LH_EXIT_DONE;
    if (result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_RELEASED ||
        result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_FAILED)
        lh_error_print("the lease was already released (%s)", lh_end_reason_text(result->end_reason));
    else
        lh_error_lost(result->end_reason, result->message, "what it protected may have been done twice");
    return LH_EXIT_LOST;
}

static enum lh_exit report(const struct lh_cli *cli, const Leasehold__V1__ReleaseResult *result, bool was_repeated)
{
    bool is_failure = lh_args_has(&cli->args, "fail");
    enum lh_exit status = LH_EXIT_DONE;

    if (cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &result->base);
    switch (result->outcome) {
    case LEASEHOLD__V1__OUTCOME__OUTCOME_OK:
        break;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_LOST:
        status = report_lost(result, is_failure, was_repeated);
        break;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID:
        lh_error_print("%s", result->message);
        return LH_EXIT_USAGE;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY:
        lh_error_print("not released yet%s%s; try again", result->message[0] != '\0' ? ": " : "", result->message);
        return LH_EXIT_UNAVAILABLE;
    default:
        return lh_error_print("refused: %s", result->message);
    }
    if (status == LH_EXIT_DONE && cli->output == LH_OUTPUT_TEXT)
        printf("released%s\n", is_failure ? ", as failed" : "");
    return status;
}

/* What goes with it: checked, and put into `item`, which borrows it. */
static enum lh_status take_result(const struct lh_cli *cli, Leasehold__V1__ReleaseItem *item, struct lh_error *error)
{
    const char *result = lh_args_value(&cli->args, "result");
    const char *failure = lh_args_value(&cli->args, "fail");

    if (result != NULL && failure != NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--result and --fail cannot be combined");
    if (failure != NULL) {
        item->result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
        item->failure = (char *)(uintptr_t)failure;
        return lh_bounds_text("fail", LH_TEXT_REASON, failure, error);
    }
    if (result != NULL) {
        item->result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
        item->success = (char *)(uintptr_t)result;
        return lh_check_result(result, error);
    }
    return LH_OK;
}

static enum lh_exit run(struct lh_cli *cli)
{
    Leasehold__V1__ReleaseItem item = LEASEHOLD__V1__RELEASE_ITEM__INIT;
    Leasehold__V1__LeaseRef ref = LEASEHOLD__V1__LEASE_REF__INIT;
    const Leasehold__V1__ReleaseResult *result;
    const char *word = cli->args.word_count > 2 ? cli->args.words[2] : NULL;
    char lease_key[LH_UUID_TEXT_BYTES];
    struct lh_error error = {0};
    bool was_repeated = false;
    struct lh_server server;
    struct lh_scope_message scope;
    struct lh_reply reply;
    enum lh_exit status;

    if (take_result(cli, &item, &error) != LH_OK || lh_take_lease_key(word, lease_key, &error) != LH_OK ||
        !lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    ref.scope = &scope.message;
    ref.lease_key = lease_key;
    item.lease = &ref;
    status = lh_server_open(&server, cli);
    if (status == LH_EXIT_DONE) {
        result = ask(&server, &item, &was_repeated, &reply);
        if (result != NULL)
            status = report(cli, result, was_repeated);
        else
            status = lh_error_reply(cli, &reply);
        lh_reply_finish(&reply);
    }
    lh_server_close(&server);
    lh_scope_message_finish(&scope);
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
