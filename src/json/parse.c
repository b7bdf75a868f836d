#include "json/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/field_mask.pb-c.h"
#include "google/protobuf/wrappers.pb-c.h"

struct parser {
    struct lh_arena *arena;
    struct lh_json_problem *problem;
    const char *field; /* that is being read */
    int depth;
};

static bool fail(const struct parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(const struct parser *parser, const char *format, ...)
{
    va_list args;

    snprintf(parser->problem->field, sizeof(parser->problem->field), "%s", parser->field);
    va_start(args, format);
    vsnprintf(parser->problem->words, sizeof(parser->problem->words), format, args);
    va_end(args);
    return false;
}

static void *member(ProtobufCMessage *message, unsigned offset)
{
    return (char *)message + offset;
}

const ProtobufCFieldDescriptor *lh_json_field(const ProtobufCMessageDescriptor *type, const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, name);
}

/* --- values --- */

static bool parse_text(struct parser *parser, const json_t *json, char **text)
{
    if (!json_is_string(json))
        return fail(parser, "must be a string");
    if (strlen(json_string_value(json)) != json_string_length(json))
        return fail(parser, "must have no NUL");
    *text = lh_arena_strdup(parser->arena, json_string_value(json));
    return true;
}

static bool parse_integer(struct parser *parser, const json_t *json, int64_t least, int64_t most, int64_t *value)
{
    char *end;

    if (json_is_integer(json)) {
        *value = json_integer_value(json);
    } else if (json_is_string(json) && json_string_length(json) > 0) {
        errno = 0;
        *value = strtoll(json_string_value(json), &end, 10);
        if (errno != 0 || *end != '\0' || strchr("0123456789-", *json_string_value(json)) == NULL)
            return fail(parser, "must be a whole number");
    } else {
        return fail(parser, "must be a whole number");
    }
    if (*value < least || *value > most)
        return fail(parser, "must be between %" PRId64 " and %" PRId64 ", is %" PRId64, least, most, *value);
    return true;
}

static bool parse_bool(struct parser *parser, const json_t *json, protobuf_c_boolean *value)
{
    if (!json_is_boolean(json))
        return fail(parser, "must be true or false");
    *value = json_is_true(json);
    return true;
}

static bool parse_enum(struct parser *parser, const ProtobufCEnumDescriptor *type, const json_t *json, int *value)
{
    const ProtobufCEnumValue *found =
        json_is_string(json) ? protobuf_c_enum_descriptor_get_value_by_name(type, json_string_value(json)) : NULL;

    if (found == NULL)
        return fail(parser, "must be the name of a value of %s", type->short_name);
    *value = found->value;
    return true;
}

/* "1.5s", "-3s": an optional sign, digits, up to nine digits behind a point. */
static bool parse_duration(struct parser *parser, const json_t *json, Google__Protobuf__Duration *duration)
{
    const char *text = json_is_string(json) ? json_string_value(json) : "";
    bool is_negative = *text == '-';
    const char *digits = text + is_negative;
    size_t whole = strspn(digits, "0123456789"), part = 0;
    int32_t nanos = 0;

    if (digits[whole] == '.')
        part = strspn(digits + whole + 1, "0123456789");
    if (whole == 0 || whole > 12 || part > 9 ||
        strcmp(digits + whole + (digits[whole] == '.' ? part + 1 : 0), "s") != 0)
        return fail(parser, "must be seconds such as \"1.5s\"");
    for (size_t i = 0; i < 9; i++)
        nanos = nanos * 10 + (i < part ? digits[whole + 1 + i] - '0' : 0);
    duration->seconds = strtoll(digits, NULL, 10) * (is_negative ? -1 : 1);
    duration->nanos = is_negative ? -nanos : nanos;
    return true;
}

static bool parse_mask(struct parser *parser, const json_t *json, Google__Protobuf__FieldMask *mask)
{
    size_t count = json_array_size(json);

    mask->paths = lh_arena_alloc(parser->arena, (count + 1) * sizeof(*mask->paths));
    for (; mask->n_paths < count; mask->n_paths++)
        if (!parse_text(parser, json_array_get(json, mask->n_paths), &mask->paths[mask->n_paths]))
            return false;
    return true;
}

static bool is_wrapper(const ProtobufCMessageDescriptor *type)
{
    return type == &google__protobuf__bool_value__descriptor || type == &google__protobuf__int32_value__descriptor ||
           type == &google__protobuf__int64_value__descriptor || type == &google__protobuf__string_value__descriptor;
}

/* --- fields --- */

static bool parse_message(struct parser *parser, const ProtobufCMessageDescriptor *type, const json_t *json,
                          ProtobufCMessage **message);

static bool parse_value(struct parser *parser, const ProtobufCFieldDescriptor *field, const json_t *json, void *at)
{
    int64_t number;

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return parse_text(parser, json, at);
    case PROTOBUF_C_TYPE_BOOL:
        return parse_bool(parser, json, at);
    case PROTOBUF_C_TYPE_INT32:
        if (!parse_integer(parser, json, INT32_MIN, INT32_MAX, &number))
            return false;
        *(int32_t *)at = (int32_t)number;
        return true;
    case PROTOBUF_C_TYPE_INT64:
        return parse_integer(parser, json, INT64_MIN, INT64_MAX, at);
    case PROTOBUF_C_TYPE_ENUM:
        return parse_enum(parser, field->descriptor, json, at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return parse_message(parser, field->descriptor, json, at);
    default:
        return fail(parser, "cannot be set in JSON");
    }
}

static size_t element_size(ProtobufCType type)
{
    return type == PROTOBUF_C_TYPE_STRING || type == PROTOBUF_C_TYPE_MESSAGE ? sizeof(void *) : sizeof(int64_t);
}

/* Lists of strings and of messages: no request has another one. */
static bool parse_list(struct parser *parser, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       const json_t *json)
{
    size_t *count = member(message, field->quantifier_offset);
    size_t size = element_size(field->type);
    char *elements;

    if (!json_is_array(json) || size != sizeof(void *))
        return fail(parser, "must be a list");
    elements = lh_arena_alloc(parser->arena, (json_array_size(json) + 1) * size);
    *(void **)member(message, field->offset) = elements;
    for (; *count < json_array_size(json); (*count)++)
        if (!parse_value(parser, field, json_array_get(json, *count), elements + *count * size))
            return false;
    return true;
}

static bool parse_field(struct parser *parser, ProtobufCMessage *message, const char *name, const json_t *json)
{
    const ProtobufCFieldDescriptor *field = lh_json_field(message->descriptor, name);

    parser->field = name;
    if (field == NULL)
        return fail(parser, "is not known");
    if (json_is_null(json))
        return true;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return parse_list(parser, message, field, json);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        *(uint32_t *)member(message, field->quantifier_offset) = field->id;
    return parse_value(parser, field, json, member(message, field->offset));
}

static bool parse_fields(struct parser *parser, ProtobufCMessage *message, const json_t *json)
{
    const char *name;
    json_t *value;

    if (!json_is_object(json))
        return fail(parser, "must be an object");
    json_object_foreach((json_t *)(uintptr_t)json, name,
                        value) if (!parse_field(parser, message, name, value)) return false;
    return true;
}

static bool parse_message(struct parser *parser, const ProtobufCMessageDescriptor *type, const json_t *json,
                          ProtobufCMessage **message)
{
    bool is_good;

    if (parser->depth == LH_JSON_DEPTH_MAX)
        return fail(parser, "is nested too deeply");
    parser->depth++;
    *message = lh_arena_alloc(parser->arena, type->sizeof_message);
    protobuf_c_message_init(type, *message);
    if (type == &google__protobuf__duration__descriptor)
        is_good = parse_duration(parser, json, (void *)*message);
    else if (type == &google__protobuf__field_mask__descriptor)
        is_good = parse_mask(parser, json, (void *)*message);
    else if (is_wrapper(type))
        is_good = parse_value(parser, &type->fields[0], json, member(*message, type->fields[0].offset));
    else
        is_good = parse_fields(parser, *message, json);
    parser->depth--;
    return is_good;
}

ProtobufCMessage *lh_json_parse(const ProtobufCMessageDescriptor *type, const json_t *json, struct lh_arena *arena,
                                struct lh_json_problem *problem)
{
    struct parser parser = {.arena = arena, .problem = problem, .field = "message"};
    ProtobufCMessage *message = NULL;

    return parse_message(&parser, type, json, &message) ? message : NULL;
}
