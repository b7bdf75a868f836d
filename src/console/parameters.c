#include "console/console_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* --- where parameters come from --- */

static int hex(char digit)
{
    return isdigit((unsigned char)digit) ? digit - '0' : (digit | 32) - 'a' + 10;
}

/* NULL: it is not valid, or has a NUL. */
static json_t *decode(const char *text, size_t size)
{
    char *out = lh_alloc(size + 1);
    size_t used = 0;
    json_t *json;

    for (size_t i = 0; i < size; i++) {
        if (text[i] == '%' && i + 2 < size && isxdigit((unsigned char)text[i + 1]) &&
            isxdigit((unsigned char)text[i + 2])) {
            out[used++] = (char)(hex(text[i + 1]) * 16 + hex(text[i + 2]));
            i += 2;
        } else {
            out[used++] = text[i] == '+' ? ' ' : text[i];
        }
    }
    json = lh_utf8_is_valid(out, used) ? json_stringn(out, used) : NULL;
    free(out);
    return json;
}

json_t *lh_request_query(const char *query)
{
    json_t *parameters = json_object();

    while (*query != '\0') {
        size_t size = strcspn(query, "&"), name_size = strcspn(query, "=&");
        json_t *name = decode(query, name_size);
        json_t *value = name_size < size ? decode(query + name_size + 1, size - name_size - 1) : json_string("");
        bool is_good = name != NULL && value != NULL && json_object_get(parameters, json_string_value(name)) == NULL;

        if (is_good)
            json_object_set(parameters, json_string_value(name), value);
        json_decref(name);
        json_decref(value);
        if (!is_good) {
            json_decref(parameters);
            return NULL;
        }
        query += size + (query[size] == '&');
    }
    return parameters;
}

json_t *lh_request_body(const char *body, size_t size)
{
    json_t *json = json_loadb(body, size, JSON_REJECT_DUPLICATES, NULL);

    if (json_is_object(json))
        return json;
    json_decref(json);
    return NULL;
}

/* --- where they go --- */

static const ProtobufCMessageDescriptor *message_of(const ProtobufCMessageDescriptor *type, const char *field)
{
    const ProtobufCFieldDescriptor *found = lh_json_field(type, field);
    return found != NULL && found->type == PROTOBUF_C_TYPE_MESSAGE ? found->descriptor : NULL;
}

static json_t *segments_of(const char *ns)
{
    json_t *segments = json_array();

    while (*ns != '\0') {
        size_t size = strcspn(ns, ".");
        json_array_append_new(segments, json_stringn(ns, size));
        ns += size + (ns[size] == '.');
        if (ns[-1] == '.' && *ns == '\0')
            json_array_append_new(segments, json_string("")); /* which is refused, with words */
    }
    return segments;
}

static json_t *object_of(json_t *parent, const char *name)
{
    json_t *object = json_object_get(parent, name);

    if (object == NULL) {
        object = json_object();
        json_object_set_new(parent, name, object);
    }
    return object;
}

static void set_namespace(const ProtobufCMessageDescriptor *type, json_t *message, const char *ns)
{
    json_t *segments = segments_of(ns);

    if (lh_json_field(type, "scope") != NULL)
        json_object_set_new(object_of(message, "scope"), "namespace", segments);
    else if (lh_json_field(type, "policy") != NULL)
        json_object_set_new(object_of(message, "policy"), "namespace", json_pack("{s:o}", "segments", segments));
    else if (lh_json_field(type, "namespaces") != NULL)
        json_object_set_new(message, "namespaces", json_pack("[{s:o}]", "segments", segments));
    else if (message_of(type, "namespace") != NULL)
        json_object_set_new(message, "namespace", json_pack("{s:o}", "segments", segments));
    else
        json_object_set_new(message, "namespace", segments);
}

bool lh_request_takes(const ProtobufCMessageDescriptor *type, const char *parameter)
{
    const ProtobufCMessageDescriptor *policy = message_of(type, "policy");

    if (strcmp(parameter, "namespace") == 0 && lh_json_field(type, "namespaces") != NULL)
        return true;
    if (lh_json_field(type, "scope") != NULL && (strcmp(parameter, "namespace") == 0 || strcmp(parameter, "key") == 0))
        return true;
    return lh_json_field(policy != NULL ? policy : type, parameter) != NULL;
}

/* A query has text alone. */
static json_t *value_for(const ProtobufCFieldDescriptor *field, json_t *value)
{
    if (field->type == PROTOBUF_C_TYPE_BOOL && json_is_string(value) &&
        (strcmp(json_string_value(value), "true") == 0 || strcmp(json_string_value(value), "false") == 0))
        return json_boolean(json_string_value(value)[0] == 't');
    return json_incref(value);
}

static bool place(const ProtobufCMessageDescriptor *type, json_t *message, const char *name, json_t *value,
                  struct lh_json_problem *problem)
{
    const ProtobufCMessageDescriptor *policy = message_of(type, "policy");

    if (strcmp(name, "namespace") == 0) {
        if (!json_is_string(value)) {
            *problem = (struct lh_json_problem){"namespace", "must be a string, dotted: payments.invoices"};
            return false;
        }
        set_namespace(type, message, json_string_value(value));
    } else if (strcmp(name, "key") == 0 && lh_json_field(type, "scope") != NULL) {
        json_object_set(object_of(message, "scope"), "key", value);
    } else if (policy != NULL) {
        json_object_set(object_of(message, "policy"), name, value);
        if (json_object_get(message, "update_mask") == NULL)
            json_object_set_new(message, "update_mask", json_array());
        json_array_append_new(json_object_get(message, "update_mask"), json_string(name));
    } else {
        json_object_set_new(message, name, value_for(lh_json_field(type, name), value));
    }
    return true;
}

ProtobufCMessage *lh_request_message(const ProtobufCMessageDescriptor *type, const json_t *parameters,
                                     bool without_page, struct lh_arena *arena, struct lh_json_problem *problem)
{
    ProtobufCMessage *result = NULL;
    json_t *message = json_object(), *value;
    const char *name;
    bool is_good = true;

    json_object_foreach((json_t *)(uintptr_t)parameters, name, value) is_good =
        is_good && (!lh_request_takes(type, name) || (without_page && strncmp(name, "page_", 5) == 0) ||
                    place(type, message, name, value, problem));
    if (is_good)
        result = lh_json_parse(type, message, arena, problem);
    json_decref(message);
    return result;
}
