/*
 * Prometheus's text format, version 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/): a family,
 * then its samples, then the next family.
 *
 *     lh_expose_family(&out, "leasehold_lease_losses_total", LH_EXPOSE_COUNTER, "Heartbeats answered LOST, by reason.");
 *     lh_expose_count(&out, 3, "reason", "expired", NULL);
 *
 * Labels are pairs of name and value, ended by NULL; values are escaped here. They must come from a small fixed set.
 */
#ifndef LH_ADMIN_EXPOSITION_H
#define LH_ADMIN_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"
#include "base/memory.h"

enum lh_expose_type { LH_EXPOSE_COUNTER, LH_EXPOSE_GAUGE, LH_EXPOSE_HISTOGRAM };

/* Zero-initialised it is empty; finish with lh_buffer_finish(&out.text). */
struct lh_exposition {
    struct lh_buffer text;
    const char *name;     /* name of the family that is being written */
    const char *database; /* a first label of all samples; NULL: none */
};

/* `name` and `help` are literals. */
void lh_expose_family(struct lh_exposition *out, const char *name, enum lh_expose_type type, const char *help);

void lh_expose_count(struct lh_exposition *out, uint64_t value, ...) __attribute__((sentinel));
/* Microseconds, written as seconds. */
void lh_expose_seconds(struct lh_exposition *out, int64_t value_us, ...) __attribute__((sentinel));

/* Its buckets, sum and count; `is_time`: bounds and sum are microseconds, written as seconds. */
void lh_expose_histogram(struct lh_exposition *out, const struct lh_histogram *histogram,
                         const struct lh_bounds *bounds, bool is_time, ...) __attribute__((sentinel));

/* Adds expositions of the same families in the same order, each family once. The parts are finished. */
void lh_expose_merged(struct lh_exposition *out, struct lh_exposition *parts, size_t count);

/* A family of one sample without labels. */
void lh_expose_counter(struct lh_exposition *out, const char *name, uint64_t value, const char *help);
void lh_expose_gauge(struct lh_exposition *out, const char *name, uint64_t value, const char *help);

#endif
