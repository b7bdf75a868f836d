#include "json/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base64.h"
#include "base/memory.h"

#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/field_mask.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"

static json_t *message_to_json(const ProtobufCMessage *message, enum lh_json_fields fields);

/* Where `field` lives in `message`. */
static const void *member(const ProtobufCMessage *message, unsigned offset)
{
    return (const char *)message + offset;
}

/* --- the special forms of google.protobuf --- */

static void append_fraction(char *text, size_t size, int32_t nanos)
{
    size_t used = strlen(text);
    if (nanos % 1000000 == 0)
        snprintf(text + used, size - used, ".%03d", nanos / 1000000);
    else if (nanos % 1000 == 0)
        snprintf(text + used, size - used, ".%06d", nanos / 1000);
    else
        snprintf(text + used, size - used, ".%09d", nanos);
}

const char *lh_json_duration(int64_t seconds, int32_t nanos, char text[LH_JSON_TIME_BYTES])
{
    bool is_negative = seconds < 0 || nanos < 0;
    uint64_t whole = seconds < 0 ? 0 - (uint64_t)seconds : (uint64_t)seconds;

    snprintf(text, LH_JSON_TIME_BYTES, "%s%" PRIu64, is_negative ? "-" : "", whole);
    if (nanos != 0)
        append_fraction(text, LH_JSON_TIME_BYTES, nanos < 0 ? -nanos : nanos);
    return strcat(text, "s");
}

const char *lh_json_timestamp(int64_t seconds, int32_t nanos, char text[LH_JSON_TIME_BYTES])
{
    time_t when = (time_t)seconds;
    struct tm tm;

    if (gmtime_r(&when, &tm) == NULL || strftime(text, LH_JSON_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        strcpy(text, "out of range");
        return text;
    }
    if (nanos != 0)
        append_fraction(text, LH_JSON_TIME_BYTES, nanos);
    return strcat(text, "Z");
}

/* Names such as "min_duration" travel as "minDuration" in a FieldMask, whatever names the fields themselves have. */
static json_t *mask_to_json(const Google__Protobuf__FieldMask *mask)
{
    struct lh_buffer text = {0};
    json_t *json;

    for (size_t i = 0; i < mask->n_paths; i++) {
        if (i > 0)
            lh_buffer_append(&text, ",", 1);
        for (const char *c = mask->paths[i]; *c != '\0'; c++) {
            if (c[0] == '_' && c[1] >= 'a' && c[1] <= 'z') {
                char upper = (char)(*++c - 'a' + 'A');
                lh_buffer_append(&text, &upper, 1);
            } else {
                lh_buffer_append(&text, c, 1);
            }
        }
    }
    lh_buffer_append(&text, "", 1);
    json = json_string((const char *)text.data);
    lh_buffer_finish(&text);
    return json;
}

static bool is_wrapper(const ProtobufCMessageDescriptor *descriptor)
{
    return strcmp(descriptor->package_name, "google.protobuf") == 0 && descriptor->n_fields == 1 &&
           strcmp(descriptor->fields[0].name, "value") == 0;
}

/* --- values --- */

static json_t *bytes_to_json(const ProtobufCBinaryData *bytes)
{
    struct lh_buffer text = {0};
    json_t *json;

    lh_base64_encode(&text, bytes->data, bytes->len);
    while (text.size % 4 != 0)
        lh_buffer_append(&text, "=", 1);
    lh_buffer_append(&text, "", 1);
    json = json_string((const char *)text.data);
    lh_buffer_finish(&text);
    return json;
}

/* Invalid bytes become "?": jansson would refuse the whole string. */
static json_t *string_to_json(const char *text)
{
    json_t *json = json_string(text != NULL ? text : "");
    if (json == NULL) {
        char *clean = lh_strdup(text);
        for (char *c = clean; *c != '\0'; c++)
            if ((unsigned char)*c >= 0x80)
                *c = '?';
        json = json_string(clean);
        free(clean);
    }
    return json;
}

static json_t *real_to_json(double value)
{
    if (isnan(value))
        return json_string("NaN");
    if (isinf(value))
        return json_string(value > 0 ? "Infinity" : "-Infinity");
    return json_real(value);
}

static json_t *enum_to_json(const ProtobufCEnumDescriptor *descriptor, int value)
{
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(descriptor, value);
    return known != NULL ? json_string(known->name) : json_integer(value);
}

static json_t *value_to_json(const ProtobufCFieldDescriptor *field, const void *at, enum lh_json_fields fields)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return json_sprintf("%" PRId64, *(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return json_sprintf("%" PRIu64, *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return real_to_json((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return real_to_json(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_to_json(field->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        return string_to_json(*(char *const *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return bytes_to_json(at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_to_json(*(ProtobufCMessage *const *)at, fields);
    }
    return json_null();
}

/* Has a field that is neither repeated nor a message its default? A member of a oneof is asked by its case instead. */
static bool is_default(const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return *(const uint64_t *)at == 0;
    case PROTOBUF_C_TYPE_FLOAT:
        return *(const float *)at == 0;
    case PROTOBUF_C_TYPE_DOUBLE:
        return *(const double *)at == 0;
    case PROTOBUF_C_TYPE_BOOL:
        return !*(const protobuf_c_boolean *)at;
    case PROTOBUF_C_TYPE_STRING:
        return *(char *const *)at == NULL || **(char *const *)at == '\0';
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)at)->len == 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(ProtobufCMessage *const *)at == NULL;
    default:
        return *(const uint32_t *)at == 0;
    }
}

/* --- fields --- */

/* protobuf-c does not tell maps from other repeated messages; protoc names their entries after the field, and
 * reserves that name. */
static bool is_map(const ProtobufCMessageDescriptor *parent, const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    const char *name;
    size_t parent_size = strlen(parent->name);
    bool is_upper = true;

    if (field->type != PROTOBUF_C_TYPE_MESSAGE || entry->n_fields != 2 || strcmp(entry->fields[0].name, "key") != 0 ||
        strcmp(entry->fields[1].name, "value") != 0)
        return false;
    if (strncmp(entry->name, parent->name, parent_size) != 0 || entry->name[parent_size] != '.')
        return false;
    name = entry->name + parent_size + 1;
    for (const char *c = field->name; *c != '\0'; c++) {
        if (*c == '_') {
            is_upper = true;
            continue;
        }
        if (*name++ != (is_upper && *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c))
            return false;
        is_upper = false;
    }
    return strcmp(name, "Entry") == 0;
}

/* Keys are strings in JSON, whatever they are in the message. */
static json_t *map_to_json(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *const *entries, size_t count,
                           enum lh_json_fields fields)
{
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    json_t *json = json_object();

    for (size_t i = 0; i < count; i++) {
        json_t *key = value_to_json(&entry->fields[0], member(entries[i], entry->fields[0].offset), fields);
        json_t *value = value_to_json(&entry->fields[1], member(entries[i], entry->fields[1].offset), fields);
        char *text = json_is_string(key) ? lh_strdup(json_string_value(key)) : json_dumps(key, JSON_ENCODE_ANY);
        json_object_set_new(json, text, value);
        json_decref(key);
        free(text);
    }
    return json;
}

static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

static json_t *repeated_to_json(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                enum lh_json_fields fields)
{
    size_t count = *(const size_t *)member(message, field->quantifier_offset);
    const char *elements = *(char *const *)member(message, field->offset);
    json_t *json;

    if (count == 0 && fields == LH_JSON_SET_FIELDS)
        return NULL;
    if (is_map(message->descriptor, field))
        return map_to_json(field, (const ProtobufCMessage *const *)(const void *)elements, count, fields);
    json = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(json, value_to_json(field, elements + i * element_size(field->type), fields));
    return json;
}

/* NULL: left out. */
static json_t *field_to_json(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             enum lh_json_fields fields)
{
    const void *at = member(message, field->offset);

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return repeated_to_json(message, field, fields);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        if (*(const uint32_t *)member(message, field->quantifier_offset) != field->id)
            return NULL;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && is_default(field, at))
            return NULL;
    } else if (is_default(field, at) && (fields == LH_JSON_SET_FIELDS || field->type == PROTOBUF_C_TYPE_MESSAGE)) {
        return NULL;
    }
    return value_to_json(field, at, fields);
}

static json_t *message_to_json(const ProtobufCMessage *message, enum lh_json_fields fields)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    char text[LH_JSON_TIME_BYTES];
    json_t *json;

    if (descriptor == &google__protobuf__duration__descriptor) {
        const Google__Protobuf__Duration *duration = (const void *)message;
        return json_string(lh_json_duration(duration->seconds, duration->nanos, text));
    }
    if (descriptor == &google__protobuf__timestamp__descriptor)
        return json_string(LH_JSON_TIMESTAMP((const Google__Protobuf__Timestamp *)(const void *)message));
    if (descriptor == &google__protobuf__field_mask__descriptor)
        return mask_to_json((const void *)message);
    if (is_wrapper(descriptor))
        return value_to_json(&descriptor->fields[0], member(message, descriptor->fields[0].offset), fields);

    json = json_object();
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        json_t *value = field_to_json(message, &descriptor->fields[i], fields);
        if (value != NULL)
            json_object_set_new(json, descriptor->fields[i].name, value);
    }
    return json;
}

json_t *lh_json_from_message(const ProtobufCMessage *message, enum lh_json_fields fields)
{
    return message_to_json(message, fields);
}

bool lh_json_print(FILE *out, const ProtobufCMessage *message)
{
    json_t *json = lh_json_from_message(message, LH_JSON_ALL_FIELDS);
    bool is_printed = json_dumpf(json, out, JSON_INDENT(2) | JSON_ENCODE_ANY) == 0 && fputc('\n', out) != EOF;
    json_decref(json);
    return is_printed;
}
