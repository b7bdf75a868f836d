/* The header as a caller sees it, with none of Leasehold's own before it: it agrees with what was built. */
#include <check.h>

#include "leasehold.h"
#include "test_client.h"

size_t test_client_error_bytes(void);

static const struct {
    enum lh_status status;
    const char *name;
} statuses[] = {
#define STATUS(name)                                                                                                   \
    {                                                                                                                  \
        LH_##name, #name                                                                                               \
    }
    STATUS(OK),
    STATUS(CANCELED),
    STATUS(INVALID_ARGUMENT),
    STATUS(WAIT_TIMEOUT),
    STATUS(NOT_HELD),
    STATUS(ACCESS_DENIED),
    STATUS(QUOTA_EXCEEDED),
    STATUS(OVERLOADED),
    STATUS(MESSAGE_TOO_LARGE),
    STATUS(NAMESPACE_FROZEN),
    STATUS(HOOK_REJECTED),
    STATUS(LEASE_ENDED),
    STATUS(LEASE_HELD),
    STATUS(SCOPE_BUSY),
    STATUS(BLOCKING_TIMEOUT),
    STATUS(WATCH_LAGGED),
    STATUS(UNIMPLEMENTED),
    STATUS(INTERNAL),
    STATUS(DATABASE_UNAVAILABLE),
    STATUS(SHUTTING_DOWN),
    STATUS(UNAUTHENTICATED),
    STATUS(NOT_ASKED),
    STATUS(LOST),
    STATUS(TIMED_OUT),
    STATUS(UNAVAILABLE),
    STATUS(CLOSED),
    STATUS(WOULD_BLOCK),
};

START_TEST(each_status_has_its_name)
{
    size_t count = sizeof(statuses) / sizeof(statuses[0]);

    for (size_t i = 0; i < count; i++) {
        ck_assert_str_eq(lh_status_name(statuses[i].status), statuses[i].name);
        ck_assert_uint_eq((size_t)statuses[i].status, i);
        ck_assert_str_ne(lh_status_text(statuses[i].status), "");
    }
    ck_assert_str_eq(lh_status_name((enum lh_status)count), "INTERNAL"); /* there is no other */
}
END_TEST

START_TEST(an_error_is_as_large_here_as_there)
{
    ck_assert_uint_eq(sizeof(struct lh_error), test_client_error_bytes());
}
END_TEST

TCase *tcase_client_header(void)
{
    TCase *tcase = tcase_create("header");

    tcase_add_test(tcase, each_status_has_its_name);
    tcase_add_test(tcase, an_error_is_as_large_here_as_there);
    return tcase;
}
