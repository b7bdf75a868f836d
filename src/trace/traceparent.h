/* The header traceparent of https://www.w3.org/TR/trace-context/ (section 3.2). */
#ifndef LH_TRACE_TRACEPARENT_H
#define LH_TRACE_TRACEPARENT_H

#include <stdbool.h>
#include <stdint.h>

#define LH_TRACE_ID_BYTES 16
#define LH_SPAN_ID_BYTES 8
#define LH_TRACE_SAMPLED 0x01u

struct lh_traceparent {
    uint8_t trace_id[LH_TRACE_ID_BYTES];
    uint8_t span_id[LH_SPAN_ID_BYTES]; /* the caller's span */
    uint8_t flags;
};

/* Parses a traceparent. Returns false if `text` is none; the specification wants it ignored then. */
bool lh_traceparent_parse(const char *text, struct lh_traceparent *parent);

#endif
