/* Inside src/config only: the table of settings and what one row can do. */
#ifndef LH_CONFIG_CONFIG_INTERNAL_H
#define LH_CONFIG_CONFIG_INTERNAL_H

#include "config/settings.h"

enum lh_setting_type {
    LH_TYPE_STRING,    /* char * */
    LH_TYPE_ADDRESS,   /* char *, checked; "none" is NULL */
    LH_TYPE_ADDRESSES, /* struct lh_strings, separated by commas */
    LH_TYPE_WORDS,     /* struct lh_strings, separated by commas; may be empty */
    LH_TYPE_INT,       /* int64_t */
    LH_TYPE_DURATION,  /* int64_t, microseconds */
    LH_TYPE_MODE,      /* int64_t, the bits of a file's mode, written in octal */
    LH_TYPE_SIZE,      /* int64_t, bytes */
    LH_TYPE_RATIO,     /* int64_t, millionths, written as 0.01 */
    LH_TYPE_BOOL,      /* bool */
    LH_TYPE_CHOICE,    /* int64_t, the place in `choices` */
};

enum {
    LH_SETTING_RELOADABLE = 1,
    LH_SETTING_FLAG_ONLY = 2, /* means nothing inside the file */
    LH_SETTING_SECRET = 4,    /* may hold a password */
    LH_SETTING_OR_ZERO = 8,   /* 0 is allowed besides min..max */
};

struct lh_setting {
    const char *name; /* in the file; --name-with-dashes on the command line */
    enum lh_setting_type type;
    size_t offset;        /* in struct lh_settings */
    const char *standard; /* the default, as one would write it; NULL: none */
    int64_t min;
    int64_t max;
    unsigned flags;
    const char *choices;     /* CHOICE: words separated by | */
    const char *environment; /* the variable that sets it too, or NULL */
    const char *heading;     /* heading of the group that begins here, or NULL */
    const char *help;
};

extern const struct lh_setting lh_settings_table[];
extern const size_t lh_settings_count;

/* Returns the place of its value: a pointer to the type that enum lh_setting_type names. */
static inline void *lh_setting_place(const struct lh_settings *settings, const struct lh_setting *setting)
{
    return (char *)(uintptr_t)settings + setting->offset;
}

/* NULL where there is none. Dashes count as underscores. */
const struct lh_setting *lh_setting_find(const char *name, size_t size);

/* Sets a value from text. Returns false, with the fault of `text` in `why`, if it is not valid. For ADDRESSES and
   WORDS `extend` adds to the current value. */
bool lh_setting_set(struct lh_settings *settings, const struct lh_setting *setting, const char *text, bool extend,
                    char *why, size_t why_bytes);
/* The value as one would write it, or NULL for none; free() it. */
char *lh_setting_format(const struct lh_settings *settings, const struct lh_setting *setting);
void lh_setting_clear(struct lh_settings *settings, const struct lh_setting *setting);

void lh_config_error(struct lh_config_errors *errors, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- sections.c --- */

/* A line of a section whose header is `section`. False: that is no section of a database. */
bool lh_databases_take(struct lh_settings *settings, const char *section, const char *name, const char *value, int line,
                       bool is_continuation, struct lh_config_errors *errors);
/* After the last line: what is missing, and what the sections may not say together. */
void lh_databases_check(const struct lh_settings *settings, struct lh_config_errors *errors);
void lh_databases_clear(struct lh_settings *settings);
void lh_databases_adopt(struct lh_settings *settings, struct lh_settings *fresh); /* swaps them */

#endif
