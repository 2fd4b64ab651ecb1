/* Stops every process of the place, and has them go on, where no control group can freeze them. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define STOPPED_MOST 4096
#define TRIES 5000 /* a second and a half */
#define PATIENT_TRIES 20

static pid_t before[STOPPED_MOST]; /* stopped when we began: they stay so */
static size_t nbefore;
static bool paused;
static size_t running, waiting;

bool place_paused(void)
{
	return paused;
}

static void note_stopped(pid_t pid, char state)
{
	if ((state == 'T' || state == 't') && nbefore < STOPPED_MOST)
		before[nbefore++] = pid;
}

static void count_running(pid_t pid, char state)
{
	(void)pid;
	waiting += state == 'D';
	running += state != 'T' && state != 't' && state != 'D';
}

static void go_on(pid_t pid, char state)
{
	(void)state;
	for (size_t i = 0; i < nbefore; i++)
		if (before[i] == pid)
			return;
	kill(pid, SIGCONT);
}

/* All at once, and again until there is none that was just being made. */
static bool stop_all(void)
{
	nbefore = 0;
	each_state(note_stopped);
	paused = true;
	for (int i = 0; i < TRIES; i++) {
		if (kill(-1, SIGSTOP) && errno == ESRCH)
			return true;
		running = waiting = 0;
		each_state(count_running);
		/* One in an uninterruptible call stops on its return, and may wait for another that is stopped (vfork). */
		if (!running && (!waiting || i >= PATIENT_TRIES))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
	}
	each_state(go_on);
	paused = false;
	errno = EBUSY;
	return false;
}

void pause_start(struct cbor request, bool stop)
{
	struct out out;
	struct job *job = job_new(request, false);
	if (!job)
		return;
	/* Without walls others' processes would be among them. */
	if (!place.walls || (stop && paused)) {
		job_refuse(job, "pause", place.walls ? EALREADY : EPERM);
		return;
	}
	if (stop && !stop_all()) {
		job_refuse(job, "pause", errno);
		return;
	}
	if (!stop) {
		each_state(go_on);
		paused = false;
	}
	job_frame(job, &out, "done", 0);
	job_say(job, &out, NULL, 0);
	job->said = job->reaped = true;
	job_settle(job);
}
