/* The methods of ScheduleService that change or show one schedule. */
#ifndef LH_SERVICE_METHODS_SCHEDULES_H
#define LH_SERVICE_METHODS_SCHEDULES_H

#include "lease/view.h"
#include "service/edge/validate.h"

#define LH_SCHEDULE_SETTINGS_MAX 16

/* Settings by name, for the store. */
struct lh_schedule_settings {
    const char *names[LH_SCHEDULE_SETTINGS_MAX];
    const char *values[LH_SCHEDULE_SETTINGS_MAX];
    struct lh_policy_change change; /* points into this struct: leave it in place */
};

/* Add a setting. The value is borrowed; a number becomes text in the arena. */
void lh_schedule_setting(struct lh_schedule_settings *settings, const char *name, const char *value);
void lh_schedule_number(struct lh_schedule_settings *settings, const char *name, int64_t value, struct lh_arena *arena);

/* Checks a schedule's name and settings and converts them; what the request leaves out gets its default. Returns false
   with violations. */
bool lh_schedule_from_request(struct lh_validator *v, const Leasehold__V1__Schedule *schedule,
                              struct lh_schedule_settings *settings);

/* Returns true if the store succeeded, and the call still waits. Otherwise it fails the call, if there still is one; the
   fields of the request are below `path`, "": in the request itself. */
bool lh_schedule_is_answered(struct lh_rpc_call *call, enum lh_status status, const struct lh_error *error,
                             const char *ns, const char *path);

#endif
