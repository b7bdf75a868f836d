/* Who may do what, as the methods ask: every method, and open calls when rules change. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "loop/loop.h"
#include "service/service.h"
#include "test_service_access.h"

char access_log[8192];

static void keep_log(void *arg, enum lh_log_level level, const char *line)
{
    size_t used = strlen(access_log);
    snprintf(access_log + used, sizeof(access_log) - used, "%s\n", line);
}

void access_load_all(const struct lh_access_rule *rules, size_t count, const struct lh_access_token *token)
{
    struct lh_access_answer answer = {rules, count, token, token != NULL};
    coordinator.on_rules(coordinator.rules_arg, &answer);
}

void access_load(const char *ns, unsigned rights)
{
    struct lh_access_rule rule = {WORKER, ns, rights};
    access_load_all(&rule, 1, NULL);
}

void access_setup(void)
{
    methods_setup();
    access_log[0] = '\0';
    lh_log_set_sink(keep_log, NULL);
    lh_service_set_access(service, true, NULL, 0);
}

void access_teardown(void)
{
    methods_teardown();
    lh_log_set_sink(NULL, NULL);
}

void access_check_denied(struct lh_rpc_call *call, const char *right, const char *ns)
{
    Google__Rpc__Status *status = google__rpc__status__unpack(NULL, call->details.size, call->details.data);
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
    unsigned seen = 0;

    ck_assert_int_eq(call->code, LH_GRPC_PERMISSION_DENIED);
    ck_assert_str_eq(info->reason, "ACCESS_DENIED");
    for (size_t i = 0; i < info->n_metadata; i++) {
        const char *name = info->metadata[i]->key, *value = info->metadata[i]->value;
        seen += strcmp(name, "principal") == 0 && strcmp(value, lh_rpc_call_principal(call)) == 0;
        seen += strcmp(name, "right") == 0 && strcmp(value, right) == 0;
        seen += strcmp(name, "namespace") == 0 && strcmp(value, ns) == 0;
    }
    ck_assert_uint_eq(seen, *ns == '\0' ? 2 : 3);
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
}

/* --- one request of each method, about the namespace payments --- */

ProtobufCMessage *access_acquire_request(void)
{
    return &new_acquire_request()->base;
}

ProtobufCMessage *access_get_request(void)
{
    Leasehold__V1__GetLeaseRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__get_lease_request__init(request);
    request->scope = new_scope("payments", "invoice-42");
    return &request->base;
}

static ProtobufCMessage *list_request(void)
{
    Leasehold__V1__ListLeasesRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__list_leases_request__init(request);
    request->n_namespace_ = 1;
    request->namespace_ = new_scope("payments", "x")->namespace_;
    request->include_children = true;
    return &request->base;
}

static ProtobufCMessage *watch_request(void)
{
    Leasehold__V1__WatchLeasesRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__watch_leases_request__init(request);
    request->n_namespace_ = 1;
    request->namespace_ = new_scope("payments", "x")->namespace_;
    request->include_initial = true;
    request->include_children = true;
    return &request->base;
}

static Leasehold__V1__Namespace *payments(void)
{
    Leasehold__V1__Namespace *ns = lh_arena_alloc(&test_arena, sizeof(*ns));
    leasehold__v1__namespace__init(ns);
    ns->n_segments = 1;
    ns->segments = new_scope("payments", "x")->namespace_;
    return ns;
}

static ProtobufCMessage *reap_request(void)
{
    Leasehold__V1__ReapRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__reap_request__init(request);
    request->n_namespaces = 1;
    request->namespaces = lh_arena_alloc(&test_arena, sizeof(*request->namespaces));
    request->namespaces[0] = payments();
    return &request->base;
}

static ProtobufCMessage *force_request(void)
{
    Leasehold__V1__ForceReleaseRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__force_release_request__init(request);
    request->scope = new_scope("payments", "invoice-42");
    request->reason = (char *)"because";
    return &request->base;
}

static ProtobufCMessage *set_policy_request(void)
{
    Leasehold__V1__SetPolicyRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    Google__Protobuf__FieldMask *mask = lh_arena_alloc(&test_arena, sizeof(*mask));

    leasehold__v1__set_policy_request__init(request);
    request->policy = lh_arena_alloc(&test_arena, sizeof(*request->policy));
    leasehold__v1__policy__init(request->policy);
    request->policy->namespace_ = payments();
    google__protobuf__field_mask__init(mask);
    mask->n_paths = 1;
    mask->paths = lh_arena_alloc(&test_arena, sizeof(char *));
    mask->paths[0] = (char *)"grace";
    request->update_mask = mask;
    return &request->base;
}

static ProtobufCMessage *get_policy_request(void)
{
    Leasehold__V1__GetPolicyRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__get_policy_request__init(request);
    request->namespace_ = payments();
    return &request->base;
}

static ProtobufCMessage *hold_request(void)
{
    Leasehold__V1__HoldRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__hold_request__init(request);
    request->request_case = LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ACQUIRE;
    request->acquire = new_acquire_request();
    return &request->base;
}

static ProtobufCMessage *all_request(void)
{
    Leasehold__V1__AcquireAllRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));
    leasehold__v1__acquire_all_request__init(request);
    request->n_items = 2;
    request->items = lh_arena_alloc(&test_arena, 2 * sizeof(request->items[0]));
    for (int i = 0; i < 2; i++) {
        request->items[i] = lh_arena_alloc(&test_arena, sizeof(*request->items[i]));
        leasehold__v1__acquire_item__init(request->items[i]);
        request->items[i]->scope = new_scope("payments", i == 0 ? "a" : "b");
    }
    request->duration = new_acquire_request()->duration;
    return &request->base;
}

static const struct {
    const char *path;
    enum lh_right right;
    ProtobufCMessage *(*request)(void);
} asked[] = {
    {LEASES "Acquire", LH_RIGHT_LEASE, access_acquire_request},
    {LEASES "AcquireAll", LH_RIGHT_LEASE, all_request},
    {LEASES "AcquireStream", LH_RIGHT_LEASE, access_acquire_request},
    {LEASES "Hold", LH_RIGHT_LEASE, hold_request},
    {LEASES "GetLease", LH_RIGHT_READ, access_get_request},
    {LEASES "ListLeases", LH_RIGHT_READ, list_request},
    {LEASES "WatchLeases", LH_RIGHT_READ, watch_request},
    {ADMIN "Reap", LH_RIGHT_ADMIN, reap_request},
    {ADMIN "ForceRelease", LH_RIGHT_ADMIN, force_request},
    {ADMIN "SetPolicy", LH_RIGHT_ADMIN, set_policy_request},
    {ADMIN "GetPolicy", LH_RIGHT_READ, get_policy_request},
};

/* Nothing was asked of store or coordinator. */
static bool is_untouched(void)
{
    return store.arg == NULL && coordinator.acquire == NULL && coordinator.watcher == NULL && coordinator.reap == NULL;
}

START_TEST(method_is_denied_without_its_right)
{
    unsigned others = (LH_RIGHT_READ | LH_RIGHT_LEASE | LH_RIGHT_GUARD) & ~asked[_i].right;
    struct lh_rpc_call *call;

    access_load("payments", others);
    call = fake_call_by(service, asked[_i].path, WORKER, NULL);
    fake_call_message(call, asked[_i].request());
    access_check_denied(call, lh_right_name(asked[_i].right), "payments");
    ck_assert(is_untouched());
    fake_call_end(call, LH_RPC_END_FINISHED);

    access_load("paymentsx", LH_RIGHT_ADMIN); /* another namespace */
    call = fake_call_by(service, asked[_i].path, WORKER, NULL);
    fake_call_message(call, asked[_i].request());
    access_check_denied(call, lh_right_name(asked[_i].right), "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);

    access_load("payments", LH_RIGHT_ADMIN | LH_RIGHT_LEASE | LH_RIGHT_READ);
    call = fake_call_by(service, asked[_i].path, "anonymous", NULL);
    fake_call_message(call, asked[_i].request());
    access_check_denied(call, lh_right_name(asked[_i].right), "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert(is_untouched());
}
END_TEST

START_TEST(nothing_is_done_before_the_rules_are_there)
{
    const char *admins[] = {"*"};
    struct lh_rpc_call *call;

    lh_service_set_access(service, true, admins, 1);
    ck_assert(coordinator.needs_rules);
    call = fake_call_by(service, asked[_i].path, WORKER, NULL);
    if (!call->is_finished)
        fake_call_message(call, asked[_i].request());
    ck_assert_str_eq(fake_call_reason(call), "DATABASE_UNAVAILABLE");
    ck_assert(is_untouched());
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(rules_and_tokens_are_for_admins_of_the_root)
{
    static Leasehold__V1__Right rights[] = {LEASEHOLD__V1__RIGHT__RIGHT_READ};
    Leasehold__V1__GrantAccessRequest grant = LEASEHOLD__V1__GRANT_ACCESS_REQUEST__INIT;
    Leasehold__V1__RevokeAccessRequest revoke = LEASEHOLD__V1__REVOKE_ACCESS_REQUEST__INIT;
    Leasehold__V1__ListAccessRequest list = LEASEHOLD__V1__LIST_ACCESS_REQUEST__INIT;
    Leasehold__V1__CreateTokenRequest create = LEASEHOLD__V1__CREATE_TOKEN_REQUEST__INIT;
    Leasehold__V1__RevokeTokenRequest end = LEASEHOLD__V1__REVOKE_TOKEN_REQUEST__INIT;
    Leasehold__V1__ListTokensRequest tokens = LEASEHOLD__V1__LIST_TOKENS_REQUEST__INIT;
    const struct {
        const char *path;
        const ProtobufCMessage *request;
    } admin[] = {{ADMIN "GrantAccess", &grant.base}, {ADMIN "RevokeAccess", &revoke.base},
                 {ADMIN "ListAccess", &list.base},   {ADMIN "CreateToken", &create.base},
                 {ADMIN "RevokeToken", &end.base},   {ADMIN "ListTokens", &tokens.base}};
    struct lh_access_rule rules[] = {{WORKER, "payments", LH_RIGHT_ADMIN},
                                     {WORKER, "", LH_RIGHT_READ | LH_RIGHT_LEASE}};

    grant.principal = revoke.principal = create.name = end.name_or_id = (char *)"x";
    grant.namespace_ = revoke.namespace_ = payments();
    grant.n_rights = 1;
    grant.rights = rights;
    access_load_all(rules, 2, NULL);
    for (size_t i = 0; i < sizeof(admin) / sizeof(admin[0]); i++) {
        struct lh_rpc_call *call = fake_call_by(service, admin[i].path, WORKER, NULL);
        fake_call_message(call, admin[i].request);
        access_check_denied(call, "admin", "");
        fake_call_end(call, LH_RPC_END_FINISHED);
    }
}
END_TEST

START_TEST(status_and_health_need_no_right)
{
    static const char *const paths[] = {ADMIN "GetStatus", "/grpc.health.v1.Health/Check"};

    access_load("x", LH_RIGHT_READ);
    for (size_t i = 0; i < 2; i++) {
        struct lh_rpc_call *call = fake_call_by(service, paths[i], NULL, NULL);
        fake_call_bytes(call, "", 0);
        ck_assert_int_eq(call->code, LH_GRPC_OK);
        fake_call_end(call, LH_RPC_END_FINISHED);
    }
}
END_TEST

/* With it a role of the database would hear which leases are handed over. */
static void check_status_names_coordinator(bool does)
{
    struct lh_rpc_call *call = fake_call_by(service, ADMIN "GetStatus", WORKER, NULL);
    Leasehold__V1__GetStatusResponse *response;

    fake_call_bytes(call, "", 0);
    response = fake_call_reply(call, &leasehold__v1__get_status_response__descriptor);
    ck_assert_int_eq(response->coordinator_id[0] != '\0', does);
    fake_call_end(call, LH_RPC_END_FINISHED);
}

START_TEST(status_names_the_coordinator_to_administrators_alone)
{
    access_load("", LH_RIGHT_READ | LH_RIGHT_LEASE);
    check_status_names_coordinator(false);
    access_load("payments", LH_RIGHT_ADMIN);
    check_status_names_coordinator(false);
    access_load("", LH_RIGHT_ADMIN);
    check_status_names_coordinator(true);
}
END_TEST

/* --- batches --- */

static Leasehold__V1__HeartbeatRequest *heartbeats(void)
{
    Leasehold__V1__HeartbeatRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));

    leasehold__v1__heartbeat_request__init(request);
    request->n_leases = 3;
    request->leases = lh_arena_alloc(&test_arena, 3 * sizeof(*request->leases));
    for (size_t i = 0; i < 3; i++)
        request->leases[i] = new_lease_ref("a", LEASE_KEY);
    request->leases[1]->scope = new_scope("foreign", "a");
    request->leases[2]->scope = new_scope("", "a");
    return request;
}

static void answer_heartbeats(void)
{
    struct lh_holder_request *request = coordinator.heartbeat;

    ck_assert_uint_eq(request->count, 3);
    for (size_t i = 0; i < 3; i++)
        if (!request->items[i].skip)
            request->items[i].item.outcome = LH_OUTCOME_OK;
    request->on_done(request);
}

START_TEST(item_of_a_batch_is_denied_by_itself)
{
    Leasehold__V1__HeartbeatResponse *response;
    struct lh_rpc_call *call;

    access_load("payments", LH_RIGHT_LEASE);
    call = fake_call_by(service, LEASES "Heartbeat", WORKER, NULL);
    fake_call_message(call, &heartbeats()->base);
    ck_assert(coordinator.heartbeat->items[1].skip && !coordinator.heartbeat->items[0].skip);
    answer_heartbeats();
    response = fake_call_reply(call, &leasehold__v1__heartbeat_response__descriptor);
    ck_assert_int_eq(response->results[0]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_OK);
    ck_assert_int_eq(response->results[1]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_DENIED);
    ck_assert_str_eq(response->results[1]->message, WORKER " does not have the right lease in namespace foreign");
    ck_assert_str_eq(response->results[1]->lease_key, LEASE_KEY);
    ck_assert_int_eq(response->results[2]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(release_of_a_foreign_lease_is_denied)
{
    Leasehold__V1__ReleaseRequest request;
    Leasehold__V1__ReleaseItem item, *items = &item;
    Leasehold__V1__ReleaseResponse *response;
    struct lh_rpc_call *call;

    access_load("other", LH_RIGHT_LEASE);
    leasehold__v1__release_request__init(&request);
    leasehold__v1__release_item__init(&item);
    item.lease = new_lease_ref("a", LEASE_KEY);
    request.n_items = 1;
    request.items = &items;
    call = fake_call_by(service, LEASES "Release", WORKER, NULL);
    fake_call_message(call, &request.base);
    ck_assert(coordinator.release->items[0].skip);
    coordinator.release->on_done(coordinator.release);
    response = fake_call_reply(call, &leasehold__v1__release_response__descriptor);
    ck_assert_int_eq(response->results[0]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_DENIED);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(keep_alive_obeys_with_its_next_batch)
{
    struct lh_rpc_call *call;
    Leasehold__V1__HeartbeatResponse *response;

    access_load("payments", LH_RIGHT_LEASE);
    call = fake_call_by(service, LEASES "KeepAlive", WORKER, NULL);
    fake_call_message(call, &heartbeats()->base);
    answer_heartbeats();
    response = fake_call_reply(call, &leasehold__v1__heartbeat_response__descriptor);
    ck_assert_int_eq(response->results[0]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_OK);
    access_load("foreign", LH_RIGHT_LEASE);
    fake_call_message(call, &heartbeats()->base);
    answer_heartbeats();
    response = fake_call_reply(call, &leasehold__v1__heartbeat_response__descriptor);
    ck_assert_int_eq(response->results[0]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_DENIED);
    ck_assert_int_eq(response->results[1]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_OK);
    ck_assert(!call->is_finished);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

/* --- what is open when a right ends --- */

void access_finish_canceled(struct lh_acquire *acquire)
{
    struct lh_acquire_result result = {.status = LH_CANCELED};
    ck_assert_ptr_eq(coordinator.canceled, acquire);
    acquire->on_done(acquire, &result);
}

START_TEST(waiter_is_answered_when_its_right_ends)
{
    static const char *const paths[] = {LEASES "Acquire", LEASES "AcquireStream", LEASES "Hold"};
    struct lh_rpc_call *call;

    access_load("payments", LH_RIGHT_LEASE);
    call = fake_call_by(service, paths[_i], WORKER, NULL);
    fake_call_message(call, _i == 2 ? hold_request() : access_acquire_request());
    access_load("payments", LH_RIGHT_LEASE | LH_RIGHT_READ); /* changes nothing for it */
    ck_assert(!call->is_finished);
    ck_assert_ptr_null(coordinator.canceled);
    access_load("payments", LH_RIGHT_READ);
    access_check_denied(call, "lease", "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);
    access_finish_canceled(coordinator.acquire);
}
END_TEST

START_TEST(many_waiters_are_looked_at_in_turns)
{
    enum { COUNT = 100 };
    struct lh_loop *loop = lh_loop_create();
    struct lh_service_options options;
    struct lh_acquire_result canceled = {.status = LH_CANCELED};
    struct lh_acquire *acquires[COUNT];
    struct lh_rpc_call *calls[COUNT];

    lh_service_destroy(service);
    lh_service_options_init(&options);
    options.loop = loop;
    service = lh_service_create(&coordinator, &options);
    lh_service_set_access(service, true, NULL, 0);
    access_load("payments", LH_RIGHT_LEASE);
    for (int i = 0; i < COUNT; i++) {
        calls[i] = fake_call_by(service, LEASES "Acquire", WORKER, NULL);
        fake_call_message(calls[i], access_acquire_request());
        acquires[i] = coordinator.acquire;
    }
    access_load("payments", LH_RIGHT_READ);
    for (int i = 0; i < COUNT; i++)
        ck_assert(!calls[i]->is_finished);
    for (int turn = 0; turn < 1000 && !calls[COUNT - 1]->is_finished; turn++)
        lh_loop_run_once(loop, LH_US_PER_MS);
    for (int i = 0; i < COUNT; i++) {
        access_check_denied(calls[i], "lease", "payments");
        fake_call_end(calls[i], LH_RPC_END_FINISHED);
        acquires[i]->on_done(acquires[i], &canceled);
    }
    fake_client_gone(service);
    lh_service_destroy(service);
    lh_loop_destroy(loop);
    methods_setup();
}
END_TEST

START_TEST(hold_ends_and_leaves_its_lease_when_its_right_ends)
{
    struct lh_held_lease lease = new_lease("invoice-42");
    struct lh_acquire_result granted = {.status = LH_OK, .lease = &lease};
    struct lh_rpc_call *call;

    access_load("payments", LH_RIGHT_LEASE);
    call = fake_call_by(service, LEASES "Hold", WORKER, NULL);
    fake_call_message(call, hold_request());
    coordinator.acquire->on_done(coordinator.acquire, &granted);
    access_load("", LH_RIGHT_READ);
    access_check_denied(call, "lease", "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(watch_tells_what_may_be_read_and_goes_on)
{
    struct lh_held_lease held[] = {new_lease("a"), new_lease("b")}, seen, hidden;
    struct lh_lease_event of_seen = {.type = LH_EVENT_ACQUIRED}, of_hidden = {.type = LH_EVENT_ACQUIRED};
    struct lh_list_answer page = {.leases = held, .lease_count = 2, .has_more = true};
    struct lh_rpc_call *call;
    unsigned before;

    held[0].ns = "payments.eu";
    held[1].ns = "payments.us";
    seen = held[0];
    hidden = held[1];
    of_seen.lease = seen;
    of_hidden.lease = hidden;
    access_load("payments.eu", LH_RIGHT_READ);
    call = fake_call_by(service, LEASES "WatchLeases", WORKER, NULL);
    fake_call_message(call, watch_request());
    coordinator.watcher->on_active(coordinator.watcher);
    ck_assert_str_eq(store.ns, "payments");
    ck_assert_str_eq(store.after_ns, "payments.eu"); /* what comes before may not be read */
    store.on_list(store.arg, LH_OK, NULL, &page);    /* nor may anything from "payments.us" on */
    ck_assert_uint_eq(call->sent_count, 2);          /* INITIAL, SYNCED */

    before = call->sent_count;
    of_seen.lease.token = of_hidden.lease.token = 50;
    coordinator.watcher->on_event(coordinator.watcher, &of_hidden);
    ck_assert_uint_eq(call->sent_count, before);
    coordinator.watcher->on_event(coordinator.watcher, &of_seen);
    ck_assert_uint_eq(call->sent_count, before + 1);
    access_load("payments.us", LH_RIGHT_READ);
    of_seen.lease.token = of_hidden.lease.token = 51;
    coordinator.watcher->on_event(coordinator.watcher, &of_seen);
    ck_assert_uint_eq(call->sent_count, before + 1);
    coordinator.watcher->on_event(coordinator.watcher, &of_hidden);
    ck_assert_uint_eq(call->sent_count, before + 2);
    access_load("x", LH_RIGHT_READ);
    ck_assert(!call->is_finished);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

static void add_tests(TCase *tcase)
{
    int methods = (int)(sizeof(asked) / sizeof(asked[0]));

    tcase_add_loop_test(tcase, method_is_denied_without_its_right, 0, methods);
    tcase_add_loop_test(tcase, nothing_is_done_before_the_rules_are_there, 0, methods);
    tcase_add_test(tcase, rules_and_tokens_are_for_admins_of_the_root);
    tcase_add_test(tcase, status_and_health_need_no_right);
    tcase_add_test(tcase, status_names_the_coordinator_to_administrators_alone);
    tcase_add_test(tcase, item_of_a_batch_is_denied_by_itself);
    tcase_add_test(tcase, release_of_a_foreign_lease_is_denied);
    tcase_add_test(tcase, keep_alive_obeys_with_its_next_batch);
    tcase_add_loop_test(tcase, waiter_is_answered_when_its_right_ends, 0, 3);
    tcase_add_test(tcase, many_waiters_are_looked_at_in_turns);
    tcase_add_test(tcase, hold_ends_and_leaves_its_lease_when_its_right_ends);
    tcase_add_test(tcase, watch_tells_what_may_be_read_and_goes_on);
}

Suite *access_suite(void)
{
    Suite *suite = suite_create("service: access");
    TCase *tcase = tcase_create("access");

    tcase_add_checked_fixture(tcase, access_setup, access_teardown);
    add_tests(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
