#include "service/edge/refusal.h"

#include <stdlib.h>

#include "base/clock.h"

#define HOLDERS_MAX 10 /* of a Contention */
#define PATIENCE_US (1 * LH_US_PER_S)
/* At once: they share the connection on which the daemon keeps itself known. */
#define LOOK_UPS_MAX 32

struct refusal {
    struct lh_link link; /* in lh_service.refusals, until the caller is told */
    struct lh_service *service;
    struct lh_acquire_result result;
    struct lh_contention contention;
    char *owner, *principal; /* of its holder */
    lh_refusal_cb *then;
    void *arg;
    int64_t since_us;
};

static void tell(struct refusal *refusal)
{
    lh_list_remove(&refusal->link);
    refusal->then(refusal->arg, &refusal->result);
}

static void on_holders(void *arg, enum lh_status status, const struct lh_error *error,
                       const struct lh_list_answer *holders)
{
    struct refusal *refusal = arg;
    struct lh_contention *contention = &refusal->contention;

    refusal->service->refusal_count--;
    if (lh_link_is_linked(&refusal->link)) {
        /* All may have ended meanwhile: then the one of before stands for why it was refused. */
        if (status == LH_OK && holders->lease_count > 0) {
            if (contention->holder.token != holders->leases[0].token)
                contention->holder = holders->leases[0];
            contention->holders = holders->leases;
            contention->listed = (int32_t)holders->lease_count;
            if (!holders->has_more)
                contention->holder_count = contention->listed;
        }
        tell(refusal);
    }
    free(refusal->owner);
    free(refusal->principal);
    free(refusal);
}

static char *copy(const char *text)
{
    return text == NULL ? NULL : lh_strdup(text);
}

bool lh_refusal_look_up(struct lh_service *service, const struct lh_wanted_scope *scope,
                        const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg)
{
    struct lh_store *store = service->store;
    struct refusal *refusal;

    if (service->refusal_count >= LOOK_UPS_MAX)
        return false;
    refusal = lh_alloc_zero(1, sizeof(*refusal));
    if (store->ops->holders(store, scope->ns, scope->key, HOLDERS_MAX, on_holders, refusal) != LH_OK) {
        free(refusal);
        return false;
    }
    refusal->service = service;
    refusal->then = then;
    refusal->arg = arg;
    refusal->since_us = lh_clock_us();
    refusal->result = (struct lh_acquire_result){.status = result->status,
                                                 .about = result->about,
                                                 .waited_us = result->waited_us,
                                                 .batch = result->batch,
                                                 .contention = &refusal->contention};
    refusal->contention = *result->contention;
    refusal->contention.holder.labels = NULL;
    refusal->contention.holder.slots = NULL;
    refusal->contention.holder.slot_count = 0;
    refusal->contention.holder.owner = refusal->owner = copy(result->contention->holder.owner);
    refusal->contention.holder.principal = refusal->principal = copy(result->contention->holder.principal);
    service->refusal_count++;
    lh_list_append(&service->refusals, &refusal->link);
    return true;
}

void lh_refusals_tick(struct lh_service *service)
{
    struct refusal *refusal;

    while ((refusal = LH_LIST_FIRST(struct refusal, &service->refusals, link)) != NULL &&
           refusal->since_us + PATIENCE_US <= lh_clock_us())
        tell(refusal);
}
