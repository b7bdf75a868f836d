/* The caller of a request: its origin, its session, and its connection to the server. */
#ifndef LH_CONSOLE_CALLER_H
#define LH_CONSOLE_CALLER_H

#include "console/console_internal.h"

struct console_caller {
    struct session *session; /* session of its cookie; NULL: it has none */
    /* Value of `authorization` of its calls; NULL: none. */
    const char *authorization;
};

/* Returns false if the request was refused. A page of another site may send none. */
bool lh_console_check_origin(struct lh_console *console, struct lh_http_request *request);
/* The session of its cookie, or what goes with its calls. False: the request was refused. */
bool lh_console_identify(struct lh_console *console, struct lh_http_request *request, struct console_caller *caller);
/* The caller's own connection to the server; NULL: the request was refused. */
struct lh_rpc_channel *lh_console_connect(struct lh_console *console, struct lh_http_request *request);
/* The session of a request's cookie has ended: says so in the answer's headers. */
void lh_console_forget_cookie(struct lh_http_request *request);
void lh_console_set_cookie(struct lh_http_request *request, const struct session *session);

#endif
