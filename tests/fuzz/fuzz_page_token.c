/* Page tokens: one that is taken is one that could have been given out. */
#include <string.h>

#include "fuzz.h"
#include "rpc/grpc.h"
#include "service/words_internal.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    return 0;
}

static void parse(const char *token, uint64_t filter, struct lh_arena *arena)
{
    const char *ns, *key, *ns_again, *key_again;
    char *again;

    for (int kind = LH_PAGE_LEASES; kind <= LH_PAGE_POLICIES; kind++) {
        if (!lh_page_token_parse(token, (enum lh_page_kind)kind, filter, arena, &ns, &key))
            continue;
        again = lh_page_token_make((enum lh_page_kind)kind, filter, ns, key, arena);
        FUZZ_CHECK(lh_page_token_parse(again, (enum lh_page_kind)kind, filter, arena, &ns_again, &key_again));
        FUZZ_CHECK(strcmp(ns, ns_again) == 0 && strcmp(key, key_again) == 0);
    }
}

/* A first byte of 0 is text; else what follows is made a token whose sum is right, and is then changed in one place. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t how = fuzz_byte(&input), place = fuzz_byte(&input), change = fuzz_byte(&input);
    uint64_t filter = lh_page_filter(0, "owner");
    struct lh_arena arena = {0};
    char *text = fuzz_text(&input), *token = text;

    if (how != 0) {
        size_t middle = strlen(text) / 2;
        char *ns = lh_arena_strdup(&arena, text);
        ns[middle < 200 ? middle : 200] = '\0';
        token = lh_page_token_make(LH_PAGE_LEASES, filter, ns, text + middle, &arena);
        token[place % strlen(token)] ^= (char)change;
    }
    parse(token, filter, &arena);
    lh_arena_finish(&arena);
    free(text);
    return 0;
}
