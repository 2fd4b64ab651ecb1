/* FUSE: mounts here, serves there. The device must be opened in the user namespace that mounts it, so the guest opens
 * and mounts; then the descriptor goes to the host with `ready`, and the host speaks the kernel's protocol on it.
 *
 * Until then nobody answers, and a set-up that asked would wait for good. The plan's order is not enough to prevent it:
 * somebody on the host may rename a directory meanwhile, so that a path leads to a mount made for another. So each mount
 * is made at its turn, out of sight, and all are attached at the end, when no path is looked up any more. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PENDING (TRIPWIRES_MOST + FDS_OUT)

static bool configure(int fs, int device, const char *rootmode, bool permissions)
{
	/* default_permissions: the kernel holds tenants to owner and mode. allow_other: tenants live in a user namespace
	 * below ours, which without it counts as somebody else. Owner 0 is who we are here, and so is every tenant. */
	return !option(fs, "source", "sandbox") && !number_option(fs, "fd", "%llu", (uint64_t)device) &&
	       !option(fs, "rootmode", rootmode) && !option(fs, "user_id", "0") && !option(fs, "group_id", "0") &&
	       !option(fs, "max_read", "1048576") && (!permissions || !option(fs, "default_permissions", NULL)) &&
	       !option(fs, "allow_other", NULL);
}

int fuse_new(int device, const char *rootmode, bool permissions, unsigned attributes)
{
	int fs = (int)syscall(SYS_fsopen, "fuse", FSOPEN_CLOEXEC);
	int mount = fs < 0 || !configure(fs, device, rootmode, permissions)
			    ? -1
			    : new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes);
	int saved = errno;
	if (fs >= 0)
		close(fs);
	errno = saved;
	return mount;
}

static struct pending {
	int mount, target;
	char *path;
	bool optional; /* without it, what is there already has to do */
} pending[PENDING];
static size_t npending;

bool fuse_attach_later(int mount, int target, const char *path, bool optional)
{
	errno = ENOSPC;
	if (mount < 0 || npending == PENDING)
		return false;
	struct pending new = {mount, fcntl(target, F_DUPFD_CLOEXEC, 0), strdup(path), optional};
	if (new.target < 0 || !new.path) {
		close(new.target), free(new.path);
		return false;
	}
	pending[npending++] = new;
	return true;
}

int fuse_pending(const char *path)
{
	for (size_t i = npending; i--;)
		if (!strcmp(pending[i].path, path))
			return pending[i].mount;
	return -1;
}

void fuse_attach(void)
{
	for (size_t i = 0; i < npending; i++) {
		struct pending *p = &pending[i];
		if (!attach(p->mount, p->target)) {
			if (!p->optional)
				fail("mounts", p->path);
			place.missed++; /* the host has removed the file meanwhile, or put another in its place */
		}
		close(p->target), free(p->path);
	}
	npending = 0;
}

bool mount_fuse(struct cbor op, int target, const char *at)
{
	char *path = cbor_get_cstring(op, "device"), *name = cbor_get_cstring(op, "name");
	bool readonly; /* so that a change is EROFS: Landlock, which forbids it too, would answer EACCES */
	if (!path || !name || !cbor_get_bool(op, "readonly", false, &readonly) || strlen(name) >= sizeof *place.names || place.nsockets == FDS_OUT) {
		errno = EINVAL;
		return false;
	}
	if (place.framed) { /* the device would not get through */
		errno = EOPNOTSUPP;
		return false;
	}
	int device = open(path, O_RDWR | O_CLOEXEC);
	unsigned attributes = readonly ? MOUNT_ATTR_RDONLY : 0;
	if (device < 0 || !fuse_attach_later(fuse_new(device, "40000", true, attributes), target, at, false))
		return false; /* the set-up has failed: nobody will miss what is still open */
	strcpy(place.names[place.nsockets], name);
	place.sockets[place.nsockets++] = device;
	free(path), free(name);
	return true;
}
