/* The child, until it is the command: its streams, its terminal, its signals and its limits. One child and one exec for each command,
 * because everything that a tenant must not have is gone already.
 *
 * In a machine it shares our memory until its exec: copying the page tables, and then each page that either of us writes to, is a
 * sixth of an emulated command's time. Not as with vfork, which would have us wait: a directory that hangs must block only the child.
 * So from `become` on nothing is written but what is this child's own: no `errno`, nothing static, no memory allocated. */
#define _GNU_SOURCE
#include "child.h"

#include "call.h"
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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

static noreturn void complain(int report, const char *step, long error)
{
	struct complaint c = {.error = (int)-error};
	memcpy(c.step, step, strnlen(step, sizeof c.step - 1));
	_exit(call(SYS_write, report, (long)&c, sizeof c, 0) == sizeof c ? 127 : 126);
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

#define PATH_ROOM 4096

static long execute(const char *path, char **argv, char **env)
{
	return call(SYS_execve, (long)path, (long)argv, (long)env, 0);
}

static long look(const char *path)
{
	return call(SYS_faccessat, AT_FDCWD, (long)path, F_OK, 0);
}

/* Says in `_` what is run, as a shell would, where the list of variables has a place for it. */
static void name_program(char **env, const char *path, char room[PATH_ROOM + 2])
{
	size_t size = strlen(path);
	for (; *env && size < PATH_ROOM; env++)
		if (!strncmp(*env, "_=", 2)) {
			memcpy(room, "_=", 2);
			memcpy(room + 2, path, size + 1);
			*env = room;
		}
}

/* Like execvp(), but with the command's own PATH, and without running a shell for files that exec refuses. Returns what is wrong. */
static long run(char **argv, char **env, bool named, uint64_t lacking)
{
	const char *path = DEFAULT_PATH;
	char candidate[PATH_ROOM], room[PATH_ROOM + 2];
	size_t length = strlen(argv[0]);
	long error = -ENOENT;
	if (strchr(argv[0], '/') || !*argv[0]) {
		if (named)
			name_program(env, argv[0], room);
		return execute(argv[0], argv, env);
	}
	for (char **e = env; *e; e++)
		if (!strncmp(*e, "PATH=", 5))
			path = *e + 5;
	for (const char *end; path; path = *end ? end + 1 : NULL) {
		end = strchrnul(path, ':');
		size_t size = (size_t)(end - path);
		if (lacking && lacking--)
			continue;
		if (size > 4000 || size + length + 3 > sizeof candidate)
			continue;
		char *at = mempcpy(candidate, size ? path : ".", size ? size : 1);
		*at++ = '/';
		memcpy(at, argv[0], length + 1);
		/* First, because a failed exec costs much more than that. */
		if (look(candidate) == -ENOENT)
			continue;
		if (named)
			name_program(env, candidate, room);
		long refused = execute(candidate, argv, env);
		/* Is it there and cannot be run? A directory that cannot be looked into (another user's home) has nothing. */
		if (refused == -EACCES && !look(candidate))
			error = -EACCES;
		else if (refused != -EACCES && refused != -ENOENT && refused != -ENOTDIR)
			return refused;
	}
	return error;
}

/* The signals that we, or the process that started us, ignore or handle. Asked for once: a command would have to give each of the 64 its
 * default, which an emulated processor notices. */
static uint64_t signals_to_reset(void)
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
	uint64_t ours = signals_to_reset(), none = 0;
	for (int sig = 1; sig <= 64; sig++)
		if (ours >> (sig - 1) & 1)
			call(SYS_rt_sigaction, sig, (long)as_new, 0, 8);
	call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof none);
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
		complain(report, "fork", -errno);
	if (child)
		keep(child);
	/* SIGTTOU is blocked here: a group that has not the terminal may take it. */
	if (setpgid(0, 0) || tcsetpgrp(0, getpid()))
		complain(report, "terminal", -errno);
	struct complaint said = {.step = GROUP, .error = (int)getpid()};
	if (write(report, &said, sizeof said) != sizeof said)
		_exit(126);
}

noreturn void become(const struct wanted *wanted, const int stdio[3], bool terminal, int report)
{
	long error;
	tripwires_drop(); /* a machine has none */
	call(SYS_setsid, 0, 0, 0, 0);
	if (terminal && (error = call(SYS_ioctl, stdio[0], TIOCSCTTY, 0, 0)) < 0)
		complain(report, "terminal", error);
	for (int fd = 0; fd < 3; fd++)
		if ((error = call(SYS_dup3, stdio[fd], fd, 0, 0)) < 0)
			complain(report, "stdio", error);
	/* All our descriptors are close-on-exec already; this covers one that was forgotten. */
	if ((error = call(SYS_close_range, 3, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */, 0)) < 0)
		complain(report, "stdio", error);
	if (terminal)
		with_keeper(report);
	default_signals();
	call(SYS_umask, (long)wanted->mask, 0, 0, 0);
	if ((error = limits_apply()) < 0)
		complain(report, "rlimits", error);
	if ((error = call(SYS_chdir, (long)wanted->cwd, 0, 0, 0)) < 0)
		complain(report, "chdir", error);
	if (!filter_tenant())
		complain(report, "filter", -errno);
	if (wanted->direct) /* returns when there is no such program: then it is the shell's to say so */
		run(wanted->direct, wanted->env, true, wanted->lacking);
	complain(report, "exec", run(wanted->argv, wanted->env, false, wanted->direct ? 0 : wanted->lacking));
}

#define STACK 65536 /* two paths and what the calls above need, several times over */

/* What a child has of our memory for its own. */
struct sharing {
	struct wanted wanted;
	int stdio[3], report;
	_Alignas(16) char stack[STACK];
};

static struct sharing *spare; /* the last one: its pages are there */

static int become_sharing(void *given)
{
	const struct sharing *s = given;
	become(&s->wanted, s->stdio, false, s->report);
}

static pid_t share_memory(struct child *child, struct wanted *wanted, const int stdio[3], int report)
{
	struct sharing *s = spare ? spare : malloc(sizeof *s);
	if (!s)
		return -1;
	spare = NULL;
	s->wanted = *wanted, s->report = report;
	memcpy(s->stdio, stdio, sizeof s->stdio);
	*wanted = (struct wanted){0};
	child->sharing = s;
	pid_t pid = clone(become_sharing, s->stack + STACK, CLONE_VM | SIGCHLD, s);
	if (pid < 0)
		child_gone(child);
	return pid;
}

pid_t child_start(struct child *child, struct wanted *wanted, const int stdio[3], bool terminal, int report)
{
	signals_to_reset(); /* the child's answer would be forgotten with it */
	if (place.machine && !terminal)
		return share_memory(child, wanted, stdio, report);
	pid_t pid = fork();
	if (!pid)
		become(wanted, stdio, terminal, report);
	return pid;
}

void child_gone(struct child *child)
{
	struct sharing *s = child->sharing;
	int error = errno;
	if (!s)
		return;
	child->sharing = NULL;
	wanted_free(&s->wanted);
	if (spare)
		free(s);
	else
		spare = s;
	errno = error;
}
