/*
 * The check: one pass over the bytes, by the descriptor protobuf-c generated, with a frame on the stack for each level. A path is
 * put together only for a finding. https://protobuf.dev/programming-guides/encoding
 */
#include "service/edge/wire.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "service/call_internal.h"

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct frame {
    const struct frame *outer;
    const ProtobufCFieldDescriptor *field; /* whose value this is; NULL: the message itself */
    int64_t index;                         /* in a repeated field, or -1 */
    unsigned depth;
};

struct walk {
    lh_wire_cb *on_finding;
    void *arg;
    size_t fields;
    int64_t reported_item; /* an item is reported once */
    unsigned reported;     /* findings outside of items */
};

/* More findings than that outside of items help nobody. */
#define FINDINGS_MAX 16

struct cursor {
    const uint8_t *at;
    size_t left;
};

/* The largest field number of any message here is 21 (HoldEvent). */
#define SEEN_MAX 32

struct seen {
    uint32_t singular; /* a bit for each number that came */
    uint32_t repeated[SEEN_MAX];
};

static size_t write_path(const struct frame *frame, char *path, size_t used)
{
    if (frame == NULL || frame->field == NULL || used >= LH_WIRE_PATH_BYTES)
        return used;
    used = write_path(frame->outer, path, used);
    if (used >= LH_WIRE_PATH_BYTES)
        return used;
    used += (size_t)snprintf(path + used, LH_WIRE_PATH_BYTES - used, "%s%s", used > 0 ? "." : "", frame->field->name);
    if (frame->index >= 0 && used < LH_WIRE_PATH_BYTES)
        used += (size_t)snprintf(path + used, LH_WIRE_PATH_BYTES - used, "[%lld]", (long long)frame->index);
    return used;
}

static int64_t outermost_index(const struct frame *frame)
{
    int64_t index = -1;
    for (; frame != NULL; frame = frame->outer)
        if (frame->depth == 1)
            index = frame->index;
    return index;
}

static void report(struct walk *walk, const struct frame *frame, bool is_fatal, const char *text)
{
    char path[LH_WIRE_PATH_BYTES] = "";
    struct lh_wire_finding finding = {
        .field = path, .text = text, .item = outermost_index(frame), .is_fatal = is_fatal};

    if (!is_fatal && finding.item >= 0 && finding.item == walk->reported_item)
        return;
    if (!is_fatal && finding.item < 0 && walk->reported++ >= FINDINGS_MAX)
        return;
    walk->reported_item = finding.item;
    write_path(frame, path, 0);
    walk->on_finding(walk->arg, &finding);
}

static bool fatal(struct walk *walk, const struct frame *frame, const char *text)
{
    report(walk, frame, true, text);
    return false;
}

size_t lh_wire_varint(const uint8_t *data, size_t size, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < size && i < 10; i++) {
        *value |= (uint64_t)(data[i] & 0x7f) << (7 * i);
        if ((data[i] & 0x80) == 0)
            return i + 1;
    }
    return 0;
}

static bool take_varint(struct cursor *cursor, uint64_t *value)
{
    size_t size = lh_wire_varint(cursor->at, cursor->left, value);
    cursor->at += size;
    cursor->left -= size;
    return size > 0;
}

static bool take_bytes(struct cursor *cursor, uint64_t size, struct cursor *bytes)
{
    if (size > cursor->left)
        return false;
    bytes->at = cursor->at;
    bytes->left = (size_t)size;
    cursor->at += size;
    cursor->left -= (size_t)size;
    return true;
}

static enum wire_type type_to_wire(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_64;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_32;
    default:
        return WIRE_VARINT;
    }
}

/* The value of a field, of whatever wire type; varints go to *number, the rest to *bytes. */
static bool take_value(struct cursor *cursor, unsigned wire, uint64_t *number, struct cursor *bytes)
{
    uint64_t size;

    switch (wire) {
    case WIRE_VARINT:
        return take_varint(cursor, number);
    case WIRE_64:
        return take_bytes(cursor, 8, bytes);
    case WIRE_32:
        return take_bytes(cursor, 4, bytes);
    case WIRE_BYTES:
        return take_varint(cursor, &size) && take_bytes(cursor, size, bytes);
    default:
        return false; /* groups were never part of proto3 */
    }
}

static void check_string(struct walk *walk, const struct frame *frame, const struct cursor *bytes)
{
    const char *text = (const char *)bytes->at;

    if (lh_utf8_is_valid(text, bytes->left))
        return;
    if (memchr(text, 0, bytes->left) != NULL)
        report(walk, frame, false, "must not contain a NUL character");
    else
        report(walk, frame, false, "must be valid UTF-8");
}

static bool is_packed(const ProtobufCFieldDescriptor *field, unsigned wire)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED && wire == WIRE_BYTES && type_to_wire(field->type) != WIRE_BYTES;
}

static bool check_message(struct walk *walk, const ProtobufCMessageDescriptor *type, struct cursor cursor,
                          const struct frame *frame);

static bool check_value(struct walk *walk, const struct frame *frame, unsigned wire, uint64_t number,
                        const struct cursor *bytes)
{
    const ProtobufCFieldDescriptor *field = frame->field;

    if (is_packed(field, wire))
        return true; /* protobuf-c checks it when it unpacks; no request has such a field */
    if (wire != (unsigned)type_to_wire(field->type))
        return fatal(walk, frame, "has the wrong wire type");
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        check_string(walk, frame, bytes);
        return true;
    case PROTOBUF_C_TYPE_ENUM:
        if (protobuf_c_enum_descriptor_get_value(field->descriptor, (int)(int64_t)number) == NULL)
            report(walk, frame, false, "is an enum value that this server does not know");
        return true;
    case PROTOBUF_C_TYPE_MESSAGE:
        if (frame->depth >= LH_WIRE_DEPTH_MAX)
            return fatal(walk, frame, "is nested too deep");
        return check_message(walk, field->descriptor, *bytes, frame);
    default:
        return true;
    }
}

/* Count this occurrence; the index of a repeated one goes to frame->index. */
static bool note_occurrence(struct walk *walk, struct seen *seen, struct frame *frame)
{
    const ProtobufCFieldDescriptor *field = frame->field;

    if (field->id >= SEEN_MAX)
        return fatal(walk, frame, "has a number that this server cannot check");
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        frame->index = seen->repeated[field->id]++;
        if (frame->index >= LH_WIRE_REPEATED_MAX)
            return fatal(walk, frame, "is one of too many: at most 10000 are taken");
        return true;
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && (seen->singular >> field->id & 1) != 0)
        return fatal(walk, frame, "comes twice");
    seen->singular |= UINT32_C(1) << field->id;
    return true;
}

static bool check_message(struct walk *walk, const ProtobufCMessageDescriptor *type, struct cursor cursor,
                          const struct frame *frame)
{
    struct seen seen = {0};

    while (cursor.left > 0) {
        struct frame inner = {.outer = frame, .index = -1, .depth = frame->depth + 1};
        struct cursor bytes = {0};
        uint64_t tag, number = 0;

        if (!take_varint(&cursor, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911)
            return fatal(walk, frame, "is not a well-formed protobuf message");
        if (!take_value(&cursor, tag & 7, &number, &bytes))
            return fatal(walk, frame, "is not a well-formed protobuf message");
        if (++walk->fields > LH_WIRE_FIELDS_MAX)
            return fatal(walk, frame, "brings the message over the limit of 400000 fields");
        inner.field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (inner.field == NULL)
            continue; /* of a newer client */
        if (!note_occurrence(walk, &seen, &inner) || !check_value(walk, &inner, tag & 7, number, &bytes))
            return false;
    }
    return true;
}

bool lh_wire_check(const ProtobufCMessageDescriptor *type, const void *data, size_t size, lh_wire_cb *on_finding,
                   void *arg)
{
    struct walk walk = {.on_finding = on_finding, .arg = arg, .reported_item = -1};
    struct frame frame = {.index = -1};
    struct cursor cursor = {.at = data, .left = size};

    return check_message(&walk, type, cursor, &frame);
}

static void *arena_alloc(void *arena, size_t size)
{
    return lh_arena_alloc(arena, size);
}

static void arena_free(void *arena, void *memory)
{
    (void)arena;
    (void)memory;
}

ProtobufCMessage *lh_wire_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                                 struct lh_arena *arena)
{
    ProtobufCAllocator allocator = {.alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
    return protobuf_c_message_unpack(type, &allocator, size, data);
}

/* --- the request of a call --- */

static void on_finding(void *arg, const struct lh_wire_finding *finding)
{
    lh_violations_add(arg, finding->field[0] == '\0' ? "message" : finding->field, "%s", finding->text);
}

void *lh_call_unpack_into(const ProtobufCMessageDescriptor *type, const void *data, size_t size, struct lh_arena *arena,
                          struct lh_violations *violations)
{
    ProtobufCMessage *message = NULL;

    if (lh_wire_check(type, data, size, on_finding, violations) && violations->count == 0) {
        message = lh_wire_unpack(type, data, size, arena);
        if (message == NULL)
            lh_violations_add(violations, "message", "is not a well-formed protobuf message");
    }
    return message;
}

void *lh_call_unpack(struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                     struct lh_arena *arena)
{
    struct lh_violations violations = {0};
    void *message = lh_call_unpack_into(type, data, size, arena, &violations);

    if (message == NULL)
        lh_call_refuse(call, &violations);
    return message;
}

const struct lh_method *lh_method_of(const struct lh_rpc_call *call)
{
    return lh_rpc_call_method(call)->arg;
}

bool lh_asked_check(const struct lh_asked *asked, bool is_valid)
{
    if (!is_valid)
        lh_call_refuse(asked->call, &asked->violations);
    return is_valid;
}

void lh_asked_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    const struct lh_method *method = lh_method_of(call);
    struct lh_service *service = lh_call_service(call);
    struct lh_asked asked;
    const void *request;

    if (method->is_traced)
        lh_tracing_begin(call);
    asked.call = call;
    asked.service = service;
    asked.violations.count = asked.violations.omitted = 0; /* by its counts alone: it is large */
    asked.v =
        (struct lh_validator){.arena = &service->scratch, .violations = &asked.violations, .places = service->places};
    request = lh_call_unpack_into(method->request, data, size, &service->scratch, &asked.violations);
    if (lh_asked_check(&asked, request != NULL))
        method->on_request(&asked, request);
    lh_arena_reset(&service->scratch);
}
