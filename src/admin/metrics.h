/* Metrics of this process and of its coordinator. The daemon adds those of the layers that this one must not know
   (see lh_admin_set_metrics). */
#ifndef LH_ADMIN_METRICS_H
#define LH_ADMIN_METRICS_H

#include <stdint.h>

#include "admin/exposition.h"

struct lh_coordinator;

/* The process_* metrics that every Prometheus client exports, and leasehold_build_info. */
void lh_metrics_process(struct lh_exposition *out, int64_t started_us);
/* Returns the start of this process, in microseconds since 1970. Call it once: the wall clock may step afterwards. */
int64_t lh_process_started_us(void);

void lh_metrics_coordinator(struct lh_exposition *out, const struct lh_coordinator *coordinator);

#endif
