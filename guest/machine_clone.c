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
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
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

/* Two pipes and not a socket: a clone has little translated yet, and its commands need pipes anyway. */
static int to_keeper = -1, from_keeper = -1;
static int boot_id = -1; /* BOOT_ID */
static int urandom = -1;

void machine_boot_id(void)
{
	boot_id = open(BOOT_ID, O_RDWR | O_CREAT | O_CLOEXEC, 0444);
	urandom = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (boot_id < 0 || urandom < 0)
		machine_give_up(BOOT_ID);
}

/* The kernel keeps the one that it made when the template booted; this one is shown in its place. A random UUID, as it says. */
static bool new_boot_id(void)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t r[16];
	char text[37], *at = text;
	if (getrandom(r, sizeof r, 0) != sizeof r)
		return false;
	r[6] = (r[6] & 0x0f) | 0x40, r[8] = (r[8] & 0x3f) | 0x80;
	for (unsigned i = 0; i < sizeof r; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[r[i] >> 4], *at++ = digits[r[i] & 15];
	}
	*at = '\n';
	return pwrite(boot_id, text, sizeof text, 0) == sizeof text;
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
	return !ioctl(urandom, RNDADDENTROPY, entropy) && !ioctl(urandom, RNDRESEEDCRNG) && !sethostname(identity->name, strlen(identity->name)) && new_boot_id();
}

/* A clone has its template's clock, and its random numbers would be every other clone's. */
bool machine_identity(struct cbor machine)
{
	struct identity identity;
	return read_identity(machine, &identity) && set_identity(&identity);
}

static bool read_all(int from, void *to, size_t size)
{
	for (char *at = to; size;) {
		ssize_t got = read(from, at, size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got, size -= (size_t)got;
	}
	return true;
}

static bool write_all(int to, const void *data, size_t size)
{
	for (const char *at = data; size;) {
		ssize_t wrote = write(to, at, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return false;
		at += wrote, size -= (size_t)wrote;
	}
	return true;
}

/* Fails by ending, which whoever asked notices. */
static noreturn void keep(int from, int to)
{
	static uint8_t request[REQUEST_MOST];
	uint32_t size;
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	while (read_all(from, &size, sizeof size) && size <= sizeof request && read_all(from, request, size)) {
		struct cbor asked = {request, request + size}, machine;
		if (!cbor_is_map(request, size))
			break;
		int error = machine_identity(asked) ? 0 : errno;
		if (!error && cbor_get(asked, "machine", &machine))
			machine_settle(machine);
		if (!write_all(to, &error, sizeof error))
			break;
	}
	_exit(0);
}

void machine_keeper(void)
{
	int there[2], back[2];
	if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
		fail("keeper", NULL);
	pid_t pid = fork();
	if (pid < 0)
		fail("keeper", NULL);
	if (!pid) {
		close(3); /* the control stream is not its */
		close(there[1]), close(back[0]);
		keep(there[0], back[1]);
	}
	close(there[0]), close(back[1]);
	close(urandom), close(boot_id);
	to_keeper = there[1], from_keeper = back[0];
}

static bool ask_keeper(struct cbor request)
{
	int error = 0;
	uint32_t size = (uint32_t)(request.end - request.at);
	if (!write_all(to_keeper, &size, sizeof size) || !write_all(to_keeper, request.at, size) ||
	    !read_all(from_keeper, &error, sizeof error))
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
	if (to_keeper < 0 || !cbor_get(request, "t", &t))
		return false;
	if (cbor_is(t, "hold"))
		hold();
	else if (cbor_is(t, "clock"))
		say_whether("set", ask_keeper(request));
	else
		return false;
	return true;
}
