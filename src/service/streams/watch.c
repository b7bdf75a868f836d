/*
 * WatchLeases: the changes under a namespace, and before them, if the client asks for it, a list of the leases.
 *
 *     WAITING --- active: headers ---> LIVE --------------------------> OVER
 *         `------ active: headers ---> LISTING --- last page, SYNCED ---^
 *
 * The list is asked page by page, each when the client has read the one before, and events are kept meanwhile. They may
 * repeat a page; so the newest token sent is kept for each scope, and the tokens of the leases that are held, until the
 * coordinator has caught up with the list. An older change is dropped, and so is the end of a lease that the client was
 * never shown.
 *
 * A client that does not read is ended with WATCH_LAGGED when more than watch_buffer or 10,000 events wait for it; the
 * pages of the list do not count, because each is asked when the client has read the one before.
 */
#include "service/streams_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lease/watch.h"
#include "service/call_internal.h"
#include "service/edge_internal.h"
#include "service/words_internal.h"

#define KEPT_EVENTS_MAX 10000
#define PAGE_SIZE 200

#define TYPE(name) LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_##name

enum watch_state { WATCH_WAITING, WATCH_LISTING, WATCH_LIVE, WATCH_OVER };

struct watch_stream {
    struct lh_rpc_call *call; /* NULL: the client is gone */
    struct lh_service *service;
    struct lh_usage *caller;
    struct lh_access_caller who; /* what it may not read any more is left out from then on */
    struct lh_link link;         /* in lh_service.watches, until it is over */
    struct lh_watcher watcher;
    struct lh_routed_watch *routed;
    enum watch_state state;
    bool include_initial;
    bool says_alive;
    int64_t told_us; /* when something was sent last */
    bool is_page_out;
    char *ns;
    char *key; /* "": any */
    struct visible_walk walk;
    struct lh_link kept; /* events that came while it was listing */
    size_t kept_count;
    size_t kept_bytes;
    bool has_known;
    struct lh_table known;
};

struct kept_event {
    struct lh_link link;
    enum lh_event_type type;
    int64_t token;
    const char *ns;
    const char *key;
    size_t size;
    char data[]; /* the message, then ns and key */
};

/* --- what the client was told --- */

/* Of a lease that is held, by its token; and of a scope, by the token 0, the newest. */
struct known {
    struct lh_table_entry entry;
    int64_t token;
    int64_t newest;
    size_t ns_size; /* with its NUL */
    char name[];    /* ns, key */
};

struct known_name {
    const char *ns;
    const char *key;
    int64_t token;
};

static bool is_known(const struct lh_table_entry *entry, const void *key)
{
    const struct known *known = LH_CONTAINER(const struct known, entry, entry);
    const struct known_name *name = key;
    return known->token == name->token && strcmp(known->name, name->ns) == 0 &&
           strcmp(known->name + known->ns_size, name->key) == 0;
}

static struct known *find_known(struct watch_stream *stream, const char *ns, const char *key, int64_t token,
                                bool may_add)
{
    struct known_name name = {ns, key, token};
    size_t ns_size = strlen(ns) + 1, key_size = strlen(key) + 1;
    uint64_t hash = lh_hash(key, key_size, lh_hash(ns, ns_size, (uint64_t)token));
    struct lh_table_entry *entry = lh_table_find(&stream->known, hash, &name);
    struct known *known;

    if (entry != NULL)
        return LH_CONTAINER(struct known, entry, entry);
    if (!may_add)
        return NULL;
    known = lh_alloc_zero(1, sizeof(*known) + ns_size + key_size);
    known->token = token;
    known->ns_size = ns_size;
    memcpy(known->name, ns, ns_size);
    memcpy(known->name + ns_size, key, key_size);
    lh_table_insert(&stream->known, &known->entry, hash);
    return known;
}

static void forget_one(struct watch_stream *stream, struct known *known)
{
    lh_table_remove(&stream->known, &known->entry);
    free(known);
}

static void forget_known(struct watch_stream *stream)
{
    struct lh_table_entry *entry, *next = NULL;
    size_t slot = 0;

    if (!stream->has_known)
        return;
    stream->has_known = false;
    while ((entry = lh_table_walk(&stream->known, &slot, &next)) != NULL)
        forget_one(stream, LH_CONTAINER(struct known, entry, entry));
    lh_table_finish(&stream->known);
}

/* Is it news after what the client was told? Then it counts as told. */
static bool is_news(struct watch_stream *stream, enum lh_event_type type, int64_t token, const char *ns,
                    const char *key)
{
    struct known *known, *scope;

    if (!stream->has_known)
        return true;
    known = find_known(stream, ns, key, token, false);
    if (type != LH_EVENT_ACQUIRED && type != LH_EVENT_DOWNGRADED) {
        if (known != NULL)
            forget_one(stream, known);
        return known != NULL;
    }
    scope = find_known(stream, ns, key, 0, true);
    if (token <= scope->newest) /* a smaller lease under its old token is told again */
        return type == LH_EVENT_DOWNGRADED && known != NULL;
    scope->newest = token;
    find_known(stream, ns, key, token, true);
    return true;
}

/* --- life --- */

static void drop_kept(struct watch_stream *stream, struct kept_event *event)
{
    stream->kept_count--;
    stream->kept_bytes -= event->size;
    if (stream->call != NULL)
        lh_rpc_call_set_kept(stream->call, stream->kept_bytes);
    lh_list_remove(&event->link);
    free(event);
}

/* Nothing is told any more. */
static void leave(struct watch_stream *stream)
{
    if (stream->state == WATCH_OVER)
        return;
    stream->state = WATCH_OVER;
    lh_route_unwatch(stream->routed);
    lh_list_remove(&stream->link);
    forget_known(stream);
    LH_LIST_EACH(struct kept_event, event, &stream->kept, link)
        drop_kept(stream, event);
}

static void free_when_over(struct watch_stream *stream)
{
    if (stream->call != NULL || stream->is_page_out)
        return;
    lh_usage_give(stream->caller, LH_USAGE_WATCHERS, 1);
    lh_access_leave(&stream->who);
    lh_routed_watch_destroy(stream->routed);
    free(stream->ns);
    free(stream->key);
    free(stream);
}

static void fail(struct watch_stream *stream, enum lh_status status, const char *message)
{
    struct lh_failure failure = {.status = status, .message = message};

    if (stream->state == WATCH_OVER)
        return;
    leave(stream);
    if (message != NULL)
        lh_failure_send(stream->call, &failure);
    else
        lh_call_fail(stream->call, status, NULL, stream->ns, NULL);
}

static void fail_slow(struct watch_stream *stream)
{
    fail(stream, LH_WATCH_LAGGED,
         "this watcher reads more slowly than leases change: watch again, from what is held then");
}

/* --- sending --- */

static bool is_over(const struct watch_stream *stream, size_t waiting, size_t size)
{
    return waiting > 0 && waiting + size > stream->service->watch_buffer;
}

static bool send_bytes(struct watch_stream *stream, const void *data, size_t size)
{
    stream->told_us = lh_clock_us();
    if ((stream->state == WATCH_LIVE && is_over(stream, lh_rpc_call_unsent(stream->call), size)) ||
        lh_rpc_call_send(stream->call, data, size) == LH_OVERLOADED) {
        fail_slow(stream);
        return false;
    }
    return true;
}

static size_t pack(struct watch_stream *stream, Leasehold__V1__LeaseEvent__Type type,
                   const struct lh_lease_event *event, const void **data)
{
    struct lh_arena *arena = &stream->service->scratch;
    Leasehold__V1__LeaseEvent message = LEASEHOLD__V1__LEASE_EVENT__INIT;

    message.type = type;
    if (event != NULL) {
        message.lease = lh_message_lease(&event->lease, LH_LEASE_PUBLIC, arena);
        message.end_reason = (Leasehold__V1__EndReason)event->end_reason;
        if (event->reason != NULL)
            message.reason = (char *)event->reason;
        if (event->result != NULL)
            message.result = (char *)event->result;
        if (event->error != NULL)
            message.error = (char *)event->error;
    }
    return lh_message_pack(&message.base, arena, data);
}

static void keep(struct watch_stream *stream, const struct lh_lease_event *event, const void *data, size_t size)
{
    size_t ns_size = strlen(event->lease.ns) + 1, key_size = strlen(event->lease.key) + 1;
    struct kept_event *kept;

    if (stream->kept_count >= KEPT_EVENTS_MAX || is_over(stream, stream->kept_bytes, size) ||
        !lh_rpc_call_set_kept(stream->call, stream->kept_bytes + size)) {
        fail_slow(stream);
        return;
    }
    kept = lh_alloc(sizeof(*kept) + size + ns_size + key_size);
    memset(kept, 0, sizeof(*kept));
    kept->type = event->type;
    kept->token = event->lease.token;
    kept->size = size;
    memcpy(kept->data, data, size);
    kept->ns = memcpy(kept->data + size, event->lease.ns, ns_size);
    kept->key = memcpy(kept->data + size + ns_size, event->lease.key, key_size);
    lh_list_append(&stream->kept, &kept->link);
    stream->kept_count++;
    stream->kept_bytes += size;
}

static bool is_watched(const struct watch_stream *stream, const char *key)
{
    return stream->key[0] == '\0' || strcmp(stream->key, key) == 0;
}

static void on_event(struct lh_watcher *watcher, const struct lh_lease_event *event)
{
    struct watch_stream *stream = watcher->arg;
    const void *data;
    size_t size;

    if (!lh_access_may(&stream->who, LH_RIGHT_READ, event->lease.ns) || !is_watched(stream, event->lease.key))
        return;
    if (stream->state == WATCH_LIVE &&
        !is_news(stream, event->type, event->lease.token, event->lease.ns, event->lease.key))
        return;
    size = pack(stream, (Leasehold__V1__LeaseEvent__Type)event->type, event, &data);
    if (stream->state == WATCH_LIVE)
        send_bytes(stream, data, size);
    else if (stream->state == WATCH_LISTING)
        keep(stream, event, data, size);
    lh_arena_reset(&stream->service->scratch);
}

/* --- what there is --- */

static void on_page(void *arg, enum lh_status status, const struct lh_error *error,
                    const struct lh_list_answer *answer);

static void go_live(struct watch_stream *stream);

static void ask_page(struct watch_stream *stream)
{
    struct lh_store *store = stream->service->store;
    struct lh_list_request list = {.page_size = PAGE_SIZE};
    enum lh_status status;

    if (stream->state != WATCH_LISTING || stream->is_page_out || lh_rpc_call_is_over_mark(stream->call))
        return;
    if (!lh_visible_ask(&stream->walk, &stream->who, &list)) {
        go_live(stream);
        return;
    }
    status = store->ops->list(store, &list, on_page, stream);
    stream->is_page_out = status == LH_OK;
    if (status != LH_OK)
        fail(stream, status, NULL);
}

static void send_page(struct watch_stream *stream, const struct lh_list_answer *answer)
{
    const void *data;

    for (size_t i = 0; i < answer->lease_count && stream->state == WATCH_LISTING; i++) {
        struct lh_lease_event event = {.lease = answer->leases[i]};
        if (!lh_visible_may_show(&stream->who, &event.lease) || !is_watched(stream, event.lease.key))
            continue;
        find_known(stream, event.lease.ns, event.lease.key, 0, true)->newest = event.lease.token;
        find_known(stream, event.lease.ns, event.lease.key, event.lease.token, true);
        size_t size = pack(stream, TYPE(INITIAL), &event, &data);
        send_bytes(stream, data, size);
        lh_arena_reset(&stream->service->scratch);
    }
    lh_visible_advance(&stream->walk, answer, answer->lease_count);
    if ((answer->lease_count > 0 && !is_watched(stream, answer->leases[answer->lease_count - 1].key)) ||
        (answer->stop_key != NULL && !is_watched(stream, answer->stop_key)))
        stream->walk.is_over = true; /* it is beyond the one scope */
}

static void go_live(struct watch_stream *stream)
{
    const void *data;
    size_t size = pack(stream, TYPE(SYNCED), NULL, &data);

    stream->state = WATCH_LIVE;
    send_bytes(stream, data, size);
    lh_arena_reset(&stream->service->scratch);
    LH_LIST_EACH(struct kept_event, event, &stream->kept, link) {
        if (stream->state != WATCH_LIVE)
            return; /* it was too slow, and what was kept is gone */
        if (lh_access_may(&stream->who, LH_RIGHT_READ, event->ns) &&
            is_news(stream, event->type, event->token, event->ns, event->key) &&
            !send_bytes(stream, event->data, event->size))
            return;
        drop_kept(stream, event);
    }
    lh_route_catch_up(stream->routed);
}

static void on_page(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_list_answer *answer)
{
    struct watch_stream *stream = arg;
    char lacking[LH_SPREAD_WORDS_BYTES];

    stream->is_page_out = false;
    if (stream->state != WATCH_LISTING) {
        free_when_over(stream);
        return;
    }
    /* With the connection go the events: the coordinator ends it when there is one again. */
    if (status == LH_DATABASE_UNAVAILABLE && !lh_places_lack_leases(stream->service->places, stream->ns, lacking))
        return;
    if (status != LH_OK) {
        bool has_words =
            error != NULL && status != LH_INTERNAL && status != LH_CANCELED && status != LH_DATABASE_UNAVAILABLE;
        fail(stream, status, has_words ? error->message : NULL);
        return;
    }
    send_page(stream, answer);
    ask_page(stream);
}

/* --- from the coordinator --- */

static void on_active(struct lh_watcher *watcher)
{
    struct watch_stream *stream = watcher->arg;

    lh_rpc_call_send_headers(stream->call);
    stream->told_us = lh_clock_us();
    if (stream->says_alive)
        lh_rpc_call_set_alarm(stream->call, stream->told_us + LH_QUIET_US);
    if (!stream->include_initial) {
        stream->state = WATCH_LIVE;
        return;
    }
    stream->state = WATCH_LISTING;
    stream->has_known = true;
    lh_table_init(&stream->known, is_known);
    if (stream->key[0] == '\0')
        lh_visible_begin(&stream->walk, stream->ns, stream->watcher.include_children, NULL, NULL, 0);
    else
        lh_visible_begin(&stream->walk, stream->ns, false, stream->ns, stream->key, -1);
    ask_page(stream);
}

static void on_caught_up(struct lh_watcher *watcher)
{
    forget_known(watcher->arg);
}

static void on_watch_end(struct lh_watcher *watcher, enum lh_status status)
{
    fail(watcher->arg, status,
         status == LH_WATCH_LAGGED ? "events are missing: watch again, from what is held then" : NULL);
}

/* --- the call --- */

static void refuse(struct lh_rpc_call *call, const struct lh_service *service, enum lh_status status)
{
    struct lh_failure failure = {.status = status, .message = "too many watchers"};
    struct lh_coordinator_stats stats;
    char limit[24];

    if (status != LH_OVERLOADED) {
        lh_call_fail(call, status, NULL, NULL, NULL);
        return;
    }
    lh_coordinator_stats(service->places->home->coordinator, &stats);
    snprintf(limit, sizeof(limit), "%zu", stats.max_watchers);
    failure.limit = limit;
    lh_failure_send(call, &failure);
}

static void begin(struct lh_rpc_call *call, struct lh_access_caller *who,
                  const Leasehold__V1__WatchLeasesRequest *request, const char *ns)
{
    struct lh_service *service = lh_call_service(call);
    struct watch_stream *stream;
    struct lh_usage *caller;
    enum lh_status status;

    if (!lh_permit_any(call, who, LH_RIGHT_READ, ns, request->include_children || *ns == '\0') ||
        !lh_usage_take(call, LH_USAGE_WATCHERS, 1, &caller))
        return;
    stream = lh_alloc_zero(1, sizeof(*stream));
    stream->caller = caller;
    stream->who = lh_access_copy(who);
    stream->call = call;
    stream->service = service;
    stream->ns = lh_strdup(ns);
    stream->key = lh_strdup(request->key);
    stream->include_initial = request->include_initial;
    stream->says_alive = request->alive;
    stream->watcher = (struct lh_watcher){.ns = stream->ns,
                                          .include_children = request->include_children || *ns == '\0',
                                          .on_active = on_active,
                                          .on_event = on_event,
                                          .on_caught_up = on_caught_up,
                                          .on_end = on_watch_end,
                                          .arg = stream};
    lh_list_init(&stream->kept);
    stream->routed = lh_route_watch(service, &stream->watcher, &status);
    if (stream->routed == NULL) {
        stream->call = NULL;
        free_when_over(stream);
        refuse(call, service, status);
        return;
    }
    lh_list_append(&service->watches, &stream->link);
    lh_rpc_call_set_data(call, stream);
}

void lh_watch_leases_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_access_caller who;
    const char *ns;

    if (!lh_asked_check(asked, lh_validate_watch(&asked->v, request, &ns))) {
        /* answered */
    } else if (asked->service->is_draining) {
        lh_call_fail(asked->call, LH_SHUTTING_DOWN, NULL, NULL, NULL);
    } else if (lh_permit_enter(asked->call, &who)) {
        begin(asked->call, &who, request, ns);
        lh_access_leave(&who);
    }
}

void lh_watch_leases_on_writable(struct lh_rpc_call *call)
{
    struct watch_stream *stream = lh_rpc_call_data(call);
    if (stream != NULL)
        ask_page(stream);
}

void lh_watch_leases_on_alarm(struct lh_rpc_call *call)
{
    struct watch_stream *stream = lh_rpc_call_data(call);
    const void *data;
    size_t size;

    if (stream == NULL || stream->state == WATCH_OVER)
        return;
    if (lh_clock_us() - stream->told_us >= LH_QUIET_US) {
        size = pack(stream, TYPE(ALIVE), NULL, &data);
        send_bytes(stream, data, size);
        lh_arena_reset(&stream->service->scratch);
    }
    lh_rpc_call_set_alarm(call, stream->told_us + LH_QUIET_US);
}

void lh_watch_leases_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct watch_stream *stream = lh_rpc_call_data(call);

    if (stream == NULL)
        return;
    leave(stream);
    stream->call = NULL;
    free_when_over(stream);
}

void lh_watch_leases_drain(struct lh_service *service)
{
    LH_LIST_EACH(struct watch_stream, stream, &service->watches, link)
        fail(stream, LH_SHUTTING_DOWN, NULL);
}
