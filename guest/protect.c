/* /dev and /proc belong in part to the host, so tenants can change nothing in them. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The nodes in /dev are often the host's own, bound here. A tenant whose user is the host's root owns them: a mode he
 * changes is changed for everybody. On a read-only mount he cannot, and devices still work. The directory is read-only too:
 * otherwise it would be temporary space without a limit. Terminals belong to this sandbox, and so does what the plan mounts
 * here later. */
/* Where a device is to be shown that the launcher did not make. */
static void make_device_places(struct cbor setup)
{
	struct cbor op;
	uint64_t n = 0;
	if (!cbor_get(setup, "mounts", &op) || !cbor_array(op, &n, &op))
		return;
	for (; n--; cbor_next(&op)) {
		bool device = false;
		char *path = cbor_get_bool(op, "dev", false, &device) && device ? cbor_get_cstring(op, "path") : NULL;
		if (path && !strncmp(path, "/dev/", 5) && access(path, F_OK)) {
			for (char *slash = path + 5; (slash = strchr(slash, '/')); slash++) {
				*slash = 0;
				mkdir(path, 0755);
				*slash = '/';
			}
			mknod(path, S_IFREG | 0644, 0); /* the mount tells when it could not be made */
		}
		free(path);
	}
}

void protect_devices(struct cbor setup)
{
	make_device_places(setup);
	int dev = open("/dev", O_PATH | O_CLOEXEC), pts = open("/dev/pts", O_PATH | O_CLOEXEC);
	if (dev < 0 || set_attributes(dev, RECURSIVE, MOUNT_ATTR_RDONLY, 0) ||
	    (pts >= 0 && set_attributes(pts, 0, 0, MOUNT_ATTR_RDONLY)))
		fail("dev", "/dev");
	close(dev), close(pts);
}

/* What /proc tells of the machine is the host root's, too, and has one mode for the host and every sandbox. A tenant who
 * is that user can change nothing in there, not even for his own processes. What we still have to write goes through a copy
 * of the mount, which does not have the read-only mounts in it. */
static void seal_proc(void)
{
	struct stat st;
	int proc = open("/proc", O_PATH | O_CLOEXEC);
	place.maps = open_tree(proc, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
	if (place.maps < 0 || stat("/proc/version", &st))
		fail("proc", "/proc");
	bool root = st.st_uid == geteuid();
	if (root && set_attributes(proc, 0, MOUNT_ATTR_RDONLY, 0))
		fail("proc", "/proc");
	/* The group of root's is worth having, other users' is theirs alone, and on directories the bit has its uses. */
	place.set_id = S_ISUID | (root ? S_ISGID : 0);
	close(proc);
}

/* bubblewrap and the container engines make these read-only; where one has not, we do. */
void protect_proc(void)
{
	static const char *const paths[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		struct statvfs st;
		if (statvfs(paths[i], &st) ? errno == ENOENT : st.f_flag & ST_RDONLY)
			continue;
		int target = open(paths[i], O_PATH | O_CLOEXEC);
		int copy = open_tree(AT_FDCWD, paths[i], OPEN_TREE_CLONE | RECURSIVE);
		if (target < 0 || copy < 0 || set_attributes(copy, RECURSIVE, MOUNT_ATTR_RDONLY, 0) || !attach(copy, target))
			fail("proc", paths[i]);
		close(target);
	}
	seal_proc();
}
