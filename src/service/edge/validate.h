/*
 * Requests, checked against every bound of the API and converted for the coordinator and the store: dotted namespaces,
 * microseconds, UUIDs, JSON text. Results live in the validator's arena or in the request itself.
 *
 *     struct lh_validator v = {.arena = &arena, .violations = &violations};
 *     if (!lh_validate_list(&v, request, &list))
 *         refuse with the violations
 *
 * The database itself checks a policy's bounds and numbers beyond numeric's range.
 */
#ifndef LH_SERVICE_EDGE_VALIDATE_H
#define LH_SERVICE_EDGE_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/memory.h"
#include "lease/coordinator.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "service/edge/violations.h"
#include "service/places_internal.h"

#define LH_PAGE_SIZE_DEFAULT 100
#define LH_PAGE_SIZE_MAX 1000
#define LH_REAP_DEFAULT 1000
#define LH_REAP_MAX 10000
#define LH_REAP_NAMESPACES_MAX 1000

struct lh_validator {
    struct lh_arena *arena;
    struct lh_violations *violations;
    const struct lh_places *places; /* the databases in which a scope must live; NULL: anywhere */
};

/* The functions below return false, with violations added, if a value is out of bounds; the outputs are undefined
   then. `field` is the path in the request that violations name. */

/* Checks that the namespace, or with include_children some namespace below it, lives in a database. "" always does. */
bool lh_validate_place(struct lh_validator *v, const char *ns, bool include_children, const char *field);

bool lh_validate_text(struct lh_validator *v, enum lh_bounded_text kind, const char *text, const char *field);

/* Converts segments to a dotted name. An empty list is "" if `may_be_empty`. */
bool lh_validate_namespace(struct lh_validator *v, char *const *segments, size_t count, bool may_be_empty,
                           const char *field, const char **ns);
bool lh_validate_scope(struct lh_validator *v, const Leasehold__V1__Scope *scope, const char *field, const char **ns,
                       const char **key);
bool lh_validate_duration(struct lh_validator *v, const Google__Protobuf__Duration *duration, int64_t least_us,
                          int64_t most_us, const char *field, int64_t *duration_us);
/* Converts the units of a shared lease; 0 means 1. */
bool lh_validate_units(struct lh_validator *v, int32_t units, const char *field, int32_t *result);
bool lh_validate_page_size(struct lh_validator *v, int32_t page_size, const char *field, int32_t *result);

/* Converts the name of a schedule. `field` is the path of the message. */
bool lh_validate_schedule_name(struct lh_validator *v, const Leasehold__V1__Namespace *name, const char *field,
                               const char **ns);
/* Checks a number of which 0 means another. */
bool lh_validate_count(struct lh_validator *v, int32_t number, int32_t if_zero, int32_t most, const char *field,
                       int32_t *result);
bool lh_validate_timestamp(struct lh_validator *v, const Google__Protobuf__Timestamp *timestamp, const char *field,
                           int64_t *time_us);

bool lh_validate_lease_key(struct lh_validator *v, const char *text, const char *field, struct lh_uuid *lease_key);
bool lh_validate_lease_ref(struct lh_validator *v, const Leasehold__V1__LeaseRef *ref, const char *field,
                           const char **ns, const char **key, struct lh_uuid *lease_key);
bool lh_validate_release_item(struct lh_validator *v, const Leasehold__V1__ReleaseItem *request, const char *field,
                              struct lh_holder_item *item);

/* Converts a list request. Its page token is not looked at. */
bool lh_validate_list(struct lh_validator *v, const Leasehold__V1__ListLeasesRequest *request,
                      struct lh_list_request *list);

bool lh_validate_watch(struct lh_validator *v, const Leasehold__V1__WatchLeasesRequest *request, const char **ns);

struct lh_reap_arguments {
    const char **namespaces;
    size_t namespace_count;
    /* The request named namespaces. */
    bool is_by_name;
    bool include_children;
    const char *key; /* the request's; NULL: every scope */
    int32_t max;
};
bool lh_validate_reap(struct lh_validator *v, const Leasehold__V1__ReapRequest *request,
                      struct lh_reap_arguments *arguments);

/* Checks the words of a request to hand over, or of a refusal. */
bool lh_validate_words(struct lh_validator *v, const char *words, const char *field, size_t least);
/* Checks reason, token and all of a force-release; lh_validate_scope checks its scope. */
bool lh_validate_force(struct lh_validator *v, const Leasehold__V1__ForceReleaseRequest *request);

#endif
