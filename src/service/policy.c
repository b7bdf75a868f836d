#include "service/policy.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "service/message.h"

enum kind { KIND_DURATION, KIND_AT_LEAST, KIND_EXPIRY, KIND_REAPER, KIND_BOOL, KIND_INT64, KIND_INT32 };

/* `least` is in microseconds for durations. `most` 0: there is none. */
static const struct field {
    enum kind kind;
    size_t offset;
    int64_t least;
    int64_t most;
} fields[LH_POLICY_FIELD_COUNT] = {
#define FIELD(member) offsetof(Leasehold__V1__Policy, member)
    [LH_POLICY_MIN_DURATION] = {KIND_DURATION, FIELD(min_duration), LH_DURATION_MIN_US},
    [LH_POLICY_MAX_DURATION] = {KIND_DURATION, FIELD(max_duration), LH_DURATION_MIN_US},
    [LH_POLICY_GRACE] = {KIND_DURATION, FIELD(grace), 0},
    [LH_POLICY_MAX_HOLD] = {KIND_DURATION, FIELD(max_hold), 1},
    [LH_POLICY_DEAD_AFTER] = {KIND_DURATION, FIELD(dead_after), 1},
    [LH_POLICY_EXPIRY] = {KIND_EXPIRY, FIELD(expiry), 0},
    [LH_POLICY_REAPER] = {KIND_REAPER, FIELD(reaper), 0},
    [LH_POLICY_FROZEN] = {KIND_BOOL, FIELD(frozen), 0},
    [LH_POLICY_MAX_LEASES] = {KIND_INT64, FIELD(max_leases), 0},
    [LH_POLICY_MAX_WAITERS] = {KIND_INT64, FIELD(max_waiters), 0},
    [LH_POLICY_HISTORY] = {KIND_BOOL, FIELD(history), 0},
    [LH_POLICY_MAX_REAP_FAILURES] = {KIND_INT32, FIELD(max_reap_failures), 1},
    [LH_POLICY_HOOK_TIMEOUT] = {KIND_DURATION, FIELD(hook_timeout), 1000},
    [LH_POLICY_FREE_RETENTION] = {KIND_DURATION, FIELD(free_retention), 0},
    [LH_POLICY_HISTORY_RETENTION] = {KIND_DURATION, FIELD(history_retention), 0},
    [LH_POLICY_AT_LEAST] = {KIND_AT_LEAST, FIELD(at_least), 0},
    [LH_POLICY_CAPACITY] = {KIND_INT32, FIELD(capacity), 1, LH_UNITS_MAX},
    [LH_POLICY_END_AT_MAX_HOLD] = {KIND_BOOL, FIELD(end_at_max_hold), 0},
#undef FIELD
};

static const char *const expiry_names[] = {
    [LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_TAKEOVER] = "takeover",
    [LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_REAP] = "reap",
    [LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_MANUAL] = "manual",
};

static const char *const reaper_names[] = {
    [LEASEHOLD__V1__POLICY__REAPER__REAPER_AUTO] = "auto",
    [LEASEHOLD__V1__POLICY__REAPER__REAPER_EXTERNAL] = "external",
};

/* 0 (UNSPECIFIED) when it is none of them. */
static int name_to_enum(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 1; i < count; i++)
        if (name != NULL && strcmp(names[i], name) == 0)
            return (int)i;
    return 0;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const void *member_of(const Leasehold__V1__Policy *message, enum lh_policy_field field)
{
    return (const char *)message + fields[field].offset;
}

static void *pointer_of(const Leasehold__V1__Policy *message, enum lh_policy_field field)
{
    void *pointer;
    memcpy(&pointer, member_of(message, field), sizeof(pointer));
    return pointer;
}

static bool is_present(const Leasehold__V1__Policy *message, enum lh_policy_field field)
{
    if (fields[field].kind == KIND_EXPIRY)
        return message->expiry != LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_UNSPECIFIED;
    if (fields[field].kind == KIND_REAPER)
        return message->reaper != LEASEHOLD__V1__POLICY__REAPER__REAPER_UNSPECIFIED;
    return pointer_of(message, field) != NULL;
}

static bool read_field(struct lh_validator *v, const Leasehold__V1__Policy *message, enum lh_policy_field field,
                       struct lh_policy_value *value)
{
    char path[LH_VIOLATION_FIELD_BYTES];

    snprintf(path, sizeof(path), "policy.%s", lh_policy_field_name(field));
    value->text = NULL;
    switch (fields[field].kind) {
    case KIND_DURATION:
        return lh_validate_duration(v, pointer_of(message, field), fields[field].least, path, &value->number);
    case KIND_AT_LEAST:
        return lh_validate_at_least(v, pointer_of(message, field), path, &value->number);
    case KIND_EXPIRY:
        value->text = expiry_names[message->expiry];
        return true;
    case KIND_REAPER:
        value->text = reaper_names[message->reaper];
        return true;
    case KIND_BOOL:
        value->number = ((Google__Protobuf__BoolValue *)pointer_of(message, field))->value != 0;
        return true;
    case KIND_INT64:
        value->number = ((Google__Protobuf__Int64Value *)pointer_of(message, field))->value;
        break;
    case KIND_INT32:
        value->number = ((Google__Protobuf__Int32Value *)pointer_of(message, field))->value;
        break;
    }
    if (fields[field].most > 0 && value->number > fields[field].most)
        return lh_violations_add(v->violations, path, "must be at most %lld, is %lld", (long long)fields[field].most,
                                 (long long)value->number);
    if (value->number >= fields[field].least)
        return true;
    return lh_violations_add(v->violations, path, "must be at least %lld, is %lld", (long long)fields[field].least,
                             (long long)value->number);
}

static bool add_path(struct lh_validator *v, const char *path, uint32_t *mask)
{
    if (strcmp(path, "*") == 0) {
        *mask = (UINT32_C(1) << LH_POLICY_FIELD_COUNT) - 1;
        return true;
    }
    for (unsigned field = 0; field < LH_POLICY_FIELD_COUNT; field++) {
        if (strcmp(path, lh_policy_field_name((enum lh_policy_field)field)) == 0) {
            *mask |= UINT32_C(1) << field;
            return true;
        }
    }
    return lh_violations_add(v->violations, "update_mask",
                             "must name settings of leasehold.v1.Policy; \"%.*s\" is none",
                             (int)lh_utf8_cut(path, strlen(path), 63), path);
}

static bool read_mask(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request, uint32_t *mask)
{
    const Google__Protobuf__FieldMask *update = request->update_mask;
    bool is_valid = true;

    *mask = 0;
    for (size_t i = 0; update != NULL && i < update->n_paths; i++)
        is_valid &= add_path(v, update->paths[i], mask);
    if (update == NULL || update->n_paths == 0)
        for (unsigned field = 0; field < LH_POLICY_FIELD_COUNT; field++)
            if (is_present(request->policy, (enum lh_policy_field)field))
                *mask |= UINT32_C(1) << field;
    if (is_valid && *mask == 0)
        is_valid = lh_violations_add(v->violations, "update_mask", "must name a setting, or policy must have one");
    return is_valid;
}

bool lh_policy_from_request(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                            struct lh_policy *policy, uint32_t *mask)
{
    const Leasehold__V1__Namespace *ns;
    bool is_valid;

    memset(policy, 0, sizeof(*policy));
    policy->ns = "";
    if (request->policy == NULL)
        return lh_violations_add(v->violations, "policy", "must be given");
    ns = request->policy->namespace_;
    is_valid = ns == NULL ||
               lh_validate_namespace(v, ns->segments, ns->n_segments, true, "policy.namespace.segments", &policy->ns);
    is_valid &= read_mask(v, request, mask);
    for (unsigned i = 0; i < LH_POLICY_FIELD_COUNT; i++) {
        enum lh_policy_field field = (enum lh_policy_field)i;
        if ((*mask >> i & 1) == 0 || !is_present(request->policy, field))
            continue;
        policy->set |= UINT32_C(1) << i;
        is_valid &= read_field(v, request->policy, field, &policy->values[i]);
    }
    if (is_valid && (policy->set >> LH_POLICY_MIN_DURATION & 1) != 0 &&
        (policy->set >> LH_POLICY_MAX_DURATION & 1) != 0 &&
        policy->values[LH_POLICY_MAX_DURATION].number < policy->values[LH_POLICY_MIN_DURATION].number)
        is_valid = lh_violations_add(v->violations, "policy.max_duration", "must not be below min_duration");
    return is_valid;
}

static void *new_wrapper(enum kind kind, int64_t number, struct lh_arena *arena)
{
    Google__Protobuf__BoolValue *boolean;
    Google__Protobuf__Int64Value *int64;
    Google__Protobuf__Int32Value *int32;

    switch (kind) {
    case KIND_DURATION:
    case KIND_AT_LEAST:
        return lh_message_duration(number, arena);
    case KIND_BOOL:
        boolean = lh_arena_alloc(arena, sizeof(*boolean));
        google__protobuf__bool_value__init(boolean);
        boolean->value = number != 0;
        return boolean;
    case KIND_INT64:
        int64 = lh_arena_alloc(arena, sizeof(*int64));
        google__protobuf__int64_value__init(int64);
        int64->value = number;
        return int64;
    default:
        int32 = lh_arena_alloc(arena, sizeof(*int32));
        google__protobuf__int32_value__init(int32);
        int32->value = (int32_t)number;
        return int32;
    }
}

Leasehold__V1__Policy *lh_policy_to_message(const struct lh_policy *policy, struct lh_arena *arena)
{
    Leasehold__V1__Policy *message;

    if (policy == NULL)
        return NULL;
    message = lh_arena_alloc(arena, sizeof(*message));
    leasehold__v1__policy__init(message);
    message->namespace_ = lh_message_namespace(policy->ns, arena);
    for (unsigned i = 0; i < LH_POLICY_FIELD_COUNT; i++) {
        const struct lh_policy_value *value = &policy->values[i];
        void *pointer;
        if ((policy->set >> i & 1) == 0)
            continue;
        if (fields[i].kind == KIND_EXPIRY) {
            message->expiry =
                (Leasehold__V1__Policy__Expiry)name_to_enum(expiry_names, COUNT(expiry_names), value->text);
            continue;
        }
        if (fields[i].kind == KIND_REAPER) {
            message->reaper =
                (Leasehold__V1__Policy__Reaper)name_to_enum(reaper_names, COUNT(reaper_names), value->text);
            continue;
        }
        pointer = new_wrapper(fields[i].kind, value->number, arena);
        memcpy((char *)message + fields[i].offset, &pointer, sizeof(pointer));
    }
    return message;
}

size_t lh_policy_sources(const struct lh_policy *policy, struct lh_arena *arena,
                         Leasehold__V1__GetPolicyResponse__SourceEntry ***entries)
{
    size_t count = 0;

    *entries = lh_arena_alloc(arena, LH_POLICY_FIELD_COUNT * sizeof(**entries));
    for (unsigned i = 0; policy != NULL && i < LH_POLICY_FIELD_COUNT; i++) {
        Leasehold__V1__GetPolicyResponse__SourceEntry *entry;
        if (policy->sources[i] == NULL)
            continue;
        entry = lh_arena_alloc(arena, sizeof(*entry));
        leasehold__v1__get_policy_response__source_entry__init(entry);
        entry->key = lh_arena_strdup(arena, lh_policy_field_name((enum lh_policy_field)i));
        entry->value = lh_arena_strdup(arena, policy->sources[i]);
        (*entries)[count++] = entry;
    }
    return count;
}
