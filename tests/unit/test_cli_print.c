#include "test_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/lease_text.h"
#include "cli/print.h"

static const char *const quoted[][2] = {
    {"plain-1.2_3:/@%+,=", "'plain-1.2_3:/@%+,='"},
    {"plain-1.2_3:/@%+,", "plain-1.2_3:/@%+,"},
    {"", "''"},
    {"two words", "'two words'"},
    {"it's", "'it'\\''s'"},
    {"'", "''\\'''"},
    {"$(rm -rf /)`x`\"", "'$(rm -rf /)`x`\"'"},
    {"~", "'~'"},
    {"für", "'für'"},
    {"a\nb", "'a\nb'"},
    {"*", "'*'"},
};

START_TEST(shell_words_are_quoted)
{
    char *text = lh_shell_quote(quoted[_i][0]);
    ck_assert_str_eq(text, quoted[_i][1]);
    free(text);
}
END_TEST

/* A real shell must see the very bytes. */
START_TEST(a_shell_reads_back_what_was_quoted)
{
    char *word = lh_shell_quote(quoted[_i][0]);
    char command[256], read[256] = {0};
    FILE *shell;

    snprintf(command, sizeof(command), "WORD=%s; printf '%%s' \"$WORD\"", word);
    shell = popen(command, "r");
    ck_assert_ptr_nonnull(shell);
    read[fread(read, 1, sizeof(read) - 1, shell)] = '\0';
    ck_assert_int_eq(pclose(shell), 0);
    ck_assert_str_eq(read, quoted[_i][0]);
    free(word);
}
END_TEST

static const char *const cleaned[][2] = {
    {"plain", "plain"},
    {"für später", "für später"},
    {"\x1b[2Jgone", "\\x1b[2Jgone"},
    {"a\nb", "a\\x0ab"},
    {"\xff\xfe", "\\xff\\xfe"},
    {"cut\xc3", "cut\\xc3"},
    {"c1\xc2\x9b", "c1\\xc2\\x9b"},
    {"\xf0\x9f\x94\x92", "\xf0\x9f\x94\x92"},
};

START_TEST(control_characters_never_reach_a_terminal)
{
    char *text = lh_clean(cleaned[_i][0]);
    ck_assert_str_eq(text, cleaned[_i][1]);
    free(text);
}
END_TEST

/* What `print` writes, in a buffer that the caller frees. */
static char *printed(struct lh_grid *grid)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    lh_grid_print(grid, out);
    fclose(out);
    return text;
}

START_TEST(grids_are_aligned_by_characters)
{
    struct lh_grid grid = {.columns = 3, .right = 2u, .indent = "> "};
    char *text;

    lh_grid_texts(&grid, "NAME", "N", "OWNER", "für", NULL);
    lh_grid_add(&grid, "%d", 1234);
    lh_grid_add(&grid, "x\ty");
    text = printed(&grid);
    ck_assert_str_eq(text, "> NAME     N  OWNER\n"
                           "> für   1234  x\\x09y\n");
    free(text);
}
END_TEST

START_TEST(wrapped_text_keeps_to_its_width)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    lh_print_wrapped(out, "one two three averyveryverylongword four", 2, 12);
    fclose(out);
    ck_assert_str_eq(text, "one two\n  three\n  averyveryverylongword\n  four\n");
    free(text);
}
END_TEST

/* The holder's age is reckoned with the database's time of the answer, however wrong our own clock is. */
START_TEST(times_are_told_against_the_time_of_the_answer)
{
    Leasehold__V1__Lease lease = LEASEHOLD__V1__LEASE__INIT;
    Leasehold__V1__Contention contention = LEASEHOLD__V1__CONTENTION__INIT;
    Google__Protobuf__Timestamp acquired = {.base = PROTOBUF_C_MESSAGE_INIT(&google__protobuf__timestamp__descriptor),
                                            .seconds = 1000000};
    Google__Protobuf__Timestamp renewed = acquired, deadline = acquired;
    Google__Protobuf__Duration remaining = lh_duration_message(22 * LH_US_PER_S);
    char *text = NULL;
    size_t size;
    FILE *out;

    renewed.seconds += 27;
    deadline.seconds += 57;
    lease.owner = (char *)(uintptr_t) "worker-3";
    lease.token = 41;
    lease.heartbeats = 3;
    lease.acquired_at = &acquired;
    lease.heartbeat_at = &renewed;
    lease.deadline = &deadline;
    lease.remaining = &remaining;
    contention.holder = &lease;
    contention.liveness = LEASEHOLD__V1__LIVENESS__LIVENESS_ALIVE;
    contention.waiters_ahead = 2;

    out = open_memstream(&text, &size);
    lh_print_contention(out, &contention);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "worker-3, alive, token 41\n"));
    ck_assert_ptr_nonnull(strstr(text, "for 35 s, since 1970-"));
    ck_assert_ptr_nonnull(strstr(text, "3, the last 8.0 s ago\n"));
    ck_assert_ptr_nonnull(strstr(text, "in 22 s, 1970-"));
    ck_assert_ptr_nonnull(strstr(text, "2 ahead\n"));
    free(text);
}
END_TEST

/* As many as a scope may have. */
START_TEST(text_of_slots_takes_as_much_as_it_is_long)
{
    static int32_t slots[1000000];
    struct lh_arena arena = {0};

    for (int32_t i = 0; i < 1000000; i++)
        slots[i] = i + 1;
    ck_assert_str_eq(lh_slots_text(slots, 0, &arena), "");
    ck_assert_str_eq(lh_slots_text(slots, 1, &arena), "1");
    ck_assert_str_eq(lh_slots_text(slots + 9, 3, &arena), "10,11,12");
    ck_assert_uint_eq(strlen(lh_slots_text(slots, 1000000, &arena)), 5888896 + 999999);
    lh_arena_finish(&arena);
}
END_TEST

TCase *test_cli_print(void)
{
    TCase *tests = tcase_create("print");
    tcase_add_loop_test(tests, shell_words_are_quoted, 0, sizeof(quoted) / sizeof(quoted[0]));
    tcase_add_loop_test(tests, a_shell_reads_back_what_was_quoted, 0, sizeof(quoted) / sizeof(quoted[0]));
    tcase_add_loop_test(tests, control_characters_never_reach_a_terminal, 0, sizeof(cleaned) / sizeof(cleaned[0]));
    tcase_add_test(tests, grids_are_aligned_by_characters);
    tcase_add_test(tests, wrapped_text_keeps_to_its_width);
    tcase_add_test(tests, text_of_slots_takes_as_much_as_it_is_long);
    tcase_add_test(tests, times_are_told_against_the_time_of_the_answer);
    return tests;
}
