/* Policies: of a request to the server, and in the words of the command line. */
#include <string.h>

#include "cli/policy_fields.h"
#include "fuzz.h"
#include "service/call.h"
#include "service/policy.h"

static void take_request(const uint8_t *data, size_t size)
{
    struct lh_arena arena = {0};
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &arena, .violations = &violations};
    struct lh_policy policy, again;
    Leasehold__V1__SetPolicyRequest *request =
        (void *)lh_call_unpack_into(&leasehold__v1__set_policy_request__descriptor, data, size, &arena, &violations);
    uint32_t mask, mask_again;

    if (request != NULL && lh_policy_from_request(&v, request, &policy, &mask)) {
        request->policy = lh_policy_to_message(&policy, &arena);
        FUZZ_CHECK(lh_policy_from_request(&v, request, &again, &mask_again) || policy.set == 0);
        FUZZ_CHECK(policy.set == 0 || policy.set == again.set);
        FUZZ_CHECK(memcmp(policy.values, again.values, sizeof(policy.values)) == 0);
        FUZZ_CHECK(strcmp(policy.ns, again.ns) == 0);
    }
    lh_arena_finish(&arena);
}

/* The text of a setting is a setting. */
static void take_words(struct fuzz_input *input)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX];
    const ProtobufCFieldDescriptor *field = fields[fuzz_byte(input) % lh_policy_fields(fields)];
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT, again = LEASEHOLD__V1__POLICY__INIT;
    struct lh_arena arena = {0};
    struct lh_error error;
    char *text = fuzz_text(input), *shown, *sql, *sql_again;

    if (lh_policy_parse(&arena, &policy, field, text, &error) == LH_OK) {
        shown = lh_policy_text(&policy, field);
        sql = lh_policy_sql(&policy, field);
        FUZZ_CHECK(shown != NULL && sql != NULL);
        lh_policy_set_sql(&arena, &again, field, sql);
        sql_again = lh_policy_sql(&again, field);
        FUZZ_CHECK(strcmp(sql, sql_again) == 0);
        free(sql_again);
        free(shown);
        free(sql);
    }
    free(text);
    lh_arena_finish(&arena);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};

    if (fuzz_byte(&input) & 1)
        take_words(&input);
    else
        take_request(input.at, input.left);
    return 0;
}
