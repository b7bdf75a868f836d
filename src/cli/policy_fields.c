#include "cli/policy_fields.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/args.h"
#include "cli/bounds.h"
#include "cli/message.h"

#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/wrappers.pb-c.h"

#define DESCRIPTOR (&leasehold__v1__policy__descriptor)

enum kind {
    KIND_DURATION,
    KIND_BOOL,
    KIND_INT32,
    KIND_INT64,
    KIND_ENUM,
};

static enum kind kind_of(const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_ENUM)
        return KIND_ENUM;
    if (field->descriptor == &google__protobuf__bool_value__descriptor)
        return KIND_BOOL;
    if (field->descriptor == &google__protobuf__int32_value__descriptor)
        return KIND_INT32;
    if (field->descriptor == &google__protobuf__int64_value__descriptor)
        return KIND_INT64;
    return KIND_DURATION;
}

static void *place(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    return (char *)(uintptr_t)policy + field->offset;
}

static void *message_of(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    return *(void **)place(policy, field);
}

size_t lh_policy_fields(const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX])
{
    size_t count = 0;
    for (unsigned i = 0; i < DESCRIPTOR->n_fields && count < LH_POLICY_FIELDS_MAX; i++)
        if (strcmp(DESCRIPTOR->fields[i].name, "namespace") != 0)
            fields[count++] = &DESCRIPTOR->fields[i];
    return count;
}

const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    const char *names[LH_POLICY_FIELDS_MAX + 1];
    size_t count = lh_policy_fields(fields);
    const char *near;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i]->name, name) == 0)
            return fields[i];
        names[i] = fields[i]->name;
    }
    names[count] = NULL;
    near = lh_nearest(name, names);
    if (near != NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "a policy has no setting '%.64s'; did you mean %s?", name, near);
    else
        lh_error_set(error, LH_INVALID_ARGUMENT, "a policy has no setting '%.64s'", name);
    return NULL;
}

bool lh_policy_has(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    return kind_of(field) == KIND_ENUM ? *(int *)place(policy, field) != 0 : message_of(policy, field) != NULL;
}

/* --- from words --- */

static void set_duration(struct lh_arena *arena, const Leasehold__V1__Policy *policy,
                         const ProtobufCFieldDescriptor *field, int64_t duration_us)
{
    *(void **)place(policy, field) = lh_duration_new(arena, duration_us);
}

static void set_bool(struct lh_arena *arena, const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field,
                     bool value)
{
    Google__Protobuf__BoolValue *message = lh_arena_alloc(arena, sizeof(*message));
    google__protobuf__bool_value__init(message);
    message->value = value;
    *(void **)place(policy, field) = message;
}

static void set_number(struct lh_arena *arena, const Leasehold__V1__Policy *policy,
                       const ProtobufCFieldDescriptor *field, int64_t value)
{
    if (kind_of(field) == KIND_INT32) {
        Google__Protobuf__Int32Value *message = lh_arena_alloc(arena, sizeof(*message));
        google__protobuf__int32_value__init(message);
        message->value = (int32_t)value;
        *(void **)place(policy, field) = message;
    } else {
        Google__Protobuf__Int64Value *message = lh_arena_alloc(arena, sizeof(*message));
        google__protobuf__int64_value__init(message);
        message->value = value;
        *(void **)place(policy, field) = message;
    }
}

/* "EXPIRY_TAKEOVER" is "takeover": what follows the first underscore, in lower case. A new string. */
static char *enum_word(const char *name)
{
    const char *underscore = strchr(name, '_');
    char *word = lh_strdup(underscore != NULL ? underscore + 1 : name);
    for (char *c = word; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    return word;
}

static enum lh_status parse_enum(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field,
                                 const char *text, struct lh_error *error)
{
    const ProtobufCEnumDescriptor *descriptor = field->descriptor;
    char choices[128] = "";

    for (unsigned i = 0; i < descriptor->n_values; i++) {
        char *word = enum_word(descriptor->values[i].name);
        bool is_it = strcmp(word, text) == 0;
        size_t used = strlen(choices);

        if (descriptor->values[i].value != 0)
            snprintf(choices + used, sizeof(choices) - used, "%s%s", used > 0 ? ", " : "", word);
        free(word);
        if (is_it && descriptor->values[i].value != 0) {
            *(int *)place(policy, field) = descriptor->values[i].value;
            return LH_OK;
        }
    }
    return lh_error_set(error, LH_INVALID_ARGUMENT, "%s '%.64s' is unknown; it may be one of: %s", field->name, text,
                        choices);
}

static enum lh_status parse_bool(struct lh_arena *arena, const Leasehold__V1__Policy *policy,
                                 const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error)
{
    static const char *const words[][2] = {{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"1", "0"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i][0]) == 0 || strcasecmp(text, words[i][1]) == 0) {
            set_bool(arena, policy, field, strcasecmp(text, words[i][0]) == 0);
            return LH_OK;
        }
    }
    return lh_error_set(error, LH_INVALID_ARGUMENT, "%s '%.64s' is neither true nor false", field->name, text);
}

enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error)
{
    enum lh_status status;
    int64_t number;

    switch (kind_of(field)) {
    case KIND_ENUM:
        return parse_enum(policy, field, text, error);
    case KIND_BOOL:
        return parse_bool(arena, policy, field, text, error);
    case KIND_DURATION:
        status = lh_check_duration(field->name, text, 0, &number, error);
        if (status == LH_OK)
            set_duration(arena, policy, field, number);
        return status;
    default:
        status =
            lh_check_number(field->name, text, 0, kind_of(field) == KIND_INT32 ? INT32_MAX : INT64_MAX, &number, error);
        if (status == LH_OK)
            set_number(arena, policy, field, number);
        return status;
    }
}

/* --- to words --- */

static char *number_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    if (kind_of(field) == KIND_INT32)
        return lh_format("%" PRId32, ((Google__Protobuf__Int32Value *)message_of(policy, field))->value);
    return lh_format("%" PRId64, ((Google__Protobuf__Int64Value *)message_of(policy, field))->value);
}

static char *plain_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    const ProtobufCEnumValue *value;

    switch (kind_of(field)) {
    case KIND_ENUM:
        value = protobuf_c_enum_descriptor_get_value(field->descriptor, *(int *)place(policy, field));
        return value != NULL ? enum_word(value->name) : lh_format("%d", *(int *)place(policy, field));
    case KIND_BOOL:
        return lh_strdup(((Google__Protobuf__BoolValue *)message_of(policy, field))->value ? "true" : "false");
    default:
        return number_text(policy, field);
    }
}

char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    char text[LH_DURATION_TEXT_BYTES];

    if (!lh_policy_has(policy, field))
        return NULL;
    if (kind_of(field) != KIND_DURATION)
        return plain_text(policy, field);
    lh_duration_format(lh_duration_us(message_of(policy, field)), text);
    return lh_strdup(text);
}

char *lh_policy_sql(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    if (!lh_policy_has(policy, field))
        return NULL;
    if (kind_of(field) == KIND_DURATION)
        return lh_format("%" PRId64, lh_duration_us(message_of(policy, field)));
    return plain_text(policy, field);
}

void lh_policy_set_sql(struct lh_arena *arena, Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field,
                       const char *value)
{
    struct lh_error ignored;

    switch (kind_of(field)) {
    case KIND_ENUM:
        parse_enum(policy, field, value, &ignored); /* one that is newer than this program is left out */
        break;
    case KIND_BOOL:
        set_bool(arena, policy, field, value[0] == 't');
        break;
    case KIND_DURATION:
        set_duration(arena, policy, field, strtoll(value, NULL, 10));
        break;
    default:
        set_number(arena, policy, field, strtoll(value, NULL, 10));
    }
}

char *lh_policy_column(const ProtobufCFieldDescriptor *field)
{
    return lh_format("%s%s", field->name, kind_of(field) == KIND_DURATION ? "_us" : "");
}
