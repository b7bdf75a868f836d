#ifndef LH_TEST_CONFIG_H
#define LH_TEST_CONFIG_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>

#include "config/settings.h"

extern struct lh_settings settings;
extern struct lh_config_errors config_errors;
extern char config_path[64];

/* The fixture: an empty environment, and an empty file. */
void begin_config(void);
void end_config(void);

void write_config(const char *text);
bool load_config(int argc, ...);
bool load_config_file(const char *text);

/* Exactly one error, about line `line` of the file (0: not about the file), that contains `words`. */
void expect_config_error(int line, const char *words);

/* What a printer writes of the settings. A new string. */
char *print_config(void (*printer)(const struct lh_settings *printed, FILE *out));

TCase *test_config_refused(void);
TCase *test_config_sections(void);

#endif
