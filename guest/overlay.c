/* A copy-on-write layer by the kernel's overlayfs. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* overlayfs splits `lowerdir` at colons and takes a backslash as an escape. */
static bool overlay_path(int fs, struct cbor op, const char *key, const char *name)
{
	char *path = cbor_get_cstring(op, key);
	char *escaped = path ? malloc(2 * strlen(path) + 1) : NULL, *to = escaped;
	if (!escaped)
		return false;
	for (char *from = path; *from; from++) {
		if (*from == ':' || *from == '\\')
			*to++ = '\\';
		*to++ = *from;
	}
	*to = 0;
	bool done = !option(fs, name, escaped);
	free(path), free(escaped);
	return done;
}

static bool make_layer(struct cbor op, const char *key)
{
	bool make;
	char *path = cbor_get_cstring(op, key);
	bool done = path && cbor_get_bool(op, "make", false, &make) && (!make || !mkdir(path, 0755) || errno == EEXIST);
	free(path);
	return done;
}

bool mount_overlay(struct cbor op, int target)
{
	if (!make_layer(op, "upper") || !make_layer(op, "work"))
		return false;
	int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
	/* userxattr: the only kind of whiteout and opaque mark a user namespace may write. */
	if (fs < 0 || option(fs, "userxattr", NULL) || !overlay_path(fs, op, "lower", "lowerdir") ||
	    !overlay_path(fs, op, "upper", "upperdir") || !overlay_path(fs, op, "work", "workdir"))
		return false;
	int mount = new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	close(fs);
	return attach(mount, target);
}
