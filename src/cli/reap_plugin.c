#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/reap.h"

/* The loader looks for a bare name in the system's libraries; whoever types one means the file here. */
static char *path_of(const char *file)
{
    return strchr(file, '/') != NULL ? lh_strdup(file) : lh_format("./%s", file);
}

bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *file, struct lh_error *error)
{
    char *path = path_of(file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct lh_reap_plugin *plugin = library != NULL ? dlsym(library, "leasehold_reap_plugin") : NULL;

    if (library == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s", dlerror());
    else if (plugin == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s is no plugin: it has no symbol leasehold_reap_plugin",
                     path);
    else if (plugin->version != LH_REAP_PLUGIN_VERSION)
        lh_error_set(error, LH_INVALID_ARGUMENT,
                     "--plugin: %s is made for version %u of plugins, this program has version %d", path,
                     plugin->version, LH_REAP_PLUGIN_VERSION);
    else if (plugin->on_lease == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s has no callback on_lease", path);
    free(path);
    if (error->status != LH_OK) {
        if (library != NULL)
            dlclose(library);
        return false;
    }
    callback->on_lease = plugin->on_lease;
    callback->arg = plugin->arg;
    callback->library = library;
    return true;
}
