#include "service/edge/validate.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "service/words_internal.h"

#define PATH_BYTES LH_VIOLATION_FIELD_BYTES

/* False, with a violation, if a rule of base/bounds.h has said `words`. */
static bool is_within(struct lh_validator *v, bool is_within_bounds, const char *field, const char *words)
{
    return is_within_bounds || lh_violations_add(v->violations, field, "%s", words);
}

bool lh_validate_text(struct lh_validator *v, enum lh_bounded_text kind, const char *text, const char *field)
{
    char words[LH_BOUND_WORDS_BYTES];

    return is_within(v, lh_bound_text(kind, text, strlen(text), words), field, words);
}

bool lh_validate_namespace(struct lh_validator *v, char *const *segments, size_t count, bool may_be_empty,
                           const char *field, const char **ns)
{
    char *joined, *end, words[LH_BOUND_WORDS_BYTES];
    size_t size = 0;
    bool is_valid = true;

    *ns = "";
    if (count == 0 && may_be_empty)
        return true;
    for (size_t i = 0; i < count && i < LH_NAMESPACE_MAX_SEGMENTS; i++) {
        char path[PATH_BYTES];
        is_valid &= lh_validate_text(v, LH_TEXT_SEGMENT, segments[i], lh_field_nth(path, field, i));
        size += strlen(segments[i]) + 1;
    }
    if (!is_valid || !is_within(v, lh_bound_namespace(count, size - 1, words), field, words))
        return false;
    joined = end = lh_arena_alloc(v->arena, size);
    for (size_t i = 0; i < count; i++) {
        end = stpcpy(end, segments[i]);
        *end++ = '.';
    }
    end[-1] = '\0';
    *ns = joined;
    return true;
}

bool lh_validate_place(struct lh_validator *v, const char *ns, bool include_children, const char *field)
{
    if (v->places == NULL || *ns == '\0' || lh_places_find(v->places, ns) != NULL)
        return true;
    for (size_t i = 0; include_children && i < v->places->count; i++)
        if (lh_places_has(v->places, &v->places->list[i], ns, true))
            return true;
    return lh_violations_add(v->violations, field, "%s %s", ns, lh_places_nowhere);
}

bool lh_validate_scope(struct lh_validator *v, const Leasehold__V1__Scope *scope, const char *field, const char **ns,
                       const char **key)
{
    char path[PATH_BYTES];
    bool is_valid;

    if (scope == NULL)
        return lh_violations_add(v->violations, field, "must be given");
    is_valid = lh_validate_namespace(v, scope->namespace_, scope->n_namespace_, false,
                                     lh_field_member(path, field, "namespace"), ns) &&
               lh_validate_place(v, *ns, false, path);
    *key = scope->key;
    return lh_validate_text(v, LH_TEXT_KEY, scope->key, lh_field_member(path, field, "key")) && is_valid;
}

bool lh_validate_duration(struct lh_validator *v, const Google__Protobuf__Duration *duration, int64_t least_us,
                          int64_t most_us, const char *field, int64_t *duration_us)
{
    const int64_t most_s = INT64_C(315576000000); /* of google.protobuf.Duration, either way */
    char words[LH_BOUND_WORDS_BYTES];

    if (duration->seconds > most_s || duration->seconds < -most_s || duration->nanos > 999999999 ||
        duration->nanos < -999999999 || (duration->seconds > 0 && duration->nanos < 0) ||
        (duration->seconds < 0 && duration->nanos > 0))
        return lh_violations_add(
            v->violations, field,
            "must be a valid google.protobuf.Duration: nanos below a second, of the sign of seconds");
    *duration_us = duration->seconds * LH_US_PER_S + duration->nanos / 1000;
    if (duration->nanos < 0 && *duration_us == 0)
        *duration_us = -1;
    return is_within(v, lh_bound_duration(*duration_us, least_us, most_us, words), field, words);
}

bool lh_validate_count(struct lh_validator *v, int32_t number, int32_t if_zero, int32_t most, const char *field,
                       int32_t *result)
{
    char words[LH_BOUND_WORDS_BYTES];

    *result = number == 0 ? if_zero : number;
    return is_within(v, lh_bound_count(number, if_zero, most, words), field, words);
}

bool lh_validate_timestamp(struct lh_validator *v, const Google__Protobuf__Timestamp *timestamp, const char *field,
                           int64_t *time_us)
{
    /* Of google.protobuf.Timestamp: the years 1 to 9999. */
    if (timestamp->seconds < INT64_C(-62135596800) || timestamp->seconds > INT64_C(253402300799) ||
        timestamp->nanos < 0 || timestamp->nanos > 999999999)
        return lh_violations_add(v->violations, field,
                                 "must be a valid google.protobuf.Timestamp: of the years 1 to 9999, nanos 0 to "
                                 "999999999, is %lld s and %d ns",
                                 (long long)timestamp->seconds, (int)timestamp->nanos);
    *time_us = timestamp->seconds * LH_US_PER_S + timestamp->nanos / 1000;
    return true;
}

bool lh_validate_page_size(struct lh_validator *v, int32_t page_size, const char *field, int32_t *result)
{
    return lh_validate_count(v, page_size, LH_PAGE_SIZE_DEFAULT, LH_PAGE_SIZE_MAX, field, result);
}

bool lh_validate_units(struct lh_validator *v, int32_t units, const char *field, int32_t *result)
{
    return lh_validate_count(v, units, 1, LH_UNITS_MAX, field, result);
}

bool lh_validate_schedule_name(struct lh_validator *v, const Leasehold__V1__Namespace *name, const char *field,
                               const char **ns)
{
    char path[LH_VIOLATION_FIELD_BYTES];

    if (name == NULL)
        return lh_violations_add(v->violations, field, "must be given");
    lh_field_member(path, field, "segments");
    if (!lh_validate_namespace(v, name->segments, name->n_segments, false, path, ns) ||
        !lh_validate_place(v, *ns, false, path))
        return false;
    return v->places == NULL || !lh_places_is_spread(v->places, *ns) ||
           lh_violations_add(v->violations, path,
                             "must live in one database, as a schedule and its ticks do: %s is spread", *ns);
}

bool lh_validate_lease_key(struct lh_validator *v, const char *text, const char *field, struct lh_uuid *lease_key)
{
    char words[LH_BOUND_WORDS_BYTES];

    return is_within(v, lh_bound_lease_key(text, lease_key, words), field, words);
}

bool lh_validate_lease_ref(struct lh_validator *v, const Leasehold__V1__LeaseRef *ref, const char *field,
                           const char **ns, const char **key, struct lh_uuid *lease_key)
{
    char path[PATH_BYTES];
    bool is_valid;

    if (ref == NULL)
        return lh_violations_add(v->violations, field, "must be given");
    is_valid = lh_validate_scope(v, ref->scope, lh_field_member(path, field, "scope"), ns, key);
    return lh_validate_lease_key(v, ref->lease_key, lh_field_member(path, field, "lease_key"), lease_key) && is_valid;
}

bool lh_validate_release_item(struct lh_validator *v, const Leasehold__V1__ReleaseItem *request, const char *field,
                              struct lh_holder_item *item)
{
    char path[PATH_BYTES];
    const char *problem;
    bool is_valid = lh_validate_lease_ref(v, request->lease, lh_field_member(path, field, "lease"), &item->ns,
                                          &item->key, &item->lease_key);

    item->is_failure = request->result_case == LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
    item->value = NULL;
    if (item->is_failure) {
        item->value = request->failure;
        return lh_validate_text(v, LH_TEXT_RESULT, request->failure, lh_field_member(path, field, "failure")) &&
               is_valid;
    }
    if (request->result_case == LEASEHOLD__V1__RELEASE_ITEM__RESULT__NOT_SET || request->success[0] == '\0')
        return is_valid;
    item->value = request->success;
    if (!lh_validate_text(v, LH_TEXT_RESULT, request->success, lh_field_member(path, field, "success")))
        return false;
    problem = lh_json_problem(request->success, v->arena);
    if (problem != NULL)
        return lh_violations_add(v->violations, path, "must be JSON that PostgreSQL takes: %s", problem);
    return is_valid;
}

/* A state's name in the database; NULL: any. */
static bool check_state(struct lh_validator *v, Leasehold__V1__LeaseState state, const char **name)
{
    static const char *const names[] = {NULL, "overdue", "silent", "held_too_long", "expired"};

    if ((size_t)state >= sizeof(names) / sizeof(names[0]))
        return lh_violations_add(v->violations, "state", "must be one of LeaseState, not %d", (int)state);
    *name = names[state];
    return true;
}

bool lh_validate_list(struct lh_validator *v, const Leasehold__V1__ListLeasesRequest *request,
                      struct lh_list_request *list)
{
    bool is_valid =
        lh_validate_namespace(v, request->namespace_, request->n_namespace_, true, "namespace", &list->ns) &&
        lh_validate_place(v, list->ns, request->include_children, "namespace");

    list->include_children = request->include_children;
    list->owner = request->owner;
    list->search = request->search;
    is_valid &= lh_validate_text(v, LH_TEXT_OWNER, request->search, "search");
    is_valid &= check_state(v, request->state, &list->state);
    if (request->longer_than != NULL)
        is_valid &=
            lh_validate_duration(v, request->longer_than, 0, LH_DURATION_MAX_US, "longer_than", &list->longer_than_us);
    is_valid &= lh_validate_page_size(v, request->page_size, "page_size", &list->page_size);
    return lh_validate_text(v, LH_TEXT_OWNER, request->owner, "owner") && is_valid;
}

bool lh_validate_watch(struct lh_validator *v, const Leasehold__V1__WatchLeasesRequest *request, const char **ns)
{
    bool has_key = request->key[0] != '\0';
    bool is_valid = lh_validate_namespace(v, request->namespace_, request->n_namespace_, !has_key, "namespace", ns);

    if (has_key && request->include_children)
        return lh_violations_add(v->violations, "include_children", "must not be given together with key");
    is_valid = is_valid && lh_validate_place(v, *ns, request->include_children, "namespace");
    return (!has_key || lh_validate_text(v, LH_TEXT_KEY, request->key, "key")) && is_valid;
}

bool lh_validate_reap(struct lh_validator *v, const Leasehold__V1__ReapRequest *request,
                      struct lh_reap_arguments *arguments)
{
    bool is_valid = lh_validate_count(v, request->max, LH_REAP_DEFAULT, LH_REAP_MAX, "max", &arguments->max);

    arguments->include_children = request->include_children;
    arguments->key = request->key[0] != '\0' ? request->key : NULL;
    if (request->n_namespaces > LH_REAP_NAMESPACES_MAX)
        return lh_violations_add(v->violations, "namespaces", "must be at most %d, are %zu", LH_REAP_NAMESPACES_MAX,
                                 request->n_namespaces);
    arguments->namespace_count = request->n_namespaces;
    arguments->is_by_name = request->n_namespaces > 0;
    arguments->namespaces = lh_arena_alloc(v->arena, (request->n_namespaces + 1) * sizeof(char *));
    for (size_t i = 0; i < request->n_namespaces; i++) {
        const Leasehold__V1__Namespace *ns = request->namespaces[i];
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "namespaces[%zu].segments", i);
        is_valid &= lh_validate_namespace(v, ns->segments, ns->n_segments, false, path, &arguments->namespaces[i]) &&
                    lh_validate_place(v, arguments->namespaces[i], request->include_children, path);
    }
    if (arguments->key != NULL && (request->n_namespaces != 1 || request->include_children))
        return lh_violations_add(v->violations, "key", "must be given with one namespace, without include_children");
    return (arguments->key == NULL || lh_validate_text(v, LH_TEXT_KEY, request->key, "key")) && is_valid;
}

bool lh_validate_words(struct lh_validator *v, const char *words, const char *field, size_t least)
{
    size_t size = strlen(words);

    return (size >= least && size <= LH_HAND_OVER_WORDS_MAX_BYTES) ||
           lh_violations_add(v->violations, field, "must be %zu to %d bytes, has %zu", least,
                             LH_HAND_OVER_WORDS_MAX_BYTES, size);
}

bool lh_validate_force(struct lh_validator *v, const Leasehold__V1__ForceReleaseRequest *request)
{
    bool is_valid = lh_validate_text(v, LH_TEXT_REASON, request->reason, "reason");

    if (is_valid && strspn(request->reason, " \t\r\n") == strlen(request->reason))
        is_valid = lh_violations_add(v->violations, "reason", "must give a reason, for readers of the history");
    if (request->token < 0) {
        is_valid = lh_violations_add(v->violations, "token", "must be 0 (any holder) or a token, is %lld",
                                     (long long)request->token);
    }
    if (request->token > 0 && request->all)
        is_valid = lh_violations_add(v->violations, "all", "must not be given together with token");
    return is_valid;
}
