/* Declarations: a namespace, and the options for its leases. */
#ifndef LH_CLIENT_DECLARE_H
#define LH_CLIENT_DECLARE_H

#include "base/list.h"
#include "leasehold.h"

struct lh_declared {
    struct lh_link link; /* link in the client's declarations */
    struct lh_client *client;
    /* Leases, by the time of their last try; the client's thread. */
    struct lh_link held;
    struct lh_link in_leases;          /* link in leases.declarations, while there are any */
    struct lh_declare_options options; /* with all defaults in place */
    bool has_strategy;
    struct lh_strategy strategy;
    size_t segment_count;
    char *segments[16];
    char *text; /* dotted */
    char *memory;
};

void lh_declarations_destroy(struct lh_client *client);

#endif
