/* The stream of the file server: answers, and what the machine's kernel is told without having asked. */
#define _GNU_SOURCE
#include "share.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int stream;
static uint64_t unique;

void wire_begin(int given)
{
	stream = given;
}

void wire_request(uint64_t of)
{
	unique = of;
}

uint64_t wire_current(void)
{
	return unique;
}

bool wire_read(int from, void *buffer, size_t size)
{
	for (char *at = buffer; size;) {
		ssize_t got = read(from, at, size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got, size -= (size_t)got;
	}
	return true;
}

void wire_send(int to, const void *head, size_t head_size, const void *body, size_t size)
{
	struct iovec both[] = {{(void *)head, head_size}, {(void *)body, size}}, *parts = both;
	int count = size ? 2 : 1;
	while (count) {
		ssize_t sent = writev(to, parts, count);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			exit(0); /* the machine is gone */
		for (; count && (size_t)sent >= parts->iov_len; parts++, count--)
			sent -= (ssize_t)parts->iov_len;
		if (count)
			parts->iov_base = (char *)parts->iov_base + sent, parts->iov_len -= (size_t)sent;
	}
}

/* Said by somebody else. */
void wire_raw(const char *message, size_t size)
{
	wire_send(stream, message, size, NULL, 0);
}

void answer(int error, const void *body, size_t size)
{
	struct fuse_out_header head = {(uint32_t)(sizeof head + (error ? 0 : size)), -error, unique};
	if (!unique)
		return; /* nobody waits for it; and without a number it would be a notice */
	wire_send(stream, &head, sizeof head, body, error ? 0 : size);
}

void failed(void)
{
	answer(errno ? errno : EIO, NULL, 0);
}

void done(bool good)
{
	if (good)
		answer(0, NULL, 0);
	else
		failed();
}

static void notify(int what, const void *body, size_t size)
{
	struct fuse_out_header head = {(uint32_t)(sizeof head + size), what, 0};
	wire_send(stream, &head, sizeof head, body, size);
}

/* Not of FUSE: the host's time, for the processes that carry our messages (machine_files.c), and whether somebody set it. */
void notify_time(bool was_set)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	int64_t body[2] = {(int64_t)now.tv_sec * 1000000000 + now.tv_nsec, was_set};
	notify(NOTIFY_TIME, body, sizeof body);
}

/* The name leads to something else now, or to nothing, or to something at last. */
void notify_entry(const struct node *parent, const char *name)
{
	struct {
		struct fuse_notify_inval_entry_out out;
		char name[256];
	} entry = {.out = {.parent = node_id(parent), .namelen = (uint32_t)strlen(name)}};
	if (entry.out.namelen >= sizeof entry.name)
		return;
	memcpy(entry.name, name, entry.out.namelen + 1);
	notify(FUSE_NOTIFY_INVAL_ENTRY, &entry, sizeof entry.out + entry.out.namelen + 1);
}

/* Attributes, and with `content` what was read of it. */
void notify_inode(const struct node *node, bool content)
{
	struct fuse_notify_inval_inode_out out = {.ino = node_id(node), .off = content ? 0 : -1, .len = 0};
	notify(FUSE_NOTIFY_INVAL_INODE, &out, sizeof out);
}

/* The directory will be looked into, name by name: listing it is quicker. */
void notify_list(const struct node *directory)
{
	char path[4096];
	const char *from = node_path(directory, NULL, path, sizeof path);
	if (from && *from)
		notify(NOTIFY_LIST, from + 1, strlen(from + 1));
}

/* What the whole file holds, `size` bytes in `buffer`. */
void notify_content(const struct node *node, const char *content, size_t size)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_store_out out;
	} store = {{(uint32_t)(sizeof store + size), FUSE_NOTIFY_STORE, 0}, {.nodeid = node_id(node), .size = (uint32_t)size}};
	wire_send(stream, &store, sizeof store, content, size);
}
