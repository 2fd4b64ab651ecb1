/* The root of a machine: what the room shows, with the system's files as the template knows them and places of the machine's own. */
#define _GNU_SOURCE
#include "machine.h"
#include "machine_mount.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AGAIN "/again" /* the room a second time, for what will be hidden there; out of reach once ROOM is the root */
#define LAYER "/layer"
#define OVER "/over"

static int again = -1; /* AGAIN */

/* The machine's own scratch places: a tmpfs of the room's would be reached over the wire, file by file. */
static void make_scratch(struct cbor machine)
{
	struct cbor item;
	uint64_t count, n, mode, size;
	if (!cbor_get(machine, "scratch", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("scratch", NULL);
	for (; count--; cbor_next(&item)) {
		struct cbor entry;
		char options[64];
		if (!cbor_array(item, &n, &entry) || n != 3)
			errno = EINVAL, fail("scratch", NULL);
		char *path = cbor_cstring(entry);
		cbor_next(&entry);
		if (!path || *path != '/' || !cbor_uint(entry, &mode) || mode > 07777)
			errno = EINVAL, fail("scratch", path);
		cbor_next(&entry);
		if (!cbor_uint(entry, &size))
			errno = EINVAL, fail("scratch", path);
		snprintf(options, sizeof options, "mode=%llo,size=%llu,uid=%llu,gid=%llu", (unsigned long long)mode,
			 (unsigned long long)size, (unsigned long long)place.uid, (unsigned long long)place.gid);
		if (machine_mount("tmpfs", path + 1, NOSUID | NODEV, options))
			fail("scratch", path);
		free(path);
	}
}

/* What the room shows within a scratch place (a project in /tmp), which the machine's own tmpfs has just hidden. */
static void show_again(struct cbor machine)
{
	struct cbor item;
	uint64_t count;
	if (!cbor_get(machine, "shown", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("shown", NULL);
	for (; count--; cbor_next(&item)) {
		char *path = cbor_cstring(item);
		struct statx st;
		if (!path || *path != '/')
			errno = EINVAL, fail("shown", path);
		int tree = open_tree(again, path + 1, OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW);
		if (tree < 0 && errno == ENOENT) { /* the room shows nothing there, either */
			free(path);
			continue;
		}
		/* As it is known: a provider answers only later. */
		if (tree < 0 || statx(tree, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
			fail("shown", path);
		for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
			*slash = 0;
			mkdir(path + 1, 0755);
			*slash = '/';
		}
		if (S_ISDIR(st.stx_mode))
			mkdir(path + 1, 0755);
		else
			close(open(path + 1, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
		int target = open(path + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (target < 0 || !attach(tree, target))
			fail("shown", path);
		close(target);
		free(path);
	}
}

/* The system's directories as the template knows them, in the place of the room's, which are the same files. */
static void show_system(struct cbor machine)
{
	struct cbor item;
	uint64_t count;
	if (!cbor_get(machine, "system", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("system", NULL);
	for (; count--; cbor_next(&item)) {
		char *path = cbor_cstring(item), from[512];
		if (!path || *path != '/')
			errno = EINVAL, fail("system", path);
		snprintf(from, sizeof from, SYSTEM "%s", path);
		int tree = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW);
		int target = open(path + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (tree < 0 || target < 0 || !attach(tree, target))
			fail("system", path);
		close(target);
		free(path);
	}
}

/* Root of the machine, and any tenant in an image, may change the whole system, for as long as the machine lives: in memory. What
 * the room lets it change is shown again above that. */
static void lay_over(uint64_t size)
{
	char options[64];
	snprintf(options, sizeof options, "mode=755,size=%llu", (unsigned long long)size); /* 0: half of the memory */
	mkdir(LAYER, 0700), mkdir(OVER, 0755);
	if (machine_mount("tmpfs", LAYER, NODEV, size ? options : "mode=755") || mkdir(LAYER "/upper", 0755) ||
	    mkdir(LAYER "/work", 0755) || chown(LAYER "/upper", (uid_t)place.uid, (gid_t)place.gid) ||
	    /* NOSUID: an ordinary owner's room shows root's files as nobody's, and `mount` would run as nobody. */
	    machine_mount("overlay", OVER, NOSUID, "lowerdir=" ROOM ",upperdir=" LAYER "/upper,workdir=" LAYER "/work"))
		fail("overlay", NULL);
}

/* The template was made in another room. */
static void forget_room(void)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_inode_out inode;
	} root_changed = {{sizeof root_changed, FUSE_NOTIFY_INVAL_INODE, 0}, {.ino = FUSE_ROOT_ID}};
	if (write(machine_files_of_room, &root_changed, sizeof root_changed) < 0 && errno != ENOENT)
		fail("files", ROOM);
}

void machine_enter_room(struct cbor machine, bool root)
{
	forget_room();
	machine_forget_stale(machine);
	if (mkdir(AGAIN, 0700) || syscall(SYS_mount, ROOM, AGAIN, NULL, BIND, NULL))
		fail("files", AGAIN);
	again = open(AGAIN, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (again < 0)
		fail("files", AGAIN);
	uint64_t size;
	struct cbor layer;
	bool layered = cbor_get(machine, "layer", &layer);
	if (layered && !cbor_uint(layer, &size))
		errno = EINVAL, fail("overlay", NULL);
	if (layered)
		lay_over(size);
	if (chdir(layered ? OVER : ROOM) || machine_mount("proc", "proc", NOSUID | NODEV | NOEXEC, NULL))
		fail("files", "/proc");
	if (syscall(SYS_mount, BOOT_ID, "proc/sys/kernel/random/boot_id", NULL, BIND, NULL))
		fail("files", BOOT_ID);
	if (root)
		machine_devices(true);
	else if (syscall(SYS_mount, DEVICES "/dev", "dev", NULL, MOVE, NULL))
		fail("dev", NULL);
	show_system(machine);
	make_scratch(machine);
	show_again(machine);
	if (root) {
		mkdir("sys", 0755);
		if (machine_mount("sysfs", "sys", NOSUID | NODEV | NOEXEC, NULL))
			fail("files", "/sys");
	}
	if (syscall(SYS_mount, ".", "/", NULL, MOVE, NULL) || chroot(".") || chdir("/"))
		fail("files", "/");
}

/* What is left to do in a clone of a machine that was set up before it was saved: its owner's room may show something in a scratch
 * place, and the host's system may have changed. The process that does it has the rights for it, and stays behind for that. */
void machine_settle(struct cbor machine)
{
	forget_room();
	machine_forget_stale(machine);
	show_again(machine);
}

void machine_leave_room(void)
{
	close(machine_system), close(machine_files_of_room), close(again);
}
