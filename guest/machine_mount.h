/* Mounts of a machine, and where things are until its root is what the room shows. */
#ifndef MACHINE_MOUNT_H
#define MACHINE_MOUNT_H

#include <sys/syscall.h>
#include <unistd.h>

#define ROOM "/room"
#define SYSTEM "/system"
#define DEVICES "/devices" /* what an ordinary tenant sees as /dev, ready-made */

#define BOOT_ID "/boot_id"

/* Of <sys/mount.h>, which does not mix with <linux/mount.h>. */
#define NOSUID 2
#define NODEV 4
#define NOEXEC 8
#define BIND 4096
#define MOVE 8192

static inline int machine_mount(const char *type, const char *path, unsigned long flags, const char *options)
{
	return (int)syscall(SYS_mount, type, path, type, flags, options);
}

#endif
