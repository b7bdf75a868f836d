/* ConsoleService: views for people; and the lists of schedules and ticks. A method names the view of the store, the message for its rows, and the right that it needs. */
#include <stdio.h>
#include <string.h>

#include "leasehold/v1/console.pb-c.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

/* --- answers --- */

/* What the daemon knows by itself. */
static void add_survey(struct lh_service *service, Leasehold__V1__GetDatabaseResponse *response)
{
    struct lh_coordinator_stats stats;

    lh_places_stats(service->places, &stats);
    response->schema_version = service->store->ops->schema_version(service->store);
    response->held = stats.held;
    if (stats.survey_us != 0 && stats.oldest_us >= 0)
        response->oldest_transaction = lh_message_duration(stats.oldest_us, &service->scratch);
}

static void reply_one(struct lh_store_call *store_call, const struct lh_method *method, const struct lh_rows *rows)
{
    struct lh_arena *arena = &store_call->service->scratch;
    ProtobufCMessage *response = lh_rows_message(method->response, rows, arena);

    if (method->view == LH_VIEW_DATABASE)
        add_survey(store_call->service, (Leasehold__V1__GetDatabaseResponse *)(void *)response);
    lh_call_reply(store_call->call, response, arena);
}

/* A page ends early where the reply would grow too large, and where the store has looked far enough. Rows that no next page
   brings make it partial. */
static void reply_page(struct lh_store_call *store_call, const struct lh_method *method, const struct lh_rows *rows)
{
    struct lh_arena *arena = &store_call->service->scratch;
    ProtobufCMessage *response = lh_message_new(method->response, arena);
    ProtobufCMessage **elements = lh_arena_alloc(arena, (rows->row_count + 1) * sizeof(*elements));
    size_t bytes = 0, count = 0, row_count = rows->row_count;
    /* The store has looked far enough: it says so in a last row whose first column is null. */
    bool is_stopped = row_count > 0 && rows->cells[(row_count - 1) * rows->column_count] == NULL;

    row_count -= is_stopped;
    for (; count < row_count && bytes < LH_REPLY_MAX_BYTES; count++) {
        elements[count] = lh_row_message(method->response->fields[0].descriptor, rows, count, arena);
        bytes += protobuf_c_message_get_packed_size(elements[count]);
    }
    lh_message_set_list(response, elements, count);
    if (count < row_count || (rows->has_more && count > 0) || is_stopped) {
        const char *after = lh_rows_cell(rows, count < row_count || !is_stopped ? count - 1 : count, "after");
        protobuf_c_boolean *partial = lh_message_field(response, "partial");
        if (after != NULL)
            *(char **)lh_message_field(response, "next_page_token") =
                lh_page_token_make(LH_PAGE_VIEW + method->view, store_call->filter, "", after, arena);
        else if (partial != NULL)
            *partial = true;
    }
    lh_call_reply(store_call->call, response, arena);
}

static void on_view(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        const struct lh_method *method = lh_method_of(store_call->call);
        if (method->response->fields[0].label == PROTOBUF_C_LABEL_REPEATED)
            reply_page(store_call, method, rows);
        else
            reply_one(store_call, method, rows);
        lh_arena_reset(&store_call->service->scratch);
    }
    lh_store_call_destroy(store_call);
}

/* --- requests --- */

/* What a method was asked for. */
struct wanted {
    struct lh_rpc_call *call;
    const struct lh_method *method;
    const char *ns; /* "": all */
    bool include_children;
    const char *key;
    int32_t page_size;
    const char *after;
    uint64_t filter;
    const char *state; /* of ticks; NULL: any */
    int64_t since_us;
};

static void ask(const struct wanted *wanted, const struct lh_access_caller *who)
{
    struct lh_service *service = lh_call_service(wanted->call);
    struct lh_store *store = service->store;
    /* A graph leads out of the namespace; the store is told where to begin. */
    bool is_graph = wanted->method->view == LH_VIEW_WAITS && wanted->key[0] != '\0';
    const char *ns = is_graph ? "" : wanted->ns;
    bool include_children = is_graph || wanted->include_children;
    size_t count = include_children ? lh_access_tops(who, wanted->method->right, ns, NULL) : 1;
    const char **names = lh_arena_alloc(&service->scratch, (count + 1) * sizeof(*names));
    struct lh_view_request request = {.view = wanted->method->view,
                                      .namespaces = names,
                                      .namespace_count = count,
                                      .include_children = include_children,
                                      .key = wanted->key,
                                      .page_size = wanted->page_size,
                                      .after = is_graph ? wanted->ns : wanted->after,
                                      .state = wanted->state,
                                      .since_us = wanted->since_us};
    struct lh_store_call *store_call;

    names[0] = ns;
    if (include_children)
        lh_access_tops(who, wanted->method->right, ns, names);
    request.key = wanted->method->view == LH_VIEW_DAEMONS ? LH_UUID_TEXT(&store->coordinator) : request.key;
    store_call = lh_store_call_create(wanted->call, wanted->ns, wanted->key[0] != '\0' ? wanted->key : NULL);
    if (store_call == NULL)
        return;
    store_call->filter = wanted->filter;
    lh_store_call_check(store_call, store->ops->view == NULL ? LH_UNIMPLEMENTED
                                                             : store->ops->view(store, &request, on_view, store_call));
}

static void permit_and_ask(struct wanted *wanted)
{
    bool is_of_database = wanted->method->of == LH_LOOK_OF_DATABASE;
    struct lh_access_caller who;

    if (!lh_permit_enter(wanted->call, &who))
        return;
    if (lh_permit_any(wanted->call, &who, wanted->method->right, is_of_database ? "" : wanted->ns,
                      is_of_database || wanted->include_children))
        ask(wanted, &who);
    lh_access_leave(&who);
}

/* The page of another daemon may go on in a database that this one lacks. */
static bool check_database(struct lh_validator *v, const struct wanted *wanted)
{
    const char *after;
    const struct lh_place *place = lh_placed_view_first(v->places, wanted->after, &after);
    int size = (int)strcspn(wanted->after, ":");

    if (place == NULL)
        return lh_violations_add(v->violations, "page_token",
                                 "goes on in database %.*s, which this daemon does not have: ask for the first page",
                                 size, wanted->after);
    if (wanted->key[0] != '\0' && wanted->method->view != LH_VIEW_AUDIT
            ? lh_places_of(v->places, wanted->ns, wanted->key) == place
            : lh_places_has(v->places, place, wanted->ns, wanted->include_children))
        return true;
    return lh_violations_add(v->violations, "page_token",
                             "goes on in database %s, which this daemon does not ask for it: ask for the first page",
                             place->name);
}

static bool check_page(struct lh_validator *v, const Leasehold__V1__ListRequest *request, struct wanted *wanted)
{
    bool is_placed = lh_call_service(wanted->call)->placed_store != NULL;
    bool is_by_database = is_placed && wanted->method->view != LH_VIEW_NAMESPACES;
    char since[24];
    const char *ignored;
    bool is_valid = lh_validate_page_size(v, request->page_size, "page_size", &wanted->page_size);

    wanted->filter = lh_page_filter(lh_page_filter(0, wanted->ns), wanted->key);
    wanted->filter = lh_page_filter(wanted->filter, wanted->include_children ? "children" : "");
    if (wanted->state != NULL)
        wanted->filter = lh_page_filter(wanted->filter, wanted->state);
    if (wanted->since_us != INT64_MIN) {
        snprintf(since, sizeof(since), "%lld", (long long)wanted->since_us);
        wanted->filter = lh_page_filter(wanted->filter, since);
    }
    if (is_by_database)
        wanted->filter = lh_page_filter(wanted->filter, "database");
    if (request->page_token[0] == '\0')
        return is_valid;
    if (lh_page_token_parse(request->page_token, LH_PAGE_VIEW + wanted->method->view, wanted->filter, v->arena,
                            &ignored, &wanted->after))
        return (!is_by_database || check_database(v, wanted)) && is_valid;
    return lh_violations_add(v->violations, "page_token",
                             "must be the next_page_token of a page that was asked with the same filters");
}

static bool check_list(struct lh_validator *v, const Leasehold__V1__ListRequest *request, struct wanted *wanted)
{
    bool is_scope = wanted->method->of == LH_LOOK_OF_SCOPE;
    Leasehold__V1__Scope scope = LEASEHOLD__V1__SCOPE__INIT;

    scope.n_namespace_ = request->n_namespace_;
    scope.namespace_ = request->namespace_;
    scope.key = request->key;
    if (is_scope || request->key[0] != '\0') {
        if (!lh_validate_scope(v, &scope, "scope", &wanted->ns, &wanted->key))
            return false;
    } else if (!lh_validate_namespace(v, request->namespace_, request->n_namespace_, true, "namespace", &wanted->ns) ||
               !lh_validate_place(v, wanted->ns, request->include_children, "namespace")) {
        return false;
    }
    wanted->include_children =
        wanted->key[0] == '\0' && !is_scope && (request->include_children || wanted->ns[0] == '\0');
    return check_page(v, request, wanted);
}

void lh_look_on_request(struct lh_asked *asked, const void *request)
{
    struct wanted wanted = {.call = asked->call,
                            .method = lh_method_of(asked->call),
                            .ns = "",
                            .include_children = true,
                            .key = "",
                            .page_size = 1,
                            .after = "",
                            .since_us = INT64_MIN};

    if (lh_asked_check(asked, wanted.method->request != &leasehold__v1__list_request__descriptor ||
                                  check_list(&asked->v, request, &wanted)))
        permit_and_ask(&wanted);
}

void lh_explain_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__ExplainRequest *request = message;
    struct wanted wanted = {
        .call = asked->call, .method = lh_method_of(asked->call), .page_size = 1, .after = "", .since_us = INT64_MIN};

    if (lh_asked_check(asked, lh_validate_scope(&asked->v, request->scope, "scope", &wanted.ns, &wanted.key)))
        permit_and_ask(&wanted);
}

/* --- schedules and ticks --- */

static void list(struct lh_asked *asked, const Leasehold__V1__ListRequest *request, struct wanted *wanted,
                 bool is_valid)
{
    wanted->call = asked->call;
    wanted->method = lh_method_of(asked->call);
    wanted->ns = wanted->key = wanted->after = "";
    if (lh_asked_check(asked, check_list(&asked->v, request, wanted) && is_valid))
        permit_and_ask(wanted);
}

void lh_list_schedules_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__ListSchedulesRequest *request = message;
    Leasehold__V1__ListRequest alike = LEASEHOLD__V1__LIST_REQUEST__INIT;
    struct wanted wanted = {.since_us = INT64_MIN};

    alike.n_namespace_ = request->n_namespace_;
    alike.namespace_ = request->namespace_;
    alike.include_children = request->include_children;
    alike.page_size = request->page_size;
    alike.page_token = request->page_token;
    list(asked, &alike, &wanted, true);
}

void lh_list_ticks_on_request(struct lh_asked *asked, const void *message)
{
    static const char *const states[] = {NULL, "due", "running", "done", "failed", "dead", "missed", "skipped"};
    const Leasehold__V1__ListTicksRequest *request = message;
    Leasehold__V1__ListRequest alike = LEASEHOLD__V1__LIST_REQUEST__INIT;
    struct wanted wanted = {.since_us = INT64_MIN};
    bool is_valid = true;

    alike.n_namespace_ = request->n_namespace_;
    alike.namespace_ = request->namespace_;
    alike.include_children = request->include_children;
    alike.page_size = request->page_size;
    alike.page_token = request->page_token;
    if ((size_t)request->state < sizeof(states) / sizeof(states[0]))
        wanted.state = states[request->state];
    else
        is_valid =
            lh_violations_add(asked->v.violations, "state", "must be one of TickState, not %d", (int)request->state);
    if (request->since != NULL)
        is_valid &= lh_validate_timestamp(&asked->v, request->since, "since", &wanted.since_us);
    list(asked, &alike, &wanted, is_valid);
}

/* --- what the daemon knows by itself --- */

static Leasehold__V1__RightInNamespaces *new_right(const struct lh_access_caller *who, enum lh_right right,
                                                   Leasehold__V1__Right name, struct lh_arena *arena)
{
    Leasehold__V1__RightInNamespaces *message = lh_message_new(&leasehold__v1__right_in_namespaces__descriptor, arena);
    size_t count = lh_access_tops(who, right, "", NULL);
    const char **names = lh_arena_alloc(arena, (count + 1) * sizeof(*names));

    message->right = name;
    message->namespaces = lh_arena_alloc(arena, (count + 1) * sizeof(*message->namespaces));
    lh_access_tops(who, right, "", names);
    for (; message->n_namespaces < count; message->n_namespaces++)
        message->namespaces[message->n_namespaces] = lh_message_namespace(names[message->n_namespaces], arena);
    return message;
}

void lh_get_session_on_request(struct lh_asked *asked, const void *request)
{
    static const struct {
        enum lh_right right;
        Leasehold__V1__Right name;
    } rights[] = {
        {LH_RIGHT_READ, LEASEHOLD__V1__RIGHT__RIGHT_READ},
        {LH_RIGHT_LEASE, LEASEHOLD__V1__RIGHT__RIGHT_LEASE},
        {LH_RIGHT_GUARD, LEASEHOLD__V1__RIGHT__RIGHT_GUARD},
        {LH_RIGHT_ADMIN, LEASEHOLD__V1__RIGHT__RIGHT_ADMIN},
    };
    struct lh_service *service = asked->service;
    Leasehold__V1__GetSessionResponse response = LEASEHOLD__V1__GET_SESSION_RESPONSE__INIT;
    Leasehold__V1__RightInNamespaces *found[sizeof(rights) / sizeof(rights[0])];
    struct lh_access_caller who;

    if (lh_permit_enter(asked->call, &who)) {
        response.principal = (char *)(uintptr_t)lh_access_name(&who);
        response.authorization = lh_access_is_on(service->access);
        response.rights = found;
        for (; response.n_rights < sizeof(rights) / sizeof(rights[0]); response.n_rights++)
            found[response.n_rights] =
                new_right(&who, rights[response.n_rights].right, rights[response.n_rights].name, &service->scratch);
        lh_call_reply(asked->call, &response.base, &service->scratch);
        lh_access_leave(&who);
    }
}

static void reply_samples(struct lh_rpc_call *call)
{
    struct lh_service *service = lh_call_service(call);
    const struct lh_samples *samples = &service->samples;
    struct lh_arena *arena = &service->scratch;
    size_t count = lh_samples_count(samples);
    Leasehold__V1__GetSamplesResponse response = LEASEHOLD__V1__GET_SAMPLES_RESPONSE__INIT;
    int64_t *values = lh_arena_alloc(arena, (5 * count + 1) * sizeof(*values));
    struct lh_coordinator_stats stats;

    lh_places_stats(service->places, &stats);
    response.period = lh_message_duration(LH_SAMPLE_PERIOD_US, arena);
    if (count > 0)
        response.ended_at = lh_message_timestamp(samples->begun_us + stats.clock_offset_us, arena);
    response.n_grants = response.n_renewals = response.n_waiters = count;
    response.n_latency_p50_us = response.n_latency_p99_us = count;
    response.grants = values;
    response.renewals = values + count;
    response.waiters = values + 2 * count;
    response.latency_p50_us = values + 3 * count;
    response.latency_p99_us = values + 4 * count;
    for (size_t i = 0; i < count; i++) {
        const struct lh_sample *sample = lh_samples_at(samples, i);
        response.grants[i] = sample->grants;
        response.renewals[i] = sample->renewals;
        response.waiters[i] = sample->waiters;
        response.latency_p50_us[i] = sample->latency_p50_us;
        response.latency_p99_us[i] = sample->latency_p99_us;
    }
    lh_call_reply(call, &response.base, arena);
}

void lh_get_samples_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_access_caller who;

    if (lh_permit_enter(asked->call, &who)) {
        if (lh_permit_any(asked->call, &who, LH_RIGHT_READ, "", true))
            reply_samples(asked->call);
        lh_access_leave(&who);
    }
}
