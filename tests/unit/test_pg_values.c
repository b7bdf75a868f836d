/* Binary parameters in, binary results out, compared with what the server reads in them. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "pg/error.h"
#include "pg/values.h"
#include "pg_fixture.h"
#include "test_pg.h"

static PGconn *pg;
static PGresult *result;
static struct lh_pg_params params;

static void setup(void)
{
    pg = PQconnectdb(pg_fixture_conninfo());
    ck_assert_int_eq(PQstatus(pg), CONNECTION_OK);
}

static void teardown(void)
{
    PQclear(result);
    result = NULL;
    PQfinish(pg);
    lh_pg_params_finish(&params);
}

static void ask(const char *sql)
{
    const char *values[LH_PG_PARAMS_MAX];
    int lengths[LH_PG_PARAMS_MAX];
    int formats[LH_PG_PARAMS_MAX];

    for (int i = 0; i < params.count; i++) {
        lengths[i] = params.values[i].length;
        values[i] = lengths[i] < 0 ? NULL : (const char *)params.bytes.data + params.values[i].offset;
        formats[i] = 1;
    }
    PQclear(result);
    result = PQexecParams(pg, sql, params.count, NULL, values, lengths, formats, 1);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(pg));
}

static void ck_text(const char *expected)
{
    ck_assert_str_eq(lh_pg_text(result, 0, 0), expected);
}

START_TEST(scalars_arrive_as_they_were_sent)
{
    struct lh_uuid uuid;

    ck_assert(lh_uuid_parse("01234567-89ab-cdef-0123-456789abcdef", &uuid));
    lh_pg_params_reset(&params);
    lh_pg_add_bool(&params, true);
    lh_pg_add_int4(&params, INT32_MIN);
    lh_pg_add_int8(&params, INT64_MIN + 1);
    lh_pg_add_text(&params, "grün");
    lh_pg_add_text(&params, NULL);
    lh_pg_add_uuid(&params, &uuid);
    lh_pg_add_timestamptz(&params, 0);
    lh_pg_add_null(&params);
    ask("select concat_ws('|', $1::boolean, $2::integer, $3::bigint, $4::text, $5::text is null, $6::uuid,"
        " to_char($7::timestamptz at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), $8::bigint is null)");
    ck_text("t|-2147483648|-9223372036854775807|grün|t|01234567-89ab-cdef-0123-456789abcdef|"
            "1970-01-01 00:00:00.000000|t");
}
END_TEST

START_TEST(scalars_are_read_as_the_server_has_them)
{
    struct lh_uuid uuid;
    char text[LH_UUID_TEXT_BYTES];

    lh_pg_params_reset(&params);
    ask("select true, -5, -6000000000, 'a ÷ b'::text, '01234567-89ab-cdef-0123-456789abcdef'::uuid,"
        " timestamptz '2026-11-20 18:30:00.000001+00', timestamptz '1969-12-31 23:59:59+00', 'infinity'::timestamptz");
    ck_assert(lh_pg_bool(result, 0, 0));
    ck_assert_int_eq(lh_pg_int4(result, 0, 1), -5);
    ck_assert_int_eq(lh_pg_int8(result, 0, 2), -6000000000);
    ck_assert_str_eq(lh_pg_text(result, 0, 3), "a ÷ b");
    uuid = lh_pg_uuid(result, 0, 4);
    lh_uuid_format(&uuid, text);
    ck_assert_str_eq(text, "01234567-89ab-cdef-0123-456789abcdef");
    ck_assert_int_eq(lh_pg_timestamptz(result, 0, 5), 1795199400000001);
    ck_assert_int_eq(lh_pg_timestamptz(result, 0, 6), -1000000);
    ck_assert_int_eq(lh_pg_timestamptz(result, 0, 7), INT64_MAX);
}
END_TEST

START_TEST(nulls_and_wrong_widths_read_as_nothing)
{
    lh_pg_params_reset(&params);
    ask("select null::bigint, null::text, null::uuid, 7::integer");
    ck_assert_int_eq(lh_pg_int8(result, 0, 0), 0);
    ck_assert_ptr_null(lh_pg_text(result, 0, 1));
    struct lh_uuid uuid = lh_pg_uuid(result, 0, 2);
    ck_assert(lh_uuid_is_zero(&uuid));
    ck_assert_int_eq(lh_pg_int8(result, 0, 3), 0);
    ck_assert(lh_pg_is_null(result, 0, 0));
    ck_assert(lh_pg_is_null(result, 0, -1));
    ck_assert(!lh_pg_is_null(result, 0, 3));
}
END_TEST

START_TEST(columns_are_found_by_name)
{
    static const char *const names[] = {"b", "gone", "a"};
    int columns[3];

    lh_pg_params_reset(&params);
    ask("select 1 as a, 2 as b");
    ck_assert(!lh_pg_result_columns(result, names, columns, 3));
    ck_assert_int_eq(columns[0], 1);
    ck_assert_int_eq(columns[1], -1);
    ck_assert_int_eq(columns[2], 0);
}
END_TEST

START_TEST(arrays_arrive_with_nulls_and_in_order)
{
    struct lh_uuid uuid = {{1}};

    lh_pg_params_reset(&params);
    lh_pg_array_begin(&params, LH_PG_TEXT);
    lh_pg_add_text(&params, "a,\"b\"");
    lh_pg_add_text(&params, NULL);
    lh_pg_add_text(&params, "");
    lh_pg_array_end(&params);
    lh_pg_array_begin(&params, LH_PG_INT8);
    lh_pg_add_int8(&params, -1);
    lh_pg_add_null(&params);
    lh_pg_array_end(&params);
    lh_pg_array_begin(&params, LH_PG_BOOL);
    lh_pg_add_bool(&params, true);
    lh_pg_add_bool(&params, false);
    lh_pg_array_end(&params);
    lh_pg_array_begin(&params, LH_PG_UUID);
    lh_pg_add_uuid(&params, &uuid);
    lh_pg_array_end(&params);
    ask("select concat_ws('|', $1::text[]::text, $2::bigint[]::text, $3::boolean[]::text, $4::uuid[]::text)");
    ck_text("{\"a,\\\"b\\\"\",NULL,\"\"}|{-1,NULL}|{t,f}|{01000000-0000-0000-0000-000000000000}");
}
END_TEST

START_TEST(an_empty_array_is_empty_not_null)
{
    lh_pg_params_reset(&params);
    lh_pg_array_begin(&params, LH_PG_TEXT);
    lh_pg_array_end(&params);
    lh_pg_add_int4(&params, 9);
    ask("select concat_ws('|', cardinality($1::text[]), $2::integer)");
    ck_text("0|9");
}
END_TEST

START_TEST(a_text_array_is_read_back)
{
    struct lh_arena arena = {0};
    const char *elements[4];

    lh_pg_params_reset(&params);
    ask("select array['a', null, '', 'payments.invoices', 'more'], '{}'::text[], null::text[]");
    ck_assert_uint_eq(lh_pg_text_array(result, 0, 0, &arena, elements, 4), 4);
    ck_assert_str_eq(elements[0], "a");
    ck_assert_ptr_null(elements[1]);
    ck_assert_str_eq(elements[2], "");
    ck_assert_str_eq(elements[3], "payments.invoices");
    ck_assert_uint_eq(lh_pg_text_array(result, 0, 1, &arena, elements, 4), 0);
    ck_assert_uint_eq(lh_pg_text_array(result, 0, 2, &arena, elements, 4), 0);
    lh_arena_finish(&arena);
}
END_TEST

START_TEST(an_invalid_argument_names_field_and_bound)
{
    struct lh_error error;
    PGresult *failed = PQexec(pg, "do $$ begin raise exception 'invalid_argument: too long' using errcode = 'LH002',"
                                  " detail = 'key', hint = 'at most 1024 bytes'; end $$");

    ck_assert_int_eq(lh_pg_error_of_result(failed, &error), LH_INVALID_ARGUMENT);
    PQclear(failed);
    ck_assert_str_eq(error.sqlstate, "LH002");
    ck_assert_str_eq(error.field, "key");
    ck_assert_str_eq(error.bound, "at most 1024 bytes");
    ck_assert_str_eq(error.message, "invalid_argument: too long");
}
END_TEST

START_TEST(what_the_server_has_no_room_for_is_overload)
{
    static const char *const states[] = {"53000", "53100", "53200", "53400", "58000", "58030"};
    struct lh_error error;

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        char *sql =
            lh_format("do $$ begin raise exception 'could not access status of transaction 0' using errcode = '%s',"
                      " detail = 'No space left on device.'; end $$",
                      states[i]);
        PGresult *failed = PQexec(pg, sql);
        ck_assert_int_eq(lh_pg_error_of_result(failed, &error), LH_OVERLOADED);
        ck_assert_str_eq(error.message, "could not access status of transaction 0: No space left on device.");
        PQclear(failed);
        free(sql);
    }
}
END_TEST

START_TEST(a_sqlstate_is_found_by_a_code_or_its_class)
{
    ck_assert(lh_pg_is_state("40P01", "40001 40P01"));
    ck_assert(lh_pg_is_state("57P03", "08 57P0"));
    ck_assert(!lh_pg_is_state("57014", "08 57P0"));
    ck_assert(!lh_pg_is_state("", "08 57P0"));
    ck_assert(!lh_pg_is_state("57014", ""));
}
END_TEST

START_TEST(a_long_message_is_cut_between_characters_and_is_one_line)
{
    struct lh_error error;
    PGresult *failed = PQexec(pg, "do $$ begin raise exception E'two\nlines %', repeat('ü', 600); end $$");

    ck_assert_int_eq(lh_pg_error_of_result(failed, &error), LH_INTERNAL);
    PQclear(failed);
    ck_assert_str_eq(error.sqlstate, "P0001");
    ck_assert(lh_utf8_is_valid(error.message, strlen(error.message)));
    ck_assert_uint_ge(strlen(error.message), sizeof(error.message) - 3);
    ck_assert_int_eq(strncmp(error.message, "two lines ü", 12), 0);
}
END_TEST

TCase *test_pg_values(void)
{
    TCase *tcase = tcase_create("values");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, scalars_arrive_as_they_were_sent);
    tcase_add_test(tcase, scalars_are_read_as_the_server_has_them);
    tcase_add_test(tcase, nulls_and_wrong_widths_read_as_nothing);
    tcase_add_test(tcase, columns_are_found_by_name);
    tcase_add_test(tcase, arrays_arrive_with_nulls_and_in_order);
    tcase_add_test(tcase, an_empty_array_is_empty_not_null);
    tcase_add_test(tcase, a_text_array_is_read_back);
    tcase_add_test(tcase, an_invalid_argument_names_field_and_bound);
    tcase_add_test(tcase, a_sqlstate_is_found_by_a_code_or_its_class);
    tcase_add_test(tcase, what_the_server_has_no_room_for_is_overload);
    tcase_add_test(tcase, a_long_message_is_cut_between_characters_and_is_one_line);
    return tcase;
}
