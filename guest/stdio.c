/* Framed streams: where descriptors cannot cross, the guest carries a command's input and output, or both directions of a
 * connection, itself, and never more of it than the reader has given credit for. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 65536
#define TERMINAL_LEFT (1u << 20) /* of a terminal whose command has ended */
#define BACKLOG (1u << 20) /* of the main stream: enough to keep it busy, and no stream adds to more */

static void give_credit(struct job *job, uint64_t n)
{
	struct out out;
	job_frame(job, &out, "credit", 2);
	put_key_uint(&out, "fd", 0);
	put_key_uint(&out, "n", n);
	job_say(job, &out, NULL, 0);
	job->streams[0].credit += n;
}

/* Nobody reads the input any more. What still arrives is discarded, so that the host does not wait. */
static void say_closed(struct job *job)
{
	struct out out;
	job_frame(job, &out, "closed", 1);
	put_key_uint(&out, "fd", 0);
	job_say(job, &out, NULL, 0);
}

static void end_input(struct job *job)
{
	struct stream *s = &job->streams[0];
	if (s->half && s->watch.fd >= 0)
		shutdown(s->watch.fd, SHUT_WR); /* a copy of it goes on reading */
	watch_close(&s->watch);
	if (job->dialled)
		job_settle(job);
}

static void say_output(struct job *job, unsigned number, const void *data, size_t size)
{
	struct out out;
	job_frame(job, &out, "out", 2);
	put_key_uint(&out, "fd", number);
	put_text(&out, "data");
	put_bytes(&out, data, size);
	job_say(job, &out, NULL, 0);
}

static void arm_output(struct stream *s)
{
	bool over = s->watch.job && s->watch.job->counted && !s->left;
	watch_set(&s->watch, !over && s->credit && host.queued < BACKLOG ? EPOLLIN : 0);
}

static void output_ready(struct watch *w, uint32_t events)
{
	struct job *job = w->job;
	struct stream *s = w == &job->streams[1].watch ? &job->streams[1] : &job->streams[2];
	uint8_t data[CHUNK];
	(void)events;
	uint64_t most = s->credit < CHUNK ? s->credit : CHUNK;
	ssize_t n = read(w->fd, data, job->counted && s->left < most ? s->left : most);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		s->credit -= (uint64_t)n;
		job->quiet = now_us();
		say_output(job, s->number, data, (size_t)n);
		if (job->counted)
			s->left -= (uint64_t)n;
		arm_output(s);
		if (job->counted && !s->left)
			job_settle(job);
		return;
	}
	say_output(job, s->number, NULL, 0); /* the end; on a terminal it is EIO */
	watch_close(w);
	job_settle(job);
}

static void input_ready(struct watch *w, uint32_t events)
{
	struct job *job = w->job;
	struct stream *s = &job->streams[0];
	(void)events;
	ssize_t n = write(w->fd, s->pending, s->size);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	bool closed = n < 0;
	if (closed)
		n = (ssize_t)s->size;
	memmove(s->pending, s->pending + n, s->size - (size_t)n);
	s->size -= (size_t)n;
	if (n)
		give_credit(job, (uint64_t)n);
	if (closed && !s->ended)
		say_closed(job);
	if (closed || (!s->size && s->ended))
		end_input(job);
	else
		watch_set(w, s->size ? EPOLLOUT : 0);
}

/* A frame that exceeds its credit, or comes after the end, has broken the protocol. */
bool stream_input(struct job *job, struct cbor frame)
{
	struct stream *s = &job->streams[0];
	struct cbor item;
	const uint8_t *data;
	size_t size;
	if (!cbor_get(frame, "data", &item) || !cbor_string(item, &data, &size) || size > s->credit || s->ended)
		return false;
	if (!size) {
		s->ended = true;
		if (!s->terminal) {
			if (!s->size && job->report.fd < 0)
				end_input(job);
			return true;
		}
		data = (const uint8_t *)"\4", size = 1; /* a terminal's end of input; the buffer has a byte to spare */
	} else {
		s->credit -= size;
	}
	if (s->watch.fd < 0) {
		give_credit(job, size);
		return true;
	}
	/* Most commands are given no input. */
	if (size && !s->pending && !(s->pending = malloc(CREDIT + 1)))
		leave(1);
	if (size)
		memcpy(s->pending + s->size, data, size);
	s->size += size;
	if (job->report.fd < 0)
		watch_set(&s->watch, EPOLLOUT);
	return true;
}

bool stream_credit(struct job *job, struct cbor frame)
{
	uint64_t number, n;
	if (!cbor_get_uint(frame, "fd", 2, 0, &number) || !number || !cbor_get_uint(frame, "n", CREDIT, 0, &n))
		return false;
	struct stream *s = &job->streams[number];
	if (s->credit + n > CREDIT)
		return false;
	s->credit += n;
	if (job->report.fd < 0)
		arm_output(s);
	return true;
}

/* The host no longer reads an output: a write to it fails, as with a closed pipe. */
bool stream_closed(struct job *job, struct cbor frame)
{
	uint64_t number;
	if (!cbor_get_uint(frame, "fd", 2, 0, &number) || !number)
		return false;
	watch_close(&job->streams[number].watch);
	job_settle(job);
	return true;
}

static bool open_stream(struct job *job, unsigned number, int ours)
{
	struct stream *s = &job->streams[number];
	s->number = number;
	s->credit = CREDIT;
	s->watch = (struct watch){.fd = ours, .ready = number ? output_ready : input_ready, .job = job};
	return ours >= 0 && !fcntl(ours, F_SETFL, fcntl(ours, F_GETFL) | O_NONBLOCK);
}

bool streams_open(struct job *job, int theirs[3], int terminal, bool joined)
{
	if (terminal >= 0) {
		job->streams[0].terminal = true;
		return open_stream(job, 0, fcntl(job->master, F_DUPFD_CLOEXEC, 3)) &&
		       open_stream(job, 1, fcntl(job->master, F_DUPFD_CLOEXEC, 3));
	}
	for (unsigned i = 0; i < 3; i++) {
		int ends[2];
		if (i == 2 && joined) /* one pipe: what is written to it keeps its order */
			return (theirs[2] = fcntl(theirs[1], F_DUPFD_CLOEXEC, 3)) >= 0;
		if (pipe2(ends, O_CLOEXEC))
			return false;
		theirs[i] = ends[i ? 1 : 0];
		if (!open_stream(job, i, ends[i ? 0 : 1]))
			return false;
	}
	return true;
}

/* A connection: one copy of the socket to write to, one to read from. */
bool streams_dial(struct job *job, int fd)
{
	job->streams[0].half = true;
	return open_stream(job, 0, fcntl(fd, F_DUPFD_CLOEXEC, 3)) && open_stream(job, 1, fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

/* Not before `started` was sent: that is the first frame. */
void streams_start(struct job *job)
{
	arm_output(&job->streams[1]);
	arm_output(&job->streams[2]);
	if (job->streams[0].size)
		watch_set(&job->streams[0].watch, EPOLLOUT);
	else if (job->streams[0].ended)
		end_input(job);
}

static bool unread(const struct stream *s)
{
	return poll(&(struct pollfd){.fd = s->watch.fd, .events = POLLIN}, 1, 0) > 0;
}

/* What the command itself wrote is in its pipes when it ends. What comes later is from somebody it left behind, who may go on for
 * ever. A terminal does not say how much is under way: there it is what comes before a pause, within a limit. */
static void count_left(struct job *job)
{
	job->counted = true;
	for (unsigned i = 1; i < 3; i++) {
		struct stream *s = &job->streams[i];
		int size = 0;
		if (s->watch.fd >= 0 && !job->terminal)
			ioctl(s->watch.fd, FIONREAD, &size);
		s->left = job->terminal ? TERMINAL_LEFT : (uint64_t)size;
		arm_output(s);
	}
}

/* Whether output of a command that has ended is still to be sent: somebody may have taken it out of the pipe, too. */
bool streams_flowing(struct job *job, int64_t now)
{
	if (!job->counted)
		count_left(job);
	for (unsigned i = 1; i < 3; i++) {
		struct stream *s = &job->streams[i];
		if (s->watch.fd >= 0 && s->left && (unread(s) || (job->terminal && now < job->quiet + GRACE_US)))
			return true;
	}
	return false;
}

void streams_close(struct job *job)
{
	for (unsigned i = 0; i < 3; i++)
		watch_close(&job->streams[i].watch);
	free(job->streams[0].pending);
	job->streams[0].pending = NULL;
}

/* Nobody reads or writes them any more: the output is read all the same, so that the command does not wait; the input has
 * ended, but on a terminal, which would hang up. */
void streams_orphan(struct job *job)
{
	job->streams[1].credit = job->streams[2].credit = UINT64_MAX;
	if (!job->streams[0].terminal)
		end_input(job);
	if (job->report.fd < 0)
		streams_start(job);
}

/* The main stream may have drained: let those that waited for it continue. */
void streams_pump_all(void)
{
	for (struct job *job = jobs; job; job = job->next)
		if ((job->command || job->dialled) && job->report.fd < 0 && !job->said) {
			arm_output(&job->streams[1]);
			arm_output(&job->streams[2]);
		}
}
