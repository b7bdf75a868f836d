/*
 * watch: what is held, then every change, one line each, until it is interrupted.
 *
 * A stream that ends (the watcher fell behind, the connection broke, the daemon or its database went away) is begun
 * again, and says first what is held now: what happened meanwhile is to be seen in that. Only a server that was never
 * reached, and one that refuses, end it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/print.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)

struct watch {
    struct lh_cli *cli;
    struct lh_server server;
    Leasehold__V1__WatchLeasesRequest request;
    bool has_begun;      /* ever heard anything */
    bool is_heard;       /* by this stream */
    bool is_reader_gone; /* what was to be printed could not be */
};

/* --- a line for each event --- */

static const char *type_text(const Leasehold__V1__LeaseEvent *event)
{
    switch (event->type) {
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_ACQUIRED:
        return "acquired";
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_RELEASED:
        return event->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_FAILED ? "failed" : "released";
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_EXPIRED:
        return event->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_MAX_HOLD ? "max_hold" : "expired";
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_FORCED:
        return "forced";
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_INITIAL:
        return "held";
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_DOWNGRADED:
        return "downgraded";
    case LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_SYNCED:
        return "synced";
    default:
        return "unknown";
    }
}

/* The administrator's words, what went wrong, or what came of it. */
static const char *words_of(const Leasehold__V1__LeaseEvent *event)
{
    if (event->reason[0] != '\0')
        return event->reason;
    return event->error[0] != '\0' ? event->error : event->result;
}

/* "  shared 2  slots 1,2"; "" for an exclusive lease. */
static const char *shared_text(const Leasehold__V1__Lease *lease, struct lh_arena *arena)
{
    const char *slots = lh_slots_text(lease->slots, lease->n_slots, arena);

    if (lease->mode != LEASEHOLD__V1__MODE__MODE_SHARED)
        return "";
    return lh_arena_format(arena, "  shared %" PRId32 "%s%s", lease->units, slots[0] != '\0' ? "  slots " : "", slots);
}

static void print_text(const Leasehold__V1__LeaseEvent *event)
{
    const Leasehold__V1__Lease *lease = event->lease;
    const char *now = LH_TIME_TEXT(lh_clock_wall_us() / LH_US_PER_S);
    struct lh_arena arena = {0};

    if (lease == NULL || lease->scope == NULL) {
        printf("%s  %s\n", now, type_text(event));
        return;
    }
    lh_print_line("%s  %-8s  %s  token %" PRId64 "  owner %s  principal %s%s%s%s", now, type_text(event),
                  lh_scope_text(lease->scope, &arena), lease->token,
                  lease->owner[0] != '\0' ? lease->owner : "(unknown)",
                  lease->principal[0] != '\0' ? lease->principal : "(unknown)", shared_text(lease, &arena),
                  words_of(event)[0] != '\0' ? ": " : "", words_of(event));
    lh_arena_finish(&arena);
}

static void print_json(const Leasehold__V1__LeaseEvent *event)
{
    json_t *json = lh_json_from_message(&event->base, LH_JSON_ALL_FIELDS);

    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
}

static bool on_event(void *arg, const ProtobufCMessage *message)
{
    struct watch *watch = arg;

    watch->has_begun = watch->is_heard = true;
    if (((const Leasehold__V1__LeaseEvent *)message)->type == LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_ALIVE)
        return true;
    if (watch->cli->output == LH_OUTPUT_JSON)
        print_json((const Leasehold__V1__LeaseEvent *)message);
    else
        print_text((const Leasehold__V1__LeaseEvent *)message);
    watch->is_reader_gone = lh_flush(LH_EXIT_DONE) != LH_EXIT_DONE;
    return !watch->is_reader_gone;
}

/* --- until it is stopped --- */

static bool is_worth_another(const struct watch *watch, const struct lh_reply *reply)
{
    if (watch->is_reader_gone || reply->code == LH_GRPC_CANCELLED)
        return false;
    if (reply->has_reason)
        return reply->reason == LH_WATCH_LAGGED || lh_reply_is_passing(reply);
    return watch->has_begun && (reply->code == LH_GRPC_UNAVAILABLE || reply->code == LH_GRPC_OK ||
                                reply->code == LH_GRPC_INTERNAL || reply->code == LH_GRPC_UNKNOWN);
}

static enum lh_exit verdict(struct watch *watch, const struct lh_reply *reply)
{
    int number = lh_caller_take_signal(watch->server.caller);

    if (number != 0)
        return (enum lh_exit)(LH_EXIT_SIGNAL + number);
    return watch->is_reader_gone ? LH_EXIT_FAILED : lh_error_reply(watch->cli, reply);
}

static enum lh_exit follow(struct watch *watch)
{
    struct lh_reply reply;
    enum lh_exit status;
    unsigned failures = 0;

    lh_caller_catch_signals(watch->server.caller);
    for (;;) {
        watch->is_heard = false;
        lh_caller_read(watch->server.caller, SERVICE, "WatchLeases", &watch->request.base, on_event, watch, &reply);
        if (!is_worth_another(watch, &reply))
            break;
        if (watch->is_heard || (!watch->has_begun && failures == 0))
            lh_error_print("the watch was interrupted (%s); it starts again with the leases held then",
                           reply.code != LH_GRPC_OK && reply.words[0] != '\0' ? reply.words : "the server ended it");
        failures = watch->is_heard ? 0 : failures + 1;
        lh_caller_sleep(watch->server.caller, lh_caller_backoff_us(failures, &reply));
        lh_reply_finish(&reply);
    }
    status = verdict(watch, &reply);
    lh_reply_finish(&reply);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct watch watch = {.cli = cli, .request = LEASEHOLD__V1__WATCH_LEASES_REQUEST__INIT};
    const char *ns = cli->args.word_count > 0 ? cli->args.words[0] : "";
    Leasehold__V1__Namespace *in;
    struct lh_error error = {0};
    enum lh_exit status;

    if (lh_check_namespace_or_root(ns, &error) != LH_OK)
        return lh_error_value(cli, &error);
    in = lh_take_namespace(ns, &cli->arena);
    watch.request.namespace_ = in->segments;
    watch.request.n_namespace_ = in->n_segments;
    watch.request.include_children = lh_args_has(&cli->args, "children");
    watch.request.include_initial = true;
    watch.request.alive = true;
    status = lh_server_open(&watch.server, cli);
    if (status == LH_EXIT_DONE)
        status = follow(&watch);
    lh_server_close(&watch.server);
    return status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "Include the namespaces below."},
    {0},
};

const struct lh_command lh_command_watch = {
    .name = "watch",
    .summary = "print the leases that are held, then every change",
    .usage = (const char *const[]){"watch [NAMESPACE] [--children]", NULL},
    .description = "Prints one line for each lease of a namespace, or of all of them: first the\n"
                   "leases held now (held), then a line synced, then each change: acquired,\n"
                   "released, failed, expired, max_hold (the policy ended it), forced or\n"
                   "downgraded, with its reason. With -o json each line is one object.\n"
                   "\n"
                   "After an interruption the watch starts again with the leases held then, and\n"
                   "says so on stderr. Ctrl-C ends it.\n",
    .options = options,
    .examples = "  leasehold watch payments --children\n"
                "  leasehold watch -o json | jq -r 'select(.type == \"TYPE_FORCED\") | .reason'\n",
    .words_min = 0,
    .words_max = 1,
    .run = run,
};
