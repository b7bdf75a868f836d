/*
 * Parameters as the messages of gRPC: flat, from a query or a JSON body, to what the message's descriptor says.
 *
 *     namespace=a.b   the message's scope, its namespace or namespaces, or those of its policy; dotted
 *     key=k           the message's scope, or its key
 *     others          the field of that name, or the policy's; then the policy's update_mask names it
 */
#ifndef LH_CONSOLE_REQUEST_H
#define LH_CONSOLE_REQUEST_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "json/parse.h"

/* "a=1&b=c%20d" as an object of strings; NULL: it is malformed, or has a parameter twice. */
json_t *lh_request_query(const char *query);
/* The body, an object; NULL: it is none. */
json_t *lh_request_body(const char *body, size_t size);

/* Returns true if the message has this parameter. */
bool lh_request_takes(const ProtobufCMessageDescriptor *type, const char *parameter);
/* In the arena; without parameters of another message, and without those of a page if wanted. NULL: `problem` says why. */
ProtobufCMessage *lh_request_message(const ProtobufCMessageDescriptor *type, const json_t *parameters,
                                     bool without_page, struct lh_arena *arena, struct lh_json_problem *problem);

#endif
