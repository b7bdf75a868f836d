/* Which server the connections of a daemon use, and what they say of the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "pg/conn.h"
#include "pg/conn_internal.h"
#include "pg/error.h"
#include "pg/servers.h"
#include "pg/values.h"
#include "pg_fixture.h"
#include "test_pg.h"

static struct lh_loop *loop;
static struct lh_pg_servers *servers;
static struct lh_pg_conn *conns[3];
static unsigned conn_count;
static unsigned ups, downs, closes;
static struct lh_pg_server_facts facts;

static void on_up(void *arg)
{
    ups++;
}

static void on_down(void *arg, const struct lh_error *error)
{
    downs++;
}

static void on_closed(void *arg)
{
    closes++;
}

static void setup(void)
{
    loop = lh_loop_create();
    ups = downs = closes = conn_count = 0;
}

static void teardown(void)
{
    for (unsigned i = 0; i < conn_count; i++)
        lh_pg_conn_close(conns[i], on_closed, NULL);
    WAIT_FOR(loop, closes == conn_count);
    lh_pg_servers_destroy(servers);
    servers = NULL;
    lh_loop_destroy(loop);
}

static void begin(int64_t connect_timeout_us, bool is_pulse)
{
    static const struct lh_pg_conn_events events = {on_up, on_down, NULL};
    struct lh_pg_conn_options options;

    lh_pg_conn_options_init(&options);
    options.servers = servers;
    options.name = "test";
    options.connect_timeout_us = connect_timeout_us;
    options.is_pulse = is_pulse;
    conns[conn_count] = lh_pg_conn_create(loop, &options, &events, NULL);
    lh_pg_conn_start(conns[conn_count++]);
}

static void connect_to(const char *conninfo, int count)
{
    servers = lh_pg_servers_create(loop, conninfo);
    for (int i = 0; i < count; i++)
        begin(3 * LH_US_PER_S, false);
}

static bool has_trouble(const char *words)
{
    lh_pg_servers_facts(servers, &facts);
    return strstr(facts.trouble.message, words) != NULL;
}

/* The schema of the database tells its life as a table has it. */
static void install_life(const char *conninfo, const char *life)
{
    pg_fixture_execute(conninfo, "create schema leasehold_internal");
    pg_fixture_execute(conninfo, "create table public.life (system_identifier bigint, timeline bigint)");
    pg_fixture_execute(conninfo, "create function leasehold_internal.server_identity("
                                 "out system_identifier bigint, out timeline bigint) language sql"
                                 " as 'select * from public.life'");
    pg_fixture_execute(conninfo, life);
}

static const char *database_of_life(const char *life)
{
    const char *conninfo = pg_fixture_create_database("lives");

    install_life(conninfo, life);
    return conninfo;
}

/* The session that is up asks again. */
static void check(unsigned conn)
{
    ck_assert_int_eq(lh_pg_conn_check_server(conns[conn]), LH_OK);
}

static bool is_in_use(uint64_t system_identifier, int64_t timeline)
{
    lh_pg_servers_facts(servers, &facts);
    return facts.system_identifier == system_identifier && facts.timeline == timeline;
}

/* The fixture's directory, which is a host to libpq. */
static const char *host(void)
{
    static char text[96];
    sscanf(pg_fixture_conninfo(), "host=%95s", text);
    return text;
}

START_TEST(a_name_is_looked_up_beside_the_loop_and_the_next_host_is_tried)
{
    char conninfo[256];

    database_of_life("insert into life values (7, 3)");
    snprintf(conninfo, sizeof(conninfo), "host=no.such.host.invalid,%s dbname=lives user=postgres", host());
    connect_to(conninfo, 2);
    WAIT_FOR(loop, ups == 2);
    ck_assert(is_in_use(7, 3));
    ck_assert(facts.is_up);
    ck_assert_ptr_nonnull(strstr(facts.server, host()));
    ck_assert_uint_eq(facts.failovers, 0);
    ck_assert_int_eq(facts.trouble.status, LH_OK);
}
END_TEST

static void on_looked_up(void *arg, const char (*addresses)[LH_PG_ADDRESS_BYTES], size_t count, const char *words)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(addresses[i], "127.0.0.1") == 0 || strcmp(addresses[i], "::1") == 0)
            *(bool *)arg = true;
}

START_TEST(a_lookup_finds_addresses_and_may_be_abandoned)
{
    bool is_found = false, is_unwanted = false;
    struct lh_pg_lookup *lookup = lh_pg_lookup_start(loop, "localhost", on_looked_up, &is_unwanted);

    ck_assert_ptr_nonnull(lookup);
    lh_pg_lookup_abandon(lookup);
    ck_assert_ptr_nonnull(lh_pg_lookup_start(loop, "localhost", on_looked_up, &is_found));
    WAIT_FOR(loop, is_found);
    ck_assert(!is_unwanted);
}
END_TEST

/* A host that accepts and never speaks. */
struct mute {
    char directory[40];
    struct sockaddr_un address;
    int listening;
};

static void mute_open(struct mute *mute)
{
    *mute = (struct mute){.directory = "/tmp/leasehold-mute-XXXXXX", .address.sun_family = AF_UNIX};
    mute->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_ptr_nonnull(mkdtemp(mute->directory));
    snprintf(mute->address.sun_path, sizeof(mute->address.sun_path), "%s/.s.PGSQL.5432", mute->directory);
    ck_assert_int_eq(bind(mute->listening, (struct sockaddr *)&mute->address, sizeof(mute->address)), 0);
    ck_assert_int_eq(listen(mute->listening, 16), 0);
}

static void mute_close(struct mute *mute)
{
    close(mute->listening);
    unlink(mute->address.sun_path);
    rmdir(mute->directory);
}

START_TEST(a_host_that_accepts_and_never_speaks_has_its_time_and_no_more)
{
    struct mute mute;
    char conninfo[256];

    mute_open(&mute);
    snprintf(conninfo, sizeof(conninfo), "host=%s,%s dbname=postgres user=postgres connect_timeout=1", mute.directory,
             host());
    connect_to(conninfo, 2);
    WAIT_FOR(loop, has_trouble("no answer within 1000 ms"));
    WAIT_FOR(loop, ups == 2);
    mute_close(&mute);
}
END_TEST

/* As in a failover: one session is up on the new primary, while the pulse still tries the old one. */
START_TEST(a_pulse_that_gets_no_answer_ends_no_session_with_another_server)
{
    struct mute mute;
    char conninfo[256];

    mute_open(&mute);
    snprintf(conninfo, sizeof(conninfo), "host=%s,%s dbname=postgres user=postgres", mute.directory, host());
    connect_to(conninfo, 0);
    begin(LH_US_PER_S, false);
    begin(4 * LH_US_PER_S, true);
    WAIT_FOR(loop, ups == 2);
    ck_assert_uint_eq(downs, 0);
    mute_close(&mute);
}
END_TEST

/* The other name of the fixture's directory stands for another server. */
START_TEST(a_session_that_is_about_to_come_up_on_the_new_primary_is_not_sent_away)
{
    char directory[] = "/tmp/leasehold-name-XXXXXX", name[48], conninfo[256];

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(name, sizeof(name), "%s/other", directory);
    ck_assert_int_eq(symlink(host(), name), 0);
    database_of_life("insert into life values (7, 3)");
    snprintf(conninfo, sizeof(conninfo), "host=%s,%s,/nowhere dbname=lives user=postgres", host(), name);
    connect_to(conninfo, 0);
    begin(60 * LH_US_PER_S, false);
    WAIT_FOR(loop, ups == 1);
    lh_pg_conn_look_elsewhere(conns[0], "the test looks elsewhere");
    begin(60 * LH_US_PER_S, false);
    begin(60 * LH_US_PER_S, false);
    WAIT_FOR(loop, ups == 4);
    lh_pg_servers_facts(servers, &facts);
    ck_assert_uint_eq(facts.failovers, 1);
    ck_assert_ptr_nonnull(strstr(facts.server, name));
    ck_assert_str_eq(facts.trouble.message, "the test looks elsewhere");
    unlink(name);
    rmdir(directory);
}
END_TEST

START_TEST(a_database_without_schema_has_no_life_until_it_has_one)
{
    const char *conninfo = pg_fixture_create_database("lives");

    connect_to(conninfo, 2);
    WAIT_FOR(loop, ups == 2);
    ck_assert(is_in_use(0, 0));
    install_life(conninfo, "insert into life values (7, 3)");
    check(0);
    WAIT_FOR(loop, is_in_use(7, 3));
    ck_assert_uint_eq(facts.failovers, 0);
    ck_assert_uint_eq(downs, 0);
}
END_TEST

/* Each source has other numbers: `epoch` no system, and an engine that answers with a text no timeline. */
START_TEST(a_source_that_is_changed_is_followed_by_all_sessions)
{
    static const struct {
        const char *change;
        uint64_t system_identifier;
        int64_t timeline;
    } changes[] = {{"update life set system_identifier = 0, timeline = 1800000000", 0, 1800000000},
                   {"update life set system_identifier = 0, timeline = 5", 0, 5},
                   {"update life set system_identifier = 11, timeline = 0", 11, 0},
                   {"update life set system_identifier = 12, timeline = 0", 12, 0},
                   {"update life set system_identifier = 7, timeline = 3", 7, 3}};
    const char *conninfo = database_of_life("insert into life values (7, 3)");

    connect_to(conninfo, 2);
    WAIT_FOR(loop, ups == 2);
    for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        pg_fixture_execute(conninfo, changes[i].change);
        check(0);
        WAIT_FOR(loop, is_in_use(changes[i].system_identifier, changes[i].timeline));
        ck_assert_uint_eq(facts.failovers, i + 1);
        WAIT_FOR(loop, downs == i + 1 && ups == i + 3);
    }
}
END_TEST

START_TEST(a_server_of_an_older_or_another_life_is_refused_while_one_is_in_use)
{
    const char *conninfo = database_of_life("insert into life values (0, 50)");

    connect_to(conninfo, 2);
    WAIT_FOR(loop, ups == 2);
    pg_fixture_execute(conninfo, "update life set timeline = 40");
    lh_pg_conn_break(conns[1], "the test breaks it");
    WAIT_FOR(loop, has_trouble("it is an old primary: on timeline 40, after timeline 50 was seen"));
    pg_fixture_execute(conninfo, "update life set system_identifier = 9, timeline = 0");
    WAIT_FOR(loop, has_trouble("it belongs to another database system (9) than the one in use (0)"));
    ck_assert(is_in_use(0, 50));
    ck_assert_uint_eq(ups, 2);
    check(0);
    WAIT_FOR(loop, ups == 3 && is_in_use(9, 0));
    pg_fixture_execute(conninfo, "update life set system_identifier = 8");
    lh_pg_conn_break(conns[1], "the test breaks it again");
    WAIT_FOR(loop, has_trouble("it belongs to another database system (8) than the one in use (9)"));
}
END_TEST

START_TEST(a_life_that_cannot_be_read_is_told_in_the_words_of_the_schema)
{
    const char *conninfo = database_of_life("select");

    pg_fixture_execute(conninfo, "create or replace function leasehold_internal.server_identity("
                                 "out system_identifier bigint, out timeline bigint) language plpgsql"
                                 " as $$ begin raise exception 'no life is told' using errcode = 'LH008'; end $$");
    connect_to(conninfo, 1);
    WAIT_FOR(loop, has_trouble("no life is told"));
    ck_assert(facts.is_permanent);
    ck_assert_str_eq(facts.trouble.sqlstate, LH_PG_NO_LIFE);
    ck_assert_uint_eq(ups, 0);
}
END_TEST

START_TEST(what_does_not_pass_by_waiting_is_told_as_such)
{
    char conninfo[256];

    snprintf(conninfo, sizeof(conninfo), "host=%s dbname=no_such_database user=postgres", host());
    connect_to(conninfo, 1);
    WAIT_FOR(loop, has_trouble("database \"no_such_database\" does not exist"));
    ck_assert(facts.is_permanent);
    ck_assert(!facts.is_up);
    ck_assert_str_eq(facts.trouble.sqlstate, "3D000");
    ck_assert_ptr_null(strstr(facts.trouble.message, "LOCATION"));
    ck_assert_ptr_null(strstr(facts.trouble.message, "3D000"));
    pg_fixture_create_database("no_such_database");
    WAIT_FOR(loop, ups == 1);
    lh_pg_servers_facts(servers, &facts);
    ck_assert(!facts.is_permanent);
}
END_TEST

START_TEST(a_string_that_libpq_cannot_read_is_told_in_its_words)
{
    connect_to("host=/nowhere bogus=1", 1);
    WAIT_FOR(loop, has_trouble("invalid connection option \"bogus\""));
    ck_assert(facts.is_permanent);
}
END_TEST

START_TEST(a_server_away_is_no_permanent_trouble)
{
    connect_to("host=/nowhere dbname=postgres", 1);
    WAIT_FOR(loop, has_trouble("No such file or directory"));
    ck_assert(!facts.is_permanent);
}
END_TEST

START_TEST(a_database_without_writes_is_refused_with_words)
{
    const char *conninfo = pg_fixture_create_database("shut");
    pg_fixture_execute(pg_fixture_conninfo(), "alter database shut set default_transaction_read_only = on");
    connect_to(conninfo, 1);
    WAIT_FOR(loop, has_trouble("default_transaction_read_only is on"));
    pg_fixture_execute(pg_fixture_conninfo(), "alter database shut reset default_transaction_read_only");
    WAIT_FOR(loop, ups == 1);
}
END_TEST

static const char odd_settings[] = "alter database odd set default_transaction_isolation = serializable;"
                                   "alter database odd set default_transaction_deferrable = on;"
                                   "alter database odd set idle_session_timeout = '100 ms';"
                                   "alter database odd set statement_timeout = '20 s';"
                                   "alter database odd set lock_timeout = '1 ms';"
                                   "alter database odd set standard_conforming_strings = off;"
                                   "alter database odd set timezone = 'Asia/Kathmandu';"
                                   "alter database odd set datestyle = 'German';"
                                   "alter database odd set intervalstyle = 'sql_standard';"
                                   "alter database odd set bytea_output = 'escape';"
                                   "alter database odd set transform_null_equals = on;"
                                   "alter database odd set plan_cache_mode = force_custom_plan;"
                                   "alter database odd set jit = on;";

static const struct lh_pg_statement relied_on = {
    "relied_on",
    "select pg_catalog.string_agg(pg_catalog.current_setting(n), '|' order by n) from pg_catalog.unnest(array["
    "'default_transaction_isolation', 'default_transaction_deferrable', 'idle_session_timeout', 'statement_timeout',"
    " 'lock_timeout', 'standard_conforming_strings', 'timezone', 'datestyle', 'intervalstyle', 'bytea_output',"
    " 'transform_null_equals', 'plan_cache_mode', 'jit']) n",
    0,
    {0}};
static const struct lh_pg_statement spoil = {
    "spoil",
    "select pg_catalog.set_config('default_transaction_read_only', 'on', false),"
    " pg_catalog.set_config('timezone', 'Asia/Kathmandu', false), pg_catalog.set_config('lock_timeout', '7', false)",
    0,
    {0}};
static const struct lh_pg_statement write_access = {
    "write_access", "select pg_catalog.current_setting('default_transaction_read_only')", 0, {0}};
static char told[512];

static void on_told(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    ck_assert_msg(status == LH_OK, "%s", error == NULL ? "" : error->message);
    snprintf(told, sizeof(told), "%s", lh_pg_text(result, 0, 0));
}

static const char *ask(const struct lh_pg_statement *statement)
{
    told[0] = '\0';
    ck_assert_int_eq(lh_pg_query(conns[0], statement, NULL, on_told, NULL), LH_OK);
    WAIT_FOR(loop, told[0] != '\0');
    return told;
}

#define OURS(statement_timeout)                                                                                        \
    "hex|ISO, MDY|off|read committed|0|postgres|off|5s|auto|on|" statement_timeout "|UTC|off"

START_TEST(a_session_has_the_settings_that_are_relied_on_whatever_the_database_has)
{
    const char *conninfo = pg_fixture_create_database("odd");
    for (const char *each = odd_settings; *each != '\0'; each = strchr(each, ';') + 1) {
        char sql[160];
        snprintf(sql, sizeof(sql), "%.*s", (int)(strchr(each, ';') - each), each);
        pg_fixture_execute(pg_fixture_conninfo(), sql);
    }
    connect_to(conninfo, 1);
    WAIT_FOR(loop, ups == 1);
    ck_assert_str_eq(ask(&relied_on), OURS("30s"));
    ask(&spoil);
    ck_assert_int_eq(lh_pg_conn_reset_session(conns[0], 2 * LH_US_PER_S), LH_OK);
    ck_assert_str_eq(ask(&relied_on), OURS("2s"));
    ck_assert_str_eq(ask(&write_access), "off");
    ck_assert_uint_eq(downs, 0);
}
END_TEST

TCase *test_pg_servers(void)
{
    TCase *tcase = tcase_create("servers");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_name_is_looked_up_beside_the_loop_and_the_next_host_is_tried);
    tcase_add_test(tcase, a_lookup_finds_addresses_and_may_be_abandoned);
    tcase_add_test(tcase, a_host_that_accepts_and_never_speaks_has_its_time_and_no_more);
    tcase_add_test(tcase, a_pulse_that_gets_no_answer_ends_no_session_with_another_server);
    tcase_add_test(tcase, a_session_that_is_about_to_come_up_on_the_new_primary_is_not_sent_away);
    tcase_add_test(tcase, a_database_without_schema_has_no_life_until_it_has_one);
    tcase_add_test(tcase, a_source_that_is_changed_is_followed_by_all_sessions);
    tcase_add_test(tcase, a_server_of_an_older_or_another_life_is_refused_while_one_is_in_use);
    tcase_add_test(tcase, a_life_that_cannot_be_read_is_told_in_the_words_of_the_schema);
    tcase_add_test(tcase, what_does_not_pass_by_waiting_is_told_as_such);
    tcase_add_test(tcase, a_string_that_libpq_cannot_read_is_told_in_its_words);
    tcase_add_test(tcase, a_server_away_is_no_permanent_trouble);
    tcase_add_test(tcase, a_database_without_writes_is_refused_with_words);
    tcase_add_test(tcase, a_session_has_the_settings_that_are_relied_on_whatever_the_database_has);
    return tcase;
}
