/* What may be asked for, checked before anybody is asked; the server checks again. LH_INVALID_ARGUMENT with words. */
#ifndef LH_CLIENT_CHECK_H
#define LH_CLIENT_CHECK_H

#include "base/status.h"

#define CHECK_SEGMENTS_MAX 16
#define CHECK_LABELS_MAX 16

enum lh_status check_key(const char *key, struct lh_error *error);
enum lh_status check_owner(const char *owner, struct lh_error *error);

/* Dotted. Cuts `text` into segments at its dots, in place. */
enum lh_status check_namespace(char *text, char *segments[CHECK_SEGMENTS_MAX], size_t *count, struct lh_error *error);

/* "name=value"; *name_size is where the name ends. */
enum lh_status check_label(const char *label, size_t *name_size, struct lh_error *error);

/* A result or failure. */
enum lh_status check_result(const char *field, const char *text, struct lh_error *error);

enum lh_status check_refuse(struct lh_error *error, const char *field, const char *bound, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
