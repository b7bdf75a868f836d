/*
 * A protobuf message from JSON, by the message's own descriptor: the proto3 mapping with the original field names
 * (https://protobuf.dev/programming-guides/json/). Integers may be strings, enums are names, null is an absent field;
 * google.protobuf's Duration ("1.5s") and wrappers have their short forms. Not read are bytes, maps and reals: no request
 * that comes as JSON has one.
 */
#ifndef LH_JSON_PARSE_H
#define LH_JSON_PARSE_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/memory.h"

#define LH_JSON_PROBLEM_BYTES 160
#define LH_JSON_DEPTH_MAX 8

struct lh_json_problem {
    char field[64];                    /* as JSON names it */
    char words[LH_JSON_PROBLEM_BYTES]; /* "must be a whole number" */
};

/* In the arena, strings too. NULL: `problem` says why. */
ProtobufCMessage *lh_json_parse(const ProtobufCMessageDescriptor *type, const json_t *json, struct lh_arena *arena,
                                struct lh_json_problem *problem);

/* The field of that name; NULL: there is none. */
const ProtobufCFieldDescriptor *lh_json_field(const ProtobufCMessageDescriptor *type, const char *name);

#endif
