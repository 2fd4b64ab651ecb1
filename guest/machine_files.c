/* Files in the machine: its kernel speaks FUSE, and a few processes carry that to a file server in the room (share.c), over a
 * virtio-serial port, or, what is large, over a disk. There are two such servers: the system's files, which never change while the
 * machine lives and are part of the template, and all others. */
#define _GNU_SOURCE
#include "machine.h"
#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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
#define MESSAGE_MOST (1u << 20)
#define TRIES 1000
#define PAGE 4096u
#define SECTOR 512u
#define LARGE 65536u    /* from here on the disk is quicker; of the files that every program reads none is that large */
#define OFFSET_BITS 42  /* also share_bytes.c */
#define KEY_MOST (1u << 20)
#define NOTIFY_TIME 1000 /* also share.h */
#define CLOCK_EXACT_NS 1000000

#define HOLD_TRIES 25000 /* 5 s: a provider may be slow */
#define SERVERS 2

/* What the carriers of one server and the guest know of one another. A machine is saved when nothing is under way: the server of
 * a clone could not know of it. */
struct traffic {
	atomic_int hold, writing;
	atomic_uint asked, answered;
};
static struct traffic *traffic[SERVERS];
static size_t servers;

struct carrier {
	struct traffic *traffic;
	int device, port, disk;
	int notices; /* a pipe to whoever delivers them */
	char *message, *content;
};

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

static void write_all(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t wrote = write(fd, data, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			_exit(1);
		data += wrote, size -= (size_t)wrote;
	}
}

/* ENOENT: whoever asked was killed meanwhile, or nothing was remembered under that name. */
static void write_device(int device, const char *message, size_t size)
{
	if (write(device, message, size) < 0 && errno != ENOENT && errno != ENOTDIR && errno != ENOTEMPTY && errno != EBUSY)
		_exit(1);
}

/* A read from the disk in place of a question: the disk shows the content of each open file. What does not work, or is not there,
 * is asked for, so that the server can say why. */
static bool read_from_disk(const struct carrier *c, const struct fuse_in_header *head)
{
	const struct fuse_read_in *in = (const void *)(head + 1);
	uint64_t key = in->fh ? in->fh : head->nodeid, size = (in->size + SECTOR - 1) / SECTOR * SECTOR;
	if (c->disk < 0 || in->size < LARGE || in->offset % SECTOR || in->offset >> OFFSET_BITS || key >= KEY_MOST || size > MESSAGE_MOST - PAGE)
		return false;
	if (pread(c->disk, c->content + PAGE, size, (off_t)(key << OFFSET_BITS | in->offset)) != (ssize_t)size)
		return false;
	struct fuse_out_header *out = (void *)(c->content + PAGE - sizeof *out);
	*out = (struct fuse_out_header){(uint32_t)sizeof *out + in->size, 0, head->unique};
	write_device(c->device, (char *)out, out->len);
	return true;
}

static bool write_to_disk(const struct carrier *c, size_t size)
{
	size_t sectors = (size + SECTOR - 1) / SECTOR * SECTOR;
	return c->disk >= 0 && size >= LARGE && pwrite(c->disk, c->message, sectors, 0) == (ssize_t)sectors;
}

/* What the server would say no to, without asking: attributes of the system's are asked for at every turn. */
static bool refused_here(const struct carrier *c, const struct fuse_in_header *head, size_t size)
{
	const char *name = (const char *)(head + 1) + sizeof(struct fuse_getxattr_in);
	if (head->opcode != FUSE_GETXATTR || size < sizeof *head + sizeof(struct fuse_getxattr_in) + 5 || !strncmp(name, "user.", 5))
		return false;
	struct fuse_out_header out = {sizeof out, -EOPNOTSUPP, head->unique};
	write_device(c->device, (char *)&out, sizeof out);
	return true;
}

/* Those that the server never answers. */
static bool unanswered(const struct fuse_in_header *head)
{
	return head->opcode == FUSE_FORGET || head->opcode == FUSE_BATCH_FORGET || head->opcode == FUSE_INTERRUPT;
}

static void begin_writing(struct traffic *t)
{
	for (t->writing = 1; t->hold; t->writing = 1) {
		t->writing = 0;
		while (t->hold)
			syscall(SYS_futex, &t->hold, 0 /* FUTEX_WAIT */, 1, NULL, NULL, 0);
	}
}

static void carry_request(const struct carrier *c, const struct fuse_in_header *head, size_t size)
{
	if (head->opcode == FUSE_READ ? read_from_disk(c, head) : refused_here(c, head, size))
		return;
	if (!unanswered(head))
		c->traffic->asked++;
	if (!write_to_disk(c, size))
		write_all(c->port, c->message, size);
}

/* Requests: one a read, whole. */
static noreturn void carry_out(const struct carrier *c)
{
	const struct fuse_in_header *head = (void *)c->message;
	for (;;) {
		ssize_t size = read(c->device, c->message, MESSAGE_MOST);
		if (size < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;
		if (size <= 0)
			_exit(0);
		begin_writing(c->traffic);
		carry_request(c, head, (size_t)size);
		c->traffic->writing = 0;
	}
}

/* A clock that is behind is set. One that is ahead is let be, unless the host's was set: the message may have taken a while. */
static void correct_clock(const char *body)
{
	struct timespec now;
	int64_t host[2];
	memcpy(host, body, sizeof host);
	clock_gettime(CLOCK_REALTIME, &now);
	if (host[1] || host[0] - ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec) > CLOCK_EXACT_NS)
		clock_settime(CLOCK_REALTIME, &(struct timespec){host[0] / 1000000000, host[0] % 1000000000});
}

/* What the server says without being asked waits for locks that a request may hold: somebody else delivers it. */
static noreturn void deliver_notices(const struct carrier *c)
{
	for (size_t have = 0;;) {
		struct fuse_out_header head;
		ssize_t got = read(c->notices, c->message + have, MESSAGE_MOST - have);
		if (got <= 0)
			_exit(0);
		have += (size_t)got;
		size_t at = 0;
		for (; have - at >= sizeof head; at += head.len) {
			memcpy(&head, c->message + at, sizeof head);
			if (have - at < head.len)
				break;
			if (head.error == NOTIFY_TIME && head.len == sizeof head + 2 * sizeof(int64_t))
				correct_clock(c->message + at + sizeof head);
			else
				write_device(c->device, c->message + at, head.len);
		}
		memmove(c->message, c->message + at, have - at);
		have -= at;
	}
}

/* Answers: the device wants each in one write. */
static noreturn void carry_in(const struct carrier *c)
{
	for (size_t have = 0;;) {
		ssize_t got = read(c->port, c->message + have, MESSAGE_MOST - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0);
		have += (size_t)got;
		size_t at = 0;
		for (struct fuse_out_header head; have - at >= sizeof head; at += head.len) {
			memcpy(&head, c->message + at, sizeof head);
			if (head.len < sizeof head || head.len > MESSAGE_MOST)
				_exit(1);
			if (have - at < head.len)
				break;
			if (head.unique)
				write_device(c->device, c->message + at, head.len), c->traffic->answered++;
			else
				write_all(c->notices, c->message + at, head.len);
		}
		memmove(c->message, c->message + at, have - at);
		have -= at;
	}
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

static void start(void (*carry)(const struct carrier *), struct carrier carrier)
{
	pid_t pid = fork();
	if (pid < 0)
		fail("files", NULL);
	if (pid)
		return;
	close(3); /* the control stream is not theirs */
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "files", 0, 0, 0);
	carrier.message = aligned_alloc(PAGE, MESSAGE_MOST);
	carrier.content = aligned_alloc(PAGE, MESSAGE_MOST);
	if (!carrier.message || !carrier.content)
		_exit(1);
	carry(&carrier);
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

int machine_files(const char *name, const char *target)
{
	char port[64], disk[64];
	int pipe_ends[2], at = open(target, O_PATH | O_CLOEXEC);
	snprintf(port, sizeof port, "sandbox.%s", name);
	snprintf(disk, sizeof disk, "%s", name);
	struct carrier carrier = {.device = open("/dev/fuse", O_RDWR | O_CLOEXEC), .port = machine_port(port),
				  .disk = machine_has_vsock() ? -1 : wait_for(DISKS, "serial", disk, O_RDWR | O_DIRECT)};
	carrier.traffic = mmap(NULL, sizeof *carrier.traffic, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (carrier.traffic == MAP_FAILED || servers == SERVERS)
		fail("files", name);
	traffic[servers++] = carrier.traffic;
	if (at < 0 || carrier.device < 0 || carrier.port < 0 || (carrier.disk < 0 && !machine_has_vsock()) ||
	    pipe2(pipe_ends, O_CLOEXEC))
		fail("files", port);
	/* Not nodev or nosuid for the sake of safety: nothing in the room has such files; but root of the machine may want
	 * neither, so the mount says it. */
	if (!attach(fuse_new(carrier.device, "40000", true, 0), at))
		fail("files", name);
	close(at);
	carrier.notices = pipe_ends[1];
	start(carry_out, carrier);
	start(carry_in, carrier);
	carrier.notices = pipe_ends[0];
	start(deliver_notices, carrier);
	close(pipe_ends[0]), close(pipe_ends[1]), close(carrier.port), close(carrier.disk);
	at = open(target, O_PATH | O_CLOEXEC);
	if (at < 0)
		fail("files", name);
	read_ahead(at);
	close(at);
	return carrier.device;
}
