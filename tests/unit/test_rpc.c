/* The transport: text encodings, framing, the server as a raw client sees it, the client against the server. */
#include <stdlib.h>

#include "base/log.h"
#include "run_tests.h"
#include "test_rpc.h"

int main(void)
{
    Suite *suite = suite_create("rpc");

    lh_log_set_level(LH_LOG_ERROR);
    suite_add_tcase(suite, text_tests());
    suite_add_tcase(suite, frame_tests());
    suite_add_tcase(suite, input_tests());
    suite_add_tcase(suite, call_tests());
    suite_add_tcase(suite, alarm_tests());
    suite_add_tcase(suite, hostile_tests());
    suite_add_tcase(suite, gate_tests());
    suite_add_tcase(suite, header_tests());
    suite_add_tcase(suite, bounds_tests());
    suite_add_tcase(suite, client_tests());
    suite_add_tcase(suite, secure_client_tests());
    suite_add_tcase(suite, tls_tests());
    suite_add_tcase(suite, token_tests());
    return run_tests(suite, CK_FORK_GETENV);
}
