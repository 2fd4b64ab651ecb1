/* The guest: builds the sandbox, passes the network to the host, drops every privilege, then runs commands.
 * See protocol.md. The order below is the order of its life, and each step is in the file named after it. */
#define _GNU_SOURCE
#include "container.h"
#include "job.h"
#include "machine.h"
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VERSION 2
#define CONTROL 3
#define CONTROL_OUT 4 /* for a guest with two pipes */
#if defined __x86_64__
#define MACHINE "x86_64"
#else
#define MACHINE "aarch64"
#endif

struct place place = {.owner = -1, .proc = -1};
struct channel host;

static void send_now(struct out *out, const int *fds, size_t nfds)
{
	if (channel_send(&host, out, fds, nfds))
		_exit(1);
	while (host.first) { /* before the event loop there is nothing else to do than wait */
		poll(&(struct pollfd){.fd = host.out, .events = POLLOUT}, 1, -1);
		if (channel_flush(&host))
			_exit(1);
	}
}

noreturn void fail(const char *step, const char *path)
{
	int error = errno;
	struct out out;
	if (!host.fd) /* a machine that boots has its console only */
		machine_give_up(path ? path : step);
	frame_begin(&out);
	put_map(&out, path ? 4 : 3);
	put_key_text(&out, "t", "failed");
	put_key_text(&out, "step", step);
	put_key_uint(&out, "errno", (uint64_t)error);
	if (path) {
		put_text(&out, "detail");
		put_bytes(&out, path, strlen(path));
	}
	send_now(&out, NULL, 0);
	_exit(1);
}

static void say_hello(void)
{
	struct out out;
	frame_begin(&out);
	put_map(&out, 4);
	put_key_text(&out, "t", "hello");
	put_key_uint(&out, "v", VERSION);
	put_key_text(&out, "arch", MACHINE);
	put_key_bool(&out, "framed", place.framed);
	send_now(&out, NULL, 0);
}

/* The set-up's frame stays in the channel's hands until `ready`. */
static struct cbor wait_for_setup(void)
{
	struct cbor setup, t;
	int got;
	while (!(got = channel_read(&host, &setup)))
		poll(&(struct pollfd){.fd = host.fd, .events = POLLIN}, 1, -1);
	if (got < 0)
		_exit(1);
	errno = EINVAL;
	if (!cbor_get(setup, "t", &t) || !cbor_is(t, "setup") || host.nfds > 1 ||
	    !cbor_get_bool(setup, "walls", true, &place.walls) ||
	    !cbor_get_bool(setup, "network", false, &place.network) ||
	    !cbor_get_bool(setup, "carried", false, &place.carried) ||
	    !cbor_get_bool(setup, "allow_ptrace", false, &place.allow_ptrace) ||
	    !cbor_get_bool(setup, "count_memory", false, &place.count_memory) ||
	    !cbor_get_bool(setup, "unix_sockets", true, &place.unix_sockets) ||
	    !cbor_get_uint(setup, "uid", 0xfffffffe, 0, &place.uid) || !cbor_get_uint(setup, "gid", 0xfffffffe, 0, &place.gid))
		fail("setup", NULL);
	if (host.nfds)
		place.owner = channel_take(&host, 0);
	return setup;
}

/* Where we are not PID 1, orphans of our commands must come to us all the same, or nobody would end them. */
static void adopt_orphans(void)
{
	if (getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		fail("subreaper", NULL);
}

/* For commands without input: a descriptor of the host's own /dev/null would let a tenant who is its root change the mode
 * of that. */
static void offer_null(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		fail("null", "/dev/null");
	place.sockets[place.nsockets] = null;
	strcpy(place.names[place.nsockets++], "null");
}

/* The launcher has named it already; one that goes on from another has a name of its own. */
static void name_place(struct cbor setup)
{
	struct cbor item;
	if (!cbor_get(setup, "hostname", &item))
		return;
	char *name = cbor_cstring(item);
	if (!name || sethostname(name, strlen(name)))
		fail("hostname", NULL);
	free(name);
}

static void build_walls(struct cbor setup)
{
	/* Started by mistake with nothing around us, as root we would build on the machine itself: mount over its files, and
	 * write into its /etc. Whoever put namespaces around us made us the first process in them. */
	if (getpid() != 1)
		errno = EPERM, fail("namespaces", NULL);
	if (place.container)
		container_enter(setup);
	protect_devices(setup);
	name_place(setup);
	build_filesystem(setup);
	network(setup);
	protect_proc();
	place.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.proc < 0)
		fail("proc", NULL);
	new_keyring();
	drop_privileges();
	landlock_apply(); /* needs no_new_privs */
	install_filter(); /* last: it denies what the steps above are made of */
}

static void no_walls(void)
{
	adopt_orphans();
	place.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.proc < 0)
		fail("proc", NULL);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		fail("dumpable", NULL);
}

static void say_ready(void)
{
	struct out out;
	frame_begin(&out);
	put_map(&out, 4);
	put_key_text(&out, "t", "ready");
	put_text(&out, "sockets");
	put_array(&out, place.nsockets);
	for (size_t i = 0; i < place.nsockets; i++)
		put_text(&out, place.names[i]);
	put_text(&out, "have");
	put_map(&out, 6);
	put_key_bool(&out, "nft", place.have_nft);
	put_key_uint(&out, "landlock", (uint64_t)place.landlock);
	put_key_bool(&out, "keyring", place.have_keyring);
	put_key_bool(&out, "low_ports", place.have_low_ports);
	put_key_uint(&out, "tripwires", tripwires_count());
	put_key_uint(&out, "missed", place.missed);
	put_key_uint(&out, "fds", place.framed ? 0 : place.nsockets);
	send_now(&out, place.sockets, place.framed ? 0 : place.nsockets);
	for (size_t i = 0; i < place.nsockets && !place.framed; i++)
		close(place.sockets[i]); /* now only the host has it */
}

/* What `ps` shows: a name, not the descriptor or host path by which we were started. */
static void take_name(int argc, char **argv)
{
	char *started_as = argv[0];
	size_t room = strlen(started_as);
	for (int i = 0; i < argc; i++)
		memset(argv[i], 0, strlen(argv[i]));
	if (room >= sizeof "guest" - 1)
		memcpy(started_as, "guest", sizeof "guest" - 1);
	prctl(PR_SET_NAME, "guest", 0, 0, 0);
}

/* Further lives of this program, as tenants of a room with a virtual machine in it. */
static void live_otherwise(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--share"))
		share(0, 1, argv + 2);
	if (argc > 2 && !strcmp(argv[1], "--share-system"))
		share_system(0, 1, argv + 2);
	if (argc > 1 && !strcmp(argv[1], "--khz"))
		machine_khz();
	if (argc > 1 && !strcmp(argv[1], "--kvm"))
		machine_kvm();
	if (argc > 2 && !strcmp(argv[1], "--launch"))
		machine_launch(argv + 2);
}

/* Without passing descriptors: over anything but a Unix socket. */
static bool is_framed(int argc, char **argv)
{
	int domain = 0;
	socklen_t size = sizeof domain;
	return (argc > 1 && !strcmp(argv[1], "--framed")) ||
	       getsockopt(CONTROL, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX;
}

int main(int argc, char **argv)
{
	live_otherwise(argc, argv);
	bool piped = argc > 1 && !strcmp(argv[1], "--container-stdio");
	place.container = piped || (argc > 1 && !strcmp(argv[1], "--container"));
	if (place.container && !(piped ? container_pipes() : container_connect()))
		return 1;
	/* Tenants must not get what the launcher left open. */
	if (syscall(SYS_close_range, (piped ? CONTROL_OUT : CONTROL) + 1, ~0u, 0))
		return 1;
	place.machine = !place.container && machine_boot();
	fcntl(CONTROL, F_SETFD, FD_CLOEXEC);
	signal(SIGPIPE, SIG_IGN);
	place.framed = piped || is_framed(argc, argv);
	if (argc > 0)
		take_name(argc, argv);
	channel_open(&host, CONTROL, !place.framed);
	if (piped)
		channel_write_to(&host, CONTROL_OUT);
	say_hello();
	struct cbor setup = wait_for_setup();
	limits_read(setup);
	if (!place.framed)
		offer_null();
	if (place.machine)
		machine_build(setup);
	else if (place.walls)
		build_walls(setup);
	else
		no_walls();
	say_ready();
	channel_done(&host);
	/* The engine reads our stderr during the set-up; nothing may be written to it from here on. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			return 1;
	close(null);
	serve();
}
