/* A library says only what its user must know, until lh_log_to asks for more. */
#include "base/log.h"

__attribute__((constructor)) static void be_quiet(void)
{
    lh_log_set_level(LH_LOG_WARN);
}
