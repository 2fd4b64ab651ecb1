/* Finds the processes of a session, or all descendants, and kills them.
 *
 * A process may fork between our scan and our signal, so we repeat the scan until it finds nothing. The signal is sent by
 * pidfd after a second check, because the pid may have been reused. */
#define _GNU_SOURCE
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct process {
	pid_t pid, parent, session;
	bool dead;
	char state;
};

static bool look(pid_t pid, struct process *p)
{
	char path[32], text[512];
	snprintf(path, sizeof path, "%d/stat", (int)pid);
	int fd = openat(place.proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	char state, *after = strrchr(text, ')'); /* the program name before it may contain anything */
	int parent, group, session;
	if (!after || sscanf(after + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4)
		return false;
	*p = (struct process){pid, parent, session, state == 'Z' || state == 'X', state};
	return true;
}

/* Calls `visit` for each living process except ourselves. */
static void each_process(void (*visit)(const struct process *))
{
	int fd = fcntl(place.proc, F_DUPFD_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		leave(1);
	rewinddir(dir);
	for (struct dirent *e; (e = readdir(dir));) {
		struct process p;
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid > 0 && pid != getpid() && look(pid, &p) && !p.dead)
			visit(&p);
	}
	closedir(dir);
}

static void (*visit_state)(pid_t pid, char state);

static void tell_state(const struct process *p)
{
	visit_state(p->pid, p->state);
}

void each_state(void (*visit)(pid_t pid, char state))
{
	visit_state = visit;
	each_process(tell_state);
}

static void end(const struct process *p)
{
	struct process again;
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (fd >= 0 && look(p->pid, &again) && again.session == p->session)
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	if (fd >= 0)
		close(fd);
}

static void end_if_in_session(const struct process *p)
{
	for (struct job *job = jobs; job; job = job->next)
		if (job->killing && (job->pid == p->session || (job->pid == p->pid && !job->reaped))) {
			job->survivors = true;
			end(p);
		}
}

void kill_sessions(void)
{
	for (struct job *job = jobs; job; job = job->next)
		job->survivors = false;
	each_process(end_if_in_session);
	for (struct job *job = jobs, *next; job; job = next) {
		next = job->next;
		if (job->killing && !job->survivors && job->reaped) {
			job->killing = false;
			job_settle(job);
		}
	}
}

enum relation { STRANGER, OURS, UNCLEAR };

static enum relation relation(const struct process *p)
{
	struct process up = *p;
	for (int steps = 0; steps < 4096 && up.parent > 0; steps++) {
		if (up.parent == getpid())
			return OURS;
		if (!look(up.parent, &up))
			return UNCLEAR; /* its parent has just ended: the next scan will tell */
	}
	return STRANGER;
}

static bool found;

static void end_if_ours(const struct process *p)
{
	enum relation r = relation(p);
	found |= r != STRANGER;
	if (r == OURS)
		end(p);
}

void kill_descendants(void)
{
	for (int quiet = 0; quiet < 2;) { /* one empty scan may have missed a process whose parent ended meanwhile */
		found = false;
		each_process(end_if_ours);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		quiet = found ? 0 : quiet + 1;
		if (found)
			usleep(500);
	}
}
