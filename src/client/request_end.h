/* The end of a request: once, with a status and words. */
#ifndef LH_CLIENT_REQUEST_END_H
#define LH_CLIENT_REQUEST_END_H

#include "client/request.h"

/* Ends the request with `status`. */
void lh_request_end(struct lh_request *request, enum lh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* End the request: with the status that is set, and with LH_TIMED_OUT. lh_request_set_status sets the status without
   ending it. */
void lh_request_become_over(struct lh_request *request);
void lh_request_time_out(struct lh_request *request);
void lh_request_set_status(struct lh_request *request, enum lh_status status, const char *words);

/* Calls `finish` of the verb, at the end of the turn. */
void lh_request_finish(void *request);

#endif
