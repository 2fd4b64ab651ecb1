/* What makes a clone another machine than the one it was made from: its time, its randomness, its name; and what is done with
 * the commands that ran when it was saved, of which its owner knows nothing.
 *
 * The guest is an ordinary user by then, so a process of root's stays behind that does these things for it and no other. */
#define _GNU_SOURCE
#include "job.h"
#include "machine.h"
#include "machine_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ENTROPY 64 /* bytes */
#define NAME_MOST 64
#define REQUEST_MOST (1u << 17)

struct identity {
	uint64_t time_ns;
	bool clock_only;
	uint8_t entropy[ENTROPY];
	char name[NAME_MOST + 1];
};

static int keeper = -1;
static int boot_id = -1; /* BOOT_ID */

void machine_boot_id(void)
{
	boot_id = open(BOOT_ID, O_RDWR | O_CREAT | O_CLOEXEC, 0444);
	if (boot_id < 0)
		machine_give_up(BOOT_ID);
}

/* The kernel keeps the one that it made when the template booted; this one is shown in its place. A random UUID, as it says. */
static bool new_boot_id(void)
{
	uint8_t r[16];
	char text[40];
	if (getrandom(r, sizeof r, 0) != sizeof r)
		return false;
	r[6] = (r[6] & 0x0f) | 0x40, r[8] = (r[8] & 0x3f) | 0x80;
	int size = snprintf(text, sizeof text, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", r[0], r[1], r[2],
			    r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
	return pwrite(boot_id, text, (size_t)size, 0) == size;
}

static bool read_identity(struct cbor from, struct identity *identity)
{
	struct cbor item;
	const uint8_t *bytes;
	size_t size;
	*identity = (struct identity){.clock_only = !cbor_get(from, "entropy", &item)};
	errno = EINVAL;
	if (!cbor_get_uint(from, "time_ns", INT64_MAX, 0, &identity->time_ns))
		return false;
	if (identity->clock_only)
		return true;
	char *name = cbor_get_cstring(from, "hostname");
	bool good = cbor_string(item, &bytes, &size) && size == ENTROPY && name && strlen(name) <= NAME_MOST;
	if (good) {
		memcpy(identity->entropy, bytes, ENTROPY);
		strcpy(identity->name, name);
	}
	free(name);
	return good;
}

static bool set_identity(const struct identity *identity)
{
	struct timespec time = {(time_t)(identity->time_ns / 1000000000), (long)(identity->time_ns % 1000000000)};
	if (clock_settime(CLOCK_REALTIME, &time))
		return false;
	if (identity->clock_only)
		return true;
	/* struct rand_pool_info, whose last member has no size: bits, bytes, the bytes themselves */
	int entropy[2 + ENTROPY / sizeof(int)] = {ENTROPY * 8, ENTROPY};
	memcpy(entropy + 2, identity->entropy, ENTROPY);
	int random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	bool good = random >= 0 && !ioctl(random, RNDADDENTROPY, entropy) && !ioctl(random, RNDRESEEDCRNG);
	if (random >= 0)
		close(random);
	return good && !sethostname(identity->name, strlen(identity->name)) && new_boot_id();
}

/* A clone has its template's clock, and its random numbers would be every other clone's. */
bool machine_identity(struct cbor machine)
{
	struct identity identity;
	return read_identity(machine, &identity) && set_identity(&identity);
}

/* Fails by ending, which whoever asked notices. */
static noreturn void keep(int from)
{
	static uint8_t request[REQUEST_MOST];
	ssize_t size;
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	while ((size = recv(from, request, sizeof request, 0)) > 0) {
		struct cbor asked = {request, request + size}, machine;
		if (!cbor_is_map(request, (size_t)size))
			break;
		int error = machine_identity(asked) ? 0 : errno;
		if (!error && cbor_get(asked, "machine", &machine))
			machine_settle(machine);
		if (send(from, &error, sizeof error, MSG_NOSIGNAL) != sizeof error)
			break;
	}
	_exit(0);
}

void machine_keeper(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		fail("keeper", NULL);
	pid_t pid = fork();
	if (pid < 0)
		fail("keeper", NULL);
	if (!pid) {
		close(3); /* the control stream is not its */
		close(ends[0]);
		keep(ends[1]);
	}
	close(ends[1]);
	keeper = ends[0];
}

static bool ask_keeper(struct cbor request)
{
	int error = 0;
	size_t size = (size_t)(request.end - request.at);
	if (send(keeper, request.at, size, MSG_NOSIGNAL) != (ssize_t)size || recv(keeper, &error, sizeof error, 0) != sizeof error)
		error = ESRCH;
	errno = error;
	return !error;
}

static void say(const char *t, int error)
{
	struct out out;
	frame_begin(&out);
	put_map(&out, error ? 3 : 1);
	put_key_text(&out, "t", t);
	if (error) {
		put_key_text(&out, "step", "machine");
		put_key_uint(&out, "errno", (uint64_t)error);
	}
	if (channel_send(&host, &out, NULL, 0))
		leave(1);
	while (host.first) {
		poll(&(struct pollfd){.fd = host.fd, .events = POLLOUT}, 1, -1);
		if (channel_flush(&host))
			leave(1);
	}
}

static void say_whether(const char *t, bool good)
{
	int error = errno;
	say(good ? t : "failed", good ? 0 : error ? error : EIO);
}

/* Nothing is said and nothing is asked for until the owner goes on, or a clone's owner says who it is. */
static void hold(void)
{
	struct cbor frame, t;
	int got;
	if (!machine_files_hold()) {
		say_whether("held", false);
		return;
	}
	say("held", 0);
	channel_done(&host);
	while (!(got = channel_read(&host, &frame)))
		poll(&(struct pollfd){.fd = host.fd, .events = POLLIN}, 1, -1);
	if (got < 0 || !cbor_get(frame, "t", &t))
		leave(1);
	machine_files_go();
	if (cbor_is(t, "go"))
		return;
	if (!cbor_is(t, "cloned"))
		leave(1);
	jobs_orphan();
	limits_again(frame);
	say_whether("ready", ask_keeper(frame));
}

bool machine_request(struct cbor request)
{
	struct cbor t;
	if (keeper < 0 || !cbor_get(request, "t", &t))
		return false;
	if (cbor_is(t, "hold"))
		hold();
	else if (cbor_is(t, "clock"))
		say_whether("set", ask_keeper(request));
	else
		return false;
	return true;
}
