#include "json/policy_setting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "json/row_message.h"

#define DESCRIPTOR (&leasehold__v1__policy__descriptor)
#define SECONDS_MAX (INT64_MAX / LH_US_PER_S / 4)

size_t lh_policy_settings(const ProtobufCFieldDescriptor *settings[LH_POLICY_SETTINGS_MAX])
{
    size_t count = 0;

    for (unsigned i = 0; i < DESCRIPTOR->n_fields && count < LH_POLICY_SETTINGS_MAX; i++)
        if (strcmp(DESCRIPTOR->fields[i].name, "namespace") != 0)
            settings[count++] = &DESCRIPTOR->fields[i];
    return count;
}

const ProtobufCFieldDescriptor *lh_policy_setting(const char *name)
{
    if (strcmp(name, "namespace") == 0)
        return NULL;
    return protobuf_c_message_descriptor_get_field_by_name(DESCRIPTOR, name);
}

enum lh_setting_kind lh_policy_setting_kind(const ProtobufCFieldDescriptor *setting)
{
    if (setting->type == PROTOBUF_C_TYPE_ENUM)
        return LH_SETTING_ENUM;
    if (setting->descriptor == &google__protobuf__bool_value__descriptor)
        return LH_SETTING_BOOL;
    if (setting->descriptor == &google__protobuf__int32_value__descriptor)
        return LH_SETTING_INT32;
    if (setting->descriptor == &google__protobuf__int64_value__descriptor)
        return LH_SETTING_INT64;
    return LH_SETTING_DURATION;
}

static const void *value_of(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting)
{
    const void *at = (const char *)policy + setting->offset;

    return setting->type == PROTOBUF_C_TYPE_ENUM ? at : *(const void *const *)at;
}

bool lh_policy_has(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting)
{
    const void *value = value_of(policy, setting);

    return setting->type == PROTOBUF_C_TYPE_ENUM ? *(const int *)value != 0 : value != NULL;
}

int64_t lh_policy_number(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting)
{
    const void *value = value_of(policy, setting);
    const Google__Protobuf__Duration *duration = value;
    int64_t seconds;

    switch (lh_policy_setting_kind(setting)) {
    case LH_SETTING_ENUM:
        return *(const int *)value;
    case LH_SETTING_BOOL:
        return ((const Google__Protobuf__BoolValue *)value)->value != 0;
    case LH_SETTING_INT32:
        return ((const Google__Protobuf__Int32Value *)value)->value;
    case LH_SETTING_INT64:
        return ((const Google__Protobuf__Int64Value *)value)->value;
    default:
        seconds = duration->seconds < SECONDS_MAX ? duration->seconds : SECONDS_MAX;
        return (seconds > -SECONDS_MAX ? seconds : -SECONDS_MAX) * LH_US_PER_S + duration->nanos / 1000;
    }
}

const char *lh_policy_value(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting,
                            struct lh_arena *arena)
{
    int64_t number;

    if (!lh_policy_has(policy, setting))
        return NULL;
    number = lh_policy_number(policy, setting);
    switch (lh_policy_setting_kind(setting)) {
    case LH_SETTING_ENUM:
        return lh_message_word(setting->descriptor, (int)number, arena);
    case LH_SETTING_BOOL:
        return lh_arena_strdup(arena, number != 0 ? "true" : "false");
    default:
        return lh_arena_format(arena, "%" PRId64, number);
    }
}

/* They come as lines, in the order of the columns. */
static void add_sources(Leasehold__V1__GetPolicyResponse *response, const struct lh_rows *rows, struct lh_arena *arena)
{
    const char *lines = lh_rows_cell(rows, 1, "source_lines");
    char *rest = lines == NULL ? NULL : lh_arena_strdup(arena, lines);

    response->source = lh_arena_alloc(arena, rows->column_count * sizeof(*response->source));
    for (size_t i = 0; i < rows->column_count && rest != NULL; i++) {
        Leasehold__V1__GetPolicyResponse__SourceEntry *entry;
        char *name = lh_arena_strdup(arena, rows->columns[i]);
        size_t size = strlen(name);
        if (size > 3 && strcmp(name + size - 3, "_us") == 0)
            name[size - 3] = '\0';
        if (lh_policy_setting(name) == NULL)
            continue;
        entry = lh_message_new(&leasehold__v1__get_policy_response__source_entry__descriptor, arena);
        entry->key = name;
        entry->value = strsep(&rest, "\n");
        response->source[response->n_source++] = entry;
    }
}

void lh_policy_from_rows(Leasehold__V1__GetPolicyResponse *response, const struct lh_rows *rows, struct lh_arena *arena)
{
    leasehold__v1__get_policy_response__init(response);
    if (rows->row_count > 0)
        response->own = lh_row_message(DESCRIPTOR, rows, 0, arena);
    if (rows->row_count < 2)
        return;
    response->effective = lh_row_message(DESCRIPTOR, rows, 1, arena);
    add_sources(response, rows, arena);
}
