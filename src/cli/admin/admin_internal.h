/* The commands of administrators: the settings of a policy, and schedules, have files of their own. */
#ifndef LH_CLI_ADMIN_INTERNAL_H
#define LH_CLI_ADMIN_INTERNAL_H

#include "base/memory.h"
#include "cli/cli.h"
#include "client/reply.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "json/policy_setting.h"

/* --- the settings of a policy in words: json/policy_setting.h has their names and values --- */

/* Returns the field; NULL: there is none, and `error` names the nearest. */
const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error);

/* Sets the field from words. LH_INVALID_ARGUMENT: `error` lists the values of the setting. */
enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error);

/* Returns "1.5 s", "takeover", "true", "1000"; NULL if the field is not set. A new string. */
char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

/* --- schedule_call --- */

/* The words of CatchUp, by its numbers. */
extern const char *const lh_catch_up_names[4];

/* Calls a method of ScheduleService, or has the database do the same. Returns its answer, which lives until `reply` and the
   arena are finished. NULL: an error was printed, and `status` is the exit status. A list is all of its pages. */
void *lh_schedule_call(const struct lh_cli *cli, ProtobufCMessage *request, struct lh_arena *arena,
                       struct lh_reply *reply, enum lh_exit *status);

/* --- schedule_set --- */

/* Takes --NAME: a number of 1 to 1000. Without the option `value` stays as it is. */
enum lh_status lh_schedule_take_count(const struct lh_args *args, const char *option, int32_t *value,
                                      struct lh_error *error);

/* Sets a schedule with the options of the command line, and prints it. `time_zone` NULL: that of the options. Not DONE: an
   error was printed. */
enum lh_exit lh_schedule_set(const struct lh_cli *cli, const char *name, const char *expression, const char *time_zone);

/* --- crontab --- */

/* schedule import. */
enum lh_exit lh_schedule_import(const struct lh_cli *cli);

#endif
