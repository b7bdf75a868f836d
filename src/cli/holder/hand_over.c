/* ask-hand-over and refuse-hand-over: a waiter or an administrator asks for a lease, and its holder refuses. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/print.h"
#include "cli/server.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)

/* --- ask-hand-over --- */

static void print_holder(const Leasehold__V1__Lease *lease)
{
    const char *owner = lease->owner[0] != '\0' ? lease->owner : "an unknown owner";
    const Leasehold__V1__HandOver *asked = lease->asked;
    char left[LH_DURATION_TEXT_BYTES];
    char *line, *clean;

    if (asked == NULL)
        return;
    lh_duration_format(lh_duration_us(asked->answer_in), left);
    if (asked->refusal[0] != '\0')
        line = lh_format("%s, token %" PRId64 ", refused: %s", owner, lease->token, asked->refusal);
    else if (lh_duration_us(asked->answer_in) > 0)
        line = lh_format("asked %s, token %" PRId64 ", to answer within %s", owner, lease->token, left);
    else
        line = lh_format("asked %s, token %" PRId64 ", who has not answered in time", owner, lease->token);
    clean = lh_clean(line);
    puts(clean);
    free(clean);
    free(line);
}

static void print_asked(const struct lh_cli *cli, const Leasehold__V1__AskHandOverResponse *response)
{
    if (lh_print_json(cli, response))
        return;
    for (size_t i = 0; i < response->n_holders; i++)
        print_holder(response->holders[i]);
}

static enum lh_exit run_ask(struct lh_cli *cli)
{
    Leasehold__V1__AskHandOverRequest request = LEASEHOLD__V1__ASK_HAND_OVER_REQUEST__INIT;
    const char *reason = lh_args_value(&cli->args, "reason"), *token = lh_args_value(&cli->args, "token");
    const char *lease_key = lh_args_value(&cli->args, "lease-key");
    char key_text[LH_UUID_TEXT_BYTES];
    struct lh_error error = {0};
    struct lh_scope_message scope;
    struct lh_reply reply;
    enum lh_exit status;

    if (reason == NULL)
        return lh_error_usage(cli->command, "ask-hand-over needs --reason TEXT; the holder gets it");
    if (lh_bounds_text("reason", LH_TEXT_HAND_OVER, reason, &error) != LH_OK ||
        (token != NULL && lh_check_number("token", token, 1, INT64_MAX, &request.token, &error) != LH_OK) ||
        (lease_key != NULL && lh_take_lease_key(lease_key, key_text, &error) != LH_OK) ||
        !lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    request.scope = &scope.message;
    request.reason = (char *)(uintptr_t)reason;
    if (lease_key != NULL)
        request.lease_key = key_text;
    status = lh_server_ask(cli, SERVICE, "AskHandOver", &request.base, LH_REPEAT, &reply);
    if (status == LH_EXIT_DONE)
        print_asked(cli, (const void *)reply.message);
    lh_reply_finish(&reply);
    lh_scope_message_finish(&scope);
    return status;
}

static const struct lh_option ask_options[] = {
    {"reason", 0, "TEXT", "The reason, mandatory, at most 1024 bytes. The holder gets it."},
    {"token", 0, "N", "Ask the holder with this token only. Default: all holders."},
    {"lease-key", 0, "KEY",
     "The lease key of a waiter in this queue; - reads it from stdin. Without it the right admin is needed."},
    {0},
};

const struct lh_command lh_command_ask_hand_over = {
    .name = "ask-hand-over",
    .summary = "ask the holder to hand its lease over",
    .usage = (const char *const[]){"ask-hand-over NAMESPACE KEY --reason TEXT [--token N]",
                                   "ask-hand-over NAMESPACE KEY --reason TEXT --lease-key KEY", NULL},
    .description = "Asks the holders of a lease to hand it over, and prints what each has answered\n"
                   "so far. A holder hears of the request with its next renewal. It releases the\n"
                   "lease, refuses, or does nothing: the server never ends a lease for a request.\n"
                   "The policy's hand_over_grace is the time to answer in. A second request before\n"
                   "that is the same one. Exit status 4: nobody holds the lease.\n",
    .options = ask_options,
    .examples = "  leasehold ask-hand-over service leader --reason 'zone b is back'\n"
                "  leasehold ask-hand-over payments invoice-42 --token 41 \\\n"
                "    --reason 'host-3 goes down'\n",
    .words_min = 2,
    .words_max = 2,
    .run = run_ask,
};

/* --- refuse-hand-over --- */

static enum lh_exit run_refuse(struct lh_cli *cli)
{
    Leasehold__V1__RefuseHandOverRequest request = LEASEHOLD__V1__REFUSE_HAND_OVER_REQUEST__INIT;
    Leasehold__V1__LeaseRef lease = LEASEHOLD__V1__LEASE_REF__INIT;
    const char *reason = lh_args_value(&cli->args, "reason");
    char key_text[LH_UUID_TEXT_BYTES];
    struct lh_error error = {0};
    struct lh_scope_message scope;
    struct lh_reply reply;
    enum lh_exit status;

    if (reason == NULL)
        return lh_error_usage(cli->command, "refuse-hand-over needs --reason TEXT; the asker sees it");
    if (lh_bounds_text("reason", LH_TEXT_HAND_OVER, reason, &error) != LH_OK ||
        lh_take_lease_key(lh_args_value(&cli->args, "lease-key"), key_text, &error) != LH_OK ||
        !lh_scope_message_init(&scope, cli->args.words[0], cli->args.words[1], &error))
        return lh_error_value(cli, &error);
    lease.scope = &scope.message;
    lease.lease_key = key_text;
    request.lease = &lease;
    request.reason = (char *)(uintptr_t)reason;
    status = lh_server_ask(cli, SERVICE, "RefuseHandOver", &request.base, LH_REPEAT, &reply);
    if (status == LH_EXIT_DONE && !lh_print_json(cli, reply.message))
        puts("refused");
    lh_reply_finish(&reply);
    lh_scope_message_finish(&scope);
    return status;
}

static const struct lh_option refuse_options[] = {
    {"reason", 0, "TEXT", "The reason, mandatory, at most 1024 bytes. The asker sees it."},
    {"lease-key", 0, "KEY",
     "The holder's lease key; - reads it from stdin. Default: LEASEHOLD_LEASE_KEY. Both keep it out of the list of "
     "processes (ps)."},
    {0},
};

const struct lh_command lh_command_refuse_hand_over = {
    .name = "refuse-hand-over",
    .summary = "refuse, as its holder, to hand a lease over",
    .usage = (const char *const[]){"refuse-hand-over NAMESPACE KEY --reason TEXT [--lease-key KEY]", NULL},
    .description = "Refuses the request of ask-hand-over. The lease goes on. The first reason stays.\n"
                   "Exit status 1: there is no request; 4: the lease is not held with this key.\n",
    .options = refuse_options,
    .examples = "  leasehold refuse-hand-over payments invoice-42 --reason 'done in a minute'\n",
    .words_min = 2,
    .words_max = 2,
    .run = run_refuse,
};
