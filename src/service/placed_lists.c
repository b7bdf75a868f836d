/*
 * A page of policies or of rules: all databases are asked for one, in turn. Their answers are merged in the order of
 * the list, as far as every database has answered: to the end of the page that ends first.
 *
 * A page of a view has the rows of one database, then those of the next. Its `after` is the number of the database, a
 * colon, and the `after` of that database.
 */
#include "service/placed_lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/places.h"

/* A list on its way through the databases. */
struct gather {
    const struct lh_places *places;
    size_t at;
    enum lh_status (*ask)(struct gather *gather); /* the database `at` */
    struct lh_arena memory;
    int32_t page_size;
    void *arg;

    union {
        struct {
            lh_policy_cb *on_done;
            const char *after;
            struct lh_policy *list;
        } policies;
        struct {
            lh_access_admin_cb *on_done;
            const char *after_principal;
            const char *after_ns;
            struct lh_rule_facts *list;
        } rules;
        struct {
            lh_view_cb *on_done;
            struct lh_view_request request;
            const char **cells;
            const char *const *columns;
            size_t column_count;
        } view;
    };
    size_t count;
    bool has_more;
    bool is_cut; /* nothing behind these is complete */
    const char *cut_ns;
    const char *cut_principal;
};

static struct gather *create(const struct lh_places *places, int32_t page_size, void *arg)
{
    struct gather *gather = lh_alloc_zero(1, sizeof(*gather));

    gather->places = places;
    gather->page_size = page_size;
    gather->arg = arg;
    return gather;
}

static void destroy(struct gather *gather)
{
    lh_arena_finish(&gather->memory);
    free(gather);
}

/* Refused, `gather` is destroyed. */
static enum lh_status begin(struct gather *gather, enum lh_status (*ask)(struct gather *gather))
{
    enum lh_status status;

    gather->ask = ask;
    status = ask(gather);
    if (status != LH_OK)
        destroy(gather);
    return status;
}

/* True: the database `next` is asked. False: there is none, or `status` says why it is not asked. */
static bool goes_on(struct gather *gather, size_t next, enum lh_status *status, const struct lh_error **error)
{
    if (next >= lh_places_count(gather->places))
        return false;
    gather->at = next;
    *status = gather->ask(gather);
    *error = NULL;
    return *status == LH_OK;
}

static const char *copy(struct gather *gather, const char *text)
{
    return text == NULL ? NULL : lh_arena_strdup(&gather->memory, text);
}

/* The list grows by so many. */
static void *grow(struct gather *gather, const void *list, size_t count, size_t size)
{
    void *grown = lh_arena_alloc(&gather->memory, (gather->count + count + 1) * size);

    if (gather->count > 0)
        memcpy(grown, list, gather->count * size);
    return grown;
}

/* Of the home is what concerns all namespaces. */
static bool is_of(const struct gather *gather, const char *ns)
{
    const struct lh_place *place = lh_places_find(gather->places, ns);

    if (place == NULL)
        place = lh_places_home(gather->places);
    return place == lh_places_at(gather->places, gather->at);
}

/* --- policies --- */

static int compare_policies(const void *one, const void *other)
{
    return strcmp(((const struct lh_policy *)one)->ns, ((const struct lh_policy *)other)->ns);
}

static void take_policies(struct gather *gather, const struct lh_policy_answer *answer)
{
    struct lh_policy *list = grow(gather, gather->policies.list, answer->policy_count, sizeof(*list));

    for (size_t i = 0; i < answer->policy_count; i++) {
        struct lh_policy *policy = &list[gather->count];
        if (!is_of(gather, answer->policies[i].ns))
            continue;
        *policy = answer->policies[i];
        policy->ns = copy(gather, policy->ns);
        for (size_t j = 0; j < LH_POLICY_FIELD_COUNT; j++) {
            policy->values[j].text = copy(gather, policy->values[j].text);
            policy->sources[j] = copy(gather, policy->sources[j]);
        }
        gather->count++;
    }
    gather->policies.list = list;
    if (!answer->has_more || answer->policy_count == 0)
        return;
    if (!gather->is_cut || strcmp(answer->policies[answer->policy_count - 1].ns, gather->cut_ns) < 0)
        gather->cut_ns = copy(gather, answer->policies[answer->policy_count - 1].ns);
    gather->is_cut = true;
}

static void finish_policies(struct gather *gather)
{
    struct lh_policy_answer answer = {.policies = gather->policies.list, .has_more = gather->is_cut};

    qsort(gather->policies.list, gather->count, sizeof(*gather->policies.list), compare_policies);
    while (answer.policy_count < gather->count &&
           (!gather->is_cut || strcmp(gather->policies.list[answer.policy_count].ns, gather->cut_ns) <= 0))
        answer.policy_count++;
    answer.stop_ns = gather->is_cut ? gather->cut_ns : NULL;
    if (answer.policy_count > (size_t)gather->page_size) {
        answer.policy_count = (size_t)gather->page_size;
        answer.has_more = true;
        answer.stop_ns = NULL;
    }
    gather->policies.on_done(gather->arg, LH_OK, NULL, &answer);
}

static void on_policies(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_policy_answer *answer)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        take_policies(gather, answer);
        if (goes_on(gather, gather->at + 1, &status, &error))
            return;
    }
    if (status == LH_OK)
        finish_policies(gather);
    else
        gather->policies.on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

static enum lh_status ask_policies(struct gather *gather)
{
    struct lh_store *store = lh_places_at(gather->places, gather->at)->store;
    return store->ops->list_policies(store, gather->page_size, gather->policies.after, on_policies, gather);
}

enum lh_status lh_placed_policies(const struct lh_places *places, int32_t page_size, const char *after_ns,
                                  lh_policy_cb *on_done, void *arg)
{
    struct gather *gather = create(places, page_size, arg);

    gather->policies.on_done = on_done;
    gather->policies.after = copy(gather, after_ns);
    return begin(gather, ask_policies);
}

/* --- rules --- */

static int compare_names(const char *principal, const char *ns, const char *other_principal, const char *other_ns)
{
    int order = strcmp(principal, other_principal);
    return order != 0 ? order : strcmp(ns, other_ns);
}

static int compare_rules(const void *one, const void *other)
{
    const struct lh_access_rule *a = &((const struct lh_rule_facts *)one)->rule;
    const struct lh_access_rule *b = &((const struct lh_rule_facts *)other)->rule;
    return compare_names(a->principal, a->ns, b->principal, b->ns);
}

static bool is_before_cut(const struct gather *gather, const struct lh_access_rule *rule)
{
    return !gather->is_cut || compare_names(rule->principal, rule->ns, gather->cut_principal, gather->cut_ns) <= 0;
}

static void take_rules(struct gather *gather, const struct lh_access_admin_answer *answer)
{
    struct lh_rule_facts *list = grow(gather, gather->rules.list, answer->rule_count, sizeof(*list));
    const struct lh_access_rule *last = answer->rule_count > 0 ? &answer->rules[answer->rule_count - 1].rule : NULL;

    for (size_t i = 0; i < answer->rule_count; i++) {
        struct lh_rule_facts *facts = &list[gather->count];
        if (!is_of(gather, answer->rules[i].rule.ns))
            continue;
        *facts = answer->rules[i];
        facts->rule.principal = copy(gather, facts->rule.principal);
        facts->rule.ns = copy(gather, facts->rule.ns);
        facts->created_by = copy(gather, facts->created_by);
        gather->count++;
    }
    gather->rules.list = list;
    if (answer->has_more && last != NULL && is_before_cut(gather, last)) {
        gather->cut_principal = copy(gather, last->principal);
        gather->cut_ns = copy(gather, last->ns);
        gather->is_cut = true;
    }
}

static void finish_rules(struct gather *gather)
{
    struct lh_access_admin_answer answer = {.rules = gather->rules.list, .has_more = gather->is_cut};
    struct lh_access_rule stop = {.principal = gather->cut_principal, .ns = gather->cut_ns};

    qsort(gather->rules.list, gather->count, sizeof(*gather->rules.list), compare_rules);
    while (answer.rule_count < gather->count && is_before_cut(gather, &gather->rules.list[answer.rule_count].rule))
        answer.rule_count++;
    answer.stop = gather->is_cut ? &stop : NULL;
    if (answer.rule_count > (size_t)gather->page_size) {
        answer.rule_count = (size_t)gather->page_size;
        answer.has_more = true;
        answer.stop = NULL;
    }
    gather->rules.on_done(gather->arg, LH_OK, NULL, &answer);
}

static void on_rules(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_access_admin_answer *answer)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        take_rules(gather, answer);
        if (goes_on(gather, gather->at + 1, &status, &error))
            return;
    }
    if (status == LH_OK)
        finish_rules(gather);
    else
        gather->rules.on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

static enum lh_status ask_rules(struct gather *gather)
{
    struct lh_store *store = lh_places_at(gather->places, gather->at)->store;
    return store->ops->list_access(store, gather->page_size, gather->rules.after_principal, gather->rules.after_ns,
                                   on_rules, gather);
}

enum lh_status lh_placed_rules(const struct lh_places *places, int32_t page_size, const char *after_principal,
                               const char *after_ns, lh_access_admin_cb *on_done, void *arg)
{
    struct gather *gather = create(places, page_size, arg);

    gather->rules.on_done = on_done;
    gather->rules.after_principal = copy(gather, after_principal);
    gather->rules.after_ns = copy(gather, after_ns);
    return begin(gather, ask_rules);
}

/* --- views --- */

static bool is_asked(const struct gather *gather, size_t at)
{
    const struct lh_view_request *request = &gather->view.request;
    const struct lh_place *place = lh_places_at(gather->places, at);

    if (request->view == LH_VIEW_DAEMONS)
        return true;
    if (request->view == LH_VIEW_DATABASE)
        return place == lh_places_home(gather->places);
    if (request->view == LH_VIEW_WAITS && request->key[0] != '\0') /* a graph, from `after` on */
        return lh_places_has(gather->places, place, request->after, false);
    for (size_t i = 0; i < request->namespace_count; i++)
        if (lh_places_has(gather->places, place, request->namespaces[i], request->include_children))
            return true;
    return false;
}

/* From `at` on, or the number of databases. */
static size_t next_asked(const struct gather *gather, size_t at)
{
    while (at < lh_places_count(gather->places) && !is_asked(gather, at))
        at++;
    return at;
}

static bool is_after(const struct gather *gather, size_t column)
{
    return strcmp(gather->view.columns[column], "after") == 0;
}

/* Where the page goes on: its rows say so, and after the last of a database the next one does. */
static const char *place_after(struct gather *gather, size_t at, const char *after)
{
    char number[24];
    size_t size = (size_t)snprintf(number, sizeof(number), "%zu:", at);
    char *text = lh_arena_alloc(&gather->memory, size + strlen(after) + 1);

    strcpy(text, number);
    strcpy(text + size, after);
    return text;
}

static void take_view(struct gather *gather, const struct lh_view_answer *answer)
{
    size_t columns = answer->column_count;
    const char **cells = grow(gather, gather->view.cells, answer->row_count, columns * sizeof(*cells));
    const char **to = cells + gather->count * columns;

    if (gather->view.columns == NULL) {
        const char **names = lh_arena_alloc(&gather->memory, (columns + 1) * sizeof(*names));
        for (size_t i = 0; i < columns; i++)
            names[i] = copy(gather, answer->columns[i]);
        gather->view.columns = names;
        gather->view.column_count = columns;
    }
    for (size_t i = 0; i < answer->row_count * columns; i++)
        to[i] = answer->cells[i] != NULL && is_after(gather, i % columns)
                    ? place_after(gather, gather->at, answer->cells[i])
                    : copy(gather, answer->cells[i]);
    gather->view.cells = cells;
    gather->count += answer->row_count;
}

static bool is_stopped(const struct lh_view_answer *answer)
{
    return answer->row_count > 0 && answer->cells[(answer->row_count - 1) * answer->column_count] == NULL;
}

static void finish_view(struct gather *gather)
{
    struct lh_view_answer answer = {.columns = gather->view.columns,
                                    .column_count = gather->view.column_count,
                                    .cells = gather->view.cells,
                                    .row_count = gather->count,
                                    .has_more = gather->has_more};
    gather->view.on_done(gather->arg, LH_OK, NULL, &answer);
}

/* The rows of this database have come to their end, and the page is full: it goes on with the next one. */
static void go_on_with(struct gather *gather, size_t next)
{
    gather->has_more = true;
    for (size_t i = 0; i < gather->view.column_count; i++)
        if (is_after(gather, i))
            gather->view.cells[(gather->count - 1) * gather->view.column_count + i] = place_after(gather, next, "");
}

static void on_view(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_view_answer *answer)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        size_t next = next_asked(gather, gather->at + 1);
        take_view(gather, answer);
        gather->has_more = answer->has_more;
        if (next < lh_places_count(gather->places) && !answer->has_more && !is_stopped(answer)) {
            if (gather->count >= (size_t)gather->page_size) {
                go_on_with(gather, next);
            } else {
                gather->view.request.after = "";
                if (goes_on(gather, next, &status, &error))
                    return;
            }
        }
    }
    if (status == LH_OK)
        finish_view(gather);
    else
        gather->view.on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

static enum lh_status ask_view(struct gather *gather)
{
    struct lh_store *store = lh_places_at(gather->places, gather->at)->store;
    struct lh_view_request request = gather->view.request;
    char id[LH_UUID_TEXT_BYTES];

    request.page_size = gather->page_size - (int32_t)gather->count;
    if (request.view == LH_VIEW_DAEMONS) { /* this daemon has another name in each */
        lh_uuid_format(&store->coordinator, id);
        request.key = id;
    }
    return store->ops->view == NULL ? LH_UNIMPLEMENTED : store->ops->view(store, &request, on_view, gather);
}

enum lh_status lh_placed_view(const struct lh_places *places, const struct lh_view_request *request,
                              lh_view_cb *on_done, void *arg)
{
    struct gather *gather = create(places, request->page_size, arg);
    bool is_graph = request->view == LH_VIEW_WAITS && request->key[0] != '\0';
    const char **namespaces = lh_arena_alloc(&gather->memory, (request->namespace_count + 1) * sizeof(*namespaces));

    gather->view.on_done = on_done;
    gather->view.request = *request;
    gather->view.request.key = copy(gather, request->key);
    gather->view.request.after = copy(gather, request->after);
    gather->view.request.namespaces = namespaces;
    for (size_t i = 0; i < request->namespace_count; i++)
        namespaces[i] = copy(gather, request->namespaces[i]);
    if (!is_graph && request->after[0] != '\0') {
        char *rest;
        gather->at = strtoul(gather->view.request.after, &rest, 10);
        gather->view.request.after = *rest == ':' ? rest + 1 : "";
    }
    gather->at = next_asked(gather, gather->at);
    if (gather->at >= lh_places_count(places)) {
        destroy(gather);
        return LH_INVALID_ARGUMENT;
    }
    return begin(gather, ask_view);
}
