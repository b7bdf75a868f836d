/*
 * The life of the store. Start: lanes, control and listener connect, each on its own, and the coordinator gets an event
 * when each is up. Stop: no call is accepted; batches in flight finish, because their grants must be known before this
 * coordinator unregisters; then the connections close. A stop that takes too long closes them at once.
 */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/error.h"
#include "store/store_internal.h"

#define CHANNEL_BYTES (sizeof("leasehold_") + 32)

static const char *const state_names[] = {"new", "running", "finishing", "unregistering", "closing", "stopped"};

static void set_state(struct pg_store *store, enum pg_store_state state)
{
    lh_debug("store goes from %s to %s", state_names[store->state], state_names[state]);
    store->state = state;
}

void lh_store_options_init(struct lh_store_options *options)
{
    *options = (struct lh_store_options){
        .name = "",
        .lanes = 3,
        .hook_lanes = 2,
        .version = LH_VERSION,
        .statement_timeout_us = 30 * LH_US_PER_S,
        .stop_timeout_us = 10 * LH_US_PER_S,
        .max_control = 1024,
    };
}

/* --- events of the connections; none is passed on once the store is stopping --- */

static bool is_running(const struct pg_store *store)
{
    return store->state == STORE_RUNNING;
}

static void on_lane_up(void *arg)
{
    struct lane *lane = arg;
    if (is_running(lane->store))
        lane->store->events->on_lane_up(lane->store->arg, lane->number);
}

static void on_lane_down(void *arg, const struct lh_error *error)
{
    struct lane *lane = arg;
    if (is_running(lane->store))
        lane->store->events->on_lane_down(lane->store->arg, lane->number);
}

static void on_control_up(void *arg)
{
    struct pg_store *store = arg;
    if (is_running(store))
        store->events->on_control_up(store->arg);
}

static void on_control_down(void *arg, const struct lh_error *error)
{
    struct pg_store *store = arg;
    if (is_running(store))
        store->events->on_control_down(store->arg);
}

static void on_listener_up(void *arg)
{
    struct pg_store *store = arg;
    if (is_running(store))
        store->events->on_listener_up(store->arg);
}

/* Namespace, newline, key; `watch`: there are events; `asked`: there are requests to hand over; `spread`: rows of
   spread namespaces have changed; anything else means: look at everything. */
static void on_notify(void *arg, const char *payload)
{
    struct pg_store *store = arg;
    const char *newline = strchr(payload, '\n');
    struct lh_wake wake = {NULL, NULL, 0};
    char *ns = NULL;

    if (!is_running(store))
        return;
    if (strcmp(payload, "watch") == 0) {
        if (store->events->on_watch != NULL)
            store->events->on_watch(store->arg);
        return;
    }
    if (strcmp(payload, "asked") == 0) {
        if (store->events->on_asked != NULL)
            store->events->on_asked(store->arg);
        return;
    }
    if (strcmp(payload, "spread") == 0) {
        if (store->events->on_spread != NULL)
            store->events->on_spread(store->arg);
        return;
    }
    if (newline != NULL) {
        ns = lh_strdup(payload);
        ns[newline - payload] = '\0';
        wake.ns = ns;
        wake.key = newline + 1;
    }
    store->events->on_wake(store->arg, &wake);
    free(ns);
}

/* --- start and stop --- */

static unsigned lane_count(struct lh_store *store)
{
    return pg_store_of(store)->options.lanes;
}

static unsigned hook_lane_count(struct lh_store *store)
{
    return pg_store_of(store)->options.hook_lanes;
}

static void start(struct lh_store *base, const struct lh_store_events *events, void *arg)
{
    struct pg_store *store = pg_store_of(base);

    store->events = events;
    store->arg = arg;
    set_state(store, STORE_RUNNING);
    lh_pg_conn_start(store->control);
    lh_pg_listener_start(store->listener);
    for (unsigned i = 0; i < store->lane_count; i++)
        lh_pg_conn_start(store->lanes[i].conn);
}

static void on_one_closed(void *arg)
{
    struct pg_store *store = arg;
    if (--store->open_count == 0)
        lh_defer(store->loop, &store->advance);
}

static void close_all(struct pg_store *store)
{
    lh_pg_store_measure(store, &store->stats);
    set_state(store, STORE_CLOSING);
    lh_timer_cancel(&store->stop_timer);
    store->open_count = store->lane_count + 2;
    for (unsigned i = 0; i < store->lane_count; i++)
        lh_pg_conn_close(store->lanes[i].conn, on_one_closed, store);
    lh_pg_conn_close(store->control, on_one_closed, store);
    lh_pg_listener_close(store->listener, on_one_closed, store);
}

static void on_unregistered(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct pg_store *store = arg;
    if (store->state != STORE_UNREGISTERING)
        return;
    if (status != LH_OK)
        lh_warn("this coordinator could not unregister: %s", error->message);
    close_all(store);
}

static bool is_idle(const struct pg_store *store)
{
    for (unsigned i = 0; i < store->lane_count; i++)
        if (store->lanes[i].kind != NULL)
            return false;
    return true;
}

static void advance_stop(void *arg)
{
    struct pg_store *store = arg;

    if (store->state == STORE_FINISHING && is_idle(store)) {
        set_state(store, STORE_UNREGISTERING);
        if (lh_pg_store_unregister(store, on_unregistered, store) != LH_OK)
            close_all(store);
    } else if (store->state == STORE_CLOSING && store->open_count == 0) {
        set_state(store, STORE_STOPPED);
        store->on_stopped(store->on_stopped_arg, LH_OK, NULL);
    }
}

static void on_stop_due(void *arg)
{
    struct pg_store *store = arg;
    lh_warn("the database does not answer; closing its connections with work in flight");
    close_all(store);
}

static void stop(struct lh_store *base, lh_store_cb *on_done, void *arg)
{
    struct pg_store *store = pg_store_of(base);

    store->on_stopped = on_done;
    store->on_stopped_arg = arg;
    set_state(store, STORE_FINISHING);
    lh_timer_arm_at_us(&store->stop_timer, lh_clock_us() + store->options.stop_timeout_us);
    lh_defer(store->loop, &store->advance);
}

/* --- batches --- */

static enum lh_status send(struct lh_store *base, unsigned number, enum lh_kind kind, int64_t clock_us, void **items,
                           size_t n, lh_store_cb *on_done, void *arg)
{
    static const struct batch_kind *const kinds[LH_SCOPE_KINDS] = {
        [LH_KIND_ACQUIRE] = &lh_acquire_kind,     [LH_KIND_HEARTBEAT] = &lh_heartbeat_kind,
        [LH_KIND_RELEASE] = &lh_release_kind,     [LH_KIND_LEAVE] = &lh_leave_kind,
        [LH_KIND_DOWNGRADE] = &lh_downgrade_kind, [LH_KIND_ACQUIRE_ALL] = &lh_acquire_all_kind,
    };
    struct lane *lane = &pg_store_of(base)->lanes[number];

    if (kind == LH_KIND_REAP)
        return lh_hook_run_start(lane, clock_us, (struct lh_reap_item **)items, n, on_done, arg);
    return lh_pg_lane_send(lane, kinds[kind], clock_us, items, n, on_done, arg);
}

static enum lh_status hand_over(struct lh_store *store, unsigned lane, int64_t clock_us, struct lh_holder_item **items,
                                size_t n, struct lh_acquire_item **riders, size_t rider_count, lh_store_cb *on_done,
                                void *arg)
{
    lh_pg_lane_set_riders(&pg_store_of(store)->lanes[lane], &lh_hand_over_kind, riders, rider_count);
    return lh_pg_lane_send(&pg_store_of(store)->lanes[lane], &lh_release_kind, clock_us, items, n, on_done, arg);
}

/* Measured: docs/design/profile.md. */
static size_t worth_a_batch(struct lh_store *store)
{
    return pg_store_of(store)->has_core ? 3 : 24;
}

/* --- what needs no round trip --- */

static int64_t timeline(struct lh_store *store)
{
    return pg_store_of(store)->timeline;
}

static int32_t schema_version(struct lh_store *store)
{
    return pg_store_of(store)->schema_version;
}

static bool is_connected(struct lh_store *base)
{
    struct pg_store *store = pg_store_of(base);
    if (!is_running(store) || !lh_pg_conn_is_up(store->control))
        return false;
    for (unsigned i = 0; i < store->options.lanes; i++)
        if (lh_pg_conn_is_up(store->lanes[i].conn))
            return true;
    return false;
}

static void server(struct lh_store *base, struct lh_server_facts *facts)
{
    struct pg_store *store = pg_store_of(base);
    struct lh_pg_server_facts *known = &store->server;

    lh_pg_servers_facts(store->servers, known);
    *facts = (struct lh_server_facts){
        .is_up = known->is_up,
        .server = known->server,
        .system_identifier = known->system_identifier,
        .timeline = known->timeline,
        .answered_us = known->answered_us,
        .failovers = known->failovers,
        .trouble = known->trouble.status == LH_OK ? NULL : known->trouble.message,
        .cause = known->trouble.status == LH_OK ? NULL : lh_pg_cause(known->trouble.sqlstate),
        .is_permanent = known->is_permanent,
        .common_path = store->common_path,
        .keeping = store->keeping[0] == '\0' ? NULL : store->keeping,
        .privileges = store->privileges[0] == '\0' ? NULL : store->privileges,
    };
}

static const struct lh_store_ops ops = {
    .lane_count = lane_count,
    .hook_lane_count = hook_lane_count,
    .start = start,
    .stop = stop,
    .send = send,
    .worth_a_batch = worth_a_batch,
    .hand_over = hand_over,
    .enroll = lh_pg_store_enroll,
    .tick = lh_pg_store_tick,
    .look_elsewhere = lh_pg_store_look_elsewhere,
    .survey = lh_pg_store_survey,
    .end_long_guards = lh_pg_store_end_long_guards,
    .read_access = lh_pg_store_read_access,
    .audit = lh_pg_store_audit,
    .token_used = lh_pg_store_token_used,
    .read_asked = lh_pg_store_read_asked,
    .ask_holders = lh_pg_store_ask_holders,
    .read_spread = lh_pg_store_read_spread,
    .claim_spread = lh_pg_store_claim_spread,
    .pass_on = lh_pg_store_pass_on,
    .reap = lh_pg_store_reap,
    .get = lh_pg_store_get,
    .holders = lh_pg_store_holders,
    .list = lh_pg_store_list,
    .force_release = lh_pg_store_force_release,
    .administer = lh_pg_store_administer,
    .list_rows = lh_pg_store_list_rows,
    .view = lh_pg_store_view,
    .watch_add = lh_pg_store_watch_add,
    .watch_remove = lh_pg_store_watch_remove,
    .watch_clear = lh_pg_store_watch_clear,
    .watch_barrier = lh_pg_store_watch_barrier,
    .watch_settled = lh_pg_store_watch_settled,
    .take_events = lh_pg_store_take_events,
    .timeline = timeline,
    .schema_version = schema_version,
    .is_connected = is_connected,
    .server = server,
};

/* --- create and destroy --- */

#define CONN_NAME_BYTES 64

/* "eu lane 0" of one of several databases, else "lane 0". */
static const char *conn_name(const struct pg_store *store, char name[CONN_NAME_BYTES], const char *role)
{
    snprintf(name, CONN_NAME_BYTES, "%s%s%s", store->name, *store->name != '\0' ? " " : "", role);
    return name;
}

static void create_lane(struct pg_store *store, unsigned number)
{
    static const struct lh_pg_conn_events events = {on_lane_up, on_lane_down, NULL};
    struct lane *lane = &store->lanes[number];
    struct lh_pg_conn_options options;
    char role[24], name[CONN_NAME_BYTES];

    if (number < store->options.lanes)
        snprintf(role, sizeof(role), "lane %u", number);
    else
        snprintf(role, sizeof(role), "hook lane %u", number - store->options.lanes);
    lh_pg_conn_options_init(&options);
    options.servers = store->servers;
    options.name = conn_name(store, name, role);
    options.statement_timeout_us = store->options.statement_timeout_us;
    lane->store = store;
    lane->number = number;
    if (number >= store->options.lanes)
        lh_hook_run_create(lane);
    lane->conn = lh_pg_conn_create(store->loop, &options, &events, lane);
}

static void create_control(struct pg_store *store)
{
    static const struct lh_pg_conn_events events = {on_control_up, on_control_down, NULL};
    struct lh_pg_conn_options options;
    char name[CONN_NAME_BYTES];

    lh_pg_conn_options_init(&options);
    options.servers = store->servers;
    options.name = conn_name(store, name, "control");
    options.statement_timeout_us = store->options.statement_timeout_us;
    options.max_in_flight = store->options.max_control;
    store->control = lh_pg_conn_create(store->loop, &options, &events, store);
}

static void create_listener(struct pg_store *store)
{
    static const struct lh_pg_listener_events events = {on_listener_up, NULL, on_notify};
    struct lh_pg_listener_options options;
    char name[CONN_NAME_BYTES];
    char channel[CHANNEL_BYTES] = "leasehold_";
    size_t used = strlen(channel);

    for (const char *c = LH_UUID_TEXT(&store->base.coordinator); *c != '\0'; c++)
        if (*c != '-')
            channel[used++] = *c;
    channel[used] = '\0';
    lh_pg_listener_options_init(&options);
    options.servers = store->servers;
    options.name = conn_name(store, name, "listener");
    options.channel = channel;
    store->listener = lh_pg_listener_create(store->loop, &options, &events, store);
}

static char *host_name(const char *wanted)
{
    char name[256];
    if (wanted != NULL)
        return lh_strdup(wanted);
    if (gethostname(name, sizeof(name)) != 0)
        return lh_strdup("unknown");
    name[sizeof(name) - 1] = '\0';
    return lh_strdup(name);
}

struct lh_store *lh_store_create(struct lh_loop *loop, const struct lh_store_options *options)
{
    struct pg_store *store = lh_alloc_zero(1, sizeof(*store));

    store->base.ops = &ops;
    store->base.coordinator = lh_uuid_random();
    store->loop = loop;
    store->options = *options;
    store->name = lh_strdup(options->name);
    if (store->options.lanes == 0)
        store->options.lanes = 1;
    if (store->options.lanes > LH_STORE_LANES_MAX)
        store->options.lanes = LH_STORE_LANES_MAX;
    if (store->options.hook_lanes > LH_STORE_LANES_MAX)
        store->options.hook_lanes = LH_STORE_LANES_MAX;
    store->lane_count = store->options.lanes + store->options.hook_lanes;
    store->servers = lh_pg_servers_create(loop, options->conninfo);
    store->host = host_name(options->host);
    store->version = lh_strdup(options->version == NULL ? LH_VERSION : options->version);
    store->look_at_privileges = (struct lh_pg_statement){.name = "privileges", .sql = options->privileges_sql};
    lh_timer_init(&store->stop_timer, loop, on_stop_due, store);
    lh_deferred_init(&store->advance, advance_stop, store);
    for (unsigned i = 0; i < store->lane_count; i++)
        create_lane(store, i);
    create_control(store);
    create_listener(store);
    return &store->base;
}

/* After the connections are gone. */
static void free_store(struct pg_store *store)
{
    for (unsigned i = 0; i < store->lane_count; i++) {
        free(store->lanes[i].run);
        lh_pg_params_finish(&store->lanes[i].params);
        lh_arena_finish(&store->lanes[i].arena);
    }
    lh_pg_params_finish(&store->params);
    lh_arena_finish(&store->arena);
    lh_deferred_cancel(&store->advance);
    lh_timer_finish(&store->stop_timer);
    lh_pg_servers_destroy(store->servers);
    free(store->name);
    free(store->host);
    free(store->version);
    free(store);
}

static void on_unused_closed(void *arg, enum lh_status status, const struct lh_error *error)
{
    free_store(arg);
}

void lh_store_destroy(struct lh_store *base)
{
    struct pg_store *store;

    if (base == NULL)
        return;
    store = pg_store_of(base);
    if (store->state == STORE_STOPPED) {
        free_store(store);
        return;
    }
    /* Never started: its connections, that were never made, go at the end of the turn, and the store with them. */
    store->on_stopped = on_unused_closed;
    store->on_stopped_arg = store;
    close_all(store);
}
