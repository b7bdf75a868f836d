/* Requests to hand a lease over, as renewals tell them: on_asked is called once for each. */
#include "base/clock.h"
#include "client/lease_internal.h"

static int64_t asked_at_us(const Leasehold__V1__HandOver *asked)
{
    if (asked->asked_at == NULL || asked->asked_at->seconds > INT64_MAX / LH_US_PER_S - 1 ||
        asked->asked_at->seconds < 0)
        return 0;
    return asked->asked_at->seconds * LH_US_PER_S + asked->asked_at->nanos / 1000;
}

/* A request is the one before if it has its time; answers that come in another order than they were sent tell no more of
   an older one. */
void lh_lease_asked(struct lh_lease *lease, int64_t sent_us, const Leasehold__V1__HandOver *asked)
{
    const struct lh_declare_options *options = &lease->declared->options;
    struct lh_hand_over_request told;

    if (asked == NULL || options->on_asked == NULL || !lh_lease_is_kept(lease) || sent_us < lease->asked_sent_us ||
        asked_at_us(asked) == lease->asked_at_us)
        return;
    lease->asked_at_us = asked_at_us(asked);
    lease->asked_sent_us = sent_us;
    told = (struct lh_hand_over_request){.asked_by = asked->asked_by,
                                         .principal = asked->principal,
                                         .reason = asked->reason,
                                         .answer_in_us = lh_unpack_duration_us(asked->answer_in)};
    lh_lease_ref(lease);
    options->on_asked(options->arg, lease, &told);
    lh_lease_unref(lease);
}
