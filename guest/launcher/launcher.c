/* launcher [--note FILE] SOCKET LABEL -- COMMAND [ARGUMENT…]
 *
 * Runs a command in a sandbox that stands already: the one of SOCKET, unless there is a note that names another. To whoever started us we are the command: our input, output, directory,
 * variables and signals are its own, and its end is ours. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

struct ends { /* of ours: what else can end us */
	int signals, parent;
};

static struct termios as_it_was;
static bool raw;

static void restore_terminal(void)
{
	if (raw)
		tcsetattr(0, TCSADRAIN, &as_it_was);
}

_Noreturn void give_up(const char *what)
{
	restore_terminal();
	fprintf(stderr, "sandbox: %s\n", what);
	_exit(OUR_ERROR);
}

/* Those that a command would get. One that our parent ignores (nohup) stays ignored, for the command, too. */
static int catch_signals(void)
{
	static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGWINCH};
	sigset_t set;
	struct sigaction now;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
		if (!sigaction(caught[i], NULL, &now) && now.sa_handler != SIG_IGN)
			sigaddset(&set, caught[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void make_raw(void)
{
	struct termios as_needed;
	if (tcgetattr(0, &as_it_was))
		return;
	as_needed = as_it_was;
	cfmakeraw(&as_needed);
	raw = !tcsetattr(0, TCSADRAIN, &as_needed);
}

/* Returns the signal if the command is likely to end by it. */
static int pass_on(int signals, int server, const struct streams *streams)
{
	struct signalfd_siginfo got;
	struct winsize size;
	int last = 0;
	while (read(signals, &got, sizeof got) == sizeof got) {
		int number = (int)got.ssi_signo;
		if (number == SIGWINCH) {
			if (streams->terminal && !ioctl(0, TIOCGWINSZ, &size))
				ioctl(streams->out, TIOCSWINSZ, &size);
			continue;
		}
		tell_signal(server, number);
		if (number == SIGTSTP)
			raise(SIGSTOP); /* both sleep; SIGCONT wakes both */
		else if (number != SIGCONT)
			last = number;
	}
	return last;
}

/* As a plain child would have ended by the signal that it was sent. Returns where that one is ignored. */
static void end_by(int number)
{
	sigset_t set;
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	signal(number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
}

static _Noreturn void end_orphaned(void)
{
	restore_terminal();
	_exit(OUR_ERROR);
}

static void watch(struct pollfd *poll, const struct flow *flow)
{
	*poll = (struct pollfd){.fd = -1};
	if (!flow->over && flow_wants(flow))
		*poll = (struct pollfd){flow->from, POLLIN, 0};
	else if (!flow->over)
		*poll = (struct pollfd){flow->to, POLLOUT, 0};
}

static struct flow in, out, err;

static void open_flows(struct streams *streams, const int fds[3], int count)
{
	int next = 0;
	int *wanted[] = {&streams->in, &streams->out, &streams->err};
	for (int i = 0; i < 3; i++)
		if (*wanted[i] == 0) {
			if (next == count)
				give_up("the sandbox sent too few descriptors");
			*wanted[i] = fds[next++];
			fcntl(*wanted[i], F_SETFL, fcntl(*wanted[i], F_GETFL) | O_NONBLOCK);
		}
	/* Field by field: a whole struct would be its buffer, too, which most commands never need. */
	in.from = 0, in.to = streams->terminal ? streams->out : streams->in, in.over = in.to < 0;
	out.from = streams->out, out.to = 1;
	err.from = streams->err, err.to = 2, err.over = streams->err < 0;
}

static void close_when_over(struct flow *flow, int *pipe, bool terminal)
{
	if (flow->over && *pipe >= 0 && !terminal) {
		close(*pipe); /* the end of input; or nobody takes output: for who writes it, a closed pipe */
		*pipe = -1;
	}
}

/* What the command left in its pipe when it ended, for a reader that may be slow. A signal still ends us, and so does the end
 * of our parent. */
static void drain(struct flow *flow, const struct ends *ends, int server, const struct streams *streams)
{
	while (flow_more(flow)) {
		struct pollfd polls[] = {{flow->to, POLLOUT, 0}, {ends->signals, POLLIN, 0}, {ends->parent, POLLIN, 0}};
		int number;
		if (poll(polls, 3, -1) < 0)
			continue;
		if (polls[2].revents)
			end_orphaned();
		if (polls[1].revents && (number = pass_on(ends->signals, server, streams))) {
			restore_terminal();
			end_by(number);
		}
		if (polls[0].revents)
			flow_move(flow);
	}
}

/* Until the command has ended; returns how. `by` is the last signal that was passed on. */
static struct answer relay(int server, const struct ends *ends, struct streams *streams, int *by)
{
	struct answer answer = {0};
	int fds[3], count;
	for (;;) {
		struct pollfd polls[6] = {{server, POLLIN, 0}, {ends->signals, POLLIN, 0}, [5] = {ends->parent, POLLIN, 0}};
		struct flow *flows[] = {&in, &out, &err};
		for (int i = 0; i < 3; i++)
			watch(&polls[i + 2], flows[i]);
		if (poll(polls, 6, -1) < 0)
			continue;
		if (polls[5].revents)
			end_orphaned();
		if (polls[1].revents) {
			int number = pass_on(ends->signals, server, streams);
			*by = number ? number : *by;
		}
		for (int i = 0; i < 3; i++)
			if (polls[i + 2].revents)
				flow_move(flows[i]);
		close_when_over(&in, &streams->in, streams->terminal);
		close_when_over(&out, &streams->out, streams->terminal);
		close_when_over(&err, &streams->err, streams->terminal);
		if (polls[0].revents) {
			if (!hear(server, &answer, fds, &count))
				give_up("the sandbox has ended");
			drain(&out, ends, server, streams);
			drain(&err, ends, server, streams);
			return answer;
		}
	}
}

/* A closed descriptor's number would go to a socket of ours, and what is meant for the one be written to the other. */
static bool open_standard_streams(void)
{
	int fd;
	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2)
		;
	return fd > 2 && !close(fd);
}

/* A shell between us and whoever started it: when that is killed, nobody waits for the command any more. By a descriptor,
 * because PR_SET_PDEATHSIG kills us when only the thread that started us ends. -1 where that is all there is. */
static int watch_parent(void)
{
	pid_t parent = getppid();
	int pidfd = (int)syscall(SYS_pidfd_open, parent, 0);
	if (pidfd < 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(OUR_ERROR);
	return pidfd;
}

int main(int argc, char **argv)
{
	struct streams streams;
	struct answer answer;
	int fds[3], count, by = 0;
	const char *note = argc > 3 && !strcmp(argv[1], "--note") ? argv[2] : NULL;
	if (!open_standard_streams())
		return OUR_ERROR;
	if (note)
		argc -= 2, argv += 2;
	if (argc < 5 || strcmp(argv[3], "--")) {
		fprintf(stderr, "usage: launcher [--note FILE] SOCKET LABEL -- COMMAND [ARGUMENT…]\n");
		return OUR_ERROR;
	}
	struct ends ends = {.parent = watch_parent()};
	int server = reach(follow(note, argv[1], ends.parent));
	ends.signals = catch_signals();
	ask(server, argv[2], argv + 4, &streams);
	if (!hear(server, &answer, fds, &count))
		give_up("the sandbox has ended");
	if (answer.kind != 'S')
		return answer.value;
	open_flows(&streams, fds, count);
	if (streams.terminal)
		make_raw();
	answer = relay(server, &ends, &streams, &by);
	restore_terminal();
	if (answer.kind != 'K')
		return answer.value;
	if (answer.value == by)
		end_by(by);
	return 128 + answer.value; /* as a shell says it */
}
