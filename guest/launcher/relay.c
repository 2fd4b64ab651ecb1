/* One direction of the command's input or output. The pipe's end is ours alone and does not block; the other descriptor is the
 * caller's, shared with who knows whom, so its flags stay as they are and we write what cannot block, or wait as a plain
 * child would. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

bool flow_wants(const struct flow *flow)
{
	return flow->sent == flow->size;
}

static bool again(void)
{
	return errno == EAGAIN || errno == EINTR;
}

static void put(struct flow *flow)
{
	const char *data = flow->data + flow->sent;
	size_t left = flow->size - flow->sent;
	ssize_t n = send(flow->to, data, left, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno == ENOTSOCK) /* a pipe that poll called writable takes a page without waiting */
		n = write(flow->to, data, left < 4096 ? left : 4096);
	if (n >= 0)
		flow->sent += (size_t)n;
	else if (!again())
		flow->over = true;
}

static void get(struct flow *flow)
{
	ssize_t n = read(flow->from, flow->data, sizeof flow->data);
	flow->size = n > 0 ? (size_t)n : 0;
	flow->sent = 0;
	if (n == 0 || (n < 0 && !again())) /* EIO is how a terminal ends */
		flow->over = true;
}

void flow_move(struct flow *flow)
{
	if (!flow_wants(flow)) {
		put(flow);
		return;
	}
	/* Pipe to pipe moves pages and never waits; anything else is copied. */
	ssize_t n = splice(flow->from, NULL, flow->to, NULL, 1 << 20, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n == 0)
		flow->over = true;
	else if (n < 0 && errno == EINVAL)
		get(flow);
	else if (n < 0 && errno == EAGAIN)
		get(flow); /* nothing there, or no room: then it waits here */
	else if (n < 0 && errno != EINTR)
		flow->over = true;
}

bool flow_more(struct flow *flow)
{
	if (!flow->over && flow_wants(flow))
		get(flow);
	return !flow->over && !flow_wants(flow);
}
