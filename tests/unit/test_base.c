#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/standard.h"
#include "base/status.h"
#include "base/table.h"
#include "base/text.h"
#include "base/uuid.h"
#include "run_tests.h"
#include "test_base.h"

struct thing {
    struct lh_link link;
    struct lh_table_entry entry;
    int number;
};

START_TEST(list_keeps_order_and_survives_removal_while_walking)
{
    struct lh_link head, other;
    struct thing things[6] = {0};
    int seen = 0;

    lh_list_init(&head);
    lh_list_init(&other);
    ck_assert(lh_list_is_empty(&head));
    ck_assert_ptr_null(LH_LIST_FIRST(struct thing, &head, link));
    for (int i = 0; i < 5; i++) {
        things[i].number = i;
        lh_list_append(&head, &things[i].link);
    }
    things[5].number = -1;
    lh_list_prepend(&head, &things[5].link);
    ck_assert_int_eq(LH_LIST_FIRST(struct thing, &head, link)->number, -1);
    lh_list_remove(&things[5].link);
    lh_list_remove(&things[5].link);
    ck_assert(!lh_link_is_linked(&things[5].link));
    LH_LIST_EACH(struct thing, t, &head, link) {
        ck_assert_int_eq(t->number, seen++);
        if (t->number % 2 == 0)
            lh_list_remove(&t->link);
    }
    ck_assert_int_eq(seen, 5);
    lh_list_append(&other, &things[0].link);
    lh_list_splice(&other, &head);
    ck_assert(lh_list_is_empty(&head));
    seen = 0;
    LH_LIST_EACH(struct thing, t, &other, link)
        seen = seen * 10 + t->number;
    ck_assert_int_eq(seen, 13);
}
END_TEST

static bool is_number(const struct lh_table_entry *entry, const void *key)
{
    return LH_CONTAINER(const struct thing, entry, entry)->number == *(const int *)key;
}

START_TEST(table_finds_what_was_put_in_through_growth_collisions_and_removal)
{
    enum { COUNT = 5000 };
    struct lh_table table;
    struct thing *things = lh_alloc_zero(COUNT, sizeof(*things));
    struct lh_table_entry *next = NULL, *entry;
    size_t slot = 0, walked = 0;

    lh_table_init(&table, is_number);
    for (int i = 0; i < COUNT; i++) {
        things[i].number = i;
        /* Every tenth collides with its neighbours on purpose. */
        lh_table_insert(&table, &things[i].entry, i % 10 == 0 ? 42 : lh_hash(&i, sizeof(i), 0));
    }
    for (int i = 0; i < COUNT; i++) {
        uint64_t hash = i % 10 == 0 ? 42 : lh_hash(&i, sizeof(i), 0);
        ck_assert_ptr_eq(lh_table_find(&table, hash, &i), &things[i].entry);
    }
    while ((entry = lh_table_walk(&table, &slot, &next)) != NULL) {
        walked++;
        if (LH_CONTAINER(struct thing, entry, entry)->number % 3 == 0)
            lh_table_remove(&table, entry);
    }
    ck_assert_uint_eq(walked, COUNT);
    for (int i = 0; i < COUNT; i++) {
        uint64_t hash = i % 10 == 0 ? 42 : lh_hash(&i, sizeof(i), 0);
        ck_assert((lh_table_find(&table, hash, &i) == NULL) == (i % 3 == 0));
    }
    lh_table_finish(&table);
    free(things);
}
END_TEST

START_TEST(hash_depends_on_every_byte_the_length_and_the_seed)
{
    char text[33] = "abcdefghijklmnopqrstuvwxyz012345";
    uint64_t whole = lh_hash(text, 32, 0);
    ck_assert_uint_eq(whole, lh_hash(text, 32, 0));
    ck_assert_uint_ne(whole, lh_hash(text, 31, 0));
    ck_assert_uint_ne(whole, lh_hash(text, 32, 1));
    for (int i = 0; i < 32; i++) {
        text[i] ^= 1;
        ck_assert_uint_ne(whole, lh_hash(text, 32, 0));
        text[i] ^= 1;
    }
}
END_TEST

START_TEST(buffer_and_arena_keep_what_is_put_in)
{
    struct lh_buffer buffer = {0};
    struct lh_arena arena = {0};
    char *texts[2000];

    for (int i = 0; i < 10000; i++)
        lh_buffer_append(&buffer, &i, sizeof(i));
    lh_buffer_append(&buffer, NULL, 0);
    for (int i = 0; i < 10000; i++)
        ck_assert_int_eq(memcmp(buffer.data + (size_t)i * sizeof(i), &i, sizeof(i)), 0);
    lh_buffer_finish(&buffer);
    ck_assert_uint_eq(buffer.size, 0);

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) {
            char text[32];
            snprintf(text, sizeof(text), "text %d of round %d", i, round);
            texts[i] = lh_arena_strdup(&arena, text);
            ck_assert_uint_eq((uintptr_t)texts[i] % 16, 0);
        }
        for (int i = 0; i < 2000; i++) {
            char text[32];
            snprintf(text, sizeof(text), "text %d of round %d", i, round);
            ck_assert_str_eq(texts[i], text);
        }
        memset(lh_arena_alloc(&arena, 1000000), 1, 1000000);
        lh_arena_reset(&arena);
    }
    lh_arena_finish(&arena);
    lh_arena_finish(&arena);
}
END_TEST

START_TEST(uuid_parses_its_own_text_and_nothing_else)
{
    static const char *const bad[] = {"",
                                      "0",
                                      "c0ffee00-0000-4000-8000-00000000000",
                                      "c0ffee00-0000-4000-8000-0000000000000",
                                      "c0ffee00-0000-4000-8000_000000000000",
                                      "c0ffee000000-4000-8000-000000000000-",
                                      "g0ffee00-0000-4000-8000-000000000000",
                                      "{c0ffee00-0000-4000-8000-00000000000}",
                                      " c0ffee00-0000-4000-8000-000000000000",
                                      "c0ffee00000040008000000000000000"};
    struct lh_uuid a = lh_uuid_random(), b;
    char text[LH_UUID_TEXT_BYTES];

    lh_uuid_format(&a, text);
    ck_assert_uint_eq(strlen(text), 36);
    ck_assert_int_eq(text[14], '4');
    ck_assert(lh_uuid_parse(text, &b));
    ck_assert(lh_uuid_equal(&a, &b));
    ck_assert(lh_uuid_parse("C0FFEE00-0000-4000-8000-00000000000F", &b));
    ck_assert(!lh_uuid_is_zero(&b));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!lh_uuid_parse(bad[i], &b), "'%s' was taken for a UUID", bad[i]);
}
END_TEST

START_TEST(utf8_is_judged_as_unicode_says)
{
    static const struct {
        const char *bytes;
        size_t size;
        bool valid, control;
    } cases[] = {
        {"", 0, true, false},
        {"plain", 5, true, false},
        {"gr\xc3\xbc\xc3\x9f", 6, true, false},
        {"\xe2\x82\xac\xf0\x9f\x94\x92", 7, true, false},
        {"\xf4\x8f\xbf\xbf", 4, true, false},
        {"a\0b", 3, false, true},
        {"\x80", 1, false, false},
        {"\xc0\xaf", 2, false, false},
        {"\xc1\xbf", 2, false, false},
        {"\xe0\x9f\xbf", 3, false, false},
        {"\xed\xa0\x80", 3, false, false},
        {"\xf0\x8f\xbf\xbf", 4, false, false},
        {"\xf4\x90\x80\x80", 4, false, false},
        {"\xf5\x80\x80\x80", 4, false, false},
        {"\xe2\x82", 2, false, false},
        {"\xff", 1, false, false},
        {"a\nb", 3, true, true},
        {"\x7f", 1, true, true},
        {"\xc2\x85", 2, true, true},
        {"\xc2\xa0", 2, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(lh_utf8_is_valid(cases[i].bytes, cases[i].size) == cases[i].valid, "case %zu", i);
        if (cases[i].valid)
            ck_assert_msg(lh_utf8_has_control(cases[i].bytes, cases[i].size) == cases[i].control, "case %zu", i);
    }
    /* Long texts are read a word at a time: what is wrong is found at each place of one, and so is what is right. */
    for (size_t at = 0; at < 27; at++) {
        char text[] = "abcdefgh01234567\x01\x7fXYZ~!tail";
        text[at] = '\0';
        ck_assert_msg(!lh_utf8_is_valid(text, 27), "NUL at %zu", at);
        text[at] = '\x80';
        ck_assert_msg(!lh_utf8_is_valid(text, 27), "half a character at %zu", at);
        if (at == 26)
            continue;
        memcpy(text + at, "\xc3\xbc", 2);
        ck_assert_msg(lh_utf8_is_valid(text, 27), "a character of two bytes at %zu", at);
    }
    ck_assert_uint_eq(lh_utf8_cut("a\xe2\x82\xac", 4, 3), 1);
    ck_assert_uint_eq(lh_utf8_cut("a\xe2\x82\xac", 4, 4), 4);
    ck_assert_uint_eq(lh_utf8_cut("abc", 3, 0), 0);
}
END_TEST

START_TEST(durations_are_read_as_people_write_them)
{
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {
        {"30s", 30000000},   {"1.5s", 1500000},     {"250ms", 250000},    {"5m", 300000000},
        {"5min", 300000000}, {"1h30m", 5400000000}, {"2d", 172800000000}, {"0", 0},
        {"0.1", 100000},     {"10us", 10},          {"7", 7000000},
    };
    static const char *const bad[] = {
        "", "s", "-1s", "1x", "1s2", "1 s", "1..5s", "200000d", "1e3", "99999999999999999999999999d", ".5s"};
    int64_t us;
    char text[LH_DURATION_TEXT_BYTES];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(lh_duration_parse(good[i].text, &us), "'%s' was refused", good[i].text);
        ck_assert_msg(us == good[i].us, "'%s' is %lld", good[i].text, (long long)us);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!lh_duration_parse(bad[i], &us), "'%s' was taken", bad[i]);
    lh_duration_format(35 * LH_US_PER_S, text);
    ck_assert_str_eq(text, "35 s");
    lh_duration_format(800 * LH_US_PER_MS, text);
    ck_assert_str_eq(text, "800 ms");
    lh_duration_format(-1500 * LH_US_PER_MS, text);
    ck_assert_str_eq(text, "-1.5 s");
    lh_duration_format(125 * LH_US_PER_S, text);
    ck_assert_str_eq(text, "2 min 5 s");
    lh_duration_format(12000 * LH_US_PER_S, text);
    ck_assert_str_eq(text, "3 h 20 min");
    lh_duration_format(52 * 3600 * LH_US_PER_S, text);
    ck_assert_str_eq(text, "2 d 4 h");
}
END_TEST

START_TEST(a_scope_is_named_so_that_it_is_no_other)
{
    char name[LH_SCOPE_NAME_BYTES], longest[256], key[1025];

    ck_assert_str_eq(lh_scope_name("a", "b/k", name), "a/b/k");
    ck_assert_str_eq(lh_scope_name("a/b", "k", name), "\"a/b\"/k");
    memset(key, 'k', 1024);
    key[1024] = '\0';
    memset(longest, '/', 255);
    longest[255] = '\0';
    ck_assert_uint_eq(strlen(lh_scope_name(longest, key, name)), 255 + 2 + 1 + 128 + 3);
    ck_assert_str_eq(name + strlen(name) - 4, "k...");
}
END_TEST

START_TEST(status_keeps_reason_and_grpc_code_together)
{
    struct lh_error error;
    ck_assert_str_eq(lh_status_name(LH_LEASE_HELD), "LEASE_HELD");
    ck_assert_int_eq(lh_status_grpc(LH_LEASE_HELD), 10);
    ck_assert_int_eq(lh_status_grpc(LH_WAIT_TIMEOUT), 4);
    ck_assert_int_eq(lh_status_grpc((enum lh_status)9999), 13);
    ck_assert_int_eq(lh_error_set(&error, LH_SCOPE_BUSY, "%s is busy", "a/b"), LH_SCOPE_BUSY);
    ck_assert_str_eq(error.message, "a/b is busy");
    ck_assert_str_eq(error.sqlstate, "");
    ck_assert_int_eq(lh_error_set(NULL, LH_INTERNAL, "nobody listens"), LH_INTERNAL);
}
END_TEST

static char last_line[4096];

static void keep_line(void *arg, enum lh_log_level level, const char *line)
{
    snprintf(last_line, sizeof(last_line), "%d %s", (int)level, line);
}

START_TEST(log_lines_cannot_be_forged_by_a_name)
{
    lh_log_set_sink(keep_line, NULL);
    lh_info("scope=%s", "a\n2026 ERROR forged");
    ck_assert_str_eq(last_line, "1 scope=a\\x0a2026 ERROR forged");
    lh_log(LH_LOG_DEBUG, "below the level");
    ck_assert_str_eq(last_line, "1 scope=a\\x0a2026 ERROR forged");
    lh_log_set_sink(NULL, NULL);
}
END_TEST

/* What is written to stderr until end_catch(). */
static void catch_stderr(int pipe_ends[2], int *kept)
{
    ck_assert_int_eq(pipe(pipe_ends), 0);
    *kept = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(pipe_ends[1], STDERR_FILENO), 0);
}

static char *end_catch(int pipe_ends[2], int kept)
{
    static char caught[8192];

    dup2(kept, STDERR_FILENO);
    close(kept);
    close(pipe_ends[1]);
    ssize_t size = read(pipe_ends[0], caught, sizeof(caught) - 1);
    close(pipe_ends[0]);
    caught[size < 0 ? 0 : size] = '\0';
    return caught;
}

START_TEST(json_lines_have_the_handles_as_fields)
{
    int ends[2];
    int kept;

    catch_stderr(ends, &kept);
    ck_assert(lh_log_set_form(LH_LOG_JSON, NULL));
    lh_warn("lease \"expired\" scope=%s/%s token=%d why=%s", "db", "7\" token=9\n", 42, "a\\b");
    lh_info("owner=%s is shown", "x");
    lh_info("lease ended owner=%s", "x\x1eprincipal=y");
    lh_log_set_form(LH_LOG_TEXT, NULL);
    char *caught = end_catch(ends, kept);
    ck_assert_ptr_nonnull(strstr(
        caught, "Z\",\"level\":\"warn\",\"message\":\"lease \\\"expired\\\"\",\"scope\":\"db/7\\\" token=9\\\\x0a\","
                "\"token\":\"42\",\"why\":\"a\\\\b\"}\n"));
    ck_assert_ptr_nonnull(strstr(caught, "\"level\":\"info\",\"message\":\"owner=x is shown\"}\n"));
    ck_assert_ptr_nonnull(strstr(caught, "\"message\":\"lease ended owner=x?principal=y\"}\n"));
}
END_TEST

START_TEST(a_json_line_is_whole_however_long_its_values_are)
{
    char owner[3000];
    int ends[2];
    int kept;

    memset(owner, '\x01', sizeof(owner));
    owner[sizeof(owner) - 1] = '\0';
    catch_stderr(ends, &kept);
    lh_log_set_form(LH_LOG_JSON, NULL);
    lh_info("lease ended owner=%s token=%d", owner, 1);
    lh_log_set_form(LH_LOG_TEXT, NULL);
    char *caught = end_catch(ends, kept);
    ck_assert_str_eq(caught + strlen(caught) - 7, "\\x01\"}\n");
}
END_TEST

static void read_all(int fd, char *caught, size_t size)
{
    ssize_t more;
    size_t used = 0;

    while (used + 1 < size && (more = read(fd, caught + used, size - used - 1)) > 0)
        used += (size_t)more;
    caught[used] = '\0';
}

/* Twice as much as a pipe takes, without a reader. */
static void fill_the_log(uint64_t *dropped)
{
    char owner[1500];

    memset(owner, '\x01', sizeof(owner));
    owner[sizeof(owner) - 1] = '\0';
    *dropped = lh_log_dropped();
    for (int i = 0; i < 200; i++)
        lh_info("lease ended token=%d owner=%s", i, owner);
    *dropped = lh_log_dropped() - *dropped;
}

START_TEST(log_lines_are_dropped_and_counted_while_nobody_reads)
{
    static char caught[1 << 18];
    char notice[64];
    uint64_t dropped;
    int ends[2];
    int kept;

    catch_stderr(ends, &kept);
    lh_log_set_form(_i == 0 ? LH_LOG_TEXT : LH_LOG_JSON, NULL);
    fill_the_log(&dropped);
    ck_assert_uint_gt(dropped, 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    read_all(ends[0], caught, sizeof(caught));
    ck_assert_str_eq(caught + strlen(caught) - (_i == 0 ? 1 : 3), _i == 0 ? "\n" : "\"}\n");
    lh_info("somebody reads again");
    lh_info("and hears it once");
    lh_log_set_form(LH_LOG_TEXT, NULL);
    char *more = end_catch(ends, kept);
    snprintf(notice, sizeof(notice), _i == 0 ? " lines=%" PRIu64 "\n" : "\"lines\":\"%" PRIu64 "\"}\n", dropped);
    ck_assert_ptr_nonnull(strstr(more, notice));
    ck_assert_ptr_null(strstr(strstr(more, notice) + strlen(notice), "lines"));
    ck_assert_ptr_nonnull(strstr(strstr(more, notice), "somebody reads again"));
}
END_TEST

START_TEST(a_pipe_that_has_lost_its_reader_costs_a_line_and_no_more)
{
    uint64_t dropped = lh_log_dropped();
    int ends[2];
    int kept;

    signal(SIGPIPE, SIG_IGN);
    catch_stderr(ends, &kept);
    close(ends[0]);
    lh_info("into the void");
    ends[0] = open("/dev/null", O_RDONLY);
    end_catch(ends, kept);
    ck_assert_uint_eq(lh_log_dropped(), dropped + 1);
}
END_TEST

START_TEST(closed_standard_streams_are_opened_on_dev_null)
{
    pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        for (int fd = 0; fd <= 2; fd++)
            close(fd);
        lh_standard_open();
        for (int fd = 0; fd <= 2; fd++) {
            struct stat file, null;
            if (fstat(fd, &file) != 0 || stat("/dev/null", &null) != 0 || file.st_rdev != null.st_rdev)
                _exit(1);
        }
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(the_journal_gets_the_handles_as_fields)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char datagram[4096];
    char directory[] = "/tmp/lh-journal-XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", directory);
    ck_assert(!lh_log_set_form(LH_LOG_JOURNALD, address.sun_path));
    ck_assert_int_eq(errno, ENOENT);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert(lh_log_set_form(LH_LOG_JOURNALD, address.sun_path));
    lh_err("lease expired scope=%s token=%d", "db/7\nPRIORITY=0", 42);
    ssize_t size = recv(fd, datagram, sizeof(datagram) - 1, 0);
    ck_assert_int_gt(size, 0);
    datagram[size] = '\0';
    ck_assert_str_eq(
        datagram, "SYSLOG_IDENTIFIER=leaseholdd\nPRIORITY=3\nMESSAGE=lease expired scope=db/7\\x0aPRIORITY=0 token=42\n"
                  "LEASEHOLD_SCOPE=db/7\\x0aPRIORITY=0\nLEASEHOLD_TOKEN=42\n");
    close(fd);
    int ends[2];
    int kept;
    catch_stderr(ends, &kept);
    lh_info("the journal has gone scope=%s", "a");
    lh_log_set_form(LH_LOG_TEXT, NULL);
    ck_assert_ptr_nonnull(strstr(end_catch(ends, kept), "INFO the journal has gone scope=a\n"));
    unlink(address.sun_path);
    rmdir(directory);
}
END_TEST

static const struct {
    const char *owner;
    const char *shown;
} owners[] = {
    {"w\xc3\xa4rter \xe2\x82\xac \xf0\x9f\x94\x92", "w\xc3\xa4rter \xe2\x82\xac \xf0\x9f\x94\x92"},
    {"a\xc2\x9b"
     "2Jb",
     "a\\xc2\\x9b2Jb"},
    {"a\x1b[2Jb\x7f", "a\\x1b[2Jb\\x7f"},
    {"a\xe2\x80\xa8"
     "b\xe2\x80\xae"
     "c",
     "a\\xe2\\x80\\xa8b\\xe2\\x80\\xaec"},
    {"a\xff\xc3", "a\\xff\\xc3"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
};

START_TEST(log_lines_steer_no_terminal)
{
    char expected[256];

    snprintf(expected, sizeof(expected), "1 owner=%s", owners[_i].shown);
    lh_log_set_sink(keep_line, NULL);
    lh_info("owner=%s", owners[_i].owner);
    ck_assert_str_eq(last_line, expected);
    lh_log_set_sink(NULL, NULL);
}
END_TEST

START_TEST(log_lines_that_are_cut_end_with_a_whole_character)
{
    char owner[2001];

    for (size_t i = 0; i < 2000; i += 2)
        memcpy(owner + i, "\xc3\xa4", 2);
    owner[2000] = '\0';
    lh_log_set_sink(keep_line, NULL);
    for (int shift = 0; shift < 2; shift++) {
        lh_info("%s%s", shift == 0 ? "" : "x", owner);
        ck_assert_ptr_null(strstr(last_line, "\\x"));
    }
    lh_log_set_sink(NULL, NULL);
}
END_TEST

START_TEST(clock_never_steps_back)
{
    int64_t before = lh_clock_us();
    for (int i = 0; i < 1000; i++) {
        int64_t now = lh_clock_us();
        ck_assert_int_ge(now, before);
        before = now;
    }
    ck_assert_int_gt(lh_clock_wall_us(), INT64_C(1700000000) * LH_US_PER_S);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *tests = tcase_create("base");

    tcase_add_test(tests, list_keeps_order_and_survives_removal_while_walking);
    tcase_add_test(tests, table_finds_what_was_put_in_through_growth_collisions_and_removal);
    tcase_add_test(tests, hash_depends_on_every_byte_the_length_and_the_seed);
    tcase_add_test(tests, buffer_and_arena_keep_what_is_put_in);
    tcase_add_test(tests, uuid_parses_its_own_text_and_nothing_else);
    tcase_add_test(tests, utf8_is_judged_as_unicode_says);
    tcase_add_test(tests, durations_are_read_as_people_write_them);
    tcase_add_test(tests, a_scope_is_named_so_that_it_is_no_other);
    tcase_add_test(tests, status_keeps_reason_and_grpc_code_together);
    tcase_add_test(tests, log_lines_cannot_be_forged_by_a_name);
    tcase_add_loop_test(tests, log_lines_are_dropped_and_counted_while_nobody_reads, 0, 2);
    tcase_add_test(tests, a_pipe_that_has_lost_its_reader_costs_a_line_and_no_more);
    tcase_add_test(tests, closed_standard_streams_are_opened_on_dev_null);
    tcase_add_test(tests, json_lines_have_the_handles_as_fields);
    tcase_add_test(tests, a_json_line_is_whole_however_long_its_values_are);
    tcase_add_test(tests, the_journal_gets_the_handles_as_fields);
    tcase_add_loop_test(tests, log_lines_steer_no_terminal, 0, sizeof(owners) / sizeof(owners[0]));
    tcase_add_test(tests, log_lines_that_are_cut_end_with_a_whole_character);
    tcase_add_test(tests, clock_never_steps_back);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, test_base_bounds());
    return run_tests(suite, CK_FORK_GETENV);
}
