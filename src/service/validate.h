/*
 * Requests, checked against every bound of the API and turned into what the coordinator and the store take: dotted
 * namespaces, microseconds, UUIDs, JSON text. Results live in the validator's arena or in the request itself.
 *
 *     struct lh_validator v = {.arena = &arena, .violations = &violations};
 *     if (!lh_validate_acquire(&v, request, &acquire))
 *         refuse with the violations
 *
 * What only the database can know (a policy's bounds, numbers beyond numeric's range) is left to it.
 */
#ifndef LH_SERVICE_VALIDATE_H
#define LH_SERVICE_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "lease/coordinator.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "service/places.h"
#include "service/violations.h"

#define LH_PAGE_SIZE_DEFAULT 100
#define LH_PAGE_SIZE_MAX 1000
#define LH_REAP_DEFAULT 1000
#define LH_REAP_MAX 10000
#define LH_REAP_NAMESPACES_MAX 1000
/* No duration, wait or setting of a policy is longer. */
#define LH_DURATION_MAX_US (INT64_C(100) * 365 * 86400 * 1000000)
/* Policies never go below it. */
#define LH_MIN_DURATION_US INT64_C(100000)

struct lh_validator {
    struct lh_arena *arena;
    struct lh_violations *violations;
    const struct lh_places *places; /* in which a scope must live; NULL: anywhere */
};

/* Each returns false, with violations added, when something is out of bounds; the outputs are then undefined. `field`
   is the path in the request that violations name. */

/* Does it, or with include_children something below it, live in a database? "" always does. */
bool lh_validate_place(struct lh_validator *v, const char *ns, bool include_children, const char *field);

/* An empty list is `""` where `may_be_empty`. */
bool lh_validate_namespace(struct lh_validator *v, char *const *segments, size_t count, bool may_be_empty,
                           const char *field, const char **ns);
bool lh_validate_scope(struct lh_validator *v, const Leasehold__V1__Scope *scope, const char *field, const char **ns,
                       const char **key);
bool lh_validate_duration(struct lh_validator *v, const Google__Protobuf__Duration *duration, int64_t least_us,
                          const char *field, int64_t *duration_us);
/* A minimum hold: 0 to 1 day. */
bool lh_validate_at_least(struct lh_validator *v, const Google__Protobuf__Duration *duration, const char *field,
                          int64_t *at_least_us);
/* Of a shared lease: 0 is 1. */
bool lh_validate_units(struct lh_validator *v, int32_t units, const char *field, int32_t *result);
bool lh_validate_page_size(struct lh_validator *v, int32_t page_size, const char *field, int32_t *result);

/* Fills what the caller owns of `acquire`, without on_done and arg. An absent lease key is made. */
bool lh_validate_acquire(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                         struct lh_acquire *acquire);

/* The same for several scopes. */
bool lh_validate_acquire_all(struct lh_validator *v, const Leasehold__V1__AcquireAllRequest *request,
                             struct lh_acquire *acquire);

bool lh_validate_lease_ref(struct lh_validator *v, const Leasehold__V1__LeaseRef *ref, const char *field,
                           const char **ns, const char **key, struct lh_uuid *lease_key);
bool lh_validate_release_item(struct lh_validator *v, const Leasehold__V1__ReleaseItem *request, const char *field,
                              struct lh_holder_item *item);

/* What stays of a list request when its page token was looked at elsewhere. */
bool lh_validate_list(struct lh_validator *v, const Leasehold__V1__ListLeasesRequest *request,
                      struct lh_list_request *list);

bool lh_validate_watch(struct lh_validator *v, const Leasehold__V1__WatchLeasesRequest *request, const char **ns);

struct lh_reap_arguments {
    const char **namespaces;
    size_t namespace_count;
    bool is_by_name; /* false: the caller named none */
    bool include_children;
    int32_t max;
};
bool lh_validate_reap(struct lh_validator *v, const Leasehold__V1__ReapRequest *request,
                      struct lh_reap_arguments *arguments);

/* reason, token and all of a force-release; its scope has lh_validate_scope. */
bool lh_validate_force(struct lh_validator *v, const Leasehold__V1__ForceReleaseRequest *request);

#endif
