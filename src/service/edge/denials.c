#include "service/edge_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/store.h"

#define TOLD_EVERY_US (1 * LH_US_PER_S)
#define PEER_BYTES 128
#define WHAT_BYTES 96

struct denied {
    struct lh_table_entry entry;
    struct lh_link link;
    uint64_t untold;    /* to the log */
    uint64_t unaudited; /* to the database */
    int64_t told_us;
    const char *method; /* static */
    char peer[PEER_BYTES];
    char ns[LH_NAMESPACE_MAX_BYTES + 1];
    char what[WHAT_BYTES];
    char principal[];
};

static bool is_denied(const struct lh_table_entry *entry, const void *key)
{
    return strcmp(LH_CONTAINER(const struct denied, entry, entry)->principal, key) == 0;
}

void lh_denials_init(struct lh_denials *denials, struct lh_store *store)
{
    denials->store = store;
    lh_table_init(&denials->by_principal, is_denied);
    lh_list_init(&denials->in_order);
}

static void forget(struct lh_denials *denials, struct denied *denied)
{
    lh_table_remove(&denials->by_principal, &denied->entry);
    lh_list_remove(&denied->link);
    free(denied);
}

void lh_denials_finish(struct lh_denials *denials)
{
    LH_LIST_EACH(struct denied, denied, &denials->in_order, link)
        forget(denials, denied);
    lh_table_finish(&denials->by_principal);
}

static void on_audited(void *arg, enum lh_status status, const struct lh_error *error)
{
    if (status != LH_OK && status != LH_CANCELED)
        lh_warn("a denial is in the log and not in the audit: %s",
                error != NULL ? error->message : lh_status_text(status));
}

static void audit(struct lh_denials *denials, struct denied *denied)
{
    struct lh_audit row = {.principal = denied->principal,
                           .peer = denied->peer,
                           .action = "denied",
                           .ns = denied->ns,
                           .reason = denied->what,
                           .outcome = "refused",
                           .count = (int64_t)denied->unaudited};

    if (denials->store->ops->audit == NULL ||
        denials->store->ops->audit(denials->store, &row, on_audited, NULL) == LH_OK)
        denied->unaudited = 0;
}

static void tell(struct lh_denials *denials, struct denied *denied, int64_t now_us)
{
    if (denied->untold > 0)
        lh_warn("access denied: %s principal=%s peer=%s namespace=%s method=%s count=%llu", denied->what,
                denied->principal, denied->peer, denied->ns, denied->method, (unsigned long long)denied->untold);
    denied->untold = 0;
    denied->told_us = now_us;
    audit(denials, denied);
}

void lh_denials_note(struct lh_denials *denials, const struct lh_denial *denial)
{
    size_t size = strlen(denial->principal);
    uint64_t hash = lh_hash(denial->principal, size, 0);
    struct lh_table_entry *entry = lh_table_find(&denials->by_principal, hash, denial->principal);
    struct denied *denied;
    int64_t now_us = lh_clock_us();

    if (entry == NULL && denials->by_principal.count >= LH_DENIALS_MAX)
        return;
    if (entry != NULL) {
        denied = LH_CONTAINER(struct denied, entry, entry);
    } else {
        denied = lh_alloc_zero(1, sizeof(*denied) + size + 1);
        memcpy(denied->principal, denial->principal, size + 1);
        denied->told_us = now_us - TOLD_EVERY_US;
        lh_table_insert(&denials->by_principal, &denied->entry, hash);
        lh_list_append(&denials->in_order, &denied->link);
    }
    denied->method = denial->method;
    snprintf(denied->peer, sizeof(denied->peer), "%s", denial->peer);
    snprintf(denied->ns, sizeof(denied->ns), "%s", denial->ns);
    snprintf(denied->what, sizeof(denied->what), "%s", denial->what);
    denied->untold++;
    denied->unaudited++;
    if (now_us - denied->told_us >= TOLD_EVERY_US)
        tell(denials, denied, now_us);
}

void lh_denials_tick(struct lh_denials *denials, int64_t now_us)
{
    LH_LIST_EACH(struct denied, denied, &denials->in_order, link) {
        if (now_us - denied->told_us < TOLD_EVERY_US)
            continue;
        if (denied->untold == 0 && denied->unaudited == 0)
            forget(denials, denied);
        else
            tell(denials, denied, now_us);
    }
}
