/* The guest as the first process of a virtual machine.
 *
 * `machine_boot` runs once, when the template is made: it ends with a control stream on which nobody has said anything yet, and
 * that is the state that is saved. Everything that differs between two clones comes with `setup`, after the clone was
 * started: the time, randomness, the name, the files, the user. */
#define _GNU_SOURCE
#include "machine.h"
#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define CONTROL 3
#define MODULES "/modules"
#define ROOM "/room"
#define AGAIN "/again" /* the same a second time, for what will be hidden there; out of reach once ROOM is the root */
#define PORT "sandbox.control"
#define ENTROPY 64 /* bytes */

/* Of <sys/mount.h>, which does not mix with <linux/mount.h>. */
#define NOSUID 2
#define NODEV 4
#define NOEXEC 8
#define BIND 4096
#define MOVE 8192

static int mount_at(const char *type, const char *path, unsigned long flags, const char *options)
{
	return (int)syscall(SYS_mount, type, path, type, flags, options);
}

/* The console is all there is until the control stream; the engine reads it when a template cannot be made. */
static noreturn void give_up(const char *what)
{
	int error = errno, console = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	dprintf(console, "sandbox: %s: %s\n", what, strerror(error));
	_exit(1);
}

static void load_modules(void)
{
	struct dirent **names;
	int count = scandir(MODULES, &names, NULL, alphasort); /* in their order of dependence: the names are numbers */
	for (int i = 0; i < count; i++) {
		char path[512];
		if (names[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, MODULES "/%s", names[i]->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST))
			give_up(path);
		close(fd);
	}
}

bool machine_boot(void)
{
	if (getpid() != 1 || fcntl(CONTROL, F_GETFD) >= 0 || access(MODULES, F_OK))
		return false;
	mkdir("/dev", 0755), mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir(ROOM, 0755);
	if ((mount_at("devtmpfs", "/dev", 0, NULL) && errno != EBUSY) || mount_at("proc", "/proc", 0, NULL) ||
	    mount_at("sysfs", "/sys", 0, NULL))
		give_up("mount");
	load_modules();
	/* The first process has 4096 at the most, of which its children could never have more. */
	if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){1 << 20, 1 << 20}))
		give_up("descriptors");
	int port = machine_port(PORT);
	if (port < 0 || dup2(port, CONTROL) < 0)
		give_up(PORT);
	if (port != CONTROL)
		close(port);
	return true;
}

/* A clone has its template's clock, and its random numbers would be every other clone's. */
static void set_clock_and_randomness(struct cbor machine)
{
	struct cbor item;
	const uint8_t *bytes;
	size_t size;
	uint64_t now;
	/* struct rand_pool_info, whose last member has no size: bits, bytes, the bytes themselves */
	int entropy[2 + ENTROPY / sizeof(int)] = {ENTROPY * 8, ENTROPY};
	errno = EINVAL;
	if (!cbor_get_uint(machine, "time_ns", INT64_MAX, 0, &now) || !cbor_get(machine, "entropy", &item) ||
	    !cbor_string(item, &bytes, &size) || size != ENTROPY)
		fail("machine", NULL);
	memcpy(entropy + 2, bytes, size);
	struct timespec time = {(time_t)(now / 1000000000), (long)(now % 1000000000)};
	int random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (random < 0 || ioctl(random, RNDADDENTROPY, entropy) || ioctl(random, RNDRESEEDCRNG))
		fail("entropy", NULL);
	close(random);
	if (clock_settime(CLOCK_REALTIME, &time))
		fail("clock", NULL);
}

static void make_device(const char *path, unsigned major, unsigned minor)
{
	if (mknod(path, S_IFCHR | 0666, makedev(major, minor)) || chmod(path, 0666))
		fail("dev", path);
}

/* The machine's own devices, not those of the room. As in any container: nothing but what programs take for granted. Root of
 * the machine gets all that its kernel has. */
static void make_devices(bool root)
{
	if (root) {
		if (mount_at("devtmpfs", "dev", NOSUID, NULL))
			fail("dev", NULL);
	} else {
		if (mount_at("tmpfs", "dev", NOSUID | NOEXEC, "mode=755,size=1m"))
			fail("dev", NULL);
		make_device("dev/null", 1, 3), make_device("dev/zero", 1, 5), make_device("dev/full", 1, 7);
		make_device("dev/random", 1, 8), make_device("dev/urandom", 1, 9), make_device("dev/tty", 5, 0);
		if (symlink("pts/ptmx", "dev/ptmx") || symlink("/proc/self/fd", "dev/fd") ||
		    symlink("/proc/self/fd/0", "dev/stdin") || symlink("/proc/self/fd/1", "dev/stdout") ||
		    symlink("/proc/self/fd/2", "dev/stderr"))
			fail("dev", NULL);
	}
	mkdir("dev/pts", 0755), mkdir("dev/shm", 01777);
	if (mount_at("devpts", "dev/pts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=0") ||
	    mount_at("tmpfs", "dev/shm", NOSUID | NODEV, "mode=1777"))
		fail("dev", NULL);
}

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
		if (mount_at("tmpfs", path + 1, NOSUID | NODEV, options))
			fail("scratch", path);
		free(path);
	}
}

/* What the room shows within a scratch place (a project in /tmp), which the machine's own tmpfs has just hidden. */
static void show_again(struct cbor machine)
{
	struct cbor item;
	uint64_t count;
	int room = open(AGAIN, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (room < 0)
		fail("shown", NULL);
	if (!cbor_get(machine, "shown", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("shown", NULL);
	for (; count--; cbor_next(&item)) {
		char *path = cbor_cstring(item);
		struct stat st;
		if (!path || *path != '/')
			errno = EINVAL, fail("shown", path);
		int tree = open_tree(room, path + 1, OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW);
		if (tree < 0 || fstatat(tree, "", &st, AT_EMPTY_PATH))
			fail("shown", path);
		for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
			*slash = 0;
			mkdir(path + 1, 0755);
			*slash = '/';
		}
		if (S_ISDIR(st.st_mode))
			mkdir(path + 1, 0755);
		else
			close(open(path + 1, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
		int target = open(path + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (target < 0 || !attach(tree, target))
			fail("shown", path);
		close(target);
		free(path);
	}
	close(room);
}

static void enter_room(struct cbor machine, bool root)
{
	int target = open(ROOM, O_PATH | O_CLOEXEC);
	if (target < 0)
		fail("files", ROOM);
	machine_files(target);
	close(target);
	if (mkdir(AGAIN, 0700) || syscall(SYS_mount, ROOM, AGAIN, NULL, BIND, NULL))
		fail("files", AGAIN);
	if (chdir(ROOM) || mount_at("proc", "proc", NOSUID | NODEV | NOEXEC, NULL))
		fail("files", "/proc");
	make_devices(root);
	make_scratch(machine);
	show_again(machine);
	if (root && mount_at("sysfs", "sys", NOSUID | NODEV | NOEXEC, NULL) && errno != ENOENT)
		fail("files", "/sys");
	if (syscall(SYS_mount, ".", "/", NULL, MOVE, NULL) || chroot(".") || chdir("/"))
		fail("files", "/");
}

/* An ordinary user for good: tenants, and we ourselves, who start them. Root of the machine stays root: that machine is its. */
static void become_user(void)
{
	if (setgroups(0, NULL) || setresgid((gid_t)place.gid, (gid_t)place.gid, (gid_t)place.gid))
		fail("user", NULL);
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			fail("capabilities", NULL);
	if (setresuid((uid_t)place.uid, (uid_t)place.uid, (uid_t)place.uid) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		fail("user", NULL);
}

void machine_build(struct cbor setup)
{
	struct cbor machine;
	bool root;
	char *name;
	errno = EINVAL;
	if (!cbor_get(setup, "machine", &machine) || !cbor_map(machine) || !cbor_get_bool(machine, "root", false, &root) ||
	    !(name = cbor_get_cstring(machine, "hostname")))
		fail("machine", NULL);
	set_clock_and_randomness(machine);
	if (sethostname(name, strlen(name)))
		fail("hostname", NULL);
	free(name);
	machine_network();
	enter_room(machine, root);
	place.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.proc < 0)
		fail("proc", NULL);
	new_keyring();
	if (!root) {
		become_user();
		install_filter();
	}
}
