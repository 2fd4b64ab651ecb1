/* Helpers: short-lived processes for file operations and connections, with exactly a tenant's rights. They reach only what a
 * tenant could reach, and a file system that hangs delays nobody else. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool dial(struct cbor q, struct answer *a)
{
	struct sockaddr_storage to;
	socklen_t size = dial_address(q, &to);
	if (!size)
		return false;
	a->fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (a->fd < 0 || connect(a->fd, (struct sockaddr *)&to, size))
		return false;
	job_frame(a->job, &a->done, "done", 1);
	put_key_uint(&a->done, "fds", 1);
	return true;
}

static noreturn void help(struct cbor request, struct job *job, int pipe)
{
	struct answer a = {.job = job, .fd = -1};
	struct cbor t;
	tripwires_drop();
	setsid();
	umask(022);
	bool to_dial = cbor_get(request, "t", &t) && cbor_is(t, "dial");
	if (!(to_dial ? dial(request, &a) : file_operation(request, &a))) {
		int error = errno;
		a.fd = -1;
		job_frame(job, &a.done, "failed", 2);
		put_key_text(&a.done, "step", "file");
		put_key_uint(&a.done, "errno", (uint64_t)error);
	}
	struct channel to;
	channel_open(&to, place.framed ? pipe : job->own.fd, !place.framed);
	int failed = channel_send(&to, &a.done, &a.fd, a.fd >= 0);
	while (!failed && to.first) {
		poll(&(struct pollfd){.fd = to.fd, .events = POLLOUT}, 1, -1);
		failed = channel_flush(&to);
	}
	_exit(failed ? 1 : 0);
}

/* A framed helper's whole frame comes through a pipe, to be passed on unmixed with others. */
static void answer_ready(struct watch *w, uint32_t events)
{
	struct job *job = w->job;
	uint8_t data[65536];
	(void)events;
	ssize_t n;
	while ((n = read(w->fd, data, sizeof data)) > 0)
		put_raw(&job->answer, data, (size_t)n);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	watch_close(w);
	job_settle(job);
}

void helper_start(struct cbor request)
{
	int ends[2] = {-1, -1};
	size_t given = host.nfds;
	struct job *job = job_new(request, false);
	if (!job)
		return;
	if (given != (place.framed ? 0 : 1)) {
		job_refuse(job, "request", EINVAL);
		return;
	}
	if (place.framed && pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		job_refuse(job, "fork", errno);
		return;
	}
	job->pid = fork();
	if (!job->pid)
		help(request, job, ends[1]);
	int error = errno;
	if (place.framed) {
		close(ends[1]);
		job->report = (struct watch){.fd = ends[0], .ready = answer_ready, .job = job};
	}
	if (job->pid < 0) {
		watch_close(&job->report);
		job_refuse(job, "fork", error);
		return;
	}
	watch_set(&job->report, EPOLLIN);
}

/* The helper has answered by itself when it says so; a tenant, who is the same user, may have killed it before. */
void helper_exit(struct job *job)
{
	bool answered = WIFEXITED(job->status) && !WEXITSTATUS(job->status);
	if (!answered) {
		job_fail(job, "file", EIO);
	} else if (place.framed) {
		struct out whole = job->answer;
		job->answer = (struct out){0};
		job_say(job, &whole, NULL, 0);
	}
}
