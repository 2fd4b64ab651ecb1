/* FUSE: mounts here, serves there. The device must be opened in the user namespace that mounts it, so the guest opens
 * and mounts; then the descriptor goes to the host with `ready`, and the host speaks the kernel's protocol on it.
 *
 * Until then nobody answers: nothing after this may ask the mount for anything, or the set-up would wait for itself. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool configure(int fs, int device, const char *rootmode, bool permissions)
{
	/* default_permissions: the kernel holds tenants to owner and mode. allow_other: tenants live in a user namespace
	 * below ours, which without it counts as somebody else. Owner 0 is who we are here, and so is every tenant. */
	return !option(fs, "source", "sandbox") && !number_option(fs, "fd", "%llu", (uint64_t)device) &&
	       !option(fs, "rootmode", rootmode) && !option(fs, "user_id", "0") && !option(fs, "group_id", "0") &&
	       !option(fs, "max_read", "1048576") && (!permissions || !option(fs, "default_permissions", NULL)) &&
	       !option(fs, "allow_other", NULL);
}

bool fuse_mount(int device, int target, const char *rootmode, bool permissions, unsigned attributes)
{
	int fs = (int)syscall(SYS_fsopen, "fuse", FSOPEN_CLOEXEC);
	int mount = fs < 0 || !configure(fs, device, rootmode, permissions)
			    ? -1
			    : new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes);
	bool done = attach(mount, target);
	int saved = errno;
	if (fs >= 0)
		close(fs);
	errno = saved;
	return done;
}

bool mount_fuse(struct cbor op, int target)
{
	char *path = cbor_get_cstring(op, "device"), *name = cbor_get_cstring(op, "name");
	if (!path || !name || strlen(name) >= sizeof *place.names || place.nsockets == FDS_OUT) {
		errno = EINVAL;
		return false;
	}
	if (place.framed) { /* the device would not get through */
		errno = EOPNOTSUPP;
		return false;
	}
	int device = open(path, O_RDWR | O_CLOEXEC);
	if (device < 0 || !fuse_mount(device, target, "40000", true, 0))
		return false; /* the set-up has failed: nobody will miss what is still open */
	strcpy(place.names[place.nsockets], name);
	place.sockets[place.nsockets++] = device;
	free(path), free(name);
	return true;
}
