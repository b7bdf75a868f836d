#include "cli/reap_pass.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "json/print.h"
#include "json/row_message.h"

void lh_reap_pass_begin(struct lh_reap_pass *pass)
{
    leasehold__v1__reap_response__init(&pass->total);
}

void lh_reap_pass_end(struct lh_reap_pass *pass)
{
    free(pass->total.failures);
    lh_reap_pass_begin(pass);
    lh_arena_reset(&pass->arena);
    if (pass->callback.flight != NULL)
        pass->callback.flight->reaped = 0;
}

void lh_reap_pass_add_reaped(struct lh_reap_pass *pass, int32_t count)
{
    pass->total.reaped += count;
    if (pass->callback.flight != NULL)
        pass->callback.flight->reaped = pass->total.reaped;
}

static void add(struct lh_reap_pass *pass, Leasehold__V1__ReapFailure *failure)
{
    size_t count = pass->total.n_failures;

    pass->total.failures = lh_realloc(pass->total.failures, count + 1, sizeof(*pass->total.failures));
    pass->total.failures[pass->total.n_failures++] = failure;
}

/* --- a failure of the server's, copied into the arena --- */

static void *allocate(void *arena, size_t size)
{
    return lh_arena_alloc(arena, size);
}

/* The arena frees everything at the end of the pass. */
static void free_nothing(void *arena, void *memory)
{
}

void lh_reap_pass_add_failure(struct lh_reap_pass *pass, const Leasehold__V1__ReapFailure *failure)
{
    ProtobufCAllocator allocator = {.alloc = allocate, .free = free_nothing, .allocator_data = &pass->arena};
    size_t size = leasehold__v1__reap_failure__get_packed_size(failure);
    Leasehold__V1__ReapFailure *copy;
    uint8_t *packed = lh_arena_alloc(&pass->arena, size + 1);

    leasehold__v1__reap_failure__pack(failure, packed);
    copy = leasehold__v1__reap_failure__unpack(&allocator, size, packed);
    if (copy != NULL)
        add(pass, copy);
}

/* --- one of the database's --- */

static Leasehold__V1__Lease *lease_message(struct lh_arena *arena, const struct lh_embed_lease *lease)
{
    Leasehold__V1__Lease *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__lease__init(message);
    message->scope = lh_message_scope(lease->namespace_text, lh_arena_strdup(arena, lease->key), arena);
    message->owner = lh_arena_strdup(arena, lease->owner);
    if (lease->principal != NULL)
        message->principal = lh_arena_strdup(arena, lease->principal);
    message->token = lease->token;
    message->heartbeats = lease->heartbeats;
    message->liveness = LEASEHOLD__V1__LIVENESS__LIVENESS_EXPIRED;
    message->duration = lh_message_duration(lease->duration_us, arena);
    message->grace = lh_message_duration(lease->grace_us, arena);
    message->deadline = lh_message_timestamp(lease->deadline_at_us, arena);
    message->acquired_at = lh_message_timestamp(lease->acquired_at_us, arena);
    message->heartbeat_at = lh_message_timestamp(lease->heartbeat_at_us, arena);
    lh_lease_add_labels(arena, message, lease->labels);
    return message;
}

void lh_reap_pass_add_failed(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *error,
                             int32_t reap_failures, int64_t next_try_at_us)
{
    Leasehold__V1__ReapFailure *failure = lh_arena_alloc(&pass->arena, sizeof(*failure));

    leasehold__v1__reap_failure__init(failure);
    failure->lease = lease_message(&pass->arena, lease);
    failure->error = lh_arena_strdup(&pass->arena, error);
    failure->reap_failures = reap_failures;
    if (next_try_at_us != 0)
        failure->next_try_at = lh_message_timestamp(next_try_at_us, &pass->arena);
    add(pass, failure);
}

/* --- reporting --- */

static void report_failures(const struct lh_reap_pass *pass)
{
    for (size_t i = 0; i < pass->total.n_failures; i++) {
        const Leasehold__V1__ReapFailure *failure = pass->total.failures[i];
        const Leasehold__V1__Scope *scope = failure->lease != NULL ? failure->lease->scope : NULL;
        char *name = scope != NULL ? lh_scope_text(scope) : lh_strdup("?");
        char when[LH_TIME_TEXT_BYTES] = "none, an administrator must act";

        if (failure->next_try_at != NULL)
            lh_time_format(failure->next_try_at->seconds, when);
        lh_error_print("could not reap %s (%" PRId32 " times so far): %s; next try: %s", name, failure->reap_failures,
                       failure->error, when);
        free(name);
    }
}

void lh_reap_pass_report(const struct lh_reap_pass *pass, bool is_repeated)
{
    bool has_news = pass->total.reaped > 0 || pass->total.n_failures > 0 || lh_args_has(&pass->cli->args, "verbose");

    report_failures(pass);
    if (is_repeated && !has_news)
        return;
    if (pass->cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &pass->total.base);
    else
        printf("reaped %" PRId32 " lease%s\n", pass->total.reaped, pass->total.reaped == 1 ? "" : "s");
    fflush(stdout);
}
