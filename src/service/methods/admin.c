/* AdminService: Reap, ForceRelease, GetStatus. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "lease/readiness.h"
#include "lease/reaping.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

/* What a hook said, within a reply that may have thousands of them. */
#define REAP_ERROR_MAX_BYTES 1024

/* --- Reap --- */

static Leasehold__V1__ReapFailure *new_failure(const struct lh_reaped *reaped, struct lh_arena *arena)
{
    Leasehold__V1__ReapFailure *failure = lh_message_new(&leasehold__v1__reap_failure__descriptor, arena);

    failure->lease = lh_message_lease(&reaped->lease, LH_LEASE_PUBLIC, arena);
    if (reaped->error != NULL) {
        failure->error = lh_arena_strdup(arena, reaped->error);
        failure->error[lh_utf8_cut(failure->error, strlen(failure->error), REAP_ERROR_MAX_BYTES)] = '\0';
    }
    failure->reap_failures = reaped->reap_failures;
    if (reaped->next_try_at_us != INT64_MAX)
        failure->next_try_at = lh_message_timestamp(reaped->next_try_at_us, arena);
    return failure;
}

/* It goes through the databases that have some of the namespaces, one after the other. */
struct reap {
    struct lh_reap_request request;
    struct lh_store_call *store_call;
    struct lh_arena arena; /* until the answer */
    struct lh_reap_arguments arguments;
    size_t next; /* database */
    int32_t reaped;
    int32_t left; /* of the most that it may end */
    bool has_more;
    size_t bytes;
    size_t failure_count;
    Leasehold__V1__ReapFailure **failures;
};

static void destroy_reap(struct reap *reap)
{
    lh_arena_finish(&reap->arena);
    free(reap);
}

static void reply_reaped(struct reap *reap)
{
    Leasehold__V1__ReapResponse response = LEASEHOLD__V1__REAP_RESPONSE__INIT;

    response.reaped = reap->reaped;
    response.n_failures = reap->failure_count;
    response.failures = reap->failures;
    response.more = reap->has_more;
    lh_call_reply(reap->store_call->call, &response.base, &reap->arena);
}

static void take_reaped(struct reap *reap, const struct lh_reap_answer *answer)
{
    Leasehold__V1__ReapFailure **failures =
        lh_arena_alloc(&reap->arena, (reap->failure_count + answer->lease_count + 1) * sizeof(*failures));

    if (reap->failure_count > 0)
        memcpy(failures, reap->failures, reap->failure_count * sizeof(*failures));
    reap->failures = failures;
    for (size_t i = 0; i < answer->lease_count; i++) {
        if (!answer->leases[i].is_failure) {
            reap->reaped++;
        } else if (reap->bytes < LH_REPLY_MAX_BYTES) {
            Leasehold__V1__ReapFailure *failure = new_failure(&answer->leases[i], &reap->arena);
            reap->bytes += protobuf_c_message_get_packed_size(&failure->base);
            failures[reap->failure_count++] = failure;
        }
    }
    reap->left -= (int32_t)answer->lease_count;
    reap->has_more = answer->has_more;
}

/* Of what was asked for, what the next database has. False: no other has anything. */
static bool turn_to_next(struct reap *reap)
{
    const struct lh_places *places = reap->store_call->service->places;
    const struct lh_reap_arguments *all = &reap->arguments;
    const char **namespaces = lh_arena_alloc(&reap->arena, (all->namespace_count + 1) * sizeof(*namespaces));

    while (reap->next < places->count) {
        const struct lh_place *place = &places->list[reap->next++];
        size_t count = 0;
        for (size_t i = 0; i < all->namespace_count; i++)
            if (lh_places_has(places, place, all->namespaces[i], all->include_children))
                namespaces[count++] = all->namespaces[i];
        reap->request.namespaces = count > 0 ? namespaces : NULL;
        reap->request.namespace_count = count;
        reap->request.max = reap->left;
        if (count > 0 || (all->namespace_count == 0 && lh_places_is_live(place)))
            return true;
    }
    return false;
}

static enum lh_status ask_to_reap(struct reap *reap)
{
    const struct lh_places *places = reap->store_call->service->places;

    return lh_coordinator_reap(places->list[reap->next - 1].coordinator, &reap->request);
}

static void on_reap(struct lh_reap_request *request, enum lh_status status, const struct lh_error *error,
                    const struct lh_reap_answer *answer)
{
    struct reap *reap = LH_CONTAINER(struct reap, request, request);
    struct lh_store_call *store_call = reap->store_call;

    if (status == LH_OK)
        take_reaped(reap, answer);
    if (status == LH_OK && store_call->call != NULL && reap->left > 0 && turn_to_next(reap)) {
        reap->request.requester = lh_call_requester(store_call->call);
        status = ask_to_reap(reap);
        if (status == LH_OK)
            return;
        error = NULL;
    }
    if (lh_store_call_is_answered(store_call, status, error)) {
        reap->has_more |= reap->left <= 0 && turn_to_next(reap);
        reply_reaped(reap);
    }
    lh_store_call_destroy(store_call);
    destroy_reap(reap);
}

static void begin_reap(struct lh_rpc_call *call, const struct lh_reap_arguments *arguments)
{
    struct lh_store_call *store_call = lh_store_call_create(call, NULL, NULL);
    struct reap *reap;
    enum lh_status status;

    if (store_call == NULL)
        return;
    reap = lh_alloc_zero(1, sizeof(*reap));
    reap->store_call = store_call;
    reap->left = arguments->max;
    reap->arguments = *arguments;
    reap->arguments.namespaces = lh_arena_strdup_all(&reap->arena, arguments->namespaces, arguments->namespace_count);
    reap->request = (struct lh_reap_request){
        .include_children = arguments->include_children,
        .key = lh_arena_strdup(&reap->arena, arguments->key),
        .kind = arguments->is_by_name ? LH_REAP_BY_NAME : LH_REAP_DUE,
        .requester = lh_call_requester(call),
        .on_done = on_reap,
    };
    status = turn_to_next(reap) ? ask_to_reap(reap) : LH_INVALID_ARGUMENT;
    if (status != LH_OK)
        destroy_reap(reap);
    lh_store_call_check(store_call, status);
}

/* Of what was asked for, what the caller may reap. */
static void keep_reapable(const struct lh_access_caller *who, struct lh_arena *arena, struct lh_reap_arguments *reap)
{
    static const char *everything[] = {""};
    const char **asked = reap->namespace_count > 0 ? reap->namespaces : everything;
    size_t asked_count = reap->namespace_count > 0 ? reap->namespace_count : 1, count = 0;
    bool with_children = reap->include_children || reap->namespace_count == 0;

    for (size_t i = 0; i < asked_count; i++)
        count += with_children ? lh_access_tops(who, LH_RIGHT_ADMIN, asked[i], NULL) : 1;
    reap->namespaces = lh_arena_alloc(arena, (count + 1) * sizeof(*reap->namespaces));
    reap->namespace_count = 0;
    for (size_t i = 0; i < asked_count; i++) {
        if (with_children)
            reap->namespace_count +=
                lh_access_tops(who, LH_RIGHT_ADMIN, asked[i], reap->namespaces + reap->namespace_count);
        else if (lh_access_may(who, LH_RIGHT_ADMIN, asked[i]))
            reap->namespaces[reap->namespace_count++] = asked[i];
    }
    reap->include_children = with_children;
}

/* False: the call was answered. */
static bool permit_reap(struct lh_rpc_call *call, struct lh_arena *arena, struct lh_reap_arguments *reap)
{
    const char *first = reap->namespace_count > 0 ? reap->namespaces[0] : "";
    struct lh_access_caller who;

    if (!lh_permit_enter(call, &who))
        return false;
    if (reap->namespace_count > 0 || !lh_access_may(&who, LH_RIGHT_ADMIN, "")) {
        keep_reapable(&who, arena, reap);
        if (reap->namespace_count == 0) {
            lh_permit_refuse(call, &who, LH_RIGHT_ADMIN, first);
            lh_access_leave(&who);
            return false;
        }
    }
    lh_access_leave(&who);
    return true;
}

void lh_reap_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_reap_arguments reap;

    if (lh_asked_check(asked, lh_validate_reap(&asked->v, request, &reap)) &&
        permit_reap(asked->call, asked->v.arena, &reap))
        begin_reap(asked->call, &reap);
}

/* --- ForceRelease --- */

#define FORCED_MAX 1000 /* in the reply */

/* The answer to several holders. */
static void refuse_force(const struct lh_store_call *store_call)
{
    struct lh_violations violations = {0};

    lh_violations_add(&violations, "token", "must name one of the holders, or all must be set: several hold the scope");
    lh_call_refuse(store_call->call, &violations);
}

static void reply_forced(const struct lh_store_call *store_call, const struct lh_scope_answer *answer)
{
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__ForceReleaseResponse response = LEASEHOLD__V1__FORCE_RELEASE_RESPONSE__INIT;
    size_t bytes = 0;

    response.leases = lh_arena_alloc(arena, (answer->listed + 1) * sizeof(*response.leases));
    for (size_t i = 0; i < answer->listed && i < FORCED_MAX && bytes < LH_REPLY_MAX_BYTES; i++) {
        response.leases[i] = lh_message_lease(&answer->holders[i], LH_LEASE_PUBLIC, arena);
        bytes += protobuf_c_message_get_packed_size(&response.leases[i]->base);
        response.n_leases++;
    }
    if (response.n_leases > 0)
        response.lease = response.leases[0];
    lh_store_call_reply(store_call, &response.base);
}

static void on_forced(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_scope_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (status == LH_OK) {
        for (size_t i = 0; i < answer->listed; i++)
            lh_info("lease released by an administrator scope=%s token=%lld",
                    LH_SCOPE_NAME(store_call->ns, store_call->key), (long long)answer->holders[i].token);
        if (!answer->is_held)
            lh_info("rest ended by an administrator scope=%s", LH_SCOPE_NAME(store_call->ns, store_call->key));
        lh_coordinator_wake(lh_places_coordinator(store_call->service->places, store_call->ns, store_call->key),
                            store_call->ns, store_call->key);
    }
    if (store_call->call != NULL && status == LH_NOT_HELD) {
        lh_store_call_fail_not_held(store_call);
    } else if (store_call->call != NULL && status == LH_INVALID_ARGUMENT) {
        refuse_force(store_call);
    } else if (lh_store_call_is_answered(store_call, status, error)) {
        reply_forced(store_call, answer);
    }
    lh_store_call_destroy(store_call);
}

void lh_force_release_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__ForceReleaseRequest *request = message;
    struct lh_store *store = asked->service->store;
    struct lh_store_call *store_call = NULL;
    const char *ns, *key;
    bool is_valid = lh_validate_scope(&asked->v, request->scope, "scope", &ns, &key);

    is_valid &= lh_validate_force(&asked->v, request);
    if (lh_asked_check(asked, is_valid) && lh_permit(asked->call, LH_RIGHT_ADMIN, ns))
        store_call = lh_store_call_create(asked->call, ns, key);
    if (store_call != NULL) {
        struct lh_requester requester = lh_call_requester(asked->call);
        store_call->token = request->token;
        lh_store_call_check(store_call, store->ops->force_release(store, store_call->ns, store_call->key,
                                                                  request->reason, request->token, request->all != 0,
                                                                  &requester, on_forced, store_call));
    }
}

/* --- GetStatus --- */

static const char *trouble_of(const struct lh_readiness *readiness)
{
    if (readiness->is_ready)
        return "";
    return readiness->cause[0] != '\0' ? readiness->cause : "the database is unavailable";
}

static Leasehold__V1__DatabaseStatus *new_database(const struct lh_place *place, bool is_admin, struct lh_arena *arena)
{
    Leasehold__V1__DatabaseStatus *database = lh_message_new(&leasehold__v1__database_status__descriptor, arena);
    struct lh_store *store = place->store;
    struct lh_server_facts server = {0};
    struct lh_coordinator_stats stats;
    struct lh_readiness readiness;

    lh_coordinator_stats(place->coordinator, &stats);
    lh_coordinator_readiness(place->coordinator, &readiness);
    database->name = (char *)(uintptr_t)place->name;
    database->is_default = place->is_default;
    database->namespaces =
        lh_arena_alloc(arena, (place->namespace_count + place->spread_count + 1) * sizeof(*database->namespaces));
    for (size_t i = 0; i < place->namespace_count; i++)
        database->namespaces[database->n_namespaces++] = lh_message_namespace(place->namespaces[i], arena);
    for (size_t i = 0; i < place->spread_count; i++)
        database->namespaces[database->n_namespaces++] = lh_message_namespace(place->spread[i], arena);
    database->schema_version = store->ops->schema_version(store);
    if (is_admin) {
        database->coordinator_id = lh_arena_alloc(arena, LH_UUID_TEXT_BYTES);
        lh_uuid_format(&store->coordinator, database->coordinator_id);
    }
    database->timeline = store->ops->timeline(store);
    database->waiters = (int64_t)stats.waiters;
    database->trouble = lh_arena_strdup(arena, trouble_of(&readiness));
    store->ops->server(store, &server);
    if (server.server != NULL)
        database->server = (char *)(uintptr_t)server.server;
    if (server.common_path != NULL)
        database->common_path = (char *)(uintptr_t)server.common_path;
    return database;
}

/* Of several; one is told in the response itself. */
static void add_databases(Leasehold__V1__GetStatusResponse *response, const struct lh_service *service, bool is_admin,
                          struct lh_arena *arena)
{
    size_t count = service->places->count;

    if (count == 1)
        return;
    response->databases = lh_arena_alloc(arena, count * sizeof(*response->databases));
    for (const struct lh_place *place = NULL; (place = lh_places_next(service->places, place)) != NULL;)
        response->databases[response->n_databases++] = new_database(place, is_admin, arena);
}

static void add_spread(Leasehold__V1__GetStatusResponse *response, const struct lh_service *service,
                       struct lh_arena *arena)
{
    struct lh_service_slots slots;
    size_t count = 0;

    while (lh_places_slots(service->places, count, &slots))
        count++;
    response->spread = lh_arena_alloc(arena, (count + 1) * sizeof(*response->spread));
    while (lh_places_slots(service->places, response->n_spread, &slots)) {
        Leasehold__V1__SpreadStatus *status = lh_message_new(&leasehold__v1__spread_status__descriptor, arena);
        status->namespace_ = lh_message_namespace(slots.ns, arena);
        status->database = (char *)(uintptr_t)slots.database;
        status->slots = (int32_t)slots.count;
        response->spread[response->n_spread++] = status;
    }
}

void lh_get_status_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_rpc_call *call = asked->call;
    struct lh_service *service = asked->service;
    struct lh_store *store = service->store;
    struct lh_arena *arena = &service->scratch;
    struct lh_coordinator_stats stats;
    struct lh_server_facts server = {0};
    struct lh_readiness readiness;
    Leasehold__V1__GetStatusResponse response;

    if (lh_permit_token(call)) {
        bool is_admin = lh_permit_is_admin(call);
        char *coordinator = LH_UUID_TEXT(&store->coordinator);
        lh_places_stats(service->places, &stats);
        leasehold__v1__get_status_response__init(&response);
        response.version = service->version;
        response.schema_version = store->ops->schema_version(store);
        /* The database's roles may LISTEN to any channel, and this names one. */
        if (is_admin)
            response.coordinator_id = coordinator;
        response.timeline = store->ops->timeline(store);
        response.max_block = lh_message_duration(service->max_block_us, arena);
        response.waiters = (int64_t)stats.waiters;
        lh_places_readiness(service->places, &readiness);
        if (service->is_draining)
            response.trouble = (char *)"the daemon is shutting down";
        else
            response.trouble = (char *)(uintptr_t)trouble_of(&readiness);
        if (is_admin)
            response.warning = readiness.warning;
        store->ops->server(store, &server);
        if (server.server != NULL)
            response.server = (char *)server.server;
        if (server.common_path != NULL)
            response.common_path = (char *)(uintptr_t)server.common_path;
        add_databases(&response, service, is_admin, arena);
        add_spread(&response, service, arena);
        lh_call_reply(call, &response.base, arena);
    }
}
