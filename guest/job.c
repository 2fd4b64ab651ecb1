/* The life of a job: requested, running, ended, its messages sent, freed. */
#define _GNU_SOURCE
#include "job.h"
#include "machine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_FIRST_US 500
#define KILL_MOST_US 100000

struct job *jobs;
static uint64_t count, accepted;
static int64_t kill_at = NEVER, kill_pause, kill_earliest;

struct job *job_find(uint64_t id)
{
	for (struct job *j = jobs; j; j = j->next)
		if (j->id == id && !j->said && !j->orphan)
			return j;
	return NULL;
}

static void line_ready(struct watch *w, uint32_t events)
{
	struct job *job = w->job;
	struct cbor frame;
	bool gone = events & EPOLLOUT && channel_flush(&job->own);
	if (!gone && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		int got = channel_read(&job->own, &frame);
		if (got > 0) {
			command_frame(job, frame);
			channel_done(&job->own);
		}
		gone = got < 0;
	}
	if (gone) {
		job->line_gone = true;
		watch_set(&job->line, 0);
		job_cancel(job);
	}
	job_settle(job);
}

static void begin(struct job *job, uint64_t id)
{
	job->id = id;
	job->deadline = NEVER;
	job->master = job->report.fd = job->line.fd = job->own.fd = -1;
	for (unsigned i = 0; i < 3; i++)
		job->streams[i].watch.fd = -1;
	job->next = jobs;
	jobs = job;
	count++;
}

/* A request for which no job can be made has broken the protocol: there is nobody to answer. */
struct job *job_new(struct cbor request, bool command)
{
	struct cbor item;
	uint64_t id = 0;
	bool has_id = cbor_get(request, "id", &item) && cbor_uint(item, &id);
	struct job *job = calloc(1, sizeof *job);
	if (!job || (place.framed ? !has_id || job_find(id) : !host.nfds))
		leave(1);
	job->command = command;
	begin(job, id);
	if (!place.framed) {
		channel_open(&job->own, channel_take(&host, 0), true);
		job->line = (struct watch){.fd = job->own.fd, .ready = line_ready, .job = job};
		watch_set(&job->line, EPOLLIN);
	}
	if (count > place.jobs_most) {
		job_refuse(job, "request", EAGAIN);
		return NULL;
	}
	return job;
}

/* At most half of all jobs: a tenant who opens connections leaves room for the owner's requests. */
struct job *job_accepted(uint64_t id)
{
	struct job *job = accepted < place.jobs_most / 2 ? calloc(1, sizeof *job) : NULL;
	if (!job)
		return NULL;
	job->dialled = job->accepted = true;
	accepted++;
	begin(job, id);
	return job;
}

void job_frame(struct job *job, struct out *out, const char *t, unsigned more_keys)
{
	frame_begin(out);
	put_map(out, 1 + more_keys + place.framed);
	put_key_text(out, "t", t);
	if (place.framed)
		put_key_uint(out, "id", job->id);
}

void job_say(struct job *job, struct out *out, const int *fds, size_t nfds)
{
	if (job->orphan) {
		free(out->data);
	} else if (place.framed) {
		if (channel_send(&host, out, NULL, 0))
			leave(1);
	} else if (job->line_gone) {
		free(out->data);
	} else if (channel_send(&job->own, out, fds, nfds)) {
		job->line_gone = true;
		watch_set(&job->line, 0);
		job_cancel(job);
	}
}

void job_fail(struct job *job, const char *step, int error)
{
	struct out out;
	job_frame(job, &out, "failed", 2);
	put_key_text(&out, "step", step);
	put_key_uint(&out, "errno", (uint64_t)error);
	job_say(job, &out, NULL, 0);
	job->failed = job->said = true;
}

/* Ends a job that has no process. */
void job_refuse(struct job *job, const char *step, int error)
{
	job_fail(job, step, error);
	job->reaped = true;
	job_settle(job);
}

/* The others of its session, which only /proc can list. */
static void kill_session(struct job *job)
{
	job->killing = true;
	kill_pause = KILL_FIRST_US;
	if (kill_at > kill_earliest)
		kill_at = kill_earliest;
}

void job_cancel(struct job *job)
{
	if (job->dialled) {
		dial_cancel(job);
		return;
	}
	if (job->reaped || job->killing || job->pid <= 0)
		return;
	kill(job->pid, SIGKILL);
	kill(-job->pid, SIGKILL);
	if (job->group > 0 && job->group != job->pid)
		kill(-job->group, SIGKILL);
	kill_session(job);
}

/* In a clone: commands go on, with nobody at the other end; file operations and connections of the other owner end. */
void jobs_orphan(void)
{
	struct job *next;
	for (struct job *job = jobs; job; job = next) {
		next = job->next;
		job->orphan = true;
		job->deadline = NEVER;
		if (job->command)
			streams_orphan(job);
		else
			job_cancel(job);
	}
}

static void forget(struct job *job)
{
	for (struct job **at = &jobs; *at; at = &(*at)->next)
		if (*at == job) {
			*at = job->next;
			break;
		}
	watch_set(&job->line, 0);
	channel_close(&job->own);
	watch_close(&job->report);
	child_gone(&job->child);
	streams_close(job);
	if (job->master >= 0)
		close(job->master);
	free(job->answer.data);
	accepted -= job->accepted;
	free(job);
	count--;
}

/* Does everything that can be done now. The job may be freed afterwards. */
void job_settle(struct job *job)
{
	if (job->dialled ? !dial_over(job) : !job->reaped || job->killing || job->report.fd >= 0)
		return;
	if (!job->said) {
		if (job->command && streams_flowing(job, now_us()))
			return;
		if (job->command)
			command_exit(job);
		else if (job->dialled)
			dial_exit(job);
		else
			helper_exit(job);
		job->said = true;
	}
	if (job->own.first && !job->line_gone)
		watch_set(&job->line, EPOLLIN | EPOLLOUT); /* the host reads slowly: wait until it reads or closes */
	else
		forget(job);
}

/* A helper, or a child that is not its command yet, is still one of us: stopped by a tenant, who is the same user, it would
 * keep the host waiting for ever. A command's own stop is its own affair, but for one on a terminal: that is how somebody
 * there says Ctrl-Z, and the host goes to sleep with it. */
static void stopped(struct job *job)
{
	if (place_paused())
		return; /* that was us */
	if (job->command && job->report.fd >= 0)
		job->report.ready(&job->report, EPOLLIN); /* has it called exec meanwhile? */
	if (!job->command || job->report.fd >= 0)
		kill(job->pid, SIGKILL);
	else if (job->terminal && !job->killing)
		command_stopped(job);
}

void jobs_reap(void)
{
	int status;
	struct rusage usage;
	pid_t pid;
	/* Orphans end here too, because we are PID 1. */
	while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED, &usage)) > 0) {
		struct job *job = jobs;
		while (job && (job->pid != pid || job->reaped))
			job = job->next;
		if (!job && !WIFSTOPPED(status) && machine_carries(pid))
			leave(1); /* nobody would ever answer those who ask for a file */
		if (!job)
			continue;
		if (WIFSTOPPED(status)) {
			stopped(job);
			continue;
		}
		if (job->vital && status)
			leave(1);
		job->reaped = true;
		job->status = status, job->usage = usage;
		job->ended = job->quiet = now_us();
		if (job->end_session && !job->killing)
			kill_session(job);
		if (job->report.fd >= 0) /* what it said is in the pipe by now, and the pipe may never be looked at else */
			job->report.ready(&job->report, EPOLLIN);
		else
			job_settle(job);
	}
}

/* Does what is due now; returns when to be called again. */
int64_t jobs_tick(int64_t now)
{
	int64_t wake = NEVER;
	struct job *next;
	bool killing = false;
	if (now >= kill_at) {
		kill_sessions();
		int64_t took = now_us() - now;
		now += took;
		/* A scan of a thousand processes takes a while: do not start another before as much time has passed. */
		kill_earliest = now + took;
		kill_at = now + (kill_pause > took ? kill_pause : took);
		kill_pause = kill_pause * 2 < KILL_MOST_US ? kill_pause * 2 : KILL_MOST_US;
	}
	for (struct job *job = jobs; job; job = next) {
		next = job->next;
		if (now >= job->deadline && !job->reaped) {
			job->timed_out = true;
			job->deadline = NEVER;
			job_cancel(job);
		}
		killing |= job->killing;
		if (!job->reaped && job->deadline < wake)
			wake = job->deadline;
		if (job->reaped && !job->said && !job->killing && job->report.fd < 0) {
			if (now + GRACE_US < wake)
				wake = now + GRACE_US; /* who waits for output may wait in vain */
			job_settle(job);
		}
	}
	if (!killing)
		kill_at = NEVER;
	return kill_at < wake ? kill_at : wake;
}
