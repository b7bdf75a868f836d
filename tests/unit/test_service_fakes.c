#include "test_service_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "service/edge/wire.h"
#include "service/service.h"

/* --- RPC calls --- */

static void *clients[2]; /* of the connections */

void fake_connection_gone(struct lh_service *service, unsigned connection)
{
    if (clients[connection] != NULL)
        lh_service_on_client_gone(service, clients[connection]);
    clients[connection] = NULL;
}

void fake_client_gone(struct lh_service *service)
{
    fake_connection_gone(service, 0);
    fake_connection_gone(service, 1);
}

void lh_rpc_call_set_client(struct lh_rpc_call *call, void *client)
{
    clients[call->connection] = client;
}

void *lh_rpc_call_client(const struct lh_rpc_call *call)
{
    return clients[call->connection];
}

bool lh_rpc_call_set_kept(struct lh_rpc_call *call, size_t bytes)
{
    if (call->is_full)
        return false;
    call->kept = bytes;
    return true;
}

static struct lh_rpc_call *start_call(struct lh_service *service, const char *path, const char *principal,
                                      const char *authorization);

struct lh_rpc_call *fake_call(struct lh_service *service, const char *path)
{
    return start_call(service, path, NULL, NULL);
}

struct lh_rpc_call *fake_call_by(struct lh_service *service, const char *path, const char *principal,
                                 const char *authorization)
{
    fake_client_gone(service);
    return start_call(service, path, principal, authorization);
}

static struct lh_rpc_call *start_call(struct lh_service *service, const char *path, const char *principal,
                                      const char *authorization)
{
    struct lh_rpc_call *call = lh_alloc_zero(1, sizeof(*call));
    size_t count;
    const struct lh_rpc_method *methods = lh_service_methods(&count);

    static uint64_t last_id;

    call->id = ++last_id;
    call->arg = service;
    call->principal = principal;
    call->authorization = authorization;
    for (size_t i = 0; i < count; i++)
        if (strcmp(methods[i].path, path) == 0)
            call->method = &methods[i];
    ck_assert_msg(call->method != NULL, "no method %s", path);
    if (call->method->on_start != NULL)
        call->method->on_start(call);
    return call;
}

void fake_call_bytes(struct lh_rpc_call *call, const void *data, size_t size)
{
    /* A copy of its own: ASan sees who reads it later. */
    void *copy = malloc(size + 1);
    memcpy(copy, data, size);
    call->method->on_message(call, copy, size);
    free(copy);
}

void fake_call_message(struct lh_rpc_call *call, const ProtobufCMessage *message)
{
    struct packed packed = to_bytes(message);
    fake_call_bytes(call, packed.data, packed.size);
}

void fake_call_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    if (call->method->on_end != NULL)
        call->method->on_end(call, reason);
    lh_buffer_finish(&call->details);
    lh_buffer_finish(&call->sent);
    free(call);
}

static void *find_detail(const struct lh_rpc_call *call, const char *type_url, const ProtobufCMessageDescriptor *type)
{
    Google__Rpc__Status *status = (Google__Rpc__Status *)lh_wire_unpack(
        &google__rpc__status__descriptor, call->details.data, call->details.size, &test_arena);

    ck_assert_int_eq(status->code, call->code);
    ck_assert_str_eq(status->message, call->message);
    for (size_t i = 0; i < status->n_details; i++)
        if (strcmp(status->details[i]->type_url, type_url) == 0)
            return lh_wire_unpack(type, status->details[i]->value.data, status->details[i]->value.len, &test_arena);
    return NULL;
}

const char *fake_call_reason(const struct lh_rpc_call *call)
{
    Google__Rpc__ErrorInfo *info =
        find_detail(call, "type.googleapis.com/google.rpc.ErrorInfo", &google__rpc__error_info__descriptor);
    return info == NULL ? "" : info->reason;
}

const char *fake_call_field(const struct lh_rpc_call *call)
{
    Google__Rpc__BadRequest *request =
        find_detail(call, "type.googleapis.com/google.rpc.BadRequest", &google__rpc__bad_request__descriptor);
    return request == NULL ? "" : request->field_violations[0]->field;
}

void *fake_call_reply(const struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type)
{
    void *message;

    ck_assert_msg(call->sent_count > 0, "no reply, but code %d: %s", call->code, call->message);
    message = lh_wire_unpack(type, call->sent.data, call->sent.size, &test_arena);
    ck_assert_ptr_nonnull(message);
    return message;
}

const char *lh_rpc_call_metadata(const struct lh_rpc_call *call, const char *name)
{
    if (strcmp(name, "x-forwarded-for") == 0)
        return call->forwarded_for;
    return strcmp(name, "authorization") == 0 ? call->authorization : NULL;
}

const char *lh_rpc_call_metadata_alone(const struct lh_rpc_call *call, const char *name)
{
    return lh_rpc_call_metadata(call, name);
}

void lh_rpc_call_set_trace(struct lh_rpc_call *call, void *trace)
{
    call->trace = trace;
}

void *lh_rpc_call_trace(const struct lh_rpc_call *call)
{
    return call->trace;
}

int64_t lh_rpc_call_arrived_us(const struct lh_rpc_call *call)
{
    return 0;
}

enum lh_grpc_code lh_rpc_call_code(const struct lh_rpc_call *call)
{
    return (enum lh_grpc_code)call->code;
}

bool lh_rpc_call_is_private(const struct lh_rpc_call *call)
{
    return !call->is_public;
}

void lh_rpc_call_set_principal(struct lh_rpc_call *call, const char *principal)
{
    call->principal = lh_arena_strdup(&test_arena, principal);
}

void *lh_rpc_call_arg(const struct lh_rpc_call *call)
{
    return call->arg;
}

const struct lh_rpc_method *lh_rpc_call_method(const struct lh_rpc_call *call)
{
    return call->method;
}

const char *lh_rpc_call_principal(const struct lh_rpc_call *call)
{
    return call->principal != NULL ? call->principal : LH_RPC_ANONYMOUS;
}

const char *lh_rpc_call_peer(const struct lh_rpc_call *call)
{
    return "127.0.0.1:4242";
}

uint64_t lh_rpc_call_id(const struct lh_rpc_call *call)
{
    return call->id;
}

void lh_rpc_call_set_data(struct lh_rpc_call *call, void *data)
{
    call->data = data;
}

void *lh_rpc_call_data(const struct lh_rpc_call *call)
{
    return call->data;
}

enum lh_status lh_rpc_call_send(struct lh_rpc_call *call, const void *data, size_t size)
{
    if (call->is_finished)
        return LH_CANCELED;
    call->sent.size = 0;
    lh_buffer_append(&call->sent, data, size);
    call->sent_count++;
    return LH_OK;
}

void lh_rpc_call_finish(struct lh_rpc_call *call, enum lh_grpc_code code, const char *message, const void *details,
                        size_t details_size)
{
    ck_assert_msg(!call->is_finished, "finished twice");
    call->is_finished = true;
    call->code = (int)code;
    if (details_size > 0)
        ck_assert_int_eq(lh_status_grpc(call->reason), (int)code);
    snprintf(call->message, sizeof(call->message), "%s", message == NULL ? "" : message);
    lh_buffer_append(&call->details, details, details_size);
}

void lh_rpc_call_set_reason(struct lh_rpc_call *call, enum lh_status reason)
{
    call->reason = reason;
}

void lh_rpc_call_reply(struct lh_rpc_call *call, const void *data, size_t size)
{
    lh_rpc_call_send(call, data, size);
    lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
}

bool lh_rpc_call_is_over_mark(const struct lh_rpc_call *call)
{
    return call->is_over_mark;
}

size_t lh_rpc_call_unsent(const struct lh_rpc_call *call)
{
    return call->unsent;
}

void lh_rpc_call_send_headers(struct lh_rpc_call *call)
{
    call->has_headers = true;
}

void lh_rpc_call_pause(struct lh_rpc_call *call)
{
    call->is_paused = true;
}

void lh_rpc_call_resume(struct lh_rpc_call *call)
{
    call->is_paused = false;
}

void lh_rpc_call_start(struct lh_rpc_call *call)
{
    call->is_paused = false;
}

void lh_rpc_call_ask_peer(struct lh_rpc_call *call)
{
    call->is_asking = true;
}

bool lh_rpc_call_is_peer_lost(const struct lh_rpc_call *call)
{
    return call->is_peer_lost;
}

void lh_rpc_call_set_alarm(struct lh_rpc_call *call, int64_t at_us)
{
    call->alarm_us = at_us;
}

/* --- coordinator --- */

enum lh_status lh_coordinator_acquire(struct lh_coordinator *coordinator, struct lh_acquire *acquire)
{
    if (coordinator->refuse == LH_OK)
        coordinator->acquire = acquire;
    return coordinator->refuse;
}

void lh_coordinator_cancel(struct lh_coordinator *coordinator, struct lh_acquire *acquire)
{
    coordinator->canceled = acquire;
}

void lh_coordinator_send_back(struct lh_coordinator *coordinator, struct lh_acquire *acquire)
{
    coordinator->sent_back = acquire;
}

enum lh_status lh_coordinator_heartbeat(struct lh_coordinator *coordinator, struct lh_holder_request *request)
{
    if (coordinator->refuse == LH_OK)
        coordinator->heartbeat = request;
    return coordinator->refuse;
}

enum lh_status lh_coordinator_downgrade(struct lh_coordinator *coordinator, struct lh_holder_request *request)
{
    if (coordinator->refuse == LH_OK)
        coordinator->downgrade = request;
    return coordinator->refuse;
}

enum lh_status lh_coordinator_release(struct lh_coordinator *coordinator, struct lh_holder_request *request)
{
    if (coordinator->refuse == LH_OK)
        coordinator->release = request;
    return coordinator->refuse;
}

enum lh_status lh_coordinator_reap(struct lh_coordinator *coordinator, struct lh_reap_request *request)
{
    if (coordinator->refuse != LH_OK)
        return coordinator->refuse;
    coordinator->reap = request;
    coordinator->reap_principal = request->requester.principal;
    snprintf(coordinator->reap_ns, sizeof(coordinator->reap_ns), "%s",
             request->namespace_count > 0 ? request->namespaces[0] : "");
    return LH_OK;
}

void lh_coordinator_wake(struct lh_coordinator *coordinator, const char *ns, const char *key)
{
    coordinator->wake_count++;
    snprintf(coordinator->woken, sizeof(coordinator->woken), "%s", key);
}

enum lh_status lh_coordinator_watch(struct lh_coordinator *coordinator, struct lh_watcher *watcher)
{
    if (coordinator->refuse == LH_OK)
        coordinator->watcher = watcher;
    return coordinator->refuse;
}

void lh_coordinator_unwatch(struct lh_coordinator *coordinator, struct lh_watcher *watcher)
{
    coordinator->watcher = NULL;
}

void lh_coordinator_catch_up(struct lh_coordinator *coordinator, struct lh_watcher *watcher)
{
    coordinator->is_catching_up = true;
}

void lh_coordinator_stats(const struct lh_coordinator *coordinator, struct lh_coordinator_stats *stats)
{
    *stats = coordinator->stats;
}

void lh_coordinator_readiness(const struct lh_coordinator *coordinator, struct lh_readiness *readiness)
{
    *readiness = coordinator->readiness;
}

void lh_coordinator_on_rules(struct lh_coordinator *coordinator, lh_rules_cb *on_rules, void *arg)
{
    coordinator->on_rules = on_rules;
    coordinator->rules_arg = arg;
}

enum lh_status lh_coordinator_reload_rules(struct lh_coordinator *coordinator, void (*on_done)(void *arg), void *arg)
{
    return LH_DATABASE_UNAVAILABLE;
}

void lh_coordinator_need_rules(struct lh_coordinator *coordinator, bool needs_rules)
{
    coordinator->needs_rules = needs_rules;
}

void lh_coordinator_on_spread(struct lh_coordinator *coordinator, lh_spread_cb *on_spread, void *arg)
{
    coordinator->on_spread = on_spread;
    coordinator->spread_arg = arg;
}

void lh_coordinator_read_spread(struct lh_coordinator *coordinator)
{
    coordinator->spread_reads++;
}

void lh_coordinator_set_lack(struct lh_coordinator *coordinator, const char *lack)
{
    coordinator->lack = lack;
}

struct lh_store *lh_coordinator_store(struct lh_coordinator *coordinator)
{
    return coordinator->store;
}

/* --- store --- */

static enum lh_status take(struct lh_store *store, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    if (fake->refuse == LH_OK)
        fake->arg = arg;
    return fake->refuse;
}

static void note(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text == NULL ? "" : text);
}

static enum lh_status fake_get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    note(fake->ns, sizeof(fake->ns), ns);
    note(fake->key, sizeof(fake->key), key);
    fake->on_scope = on_done;
    return take(store, arg);
}

static enum lh_status fake_list(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                                void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    note(fake->ns, sizeof(fake->ns), request->ns);
    note(fake->after_ns, sizeof(fake->after_ns), request->after_ns);
    note(fake->after_key, sizeof(fake->after_key), request->after_key);
    fake->after_token = request->after_token;
    fake->page_size = request->page_size;
    fake->include_children = request->include_children;
    fake->on_list = on_done;
    return take(store, arg);
}

static bool fake_is_connected(struct lh_store *store)
{
    return !((struct fake_store *)store)->is_away;
}

static enum lh_status fake_claim_spread(struct lh_store *store, const struct lh_spread_claim *claim,
                                        lh_store_cb *on_done, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    snprintf(fake->claimed, sizeof(fake->claimed), "%s%s", claim->section, claim->settles ? "!" : "");
    fake->claim_count++;
    fake->on_claimed = on_done;
    fake->claim_arg = arg;
    return fake->is_away ? LH_DATABASE_UNAVAILABLE : LH_OK;
}

static enum lh_status fake_holders(struct lh_store *store, const char *ns, const char *key, int32_t max,
                                   lh_list_cb *on_done, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    note(fake->ns, sizeof(fake->ns), ns);
    note(fake->key, sizeof(fake->key), key);
    fake->max = max;
    fake->on_list = on_done;
    fake->arg = arg;
    return fake->refuse;
}

static enum lh_status fake_force_release(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                         int64_t token, bool all, const struct lh_requester *requester,
                                         lh_scope_cb *on_done, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    note(fake->reason, sizeof(fake->reason), reason);
    note(fake->principal, sizeof(fake->principal), requester->principal);
    note(fake->peer, sizeof(fake->peer), requester->peer);
    fake->token = token;
    fake->all = all;
    return fake_get(store, ns, key, on_done, arg);
}

static enum lh_status fake_administer(struct lh_store *store, const struct lh_admin_request *request,
                                      lh_rows_cb *on_done, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    note(fake->ns, sizeof(fake->ns), request->ns);
    if (request->verb == LH_ADMIN_SET_POLICY) {
        fake->setting_count = request->change->count;
        note(fake->setting, sizeof(fake->setting), request->change->names[0]);
        note(fake->value, sizeof(fake->value), request->change->values[0]);
        note(fake->principal, sizeof(fake->principal), request->by->principal);
    }
    fake->on_rows = on_done;
    return take(store, arg);
}

static enum lh_status fake_list_rows(struct lh_store *store, const struct lh_list_page *page, lh_rows_cb *on_done,
                                     void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    note(fake->after_ns, sizeof(fake->after_ns), page->after[0]);
    fake->page_size = page->page_size;
    fake->on_rows = on_done;
    return take(store, arg);
}

static enum lh_status fake_audit(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg)
{
    struct fake_store *fake = (struct fake_store *)store;
    fake->audit_count++;
    fake->audit_sum += row->count;
    fake->audit = *row;
    return LH_OK;
}

static int64_t fake_timeline(struct lh_store *store)
{
    return 3;
}

static int32_t fake_schema_version(struct lh_store *store)
{
    return 12;
}

static void fake_server(struct lh_store *store, struct lh_server_facts *facts)
{
    *facts = ((struct fake_store *)store)->server;
}

void fake_store_init(struct fake_store *store)
{
    static const struct lh_store_ops ops = {
        .get = fake_get,
        .list = fake_list,
        .claim_spread = fake_claim_spread,
        .holders = fake_holders,
        .is_connected = fake_is_connected,
        .force_release = fake_force_release,
        .administer = fake_administer,
        .list_rows = fake_list_rows,
        .audit = fake_audit,
        .timeline = fake_timeline,
        .schema_version = fake_schema_version,
        .server = fake_server,
    };
    memset(store, 0, sizeof(*store));
    store->base.ops = &ops;
    lh_uuid_parse(LEASE_KEY, &store->base.coordinator);
    store->server.server = "db1:5432";
}
