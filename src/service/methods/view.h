/*
 * ConsoleService: views for people. A method is a row of a table: the view of the store, the message for its rows, and
 * the right that it needs; lh_rpc_method.arg points to it.
 */
#ifndef LH_SERVICE_METHODS_VIEW_H
#define LH_SERVICE_METHODS_VIEW_H

#include <protobuf-c/protobuf-c.h>

#include "access/access.h"
#include "lease/view.h"

enum lh_look_of {
    /* A ListRequest; needs the right in some of its namespaces. */
    LH_LOOK_OF_NAMESPACES,
    LH_LOOK_OF_SCOPE,    /* a ListRequest whose namespace and key are mandatory */
    LH_LOOK_OF_DATABASE, /* needs the right anywhere */
};

struct lh_look {
    enum lh_view view;
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response; /* repeated rows, then next_page_token; or one row's fields */
    enum lh_look_of of;
    enum lh_right right;
};

extern const struct lh_look lh_look_namespaces, lh_look_queue, lh_look_waits, lh_look_history, lh_look_failures,
    lh_look_audit, lh_look_daemons, lh_look_database, lh_look_explain;

#endif
