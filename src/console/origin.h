/* The origin of a request: a page of another site may send none. */
#ifndef LH_CONSOLE_ORIGIN_H
#define LH_CONSOLE_ORIGIN_H

#include "console/console_internal.h"

/* False: the request was refused. */
bool lh_console_check_origin(struct lh_console *console, struct lh_http_request *request);

#endif
