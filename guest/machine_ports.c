/* Ports of the host's loopback that tenants may reach. In the machine its own loopback is in the way, so a process listens there and
 * passes each connection on to the room's, where the gate answers: QEMU shows the room's loopback as its gateway. */
#define _GNU_SOURCE
#include "machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM "10.0.2.2"
#define PORTS_MOST 64
#define PIECE 65536

static struct pollfd listening[2 * PORTS_MOST];
static uint16_t port_of[2 * PORTS_MOST];
static size_t count;

static void listen_at(int family, uint16_t port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || (family == AF_INET ? bind(fd, (void *)&v4, sizeof v4) : bind(fd, (void *)&v6, sizeof v6)) || listen(fd, 128))
		fail("loopback_ports", NULL);
	listening[count] = (struct pollfd){.fd = fd, .events = POLLIN};
	port_of[count++] = port;
}

/* From one to the other; false at the end, which the other is told. */
static bool pass(int from, int to)
{
	char piece[PIECE];
	ssize_t size = read(from, piece, sizeof piece);
	if (size < 0 && errno == EINTR)
		return true;
	for (char *at = piece; size > 0;) {
		ssize_t sent = send(to, at, (size_t)size, MSG_NOSIGNAL);
		if (sent < 0)
			_exit(0);
		at += sent, size -= sent;
		if (!size)
			return true;
	}
	shutdown(to, SHUT_WR);
	return false;
}

static noreturn void carry(int tenant, uint16_t port)
{
	struct sockaddr_in room = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, ROOM, &room.sin_addr);
	if (fd < 0 || connect(fd, (void *)&room, sizeof room))
		_exit(0);
	struct pollfd both[] = {{.fd = tenant, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	while (both[0].fd >= 0 || both[1].fd >= 0) {
		if (poll(both, 2, -1) < 0)
			continue;
		if (both[0].revents && !pass(tenant, fd))
			both[0].fd = -1;
		if (both[1].revents && !pass(fd, tenant))
			both[1].fd = -1;
	}
	_exit(0);
}

static noreturn void serve_ports(void)
{
	close(3); /* the control stream is not ours */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "ports", 0, 0, 0);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (poll(listening, count, -1) < 0)
			continue;
		for (size_t i = 0; i < count; i++) {
			int tenant = listening[i].revents ? accept4(listening[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
			if (tenant < 0)
				continue;
			if (fork() == 0)
				carry(tenant, port_of[i]);
			close(tenant);
		}
	}
}

void machine_ports(struct cbor setup)
{
	struct cbor item;
	uint64_t n = 0, port;
	if (cbor_get(setup, "loopback_ports", &item) && !cbor_array(item, &n, &item))
		errno = EINVAL, fail("loopback_ports", NULL);
	if (!n)
		return;
	for (; n--; cbor_next(&item)) {
		if (!cbor_uint(item, &port) || !port || port > 65535 || count + 2 > 2 * PORTS_MOST)
			errno = EINVAL, fail("loopback_ports", NULL);
		listen_at(AF_INET, (uint16_t)port);
		listen_at(AF_INET6, (uint16_t)port);
	}
	pid_t pid = fork();
	if (pid < 0)
		fail("loopback_ports", NULL);
	if (!pid)
		serve_ports();
	while (count)
		close(listening[--count].fd);
}
