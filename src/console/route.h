/* The table of the paths of /api/v1: the methods of gRPC that a path calls, and the places of their answers. */
#ifndef LH_CONSOLE_ROUTE_H
#define LH_CONSOLE_ROUTE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#define ROUTE_PARTS_MAX 4

struct console_part {
    const char *method; /* NULL: there is none */
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response;
    const char *member;  /* member of the answer; NULL: its fields are the answer's */
    bool may_be_missing; /* NOT_FOUND leaves it out */
    bool is_whole;       /* without pages: page_size and page_token do not apply */
};

struct console_route {
    const char *path; /* behind /api/v1 */
    bool is_post;
    const char *needs; /* a parameter that it is for; NULL: the route without it */
    struct console_part parts[ROUTE_PARTS_MAX];
};

/* By path and by which parameters there are; NULL: none is there. */
typedef bool route_has_parameter(const void *arg, const char *name);
const struct console_route *lh_route_find(const char *path, route_has_parameter *has, const void *arg);

#endif
