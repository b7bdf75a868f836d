#include "test_cli.h"

#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/command.h"
#include "cli/help.h"

static const struct lh_option global[] = {
    {"server", 0, "ADDRESS", ""}, {"output", 'o', "FORMAT", ""}, {"help", 'h', NULL, ""}, {0}};
static const struct lh_option own[] = {{"duration", 'd', "DURATION", ""}, {"label", 'l', "K=V", ""},
                                       {"dry-run", 0, NULL, ""},          {"shared", 's', "[=UNITS]", ""},
                                       {"verbose", 'v', NULL, ""},        {0}};

static bool options_of(const char *command, const struct lh_option **options)
{
    *options = own;
    return strcmp(command, "acquire") == 0;
}

/* Takes apart what follows "leasehold", words separated by spaces; "" is written as _. */
static bool parse(struct lh_args *args, const char *line, struct lh_error *error)
{
    static char copy[512];
    static char name[] = "leasehold", empty[] = "";
    static char *argv[32]; /* what is parsed points into it */
    char *rest = NULL;
    int argc = 1;

    strcpy(copy, line);
    memset(argv, 0, sizeof(argv));
    argv[0] = name;
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = strcmp(word, "_") == 0 ? empty : word;
    *error = (struct lh_error){0};
    return lh_args_parse(args, argc, argv, global, options_of, error);
}

START_TEST(options_stand_before_and_after_the_command)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "--server a:1 acquire ns --duration 5s key -o json", &error));
    ck_assert_str_eq(args.command, "acquire");
    ck_assert_uint_eq(args.word_count, 2);
    ck_assert_str_eq(args.words[0], "ns");
    ck_assert_str_eq(args.words[1], "key");
    ck_assert_str_eq(lh_args_value(&args, "server"), "a:1");
    ck_assert_str_eq(lh_args_value(&args, "duration"), "5s");
    ck_assert_str_eq(lh_args_value(&args, "output"), "json");
    ck_assert(!lh_args_has(&args, "help"));
    ck_assert_ptr_null(lh_args_value(&args, "label"));
    lh_args_finish(&args);
}
END_TEST

START_TEST(values_are_joined_by_equals_or_to_a_letter)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "acquire --duration=5s -ojson -vh --label= --server=a=b", &error));
    ck_assert_str_eq(lh_args_value(&args, "duration"), "5s");
    ck_assert_str_eq(lh_args_value(&args, "output"), "json");
    ck_assert(lh_args_has(&args, "verbose"));
    ck_assert(lh_args_has(&args, "help"));
    ck_assert_str_eq(lh_args_value(&args, "label"), "");
    ck_assert_str_eq(lh_args_value(&args, "server"), "a=b");
    lh_args_finish(&args);
}
END_TEST

START_TEST(the_last_value_counts_and_repeated_ones_keep_their_order)
{
    struct lh_error error;
    struct lh_args args;
    size_t at = 0;

    ck_assert(parse(&args, "acquire -l a=1 -d 1s --label b=2 -d 2s", &error));
    ck_assert_str_eq(lh_args_value(&args, "duration"), "2s");
    ck_assert_str_eq(lh_args_next_value(&args, "label", &at), "a=1");
    ck_assert_str_eq(lh_args_next_value(&args, "label", &at), "b=2");
    ck_assert_ptr_null(lh_args_next_value(&args, "label", &at));
    lh_args_finish(&args);
}
END_TEST

START_TEST(an_optional_value_stands_after_equals_or_not_at_all)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "acquire --shared 3 --shared=2 -s", &error)); /* the last one counts, which has none */
    ck_assert(lh_args_has(&args, "shared"));
    ck_assert_ptr_null(lh_args_value(&args, "shared"));
    ck_assert_uint_eq(args.word_count, 1);
    ck_assert_str_eq(args.words[0], "3");
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire -s --shared=5", &error));
    ck_assert_str_eq(lh_args_value(&args, "shared"), "5");
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire --shared= -v", &error));
    ck_assert_str_eq(lh_args_value(&args, "shared"), "");
    ck_assert(lh_args_has(&args, "verbose"));
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire -s7", &error));
    ck_assert_str_eq(lh_args_value(&args, "shared"), "7");
    lh_args_finish(&args);
}
END_TEST

START_TEST(two_dashes_end_the_options)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "acquire -v -- --duration -- -", &error));
    ck_assert_uint_eq(args.word_count, 3);
    ck_assert_str_eq(args.words[0], "--duration");
    ck_assert_str_eq(args.words[1], "--");
    ck_assert_str_eq(args.words[2], "-");
    ck_assert_ptr_null(lh_args_value(&args, "duration"));
    ck_assert_uint_eq(args.plain_count, 0);
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire ns -v key -- -v other", &error));
    ck_assert_uint_eq(args.word_count, 4);
    ck_assert_uint_eq(args.plain_count, 2);
    ck_assert_str_eq(args.words[1], "key");
    ck_assert_str_eq(args.words[2], "-v");
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire ns key other", &error));
    ck_assert_uint_eq(args.plain_count, 3);
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire ns key --", &error));
    ck_assert_uint_eq(args.plain_count, 2);
    ck_assert_uint_eq(args.word_count, 2);
    lh_args_finish(&args);
}
END_TEST

START_TEST(two_dashes_are_no_value)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(!parse(&args, "acquire ns --duration -- key", &error));
    ck_assert_str_eq(error.message, "option --duration needs a value: --duration DURATION");
    lh_args_finish(&args);
    ck_assert(!parse(&args, "acquire ns -d -- key", &error));
    ck_assert_str_eq(error.message, "option --duration needs a value: --duration DURATION");
    lh_args_finish(&args);
    ck_assert(parse(&args, "acquire --label=-- -d--", &error));
    ck_assert_str_eq(lh_args_value(&args, "label"), "--");
    ck_assert_str_eq(lh_args_value(&args, "duration"), "--");
    lh_args_finish(&args);
}
END_TEST

START_TEST(a_dash_and_an_empty_word_are_words)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "acquire - _", &error));
    ck_assert_uint_eq(args.word_count, 2);
    ck_assert_str_eq(args.words[1], "");
    lh_args_finish(&args);
    ck_assert(parse(&args, "", &error));
    ck_assert_ptr_null(args.command);
    lh_args_finish(&args);
}
END_TEST

START_TEST(a_long_option_may_be_abbreviated)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "acquire --dur 5s --verb", &error));
    ck_assert_str_eq(lh_args_value(&args, "duration"), "5s");
    ck_assert(lh_args_has(&args, "verbose"));
    lh_args_finish(&args);
}
END_TEST

START_TEST(a_value_may_look_like_an_option)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(parse(&args, "acquire --duration -5s", &error));
    ck_assert_str_eq(lh_args_value(&args, "duration"), "-5s");
    lh_args_finish(&args);
}
END_TEST

static const struct {
    const char *line;
    const char *sentence;
} refused[] = {
    {"acquire --duraton 5s", "unknown option --duraton; did you mean --duration?"},
    {"acquire --frobnicate", "unknown option --frobnicate"},
    {"--duration 5s acquire", "unknown option --duration before the command; a command's own options go after it"},
    {"acquire -x", "unknown option -x"},
    {"acquire -vx", "unknown option -x"},
    {"acquire --duration", "option --duration needs a value: --duration DURATION"},
    {"acquire -d", "option --duration needs a value: --duration DURATION"},
    {"acquire --verbose=yes", "option --verbose takes no value"},
    {"aquire ns key", "unknown command: aquire"},
    {"acquire --lenght 5s", "unknown option --lenght; did you mean --duration?"},
    {"acquire --ttl=5s", "unknown option --ttl; did you mean --duration?"},
    {"acquire --help=x", "option --help takes no value"},
    {"acquire --d", "option --d is ambiguous"},
};

START_TEST(wrong_usage_is_refused_with_a_sentence)
{
    struct lh_error error;
    struct lh_args args;

    ck_assert(!parse(&args, refused[_i].line, &error));
    ck_assert_str_eq(error.message, refused[_i].sentence);
    ck_assert_int_eq(error.status, LH_INVALID_ARGUMENT);
    lh_args_finish(&args);
}
END_TEST

START_TEST(a_slip_finds_the_word_that_was_meant)
{
    static const char *const names[] = {"acquire", "heartbeat", "release", "list", "show", NULL};

    ck_assert_str_eq(lh_nearest("aquire", names), "acquire");
    ck_assert_str_eq(lh_nearest("lst", names), "list");
    ck_assert_str_eq(lh_nearest("heart-beat", names), "heartbeat");
    ck_assert_ptr_null(lh_nearest("frobnicate", names));
    ck_assert_ptr_null(lh_nearest("", names));
    ck_assert_ptr_null(lh_nearest("a-word-that-is-much-too-long-to-be-a-slip", names));
}
END_TEST

/* Every help text: nothing wider than 80 columns, an example, and every option of the command. */
START_TEST(help_fits_a_terminal_and_shows_an_example)
{
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        const struct lh_command *command = lh_commands[i];
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        size_t column = 0;

        lh_help_print(out);
        lh_help_print_command(out, command);
        fclose(out);
        for (size_t at = 0; at < size; at++) {
            column = text[at] == '\n' ? 0 : column + 1;
            ck_assert_msg(column <= 80, "%s: wider than 80 columns: %.80s", command->name, text + at + 1 - column);
        }
        ck_assert_ptr_nonnull(strstr(text, "\nExamples\n  leasehold "));
        for (const struct lh_option *o = command->options; o != NULL && o->name != NULL; o++)
            ck_assert_msg(strstr(text, o->name) != NULL, "%s: --%s is not explained", command->name, o->name);
        ck_assert_ptr_eq(lh_command_find(command->name), command);
        free(text);
    }
}
END_TEST

/* A command's option must not hide a global one. */
START_TEST(no_option_is_taken_twice)
{
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        const struct lh_option *options = lh_commands[i]->options;
        for (const struct lh_option *a = options; a != NULL && a->name != NULL; a++) {
            for (const struct lh_option *b = lh_global_options; b->name != NULL; b++) {
                ck_assert_str_ne(a->name, b->name);
                ck_assert(a->letter == 0 || a->letter != b->letter);
            }
            for (const struct lh_option *b = options; b != a; b++) {
                ck_assert_str_ne(a->name, b->name);
                ck_assert(a->letter == 0 || a->letter != b->letter);
            }
        }
    }
}
END_TEST

TCase *test_cli_args(void)
{
    TCase *tests = tcase_create("args");
    tcase_add_test(tests, options_stand_before_and_after_the_command);
    tcase_add_test(tests, values_are_joined_by_equals_or_to_a_letter);
    tcase_add_test(tests, the_last_value_counts_and_repeated_ones_keep_their_order);
    tcase_add_test(tests, an_optional_value_stands_after_equals_or_not_at_all);
    tcase_add_test(tests, two_dashes_end_the_options);
    tcase_add_test(tests, two_dashes_are_no_value);
    tcase_add_test(tests, a_dash_and_an_empty_word_are_words);
    tcase_add_test(tests, a_long_option_may_be_abbreviated);
    tcase_add_test(tests, a_value_may_look_like_an_option);
    tcase_add_loop_test(tests, wrong_usage_is_refused_with_a_sentence, 0, sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tests, a_slip_finds_the_word_that_was_meant);
    tcase_add_test(tests, help_fits_a_terminal_and_shows_an_example);
    tcase_add_test(tests, no_option_is_taken_twice);
    return tests;
}
