/* Files in the machine: its kernel speaks FUSE, and a process of a few threads carries that to a file server in the room (share.c),
 * over a virtio-serial port, or, what is large, over a disk. There are two such servers: the system's files, which never change
 * while the machine lives and are part of the template, and all others. */
#define _GNU_SOURCE
#include "machine.h"
#include "machine_carry.h"
#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"
#define DISKS "/sys/block"
#define TRIES 1000
#define HOLD_TRIES 25000 /* 5 s: a provider may be slow */
#define SERVERS 2
#define LISTERS 16 /* a program with many threads looks into as many directories at once */

static struct traffic *traffic[SERVERS];
static size_t servers;
static pid_t carriers[SERVERS]; /* one for each; 0: not started */

/* The entry of `directory` whose file `attribute` says `wanted`, as a device. */
static int open_by(const char *directory, const char *attribute, const char *wanted, int flags)
{
	DIR *entries = opendir(directory);
	int found = -1;
	for (struct dirent *one; entries && found < 0 && (one = readdir(entries));) {
		char path[600], name[64] = "";
		snprintf(path, sizeof path, "%s/%s/%s", directory, one->d_name, attribute);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t size = fd < 0 ? -1 : read(fd, name, sizeof name - 1);
		if (fd >= 0)
			close(fd);
		if (size > 0 && name[size - 1] == '\n')
			name[size - 1] = 0;
		if (size <= 0 || strcmp(name, wanted))
			continue;
		snprintf(path, sizeof path, "/dev/%s", one->d_name);
		found = open(path, flags | O_CLOEXEC);
	}
	if (entries)
		closedir(entries);
	return found;
}

/* The devices are found while the modules still look around; their names come a moment later. */
static int wait_for(const char *directory, const char *attribute, const char *wanted, int flags)
{
	for (int i = 0; i < TRIES; i++) {
		int fd = open_by(directory, attribute, wanted, flags);
		if (fd >= 0)
			return fd;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	errno = ENODEV;
	return -1;
}

int machine_port(const char *name)
{
	if (machine_has_vsock())
		return machine_accept(name);
	return wait_for(PORTS, "name", name, O_RDWR);
}

static bool is_quiet(void)
{
	for (size_t i = 0; i < servers; i++)
		if (traffic[i]->writing || traffic[i]->asked != traffic[i]->answered)
			return false;
	return true;
}

bool machine_files_hold(void)
{
	for (size_t i = 0; i < servers; i++)
		traffic[i]->hold = 1;
	for (int i = 0; i < HOLD_TRIES; i++) {
		if (is_quiet())
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
	machine_files_go();
	errno = EBUSY;
	return false;
}

void machine_files_go(void)
{
	for (size_t i = 0; i < servers; i++) {
		traffic[i]->hold = 0;
		syscall(SYS_futex, &traffic[i]->hold, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
	}
}

bool machine_carries(pid_t pid)
{
	for (size_t i = 0; i < servers; i++)
		if (carriers[i] == pid)
			return true;
	return false;
}

struct work {
	void (*carry)(const struct carrier *);
	const struct carrier *carrier;
};

static void *begin(void *given)
{
	const struct work *work = given;
	work->carry(work->carrier);
	return NULL;
}

static void begin_thread(const struct work *work)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, begin, (void *)work))
		_exit(1);
}

/* A process of its own, and its threads, which live as long as the machine. */
static void start(const struct carrier *carrier)
{
	const struct work works[] = {{carry_in, carrier}, {deliver_notices, carrier}}, listing = {list_directories, carrier};
	pid_t pid = fork();
	if (pid < 0)
		fail("files", NULL);
	if (pid) {
		carriers[servers - 1] = pid;
		return;
	}
	close(3); /* the control stream is not theirs */
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "files", 0, 0, 0);
	for (size_t i = 0; i < sizeof works / sizeof *works; i++)
		begin_thread(&works[i]);
	for (size_t i = 0; i < LISTERS; i++)
		begin_thread(&listing);
	carry_out(carrier);
}

/* The kernel reads ahead 128 KiB by itself, whatever we offer. */
static void read_ahead(int target)
{
	struct stat st;
	char path[64];
	if (fstat(target, &st))
		return;
	snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev), minor(st.st_dev));
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		dprintf(fd, "512\n"), close(fd);
}

/* What leads to one server. Fails the set-up. */
static struct carrier find_server(const char *name)
{
	char port[64];
	int notices[2], directories[2];
	snprintf(port, sizeof port, "sandbox.%s", name);
	struct carrier carrier = {.device = open("/dev/fuse", O_RDWR | O_CLOEXEC), .port = machine_port(port),
				  .disk = machine_has_vsock() ? -1 : wait_for(DISKS, "serial", name, O_RDWR | O_DIRECT)};
	/* O_DIRECT: a pipe that keeps its messages apart. */
	if (carrier.device < 0 || carrier.port < 0 || (carrier.disk < 0 && !machine_has_vsock()) || pipe2(notices, O_CLOEXEC) ||
	    pipe2(directories, O_CLOEXEC | O_DIRECT) || fcntl(directories[1], F_SETFL, O_NONBLOCK | O_DIRECT))
		fail("files", port);
	carrier.notices = notices[0], carrier.notices_end = notices[1];
	carrier.directories = directories[0], carrier.directories_end = directories[1];
	carrier.traffic = mmap(NULL, sizeof *carrier.traffic, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (carrier.traffic == MAP_FAILED || servers == SERVERS)
		fail("files", name);
	traffic[servers++] = carrier.traffic;
	return carrier;
}

int machine_files(const char *name, const char *target)
{
	struct carrier carrier = find_server(name);
	int at = open(target, O_PATH | O_CLOEXEC);
	/* Not nodev or nosuid for the sake of safety: nothing in the room has such files; but root of the machine may want
	 * neither, so the mount says it. */
	if (at < 0 || !attach(fuse_new(carrier.device, "40000", true, 0), at))
		fail("files", name);
	close(at);
	carrier.root = open_tree(AT_FDCWD, target, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (carrier.root < 0)
		fail("files", name);
	start(&carrier);
	const int theirs[] = {carrier.port, carrier.disk, carrier.notices, carrier.notices_end, carrier.directories, carrier.directories_end,
			      carrier.root};
	for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
		close(theirs[i]);
	at = open(target, O_PATH | O_CLOEXEC);
	if (at < 0)
		fail("files", name);
	read_ahead(at);
	close(at);
	return carrier.device;
}
