/* A copy-on-write layer by the kernel's overlayfs.
 *
 * Its directories are opened here and named to the kernel by their descriptors: no link can have been put on the way, a
 * path may be of any length and have any sign in it, and a tenant's mount table does not tell where they are. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 16, NAME = 32 }; /* directories of one overlay; `/proc/self/fd/` and a number */

struct layers {
	int fds[MOST];
	unsigned count;
};

/* Appends the directory's name by descriptor. */
static bool add_layer(struct layers *layers, char *path, char *names)
{
	int fd = path && layers->count < MOST ? open_place(path) : -1;
	int saved = errno;
	free(path);
	errno = saved;
	if (fd < 0)
		return false;
	layers->fds[layers->count++] = fd;
	snprintf(names + strlen(names), NAME, "%s/proc/self/fd/%d", *names ? ":" : "", fd);
	return true;
}

/* One directory, or several whose entries are seen together. */
static bool set_lower(int fs, struct cbor op, struct layers *layers)
{
	struct cbor item;
	uint64_t n = 1;
	char names[MOST * NAME] = "";
	if (!cbor_get(op, "lower", &item))
		return false;
	struct cbor first = item;
	if (cbor_array(item, &n, &first))
		item = first;
	else
		n = 1;
	for (; n--; cbor_next(&item))
		if (!add_layer(layers, cbor_cstring(item), names))
			return false;
	return !option(fs, "lowerdir", names);
}

static bool set_layer(int fs, struct cbor op, const char *key, const char *name, struct layers *layers)
{
	char names[NAME] = "";
	return add_layer(layers, cbor_get_cstring(op, key), names) && !option(fs, name, names);
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
	struct layers layers = {.count = 0};
	/* userxattr: the only kind of whiteout and opaque mark a user namespace may write. */
	bool ready = !option(fs, "userxattr", NULL) && set_lower(fs, op, &layers) &&
		     set_layer(fs, op, "upper", "upperdir", &layers) && set_layer(fs, op, "work", "workdir", &layers);
	/* volatile: otherwise the end of the place waits until all that anybody wrote to that file system is on the disk. */
	ready = ready && (!is_volatile || !option(fs, "volatile", NULL));
	int mount = ready ? new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) : -1;
	int saved = errno;
	while (layers.count)
		close(layers.fds[--layers.count]);
	close(fs);
	errno = saved;
	return mount >= 0 && attach(mount, target);
}
