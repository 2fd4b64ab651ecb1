/* Drops everything that a tenant could inherit, once, in the guest itself. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A keyring of our own: the session's may hold the user's Kerberos tickets and file system keys. ENOSYS: a kernel
 * without keyrings; EPERM: an engine's filter denies them already. In both cases there is nothing to drop. */
void new_keyring(void)
{
	place.have_keyring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0;
	if (!place.have_keyring && errno != ENOSYS && errno != EPERM)
		fail("keyring", NULL);
}

static void write_map(const char *path, const char *content)
{
	int fd = openat(place.maps, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, content, strlen(content)) < 0 || close(fd))
		fail("userns", path);
}

/* One user and one group, mapped to the guest's own. The mounts and the network belong to the outer namespace: nothing in
 * here can change them. */
static void new_user_namespace(void)
{
	char map[64];
	unsigned uid = geteuid(), gid = getegid();
	if (unshare(CLONE_NEWUSER))
		fail("userns", NULL);
	snprintf(map, sizeof map, "%llu %u 1", (unsigned long long)place.uid, uid);
	write_map("self/uid_map", map);
	write_map("self/setgroups", "deny"); /* the kernel requires this before a group may be mapped */
	snprintf(map, sizeof map, "%llu %u 1", (unsigned long long)place.gid, gid);
	write_map("self/gid_map", map);
}

/* The kernel counts inotify watches per user of the machine: a tenant that took them all would leave none for the host's
 * editors, nor for our own watch over this sandbox. A user namespace can have its own limit: half of what there is. */
static void halve(const char *from, const char *to)
{
	char text[32] = "";
	int all = openat(place.maps, from, O_RDONLY | O_CLOEXEC), half = openat(place.maps, to, O_WRONLY | O_CLOEXEC);
	if (all < 0 || half < 0 || read(all, text, sizeof text - 1) < 0)
		fail("inotify", to);
	snprintf(text, sizeof text, "%lu", strtoul(text, NULL, 10) / 2);
	if (write(half, text, strlen(text)) < 0)
		fail("inotify", to);
	close(all), close(half);
}

/* The new namespace gave us all capabilities in it. Bounding set first: it takes CAP_SETPCAP to empty it. */
static void drop_capabilities(void)
{
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			fail("capabilities", NULL);
	/* From now on execve() does not treat uid 0 specially either. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
		  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
		  SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED, 0, 0, 0))
		fail("capabilities", NULL);
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0}};
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) || syscall(SYS_capset, &head, none))
		fail("capabilities", NULL);
}

void drop_privileges(void)
{
	new_user_namespace();
	halve("sys/fs/inotify/max_user_instances", "sys/user/max_inotify_instances");
	halve("sys/fs/inotify/max_user_watches", "sys/user/max_inotify_watches");
	close(place.maps);
	drop_capabilities();
	/* Set-user-ID and file capabilities mean nothing from here on. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fail("no_new_privs", NULL);
	/* Tenants are the same user as we are: this keeps /proc/1/fd, /proc/1/mem and ptrace from them. After the
	 * maps were written, because it takes them from us, too. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		fail("dumpable", NULL);
}
