/*
 * acquire: one lease key, and as many calls with it as the wait takes. Without --wait that goes on for --timeout, and a
 * server that could not be reached is reported at once.
 *
 * Ctrl-C cancels the call, which leaves the queue. A lease that was granted in that instant is released again, unless
 * the caller chose the lease key: then it may be one that was held before.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/error.h"
#include "cli/holder/acquire_options.h"
#include "cli/lease_text.h"
#include "cli/print.h"
#include "cli/server.h"
#include "json/print.h"

#define GIVE_BACK_US (5 * LH_US_PER_S) /* a second Ctrl-C ends it sooner */

struct acquire {
    struct lh_cli *cli;
    struct lh_server server;
    struct lh_cli_acquire asked;
    bool may_be_granted; /* an attempt went out and had no verdict */
    bool has_told;       /* that the server is away and we go on */
};

static struct lh_by_key by_key(struct acquire *acquire)
{
    return (struct lh_by_key){.caller = acquire->server.caller,
                              .scope = acquire->asked.scope,
                              .lease_key = acquire->asked.lease_key,
                              .deadline_us = lh_clock_us() + GIVE_BACK_US};
}

static void tell_that_we_go_on(void *arg, const struct lh_reply *reply)
{
    struct acquire *acquire = arg;

    if (!acquire->has_told)
        lh_error_print("%s: %s; still waiting", acquire->cli->server, reply->words);
    acquire->has_told = true;
}

static void ask(struct acquire *acquire, struct lh_reply *reply)
{
    const struct lh_by_key lease = by_key(acquire);
    struct lh_by_key_acquire asking = {.options = &acquire->asked.options,
                                       .duration_us = acquire->asked.duration_us,
                                       .timeout_us = acquire->cli->timeout_us,
                                       .on_again = tell_that_we_go_on,
                                       .arg = acquire};

    lh_caller_catch_signals(acquire->server.caller);
    lh_by_key_acquire(&lease, &asking, reply);
    acquire->may_be_granted = asking.may_be_granted;
}

/* --- what came of it --- */

static void print_env(const struct acquire *acquire, const Leasehold__V1__Lease *lease)
{
    char token[24], slot[12];
    const char *slots = lh_slots_text(lease->slots, lease->n_slots, &acquire->cli->arena);
    const char *const lines[][2] = {
        {"NAMESPACE", acquire->cli->args.words[0]},
        {"KEY", acquire->cli->args.words[1]},
        {"LEASE_KEY", lease->lease_key},
        {"TOKEN", token},
        {"OWNER", lease->owner},
        {"SLOT", slot},
        {"SLOTS", slots},
    };
    size_t count = sizeof(lines) / sizeof(lines[0]) - (lease->n_slots > 0 ? 0 : 2);

    snprintf(token, sizeof(token), "%" PRId64, lease->token);
    snprintf(slot, sizeof(slot), "%" PRId32, lease->n_slots > 0 ? lease->slots[0] : 0);
    for (size_t i = 0; i < count; i++) {
        char *quoted = lh_shell_quote(lines[i][1]);
        printf("LEASEHOLD_%s=%s\n", lines[i][0], quoted);
        free(quoted);
    }
    /* Of leases that the shell had before. */
    printf("unset LEASEHOLD_TOKENS%s\n", lease->n_slots > 0 ? "" : " LEASEHOLD_SLOT LEASEHOLD_SLOTS");
}

static void print_text(const Leasehold__V1__Lease *lease, int64_t waited_us)
{
    struct lh_grid card = {.columns = 2};

    lh_add_lease_rows(&card, lease);
    if (waited_us >= LH_US_PER_MS)
        lh_grid_row(&card, "waited", "%s", LH_DURATION_TEXT(waited_us));
    lh_grid_print(&card, stdout);
}

/* Only we know its lease key. If this fails, the lease ends by its deadline. */
static void give_back(struct acquire *acquire)
{
    const struct lh_by_key lease = by_key(acquire);
    enum lh_status status;
    struct lh_reply reply;

    if (!acquire->asked.is_own_key)
        return;
    lh_by_key_release(&lease, NULL, &reply, &status);
    lh_reply_finish(&reply);
}

static enum lh_exit on_granted(struct acquire *acquire, const Leasehold__V1__AcquireResponse *response)
{
    const Leasehold__V1__Lease *lease = response->lease;
    int64_t waited_us = response->waited != NULL ? lh_duration_us(response->waited) : 0;
    enum lh_exit status;

    if (lease == NULL) {
        return lh_error_print("the server answered without a lease; it is not a leaseholdd, or it is broken");
    }
    if (acquire->cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &lease->base);
    else if (acquire->cli->output == LH_OUTPUT_ENV)
        print_env(acquire, lease);
    else
        print_text(lease, waited_us);
    status = lh_flush(LH_EXIT_DONE);
    if (status != LH_EXIT_DONE && acquire->asked.is_own_key) {
        give_back(acquire);
        lh_error_print("the lease was released because it could not be printed");
    }
    return status;
}

static enum lh_exit on_refused(struct acquire *acquire, const struct lh_reply *reply)
{
    enum lh_exit status = lh_error_reply(acquire->cli, reply);

    if (acquire->may_be_granted && status == LH_EXIT_UNAVAILABLE)
        lh_error_print("the lease may have been granted; to find out, acquire again with --lease-key %s",
                       acquire->asked.lease_key);
    return status;
}

static enum lh_exit take(struct acquire *acquire)
{
    enum lh_exit status;
    struct lh_reply reply;
    int number;

    ask(acquire, &reply);
    number = lh_caller_take_signal(acquire->server.caller);
    if (number != 0) {
        if (acquire->may_be_granted || reply.code == LH_GRPC_OK)
            give_back(acquire);
        lh_error_print("interrupted; the request left the queue");
        if (!acquire->asked.is_own_key)
            lh_error_print("if the lease was granted at that moment, release it with lease key %s",
                           acquire->asked.lease_key);
        status = (enum lh_exit)(LH_EXIT_SIGNAL + number);
    } else if (reply.code == LH_GRPC_OK) {
        status = on_granted(acquire, (Leasehold__V1__AcquireResponse *)reply.message);
    } else {
        status = on_refused(acquire, &reply);
    }
    lh_reply_finish(&reply);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct acquire acquire = {.cli = cli};
    struct lh_error error = {0};
    enum lh_exit status;

    if (lh_cli_acquire_take(&acquire.asked, cli, &error) != LH_OK)
        return lh_error_value(cli, &error);
    status = lh_server_open(&acquire.server, cli);
    if (status == LH_EXIT_DONE)
        status = take(&acquire);
    lh_server_close(&acquire.server);
    return status;
}

static const struct lh_option options[] = {
    {"duration", 'd', "DURATION", "How long the lease lives without a heartbeat. Default: 30s."},
    {"wait", 'w', "DURATION", "Queue for that long; forever: until granted; alive: while the holder is alive."},
    {"at-least", 0, "DURATION",
     "Nobody else gets the lease until so long after the grant, even if it is released before. At most 1d. Default: "
     "at_least of the policy."},
    LH_CLI_ACQUIRE_NUMBERS,
    {"shared", 0, "[=UNITS]",
     "A shared lease, beside other shared ones: so many units of the policy's capacity, 1 to 1000000. Default: 1; "
     "without this option the lease is exclusive."},
    {"owner", 0, "TEXT", "A name of the holder, for people. Default: user@host."},
    {"lease-key", 0, "UUID",
     "The identity of this acquisition, and the credential of its holder. Default: a new one. Used again, it renews "
     "the "
     "lease, or finds the old place in the queue."},
    {"label", 'l', "NAME=VALUE", "Stored with the lease; up to 16 times."},
    {0},
};

const struct lh_command lh_command_acquire = {
    .name = "acquire",
    .summary = "acquire a lease",
    .usage = (const char *const[]){"acquire NAMESPACE KEY [--duration 30s] [--wait 5s|forever|alive]",
                                   "acquire NAMESPACE KEY --shared[=UNITS] [--wait 5s|forever|alive]", NULL},
    .description = "Acquires the lease of a namespace and key, and prints it. Renew it with\n"
                   "heartbeat before its deadline and end it with release; both need the lease key\n"
                   "printed here. Pass the token to the systems that the work writes to, so that\n"
                   "they can refuse a late holder: the token grows with every grant.\n"
                   "\n"
                   "Without --wait a held lease is refused at once (exit status 3). Waiters are\n"
                   "served in the order of their arrival. Ctrl-C leaves the queue.\n"
                   "\n"
                   "Shared leases hold a key together: any number of them, or as many as fit the\n"
                   "capacity that the policy of the namespace sets. With a capacity each has slots,\n"
                   "numbers from 1 on that no other holder has. An exclusive lease excludes all\n"
                   "others. downgrade makes an exclusive lease shared.\n",
    .options = options,
    .examples = "  leasehold acquire payments invoice-42 --duration 1m --wait 10s\n"
                "  leasehold acquire reports sales --shared --wait 10s\n"
                "  eval \"$(leasehold acquire payments invoice-42 -o env)\" &&\n"
                "    echo \"token $LEASEHOLD_TOKEN, lease key $LEASEHOLD_LEASE_KEY\"\n",
    .words_min = 2,
    .words_max = 2,
    .run = run,
};
