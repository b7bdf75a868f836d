/* The descriptors of all services, which clients may list. */
#ifndef LH_SERVICE_REFLECTION_H
#define LH_SERVICE_REFLECTION_H

struct lh_reflection;
struct lh_reflection *lh_reflection_create(void);
void lh_reflection_destroy(struct lh_reflection *reflection);

#endif
