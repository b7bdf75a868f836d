/* Sections of databases: how they are read, and what a reload may make of them. */
#include "test_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/settings.h"

START_TEST(several_databases_have_a_section_each)
{
    static const char text[] = "[leasehold]\nlanes = 2\n"
                               "[database eu]\ndatabase = host=a\n  password=secret\nnamespaces = x, y.z,\n  w\n"
                               "[database us-1]\ndatabase = host=b\ndefault = yes\nspread = s\n"
                               "[database us-2]\ndatabase = host=c\nspread = s, t\n";
    struct lh_settings other;
    char *shown;

    ck_assert_msg(load_config_file(text), "%s", config_errors.text);
    ck_assert_ptr_null(settings.database);
    ck_assert_ptr_null(settings.embedded);
    ck_assert_uint_eq(settings.database_count, 3);
    ck_assert_str_eq(settings.databases[0].name, "eu");
    ck_assert_str_eq(settings.databases[0].database, "host=a password=secret");
    ck_assert_uint_eq(settings.databases[0].namespaces.count, 3);
    ck_assert_str_eq(settings.databases[0].namespaces.items[2], "w");
    ck_assert(!settings.databases[0].is_default);
    ck_assert(settings.databases[1].is_default);
    ck_assert_str_eq(settings.databases[2].spread.items[1], "t");
    shown = print_config(lh_settings_print_effective);
    ck_assert_ptr_nonnull(strstr(shown, "[database eu]\ndatabase = host=a password=***\nnamespaces = x, y.z, w\n"));
    other = settings;
    lh_settings_init(&settings);
    ck_assert_msg(load_config_file(shown), "%s", config_errors.text);
    ck_assert(!lh_settings_check_reload(&other, &settings, &config_errors)); /* by the password */
    ck_assert_ptr_nonnull(strstr(config_errors.text, "[database eu] database: a change takes a restart of the daemon"));
    lh_config_errors_finish(&config_errors);
    free(settings.databases[0].database);
    settings.databases[0].database = strdup("host=a password=secret");
    ck_assert(lh_settings_check_reload(&other, &settings, &config_errors));
    settings.databases[2].spread.items[1][0] = 'u';
    ck_assert(!lh_settings_check_reload(&other, &settings, &config_errors));
    ck_assert_ptr_nonnull(strstr(config_errors.text, "[database us-2] spread: a change takes a restart of the daemon"));
    lh_config_errors_finish(&config_errors);
    lh_settings_finish(&other);
    free(shown);
}
END_TEST

#define SECTION(name, ...) "[database " name "]\ndatabase = host=" name "\n" __VA_ARGS__
#define A SECTION("a", "spread = s\n")
#define B SECTION("b", "spread = s\n")
#define C SECTION("c", "spread = s\n")
#define B_IS_HOME SECTION("b", "spread = s\ndefault = yes\n")
#define FIRST_IS_HOME                                                                                                  \
    "without a default the first section has the tokens of clients, and that is a; a change takes a restart of the "   \
    "daemon"
#define NOT_ONE                                                                                                        \
    "sections [database NAME] in the place of one database, or the other way round, take a restart of the daemon"

/* NULL: it is allowed. */
static const struct {
    const char *from, *to, *words;
} section_changes[] = {
    {A B, A B C, NULL},
    {A B C, A B, NULL},
    {A B C, A B SECTION("d", "spread = s\n"), NULL},
    {A B, C A B, "[database c] " FIRST_IS_HOME},
    {A B_IS_HOME, C A B_IS_HOME, NULL},
    {A B_IS_HOME, B_IS_HOME C, NULL},
    {A B, B A, "[database b] " FIRST_IS_HOME},
    {A B, B C, "[database b] " FIRST_IS_HOME},
    {"database = host=a\n", A B, NOT_ONE},
    {A B, "database = host=a\n", NOT_ONE},
    {A B, A B SECTION("c", "spread = s, t\n"),
     "[database c] spread: t has no other section; that takes a restart of the daemon"},
    {A B SECTION("c", "spread = s, t\n"), A B,
     "[database c] spread: t has no other section; that takes a restart of the daemon"},
    {A B, A B SECTION("c", "spread = s\nnamespaces = t\n"),
     "[database c] namespaces: a section that has it is added by a restart of the daemon"},
    {A B SECTION("c", "spread = s\nnamespaces = t\n"), A B,
     "[database c] namespaces: a section that has it is removed by a restart of the daemon"},
    {A B, A B SECTION("c", "default = yes\n"),
     "[database c] default: a section that has it is added by a restart of the daemon"},
    {A B_IS_HOME, A C, "[database b] default: a section that has it is removed by a restart of the daemon"},
};

START_TEST(a_reload_refuses_what_sections_may_not_become)
{
    struct lh_settings before;
    const char *words = section_changes[_i].words;
    char *text;

    ck_assert_msg(load_config_file(text = lh_format("[leasehold]\n%s", section_changes[_i].from)), "%s",
                  config_errors.text);
    free(text);
    before = settings;
    lh_settings_init(&settings);
    ck_assert_msg(load_config_file(text = lh_format("[leasehold]\n%s", section_changes[_i].to)), "%s",
                  config_errors.text);
    free(text);
    ck_assert(lh_settings_check_reload(&before, &settings, &config_errors) == (words == NULL));
    ck_assert_msg(words == NULL || strstr(config_errors.text, words) != NULL, "%s", config_errors.text);
    lh_config_errors_finish(&config_errors);
    lh_settings_finish(&before);
}
END_TEST

START_TEST(there_are_64_sections_at_most)
{
    char *text = lh_strdup("[leasehold]\n"), *longer;

    for (int i = 0; i <= 64; i++, text = longer) {
        if (i == 64)
            ck_assert_msg(load_config_file(text) && settings.database_count == 64, "%s", config_errors.text);
        longer = lh_format("%s[database d%d]\ndatabase = host=%d\nspread = s\n", text, i, i);
        free(text);
    }
    lh_settings_finish(&settings);
    lh_settings_init(&settings);
    ck_assert(!load_config_file(text));
    ck_assert_ptr_nonnull(strstr(config_errors.text, ":195: [database d64]: at most 64 databases may be configured\n"));
    free(text);
}
END_TEST

TCase *test_config_sections(void)
{
    TCase *sections = tcase_create("sections");

    tcase_add_checked_fixture(sections, begin_config, end_config);
    tcase_add_test(sections, several_databases_have_a_section_each);
    tcase_add_loop_test(sections, a_reload_refuses_what_sections_may_not_become, 0,
                        (int)(sizeof(section_changes) / sizeof(section_changes[0])));
    tcase_add_test(sections, there_are_64_sections_at_most);
    return sections;
}
