#define _GNU_SOURCE
#include "frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD 4
#define FIRST_ROOM 4096

struct queued {
	struct queued *next;
	size_t size, sent;
	uint8_t *data;
	size_t nfds;
	int fds[];
};

void channel_open(struct channel *ch, int fd, bool crosses)
{
	memset(ch, 0, sizeof *ch);
	ch->fd = ch->out = fd, ch->crosses = crosses;
	ch->last = &ch->first;
	if (!crosses) /* sockets say so call by call; the flag would be shared with whoever holds a copy */
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void channel_write_to(struct channel *ch, int fd)
{
	ch->out = fd;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void queue_pop(struct channel *ch)
{
	struct queued *q = ch->first;
	ch->first = q->next;
	if (!ch->first)
		ch->last = &ch->first;
	ch->queued -= q->size;
	for (size_t i = 0; i < q->nfds; i++)
		close(q->fds[i]);
	free(q->data);
	free(q);
}

void channel_done(struct channel *ch)
{
	for (size_t i = 0; i < ch->nfds; i++)
		if (ch->fds[i] >= 0)
			close(ch->fds[i]);
	if (ch->room > FIRST_ROOM) { /* do not keep what one big frame needed */
		free(ch->body);
		ch->body = NULL, ch->room = 0;
	}
	ch->nfds = 0, ch->got = 0, ch->size = 0;
}

void channel_close(struct channel *ch)
{
	channel_done(ch);
	while (ch->first)
		queue_pop(ch);
	free(ch->body);
	ch->body = NULL, ch->room = 0;
	if (ch->fd >= 0)
		close(ch->fd);
	ch->fd = -1;
}

int channel_take(struct channel *ch, size_t i)
{
	int fd = ch->fds[i];
	ch->fds[i] = -1;
	return fd;
}

static ssize_t receive(struct channel *ch, void *data, size_t size)
{
	if (!ch->crosses)
		return read(ch->fd, data, size);
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * FDS_IN)];
	} control;
	struct iovec iov = {data, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(ch->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return n;
	bool misplaced = msg.msg_flags & MSG_CTRUNC;
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg); /* one is all the kernel sends to a socket that asked for nothing else */
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fds[FDS_IN];
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
		/* We read a frame's head by itself, so these can only be its own: on the first byte or wrong. */
		misplaced |= ch->got != 0;
		for (size_t i = 0; i < count; i++) {
			if (misplaced)
				close(fds[i]);
			else
				ch->fds[ch->nfds++] = fds[i];
		}
	}
	if (misplaced) {
		errno = EPROTO;
		return -1;
	}
	return n;
}

/* Room grows with what has come, never with what was announced. */
static bool make_room(struct channel *ch, size_t used)
{
	if (used < ch->room)
		return true;
	size_t room = ch->room ? ch->room * 2 : FIRST_ROOM;
	uint8_t *grown = realloc(ch->body, room);
	if (!grown)
		return false;
	ch->body = grown, ch->room = room;
	return true;
}

static bool whole(struct channel *ch, struct cbor *frame)
{
	*frame = (struct cbor){ch->body, ch->body + ch->size};
	uint64_t fds;
	return cbor_is_map(ch->body, ch->size) && cbor_get_uint(*frame, "fds", FDS_IN, 0, &fds) && fds == ch->nfds;
}

int channel_read(struct channel *ch, struct cbor *frame)
{
	for (;;) {
		ssize_t n;
		if (ch->got < HEAD) {
			n = receive(ch, ch->head + ch->got, HEAD - ch->got);
		} else {
			size_t used = ch->got - HEAD;
			if (!make_room(ch, used))
				return -1;
			size_t want = ch->size - used, room = ch->room - used;
			n = receive(ch, ch->body + used, want < room ? want : room);
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n <= 0)
			return -1;
		ch->got += (size_t)n;
		if (ch->got == HEAD) {
			ch->size = (size_t)ch->head[0] | (size_t)ch->head[1] << 8 | (size_t)ch->head[2] << 16 |
				   (size_t)ch->head[3] << 24;
			if (!ch->size || ch->size > FRAME_MOST)
				return -1;
		}
		if (ch->got > HEAD && ch->got == HEAD + ch->size)
			return whole(ch, frame) ? 1 : -1;
	}
}

void frame_begin(struct out *out)
{
	*out = (struct out){0};
	put_raw(out, "\0\0\0\0", HEAD);
}

static ssize_t transmit(struct channel *ch, struct queued *q)
{
	uint8_t *data = q->data + q->sent;
	size_t size = q->size - q->sent;
	if (!ch->crosses)
		return write(ch->out, data, size);
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * FDS_OUT)];
	} control;
	struct iovec iov = {data, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (q->nfds && !q->sent) {
		memset(&control, 0, sizeof control);
		msg.msg_control = &control, msg.msg_controllen = CMSG_SPACE(sizeof(int) * q->nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * q->nfds);
		memcpy(CMSG_DATA(c), q->fds, sizeof(int) * q->nfds);
	}
	return sendmsg(ch->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int channel_flush(struct channel *ch)
{
	while (ch->first) {
		struct queued *q = ch->first;
		ssize_t n = transmit(ch, q);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
		q->sent += (size_t)n;
		if (q->sent == q->size)
			queue_pop(ch);
	}
	return 0;
}

int channel_send(struct channel *ch, struct out *out, const int *fds, size_t nfds)
{
	size_t body = out->size - HEAD;
	struct queued *q = malloc(sizeof *q + sizeof(int) * nfds);
	if (out->failed || !q || ch->fd < 0 || body > FRAME_MOST || ch->queued + out->size > QUEUE_MOST) {
		free(q);
		free(out->data);
		return -1;
	}
	for (int i = 0; i < HEAD; i++)
		out->data[i] = (uint8_t)(body >> 8 * i);
	*q = (struct queued){.size = out->size, .data = out->data};
	for (; q->nfds < nfds; q->nfds++) /* copies: the caller keeps and closes its own */
		q->fds[q->nfds] = fcntl(fds[q->nfds], F_DUPFD_CLOEXEC, 3);
	*ch->last = q;
	ch->last = &q->next;
	ch->queued += q->size;
	return channel_flush(ch);
}
