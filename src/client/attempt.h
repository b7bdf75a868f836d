/* An attempt of a request: a call to an endpoint, and what to make of how it ended. */
#ifndef LH_CLIENT_ATTEMPT_H
#define LH_CLIENT_ATTEMPT_H

#include "client/request.h"

/* At once; the request may be over when it returns. */
void lh_attempt_begin(struct lh_request *request);

/* `judge` of everything that is no answer of the verb's own. */
unsigned lh_attempt_judge_error(struct lh_request *request, const struct lh_reply *reply);

/* Ends the request where its context has ended. */
bool lh_attempt_is_context_over(struct lh_request *request);

#endif
