/* Answers in JSON. */
#ifndef LH_CONSOLE_ANSWER_H
#define LH_CONSOLE_ANSWER_H

#include <jansson.h>

#include "admin/http.h"
#include "rpc/client.h"

/* Each of these two ends the request. A refusal is false, so that a check can end with it. */
void lh_console_answer_json(struct lh_http_request *request, int code, json_t *json); /* takes the reference */
bool lh_console_refuse(struct lh_http_request *request, int code, const char *message);
json_t *lh_console_error_of(const struct lh_rpc_result *result);
int lh_console_code_of(enum lh_grpc_code code);
void lh_console_remove_lease_keys(json_t *json);
void lh_console_add_headers(struct lh_http_request *request);

#endif
