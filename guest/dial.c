/* Dialling inwards. Where descriptors cross, a helper connects and hands the socket over. Framed, the guest holds the
 * connection itself and carries it as a pair of streams: 0 towards the tenant, 1 from it. */
#define _GNU_SOURCE
#include "job.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A Unix socket by its path, which is looked up with a tenant's rights: whoever dials runs as one. */
static socklen_t dial_path(const char *path, struct sockaddr_un *to)
{
	size_t length = strlen(path);
	if (path[0] != '/' || length >= sizeof to->sun_path) {
		errno = EINVAL;
		return 0;
	}
	to->sun_family = AF_UNIX;
	memcpy(to->sun_path, path, length + 1);
	return sizeof *to;
}

/* Whom a request means; 0 with errno where it makes no sense. */
socklen_t dial_address(struct cbor q, struct sockaddr_storage *to)
{
	uint64_t family, port;
	char *address = cbor_get_cstring(q, "address");
	struct sockaddr_in *v4 = (void *)to;
	struct sockaddr_in6 *v6 = (void *)to;
	*to = (struct sockaddr_storage){0};
	if (!address || !cbor_get_uint(q, "family", 6, 4, &family) || !cbor_get_uint(q, "port", 65535, 0, &port))
		return 0;
	if (family == 1) {
		socklen_t size = dial_path(address, (void *)to);
		free(address);
		return size;
	}
	bool six = family == 6;
	to->ss_family = six ? AF_INET6 : AF_INET;
	*(six ? &v6->sin6_port : &v4->sin_port) = htons((uint16_t)port);
	int read = inet_pton(to->ss_family, address, six ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr);
	free(address);
	if (read != 1) {
		errno = EINVAL;
		return 0;
	}
	return six ? sizeof *v6 : sizeof *v4;
}

static void refuse(struct job *job, int error)
{
	watch_close(&job->report);
	streams_close(job);
	job_refuse(job, "dial", error);
}

static void connected(struct watch *w, uint32_t events)
{
	struct job *job = w->job;
	struct out out;
	int error = 0;
	socklen_t size = sizeof error;
	(void)events;
	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &size))
		error = errno;
	if (error) {
		refuse(job, error);
		return;
	}
	watch_close(w);
	job_frame(job, &out, "done", 0);
	job_say(job, &out, NULL, 0);
	streams_start(job);
}

/* Needs no process of its own: connecting without waiting cannot hang, and our rights are a tenant's. */
void dial_start(struct cbor request)
{
	struct sockaddr_storage to;
	size_t given = host.nfds;
	struct job *job = job_new(request, false);
	if (!job)
		return;
	job->dialled = true;
	socklen_t size = given ? (errno = EINVAL, 0) : dial_address(request, &to);
	if (!size) {
		refuse(job, errno);
		return;
	}
	int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	job->report = (struct watch){.fd = fd, .ready = connected, .job = job};
	if (fd < 0 || (connect(fd, (struct sockaddr *)&to, size) && errno != EINPROGRESS) || !streams_dial(job, fd)) {
		refuse(job, errno);
		return;
	}
	watch_set(&job->report, EPOLLOUT);
}

bool dial_over(const struct job *job)
{
	return job->report.fd < 0 && job->streams[0].watch.fd < 0 && job->streams[1].watch.fd < 0;
}

/* The host wants no more of it: at once, whatever is still under way. */
void dial_cancel(struct job *job)
{
	int fd = job->streams[job->streams[0].watch.fd < 0].watch.fd;
	if (job->accepted) /* as the gate does elsewhere: the tenant sees a reset, not an orderly end */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
	watch_close(&job->report);
	streams_close(job);
	job_settle(job);
}

void dial_exit(struct job *job)
{
	struct out out;
	job_frame(job, &out, "ended", 0);
	job_say(job, &out, NULL, 0);
}
