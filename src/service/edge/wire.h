/*
 * A check of a protobuf message before it is unpacked. protobuf-c takes strings with NUL or broken UTF-8, unknown enum
 * values, and any number of fields; this check finds and names them first.
 *
 *     if (!lh_wire_check(&leasehold__v1__acquire_request__descriptor, data, size, on_violation, &violations))
 *         refuse: unpacking it would fail or cost too much
 *
 * Two kinds of finding. Bad content (a string, an enum value): the message can be unpacked, and the caller decides; in
 * a batch only its item fails. Not well-formed, or over a bound of this file: no part may be unpacked.
 */
#ifndef LH_SERVICE_EDGE_WIRE_H
#define LH_SERVICE_EDGE_WIRE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* Limit of nesting; no request nests deeper than 4. */
#define LH_WIRE_DEPTH_MAX 16
/* Limit of the elements of one repeated field of the request itself: the most items that a batch may have. */
#define LH_WIRE_REPEATED_MAX 10000
/* Limit of all fields: 10,000 items with everything at its limit have 22 each. Unpacked, a field costs 16 to 100
   bytes. */
#define LH_WIRE_FIELDS_MAX 400000

#define LH_WIRE_PATH_BYTES 160

struct lh_wire_finding {
    const char *field; /* its path, "scope.namespace[1]"; "": the message itself */
    const char *text;  /* "must not contain a NUL character" */
    /* Index of the element of the request's own repeated field that it lies in, -1: none. */
    int64_t item;
    bool is_fatal; /* this is the last finding, and lh_wire_check returns false */
};

typedef void lh_wire_cb(void *arg, const struct lh_wire_finding *finding);

/*
 * Reports the first finding of each item, and the first 16 outside of items. Returns false for a message that is not
 * well-formed, is nested too deep, has too many fields, or a singular message field twice (merging those costs
 * quadratic time, and no encoder sends them). The strings of a finding live until `on_finding` returns.
 */
bool lh_wire_check(const ProtobufCMessageDescriptor *type, const void *data, size_t size, lh_wire_cb *on_finding,
                   void *arg);

/* Unpacks into an arena, which frees it all together. NULL if the message is not well-formed. */
ProtobufCMessage *lh_wire_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                                 struct lh_arena *arena);

/* Reads the varint at `data`. Returns its size, or 0 if it is cut off or longer than 10 bytes. */
size_t lh_wire_varint(const uint8_t *data, size_t size, uint64_t *value);

#endif
