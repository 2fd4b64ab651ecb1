/* Resource limits. They hold for tenants only: the guest needs descriptors for a thousand commands, and must not
 * die of a file size or CPU limit that was meant for them. */
#define _GNU_SOURCE
#include "guest.h"

#include "call.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void add(struct cbor entry)
{
	uint64_t n, resource, soft, hard;
	struct rlimit now;
	struct cbor item;
	errno = EINVAL;
	if (!cbor_array(entry, &n, &item) || n != 3 || place.nlimits == RLIMITS_MOST || !cbor_uint(item, &resource))
		fail("rlimits", NULL);
	cbor_next(&item);
	if (!cbor_uint(item, &soft))
		fail("rlimits", NULL);
	cbor_next(&item);
	if (!cbor_uint(item, &hard) || resource >= RLIM_NLIMITS || soft > hard)
		fail("rlimits", NULL);
	if (getrlimit((int)resource, &now))
		fail("rlimits", NULL);
	if (hard > now.rlim_max && place.walls) { /* now, not when the first command fails */
		errno = EPERM;
		fail("rlimits", NULL);
	}
	place.limits[place.nlimits++] = (struct limit){(int)resource, soft, hard};
}

static void read_list(struct cbor setup)
{
	struct cbor item;
	uint64_t n;
	if (!cbor_get(setup, "rlimits", &item))
		return;
	if (!cbor_array(item, &n, &item))
		errno = EINVAL, fail("rlimits", NULL);
	for (; n--; cbor_next(&item))
		add(item);
}

/* Those of a machine that was set up before anybody knew them; without a list they stay what they are. */
void limits_again(struct cbor request)
{
	struct cbor item;
	if (cbor_get(request, "rlimits", &item))
		place.nlimits = 1; /* the first is not of the list */
	read_list(request);
}

void limits_read(struct cbor setup)
{
	struct rlimit files;
	/* First, so that a list that names it has the last word. */
	if (getrlimit(RLIMIT_NOFILE, &files))
		fail("rlimits", NULL);
	place.limits[place.nlimits++] = (struct limit){RLIMIT_NOFILE, files.rlim_cur, files.rlim_max};
	read_list(setup);
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files))
		fail("rlimits", NULL);
	/* A command holds a line and, at worst, three streams and the pipe that tells of its start. */
	place.jobs_most = files.rlim_max > 128 ? (files.rlim_max - 64) / 6 : 8;
	/* A core file would lay a tenant's memory, placeholders and all, into the workspace. One byte is too little for any,
	 * and it is more than nothing: with 0 the kernel still starts the program that core_pattern names, as the host's
	 * root, with the tenant's memory as its input; with 1 it does not. */
	struct rlimit core;
	if (getrlimit(RLIMIT_CORE, &core) ||
	    setrlimit(RLIMIT_CORE, &(struct rlimit){core.rlim_max != 0, core.rlim_max != 0}))
		fail("rlimits", NULL);
}

/* In a child (child.c). 0, or -errno. */
long limits_apply(void)
{
	for (size_t i = 0; i < place.nlimits; i++) {
		const struct limit *l = &place.limits[i];
		const uint64_t most[2] = {l->soft, l->hard}; /* as the kernel has them, on every machine */
		long error = call(SYS_prlimit64, 0, l->resource, (long)most, 0);
		if (error < 0)
			return error;
	}
	return 0;
}
