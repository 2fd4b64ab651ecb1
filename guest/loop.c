/* The event loop. One event at a time: what a handler frees can then not be in a batch that is still to come. */
#define _GNU_SOURCE
#include "job.h"
#include "machine.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static int epoll;
static struct watch main_watch, out_watch, signal_watch, owner_watch;

int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void watch_set(struct watch *w, uint32_t events)
{
	if (w->fd < 0 || w->events == events)
		return;
	struct epoll_event e = {.events = events, .data.ptr = w};
	/* Taken out, not just muted: epoll reports a hang-up even to those who asked for nothing. */
	int op = !events ? EPOLL_CTL_DEL : !w->events ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	w->events = epoll_ctl(epoll, op, w->fd, &e) ? 0 : events;
}

void watch_close(struct watch *w)
{
	watch_set(w, 0);
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

noreturn void leave(int status)
{
	/* As PID 1 our end is everyone's: the kernel kills all of the namespace, and waits for it. */
	if (!place.walls || getpid() != 1)
		kill_descendants();
	_exit(status);
}

static void answer_unknown(struct cbor request)
{
	struct out out;
	struct cbor item;
	uint64_t id;
	bool has_id = cbor_get(request, "id", &item) && cbor_uint(item, &id);
	frame_begin(&out);
	put_map(&out, has_id ? 4 : 3);
	put_key_text(&out, "t", "failed");
	if (has_id)
		put_key_uint(&out, "id", id);
	put_key_text(&out, "step", "request");
	put_key_uint(&out, "errno", ENOSYS);
	if (channel_send(&host, &out, NULL, 0))
		leave(1);
}

static void on_request(struct cbor request)
{
	struct cbor t, item;
	uint64_t id;
	if (!cbor_get(request, "t", &t))
		leave(1);
	struct job *job = place.framed && cbor_get(request, "id", &item) && cbor_uint(item, &id) ? job_find(id) : NULL;
	if (cbor_is(t, "close"))
		leave(0);
	else if (cbor_is(t, "exec"))
		command_start(request);
	else if (cbor_is(t, "dial") && place.framed)
		dial_start(request);
	else if (cbor_is(t, "file") || cbor_is(t, "dial"))
		helper_start(request);
	else if ((cbor_is(t, "pause") || cbor_is(t, "resume")) && !place.framed)
		pause_start(request, cbor_is(t, "pause"));
	else if (job)
		command_frame(job, request);
	else if (cbor_is(t, "datagram") && place.framed)
		gate_answer(request);
	else if (machine_request(request))
		return;
	else if (!place.framed || !(cbor_is(t, "in") || cbor_is(t, "credit") || cbor_is(t, "closed") || cbor_is(t, "signal") ||
				    cbor_is(t, "resize") || cbor_is(t, "cancel"))) /* its command may just have ended */
		answer_unknown(request);
}

static void main_ready(struct watch *w, uint32_t events)
{
	struct cbor frame;
	(void)w;
	if (events & EPOLLOUT && channel_flush(&host))
		leave(1);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		int got = channel_read(&host, &frame);
		if (got < 0)
			leave(host.got ? 1 : 0);
		if (got) {
			on_request(frame);
			channel_done(&host);
		}
	}
	if (place.framed)
		streams_pump_all();
}

/* Of two pipes, the one that leads to the host. */
static void out_ready(struct watch *w, uint32_t events)
{
	(void)w;
	if (events & (EPOLLERR | EPOLLHUP) || channel_flush(&host))
		leave(1);
	streams_pump_all();
}

static void signal_ready(struct watch *w, uint32_t events)
{
	struct signalfd_siginfo info;
	(void)events;
	if (read(w->fd, &info, sizeof info) == sizeof info && info.ssi_signo != SIGCHLD)
		leave(0);
	jobs_reap();
}

static void owner_ready(struct watch *w, uint32_t events)
{
	(void)w, (void)events;
	leave(0);
}

static void watch_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	/* PID 1 leaves the others alone: unhandled they do nothing to it, while a blocked one would be a tenant's way
	 * to end the place. */
	if (!place.walls) {
		sigaddset(&set, SIGTERM);
		sigaddset(&set, SIGINT);
		sigaddset(&set, SIGHUP);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_watch = (struct watch){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .ready = signal_ready};
	watch_set(&signal_watch, EPOLLIN);
}

noreturn void serve(void)
{
	epoll = epoll_create1(EPOLL_CLOEXEC);
	watch_signals();
	main_watch = (struct watch){.fd = host.fd, .ready = main_ready};
	watch_set(&main_watch, EPOLLIN);
	out_watch = (struct watch){.fd = host.out != host.fd ? host.out : -1, .ready = out_ready};
	owner_watch = (struct watch){.fd = place.owner, .ready = owner_ready};
	watch_set(&owner_watch, EPOLLIN);
	if (!signal_watch.events || !main_watch.events || (place.owner >= 0 && !owner_watch.events))
		leave(1);
	tripwires_serve();
	if (place.framed)
		gate_serve();
	for (;;) {
		struct epoll_event e;
		int64_t wake = jobs_tick(now_us());
		/* A host that does not read gets no new work done until it does. */
		uint32_t write = host.queued ? EPOLLOUT : 0;
		watch_set(&main_watch, (host.queued < QUEUE_MOST / 2 ? EPOLLIN : 0) | (out_watch.fd < 0 ? write : 0));
		watch_set(&out_watch, write);
		int64_t left = wake == NEVER ? NEVER : wake - now_us();
		int wait_ms = left == NEVER ? -1 : left <= 0 ? 0 : left / 1000 >= 1 << 30 ? 1 << 30 : (int)((left + 999) / 1000);
		int n = epoll_wait(epoll, &e, 1, wait_ms);
		if (n > 0) {
			struct watch *w = e.data.ptr;
			w->ready(w, e.events);
		} else if (n < 0 && errno != EINTR) {
			leave(1);
		}
	}
}
