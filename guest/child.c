/* The child of a fork, until it is the command: its streams, its terminal, its signals and its limits. One fork and one exec for
 * each command, because everything that a tenant must not have is gone already. */
#define _GNU_SOURCE
#include "child.h"

#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MOST 65536
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static noreturn void complain(int report, const char *step)
{
	struct complaint c = {.error = errno};
	snprintf(c.step, sizeof c.step, "%s", step);
	_exit(write(report, &c, sizeof c) == sizeof c ? 127 : 126);
}

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

void wanted_free(struct wanted *wanted)
{
	free(wanted->argv), free(wanted->env), free(wanted->direct), free(wanted->cwd);
}

bool wanted_read(struct wanted *wanted, struct cbor request)
{
	uint64_t mask;
	struct cbor item;
	*wanted = (struct wanted){.argv = strings(request, "argv", true)};
	wanted->env = wanted->argv ? strings(request, "env", false) : NULL;
	wanted->direct = cbor_get(request, "direct", &item) ? strings(request, "direct", true) : NULL;
	wanted->cwd = wanted->env ? cbor_get_cstring(request, "cwd") : NULL;
	bool good = wanted->cwd && cbor_get_uint(request, "umask", 0777, 022, &mask) &&
		    cbor_get_uint(request, "lacking", ARGUMENTS_MOST, 0, &wanted->lacking);
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
static void run(char **argv, char **env, bool named, uint64_t lacking)
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
		if (lacking && lacking--)
			continue;
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

/* The signals that we, or the process that started us, ignore or handle. Asked for once: a command would have to give each of the 64 its
 * default, which an emulated processor notices. */
uint64_t signals_to_reset(void)
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
	uint64_t ours = signals_to_reset();
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

noreturn void become(const struct wanted *wanted, const int stdio[3], bool terminal, int report)
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
		run(wanted->direct, wanted->env, true, wanted->lacking); /* returns when there is no such program: then it is the shell's to say so */
	run(wanted->argv, wanted->env, false, wanted->direct ? 0 : wanted->lacking);
	complain(report, "exec");
}
