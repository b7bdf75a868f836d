/* JSON: the result of a release, labels as the database has them, and labels as a client sends them. */
#include <string.h>

#include "base/text.h"
#include "fuzz.h"
#include "service/words_internal.h"

static void check_same(const char *json, struct lh_arena *arena)
{
    Leasehold__V1__Lease__LabelsEntry **labels, **again;
    size_t count = lh_json_to_labels(json, arena, &labels);
    Leasehold__V1__AcquireRequest__LabelsEntry **asked = lh_arena_alloc(arena, (count + 1) * sizeof(*asked));

    for (size_t i = 0; i < count; i++) {
        asked[i] = lh_arena_alloc(arena, sizeof(**asked));
        leasehold__v1__acquire_request__labels_entry__init(asked[i]);
        asked[i]->key = labels[i]->key;
        asked[i]->value = labels[i]->value;
        FUZZ_CHECK(lh_utf8_is_valid(labels[i]->key, strlen(labels[i]->key)));
        FUZZ_CHECK(lh_utf8_is_valid(labels[i]->value, strlen(labels[i]->value)));
    }
    json = lh_json_from_labels(asked, count, arena);
    FUZZ_CHECK(lh_json_problem(json, arena) == NULL);
    FUZZ_CHECK(lh_json_to_labels(json, arena, &again) == count);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct lh_arena arena = {0};
    char *text = fuzz_text(&input);

    lh_json_problem(text, &arena);
    check_same(text, &arena);
    lh_arena_finish(&arena);
    free(text);
    return 0;
}
