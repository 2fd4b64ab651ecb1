/* Files of the room in the machine: its kernel speaks FUSE, and two processes carry that over a virtio-serial port to the file
 * server in the room (share.c), which answers. */
#define _GNU_SOURCE
#include "machine.h"
#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"
#define PORT "sandbox.files"
#define MESSAGE_MOST (2u << 20)
#define TRIES 1000

static int open_named(const char *wanted)
{
	DIR *ports = opendir(PORTS);
	int found = -1;
	for (struct dirent *one; ports && found < 0 && (one = readdir(ports));) {
		char path[512], name[64] = "";
		snprintf(path, sizeof path, PORTS "/%s/name", one->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t size = fd < 0 ? -1 : read(fd, name, sizeof name - 1);
		if (fd >= 0)
			close(fd);
		if (size > 0 && name[size - 1] == '\n')
			name[size - 1] = 0;
		if (size <= 0 || strcmp(name, wanted))
			continue;
		snprintf(path, sizeof path, "/dev/%s", one->d_name);
		found = open(path, O_RDWR | O_CLOEXEC);
	}
	if (ports)
		closedir(ports);
	return found;
}

/* The devices are found while the modules still look around; their names come a moment later. */
int machine_port(const char *name)
{
	for (int i = 0; i < TRIES; i++) {
		int fd = open_named(name);
		if (fd >= 0)
			return fd;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	errno = ENODEV;
	return -1;
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

/* Requests: one a read, whole. */
static noreturn void carry_out(int device, int port)
{
	char *buffer = malloc(MESSAGE_MOST);
	for (;;) {
		ssize_t size = read(device, buffer, MESSAGE_MOST);
		if (size < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;
		if (size <= 0)
			_exit(0);
		write_all(port, buffer, (size_t)size);
	}
}

/* Answers: the device wants each in one write. */
static noreturn void carry_in(int port, int device)
{
	char *buffer = malloc(MESSAGE_MOST);
	size_t have = 0;
	for (;;) {
		ssize_t got = read(port, buffer + have, MESSAGE_MOST - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0);
		have += (size_t)got;
		size_t at = 0;
		for (struct fuse_out_header head; have - at >= sizeof head; at += head.len) {
			memcpy(&head, buffer + at, sizeof head);
			if (head.len < sizeof head || head.len > MESSAGE_MOST)
				_exit(1);
			if (have - at < head.len)
				break;
			/* ENOENT: whoever asked was killed meanwhile. */
			if (write(device, buffer + at, head.len) < 0 && errno != ENOENT)
				_exit(1);
		}
		memmove(buffer, buffer + at, have - at);
		have -= at;
	}
}

static void start(void (*carry)(int, int), int from, int to)
{
	pid_t pid = fork();
	if (pid < 0)
		fail("files", NULL);
	if (pid)
		return;
	close(3); /* the control stream is not theirs */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	carry(from, to);
	_exit(0);
}

void machine_files(int target)
{
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), port = machine_port(PORT);
	if (device < 0 || port < 0)
		fail("files", PORT);
	/* Not nodev or nosuid for the sake of safety: nothing in the room has such files; but root of the machine may want
	 * neither, so the mount says it. */
	if (!fuse_mount(device, target, "40000", true, 0))
		fail("files", NULL);
	start(carry_out, device, port);
	start(carry_in, port, device);
	close(device), close(port);
}
