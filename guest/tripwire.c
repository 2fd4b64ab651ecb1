/* Tripwires: masks that report attempts. Each is a FUSE file system of one file or directory, mounted over a blocked path.
 * The guest refuses every request and tells the host who made it. The root of each is the blocked file itself, so the
 * descriptor says which one it is, and mounting needs no answer from anybody.
 *
 * Not read-only, unlike other masks: otherwise the kernel would refuse a write before we see it. That is safe, because we
 * refuse everything anyway. Without default_permissions the kernel does not check the mode (000) itself, and passes every
 * open to us. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REPORTS_EACH 16      /* of one tripwire: later ones say nothing new */
#define BURST 32             /* reports at once, then one per REFILL_US */
#define REFILL_US 250000
#define UNREAD_MOST 65536    /* bytes the host may leave unread before reports are dropped */
#define MINOR 31             /* of the kernel's protocol, 7.31: Linux 5.4 */

struct tripwire {
	struct watch watch; /* must be first: the loop passes a pointer to it */
	char *path;
	bool directory;
	unsigned reports;
};

static struct tripwire tripwires[TRIPWIRES_MOST];
static size_t count;

void tripwire(struct cbor op, int target, const char *path, bool directory)
{
	bool wanted;
	char *device = cbor_get_cstring(op, "device");
	if (!cbor_get_bool(op, "tripwire", false, &wanted) || !wanted || !device || count == TRIPWIRES_MOST) {
		free(device);
		return;
	}
	/* Not blocking: a request can be withdrawn between epoll's answer and our read. */
	int fd = open(device, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	free(device);
	char *copy = strdup(path);
	int mount = fd < 0 || !copy ? -1 : fuse_new(fd, directory ? "40000" : "100000", false, MOUNT_ATTR_NOEXEC);
	if (!fuse_attach_later(mount, target, path, true)) {
		close(mount), close(fd);
		free(copy);
		return;
	}
	tripwires[count++] = (struct tripwire){.watch.fd = fd, .path = copy, .directory = directory};
}

size_t tripwires_count(void)
{
	return count;
}

/* In a child: a process that waits for an answer must not itself hold the device, or nothing would end the waiting when
 * the guest is gone. */
void tripwires_drop(void)
{
	for (size_t i = 0; i < count; i++)
		close(tripwires[i].watch.fd);
}

static bool may_report(struct tripwire *t)
{
	static unsigned tokens = BURST;
	static int64_t refilled;
	int64_t due = (now_us() - refilled) / REFILL_US;
	refilled += due * REFILL_US;
	tokens = due > BURST - (int64_t)tokens ? BURST : tokens + (unsigned)due;
	if (!tokens || t->reports == REPORTS_EACH || host.queued > UNREAD_MOST)
		return false;
	tokens--, t->reports++;
	return true;
}

/* A tenant chooses its own name: what is not plain ASCII becomes a question mark. */
static void read_comm(uint32_t pid, char comm[17])
{
	char path[32];
	snprintf(path, sizeof path, "%u/comm", pid);
	int fd = openat(place.proc, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, comm, 16);
	if (fd >= 0)
		close(fd);
	n -= n > 0 && comm[n - 1] == '\n';
	comm[n > 0 ? n : 0] = 0;
	for (char *c = comm; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static void report(struct tripwire *t, const char *operation, uint32_t pid, const char *name, size_t size)
{
	struct out out;
	char comm[17];
	if (!may_report(t))
		return;
	read_comm(pid, comm);
	frame_begin(&out);
	put_map(&out, name ? 6 : 5);
	put_key_text(&out, "t", "tripped");
	put_text(&out, "path");
	put_bytes(&out, t->path, strlen(t->path));
	if (name) {
		put_text(&out, "name");
		put_bytes(&out, name, size);
	}
	put_key_text(&out, "op", operation);
	put_key_uint(&out, "pid", pid);
	put_key_text(&out, "comm", comm);
	channel_send(&host, &out, NULL, 0); /* a host that has gone is noticed by the loop */
}

static void answer(struct tripwire *t, uint64_t unique, int error, const void *body, size_t size)
{
	struct fuse_out_header head = {(uint32_t)(sizeof head + size), -error, unique};
	struct iovec parts[] = {{&head, sizeof head}, {(void *)body, size}};
	/* ENOENT: the process was killed meanwhile. */
	if (writev(t->watch.fd, parts, 2) < 0 && errno == ENODEV)
		watch_close(&t->watch);
}

static void answer_attributes(struct tripwire *t, uint64_t unique)
{
	/* It never changes: let the kernel cache it, so that stat() does not come here. */
	struct fuse_attr_out out = {.attr_valid = 1u << 30, .attr = {.ino = FUSE_ROOT_ID, .nlink = 1}};
	out.attr.mode = t->directory ? S_IFDIR : S_IFREG; /* 000 */
	out.attr.blksize = 4096;
	answer(t, unique, 0, &out, sizeof out);
}

/* What a refused request was for, as the record calls it; NULL for one that is not reported. */
static const char *meaning(const struct fuse_in_header *in, const void *body, size_t size)
{
	const struct fuse_open_in *open = body;
	switch (in->opcode) {
	case FUSE_OPEN:
		return size >= sizeof *open && (open->flags & O_ACCMODE) == O_RDONLY ? "read" : "write";
	case FUSE_OPENDIR:
		return "list";
	case FUSE_LOOKUP:
		return "lookup";
	case FUSE_ACCESS: /* access() and chdir(): a question, not yet an attempt */
		return NULL;
	default:
		return "write";
	}
}

static void refuse(struct tripwire *t, const struct fuse_in_header *in, const void *body, size_t size)
{
	const char *operation = meaning(in, body, size);
	bool named = in->opcode == FUSE_LOOKUP && size > 1 && memchr(body, 0, size);
	if (operation)
		report(t, operation, in->pid, named ? body : NULL, named ? strlen(body) : 0);
	answer(t, in->unique, EACCES, NULL, 0);
}

static void handle(struct tripwire *t, const struct fuse_in_header *in, const void *body, size_t size)
{
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = MINOR, .max_write = 4096, .time_gran = 1};
	struct fuse_statfs_out statistics = {.st = {.bsize = 4096, .frsize = 4096, .namelen = 255}};
	switch (in->opcode) {
	case FUSE_INIT:
		answer(t, in->unique, 0, &init, sizeof init);
		break;
	case FUSE_GETATTR:
		answer_attributes(t, in->unique);
		break;
	case FUSE_STATFS:
		answer(t, in->unique, 0, &statistics, sizeof statistics);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: /* none waits: each request is answered before the next is read */
		break;
	case FUSE_LOOKUP: case FUSE_SETATTR: case FUSE_READLINK: case FUSE_SYMLINK: case FUSE_MKNOD: case FUSE_MKDIR:
	case FUSE_UNLINK: case FUSE_RMDIR: case FUSE_RENAME: case FUSE_RENAME2: case FUSE_LINK: case FUSE_OPEN:
	case FUSE_OPENDIR: case FUSE_ACCESS: case FUSE_CREATE: case 51 /* FUSE_TMPFILE, since Linux 6.2 */:
		refuse(t, in, body, size);
		break;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		answer(t, in->unique, 0, NULL, 0);
		break;
	default:
		answer(t, in->unique, ENOSYS, NULL, 0);
	}
}

/* One request at a time, so that a tenant that floods us delays nobody else. */
static void tripwire_ready(struct watch *w, uint32_t events)
{
	static _Alignas(8) char request[FUSE_MIN_READ_BUFFER];
	struct tripwire *t = (struct tripwire *)w;
	const struct fuse_in_header *in = (void *)request;
	(void)events;
	ssize_t n = read(w->fd, request, sizeof request);
	if (n >= (ssize_t)sizeof *in && in->len == (size_t)n)
		handle(t, in, in + 1, (size_t)n - sizeof *in);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR && errno != ENOENT))
		watch_close(w); /* ENODEV: somebody on the host replaced the file, and the mount went with it */
}

void tripwires_serve(void)
{
	for (size_t i = 0; i < count; i++) {
		tripwires[i].watch.ready = tripwire_ready;
		watch_set(&tripwires[i].watch, EPOLLIN);
		if (!tripwires[i].watch.events)
			leave(1); /* otherwise a process that touches it would wait for ever */
	}
}
