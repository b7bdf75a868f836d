/* The methods of gRPC as the routes of the console. */
#ifndef LH_CONSOLE_CALL_H
#define LH_CONSOLE_CALL_H

#include <jansson.h>

#include "console/console_internal.h"
#include "console/route.h"

void lh_console_call(struct lh_console *console, struct lh_http_request *request, const struct console_route *route,
                     const json_t *parameters);
void lh_console_sign_in(struct lh_console *console, struct lh_http_request *request, const json_t *parameters);
void lh_console_sign_out(struct lh_console *console, struct lh_http_request *request);
void lh_console_end_calls(struct lh_console *console);

#endif
