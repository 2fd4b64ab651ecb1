/* The guest as the entry point of a container.
 *
 * The engine starts it with a directory of the owner's at SHELF, which holds the control socket, and the host's files at STAGE. On an
 * empty root of its own it is then the guest of any sandbox. Nothing that the engine mounted besides is left there: its /etc/hosts,
 * its secrets, SHELF. */
#define _GNU_SOURCE
#include "container.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define CONTROL 3
#define SHELF "/.sandbox"
#define STAGE "/.host"

bool container_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SHELF "/control"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) || dup2(fd, CONTROL) < 0)
		return false;
	return fd == CONTROL || !close(fd);
}

/* Under an engine whose containers are virtual machines, no socket crosses: the owner is at the other end of our stdin and stdout. */
bool container_pipes(void)
{
	return dup2(0, CONTROL) == CONTROL && dup2(1, CONTROL + 1) == CONTROL + 1;
}

/* Under an engine that runs as root, for an owner who does not: what is made and mounted from here on is the owner's, and so is
 * every tenant on the host. The capabilities stay until `drop_privileges`. */
static void become(uid_t uid, gid_t gid)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct caps[2];
	if (uid == geteuid() && gid == getegid())
		return;
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid) ||
	    syscall(SYS_capget, &head, caps))
		fail("user", NULL);
	for (int i = 0; i < 2; i++)
		caps[i].effective = caps[i].permitted;
	/* Dumpable, or our own files in /proc would be root's, and the map of the user namespace could not be written. */
	if (syscall(SYS_capset, &head, caps) || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
		fail("user", NULL);
}

/* The same mount, and what is mounted on it, at a place in the directory we are in. */
static void carry(const char *from, const char *to)
{
	int copy = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | RECURSIVE);
	int target = -1;
	if (copy >= 0 && (!mkdir(to, 0755) || errno == EEXIST))
		target = open(to, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	if (target < 0 || !attach(copy, target))
		fail("root", from);
	close(target);
}

static void new_root(void)
{
	/* Private, or what we mount would show up elsewhere, and pivot_root refuses. */
	int old = open("/", O_PATH | O_CLOEXEC), shelf = open(SHELF, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (old < 0 || shelf < 0 || set_attributes(old, RECURSIVE, 0, 0))
		fail("root", NULL);
	if (!attach(new_tmpfs(0, 0755, 0), shelf) || chdir(SHELF))
		fail("root", NULL);
	carry("/proc", "proc"), carry("/dev", "dev"), carry(STAGE, &STAGE[1]);
	/* The old root comes to lie on top of the new one, and goes with everything that is mounted in it. */
	if (syscall(SYS_pivot_root, ".", ".") || detach(".") || chdir("/"))
		fail("root", NULL);
	close(old), close(shelf);
}

/* [path, device, inode]: what the host sees at a path is what we see there. An engine may run in another mount namespace. */
static void check_seen(struct cbor entry)
{
	uint64_t n, device, inode;
	struct stat st;
	char path[4096 + sizeof STAGE] = STAGE;
	if (!cbor_array(entry, &n, &entry) || n != 3)
		errno = EINVAL, fail("container", NULL);
	char *name = cbor_cstring(entry);
	cbor_next(&entry);
	struct cbor last = entry;
	cbor_next(&last);
	if (!name || strlen(name) > 4096 || !cbor_uint(entry, &device) || !cbor_uint(last, &inode))
		errno = EINVAL, fail("container", name);
	strcat(path, name);
	if (stat(path, &st))
		fail("container", name);
	if (st.st_dev != device || st.st_ino != inode)
		errno = ESTALE, fail("container", name);
	free(name);
}

void container_enter(struct cbor setup)
{
	struct cbor container, seen;
	uint64_t uid, gid, n;
	errno = EINVAL;
	if (!cbor_get(setup, "container", &container) ||
	    !cbor_get_uint(container, "uid", 0xfffffffe, 0, &uid) || !cbor_get_uint(container, "gid", 0xfffffffe, 0, &gid) ||
	    !cbor_get(container, "seen", &seen) || !cbor_array(seen, &n, &seen))
		fail("container", NULL);
	for (; n--; cbor_next(&seen))
		check_seen(seen);
	become((uid_t)uid, (gid_t)gid);
	new_root();
}
