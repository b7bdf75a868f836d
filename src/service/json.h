/* Conversions between JSON and messages: labels, and the check of a release's result. */
#ifndef LH_SERVICE_JSON_H
#define LH_SERVICE_JSON_H

#include <stddef.h>

#include "base/memory.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* Returns {"name":"value",...} in the arena; {} without labels. */
const char *lh_json_from_labels(Leasehold__V1__AcquireRequest__LabelsEntry *const *labels, size_t count,
                                struct lh_arena *arena);

/* Reads the entries of a JSON object of strings into the arena and returns their number; members of other types are
   left out. */
size_t lh_json_to_labels(const char *json, struct lh_arena *arena, Leasehold__V1__Lease__LabelsEntry ***labels);

/* Returns NULL if jsonb takes `text`, else the fault (in the arena). Numbers beyond numeric's range pass, because
   only the database can check that. */
const char *lh_json_problem(const char *text, struct lh_arena *arena);

#endif
