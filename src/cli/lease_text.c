#include "cli/lease_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "json/row_message.h"

#define NAMESPACE_COLUMN 0
#define KEY_COLUMN 1
#define STATE_COLUMN 2
#define OWNER_COLUMN 6

const char *lh_namespace_text_of(const char *ns, struct lh_arena *arena)
{
    if (ns[0] == '\0')
        return "(root)";
    return strchr(ns, '/') != NULL ? lh_arena_format(arena, "\"%s\"", ns) : ns;
}

const char *lh_namespace_text(char *const *segments, size_t count, struct lh_arena *arena)
{
    return lh_namespace_text_of(lh_message_dotted(segments, count, arena), arena);
}

const char *lh_scope_text_of(const char *ns, const char *key, struct lh_arena *arena)
{
    return lh_arena_format(arena, "%s/%s", lh_namespace_text_of(ns, arena), key);
}

const char *lh_scope_text(const Leasehold__V1__Scope *scope, struct lh_arena *arena)
{
    return lh_scope_text_of(lh_message_dotted(scope->namespace_, scope->n_namespace_, arena), scope->key, arena);
}

static const char *liveness_text(Leasehold__V1__Liveness liveness)
{
    switch (liveness) {
    case LEASEHOLD__V1__LIVENESS__LIVENESS_ALIVE:
        return "alive";
    case LEASEHOLD__V1__LIVENESS__LIVENESS_SUSPECTED_DEAD:
        return "suspected dead";
    case LEASEHOLD__V1__LIVENESS__LIVENESS_OVERDUE:
        return "held too long";
    case LEASEHOLD__V1__LIVENESS__LIVENESS_EXPIRED:
        return "expired";
    default:
        return "unknown";
    }
}

const char *lh_holder_liveness_words(enum lh_holder_liveness liveness)
{
    switch (liveness) {
    case LH_HOLDER_ALIVE:
        return ", alive";
    case LH_HOLDER_SUSPECTED_DEAD:
        return ", suspected dead";
    case LH_HOLDER_OVERDUE:
        return ", alive, but holding it unreasonably long";
    case LH_HOLDER_EXPIRED:
        return ", expired";
    default:
        return "";
    }
}

const char *lh_end_reason_text(Leasehold__V1__EndReason reason)
{
    switch (reason) {
    case LEASEHOLD__V1__END_REASON__END_REASON_RELEASED:
        return "released";
    case LEASEHOLD__V1__END_REASON__END_REASON_FAILED:
        return "failed";
    case LEASEHOLD__V1__END_REASON__END_REASON_EXPIRED:
        return "expired";
    case LEASEHOLD__V1__END_REASON__END_REASON_FORCED:
        return "forced";
    case LEASEHOLD__V1__END_REASON__END_REASON_MAX_HOLD:
        return "max_hold";
    default:
        return "unknown";
    }
}

static const char *mode_text(Leasehold__V1__Mode mode)
{
    switch (mode) {
    case LEASEHOLD__V1__MODE__MODE_EXCLUSIVE:
        return "exclusive";
    case LEASEHOLD__V1__MODE__MODE_SHARED:
        return "shared";
    default:
        return ""; /* an older server */
    }
}

const char *lh_slots_text(const int32_t *slots, size_t count, struct lh_arena *arena)
{
    static const size_t longest = sizeof(",-2147483648") - 1;
    char *text, *end;

    if (count == 0)
        return "";
    text = end = lh_arena_alloc(arena, count * longest + 1);
    for (size_t i = 0; i < count; i++)
        end += sprintf(end, "%s%" PRId32, i > 0 ? "," : "", slots[i]);
    return text;
}

static void add_mode(struct lh_grid *card, const Leasehold__V1__Lease *lease)
{
    const char *mode = mode_text(lease->mode);

    if (mode[0] == '\0')
        return;
    if (lease->units > 0)
        lh_grid_row(card, "mode", "%s, %" PRId32 " unit%s", mode, lease->units, lease->units == 1 ? "" : "s");
    else
        lh_grid_row(card, "mode", "%s", mode);
    if (lease->n_slots > 0)
        lh_grid_row(card, "slots", "%s", lh_slots_text(lease->slots, lease->n_slots, &card->arena));
}

/* The database's time when it answered, or `otherwise`. */
static int64_t answered_at_us(const Leasehold__V1__Lease *lease, int64_t otherwise)
{
    if (lease->deadline == NULL || lease->remaining == NULL)
        return otherwise;
    return lh_timestamp_us(lease->deadline) - lh_duration_us(lease->remaining);
}

/* How long before the answer that was: "35 s". */
static const char *ago(const Leasehold__V1__Lease *lease, const Google__Protobuf__Timestamp *when,
                       struct lh_arena *arena)
{
    int64_t since_us = answered_at_us(lease, lh_timestamp_us(when)) - lh_timestamp_us(when);
    return lh_arena_strdup(arena, LH_DURATION_TEXT(since_us > 0 ? since_us : 0));
}

static void add_labels(struct lh_grid *card, const Leasehold__V1__Lease *lease)
{
    for (size_t i = 0; i < lease->n_labels; i++)
        lh_grid_row(card, i == 0 ? "labels" : "", "%s=%s", lease->labels[i]->key, lease->labels[i]->value);
}

/* How it has gone so far: since when, and its heartbeats. */
static void add_past(struct lh_grid *card, const Leasehold__V1__Lease *lease)
{
    if (lease->acquired_at != NULL)
        lh_grid_row(card, "held", "for %s, since %s", ago(lease, lease->acquired_at, &card->arena),
                    LH_TIME_TEXT(lease->acquired_at->seconds));
    if (lease->heartbeat_at != NULL && lease->heartbeats > 0)
        lh_grid_row(card, "heartbeats", "%" PRId64 ", the last %s ago", lease->heartbeats,
                    ago(lease, lease->heartbeat_at, &card->arena));
    else if (lease->heartbeat_at != NULL)
        lh_grid_row(card, "heartbeats", "none yet");
}

/* How long it will go on without another heartbeat. */
static void add_future(struct lh_grid *card, const Leasehold__V1__Lease *lease)
{
    if (lease->duration != NULL)
        lh_grid_row(card, "duration", "%s", LH_DURATION_TEXT(lh_duration_us(lease->duration)));
    if (lease->deadline != NULL && lease->remaining != NULL) {
        int64_t remaining_us = lh_duration_us(lease->remaining);
        lh_grid_row(card, "deadline", remaining_us < 0 ? "%s ago, %s" : "in %s, %s",
                    LH_DURATION_TEXT(remaining_us < 0 ? -remaining_us : remaining_us),
                    LH_TIME_TEXT(lease->deadline->seconds));
    }
}

void lh_add_principal(struct lh_grid *card, const char *principal)
{
    if (principal[0] == '\0')
        return;
    lh_grid_row(card, "principal", "%s", principal);
}

void lh_add_lease_rows(struct lh_grid *card, const Leasehold__V1__Lease *lease)
{
    bool is_new = lease->lease_key[0] != '\0' && lease->heartbeats == 0; /* just granted */

    if (lease->scope != NULL)
        lh_grid_row(card, "lease", "%s", lh_scope_text(lease->scope, &card->arena));
    if (lease->lease_key[0] != '\0')
        lh_grid_row(card, "lease key", "%s", lease->lease_key);
    lh_grid_row(card, "token", "%" PRId64, lease->token);
    lh_grid_row(card, "owner", "%s", lease->owner[0] != '\0' ? lease->owner : "(unknown)");
    lh_add_principal(card, lease->principal);
    add_mode(card, lease);
    if (!is_new && lease->liveness != LEASEHOLD__V1__LIVENESS__LIVENESS_UNSPECIFIED)
        lh_grid_row(card, "state", "%s", liveness_text(lease->liveness));
    if (!is_new)
        add_past(card, lease);
    add_future(card, lease);
    add_labels(card, lease);
}

static const char *colour_of(size_t column, const char *cell)
{
    if (column != STATE_COLUMN || strcmp(cell, "STATE") == 0)
        return NULL;
    if (strcmp(cell, liveness_text(LEASEHOLD__V1__LIVENESS__LIVENESS_ALIVE)) == 0)
        return "32";
    return strcmp(cell, liveness_text(LEASEHOLD__V1__LIVENESS__LIVENESS_EXPIRED)) == 0 ? "31" : "33";
}

void lh_lease_table_fit(struct lh_grid *table, FILE *out)
{
    table->width = lh_terminal_width(out);
    table->cut = 1u << NAMESPACE_COLUMN | 1u << KEY_COLUMN | 1u << STATE_COLUMN | 1u << OWNER_COLUMN;
    table->colour = lh_terminal_has_colour(out) ? colour_of : NULL;
}

void lh_add_lease_table_header(struct lh_grid *table)
{
    lh_grid_texts(table, "NAMESPACE", "KEY", "STATE", "HELD", "REMAINING", "TOKEN", "OWNER", "PRINCIPAL", "HEARTBEATS",
                  "MODE", "UNITS", "SLOTS", NULL);
}

void lh_add_lease_table_row(struct lh_grid *table, const Leasehold__V1__Lease *lease)
{
    const char *ns = lh_namespace_text(lease->scope != NULL ? lease->scope->namespace_ : NULL,
                                       lease->scope != NULL ? lease->scope->n_namespace_ : 0, &table->arena);

    lh_grid_texts(table, ns, lease->scope != NULL ? lease->scope->key : "", liveness_text(lease->liveness),
                  lease->acquired_at != NULL ? ago(lease, lease->acquired_at, &table->arena) : "",
                  lease->remaining != NULL ? LH_DURATION_TEXT(lh_duration_us(lease->remaining)) : "", NULL);
    lh_grid_add(table, "%" PRId64, lease->token);
    lh_grid_texts(table, lease->owner, lease->principal, NULL);
    lh_grid_add(table, "%" PRId64, lease->heartbeats);
    lh_grid_texts(table, mode_text(lease->mode), NULL);
    lh_grid_add(table, lease->units > 0 ? "%" PRId32 : "", lease->units);
    lh_grid_texts(table, lh_slots_text(lease->slots, lease->n_slots, &table->arena), NULL);
}

void lh_add_rest(struct lh_grid *card, const Leasehold__V1__Contention *contention)
{
    if (contention == NULL || contention->rests == NULL)
        return;
    lh_grid_row(card, "rests", "for %s more; nobody gets it before",
                LH_DURATION_TEXT(lh_duration_us(contention->rests)));
}

void lh_add_units_free(struct lh_grid *card, const Leasehold__V1__Contention *contention)
{
    if (contention == NULL || contention->units_free == NULL)
        return;
    lh_grid_row(card, "units free", "%" PRId32, contention->units_free->value);
}

void lh_print_contention(FILE *out, const Leasehold__V1__Contention *contention)
{
    struct lh_grid card = {.columns = 2, .indent = "  "};
    const Leasehold__V1__Lease *holder = contention->holder;

    if (holder != NULL) {
        lh_grid_row(&card, "holder", "%s, %s, token %" PRId64, holder->owner[0] != '\0' ? holder->owner : "(unknown)",
                    liveness_text(contention->liveness), holder->token);
        lh_add_principal(&card, holder->principal);
        add_mode(&card, holder);
        if (contention->holder_count > 1)
            lh_grid_row(&card, "holders", "%" PRId32 ", of which this is the oldest", contention->holder_count);
        add_past(&card, holder);
        add_future(&card, holder);
    } else {
        lh_grid_row(&card, "holder", contention->rests != NULL ? "none" : "none: the next waiter is about to get it");
    }
    lh_add_rest(&card, contention);
    lh_add_units_free(&card, contention);
    lh_grid_row(&card, "waiters", "%" PRId32 " ahead", contention->waiters_ahead);
    lh_grid_print(&card, out);
}
