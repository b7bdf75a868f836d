#include "trace/trace_internal.h"

#include <stdio.h>
#include <string.h>

#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "rpc/grpc.h"

#define NS_PER_US 1000
#define ATTRIBUTES_MAX 10
/* SpanFlags: it is known whether the parent is of another process, and it is. */
#define HAS_IS_REMOTE 0x100u
#define IS_REMOTE 0x200u

typedef Opentelemetry__Proto__Common__V1__KeyValue Attribute;
typedef Opentelemetry__Proto__Common__V1__AnyValue Value;

struct attributes {
    struct lh_arena *arena;
    Attribute **list;
    size_t count;
};

static struct attributes attributes_of(struct lh_arena *arena)
{
    return (struct attributes){arena, lh_arena_alloc(arena, ATTRIBUTES_MAX * sizeof(Attribute *)), 0};
}

static Value *add(struct attributes *attributes, const char *key)
{
    Attribute *attribute = lh_arena_alloc(attributes->arena, sizeof(*attribute));

    opentelemetry__proto__common__v1__key_value__init(attribute);
    attribute->key = (char *)(uintptr_t)key;
    attribute->value = lh_arena_alloc(attributes->arena, sizeof(*attribute->value));
    opentelemetry__proto__common__v1__any_value__init(attribute->value);
    attributes->list[attributes->count++] = attribute;
    return attribute->value;
}

static void add_text(struct attributes *attributes, const char *key, const char *text)
{
    if (text != NULL) {
        Value *value = add(attributes, key);
        value->value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE;
        value->string_value = lh_arena_strdup(attributes->arena, text);
    }
}

static void add_number(struct attributes *attributes, const char *key, int64_t number)
{
    Value *value = add(attributes, key);
    value->value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE;
    value->int_value = number;
}

/* https://opentelemetry.io/docs/specs/semconv/rpc/grpc/ */
static void add_call(struct attributes *attributes, const struct lh_span *span)
{
    const struct lh_span_call *call = span->call;
    char *service = lh_arena_strdup(attributes->arena, span->name);
    char *slash = strchr(service, '/');

    *slash = '\0';
    add_text(attributes, "rpc.system", "grpc");
    add_text(attributes, "rpc.service", service);
    add_text(attributes, "rpc.method", slash + 1);
    add_number(attributes, "rpc.grpc.status_code", call->code);
    add_text(attributes, "leasehold.namespace", call->ns);
    add_text(attributes, "leasehold.key", call->key);
    add_text(attributes, "leasehold.outcome", call->outcome);
    if (call->token > 0)
        add_number(attributes, "leasehold.token", call->token);
}

/* The codes that are a server's fault, by the same page. */
static bool is_error(int code)
{
    return code == LH_GRPC_UNKNOWN || code == LH_GRPC_DEADLINE_EXCEEDED || code == LH_GRPC_UNIMPLEMENTED ||
           code == LH_GRPC_INTERNAL || code == LH_GRPC_UNAVAILABLE || code == LH_GRPC_DATA_LOSS;
}

static ProtobufCBinaryData bytes_of(const uint8_t *bytes, size_t size)
{
    return (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)bytes};
}

static Opentelemetry__Proto__Trace__V1__Span *encode_span(const struct lh_span *span, struct lh_arena *arena)
{
    static const uint8_t none[LH_SPAN_ID_BYTES];
    Opentelemetry__Proto__Trace__V1__Span *encoded = lh_arena_alloc(arena, sizeof(*encoded));
    struct attributes attributes = attributes_of(arena);

    opentelemetry__proto__trace__v1__span__init(encoded);
    encoded->trace_id = bytes_of(span->trace_id, LH_TRACE_ID_BYTES);
    encoded->span_id = bytes_of(span->id, LH_SPAN_ID_BYTES);
    if (memcmp(span->parent_id, none, LH_SPAN_ID_BYTES) != 0)
        encoded->parent_span_id = bytes_of(span->parent_id, LH_SPAN_ID_BYTES);
    encoded->flags = span->flags | HAS_IS_REMOTE;
    encoded->name = (char *)(uintptr_t)span->name;
    encoded->kind = OPENTELEMETRY__PROTO__TRACE__V1__SPAN__SPAN_KIND__SPAN_KIND_INTERNAL;
    encoded->start_time_unix_nano = (uint64_t)span->start_us * NS_PER_US;
    encoded->end_time_unix_nano = (uint64_t)span->end_us * NS_PER_US;
    if (span->call != NULL) {
        encoded->kind = OPENTELEMETRY__PROTO__TRACE__V1__SPAN__SPAN_KIND__SPAN_KIND_SERVER;
        encoded->flags |= span->call->is_child ? IS_REMOTE : 0;
        add_call(&attributes, span);
        if (is_error(span->call->code)) {
            encoded->status = lh_arena_alloc(arena, sizeof(*encoded->status));
            opentelemetry__proto__trace__v1__status__init(encoded->status);
            encoded->status->code = OPENTELEMETRY__PROTO__TRACE__V1__STATUS__STATUS_CODE__STATUS_CODE_ERROR;
        }
    }
    if (span->items > 0)
        add_number(&attributes, "leasehold.items", (int64_t)span->items);
    encoded->attributes = attributes.list;
    encoded->n_attributes = attributes.count;
    return encoded;
}

size_t lh_export_request(const struct lh_span_ring *ring, size_t count, const struct lh_trace_resource *resource,
                         struct lh_arena *arena, const void **data)
{
    Opentelemetry__Proto__Collector__Trace__V1__ExportTraceServiceRequest request =
        OPENTELEMETRY__PROTO__COLLECTOR__TRACE__V1__EXPORT_TRACE_SERVICE_REQUEST__INIT;
    Opentelemetry__Proto__Trace__V1__ResourceSpans of_resource, *resource_list[] = {&of_resource};
    Opentelemetry__Proto__Trace__V1__ScopeSpans of_scope, *scope_list[] = {&of_scope};
    Opentelemetry__Proto__Common__V1__InstrumentationScope scope =
        OPENTELEMETRY__PROTO__COMMON__V1__INSTRUMENTATION_SCOPE__INIT;
    Opentelemetry__Proto__Resource__V1__Resource described = OPENTELEMETRY__PROTO__RESOURCE__V1__RESOURCE__INIT;
    struct attributes attributes = attributes_of(arena);
    uint8_t *packed;
    size_t size;

    scope.name = (char *)(uintptr_t) "leasehold";
    scope.version = (char *)(uintptr_t)resource->version;
    opentelemetry__proto__trace__v1__scope_spans__init(&of_scope);
    of_scope.scope = &scope;
    of_scope.n_spans = count;
    of_scope.spans = lh_arena_alloc(arena, count * sizeof(of_scope.spans[0]));
    for (size_t i = 0; i < count; i++)
        of_scope.spans[i] = encode_span(lh_span_ring_at(ring, i), arena);

    add_text(&attributes, "service.name", "leaseholdd");
    add_text(&attributes, "service.version", resource->version);
    add_text(&attributes, "service.instance.id", resource->instance);
    described.attributes = attributes.list;
    described.n_attributes = attributes.count;
    opentelemetry__proto__trace__v1__resource_spans__init(&of_resource);
    of_resource.resource = &described;
    of_resource.n_scope_spans = 1;
    of_resource.scope_spans = scope_list;

    request.n_resource_spans = 1;
    request.resource_spans = resource_list;
    size = protobuf_c_message_get_packed_size(&request.base);
    packed = lh_arena_alloc(arena, size + 1);
    protobuf_c_message_pack(&request.base, packed);
    *data = packed;
    return size;
}

int64_t lh_export_rejected(const void *data, size_t size, char *why, size_t why_bytes)
{
    Opentelemetry__Proto__Collector__Trace__V1__ExportTraceServiceResponse *response =
        opentelemetry__proto__collector__trace__v1__export_trace_service_response__unpack(NULL, size, data);
    int64_t rejected = 0;

    if (response != NULL && response->partial_success != NULL) {
        rejected = response->partial_success->rejected_spans;
        snprintf(why, why_bytes, "%s", response->partial_success->error_message);
    }
    if (response != NULL)
        opentelemetry__proto__collector__trace__v1__export_trace_service_response__free_unpacked(response, NULL);
    return rejected;
}
