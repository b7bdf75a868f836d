/* Settings that are refused, and in which words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_config.h"

#define TWO "[database a]\ndatabase = host=a\nnamespaces = x\n[database b]\ndatabase = host=b\n"

static const struct {
    const char *lines; /* behind "[leasehold]" */
    int line;
    const char *words;
} bad_files[] = {
    {"lanes = many", 2, "expected a whole number"},
    {"lanes = 2 3", 2, "expected a whole number"},
    {"lanes =", 2, "expected a whole number"},
    {"lanes = -1", 2, "too small"},
    {"max_block = soon", 2, "expected a duration"},
    {"max_block = -1s", 2, "expected a duration"},
    {"max_block = 1ms", 2, "too small"},
    {"busy_limit = 0", 2, "too small"},
    {"migrate = perhaps", 2, "expected yes or no"},
    {"log_level = loud", 2, "expected one of debug|info|warn|error"},
    {"listen = 127.0.0.1", 2, "expected ADDRESS:PORT"},
    {"listen = 127.0.0.1:70000", 2, "expected ADDRESS:PORT"},
    {"listen = example.org:7420", 2, "not an IPv4 address"},
    {"listen = [::1:7420", 2, "not an IPv4 address"},
    {"listen = unix:run/l.sock", 2, "begins with /"},
    {"listen = ,", 2, "must not be empty"},
    {"admin = nowhere", 2, "expected ADDRESS:PORT"},
    {"database =", 2, "must not be empty"},
    {"config = other.ini", 2, "belongs on the command line"},
    {"max_blok = 3s", 2, "max_blok: unknown setting"},
    {"\n\nmax_blok = 3s", 4, "max_blok: unknown setting"},
    {"lanes = 17", 2, "lanes = 17: too large: allowed is 1 to 16"},
    {"max_block = 2d", 2, "max_block = 2d: too large: allowed is 0, or 100ms to 1d"},
    {"lanes = 2\nlanes = 3", 3, "lanes: set in line 2 already"},
    {"[pgbouncer]\nlanes = 2", 3, "stands in section [pgbouncer]"},
    {"lanes = 2\nwhat is this", 3, "neither a [section]"},
    {"[database a]\ndatabase = host=a", 3, "[database a] has no namespace: set namespaces, spread, or default = yes"},
    {"[database a]\nnamespaces = x", 3, "[database a] has no database"},
    {"[database a b]\ndefault = yes", 3, "the name of a database has 1 to 32 letters"},
    {"[database a]\ndatabase = host=a\nnamespaces = x\ndefault = perhaps", 5,
     "[database a] default = perhaps: expected yes or no"},
    {"[database a]\ndatabase =\ndefault = yes", 3, "[database a] database = ...: must not be empty"},
    {"[database a]\ndatabase = host=a\ndefault = yes\nlanes = 2", 5, "[database a] lanes: unknown setting"},
    {"[database a]\ndatabase = host=a\ndefault = yes\ndefault = yes", 5, "[database a] default: set in line 4 already"},
    {"[database a]\ndatabase = host=a\nnamespaces = x, y..z", 4, "segment 2 of namespace must be 1 to 63 bytes, has 0"},
    {TWO "spread = x", 7, "[database b] spread: x is in [database a] (line 4) already"},
    {TWO "spread = y, z, y", 7, "[database b] spread: y is in [database b] (line 7) already"},
    {TWO "spread = x.y", 7, "[database b] spread: x.y is below x of [database a] (line 4)"},
    {TWO "spread = y\n[database c]\ndatabase = host=c\nspread = y.z", 10, "y.z is below y of [database b] (line 7)"},
    {TWO "spread = y..z", 7, "segment 2 of namespace must be 1 to 63 bytes, has 0"},
    {TWO "default = yes\nnamespaces = x", 8, "[database b] namespaces: x is in [database a] (line 4) already"},
    {TWO "namespaces = x.y.z", 7,
     "x.y.z is below x of [database a] (line 4): a namespace and all below it live in the same databases"},
    {"[database a]\ndatabase = host=a\ndefault = yes\n[database b]\ndatabase = host=b\ndefault = yes", 7,
     "[database b] default = yes: [database a] (line 4) is the default"},
    {TWO "namespaces = y\n[database c]\ndatabase = host=b\nnamespaces = z", 9,
     "[database c] has the database of [database b] (line 6): put all namespaces of one database into one section"},
    {"database = host=c\n" TWO "namespaces = y", 0, "and [database a] ("},
    {"embedded = /tmp/x\n" TWO "namespaces = y", 0, "exclude each other: use one or the other"},
};

static const struct {
    const char *option;
    const char *words;
} bad_options[] = {
    {"--max-blok=3s", "--max-blok=3s: unknown option"},
    {"--lanes", "--lanes: a value is missing"},
    {"--max-waiters=99999999999999999999", "max_waiters = 99999999999999999999: too large"},
    {"--config=/nonexistent/leasehold.ini", "cannot be opened: No such file"},
};

START_TEST(a_bad_file_is_refused_with_its_line)
{
    char text[512];

    snprintf(text, sizeof(text), "[leasehold]\n%s\n", bad_files[_i].lines);
    ck_assert(!load_config_file(text));
    expect_config_error(bad_files[_i].line, bad_files[_i].words);
}
END_TEST

START_TEST(a_bad_option_is_refused)
{
    ck_assert(!load_config(1, bad_options[_i].option));
    expect_config_error(0, bad_options[_i].words);
}
END_TEST

START_TEST(every_error_is_told_at_once)
{
    ck_assert(!load_config_file("[leasehold]\nlanes = 0\nnonsense = 1\nmax_block = x\n"));
    ck_assert_ptr_nonnull(strstr(config_errors.text, "lanes"));
    ck_assert_ptr_nonnull(strstr(config_errors.text, "nonsense"));
    ck_assert_ptr_nonnull(strstr(config_errors.text, "max_block"));
}
END_TEST

START_TEST(a_line_that_is_too_long_is_refused_not_cut)
{
    char *text = malloc(6000);

    memset(text, 'x', 5999);
    memcpy(text, "[leasehold]\nport_file = /", 25);
    strcpy(text + 5990, "\n");
    ck_assert(!load_config_file(text));
    expect_config_error(2, "too long");
    free(text);
}
END_TEST

TCase *test_config_refused(void)
{
    TCase *refused = tcase_create("refused");

    tcase_add_checked_fixture(refused, begin_config, end_config);
    tcase_add_loop_test(refused, a_bad_file_is_refused_with_its_line, 0,
                        (int)(sizeof(bad_files) / sizeof(bad_files[0])));
    tcase_add_loop_test(refused, a_bad_option_is_refused, 0, (int)(sizeof(bad_options) / sizeof(bad_options[0])));
    tcase_add_test(refused, every_error_is_told_at_once);
    tcase_add_test(refused, a_line_that_is_too_long_is_refused_not_cut);
    return refused;
}
