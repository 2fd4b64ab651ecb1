/* Carries the kernel's questions about files to a server in the room, and its answers back. Threads of one process: an emulated
 * processor loses what it knows of memory at each switch between processes. */
#define _GNU_SOURCE
#include "machine_carry.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECTOR 512u
#define LARGE 65536u    /* from here on the disk is quicker; of the files that every program reads none is that large */
#define OFFSET_BITS 42  /* also share_bytes.c */
#define KEY_MOST (1u << 20)
#define WAITING_MOST 2048
#define SOON_MS 4

char *carry_buffer(void)
{
	char *buffer = aligned_alloc(CARRY_PAGE, MESSAGE_MOST);
	if (!buffer)
		_exit(1);
	return buffer;
}

/* The server is gone. Everybody who has asked it for something would wait for ever, and a thread of ours may be one of them, so that
 * this process could not even end: the machine does. QEMU does not start it again. */
static noreturn void carry_end(void)
{
	reboot(RB_AUTOBOOT);
	_exit(1);
}

void carry_write(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t wrote = write(fd, data, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			carry_end();
		data += wrote, size -= (size_t)wrote;
	}
}

/* ENOENT: whoever asked was killed meanwhile, or nothing was remembered under that name. */
void carry_to_kernel(int device, const char *message, size_t size)
{
	if (write(device, message, size) < 0 && errno != ENOENT && errno != ENOTDIR && errno != ENOTEMPTY && errno != EBUSY)
		_exit(1);
}

/* A read from the disk in place of a question: the disk shows the content of each open file. What does not work, or is not there,
 * is asked for, so that the server can say why. */
static bool read_from_disk(const struct carrier *c, const struct fuse_in_header *head, char *content)
{
	const struct fuse_read_in *in = (const void *)(head + 1);
	uint64_t key = in->fh ? in->fh : head->nodeid, size = (in->size + SECTOR - 1) / SECTOR * SECTOR;
	if (c->disk < 0 || in->size < LARGE || in->offset % SECTOR || in->offset >> OFFSET_BITS || key >= KEY_MOST ||
	    size > MESSAGE_MOST - CARRY_PAGE)
		return false;
	if (pread(c->disk, content + CARRY_PAGE, size, (off_t)(key << OFFSET_BITS | in->offset)) != (ssize_t)size)
		return false;
	struct fuse_out_header *out = (void *)(content + CARRY_PAGE - sizeof *out);
	*out = (struct fuse_out_header){(uint32_t)sizeof *out + in->size, 0, head->unique};
	carry_to_kernel(c->device, (char *)out, out->len);
	return true;
}

static bool write_to_disk(const struct carrier *c, const char *message, size_t size)
{
	size_t sectors = (size + SECTOR - 1) / SECTOR * SECTOR;
	return c->disk >= 0 && size >= LARGE && pwrite(c->disk, message, sectors, 0) == (ssize_t)sectors;
}

/* What the server would say no to, without asking: attributes of the system's are asked for at every turn. */
static bool refused_here(const struct carrier *c, const struct fuse_in_header *head, size_t size)
{
	const char *name = (const char *)(head + 1) + sizeof(struct fuse_getxattr_in);
	if (head->opcode != FUSE_GETXATTR || size < sizeof *head + sizeof(struct fuse_getxattr_in) + 5 || !strncmp(name, "user.", 5))
		return false;
	struct fuse_out_header out = {sizeof out, -EOPNOTSUPP, head->unique};
	carry_to_kernel(c->device, (char *)&out, sizeof out);
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

/* A file that was only read is closed: nobody waits for that, and the server need not answer (its number is 0). It goes with the next
 * request, if there is one soon: whoever closes a file often opens another. */
static bool is_closed_here(const struct carrier *c, struct fuse_in_header *head)
{
	const struct fuse_release_in *in = (const void *)(head + 1);
	if (head->opcode != FUSE_RELEASE || (in->flags & O_ACCMODE) != O_RDONLY || in->release_flags)
		return false;
	struct fuse_out_header out = {sizeof out, 0, head->unique};
	carry_to_kernel(c->device, (char *)&out, sizeof out);
	head->unique = 0;
	return true;
}

/* Requests that wait for the next one. */
struct waiting {
	char bytes[WAITING_MOST];
	size_t size;
};

/* Together in one write, where they fit: each is a turn of the emulator's. */
static void write_with(const struct carrier *c, struct waiting *waiting, const char *message, size_t size)
{
	size_t before = waiting->size;
	waiting->size = 0;
	if (before && before + size <= sizeof waiting->bytes) {
		memcpy(waiting->bytes + before, message, size);
		carry_write(c->port, waiting->bytes, before + size);
		return;
	}
	carry_write(c->port, waiting->bytes, before);
	if (size && !write_to_disk(c, message, size))
		carry_write(c->port, message, size);
}

static void carry_request(const struct carrier *c, struct waiting *waiting, char *message, size_t size, char *content)
{
	struct fuse_in_header *head = (void *)message;
	if (head->opcode == FUSE_READ ? read_from_disk(c, head, content) : refused_here(c, head, size))
		return;
	if (size < sizeof waiting->bytes - waiting->size && is_closed_here(c, head)) {
		memcpy(waiting->bytes + waiting->size, message, size);
		waiting->size += size;
		return;
	}
	if (!unanswered(head))
		c->traffic->asked++;
	write_with(c, waiting, message, size);
}

/* The next request, whole. 0: there is none just now, and others wait for it. */
static size_t next_request(const struct carrier *c, const struct waiting *waiting, char *message)
{
	for (;;) {
		struct pollfd ready = {.fd = c->device, .events = POLLIN};
		if (waiting->size && poll(&ready, 1, SOON_MS) == 0)
			return 0;
		ssize_t size = read(c->device, message, MESSAGE_MOST);
		if (size > 0)
			return (size_t)size;
		if (size == 0 || (errno != EINTR && errno != ENOENT && errno != EAGAIN))
			_exit(0);
	}
}

noreturn void carry_out(const struct carrier *c)
{
	static struct waiting waiting;
	char *message = carry_buffer(), *content = carry_buffer();
	for (;;) {
		size_t size = next_request(c, &waiting, message);
		begin_writing(c->traffic);
		if (size)
			carry_request(c, &waiting, message, size, content);
		else
			write_with(c, &waiting, NULL, 0);
		c->traffic->writing = 0;
	}
}

/* Content that comes with the answer to an open (share_open.c) must be there before it; the server sends it when nobody can have a
 * page of that file locked. All else that was not asked for may have to wait for a request that holds a lock: somebody else
 * delivers it. */
static void take_in(const struct carrier *c, const char *message, const struct fuse_out_header *head)
{
	if (head->unique) {
		carry_to_kernel(c->device, message, head->len);
		c->traffic->answered++;
	} else if (head->error == FUSE_NOTIFY_STORE) {
		if (write(c->device, message, head->len) < 0)
			return; /* then it is read */
	} else {
		carry_write(c->notices_end, message, head->len);
	}
}

/* Answers: the device wants each in one write. */
noreturn void carry_in(const struct carrier *c)
{
	char *message = carry_buffer();
	for (size_t have = 0;;) {
		ssize_t got = read(c->port, message + have, MESSAGE_MOST - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			carry_end();
		have += (size_t)got;
		size_t at = 0;
		for (struct fuse_out_header head; have - at >= sizeof head; at += head.len) {
			memcpy(&head, message + at, sizeof head);
			if (head.len < sizeof head || head.len > MESSAGE_MOST)
				_exit(1);
			if (have - at < head.len)
				break;
			take_in(c, message + at, &head);
		}
		memmove(message, message + at, have - at);
		have -= at;
	}
}
