/* The devices of a machine. */
#define _GNU_SOURCE
#include "machine.h"
#include "machine_mount.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void make_device(const char *path, unsigned major, unsigned minor)
{
	if (mknod(path, S_IFCHR | 0666, makedev(major, minor)) || chmod(path, 0666))
		fail("dev", path);
}

/* The machine's own devices, not those of the room. As in any container: nothing but what programs take for granted. Root of
 * the machine gets all that its kernel has. */
void machine_devices(bool root)
{
	if (root) {
		if (machine_mount("devtmpfs", "dev", NOSUID, NULL))
			fail("dev", NULL);
	} else {
		mkdir("dev", 0755);
		if (machine_mount("tmpfs", "dev", NOSUID | NOEXEC, "mode=755,size=1m"))
			fail("dev", NULL);
		make_device("dev/null", 1, 3), make_device("dev/zero", 1, 5), make_device("dev/full", 1, 7);
		make_device("dev/random", 1, 8), make_device("dev/urandom", 1, 9), make_device("dev/tty", 5, 0);
		if (symlink("pts/ptmx", "dev/ptmx") || symlink("/proc/self/fd", "dev/fd") ||
		    symlink("/proc/self/fd/0", "dev/stdin") || symlink("/proc/self/fd/1", "dev/stdout") ||
		    symlink("/proc/self/fd/2", "dev/stderr"))
			fail("dev", NULL);
	}
	mkdir("dev/pts", 0755), mkdir("dev/shm", 01777);
	if (machine_mount("devpts", "dev/pts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=0") ||
	    machine_mount("tmpfs", "dev/shm", NOSUID | NODEV, "mode=1777"))
		fail("dev", NULL);
}
