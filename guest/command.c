/* Commands, as the host sees them: started, signalled, resized, ended. child.c is what the forked child does. */
#define _GNU_SOURCE
#include "child.h"
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MOST (1ull << 40) /* milliseconds: 34 years */

/* A terminal of the sandbox's own devpts. The slave by its master, not by a path that a tenant could have moved. */
static int open_terminal(struct job *job, struct cbor pty)
{
	uint64_t rows, cols;
	errno = EINVAL;
	if (!cbor_map(pty) || !cbor_get_uint(pty, "rows", 65535, 24, &rows) || !cbor_get_uint(pty, "cols", 65535, 80, &cols))
		return -1;
	job->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (job->master < 0 || ioctl(job->master, TIOCSPTLCK, &(int){0}))
		return -1;
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
	ioctl(job->master, TIOCSWINSZ, &size);
	return ioctl(job->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static void say_started(struct job *job)
{
	struct out out;
	bool with_terminal = job->master >= 0 && !place.framed;
	job_frame(job, &out, "started", 2);
	put_key_uint(&out, "pid", (uint64_t)job->group);
	put_key_uint(&out, "fds", with_terminal);
	job_say(job, &out, &job->master, with_terminal);
}

/* The pipe closes when exec succeeds; otherwise it says what failed. */
static void report_ready(struct watch *w, uint32_t events)
{
	struct job *job = w->job;
	struct complaint c;
	(void)events;
	ssize_t n;
	while ((n = read(w->fd, &c, sizeof c)) == sizeof c && job->terminal && !strcmp(c.step, GROUP))
		job->group = (pid_t)c.error;
	if (n < 0 && (errno == EAGAIN || errno == EINTR) && !job->reaped)
		return;
	watch_close(w);
	if (n == sizeof c) {
		c.step[sizeof c.step - 1] = 0;
		job_fail(job, c.step, c.error);
	} else {
		child_gone(&job->child);
		say_started(job);
		if (place.framed)
			streams_start(job);
	}
	job_settle(job);
}

static void launch(struct job *job, struct cbor request, int stdio[3], bool terminal)
{
	int report[2];
	uint64_t timeout;
	struct wanted wanted;
	if (!cbor_get_uint(request, "timeout_ms", TIMEOUT_MOST, 0, &timeout) ||
	    !cbor_get_bool(request, "end_session", false, &job->end_session) ||
	    !cbor_get_bool(request, "vital", false, &job->vital) || !wanted_read(&wanted, request)) {
		job_refuse(job, "request", errno);
		return;
	}
	if (pipe2(report, O_CLOEXEC | O_NONBLOCK)) {
		int error = errno;
		wanted_free(&wanted);
		job_refuse(job, "fork", error);
		return;
	}
	job->began = now_us();
	job->pid = child_start(&job->child, &wanted, stdio, terminal, report[1]);
	int error = errno;
	wanted_free(&wanted);
	close(report[1]);
	if (job->pid < 0) {
		close(report[0]);
		job_refuse(job, "fork", error);
		return;
	}
	job->group = job->pid;
	job->terminal = terminal;
	if (timeout)
		job->deadline = job->began + (int64_t)timeout * 1000;
	job->report = (struct watch){.fd = report[0], .ready = report_ready, .job = job};
	watch_set(&job->report, EPOLLIN);
}

void command_start(struct cbor request)
{
	struct cbor pty;
	bool terminal = cbor_get(request, "pty", &pty), joined;
	size_t given = host.nfds;
	int stdio[3] = {-1, -1, -1};
	struct job *job = job_new(request, true);
	if (!job)
		return;
	if (given != (place.framed ? 0 : terminal ? 1 : 4) || !cbor_get_bool(request, "joined", false, &joined)) {
		job_refuse(job, "request", EINVAL);
		return;
	}
	int slave = terminal ? open_terminal(job, pty) : -1;
	if (terminal && slave < 0) {
		job_refuse(job, "terminal", errno);
		return;
	}
	for (int i = 0; i < 3; i++)
		stdio[i] = terminal ? slave : place.framed ? -1 : channel_take(&host, (size_t)i + 1);
	if (place.framed && !streams_open(job, stdio, slave, joined))
		job_refuse(job, "stdio", errno);
	else
		launch(job, request, stdio, terminal);
	for (int i = 0; i < (terminal ? 1 : 3); i++)
		if (stdio[i] >= 0)
			close(stdio[i]);
}

static void resize(struct job *job, struct cbor frame)
{
	uint64_t rows, cols;
	if (job->master < 0 || !cbor_get_uint(frame, "rows", 65535, 24, &rows) ||
	    !cbor_get_uint(frame, "cols", 65535, 80, &cols))
		return;
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
	ioctl(job->master, TIOCSWINSZ, &size);
}

/* Messages from the host about a command. An invalid one ends the command, as closing the socket would. */
void command_frame(struct job *job, struct cbor frame)
{
	struct cbor t;
	uint64_t sig;
	bool good = cbor_get(frame, "t", &t);
	if (good && cbor_is(t, "signal")) {
		good = cbor_get_uint(frame, "sig", NSIG - 1, 0, &sig) && sig;
		if (good && job->command && !job->reaped && job->report.fd < 0 && kill(-job->group, (int)sig))
			kill(job->group, (int)sig);
		if (good && sig == SIGCONT && job->terminal && !job->reaped)
			kill(job->pid, SIGCONT); /* the keeper stopped with it */
	} else if (good && cbor_is(t, "resize")) {
		resize(job, frame);
	} else if (good && place.framed && cbor_is(t, "in")) {
		good = stream_input(job, frame);
	} else if (good && place.framed && cbor_is(t, "credit")) {
		good = stream_credit(job, frame);
	} else if (good && place.framed && cbor_is(t, "closed")) {
		good = stream_closed(job, frame);
	} else {
		good = false; /* "cancel", or unknown */
	}
	if (!good)
		job_cancel(job);
}

void command_stopped(struct job *job)
{
	struct out out;
	job_frame(job, &out, "stopped", 0);
	job_say(job, &out, NULL, 0);
}

static uint64_t microseconds(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

void command_exit(struct job *job)
{
	struct out out;
	job_frame(job, &out, "exit", 6);
	if (WIFSIGNALED(job->status))
		put_key_uint(&out, "signal", (uint64_t)WTERMSIG(job->status));
	else
		put_key_uint(&out, "code", (uint64_t)WEXITSTATUS(job->status));
	put_key_bool(&out, "timed_out", job->timed_out);
	put_key_uint(&out, "wall_us", (uint64_t)(job->ended - job->began));
	put_key_uint(&out, "user_us", microseconds(job->usage.ru_utime));
	put_key_uint(&out, "sys_us", microseconds(job->usage.ru_stime));
	put_key_uint(&out, "maxrss_kb", (uint64_t)job->usage.ru_maxrss);
	job_say(job, &out, NULL, 0);
}
