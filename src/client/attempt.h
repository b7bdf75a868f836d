/* An attempt of a request: a call to an endpoint, and the judgement of its end. */
#ifndef LH_CLIENT_ATTEMPT_H
#define LH_CLIENT_ATTEMPT_H

#include "client/request.h"

/* Begins an attempt at once. The request may be over when it returns. */
void lh_attempt_begin(struct lh_request *request);

/* Judges every reply that is not the verb's own answer, as `judge` of the verbs. */
unsigned lh_attempt_judge_error(struct lh_request *request, const struct lh_reply *reply);

/* Returns true, with the request ended, if its context has ended. */
bool lh_attempt_is_context_over(struct lh_request *request);

#endif
