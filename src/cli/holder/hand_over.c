/* ask-hand-over and refuse-hand-over: a waiter or an administrator asks for a lease, and its holder refuses. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"

/* --- ask-hand-over --- */

static void print_holder(const Leasehold__V1__Lease *lease)
{
    const char *owner = lease->owner[0] != '\0' ? lease->owner : "an unknown owner";
    const Leasehold__V1__HandOver *asked = lease->asked;

    if (asked == NULL)
        return;
    if (asked->refusal[0] != '\0')
        lh_print_line("%s, token %" PRId64 ", refused: %s", owner, lease->token, asked->refusal);
    else if (lh_duration_us(asked->answer_in) > 0)
        lh_print_line("asked %s, token %" PRId64 ", to answer within %s", owner, lease->token,
                      LH_DURATION_TEXT(lh_duration_us(asked->answer_in)));
    else
        lh_print_line("asked %s, token %" PRId64 ", who has not answered in time", owner, lease->token);
}

static void print_asked(struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__AskHandOverResponse *response = answer;

    for (size_t i = 0; i < response->n_holders; i++)
        print_holder(response->holders[i]);
}

static enum lh_exit run_ask(struct lh_cli *cli)
{
    static const struct lh_taken taken[] = {
        {.option = "reason", .text = LH_TEXT_HAND_OVER}, {.option = "token", .least = 1, .most = INT64_MAX}, {0}};
    Leasehold__V1__AskHandOverRequest request = LEASEHOLD__V1__ASK_HAND_OVER_REQUEST__INIT;
    const char *lease_key = lh_args_value(&cli->args, "lease-key");
    char key_text[LH_UUID_TEXT_BYTES] = "";
    struct lh_error error = {0};

    if (lh_args_value(&cli->args, "reason") == NULL)
        return lh_error_usage(cli->command, "ask-hand-over needs --reason TEXT; the holder gets it");
    if (lh_take_options(&cli->args, taken, &request.base, &cli->arena, &error) == LH_OK &&
        (lease_key == NULL || lh_take_lease_key(lease_key, key_text, &error) == LH_OK))
        request.scope = lh_take_scope(cli->args.words[0], cli->args.words[1], &cli->arena, &error);
    if (request.scope == NULL)
        return lh_error_value(cli, &error);
    request.lease_key = key_text;
    return lh_ask_and_print(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_AGAIN}, print_asked);
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

static void print_refused(struct lh_cli *cli, const void *answer)
{
    puts("refused");
}

static enum lh_exit run_refuse(struct lh_cli *cli)
{
    static const struct lh_taken taken[] = {{.option = "reason", .text = LH_TEXT_HAND_OVER}, {0}};
    Leasehold__V1__RefuseHandOverRequest request = LEASEHOLD__V1__REFUSE_HAND_OVER_REQUEST__INIT;
    Leasehold__V1__LeaseRef lease = LEASEHOLD__V1__LEASE_REF__INIT;
    char key_text[LH_UUID_TEXT_BYTES];
    struct lh_error error = {0};

    if (lh_args_value(&cli->args, "reason") == NULL)
        return lh_error_usage(cli->command, "refuse-hand-over needs --reason TEXT; the asker sees it");
    if (lh_take_options(&cli->args, taken, &request.base, &cli->arena, &error) == LH_OK &&
        lh_take_lease_key(lh_args_value(&cli->args, "lease-key"), key_text, &error) == LH_OK)
        lease.scope = lh_take_scope(cli->args.words[0], cli->args.words[1], &cli->arena, &error);
    if (lease.scope == NULL)
        return lh_error_value(cli, &error);
    lease.lease_key = key_text;
    request.lease = &lease;
    return lh_ask_and_print(cli, &request.base, &(struct lh_ask){.kind = LH_ASK_AGAIN}, print_refused);
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
