/* A copy-on-write layer by the kernel's overlayfs. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* overlayfs splits `lowerdir` at colons and takes a backslash as an escape. */
static char *escape(char *to, const char *from)
{
	for (; *from; from++) {
		if (*from == ':' || *from == '\\')
			*to++ = '\\';
		*to++ = *from;
	}
	*to = 0;
	return to;
}

static bool overlay_path(int fs, struct cbor op, const char *key, const char *name)
{
	char *path = cbor_get_cstring(op, key);
	char *escaped = path ? malloc(2 * strlen(path) + 1) : NULL;
	if (!escaped)
		return free(path), false;
	escape(escaped, path);
	bool done = !option(fs, name, escaped);
	free(path), free(escaped);
	return done;
}

/* One directory, or several whose entries are seen together. */
static bool lower_paths(int fs, struct cbor op)
{
	struct cbor item;
	uint64_t n;
	if (!cbor_get(op, "lower", &item))
		return false;
	if (!cbor_array(item, &n, &item))
		return overlay_path(fs, op, "lower", "lowerdir");
	char joined[1024], *to = joined;
	for (; n--; cbor_next(&item)) {
		char *path = cbor_cstring(item);
		bool fits = path && 2 * strlen(path) + 2 < (size_t)(joined + sizeof joined - to);
		if (fits && to != joined)
			*to++ = ':';
		to = fits ? escape(to, path) : to;
		free(path);
		if (!fits)
			return errno = ENAMETOOLONG, false;
	}
	return !option(fs, "lowerdir", joined);
}

static bool make_layer(struct cbor op, const char *key)
{
	bool make;
	char *path = cbor_get_cstring(op, key);
	bool done = path && cbor_get_bool(op, "make", false, &make) && (!make || !mkdir(path, 0755) || errno == EEXIST);
	free(path);
	return done;
}

/* overlayfs refuses a layer that was volatile before, since the machine may have crashed; for a cache that is a risk to
 * take. The mark lies in directories of mode 000. */
static void forget_volatile(struct cbor op)
{
	char path[4096], *work = cbor_get_cstring(op, "work");
	if (work && snprintf(path, sizeof path, "%s/work/incompat/volatile/dirty", work) < (int)sizeof path && !unlink(path)) {
		*strrchr(path, '/') = 0;
		rmdir(path);
	}
	free(work);
}

bool mount_overlay(struct cbor op, int target)
{
	bool is_volatile;
	if (!cbor_get_bool(op, "volatile", false, &is_volatile) || !make_layer(op, "upper") || !make_layer(op, "work"))
		return false;
	if (is_volatile)
		forget_volatile(op);
	int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
	if (fs < 0)
		return false;
	/* userxattr: the only kind of whiteout and opaque mark a user namespace may write. */
	bool ready = !option(fs, "userxattr", NULL) && lower_paths(fs, op) &&
		     overlay_path(fs, op, "upper", "upperdir") && overlay_path(fs, op, "work", "workdir");
	/* volatile: otherwise the end of the place waits until all that anybody wrote to that file system is on the disk. */
	ready = ready && (!is_volatile || !option(fs, "volatile", NULL));
	int mount = ready ? new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) : -1;
	int saved = errno;
	close(fs);
	errno = saved;
	return mount >= 0 && attach(mount, target);
}
