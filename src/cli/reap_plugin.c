#include "cli/reap_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"

/* The loader looks for a bare name in the system's libraries; a user who types one means the file here. */
static char *path_of(const char *file)
{
    return strchr(file, '/') != NULL ? lh_strdup(file) : lh_format("./%s", file);
}

static int call_plugin(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    const struct lh_reap_callback *callback = arg;
    struct lh_reap_flight *flight = callback->flight;
    int answer;

    flight->lease = *lease;
    flight->lease.principal = flight->lease.labels = NULL; /* in memory that dies with the process */
    flight->is_in_callback = 1;
    answer = callback->plugin->on_lease(callback->plugin->arg, conn, lease, error);
    flight->is_in_callback = 0;
    return answer;
}

bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *file, struct lh_error *error)
{
    char *path = path_of(file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct lh_reap_plugin *plugin = library != NULL ? dlsym(library, "leasehold_reap_plugin") : NULL;

    if (library == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s", dlerror());
    else if (plugin == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s is not a plugin: it has no symbol leasehold_reap_plugin",
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
    callback->on_lease = call_plugin;
    callback->arg = callback;
    callback->plugin = plugin;
    callback->flight = mmap(NULL, sizeof(*callback->flight), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (callback->flight != MAP_FAILED)
        return true;
    callback->flight = NULL;
    lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: no memory");
    return false;
}
