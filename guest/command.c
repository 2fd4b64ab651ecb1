/* Commands: one fork and one exec each, because everything that a tenant must not have is gone already. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MOST (1ull << 40) /* milliseconds: 34 years */
#define ARGUMENTS_MOST 65536
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* What a child that could not exec the command writes to the report pipe. */
struct complaint {
	char step[16];
	int error;
};
#define GROUP "group" /* not an error: `error` is the process group of a command on a terminal */

static noreturn void complain(int report, const char *step)
{
	struct complaint c = {.error = errno};
	snprintf(c.step, sizeof c.step, "%s", step);
	_exit(write(report, &c, sizeof c) == sizeof c ? 127 : 126);
}

/* What a command is started with. Read before the fork: a child would first have to get memory of its own for it. */
struct wanted {
	char **argv, **env;
	char **direct; /* or NULL: what to run in the place of `argv`, if it is there */
	char *cwd;
	mode_t mask;
};

/* How much room an array of strings takes, as execve() wants it; 0: they are no such strings. */
static size_t room_for(struct cbor item, uint64_t n)
{
	size_t room = (n + 1) * sizeof(char *);
	const uint8_t *data;
	for (size_t size; n--; cbor_next(&item)) {
		if (!cbor_string(item, &data, &size) || memchr(data, 0, size))
			return 0;
		room += size + 1;
	}
	return room;
}

/* In one piece, for whoever frees it. */
static char **strings(struct cbor request, const char *key, bool required)
{
	struct cbor item;
	uint64_t n = 0;
	errno = EINVAL;
	if (cbor_get(request, key, &item) ? !cbor_array(item, &n, &item) : required)
		return NULL;
	size_t room = n > ARGUMENTS_MOST || (required && !n) ? 0 : room_for(item, n);
	char **list = room ? malloc(room) : NULL, *at = (char *)(list + n + 1);
	for (uint64_t i = 0; list && i < n; i++, cbor_next(&item)) {
		const uint8_t *data;
		size_t size;
		cbor_string(item, &data, &size);
		list[i] = at;
		at = (char *)mempcpy(at, data, size) + 1, at[-1] = 0;
	}
	if (list)
		list[n] = NULL;
	return list;
}

static void wanted_free(struct wanted *wanted)
{
	free(wanted->argv), free(wanted->env), free(wanted->direct), free(wanted->cwd);
}

static bool wanted_read(struct wanted *wanted, struct cbor request)
{
	uint64_t mask;
	struct cbor item;
	*wanted = (struct wanted){.argv = strings(request, "argv", true)};
	wanted->env = wanted->argv ? strings(request, "env", false) : NULL;
	wanted->direct = cbor_get(request, "direct", &item) ? strings(request, "direct", true) : NULL;
	wanted->cwd = wanted->env ? cbor_get_cstring(request, "cwd") : NULL;
	bool good = wanted->cwd && cbor_get_uint(request, "umask", 0777, 022, &mask);
	if (good) {
		wanted->mask = (mode_t)mask;
		return true;
	}
	int error = errno;
	wanted_free(wanted);
	errno = error;
	return false;
}

/* Says in `_` what is run, as a shell would, where the list of variables has a place for it. */
static void name_program(char **env, const char *path)
{
	static char name[4100];
	for (; *env; env++)
		if (!strncmp(*env, "_=", 2) && snprintf(name, sizeof name, "_=%s", path) < (int)sizeof name)
			*env = name;
}

/* Like execvp(), but with the command's own PATH, and without running a shell for files that exec refuses. */
static void run(char **argv, char **env, bool named)
{
	const char *path = DEFAULT_PATH;
	char candidate[4096];
	int error = ENOENT;
	if (strchr(argv[0], '/') || !*argv[0]) {
		if (named)
			name_program(env, argv[0]);
		execve(argv[0], argv, env);
		return;
	}
	for (char **e = env; *e; e++)
		if (!strncmp(*e, "PATH=", 5))
			path = *e + 5;
	for (const char *end; path; path = *end ? end + 1 : NULL) {
		end = strchrnul(path, ':');
		int size = (int)(end - path);
		if (size > 4000 || snprintf(candidate, sizeof candidate, "%.*s/%s", size ? size : 1, size ? path : ".", argv[0]) >=
			   (int)sizeof candidate)
			continue;
		/* First, because a failed exec costs much more than that. */
		if (access(candidate, F_OK) && errno == ENOENT)
			continue;
		if (named)
			name_program(env, candidate);
		execve(candidate, argv, env);
		if (errno == EACCES) {
			/* Is it there and cannot be run? A directory that cannot be looked into (another user's home) has nothing. */
			if (!access(candidate, F_OK))
				error = EACCES;
		}
		else if (errno != ENOENT && errno != ENOTDIR)
			return;
	}
	errno = error;
}

/* The signals that we ignore or handle, or whoever started us did. Asked for once: a command would have to give each of the 64 its
 * default, which an emulated processor notices. */
static uint64_t signals_of_ours(void)
{
	static bool asked;
	static uint64_t ours;
	for (int sig = 1; !asked && sig <= 64; sig++) {
		/* Not by sigaction(): libc keeps a few for itself. */
		uint64_t now[8] = {0}; /* a kernel sigaction: the handler is its first word */
		if (!syscall(SYS_rt_sigaction, sig, NULL, now, 8) && now[0])
			ours |= 1ull << (sig - 1);
	}
	asked = true;
	return ours;
}

static void default_signals(void)
{
	static const char as_new[64]; /* a kernel sigaction of zeros: SIG_DFL, no flags, empty mask */
	uint64_t ours = signals_of_ours();
	sigset_t none;
	for (int sig = 1; sig <= 64; sig++)
		if (ours >> (sig - 1) & 1)
			syscall(SYS_rt_sigaction, sig, as_new, NULL, 8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* On a terminal the command is not the leader of its session but the leader's child, in a process group of its own that has
 * the terminal: the kernel lets Ctrl-Z stop only those whose parent is in their session and could resume them. The leader,
 * the keeper, ends as its child ends, and stops when it stops, which the guest sees and reports. */
static noreturn void keep(pid_t child)
{
	int status;
	sigset_t all;
	syscall(SYS_close_range, 0, ~0u, 0); /* its copies would keep the terminal and the report pipe open */
	for (;;) {
		if (waitpid(child, &status, WUNTRACED) < 0)
			_exit(126);
		if (WIFSTOPPED(status)) {
			raise(SIGSTOP); /* until the host, or somebody else, continues it */
			continue;
		}
		if (WIFEXITED(status))
			_exit(WEXITSTATUS(status));
		/* The same signal, so that our parent sees what happened. */
		signal(WTERMSIG(status), SIG_DFL);
		sigfillset(&all);
		sigdelset(&all, WTERMSIG(status));
		sigprocmask(SIG_SETMASK, &all, NULL);
		raise(WTERMSIG(status));
		_exit(128 + WTERMSIG(status));
	}
}

static void with_keeper(int report)
{
	sigset_t all;
	sigfillset(&all); /* the keeper ignores the terminal's signals; the child's mask is emptied later */
	sigprocmask(SIG_SETMASK, &all, NULL);
	pid_t child = fork();
	if (child < 0)
		complain(report, "fork");
	if (child)
		keep(child);
	/* SIGTTOU is blocked here: a group that has not the terminal may take it. */
	if (setpgid(0, 0) || tcsetpgrp(0, getpid()))
		complain(report, "terminal");
	struct complaint said = {.step = GROUP, .error = (int)getpid()};
	if (write(report, &said, sizeof said) != sizeof said)
		_exit(126);
}

static noreturn void become(const struct wanted *wanted, const int stdio[3], bool terminal, int report)
{
	tripwires_drop();
	setsid();
	if (terminal && ioctl(stdio[0], TIOCSCTTY, 0))
		complain(report, "terminal");
	for (int fd = 0; fd < 3; fd++)
		if (dup2(stdio[fd], fd) < 0)
			complain(report, "stdio");
	/* All our descriptors are close-on-exec already; this covers one that was forgotten. */
	if (syscall(SYS_close_range, 3, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */))
		complain(report, "stdio");
	if (terminal)
		with_keeper(report);
	default_signals();
	umask(wanted->mask);
	if (!limits_apply())
		complain(report, "rlimits");
	if (chdir(wanted->cwd))
		complain(report, "chdir");
	if (!filter_tenant())
		complain(report, "filter");
	if (wanted->direct)
		run(wanted->direct, wanted->env, true); /* returns when there is no such program: then it is the shell's to say so */
	run(wanted->argv, wanted->env, false);
	complain(report, "exec");
}

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
	signals_of_ours(); /* the child's answer would be forgotten with it */
	job->began = now_us();
	job->pid = fork(); /* not vfork: a directory that hangs must block only the child */
	if (!job->pid)
		become(&wanted, stdio, terminal, report[1]);
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
	bool terminal = cbor_get(request, "pty", &pty);
	size_t given = host.nfds;
	int stdio[3] = {-1, -1, -1};
	struct job *job = job_new(request, true);
	if (!job)
		return;
	if (given != (place.framed ? 0 : terminal ? 1 : 4)) {
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
	if (place.framed && !streams_open(job, stdio, slave))
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
