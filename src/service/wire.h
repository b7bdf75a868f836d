/*
 * Look at a protobuf message before anything is unpacked from it. protobuf-c takes strings with NUL or broken UTF-8,
 * unknown enum values, and any number of fields; here they are found first, and named.
 *
 *     if (!lh_wire_check(&leasehold__v1__acquire_request__descriptor, data, size, on_violation, &violations))
 *         refuse: unpacking it would fail or cost too much
 *
 * Two kinds of finding. Bad content (a string, an enum value): the message can be unpacked, and the caller decides;
 * in a batch only the item it belongs to suffers. Not well-formed, or over a bound of this file: nothing may be
 * unpacked.
 */
#ifndef LH_SERVICE_WIRE_H
#define LH_SERVICE_WIRE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* No request nests deeper than 4. */
#define LH_WIRE_DEPTH_MAX 16
/* Elements of one repeated field of the request itself: the most items that a batch may have. */
#define LH_WIRE_REPEATED_MAX 10000
/* Fields in all: 10,000 items with everything at its limit have 22 each. Unpacked, a field costs 16 to 100 bytes. */
#define LH_WIRE_FIELDS_MAX 400000

#define LH_WIRE_PATH_BYTES 160

struct lh_wire_finding {
    const char *field; /* the path, "scope.namespace[1]"; "" when it is the message itself */
    const char *text;  /* "must not contain a NUL character" */
    int64_t item;      /* which element of the request's own repeated field it lies in, -1: none */
    bool is_fatal;     /* the last finding, lh_wire_check returns false */
};

typedef void lh_wire_cb(void *arg, const struct lh_wire_finding *finding);

/*
 * Reports the first finding of each item, and the first 16 outside of items.
 * False: not well-formed, nested too deep, too many fields, or a singular message field that comes twice (merging those
 * costs quadratic time, and no encoder sends them). The strings of a finding live until `on_finding` returns.
 */
bool lh_wire_check(const ProtobufCMessageDescriptor *type, const void *data, size_t size, lh_wire_cb *on_finding,
                   void *arg);

/* Unpack into an arena: nothing of it is freed by itself. NULL when it is not well-formed. */
ProtobufCMessage *lh_wire_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                                 struct lh_arena *arena);

/* The varint at `data`: its size, or 0 when it is cut off or longer than 10 bytes. */
size_t lh_wire_varint(const uint8_t *data, size_t size, uint64_t *value);

#endif
