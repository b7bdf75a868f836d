/*
 * One waiter without priority among others who keep coming, each with a priority: is it granted in the end? Time goes on by a grant.
 * `came` is when one came, in ageings, as enqueued_at is; live_heads() in migrations/functions/queue.sql has the rule.
 * LEAVE_OUT_AGEING: the highest priority goes first, however long others have waited.
 */
#define OTHERS 2
#define STEPS 3  /* of priority, each worth one ageing */
#define BOUND 4  /* beyond which more of an age makes no difference */

bool waits[OTHERS];
byte age[OTHERS];     /* how long they have waited, in ageings */
byte own_age;
byte overtaken;       /* by others that came STEPS ageings after it, or later */
bool is_granted;

#ifdef LEAVE_OUT_AGEING
#define IS_BEFORE(i) waits[i]
#else
#define IS_BEFORE(i) (waits[i] && age[i] + STEPS >= own_age)
#endif

active proctype Queue() {
    byte i;

    do
    :: !is_granted ->
        atomic {
            /* anybody may come, at any time */
            i = 0;
            do
            :: i < OTHERS && !waits[i] -> waits[i] = true; age[i] = 0; i++
            :: i < OTHERS -> i++
            :: i >= OTHERS -> break
            od;
            /* a grant */
            if
            :: IS_BEFORE(0) -> overtaken = overtaken + (own_age > age[0] + STEPS -> 1 : 0); waits[0] = false
            :: IS_BEFORE(1) -> overtaken = overtaken + (own_age > age[1] + STEPS -> 1 : 0); waits[1] = false
            :: else -> is_granted = true
            fi;
            assert(overtaken == 0);
            /* an ageing passes; what is older than all steps counts as that */
            own_age = (own_age < 2 * STEPS + BOUND -> own_age + 1 : own_age);
            i = 0;
            do
            :: i < OTHERS -> age[i] = (age[i] < 2 * STEPS + BOUND -> age[i] + 1 : age[i]); i++
            :: else -> break
            od;
            i = 0
        }
    :: is_granted -> break
    od
}

ltl is_granted_in_the_end { <> is_granted }
