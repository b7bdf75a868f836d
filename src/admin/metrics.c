#include "admin/metrics.h"

#include "base/clock.h"
#include "lease/coordinator.h"

static void expose_leases(struct lh_exposition *out, const struct lh_coordinator_stats *stats)
{
    lh_expose_counter(out, "leasehold_lease_grants_total", stats->grants, "Leases granted by this daemon.");
    lh_expose_counter(out, "leasehold_shared_lease_grants_total", stats->shared_grants,
                      "Those of leasehold_lease_grants_total that are shared.");
    lh_expose_counter(out, "leasehold_lease_renewals_total", stats->renewals,
                      "Acquires by the holder of the lease, which renewed it.");
    lh_expose_counter(out, "leasehold_heartbeats_total", stats->heartbeats, "Heartbeats answered OK.");
    lh_expose_family(out, "leasehold_lease_losses_total", LH_EXPOSE_COUNTER,
                     "Heartbeats answered LOST, by how the lease had ended.");
    lh_expose_count(out, stats->losses[LH_END_RELEASED], "reason", "released", NULL);
    lh_expose_count(out, stats->losses[LH_END_FAILED], "reason", "failed", NULL);
    lh_expose_count(out, stats->losses[LH_END_EXPIRED], "reason", "expired", NULL);
    lh_expose_count(out, stats->losses[LH_END_FORCED], "reason", "forced", NULL);
    lh_expose_count(out, stats->losses[LH_END_MAX_HOLD], "reason", "max_hold", NULL);
    lh_expose_count(out, stats->losses[LH_END_UNKNOWN] + stats->losses[LH_END_UNSPECIFIED], "reason", "unknown", NULL);
    lh_expose_counter(out, "leasehold_downgrades_total", stats->downgrades,
                      "Exclusive leases that their holders made shared, and shared ones made smaller.");
    lh_expose_counter(out, "leasehold_releases_total", stats->releases, "Leases released by their holders.");
    lh_expose_counter(out, "leasehold_reaps_total", stats->reaped,
                      "Expired leases ended by the reaper of this daemon.");
    lh_expose_counter(out, "leasehold_reap_failures_total", stats->reap_failures,
                      "Reaps that a hook refused; they are tried again later.");
}

static void expose_work(struct lh_exposition *out, const struct lh_coordinator_stats *stats)
{
    lh_expose_gauge(out, "leasehold_waiters", stats->waiters, "Calls that wait for a lease.");
    lh_expose_gauge(out, "leasehold_pending_items", stats->pending,
                    "Items accepted and not answered yet, without waiters.");
    lh_expose_gauge(out, "leasehold_scopes", stats->scopes, "Scopes that this daemon keeps in memory.");
    lh_expose_counter(out, "leasehold_wakes_total", stats->wakes, "Wake-ups of a scope's first waiter.");
    lh_expose_counter(out, "leasehold_busy_retries_total", stats->busy,
                      "Items put off because another session had the row of their scope locked.");
    lh_expose_counter(out, "leasehold_watch_events_total", stats->watch_events, "Changes of leases told to watchers.");
    lh_expose_counter(out, "leasehold_watch_lags_total", stats->watch_lags,
                      "Watchers that were ended because changes may have been missed; they begin again.");
}

static void expose_batches(struct lh_exposition *out, const struct lh_coordinator_stats *stats)
{
    static const char *const kinds[] = {"acquire", "heartbeat", "release", "leave", "downgrade", "acquire_all"};

    lh_expose_family(out, "leasehold_batch_items", LH_EXPOSE_HISTOGRAM, "Items of a batch sent to the database.");
    for (int i = 0; i < 6; i++)
        lh_expose_histogram(out, &stats->batch_sizes[i], &lh_size_bounds, false, "kind", kinds[i], NULL);
    lh_expose_family(out, "leasehold_batch_duration_seconds", LH_EXPOSE_HISTOGRAM,
                     "From sending a batch to the database's answer.");
    for (int i = 0; i < 6; i++)
        lh_expose_histogram(out, &stats->batch_us[i], &lh_latency_bounds, true, "kind", kinds[i], NULL);
}

/* What runs on hook lanes. A leave ends a lease whose caller went in the instant of the grant. */
static void expose_hooks(struct lh_exposition *out, const struct lh_coordinator_stats *stats)
{
    static const char *const events[] = {"acquire",   "heartbeat",   "release", "leave",
                                         "downgrade", "acquire_all", "reap"};

    lh_expose_family(out, "leasehold_hook_rejections_total", LH_EXPOSE_COUNTER,
                     "Items that a hook refused, those that ran over their limit included.");
    for (int i = 0; i < 7; i++)
        lh_expose_count(out, stats->hook_rejections[i], "event", events[i], NULL);
    lh_expose_family(out, "leasehold_hook_timeouts_total", LH_EXPOSE_COUNTER,
                     "Items whose hooks ran over the limit of their namespace's policy.");
    for (int i = 0; i < 7; i++)
        lh_expose_count(out, stats->hook_timeouts[i], "event", events[i], NULL);
    lh_expose_counter(out, "leasehold_hook_connection_losses_total", stats->hook_losses,
                      "Database connections that were lost while hooks ran on them.");
    lh_expose_family(out, "leasehold_hook_duration_seconds", LH_EXPOSE_HISTOGRAM,
                     "How long an item with hooks took on its hook lane; its count is that of the calls.");
    for (int i = 0; i < 7; i++)
        lh_expose_histogram(out, &stats->hook_us[i], &lh_latency_bounds, true, "event", events[i], NULL);
}

static void expose_time(struct lh_exposition *out, const char *name, const char *help, bool is_known, int64_t value_us)
{
    lh_expose_family(out, name, LH_EXPOSE_GAUGE, help);
    if (is_known)
        lh_expose_seconds(out, value_us, NULL);
}

/* What is not known yet has no sample. */
static void expose_database(struct lh_exposition *out, const struct lh_coordinator_stats *stats)
{
    int64_t now_us = lh_clock_us();
    bool is_seen = stats->last_tick_us != 0;
    bool is_surveyed = stats->survey_us != 0;

    expose_time(out, "leasehold_database_answer_age_seconds",
                "Since the database last answered the sign of life that is sent every second.", is_seen,
                now_us - stats->last_tick_us);
    expose_time(out, "leasehold_database_clock_offset_seconds",
                "The database's clock minus CLOCK_BOOTTIME of this machine; a step of it is a step of that clock.",
                is_seen, stats->clock_offset_us);
    expose_time(out, "leasehold_database_clock_skew_seconds",
                "The database's clock minus the wall clock of this machine.", is_seen,
                stats->clock_offset_us - (lh_clock_wall_us() - now_us));
    lh_expose_family(out, "leasehold_leases_held", LH_EXPOSE_GAUGE,
                     "Leases held in the whole database, when it was last surveyed.");
    if (is_surveyed)
        lh_expose_count(out, (uint64_t)stats->held, NULL);
    expose_time(out, "leasehold_database_oldest_transaction_seconds",
                "How long the transaction that keeps dead rows from being removed was open then; 0: there was none.",
                is_surveyed && stats->oldest_us >= 0, stats->oldest_us);
    lh_expose_family(out, "leasehold_database_monitor_missing", LH_EXPOSE_GAUGE,
                     "1 where the database does not show other sessions' transactions: grant pg_monitor.");
    if (is_surveyed)
        lh_expose_count(out, stats->oldest_us < 0, NULL);
    expose_time(out, "leasehold_database_survey_age_seconds", "Since the database was last surveyed.", is_surveyed,
                now_us - stats->survey_us);
}

static void expose_guards(struct lh_exposition *out, const struct lh_coordinator_stats *stats)
{
    lh_expose_counter(out, "leasehold_guards_ended_total", stats->guards_ended,
                      "Database sessions that were ended because they guarded a lease for longer than max_guard.");
    lh_expose_family(out, "leasehold_guards_overdue", LH_EXPOSE_GAUGE,
                     "Sessions that guard a lease for longer than max_guard and could not be ended, at the last look.");
    lh_expose_count(out, stats->guards_overdue, NULL);
}

void lh_metrics_coordinator(struct lh_exposition *out, const struct lh_coordinator *coordinator)
{
    struct lh_coordinator_stats stats;

    lh_coordinator_stats(coordinator, &stats);
    expose_leases(out, &stats);
    expose_work(out, &stats);
    expose_batches(out, &stats);
    expose_hooks(out, &stats);
    expose_database(out, &stats);
    expose_guards(out, &stats);
}
