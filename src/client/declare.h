/* Declarations: a namespace, and how leases in it are kept. */
#ifndef LH_CLIENT_DECLARE_H
#define LH_CLIENT_DECLARE_H

#include "base/list.h"
#include "leasehold.h"

struct lh_declared {
    struct lh_link link; /* in the client's declarations */
    struct lh_client *client;
    struct lh_link held;               /* leases, the one that was tried the longest ago first; the client's thread */
    struct lh_link in_leases;          /* while there are any */
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
