/*
 * The leases of this server: acquired, renewed by the library as long as the server lives, released.
 *
 * A hold is in the list from the request on, so that a scope is asked for once. A lost one stays until the client was told:
 * the next call about it answers LOST, and ends the hold.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/lease_text.h"
#include "cli/mcp/mcp_internal.h"

static struct lh_mcp_hold *find(struct lh_mcp *mcp, const char *ns, const char *key)
{
    LH_LIST_EACH(struct lh_mcp_hold, hold, &mcp->holds, link)
        if (strcmp(hold->ns, ns) == 0 && strcmp(hold->key, key) == 0)
            return hold;
    return NULL;
}

static struct lh_mcp_hold *create(struct lh_mcp_call *call)
{
    struct lh_mcp_hold *hold = lh_alloc_zero(1, sizeof(*hold));

    hold->mcp = call->mcp;
    hold->ns = lh_strdup(lh_mcp_call_text(call, "namespace"));
    hold->key = lh_strdup(lh_mcp_call_text(call, "key"));
    hold->call = call;
    lh_list_append(&call->mcp->holds, &hold->link);
    call->mcp->hold_count++;
    return hold;
}

static void destroy(struct lh_mcp_hold *hold)
{
    lh_list_remove(&hold->link);
    hold->mcp->hold_count--;
    lh_lease_destroy(hold->lease);
    free(hold->ns);
    free(hold->key);
    free(hold);
}

/* What there is to know of a lease that is held. A token is text, as in all JSON of Leasehold: it has 64 bits. */
static json_t *facts(const struct lh_mcp_hold *hold)
{
    const struct lh_lease *lease = hold->lease;
    size_t count;
    const int32_t *slots = lh_lease_slots(lease, &count);
    json_t *facts, *list = json_array();
    char token[24];

    snprintf(token, sizeof(token), "%" PRId64, lh_lease_token(lease));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(slots[i]));
    facts = json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:o}", "namespace", hold->ns, "key", hold->key, "token", token,
                      "mode", lh_lease_mode(lease) == LH_SHARED ? "shared" : "exclusive", "units",
                      (int)lh_lease_units(lease), "remaining_seconds",
                      (double)lh_lease_remaining_us(lease) / (double)LH_SECOND, "slots", list);
    return facts;
}

/* Ends the call and the hold. */
static void tell_lost(struct lh_mcp_call *call, struct lh_mcp_hold *hold)
{
    char words[400];

    snprintf(words, sizeof(words), "the lease was lost (%s)%s%s", lh_lost_reason_name(hold->lost),
             hold->lost_words[0] != '\0' ? ": " : "", hold->lost_words);
    lh_mcp_call_refused(
        call, "LOST", words,
        "Stop the work that the lease protects: another holder may have it. Acquire again before you go on.",
        json_pack("{s:s, s:s, s:s}", "namespace", hold->ns, "key", hold->key, "reason",
                  lh_lost_reason_name(hold->lost)));
    destroy(hold);
}

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    struct lh_mcp_hold *hold = lh_lease_user(lease);
    char warning[LH_SCOPE_NAME_BYTES + 400];

    hold->lost = reason;
    snprintf(hold->lost_words, sizeof(hold->lost_words), "%.*s",
             (int)lh_utf8_cut(words, strlen(words), sizeof(hold->lost_words) - 1), words);
    snprintf(warning, sizeof(warning), "the lease %s is lost (%s): %s; stop the work that it protects",
             LH_SCOPE_NAME(hold->ns, hold->key), lh_lost_reason_name(reason), hold->lost_words);
    lh_mcp_warn(arg, warning);
}

/* --- acquire --- */

/* The client keeps its declarations for life. */
static struct lh_declared *declare(struct lh_mcp *mcp, const char *ns, struct lh_error *error)
{
    const struct lh_declare_options options = {.duration_us = mcp->duration_us, .on_lost = on_lost, .arg = mcp};
    struct lh_declared *declared;

    for (size_t i = 0; i < mcp->namespace_count; i++)
        if (strcmp(mcp->namespaces[i].text, ns) == 0)
            return mcp->namespaces[i].declared;
    if (mcp->namespace_count == LH_MCP_NAMESPACES_MAX) {
        lh_error_set(error, LH_OVERLOADED, "this server has acquired in %d namespaces, which is its limit",
                     LH_MCP_NAMESPACES_MAX);
        return NULL;
    }
    declared = lh_declare(mcp->client, ns, &options, error);
    if (declared == NULL)
        return NULL;
    mcp->namespaces = lh_realloc(mcp->namespaces, mcp->namespace_count + 1, sizeof(*mcp->namespaces));
    mcp->namespaces[mcp->namespace_count++] = (struct lh_mcp_namespace){lh_strdup(ns), declared};
    return declared;
}

static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    struct lh_mcp_hold *hold = arg;
    char words[600];

    if (obstacle->owner[0] == '\0')
        snprintf(words, sizeof(words), "waiting: %s; %" PRIu32 " ahead",
                 obstacle->rests_us > 0 ? "its minimum hold has not passed" : "not held", obstacle->waiters_ahead);
    else
        snprintf(words, sizeof(words), "waiting: held by %s%s for %s; %" PRIu32 " ahead", obstacle->owner,
                 lh_holder_liveness_words(obstacle->liveness), LH_DURATION_TEXT(obstacle->held_us),
                 obstacle->waiters_ahead);
    lh_mcp_call_progress(hold->call, words);
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct lh_mcp_hold *hold = arg;
    struct lh_mcp_call *call = hold->call;

    hold->lease = lease;
    hold->call = NULL;
    if (status != LH_OK)
        lh_mcp_call_failed(call, status, error);
    else if (call->is_cancelled)
        lh_mcp_call_done(call, NULL, "cancelled");
    else {
        lh_mcp_call_done(call, facts(hold),
                         "acquired %s; this server renews it until it is released, lost, or the "
                         "session ends",
                         LH_SCOPE_NAME(hold->ns, hold->key));
        return;
    }
    destroy(hold);
}

static void cancel_acquire(struct lh_mcp_call *call)
{
    lh_cancel(call->request);
}

bool lh_mcp_hold_is_in_the_way(struct lh_mcp_call *call)
{
    struct lh_mcp_hold *hold = find(call->mcp, lh_mcp_call_text(call, "namespace"), lh_mcp_call_text(call, "key"));

    if (hold == NULL)
        return false;
    if (hold->lost != 0 && hold->call == NULL)
        tell_lost(call, hold);
    else if (hold->lease == NULL)
        lh_mcp_call_refused(call, "LEASE_HELD", "this server is waiting for it already",
                            "Wait for the answer of the other call, or cancel it.", NULL);
    else
        lh_mcp_call_refused(call, "LEASE_HELD", "this server holds it already",
                            "Go on with the work, or release it first. It is renewed meanwhile.", facts(hold));
    return true;
}

static enum lh_status take_wait(const struct lh_mcp_call *call, int64_t *wait_us, struct lh_error *error)
{
    const char *wait = lh_mcp_call_text(call, "wait");

    *wait_us = 0;
    if (wait != NULL && strcmp(wait, "forever") == 0)
        *wait_us = LH_FOREVER;
    else if (wait != NULL)
        return lh_check_duration("wait", wait, 0, wait_us, error);
    return LH_OK;
}

void lh_mcp_acquire(struct lh_mcp_call *call)
{
    const json_t *shared = json_object_get(call->arguments, "shared");
    struct lh_acquire_options options = {.mode = shared != NULL ? LH_SHARED : LH_EXCLUSIVE, .on_waiting = on_waiting};
    struct lh_declared *declared;
    struct lh_mcp_hold *hold;
    struct lh_error error = {0};
    enum lh_status status;

    if (lh_mcp_hold_is_in_the_way(call))
        return;
    if (call->mcp->hold_count >= LH_MCP_HOLDS_MAX)
        lh_error_set(&error, LH_OVERLOADED, "leases: this server has %zu; the limit is %d; release one first",
                     call->mcp->hold_count, LH_MCP_HOLDS_MAX);
    else if (take_wait(call, &options.wait_us, &error) == LH_OK)
        (void)lh_bounds_units(shared != NULL ? (int32_t)json_integer_value(shared) : 0, &error);
    declared = error.status == LH_OK ? declare(call->mcp, lh_mcp_call_text(call, "namespace"), &error) : NULL;
    if (declared == NULL) {
        lh_mcp_call_failed(call, error.status, &error);
        return;
    }
    hold = create(call);
    options.units = (int32_t)json_integer_value(shared);
    options.user = options.on_waiting_arg = hold;
    call->on_cancel = cancel_acquire;
    status = lh_acquire_async(declared, hold->key, &options, on_acquired, hold, &call->request, &error);
    if (status == LH_OK)
        return;
    lh_mcp_call_failed(call, status, &error);
    destroy(hold);
}

/* --- renew and release --- */

/* Returns the lease that the call is about, which is then the call's; NULL: the call was ended. */
static struct lh_mcp_hold *take(struct lh_mcp_call *call)
{
    struct lh_mcp_hold *hold = find(call->mcp, lh_mcp_call_text(call, "namespace"), lh_mcp_call_text(call, "key"));

    if (hold == NULL) {
        lh_mcp_call_refused(call, "NOT_HELD", "this server does not hold it",
                            "Call acquire first. A lease that another program holds is released by that program.",
                            NULL);
    } else if (hold->call != NULL) {
        lh_mcp_call_refused(call, "SCOPE_BUSY", "another call works at this lease",
                            "Wait for the answer of the other call, or cancel it.", NULL);
    } else if (hold->lost != 0) {
        tell_lost(call, hold);
    } else {
        hold->call = call;
        return hold;
    }
    return NULL;
}

static void on_renewed(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_mcp_hold *hold = arg;
    struct lh_mcp_call *call = hold->call;

    hold->call = NULL;
    if (status == LH_OK)
        lh_mcp_call_done(call, facts(hold), "held; this server goes on renewing it");
    else if (hold->lost != 0)
        tell_lost(call, hold);
    else
        lh_mcp_call_failed(call, status, error);
}

void lh_mcp_renew(struct lh_mcp_call *call)
{
    struct lh_mcp_hold *hold = take(call);
    struct lh_error error = {0};
    enum lh_status status;

    if (hold == NULL)
        return;
    status = lh_heartbeat_async(hold->lease, NULL, on_renewed, hold, NULL, &error);
    if (status != LH_OK)
        on_renewed(hold, status, &error);
}

static void on_released(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_mcp_hold *hold = arg;
    struct lh_mcp_call *call = hold->call;

    if (hold->lost != 0) {
        tell_lost(call, hold);
        return;
    }
    if (status == LH_OK)
        lh_mcp_call_done(call, json_pack("{s:s, s:s}", "namespace", hold->ns, "key", hold->key), "released");
    else
        lh_mcp_call_failed(call, status, error);
    destroy(hold);
}

void lh_mcp_release(struct lh_mcp_call *call)
{
    const json_t *result = json_object_get(call->arguments, "result");
    struct lh_release_options options = {.failure = lh_mcp_call_text(call, "failure")};
    struct lh_mcp_hold *hold;
    struct lh_error error = {0};
    char *text = result != NULL ? json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    enum lh_status status;

    options.result = text;
    if (text != NULL && options.failure != NULL)
        lh_bounds_refuse(&error, "failure", "not together with result", "result and failure cannot be combined");
    else if (text != NULL)
        (void)lh_check_result(text, &error);
    else if (options.failure != NULL)
        (void)lh_bounds_text("failure", LH_TEXT_RESULT, options.failure, &error);
    if (error.status != LH_OK) {
        lh_mcp_call_failed(call, error.status, &error);
    } else if ((hold = take(call)) != NULL) {
        status = lh_release_async(hold->lease, &options, on_released, hold, NULL, &error);
        if (status != LH_OK)
            on_released(hold, status, &error);
    }
    free(text);
}

void lh_mcp_hold_release_all(struct lh_mcp *mcp)
{
    LH_LIST_EACH(struct lh_mcp_hold, hold, &mcp->holds, link)
        if (hold->call == NULL)
            destroy(hold);
}
