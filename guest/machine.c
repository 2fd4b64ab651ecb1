/* The guest as the first process of a virtual machine.
 *
 * `machine_boot` runs once, when the template is made: it ends with a control stream on which nobody has said anything yet, and
 * that is the state that is saved. Everything that differs between two clones comes with `setup`, after the clone was
 * started: the time, randomness, the name, the files, the user. */
#define _GNU_SOURCE
#include "machine.h"
#include "machine_mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONTROL 3
#define MODULES "/modules"
#define PORT "sandbox.control"

int machine_system = -1, machine_files_of_room = -1;

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

static void open_control(void)
{
	int port = machine_port(PORT);
	if (port < 0 || dup2(port, CONTROL) < 0)
		machine_give_up(PORT);
	if (port != CONTROL)
		close(port);
}

bool machine_boot(void)
{
	if (getpid() != 1 || fcntl(CONTROL, F_GETFD) >= 0 || access(MODULES, F_OK))
		return false;
	mkdir("/dev", 0755), mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir(ROOM, 0755);
	if ((machine_mount("devtmpfs", "/dev", 0, NULL) && errno != EBUSY) || machine_mount("proc", "/proc", 0, NULL) ||
	    machine_mount("sysfs", "/sys", 0, NULL))
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
	machine_devices(false);
	open_control(); /* with vsock it waits here for its owner, and is saved here */
	machine_boot_id();
	machine_files_of_room = machine_files("files", ROOM);
	machine_system = machine_files("system", SYSTEM);
	if (!machine_has_vsock()) { /* a saved machine has no connection, and so none of the host's files */
		machine_warm_up();
		machine_forget_the_rest();
	}
	return true;
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
	machine_enter_room(machine, root);
	machine_ports(setup);
	place.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.proc < 0)
		fail("proc", NULL);
	new_keyring();
	machine_keeper();
	machine_leave_room();
	if (!root) {
		become_user();
		install_filter();
	}
}
