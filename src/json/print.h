/*
 * Any protobuf message as JSON: the proto3 mapping (https://protobuf.dev/programming-guides/json/) with the original
 * field names, found by the message's own descriptor. 64-bit integers are strings, enums names, bytes base64, maps
 * objects; google.protobuf's Duration, Timestamp, FieldMask and wrappers have their short forms.
 */
#ifndef LH_JSON_PRINT_H
#define LH_JSON_PRINT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdio.h>

enum lh_json_fields {
    LH_JSON_SET_FIELDS, /* only what differs from its default, as most printers do */
    LH_JSON_ALL_FIELDS, /* zeros, empty strings and empty lists too, so that a script finds them; absent messages not */
};

/* A new reference. */
json_t *lh_json_from_message(const ProtobufCMessage *message, enum lh_json_fields fields);

/* Indented, with a final newline; false: `out` took it not. */
bool lh_json_print(FILE *out, const ProtobufCMessage *message);

/* "1.500s", "2026-11-20T18:28:57.123456Z": no digits, three, six or nine, as few as are exact. */
#define LH_JSON_TIME_BYTES 48
const char *lh_json_duration(int64_t seconds, int32_t nanos, char text[LH_JSON_TIME_BYTES]);
const char *lh_json_timestamp(int64_t seconds, int32_t nanos, char text[LH_JSON_TIME_BYTES]);
/* The same, of a google.protobuf.Timestamp, until the end of the block that it stands in, which a branch is too. */
#define LH_JSON_TIMESTAMP(at) lh_json_timestamp((at)->seconds, (at)->nanos, (char[LH_JSON_TIME_BYTES]){0})

#endif
