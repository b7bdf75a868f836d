/* The places of keys of a spread namespace: where leases are must not change with a release, and what databases say decides. */
#include <stdio.h>

#include "base/clock.h"
#include "loop/loop.h"
#include "service/call_internal.h"
#include "service/service_internal.h"
#include "test_service_fakes.h"

#define KEYS 20000

static const struct {
    const char *key;
    const char *of_two;
    const char *of_three;
    const char *of_four;
} golden[] = {
    {"", "b", "b", "us-1"},       {"k", "b", "b", "asia_2"},  {"invoice-42", "a", "a", "us-1"},
    {"Zürich", "a", "c", "us-1"}, {"k1", "b", "b", "home"},   {"k2", "b", "b", "eu"},
    {"k3", "b", "b", "eu"},       {"db/7", "b", "b", "home"}, {"a b", "a", "a", "us-1"},
};

static const char *find(const char *const *names, size_t count, const char *key)
{
    struct lh_spread *spread = lh_spread_create(names, count);
    const char *name = names[lh_spread_find(spread, key).of];

    lh_spread_destroy(spread);
    return name;
}

START_TEST(a_key_is_where_it_always_was)
{
    static const char *const two[] = {"a", "b"}, *const three[] = {"c", "b", "a"};
    static const char *const four[] = {"eu", "us-1", "asia_2", "home"};

    ck_assert_str_eq(find(two, 1, golden[_i].key), "a");
    ck_assert_str_eq(find(two, 2, golden[_i].key), golden[_i].of_two);
    ck_assert_str_eq(find(three, 3, golden[_i].key), golden[_i].of_three);
    ck_assert_str_eq(find(four, 4, golden[_i].key), golden[_i].of_four);
}
END_TEST

START_TEST(one_more_database_takes_its_share_and_moves_nothing_else)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

    for (size_t count = 1; count < sizeof(names) / sizeof(names[0]); count++) {
        struct lh_spread *few = lh_spread_create(names, count), *more = lh_spread_create(names, count + 1);
        size_t moved = 0, share = KEYS / (count + 1);
        for (int i = 0; i < KEYS; i++) {
            char key[16];
            size_t from, to;
            snprintf(key, sizeof(key), "job-%d", i);
            from = lh_spread_find(few, key).of;
            to = lh_spread_find(more, key).of;
            ck_assert_msg(to == from || to == count, "%s moved from %s to %s", key, names[from], names[to]);
            moved += to != from;
        }
        ck_assert_msg(moved > share * 9 / 10 && moved < share * 11 / 10, "%zu of %d keys moved to %s", moved, KEYS,
                      names[count]);
        lh_spread_destroy(few);
        lh_spread_destroy(more);
    }
}
END_TEST

/* --- what databases say --- */

static const char *const abc[] = {"a", "b", "c"}, *const bc[] = {"b", "c"}, *const ab[] = {"a", "b"};

static struct lh_spread_row row_of(const char *section, const char *const *sections, size_t count, bool is_settled)
{
    return (struct lh_spread_row){
        .ns = "jobs", .section = section, .sections = sections, .section_count = count, .is_settled = is_settled};
}

/* The slots that a settled claim gets. */
static struct lh_spread_row settled(const char *section, const char *const *sections, size_t count)
{
    struct lh_spread_row row = row_of(section, sections, count, true);
    struct lh_spread *spread = lh_spread_create(sections, count);

    for (unsigned slot = 0; slot < LH_SPREAD_SLOTS; slot++)
        if (strcmp(sections[lh_spread_first(spread, slot)], section) == 0)
            row.slots[slot / 8] |= (uint8_t)(1 << slot % 8);
    lh_spread_destroy(spread);
    return row;
}

static void move_all(struct lh_spread_row *from, struct lh_spread_row *to)
{
    for (size_t i = 0; i < LH_SPREAD_BYTES; i++) {
        if (to != NULL)
            to->slots[i] |= from->slots[i];
        from->slots[i] = 0;
    }
}

static void check(const struct lh_spread *spread, const char *key, enum lh_spread_state state, size_t of, size_t other)
{
    struct lh_spread_place place = lh_spread_find(spread, key);

    ck_assert_msg(place.state == state && place.of == of && place.other == other, "%s: state %d of %zu other %zu", key,
                  place.state, place.of, place.other);
}

/* k1 is of b in {a, b}, and invoice-42 of a. */
START_TEST(what_a_database_says_decides)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);
    size_t moved;

    check(spread, "k1", LH_SPREAD_UNREAD, 1, 1);
    ck_assert(lh_spread_set_row(spread, 0, &a));
    ck_assert(!lh_spread_set_row(spread, 0, &a));
    check(spread, "invoice-42", LH_SPREAD_SERVED, 0, 2);
    check(spread, "k1", LH_SPREAD_UNREAD, 1, 1);
    ck_assert(lh_spread_set_row(spread, 1, &b));
    check(spread, "k1", LH_SPREAD_SERVED, 1, 2);
    ck_assert_uint_eq(lh_spread_count(spread, 0) + lh_spread_count(spread, 1), LH_SPREAD_SLOTS);
    ck_assert_uint_eq(lh_spread_count(spread, 2), 0);
    ck_assert(!lh_spread_lacks_leases(spread));

    moved = lh_spread_count(spread, 1);
    move_all(&b, NULL);
    ck_assert(lh_spread_set_row(spread, 1, &b));
    ck_assert(lh_spread_lacks_leases(spread));
    ck_assert_uint_eq(lh_spread_moves(spread), 0);
    check(spread, "k1", LH_SPREAD_MOVING, 1, 2);
    check(spread, "invoice-42", LH_SPREAD_SERVED, 0, 2);
    b = settled("b", ab, 2);
    move_all(&b, &a);
    ck_assert(lh_spread_set_row(spread, 0, &a));
    check(spread, "k1", LH_SPREAD_SERVED, 0, 2);
    ck_assert_uint_eq(lh_spread_count(spread, 0), LH_SPREAD_SLOTS);
    ck_assert(!lh_spread_lacks_leases(spread));
    ck_assert_uint_eq(lh_spread_moves(spread), moved);
    lh_spread_destroy(spread);
}
END_TEST

START_TEST(a_slot_that_two_databases_have_is_served_by_neither)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), both = a;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 1, &b);
    both = b;
    move_all(&both, &a);
    lh_spread_set_row(spread, 0, &a);
    check(spread, "k1", LH_SPREAD_SEVERAL, 1, 0); /* old leases are where they were */
    check(spread, "invoice-42", LH_SPREAD_SERVED, 0, 2);
    move_all(&b, NULL);
    lh_spread_set_row(spread, 1, &b);
    check(spread, "k1", LH_SPREAD_SERVED, 0, 2);
    lh_spread_destroy(spread);
}
END_TEST

START_TEST(one_more_section_serves_all_keys_of_the_others)
{
    struct lh_spread *spread = lh_spread_create(abc, 3);
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 2, NULL);
    check(spread, "k1", LH_SPREAD_UNREAD, 1, 1);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 3);
    ck_assert_uint_eq(lh_spread_count(spread, 0) + lh_spread_count(spread, 1), LH_SPREAD_SLOTS);
    lh_spread_destroy(spread);
}
END_TEST

/* Zürich is of c in {a, b, c}. */
START_TEST(a_slot_of_a_section_that_the_daemon_lacks_is_missing)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = settled("a", abc, 3), b = settled("b", abc, 3);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    check(spread, "Zürich", LH_SPREAD_UNREAD, 1, 1);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_int_eq(lh_spread_find(spread, "Zürich").state, LH_SPREAD_MISSING);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    check(spread, "k1", LH_SPREAD_SERVED, 1, 2);
    lh_spread_destroy(spread);
}
END_TEST

/* --- claims --- */

START_TEST(a_claim_gets_slots_when_all_databases_have_one_of_the_same_sections)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = row_of("a", ab, 2, false), b = row_of("b", ab, 2, false);
    bool settles;

    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    lh_spread_set_row(spread, 1, NULL);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2); /* a was not reached */
    check(spread, "k1", LH_SPREAD_UNREAD, 1, 0);
    lh_spread_set_row(spread, 0, NULL);
    check(spread, "k1", LH_SPREAD_UNCLAIMED, 1, 2);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 0);
    ck_assert(!settles);
    lh_spread_set_row(spread, 0, &a);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 1);
    ck_assert(!settles);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 0);
    ck_assert(settles);
    a = settled("a", ab, 2);
    lh_spread_set_row(spread, 0, &a);
    check(spread, "k1", LH_SPREAD_UNCLAIMED, 1, 2);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 1);
    ck_assert(settles);
    b = settled("b", ab, 2);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    check(spread, "k1", LH_SPREAD_SERVED, 1, 2);
    lh_spread_destroy(spread);
}
END_TEST

START_TEST(one_more_or_less_database_leaves_what_is_known_of_the_others)
{
    struct lh_spread *few = lh_spread_create(bc, 2), *more = lh_spread_create(abc, 3), *again = lh_spread_create(bc, 2);
    struct lh_spread_row a = row_of("a", abc, 3, true), b = settled("b", bc, 2), c = settled("c", bc, 2);

    lh_spread_set_row(few, 0, &b);
    lh_spread_set_row(few, 1, &c);
    move_all(&c, NULL);
    lh_spread_set_row(few, 1, &c);
    lh_spread_adopt(more, few);
    ck_assert(!lh_spread_is_read(more, 0));
    for (size_t i = 0; i < 2; i++)
        ck_assert_uint_eq(lh_spread_count(more, i + 1), lh_spread_count(few, i));
    for (int i = 0; i < 100; i++) { /* the same, but that its database has another index */
        struct lh_spread_place was, is;
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        was = lh_spread_find(few, key);
        is = lh_spread_find(more, key);
        ck_assert(was.state == LH_SPREAD_SERVED || was.state == LH_SPREAD_MOVING);
        ck_assert_int_eq(is.state, was.state);
        ck_assert_uint_eq(is.of, was.of + 1);
    }
    c = settled("c", bc, 2);
    move_all(&c, &a);
    lh_spread_set_row(more, 0, &a);
    ck_assert_uint_eq(lh_spread_count(more, 3), 0);
    move_all(&a, &b);
    lh_spread_set_row(more, 0, &a);
    lh_spread_set_row(more, 1, &b);
    lh_spread_adopt(again, more);
    ck_assert_uint_eq(lh_spread_count(again, 0), LH_SPREAD_SLOTS);
    lh_spread_destroy(few);
    lh_spread_destroy(more);
    lh_spread_destroy(again);
}
END_TEST

START_TEST(a_claim_stops_at_a_row_of_other_sections)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = row_of("a", ab, 2, false), b = row_of("b", bc, 2, false);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    check(spread, "k1", LH_SPREAD_UNCLAIMED, 1, 1);
    check(spread, "invoice-42", LH_SPREAD_UNCLAIMED, 0, 1);
    lh_spread_destroy(spread);
}
END_TEST

/* Its row was lost: the database is older than it was, or another one. */
START_TEST(a_share_that_another_database_has_by_now_is_not_taken_back)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = row_of("a", ab, 2, false), b = settled("b", ab, 2), moved = settled("a", ab, 2);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 0);
    ck_assert(settles);
    move_all(&moved, &b);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    lh_spread_destroy(spread);
}
END_TEST

/* --- a service with two databases --- */

static struct fake_store stores[3];
static struct lh_coordinator coordinators[3];

static struct lh_loop *loop;

static void setup(void)
{
    loop = lh_loop_create();
}

static void teardown(void)
{
    lh_loop_destroy(loop);
    test_arena_reset();
}

static const char *const spread[] = {"jobs", "more.jobs"};
static size_t spread_count;

static struct lh_service_place new_place(int at)
{
    fake_store_init(&stores[at]);
    coordinators[at] = (struct lh_coordinator){.store = &stores[at].base, .readiness.is_ready = true};
    return (struct lh_service_place){
        .name = abc[at], .coordinator = &coordinators[at], .spread = spread, .spread_count = spread_count};
}

static struct lh_service *start_with(size_t count)
{
    struct lh_service_options options;
    struct lh_service_place places[2];

    spread_count = count;
    lh_service_options_init(&options);
    options.loop = loop;
    memset(coordinators, 0, sizeof(coordinators));
    for (int i = 0; i < 2; i++)
        places[i] = new_place(i);
    return lh_service_create_placed(places, 2, &options);
}

static struct lh_service *start(void)
{
    return start_with(1);
}

static void stop(struct lh_service *service)
{
    fake_client_gone(service);
    lh_service_destroy(service);
}

static void answer_all(int place, const struct lh_spread_row *rows, size_t count)
{
    struct lh_spread_answer answer = {rows, count};

    coordinators[place].on_spread(coordinators[place].spread_arg, &answer);
    lh_loop_run_once(loop, 0); /* the looks at open calls */
}

static void answer(int place, const struct lh_spread_row *row)
{
    answer_all(place, row, row != NULL);
}

static struct lh_rpc_call *acquire(struct lh_service *service, const char *key)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct lh_rpc_call *call = fake_call(service, "/leasehold.v1.LeaseService/Acquire");

    request->scope = new_scope("jobs", key);
    fake_call_message(call, &request->base);
    return call;
}

static void check_refused(struct lh_rpc_call *call, const char *words)
{
    ck_assert(call->is_finished);
    ck_assert_str_eq(fake_call_reason(call), "DATABASE_UNAVAILABLE");
    ck_assert_msg(strstr(call->message, words) != NULL, "%s", call->message);
    fake_call_end(call, LH_RPC_END_FINISHED);
}

START_TEST(databases_are_claimed_one_after_the_other_and_ready_then)
{
    struct lh_service *service = start();
    struct lh_spread_row a = row_of("a", ab, 2, false), b = row_of("b", ab, 2, false);

    ck_assert_str_eq(coordinators[0].lack, "its part of the spread namespaces was not read yet");
    answer(1, NULL);
    ck_assert_uint_eq(stores[0].claim_count + stores[1].claim_count, 0);
    ck_assert_ptr_null(coordinators[1].lack);
    answer(0, NULL);
    ck_assert_ptr_nonnull(coordinators[1].lack);
    ck_assert_str_eq(stores[0].claimed, "a");
    answer(0, NULL); /* the claim is under way */
    ck_assert_uint_eq(stores[0].claim_count, 1);
    check_refused(acquire(service, "k1"), "the keys of jobs are not divided between the databases a, b yet");
    stores[0].on_claimed(stores[0].claim_arg, LH_OK, NULL);
    ck_assert_uint_eq(coordinators[0].spread_reads, 1);
    answer(0, &a);
    ck_assert_str_eq(stores[1].claimed, "b");
    stores[1].on_claimed(stores[1].claim_arg, LH_OK, NULL);
    answer(1, &b);
    ck_assert_str_eq(stores[0].claimed, "a!");
    stores[0].on_claimed(stores[0].claim_arg, LH_OK, NULL);
    a = settled("a", ab, 2);
    answer(0, &a);
    ck_assert_str_eq(stores[1].claimed, "b!");
    stores[1].on_claimed(stores[1].claim_arg, LH_OK, NULL);
    b = settled("b", ab, 2);
    answer(1, &b);
    ck_assert_ptr_null(coordinators[0].lack);
    ck_assert_ptr_null(coordinators[1].lack);
    ck_assert_uint_eq(stores[0].claim_count + stores[1].claim_count, 4);
    stop(service);
}
END_TEST

START_TEST(a_claim_that_fails_is_tried_again_and_keeps_nobody_from_other_namespaces)
{
    struct lh_service *service = start();
    struct lh_error error = {.message = "permission denied"};

    answer(0, NULL);
    answer(1, NULL);
    stores[0].on_claimed(stores[0].claim_arg, LH_INTERNAL, &error);
    answer(0, NULL);
    ck_assert_uint_eq(stores[0].claim_count, 2);
    ck_assert_ptr_null(coordinators[0].lack);
    ck_assert_ptr_null(coordinators[1].lack);
    stores[0].on_claimed(stores[0].claim_arg, LH_CANCELED, &error);
    stop(service);
}
END_TEST

START_TEST(waiters_of_a_key_that_goes_elsewhere_are_sent_away)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), none = b;
    struct lh_acquire_result gone = {.status = LH_CANCELED}, sent_back = {.status = LH_DATABASE_UNAVAILABLE};
    struct lh_rpc_call *moved, *kept;

    answer(0, &a);
    answer(1, &b);
    moved = acquire(service, "k1");
    kept = acquire(service, "invoice-42");
    ck_assert_str_eq(coordinators[1].acquire->key, "k1");
    ck_assert_str_eq(coordinators[0].acquire->key, "invoice-42");
    move_all(&none, NULL);
    answer(1, &none);
    ck_assert_ptr_eq(coordinators[1].sent_back, coordinators[1].acquire);
    ck_assert(!moved->is_finished); /* its grant may be on its way */
    ck_assert(!kept->is_finished);
    ck_assert_ptr_null(coordinators[0].sent_back);
    coordinators[1].acquire->on_done(coordinators[1].acquire, &sent_back);
    check_refused(moved,
                  "this key of jobs is on its way from database b to another: call again with the same lease key");
    check_refused(acquire(service, "k1"), "this key of jobs is on its way from database b to another");

    move_all(&b, &a);
    answer(0, &a);
    ck_assert(!kept->is_finished);
    moved = acquire(service, "k1");
    ck_assert_str_eq(coordinators[0].acquire->key, "k1");
    coordinators[0].acquire->on_done(coordinators[0].acquire, &gone);
    fake_call_end(moved, LH_RPC_END_FINISHED);
    fake_call_end(kept, LH_RPC_END_CANCELED);
    coordinators[0].canceled->on_done(coordinators[0].canceled, &gone);
    stop(service);
}
END_TEST

START_TEST(a_database_comes_and_goes_and_keys_in_between)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), c = row_of("c", abc, 3, true), none = b;
    struct lh_acquire_result gone = {.status = LH_CANCELED}, sent_back = {.status = LH_DATABASE_UNAVAILABLE};
    char why[LH_SERVICE_WORDS_BYTES];
    struct lh_rpc_call *waiting;

    move_all(&none, &c);
    answer(0, &a);
    ck_assert(!lh_service_may_remove(service, "b", why)); /* it was not read */
    ck_assert_ptr_nonnull(strstr(why, "may have keys of jobs, because "));
    answer(1, &b);
    for (int round = 0; round < 2; round++) {
        struct lh_service_place place = new_place(2);
        lh_service_add(service, &place);
        ck_assert_str_eq(coordinators[2].lack, "its part of the spread namespaces was not read yet");
        ck_assert(lh_service_may_remove(service, "c", why));
        answer(2, NULL);
        ck_assert_ptr_null(coordinators[2].lack);
        ck_assert_uint_eq(stores[2].claim_count, 0);
        answer(1, &none);
        answer(2, &c);
        waiting = acquire(service, "k1");
        ck_assert_str_eq(coordinators[2].acquire->key, "k1");
        ck_assert(!lh_service_may_remove(service, "c", why));
        ck_assert_ptr_nonnull(strstr(why, " of 4096 slots of jobs: move its keys to other sections first, with "));
        none.section = c.section;
        answer(2, &none);
        none.section = b.section;
        answer(1, &b);
        ck_assert_ptr_eq(coordinators[2].sent_back, coordinators[2].acquire);
        ck_assert(lh_service_may_remove(service, "c", why));
        lh_service_remove(service, &coordinators[2]);
        coordinators[2].acquire->on_done(coordinators[2].acquire, &sent_back);
        check_refused(waiting, "call again with the same lease key");
        lh_service_forget(service, &coordinators[2]);
        waiting = acquire(service, "k1");
        coordinators[1].acquire->on_done(coordinators[1].acquire, &gone);
        fake_call_end(waiting, LH_RPC_END_FINISHED);
    }
    stop(service);
}
END_TEST

START_TEST(a_key_that_two_databases_have_is_refused_with_both_names)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), copy = b;

    move_all(&copy, &a);
    answer(0, &a);
    answer(1, &b);
    check_refused(acquire(service, "k1"), "the databases a and b both say that they have this key of jobs");
    stop(service);
}
END_TEST

/* A namespace, and of which spread one the words are: itself, above it or below it. */
static const struct {
    const char *ns, *of;
} asked[] = {{"jobs", " of jobs: "},           {"jobs.x", " of jobs: "},           {"more", " of more.jobs: "},
             {"more.jobs", " of more.jobs: "}, {"more.jobs.x", " of more.jobs: "}, {"", " of jobs: "}};

START_TEST(a_list_without_some_keys_says_where_they_are)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", abc, 3), b = settled("b", abc, 3);
    char words[LH_OUTAGE_WORDS_BYTES];

    answer(0, &a);
    answer(1, &b);
    ck_assert_str_eq(lh_call_words_of_outage(service, "jobs", NULL, "call again", words),
                     "no database of this daemon has some keys of jobs: its keys are in the sections a, b, c, this "
                     "daemon has a, b: call again");
    a = settled("a", ab, 2);
    b = settled("b", ab, 2);
    answer(0, &a);
    answer(1, &b);
    move_all(&b, NULL);
    answer(1, &b);
    ck_assert_str_eq(lh_call_words_of_outage(service, "jobs", NULL, "call again", words),
                     "keys of jobs are on their way between databases: call again");
    stop(service);
}
END_TEST

START_TEST(keys_in_no_database_of_all_sections_may_be_those_of_a_move_that_ended_early)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = row_of("b", ab, 2, true);
    char words[LH_OUTAGE_WORDS_BYTES];

    answer(0, &a);
    answer(1, &b);
    ck_assert_str_eq(lh_call_words_of_outage(service, "jobs", NULL, "call again", words),
                     "no database has some keys of jobs: a move of keys is under way, or was interrupted: call again");
    check_refused(acquire(service, "k1"),
                  "no database has this key of jobs: a move of keys is under way, or was interrupted");
    stop(service);
}
END_TEST

START_TEST(words_without_a_key_are_of_the_namespace_that_was_asked_for)
{
    struct lh_service *service = start_with(2);
    struct lh_spread_row rows[2][2]; /* of jobs and of more.jobs */
    char words[LH_OUTAGE_WORDS_BYTES];

    for (int i = 0; i < 2; i++) {
        rows[i][0] = rows[i][1] = settled(ab[i], ab, 2);
        rows[i][1].ns = "more.jobs";
    }
    move_all(&rows[1][0], NULL);
    move_all(&rows[1][1], NULL);
    answer_all(0, rows[0], 2);
    answer_all(1, rows[1], 2);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        lh_call_words_of_outage(service, asked[i].ns, NULL, "call again", words);
        ck_assert_msg(strstr(words, asked[i].of) != NULL, "%s: %s", asked[i].ns, words);
    }
    ck_assert(!lh_places_lack_leases(service->places, "more.jobsx", words));
    ck_assert(!lh_places_lack_leases(service->places, "job", words));
    stop(service);
}
END_TEST

static struct lh_rpc_call *watch_jobs(struct lh_service *service)
{
    struct lh_rpc_call *call = fake_call(service, "/leasehold.v1.LeaseService/WatchLeases");
    Leasehold__V1__WatchLeasesRequest request;
    char name[] = "jobs", *segment = name;

    leasehold__v1__watch_leases_request__init(&request);
    request.namespace_ = &segment;
    request.n_namespace_ = 1;
    fake_call_message(call, &request.base);
    return call;
}

START_TEST(a_watch_waits_for_no_database_without_keys_that_is_given_up)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);
    struct lh_service_place c = new_place(2);
    struct lh_rpc_call *call;

    answer(0, &a);
    answer(1, &b);
    lh_service_add(service, &c);
    call = watch_jobs(service);
    for (int i = 0; i < 2; i++)
        coordinators[i].watcher->on_active(coordinators[i].watcher);
    ck_assert(!call->has_headers); /* its database may come yet */
    coordinators[2].watcher->on_end(coordinators[2].watcher, LH_DATABASE_UNAVAILABLE);
    ck_assert(call->has_headers);
    ck_assert(!call->is_finished);
    fake_call_end(call, LH_RPC_END_CANCELED);
    stop(service);
}
END_TEST

static void on_beaten(struct lh_holder_request *request)
{
    *(bool *)request->arg = true;
}

START_TEST(a_renewal_goes_to_no_database_that_may_not_know_the_lease)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", abc, 3), b = settled("b", abc, 3);
    struct lh_holder_entry items[2] = {{.item = {.ns = "jobs", .key = "k1"}},
                                       {.item = {.ns = "jobs", .key = "Zürich"}}};
    bool is_done = false;
    struct lh_holder_request request = {.items = items, .count = 2, .on_done = on_beaten, .arg = &is_done};

    /* Nothing was read yet: no item is sent, and the answer comes later. */
    ck_assert_int_eq(lh_route_heartbeat(service, &request), LH_OK);
    ck_assert(!is_done);
    ck_assert_uint_eq(coordinators[0].heartbeat->count, 0);
    coordinators[0].heartbeat->on_done(coordinators[0].heartbeat);
    ck_assert(is_done);
    ck_assert_int_eq(items[0].item.outcome, LH_OUTCOME_RETRY);

    answer(0, &a);
    answer(1, &b);
    is_done = false;
    ck_assert_int_eq(lh_route_heartbeat(service, &request), LH_OK);
    ck_assert_uint_eq(coordinators[1].heartbeat->count, 1);
    coordinators[1].heartbeat->items[0].item.outcome = LH_OUTCOME_OK;
    coordinators[1].heartbeat->on_done(coordinators[1].heartbeat);
    ck_assert(is_done);
    ck_assert_int_eq(items[0].item.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(items[1].item.outcome, LH_OUTCOME_RETRY);
    check_refused(
        acquire(service, "Zürich"),
        "no database of this daemon has this key of jobs: its keys are in the sections a, b, c, this daemon has a, b");

    move_all(&b, NULL); /* k1 is on its way, and may have left b */
    answer(1, &b);
    coordinators[0].heartbeat = coordinators[1].heartbeat = NULL;
    is_done = false;
    ck_assert_int_eq(lh_route_heartbeat(service, &request), LH_OK);
    ck_assert_ptr_null(coordinators[1].heartbeat);
    coordinators[0].heartbeat->on_done(coordinators[0].heartbeat);
    ck_assert(is_done);
    ck_assert_int_eq(items[0].item.outcome, LH_OUTCOME_RETRY);
    stop(service);
}
END_TEST

Suite *spread_suite(void)
{
    Suite *suite = suite_create("spread");
    TCase *tcase = tcase_create("spread");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_key_is_where_it_always_was, 0, sizeof(golden) / sizeof(golden[0]));
    tcase_add_test(tcase, one_more_database_takes_its_share_and_moves_nothing_else);
    tcase_add_test(tcase, what_a_database_says_decides);
    tcase_add_test(tcase, a_slot_that_two_databases_have_is_served_by_neither);
    tcase_add_test(tcase, one_more_section_serves_all_keys_of_the_others);
    tcase_add_test(tcase, a_slot_of_a_section_that_the_daemon_lacks_is_missing);
    tcase_add_test(tcase, a_claim_gets_slots_when_all_databases_have_one_of_the_same_sections);
    tcase_add_test(tcase, one_more_or_less_database_leaves_what_is_known_of_the_others);
    tcase_add_test(tcase, a_claim_stops_at_a_row_of_other_sections);
    tcase_add_test(tcase, a_share_that_another_database_has_by_now_is_not_taken_back);
    tcase_add_test(tcase, databases_are_claimed_one_after_the_other_and_ready_then);
    tcase_add_test(tcase, a_claim_that_fails_is_tried_again_and_keeps_nobody_from_other_namespaces);
    tcase_add_test(tcase, waiters_of_a_key_that_goes_elsewhere_are_sent_away);
    tcase_add_test(tcase, a_database_comes_and_goes_and_keys_in_between);
    tcase_add_test(tcase, a_key_that_two_databases_have_is_refused_with_both_names);
    tcase_add_test(tcase, a_list_without_some_keys_says_where_they_are);
    tcase_add_test(tcase, keys_in_no_database_of_all_sections_may_be_those_of_a_move_that_ended_early);
    tcase_add_test(tcase, words_without_a_key_are_of_the_namespace_that_was_asked_for);
    tcase_add_test(tcase, a_watch_waits_for_no_database_without_keys_that_is_given_up);
    tcase_add_test(tcase, a_renewal_goes_to_no_database_that_may_not_know_the_lease);
    suite_add_tcase(suite, tcase);
    return suite;
}
