/* The two places where JSON and messages meet: labels, and the result of a release. */
#ifndef LH_SERVICE_JSON_H
#define LH_SERVICE_JSON_H

#include <stddef.h>

#include "base/memory.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* {"name":"value",...} in the arena; {} for none. */
const char *lh_json_from_labels(Leasehold__V1__AcquireRequest__LabelsEntry *const *labels, size_t count,
                                struct lh_arena *arena);

/* The entries of a JSON object of strings, in the arena; members of other types are left out. */
size_t lh_json_to_labels(const char *json, struct lh_arena *arena, Leasehold__V1__Lease__LabelsEntry ***labels);

/* NULL when jsonb takes `text`, else what is wrong with it (in the arena). Numbers beyond numeric's range pass: only
   the database knows that. */
const char *lh_json_problem(const char *text, struct lh_arena *arena);

#endif
