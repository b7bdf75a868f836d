/* What the tests of rights share: rules that are loaded by hand, and what a denial must tell. */
#ifndef LH_TEST_SERVICE_ACCESS_H
#define LH_TEST_SERVICE_ACCESS_H

#include "access/access.h"
#include "test_service_methods.h"

#define WORKER "dns:worker"

extern char access_log[8192]; /* what was logged in this test */

void access_setup(void);
void access_teardown(void);
/* These rules and no others; `token` may be NULL. */
void access_load_all(const struct lh_access_rule *rules, size_t count, const struct lh_access_token *token);
/* One rule, of WORKER. */
void access_load(const char *ns, unsigned rights);
void access_check_denied(struct lh_rpc_call *call, const char *right, const char *ns);
void access_finish_canceled(struct lh_acquire *acquire);
ProtobufCMessage *access_acquire_request(void);
ProtobufCMessage *access_get_request(void);

#endif
