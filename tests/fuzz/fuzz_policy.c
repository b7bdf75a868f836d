/* Policies: of a request to the server, and in the words of the command line. */
#include <string.h>

#include "cli/admin/admin_internal.h"
#include "fuzz.h"
#include "service/call_internal.h"
#include "json/policy_setting.h"
#include "json/row_message.h"

static void take_request(const uint8_t *data, size_t size)
{
    struct lh_arena arena = {0};
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &arena, .violations = &violations};
    struct lh_policy_change change;
    Leasehold__V1__SetPolicyRequest *request =
        (void *)lh_call_unpack_into(&leasehold__v1__set_policy_request__descriptor, data, size, &arena, &violations);

    if (request != NULL && lh_policy_from_request(&v, request, &change)) {
        struct lh_rows rows = {
            .columns = change.names, .column_count = change.count, .cells = change.values, .row_count = 1};
        const Leasehold__V1__Policy *again = lh_row_message(&leasehold__v1__policy__descriptor, &rows, 0, &arena);
        FUZZ_CHECK(change.count > 0);
        for (size_t i = 0; i < change.count; i++) {
            const char *value = lh_policy_value(again, lh_policy_setting(change.names[i]), &arena);
            FUZZ_CHECK((value == NULL) == (change.values[i] == NULL));
            FUZZ_CHECK(value == NULL || strcmp(value, change.values[i]) == 0);
        }
    }
    lh_arena_finish(&arena);
}

/* The text of a setting is a setting. */
static void take_words(struct fuzz_input *input)
{
    const ProtobufCFieldDescriptor *settings[LH_POLICY_SETTINGS_MAX];
    const ProtobufCFieldDescriptor *setting = settings[fuzz_byte(input) % lh_policy_settings(settings)];
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    struct lh_arena arena = {0};
    struct lh_error error;
    char *text = fuzz_text(input), *shown;

    if (lh_policy_parse(&arena, &policy, setting, text, &error) == LH_OK) {
        const char *value = lh_policy_value(&policy, setting, &arena);
        struct lh_rows rows = {.columns = &setting->name, .column_count = 1, .cells = &value, .row_count = 1};
        const Leasehold__V1__Policy *again = lh_row_message(&leasehold__v1__policy__descriptor, &rows, 0, &arena);
        shown = lh_policy_text(&policy, setting);
        FUZZ_CHECK(shown != NULL && value != NULL);
        FUZZ_CHECK(strcmp(value, lh_policy_value(again, setting, &arena)) == 0);
        free(shown);
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
