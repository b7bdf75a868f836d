/*
 * The ticks of `leasehold run --schedule`. A claim waits on the server for a few seconds, and is repeated with the same
 * lease key until it has a tick: when an answer got lost, the repeat finds the tick that was claimed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/run/run_internal.h"
#include "cli/server.h"
#include "leasehold/v1/schedule.pb-c.h"

/* HUP and QUIT are looked at between two claims. */
#define WAIT_US (5 * LH_US_PER_S)

/* The request, and what it points to. */
struct claim {
    Leasehold__V1__ClaimTickRequest request;
    Google__Protobuf__Duration wait, duration;
    Leasehold__V1__ClaimTickRequest__LabelsEntry entries[LH_LABELS_MAX], *labels[LH_LABELS_MAX];
    char *names[LH_LABELS_MAX];
};

static void prepare(struct claim *claim, struct lh_run *run)
{
    struct lh_cli_acquire *asked = &run->asked;

    leasehold__v1__claim_tick_request__init(&claim->request);
    claim->wait = lh_duration_message(WAIT_US);
    claim->duration = lh_duration_message(asked->duration_us);
    claim->request.namespace_ = lh_take_namespace(run->cli->args.words[0], &run->cli->arena);
    claim->request.wait = &claim->wait;
    claim->request.duration = &claim->duration;
    claim->request.owner = asked->owner;
    claim->request.lease_key = asked->lease_key;
    for (size_t i = 0; i < asked->label_count; i++) {
        const char *equals = strchr(asked->labels[i], '=');
        leasehold__v1__claim_tick_request__labels_entry__init(&claim->entries[i]);
        claim->names[i] = lh_format("%.*s", (int)(equals - asked->labels[i]), asked->labels[i]);
        claim->entries[i].key = claim->names[i];
        claim->entries[i].value = (char *)(uintptr_t)equals + 1;
        claim->labels[i] = &claim->entries[i];
    }
    claim->request.labels = claim->labels;
    claim->request.n_labels = asked->label_count;
}

static void finish(struct claim *claim)
{
    for (size_t i = 0; i < claim->request.n_labels; i++)
        free(claim->names[i]);
}

/* True: there is a tick. */
static bool take(struct lh_run *run, const struct lh_reply *reply)
{
    const Leasehold__V1__ClaimTickResponse *response = (const Leasehold__V1__ClaimTickResponse *)reply->message;

    if (reply->code != LH_GRPC_OK || response->lease == NULL || response->lease->scope == NULL)
        return false;
    snprintf(run->values->tick, sizeof(run->values->tick), "%s", response->lease->scope->key);
    snprintf(run->values->attempt, sizeof(run->values->attempt), "%d", (int)response->attempt);
    return true;
}

/* A signal that ends the wait: by the caller, which catches two of them, or by those that are passed on. */
static void look_for_signal(struct lh_run *run, struct lh_server *server)
{
    int number = lh_caller_take_signal(server->caller);

    lh_run_take_signals(run);
    if (number == 0)
        return;
    run->interrupt = number;
    run->is_stopping = true;
}

static enum lh_exit ask_again_and_again(struct lh_run *run, struct lh_server *server, struct claim *claim)
{
    enum lh_exit status = LH_EXIT_HELD;

    while (status == LH_EXIT_HELD) {
        struct lh_reply reply;

        lh_caller_repeat(server->caller, &leasehold__v1__schedule_service__descriptor, "ClaimTick",
                         &claim->request.base, lh_clock_us() + WAIT_US + run->cli->timeout_us, NULL, &reply);
        look_for_signal(run, server);
        if (take(run, &reply)) {
            status = LH_EXIT_DONE;
        } else if (run->is_stopping) {
            status = (enum lh_exit)(LH_EXIT_SIGNAL + run->interrupt);
        } else if (reply.code != LH_GRPC_OK) {
            run->lease.status = reply.reason; /* some are final */
            status = lh_error_reply(run->cli, &reply);
        }
        lh_reply_finish(&reply);
    }
    return status;
}

enum lh_exit lh_run_tick_claim(struct lh_run *run)
{
    struct claim claim;
    struct lh_server server;
    enum lh_exit status = lh_server_open(&server, run->cli);
    sigset_t caught, before;

    if (status != LH_EXIT_DONE)
        return status;
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    prepare(&claim, run);
    lh_caller_catch_signals(server.caller);
    sigprocmask(SIG_UNBLOCK, &caught, &before);
    status = ask_again_and_again(run, &server, &claim);
    sigprocmask(SIG_SETMASK, &before, NULL);
    look_for_signal(run, &server);
    lh_server_close(&server);
    finish(&claim);
    return status;
}
