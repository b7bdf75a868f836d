/* Streams of events for the page. */
#ifndef LH_CONSOLE_EVENTS_H
#define LH_CONSOLE_EVENTS_H

#include <jansson.h>

#include "console/console_internal.h"

#define CONSOLE_STREAMS_MAX 24

void lh_console_stream(struct lh_console *console, struct lh_http_request *request, const json_t *parameters);
void lh_console_end_streams(struct lh_console *console);

#endif
