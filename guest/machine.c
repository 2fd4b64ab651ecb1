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
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTROL 3
#define MODULES "/modules"
#define ROOM "/room"
#define SYSTEM "/system"
#define DEVICES "/devices" /* what an ordinary tenant sees as /dev, ready-made */
#define WARM "/warm" /* commands, a line each */
#define WARM_SECONDS 60
#define AGAIN "/again" /* the same a second time, for what will be hidden there; out of reach once ROOM is the root */
#define PORT "sandbox.control"
#define LAYER "/layer"
#define OVER "/over"

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
noreturn void machine_give_up(const char *what)
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
			machine_give_up(path);
		close(fd);
	}
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
		mkdir("dev", 0755);
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

static int system_files = -1, room_files = -1; /* their FUSE devices, until the set-up */
static int again = -1;                         /* the room a second time: AGAIN */

static noreturn void run_warm(char *line)
{
	char *words[16], *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", NULL};
	size_t count = 0;
	for (char *word = strtok(line, " "); word && count < 15; word = strtok(NULL, " "))
		words[count++] = word;
	words[count] = NULL;
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	alarm(WARM_SECONDS);
	environ = environment;
	if (!chroot(SYSTEM) && !chdir("/") && count)
		execvp(words[0], words);
	_exit(127);
}

/* What most commands will need is read once, now: clones then find programs, libraries and names in memory, which they share. */
static void warm_up(void)
{
	char line[512];
	FILE *list = fopen(WARM, "re");
	while (list && fgets(line, sizeof line, list)) {
		line[strcspn(line, "\n")] = 0;
		pid_t pid = fork();
		if (!pid)
			run_warm(line);
		while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (list)
		fclose(list);
}

static void open_control(void)
{
	int port = machine_port(PORT);
	if (port < 0 || dup2(port, CONTROL) < 0)
		machine_give_up(PORT);
	if (port != CONTROL)
		close(port);
}

/* The kernel looks it up again. */
static void forget_name(uint64_t parent, const char *name)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_entry_out entry;
		char name[256];
	} notice = {.head.error = FUSE_NOTIFY_INVAL_ENTRY, .entry = {.parent = parent, .namelen = (uint32_t)strlen(name)}};
	if (strlen(name) >= sizeof notice.name)
		errno = EINVAL, fail("stale", name);
	memcpy(notice.name, name, strlen(name) + 1);
	notice.head.len = (uint32_t)(sizeof notice.head + sizeof notice.entry + strlen(name) + 1);
	if (write(system_files, &notice, notice.head.len) < 0 && errno != ENOENT && errno != ENOTDIR)
		fail("stale", name);
}

/* Names of the system that lead elsewhere since the template was made. */
static void forget_stale(struct cbor machine)
{
	struct cbor item;
	uint64_t count, n, parent;
	if (!cbor_get(machine, "stale", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("stale", NULL);
	for (; count--; cbor_next(&item)) {
		struct cbor entry;
		if (!cbor_array(item, &n, &entry) || n != 2 || !cbor_uint(entry, &parent))
			errno = EINVAL, fail("stale", NULL);
		cbor_next(&entry);
		char *name = cbor_cstring(entry);
		if (!name)
			errno = EINVAL, fail("stale", name);
		forget_name(parent, name);
		free(name);
	}
}

/* What is no directory of the system's belongs to the room in which the template is made: clones have another. */
static void forget_the_rest(void)
{
	static const char *const of_the_system[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"};
	DIR *entries = opendir(SYSTEM);
	for (struct dirent *one; entries && (one = readdir(entries));) {
		bool keep = !strcmp(one->d_name, ".") || !strcmp(one->d_name, "..");
		for (size_t i = 0; i < sizeof of_the_system / sizeof *of_the_system && one->d_type == DT_DIR; i++)
			keep |= !strcmp(one->d_name, of_the_system[i]);
		if (!keep)
			forget_name(FUSE_ROOT_ID, one->d_name);
	}
	if (entries)
		closedir(entries);
}

bool machine_boot(void)
{
	if (getpid() != 1 || fcntl(CONTROL, F_GETFD) >= 0 || access(MODULES, F_OK))
		return false;
	mkdir("/dev", 0755), mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir(ROOM, 0755);
	if ((mount_at("devtmpfs", "/dev", 0, NULL) && errno != EBUSY) || mount_at("proc", "/proc", 0, NULL) ||
	    mount_at("sysfs", "/sys", 0, NULL))
		machine_give_up("mount");
	load_modules();
	/* The first process has 4096 at the most, of which its children could never have more. */
	if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){1 << 20, 1 << 20}))
		machine_give_up("descriptors");
	/* What the kernel derives from the machine's memory may be less than what was asked for. */
	if (setrlimit(RLIMIT_NPROC, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}))
		machine_give_up("processes");
	if (machine_has_vsock())
		machine_listen();
	mkdir(SYSTEM, 0755), mkdir(DEVICES, 0755);
	/* All that is the same for every clone: done once here, it costs none of them anything. */
	machine_network();
	int low = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);
	place.have_low_ports = low >= 0 && write(low, "0", 1) == 1;
	close(low);
	if (chdir(DEVICES))
		machine_give_up(DEVICES);
	make_devices(false);
	open_control(); /* with vsock it waits here for its owner, and is saved here */
	room_files = machine_files("files", ROOM);
	system_files = machine_files("system", SYSTEM);
	if (!machine_has_vsock()) { /* a saved machine has no connection, and so none of the host's files */
		warm_up();
		forget_the_rest();
	}
	return true;
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
	if (!cbor_get(machine, "shown", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("shown", NULL);
	for (; count--; cbor_next(&item)) {
		char *path = cbor_cstring(item);
		struct stat st;
		if (!path || *path != '/')
			errno = EINVAL, fail("shown", path);
		int tree = open_tree(again, path + 1, OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW);
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
	if (mount_at("tmpfs", LAYER, NODEV, size ? options : "mode=755") || mkdir(LAYER "/upper", 0755) ||
	    mkdir(LAYER "/work", 0755) || chown(LAYER "/upper", (uid_t)place.uid, (gid_t)place.gid) ||
	    /* NOSUID: an ordinary owner's room shows root's files as nobody's, and `mount` would run as nobody. */
	    mount_at("overlay", OVER, NOSUID, "lowerdir=" ROOM ",upperdir=" LAYER "/upper,workdir=" LAYER "/work"))
		fail("overlay", NULL);
}

/* The template was made in another room. */
static void forget_room(void)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_inode_out inode;
	} root_changed = {{sizeof root_changed, FUSE_NOTIFY_INVAL_INODE, 0}, {.ino = FUSE_ROOT_ID}};
	if (write(room_files, &root_changed, sizeof root_changed) < 0 && errno != ENOENT)
		fail("files", ROOM);
}

static void enter_room(struct cbor machine, bool root)
{
	forget_room();
	forget_stale(machine);
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
	if (chdir(layered ? OVER : ROOM) || mount_at("proc", "proc", NOSUID | NODEV | NOEXEC, NULL))
		fail("files", "/proc");
	if (root)
		make_devices(true);
	else if (syscall(SYS_mount, DEVICES "/dev", "dev", NULL, MOVE, NULL))
		fail("dev", NULL);
	show_system(machine);
	make_scratch(machine);
	show_again(machine);
	if (root) {
		mkdir("sys", 0755);
		if (mount_at("sysfs", "sys", NOSUID | NODEV | NOEXEC, NULL))
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
	forget_stale(machine);
	show_again(machine);
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
	errno = EINVAL;
	if (!cbor_get(setup, "machine", &machine) || !cbor_map(machine) || !cbor_get_bool(machine, "root", false, &root))
		fail("machine", NULL);
	if (!machine_identity(machine))
		fail("identity", NULL);
	if (!place.network)
		machine_network_off();
	enter_room(machine, root);
	machine_ports(setup);
	place.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.proc < 0)
		fail("proc", NULL);
	new_keyring();
	machine_keeper();
	close(system_files), close(room_files), close(again);
	if (!root) {
		become_user();
		install_filter();
	}
}
