/* All that is wrong with the settings, a line each. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"

void lh_config_error(struct lh_config_errors *errors, const char *format, ...)
{
    struct lh_buffer buffer = {(unsigned char *)errors->text, errors->size,
                               errors->text == NULL ? 0 : errors->size + 1};
    va_list arguments;
    char *line;

    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) < 0)
        line = lh_strdup("out of memory");
    va_end(arguments);
    lh_buffer_append(&buffer, line, strlen(line));
    lh_buffer_append(&buffer, "\n", 2);
    errors->text = (char *)buffer.data;
    errors->size = buffer.size - 1;
    free(line);
}

bool lh_config_refuse(char *why, size_t why_bytes, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, why_bytes, format, arguments);
    va_end(arguments);
    return false;
}

void lh_config_errors_finish(struct lh_config_errors *errors)
{
    free(errors->text);
    memset(errors, 0, sizeof(*errors));
}
