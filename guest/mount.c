/* The kernel's mount calls, as far as the place needs them: mounts made out of sight, then attached by descriptor, so that
 * no name is looked up twice. Each gives a descriptor or 0, and -1 with errno. */
#define _GNU_SOURCE
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of <sys/mount.h>, which does not mix with <linux/mount.h>: MS_PRIVATE, MNT_DETACH, UMOUNT_NOFOLLOW. */
#define PRIVATE (1 << 18)
#define DETACH 2
#define NOFOLLOW 8

int open_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, flags | OPEN_TREE_CLOEXEC);
}

/* Private: what the host mounts later below something shown here would else appear here, too, with none of `set`. */
int set_attributes(int mount, unsigned flags, uint64_t set, uint64_t clear)
{
	struct mount_attr attr = {.attr_set = set, .attr_clr = clear, .propagation = PRIVATE};
	return (int)syscall(SYS_mount_setattr, mount, "", flags | AT_EMPTY_PATH, &attr, sizeof attr);
}

/* Closes what it attaches: nothing that leads to a mount may outlive the set-up. */
bool attach(int mount, int target)
{
	bool done = mount >= 0 &&
		    !syscall(SYS_move_mount, mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	int saved = errno;
	close(mount);
	errno = saved;
	return done;
}

int detach(const char *path)
{
	return (int)syscall(SYS_umount2, path, DETACH | NOFOLLOW);
}

int option(int fs, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0);
}

int number_option(int fs, const char *key, const char *format, uint64_t value)
{
	char text[32];
	snprintf(text, sizeof text, format, (unsigned long long)value);
	return option(fs, key, text);
}

int new_mount(int fs, unsigned attributes)
{
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
}

int new_tmpfs(uint64_t size, uint64_t mode, unsigned attributes)
{
	int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int mount = -1;
	if (fs >= 0 && !number_option(fs, "mode", "%llo", mode) && (!size || !number_option(fs, "size", "%llu", size)))
		mount = new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes);
	int saved = errno;
	close(fs);
	errno = saved;
	return mount;
}
