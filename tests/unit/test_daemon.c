/* The daemon's small parts: child processes, lock files, addresses, words to the service manager, readiness. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/memory.h"
#include "daemon/child.h"
#include "daemon/process.h"
#include "daemon/programs.h"
#include "lease/readiness.h"
#include "loop/loop.h"
#include "run_tests.h"

static char directory[64];

static char *in_directory(const char *name)
{
    return lh_format("%s/%s", directory, name);
}

static void begin(void)
{
    snprintf(directory, sizeof(directory), "/tmp/leasehold-unit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void end(void)
{
    const char *const clear[] = {"/bin/rm", "-rf", directory, NULL};

    lh_programs_run(clear, NULL);
}

/* --- child processes --- */

static int ended_with = -1;

static void on_exit_of_child(void *arg, int wait_status)
{
    ended_with = wait_status;
}

static int run_and_return_7(void *arg)
{
    return 7;
}

static int run_forever(void *arg)
{
    while (pause() != 0)
        continue;
    return 0;
}

static int count_open_files(void *arg)
{
    int open_files = 0;

    for (int fd = 0; fd < 256; fd++)
        open_files += dup2(fd, fd) == fd;
    return open_files;
}

static int run_and_wait(int (*run)(void *arg), int signal_number)
{
    struct lh_loop *loop = lh_loop_create();
    struct lh_children *children = lh_children_create(loop);
    struct lh_child child = {0};
    int64_t until_us = lh_clock_us() + 30 * LH_US_PER_S;

    ended_with = -1;
    ck_assert(lh_child_start(children, &child, run, NULL, on_exit_of_child, NULL));
    ck_assert_int_gt(child.pid, 0);
    if (signal_number != 0)
        lh_child_signal(&child, signal_number);
    while (ended_with == -1) {
        ck_assert(lh_clock_us() < until_us);
        lh_loop_run_once(loop, LH_US_PER_S);
    }
    ck_assert_int_eq(child.pid, 0);
    lh_children_destroy(children);
    lh_loop_destroy(loop);
    return ended_with;
}

START_TEST(a_child_tells_its_exit_status)
{
    char text[LH_CHILD_END_BYTES];

    lh_child_describe_end(run_and_wait(run_and_return_7, 0), text);
    ck_assert_str_eq(text, "exit status 7");
}
END_TEST

START_TEST(a_child_that_is_killed_says_by_what)
{
    char text[LH_CHILD_END_BYTES];

    /* TERM has its default effect there, whatever the parent does with it. */
    signal(SIGTERM, SIG_IGN);
    lh_child_describe_end(run_and_wait(run_forever, SIGTERM), text);
    ck_assert_str_eq(text, "signal 15 (Terminated)");
}
END_TEST

START_TEST(a_child_inherits_three_descriptors)
{
    int extra = dup(2);

    ck_assert_int_eq(WEXITSTATUS(run_and_wait(count_open_files, 0)), 3);
    close(extra);
}
END_TEST

/* --- files --- */

START_TEST(a_lock_file_has_one_owner)
{
    char *path = in_directory("lock");
    struct lh_error error = {0};
    char expected[64];
    int first, second;

    ck_assert_int_eq(lh_lockfile_take(path, &first, &error), LH_OK);
    ck_assert_int_ne(lh_lockfile_take(path, &second, &error), LH_OK);
    snprintf(expected, sizeof(expected), "process %ld,", (long)getpid());
    ck_assert_msg(strstr(error.message, expected) != NULL, "%s", error.message);
    close(first);
    ck_assert_int_eq(lh_lockfile_take(path, &second, &error), LH_OK);
    close(second);
    free(path);
}
END_TEST

START_TEST(a_lock_file_is_no_link)
{
    char *path = in_directory("lock");
    char *target = in_directory("target");
    struct lh_error error = {0};
    int fd;

    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert_int_ne(lh_lockfile_take(path, &fd, &error), LH_OK);
    ck_assert_int_eq(access(target, F_OK), -1);
    free(path);
    free(target);
}
END_TEST

START_TEST(lines_replace_a_file_whole)
{
    char *path = in_directory("ports");
    const char *const lines[] = {"127.0.0.1:1", "none"};
    struct lh_error error = {0};
    char text[64] = "";
    FILE *file;

    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(lh_write_lines(path, lines, 2, &error), LH_OK);
    file = fopen(path, "r");
    ck_assert_uint_eq(fread(text, 1, sizeof(text) - 1, file), 17);
    fclose(file);
    ck_assert_str_eq(text, "127.0.0.1:1\nnone\n");
    free(path);
    path = in_directory("no/such/ports");
    ck_assert_int_ne(lh_write_lines(path, lines, 2, &error), LH_OK);
    ck_assert_msg(strstr(error.message, "No such file") != NULL, "%s", error.message);
    free(path);
}
END_TEST

/* --- sockets --- */

static enum lh_status bind_to(const char *address, int *fd, char bound[LH_ADDRESS_TEXT_BYTES], struct lh_error *error)
{
    const struct lh_bind how = {.address = address, .socket_mode = 0640};
    return lh_bind(&how, fd, bound, error);
}

START_TEST(port_0_becomes_a_real_one_and_a_taken_one_is_refused)
{
    char bound[LH_ADDRESS_TEXT_BYTES], again[LH_ADDRESS_TEXT_BYTES];
    struct lh_error error = {0};
    int fd, other;

    ck_assert_int_eq(bind_to("127.0.0.1:0", &fd, bound, &error), LH_OK);
    ck_assert_str_ne(bound, "127.0.0.1:0");
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_ne(bind_to(bound, &other, again, &error), LH_OK);
    ck_assert_msg(strstr(error.message, "Address already in use") != NULL, "%s", error.message);
    close(fd);
}
END_TEST

START_TEST(a_dead_unix_socket_is_replaced_and_a_served_one_is_not)
{
    char *path = in_directory("socket");
    char *address = lh_format("unix:%s", path);
    char bound[LH_ADDRESS_TEXT_BYTES];
    struct lh_error error = {0};
    int fd, other;

    ck_assert_int_eq(bind_to(address, &fd, bound, &error), LH_OK);
    ck_assert_str_eq(bound, address);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_ne(bind_to(address, &other, bound, &error), LH_OK);
    ck_assert_msg(strstr(error.message, "another process serves it") != NULL, "%s", error.message);
    close(fd);
    ck_assert_int_eq(bind_to(address, &fd, bound, &error), LH_OK);
    close(fd);
    free(address);
    free(path);
}
END_TEST

START_TEST(what_is_no_socket_is_left_alone)
{
    char *path = in_directory("precious");
    char *address = lh_format("unix:%s", path);
    const char *const lines[] = {"my thesis"};
    struct lh_error error = {0};
    int fd;

    ck_assert_int_eq(lh_write_lines(path, lines, 1, &error), LH_OK);
    ck_assert_int_ne(bind_to(address, &fd, NULL, &error), LH_OK);
    ck_assert_msg(strstr(error.message, "is not a socket") != NULL, "%s", error.message);
    ck_assert_int_eq(access(path, R_OK), 0);
    free(address);
    free(path);
}
END_TEST

START_TEST(a_unix_socket_has_its_mode_whatever_the_umask)
{
    char *path = in_directory("socket");
    char *address = lh_format("unix:%s", path);
    mode_t before = umask(0);
    struct lh_error error = {0};
    struct stat found;
    int fd;

    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(bind_to(address, &fd, NULL, &error), LH_OK);
        ck_assert_int_eq(stat(path, &found), 0);
        ck_assert_uint_eq(found.st_mode & 07777, 0640);
        close(fd);
        umask(0777);
    }
    umask(before);
    free(address);
    free(path);
}
END_TEST

/* --- words --- */

START_TEST(the_service_manager_is_told)
{
    char *path = in_directory("notify");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[32] = "";
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    lh_notify("READY=1");
    ck_assert_int_eq(recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT), 7);
    ck_assert_str_eq(text, "READY=1");
    unsetenv("NOTIFY_SOCKET");
    lh_notify("STOPPING=1");
    ck_assert_int_eq(recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT), -1);
    close(fd);
    free(path);
}
END_TEST

START_TEST(what_leads_postgres_elsewhere_is_taken_out_of_the_environment)
{
    setenv("PGDATA", "/elsewhere", 1);
    setenv("PGPORT", "1", 1);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("PATHS_STAY", "yes", 1);
    lh_programs_clean_environment();
    ck_assert_ptr_null(getenv("PGDATA"));
    ck_assert_ptr_null(getenv("PGPORT"));
    ck_assert_str_eq(getenv("LC_ALL"), "C");
    ck_assert_str_eq(getenv("PATHS_STAY"), "yes");
}
END_TEST

#define NOW_US (100 * LH_US_PER_S)
#define SEEN(seconds_ago) .is_registered = true, .last_tick_us = NOW_US - (seconds_ago)*LH_US_PER_S, .now_us = NOW_US
#define DENIED "permission denied for function coordinator_register"

static const struct {
    struct lh_ready_facts facts;
    const char *words; /* it is ready where these name a server */
    const char *cause;
} readiness[] = {
    {{.is_connected = true, .server = {.server = "db1", .timeline = 3}, SEEN(1)},
     "server=db1 role=primary timeline=3",
     ""},
    /* A connection may be lost for a moment. */
    {{.server = {.server = "db1", .timeline = 3, .trouble = "refused"}, SEEN(5)},
     "server=db1 role=primary timeline=3",
     ""},
    {{SEEN(6)}, "the database is unavailable, and has not answered for 6.0 s", ""},
    {{.server = {.trouble = "refused", .cause = "it is full"}, SEEN(6)},
     "the database is unavailable, and has not answered for 6.0 s: refused",
     "it is full"},
    {{.is_connected = true, SEEN(6)}, "the database is connected, and has not answered for 6.0 s", ""},
    {{.server = {.trouble = "no such role", .cause = "the role", .is_permanent = true}, SEEN(1)},
     "the database cannot be used until an administrator changes something: no such role",
     "the role"},
    {{.is_connected = true, .lacks_lanes = true, .server = {.trouble = "refused"}, SEEN(1)},
     "the database is unavailable, no connection for leases could be made: refused",
     ""},
    {{.server = {.trouble = "refused"}, .now_us = NOW_US}, "the database is unavailable: refused", ""},
    {{.is_connected = true, .now_us = NOW_US}, "not registered in the database yet", ""},
    {{.is_connected = true, .refusal = DENIED, .now_us = NOW_US}, "the database refuses this daemon: " DENIED, DENIED},
    {{.is_connected = true, .lacks = "the access rules are not loaded yet", SEEN(1)},
     "the access rules are not loaded yet",
     "the access rules are not loaded yet"},
    {{.phase = "waiting for the database", .server = {.trouble = ""}, .now_us = NOW_US},
     "waiting for the database",
     ""},
    {{.phase = "waiting for the database", .server = {.trouble = "refused", .cause = "it is full"}, .now_us = NOW_US},
     "waiting for the database: refused",
     "it is full"},
};

START_TEST(readiness_is_judged)
{
    struct lh_readiness judged;

    lh_ready_judge(&readiness[_i].facts, &judged);
    ck_assert_int_eq(judged.is_ready, strncmp(readiness[_i].words, "server=", 7) == 0);
    ck_assert_str_eq(judged.words, readiness[_i].words);
    ck_assert_str_eq(judged.cause, readiness[_i].cause);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon");
    TCase *parts = tcase_create("parts");

    tcase_add_checked_fixture(parts, begin, end);
    tcase_set_timeout(parts, 60);
    tcase_add_test(parts, a_child_tells_its_exit_status);
    tcase_add_test(parts, a_child_that_is_killed_says_by_what);
    tcase_add_test(parts, a_child_inherits_three_descriptors);
    tcase_add_test(parts, a_lock_file_has_one_owner);
    tcase_add_test(parts, a_lock_file_is_no_link);
    tcase_add_test(parts, lines_replace_a_file_whole);
    tcase_add_test(parts, port_0_becomes_a_real_one_and_a_taken_one_is_refused);
    tcase_add_test(parts, a_dead_unix_socket_is_replaced_and_a_served_one_is_not);
    tcase_add_test(parts, what_is_no_socket_is_left_alone);
    tcase_add_test(parts, a_unix_socket_has_its_mode_whatever_the_umask);
    tcase_add_test(parts, the_service_manager_is_told);
    tcase_add_test(parts, what_leads_postgres_elsewhere_is_taken_out_of_the_environment);
    tcase_add_loop_test(parts, readiness_is_judged, 0, (int)(sizeof(readiness) / sizeof(readiness[0])));
    suite_add_tcase(suite, parts);
    return run_tests(suite, CK_FORK_GETENV);
}
