/* How a request ends: once, with a status and words. */
#ifndef LH_CLIENT_REQUEST_END_H
#define LH_CLIENT_REQUEST_END_H

#include "client/request.h"

/* End it with `status`. */
void lh_request_end(struct lh_request *request, enum lh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Over, with the status that is set; with LH_TIMED_OUT; and the status it ends with, if it does. */
void lh_request_become_over(struct lh_request *request);
void lh_request_time_out(struct lh_request *request);
void lh_request_set_status(struct lh_request *request, enum lh_status status, const char *words);

/* At the end of the turn: `finish` of its verb. */
void lh_request_finish(void *request);

#endif
