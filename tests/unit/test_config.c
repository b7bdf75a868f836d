/* Settings from file, environment and command line. test_config_refused.c has what is refused. */
#include "config/config_internal.h"

#include "test_config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"

struct lh_settings settings;
struct lh_config_errors config_errors;
char config_path[64];
static char program[] = "leaseholdd";
static char config_flag[] = "--config";

void begin_config(void)
{
    clearenv();
    setenv("HOME", "/home/somebody", 1);
    memset(&config_errors, 0, sizeof(config_errors));
    snprintf(config_path, sizeof(config_path), "/tmp/leasehold-config-XXXXXX");
    close(mkstemp(config_path));
    lh_settings_init(&settings);
}

void end_config(void)
{
    lh_settings_finish(&settings);
    lh_config_errors_finish(&config_errors);
    unlink(config_path);
}

void write_config(const char *text)
{
    FILE *file = fopen(config_path, "w");

    fputs(text, file);
    fclose(file);
}

bool load_config(int argc, ...)
{
    char *argv[20] = {program};
    va_list arguments;

    va_start(arguments, argc);
    for (int i = 1; i <= argc; i++)
        argv[i] = va_arg(arguments, char *);
    va_end(arguments);
    return lh_settings_load(&settings, argc + 1, argv, &config_errors);
}

static void forget(void)
{
    lh_settings_finish(&settings);
    lh_config_errors_finish(&config_errors);
    lh_settings_init(&settings);
}

bool load_config_file(const char *text)
{
    write_config(text);
    return load_config(2, "--config", config_path);
}

void expect_config_error(int line, const char *words)
{
    char where[80];

    ck_assert_uint_gt(config_errors.size, 0);
    ck_assert_msg(strstr(config_errors.text, words) != NULL, "%s", config_errors.text);
    ck_assert_msg(strchr(config_errors.text, '\n') == config_errors.text + config_errors.size - 1, "%s",
                  config_errors.text);
    if (line > 0) {
        snprintf(where, sizeof(where), "%s:%d: ", config_path, line);
        ck_assert_msg(strncmp(config_errors.text, where, strlen(where)) == 0, "%s", config_errors.text);
    }
}

START_TEST(defaults_need_no_file)
{
    ck_assert(load_config(0));
    ck_assert_uint_eq(settings.listen.count, 1);
    ck_assert_str_eq(settings.listen.items[0], "127.0.0.1:7420");
    ck_assert_str_eq(settings.admin, "127.0.0.1:7421");
    ck_assert_int_eq(settings.lanes, 3);
    ck_assert_int_eq(settings.max_block_us, 20 * LH_US_PER_S);
    ck_assert(settings.migrate);
    ck_assert(!settings.insecure);
    ck_assert_ptr_null(settings.database);
    ck_assert_str_eq(settings.embedded,
                     geteuid() == 0 ? "/var/lib/leasehold" : "/home/somebody/.local/state/leasehold");
    ck_assert_int_eq(settings.log_level, LH_LOG_INFO);
}
END_TEST

START_TEST(a_file_sets_every_type)
{
    ck_assert_msg(
        load_config_file("# a comment\n[leasehold]\nlisten = 127.0.0.1:1, [::1]:2,\n  unix:/run/l.sock\n"
                         "admin = none\nlanes = 7 ; seven\nmax_block = 1m30s\nmigrate = off\nlog_level = DEBUG\n"
                         "database = host=db\n  user=me\n"),
        "%s", config_errors.text);
    ck_assert_uint_eq(settings.listen.count, 3);
    ck_assert_str_eq(settings.listen.items[2], "unix:/run/l.sock");
    ck_assert_ptr_null(settings.admin);
    ck_assert_int_eq(settings.lanes, 7);
    ck_assert_int_eq(settings.max_block_us, 90 * LH_US_PER_S);
    ck_assert(!settings.migrate);
    ck_assert_int_eq(settings.log_level, LH_LOG_DEBUG);
    ck_assert_str_eq(settings.database, "host=db user=me");
    ck_assert_ptr_null(settings.embedded);
}
END_TEST

START_TEST(the_command_line_wins_over_the_environment_and_that_over_the_file)
{
    write_config("[leasehold]\nlisten = 127.0.0.1:1\nadmin = 127.0.0.1:2\nlanes = 4\n");
    setenv("LEASEHOLD_LISTEN", "127.0.0.1:11", 1);
    setenv("LEASEHOLD_ADMIN", "127.0.0.1:12", 1);
    ck_assert(load_config(4, "--listen=127.0.0.1:21", "--config", config_path, "--listen=127.0.0.1:22"));
    ck_assert_uint_eq(settings.listen.count, 1);
    ck_assert_str_eq(settings.listen.items[0], "127.0.0.1:22");
    ck_assert_str_eq(settings.admin, "127.0.0.1:12");
    ck_assert_int_eq(settings.lanes, 4);
}
END_TEST

START_TEST(zero_is_allowed_where_it_means_never)
{
    ck_assert(load_config(2, "--max-block=0", "--reap-interval=0"));
    ck_assert_int_eq(settings.max_block_us, 0);
    ck_assert_int_eq(settings.reap_interval_us, 0);
}
END_TEST

START_TEST(flags_are_written_with_dashes_or_underscores)
{
    ck_assert(load_config(6, "--max-block", "1s", "--log_level=warn", "--insecure", "--migrate", "no"));
    ck_assert_int_eq(settings.max_block_us, LH_US_PER_S);
    ck_assert_int_eq(settings.log_level, LH_LOG_WARN);
    ck_assert(settings.insecure);
    ck_assert(!settings.migrate);
}
END_TEST

START_TEST(a_long_line_is_read_whole)
{
    char *text = calloc(1, 4000);

    strcpy(text, "[leasehold]\nport_file = /");
    memset(text + strlen(text), 'x', 3000);
    ck_assert_msg(load_config_file(text), "%s", config_errors.text);
    ck_assert_uint_eq(strlen(settings.port_file), 3001);
    free(text);
}
END_TEST

START_TEST(database_and_embedded_exclude_each_other_wherever_they_stand)
{
    char expected[128];

    write_config("[leasehold]\ndatabase = host=db\n");
    ck_assert(!load_config(3, "--config", config_path, "--embedded=/data"));
    snprintf(expected, sizeof(expected), "database (%s:2) and embedded (command line) exclude each other", config_path);
    expect_config_error(0, expected);
    forget();
    setenv("LEASEHOLD_EMBEDDED", "/data", 1);
    ck_assert(!load_config(1, "--database=host=db"));
    expect_config_error(0, "database (command line) and embedded (environment, LEASEHOLD_EMBEDDED) exclude each other");
    unsetenv("LEASEHOLD_EMBEDDED");
    forget();
    ck_assert(load_config(2, "--config", config_path));
    ck_assert_ptr_null(settings.embedded);
}
END_TEST

START_TEST(a_service_keeps_its_data_in_its_state_directory)
{
    setenv("STATE_DIRECTORY", "/var/lib/some-unit", 1);
    ck_assert(load_config(0, NULL));
    ck_assert_str_eq(settings.embedded, "/var/lib/some-unit");
    forget();
    ck_assert(load_config(1, "--database=host=db"));
    ck_assert_ptr_null(settings.embedded);
    unsetenv("STATE_DIRECTORY");
}
END_TEST

START_TEST(a_mode_is_octal)
{
    ck_assert(load_config(1, "--socket-mode=660"));
    ck_assert_int_eq(settings.socket_mode, 0660);
    ck_assert(!load_config(1, "--socket-mode=0689"));
    expect_config_error(0, "expected octal digits such as 0660");
    forget();
    ck_assert(!load_config(1, "--socket-mode=1777"));
    expect_config_error(0, "too large: allowed is 0000 to 0777");
}
END_TEST

START_TEST(a_ratio_is_a_decimal_number)
{
    static const char *const bad[] = {"--trace-sample=",    "--trace-sample=.5",        "--trace-sample=1.",
                                      "--trace-sample=-1",  "--trace-sample=0.0000001", "--trace-sample=1e-3",
                                      "--trace-sample=10%", "--trace-sample= 1"};
    static const struct {
        const char *flag;
        int64_t millionths;
    } good[] = {{"--trace-sample=0", 0},
                {"--trace-sample=0.000001", 1},
                {"--trace-sample=0.25", 250000},
                {"--trace-sample=1", 1000000},
                {"--trace-sample=1.000000", 1000000}};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++, forget()) {
        ck_assert(load_config(1, good[i].flag));
        ck_assert_int_eq(settings.trace_sample, good[i].millionths);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++, forget()) {
        ck_assert_msg(!load_config(1, bad[i]), "%s", bad[i]);
        expect_config_error(0, "expected a number such as 0, 0.01 or 1");
    }
    ck_assert(!load_config(1, "--trace-sample=1.000001"));
    expect_config_error(0, "too large: allowed is 0 to 1");
}
END_TEST

START_TEST(other_machines_need_insecure)
{
    ck_assert(!load_config(1, "--listen=0.0.0.0:7420"));
    expect_config_error(0, "insecure = yes");
    lh_config_errors_finish(&config_errors);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert(!load_config(1, "--admin=[::]:7421"));
    expect_config_error(0, "insecure = yes");
    lh_config_errors_finish(&config_errors);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert(load_config(2, "--listen=0.0.0.0:7420", "--insecure"));
}
END_TEST

START_TEST(authorization_is_on_where_other_machines_listen)
{
    ck_assert(load_config(2, "--listen=127.0.0.1:1,0.0.0.0:7420", "--insecure"));
    ck_assert(settings.authorization);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert(load_config(3, "--listen=0.0.0.0:7420", "--insecure", "--authorization=no"));
    ck_assert(!settings.authorization);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert(load_config(1, "--listen=127.0.0.1:1,unix:/run/x"));
    ck_assert(!settings.authorization);
    ck_assert_uint_eq(settings.admin_principals.count, 0);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert(load_config(2, "--authorization", "--admin-principals=dns:a, user:*"));
    ck_assert(settings.authorization);
    ck_assert_uint_eq(settings.admin_principals.count, 2);
    ck_assert_str_eq(settings.admin_principals.items[1], "user:*");
}
END_TEST

static void ignore(void *arg, const char *sentence)
{
}

START_TEST(administrators_are_taken_away_by_a_reload)
{
    struct lh_settings fresh;

    lh_settings_init(&fresh);
    ck_assert(load_config(1, "--admin-principals=dns:a"));
    lh_settings_adopt(&settings, &fresh, ignore, NULL);
    ck_assert_uint_eq(settings.admin_principals.count, 0);
    lh_settings_finish(&fresh);
}
END_TEST

START_TEST(help_names_what_each_setting_takes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    lh_settings_print_help(out);
    fclose(out);
    ck_assert_ptr_null(strstr(text, "(null)"));
    ck_assert_ptr_nonnull(strstr(text, "--authorization yes|no\n"));
    ck_assert_ptr_nonnull(strstr(text, "--admin-principals WORD,...\n"));
    free(text);
}
END_TEST

START_TEST(this_machine_does_not)
{
    ck_assert(load_config(1, "--listen=127.3.2.1:1,[::1]:2,unix:/run/x,localhost:3"));
    ck_assert_uint_eq(settings.listen.count, 4);
}
END_TEST

static char told[1024];

static void on_told(void *arg, const char *sentence)
{
    strncat(told, sentence, sizeof(told) - strlen(told) - 2);
    strcat(told, "\n");
}

START_TEST(a_reload_changes_what_may_change_and_tells_the_rest)
{
    struct lh_settings fresh = settings;

    ck_assert(load_config_file("[leasehold]\nmax_block = 20s\nlanes = 2\ndatabase = host=a password=b\n"));
    write_config("[leasehold]\nmax_block = 5s\nlanes = 3\ndatabase = host=a password=c\n");
    lh_settings_init(&fresh);
    ck_assert(lh_settings_load(&fresh, 3, (char *[]){program, config_flag, config_path, NULL}, &config_errors));
    told[0] = '\0';
    lh_settings_adopt(&settings, &fresh, on_told, NULL);
    ck_assert_int_eq(settings.max_block_us, 5 * LH_US_PER_S);
    ck_assert_int_eq(settings.lanes, 2);
    ck_assert_ptr_nonnull(strstr(told, "max_block is now 5s, it was 20s"));
    ck_assert_ptr_nonnull(strstr(told, "lanes differs: 3 in the file; it takes effect at the next start"));
    ck_assert_ptr_nonnull(strstr(told, "database differs"));
    ck_assert_ptr_null(strstr(told, "password"));
    lh_settings_finish(&fresh);
}
END_TEST

char *print_config(void (*printer)(const struct lh_settings *printed, FILE *out))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    printer(&settings, out);
    fclose(out);
    return text;
}

static void print_example(const struct lh_settings *unused, FILE *out)
{
    lh_settings_print_example(out);
}

START_TEST(what_check_prints_reads_back_as_the_same)
{
    char *first, *second;

    ck_assert(load_config(3, "--listen=127.0.0.1:1,[::1]:2", "--max-block=1500ms", "--database=host=db"));
    first = print_config(lh_settings_print_effective);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert_msg(load_config_file(first), "%s", config_errors.text);
    ck_assert_int_eq(settings.max_block_us, 1500 * LH_US_PER_MS);
    ck_assert_uint_eq(settings.listen.count, 2);
    second = print_config(lh_settings_print_effective);
    ck_assert_ptr_nonnull(strstr(second, "max_block = 1500ms"));
    free(first);
    free(second);
}
END_TEST

/* Every ";name = value" becomes a line; those without a default stay comments. */
static void uncomment_defaults(char *example)
{
    for (char *line = example; (line = strstr(line, "\n;")) != NULL; line++) {
        size_t size = strcspn(line + 1, "\n");
        if (line[size] != '=')
            memmove(line + 1, line + 2, strlen(line + 2) + 1);
    }
}

START_TEST(no_call_blocks_for_longer_than_a_connection_may_be_idle)
{
    struct lh_settings limits = {.max_block_us = 20 * LH_US_PER_S, .idle_timeout_us = 600 * LH_US_PER_S};

    ck_assert_int_eq(lh_settings_max_block_us(&limits), 20 * LH_US_PER_S);
    limits.idle_timeout_us = 10 * LH_US_PER_S;
    ck_assert_int_eq(lh_settings_max_block_us(&limits), 9700 * LH_US_PER_MS);
    limits.idle_timeout_us = 0; /* none is declared */
    ck_assert_int_eq(lh_settings_max_block_us(&limits), 20 * LH_US_PER_S);
    limits.max_block_us = 0;
    limits.idle_timeout_us = 10 * LH_US_PER_S;
    ck_assert_int_eq(lh_settings_max_block_us(&limits), 0); /* that was asked for */
}
END_TEST

START_TEST(the_example_file_is_valid_and_changes_nothing)
{
    char *example = print_config(print_example);

    ck_assert_msg(load_config_file(example), "%s", config_errors.text);
    ck_assert_int_eq(settings.lanes, 3);
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    uncomment_defaults(example);
    ck_assert_msg(load_config_file(example), "%s", config_errors.text);
    ck_assert_int_eq(settings.max_block_us, 20 * LH_US_PER_S);
    free(example);
}
END_TEST

START_TEST(passwords_are_not_shown)
{
    static const struct {
        const char *database;
        const char *shown;
    } cases[] = {
        {"postgresql://me:se:cr@et@db:5432/x", "postgresql://me:***@db:5432/x"},
        {"postgresql://me@db/x?password=secret&sslmode=require", "postgresql://me@db/x?password=***&sslmode=require"},
        {"postgresql://db/x", "postgresql://db/x"},
        {"host=db password=secret user=me", "host=db password=*** user=me"},
        {"host=db password='se cr\\'et' user=me", "host=db password=*** user=me"},
        {"host=db", "host=db"},
        {"postgresql://db/x?sslpassword=a&pass%77ord=b&application_name=c",
         "postgresql://db/x?sslpassword=***&pass%77ord=***&application_name=c"},
        {"postgres://me:secret@db/x?password=other", "postgres://me:***@db/x?password=***"},
        {"host = db password = secret sslpassword\t=\tother user = me",
         "host = db password = *** sslpassword\t=\t*** user = me"},
        {"password=se\\ cret options='-c x=://' user=me", "password=*** options='-c x=://' user=me"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *shown = lh_database_redact(cases[i].database);
        ck_assert_str_eq(shown, cases[i].shown);
        free(shown);
    }
}
END_TEST

START_TEST(addresses_are_written_as_they_are_read)
{
    static const char *const texts[] = {"127.0.0.1:7420", "[::1]:7420", "[2001:db8::2]:1", "unix:/run/leasehold.sock"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct lh_address address;
        char why[160], text[LH_ADDRESS_TEXT_BYTES];
        ck_assert(lh_address_parse(texts[i], &address, why, sizeof(why)));
        lh_address_format(&address, text);
        ck_assert_str_eq(text, texts[i]);
    }
}
END_TEST

static TCase *cases_of_sources(void)
{
    TCase *sources = tcase_create("sources");

    tcase_add_checked_fixture(sources, begin_config, end_config);
    tcase_add_test(sources, defaults_need_no_file);
    tcase_add_test(sources, a_file_sets_every_type);
    tcase_add_test(sources, a_long_line_is_read_whole);
    tcase_add_test(sources, zero_is_allowed_where_it_means_never);
    tcase_add_test(sources, addresses_are_written_as_they_are_read);
    tcase_add_test(sources, the_command_line_wins_over_the_environment_and_that_over_the_file);
    tcase_add_test(sources, flags_are_written_with_dashes_or_underscores);
    tcase_add_test(sources, database_and_embedded_exclude_each_other_wherever_they_stand);
    tcase_add_test(sources, a_service_keeps_its_data_in_its_state_directory);
    tcase_add_test(sources, a_mode_is_octal);
    tcase_add_test(sources, a_ratio_is_a_decimal_number);
    tcase_add_test(sources, other_machines_need_insecure);
    tcase_add_test(sources, authorization_is_on_where_other_machines_listen);
    tcase_add_test(sources, administrators_are_taken_away_by_a_reload);
    tcase_add_test(sources, help_names_what_each_setting_takes);
    tcase_add_test(sources, this_machine_does_not);
    tcase_add_test(sources, a_reload_changes_what_may_change_and_tells_the_rest);
    tcase_add_test(sources, what_check_prints_reads_back_as_the_same);
    tcase_add_test(sources, no_call_blocks_for_longer_than_a_connection_may_be_idle);
    tcase_add_test(sources, the_example_file_is_valid_and_changes_nothing);
    tcase_add_test(sources, passwords_are_not_shown);
    return sources;
}

int main(void)
{
    Suite *suite = suite_create("config");
    SRunner *runner;
    int failed;

    suite_add_tcase(suite, test_config_refused());
    suite_add_tcase(suite, test_config_sections());
    suite_add_tcase(suite, cases_of_sources());
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
