/* What a file server says without having been asked: that something has changed, what time it is, and which directory will be
 * looked into. */
#define _GNU_SOURCE
#include "machine.h"
#include "machine_carry.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_EXACT_NS 1000000
#define NAMES_MOST 2048 /* of one directory that are asked for ahead */

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

static void deliver(const struct carrier *c, const char *message, const struct fuse_out_header *head)
{
	size_t size = head->len - sizeof *head;
	if (head->error == NOTIFY_TIME && size == 2 * sizeof(int64_t))
		correct_clock(message + sizeof *head);
	else if (head->error == NOTIFY_LIST) /* when there is no room, it is not listed */
		(void)!write(c->directories_end, message + sizeof *head, size);
	else
		carry_to_kernel(c->device, message, head->len);
}

noreturn void deliver_notices(const struct carrier *c)
{
	char *message = carry_buffer();
	for (size_t have = 0;;) {
		struct fuse_out_header head;
		ssize_t got = read(c->notices, message + have, MESSAGE_MOST - have);
		if (got <= 0)
			_exit(0);
		have += (size_t)got;
		size_t at = 0;
		for (; have - at >= sizeof head; at += head.len) {
			memcpy(&head, message + at, sizeof head);
			if (have - at < head.len)
				break;
			deliver(c, message + at, &head);
		}
		memmove(message, message + at, have - at);
		have -= at;
	}
}

/* Names and attributes of a directory's entries, for the kernel to remember: it asks for some twenty at a time where it would
 * ask for each. */
static void list(int root, const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
	char entries[8192];
	long size;
	for (long seen = 0; fd >= 0 && seen < NAMES_MOST && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;)
		for (long at = 0; at < size; seen++)
			at += *(unsigned short *)(void *)(entries + at + 16); /* d_reclen of struct linux_dirent64 */
	if (fd >= 0)
		close(fd);
}

noreturn void list_directories(const struct carrier *c)
{
	char path[8192];
	for (;;) {
		/* A pipe that keeps its messages apart: one path a read. */
		ssize_t size = read(c->directories, path, sizeof path - 1);
		if (size <= 0)
			_exit(0);
		path[size] = 0;
		list(c->root, path);
	}
}
