/* The network namespace: every address in the world is local to it ("AnyIP"), so there is nowhere for a packet to
 * go but to the sockets that are opened here and handed to the host. */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

#define LOOPBACK 1 /* the index of `lo` in every network namespace */
#define GATE_PORT 1

/* Where tproxy leads everything. Documentation addresses: a tenant that dials them on purpose is seen like any other,
 * and 127.0.0.1 stays wholly the tenant's own. */
static const uint8_t loopback4[4] = {127, 0, 0, 1}, loopback6[16] = {[15] = 1};
static const uint8_t room4[4] = {10, 0, 2, 2}, room6[16] = {0xfe, 0xc0, [15] = 2}; /* ROOM4, ROOM6 */
static const uint8_t gate4[4] = {192, 0, 2, 1};
static const uint8_t gate6[16] = {0x20, 0x01, 0x0d, 0xb8, [14] = 0xff, [15] = 0x01};

/* Sends one request, whose first member is its head, and waits for the answer. */
int netlink_ask(struct nlmsghdr *head, size_t size)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	head->nlmsg_len = (uint32_t)size;
	head->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	ssize_t n = -1;
	if (s >= 0 && send(s, head, size, 0) >= 0)
		n = recv(s, &answer, sizeof answer, 0);
	int saved = errno;
	close(s);
	errno = saved;
	if (n < 0)
		return -1;
	errno = n >= (ssize_t)(sizeof answer.head + sizeof(int)) && answer.head.nlmsg_type == NLMSG_ERROR
			? -answer.error.error : EPROTO;
	return errno ? -1 : 0;
}

static int loopback_up(void)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} message = {.head.nlmsg_type = RTM_NEWLINK,
		     .link = {.ifi_index = LOOPBACK, .ifi_flags = IFF_UP, .ifi_change = IFF_UP}};
	return netlink_ask(&message.head, sizeof message);
}

/* ip route add local default dev lo table local */
static int all_local(int family)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
		struct rtattr attribute;
		uint32_t index;
	} message = {.head = {.nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE},
		     .route = {.rtm_family = (unsigned char)family, .rtm_table = RT_TABLE_LOCAL,
			       .rtm_protocol = RTPROT_BOOT, .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL},
		     .attribute = {RTA_LENGTH(4), RTA_OIF},
		     .index = LOOPBACK};
	return netlink_ask(&message.head, sizeof message);
}

static int fresh = -2; /* -2: not tried */

/* /proc/sys is read-only here, rightly; a procfs mounted nowhere is the same namespace's, and gone when closed. */
static bool sysctl(const char *name, const char *value)
{
	int fd = open("/proc/sys", O_PATH | O_CLOEXEC), file = openat(fd, name, O_WRONLY | O_CLOEXEC);
	close(fd);
	if (file < 0 && fresh == -2) {
		int fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);
		if (fs >= 0 && !syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
			fresh = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
		close(fs);
	}
	if (file < 0 && fresh >= 0) {
		char path[128];
		snprintf(path, sizeof path, "sys/%s", name);
		file = openat(fresh, path, O_WRONLY | O_CLOEXEC);
	}
	bool done = file >= 0 && write(file, value, strlen(value)) > 0;
	if (file >= 0)
		close(file);
	return done;
}

static void keep(int fd, const char *kind, unsigned port)
{
	char *name = place.names[place.nsockets];
	if (port)
		snprintf(name, sizeof *place.names, "%s:%u", kind, port & 0xffff);
	else
		snprintf(name, sizeof *place.names, "%s", kind);
	place.sockets[place.nsockets++] = fd;
}

static int on(int fd, int level, int name)
{
	return setsockopt(fd, level, name, &(int){1}, sizeof(int));
}

static int open_socket(int family, int type, const void *address, unsigned port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (address)
		memcpy(family == AF_INET ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr, address, family == AF_INET ? 4 : 16);
	/* IP_TRANSPARENT: what tproxy asks of a socket. FREEBIND: answers may come from any address. */
	int failed = family == AF_INET
		? on(fd, IPPROTO_IP, IP_TRANSPARENT)
		: on(fd, IPPROTO_IPV6, IPV6_V6ONLY) || on(fd, IPPROTO_IPV6, IPV6_TRANSPARENT) ||
		  on(fd, IPPROTO_IPV6, IPV6_FREEBIND);
	if (type == SOCK_DGRAM)
		failed |= family == AF_INET ? on(fd, IPPROTO_IP, IP_PKTINFO) : on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
	if (failed || (family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
					 : bind(fd, (struct sockaddr *)&v6, sizeof v6)) ||
	    (type == SOCK_STREAM && listen(fd, 1024)))
		fail("sockets", NULL);
	return fd;
}

/* Listens on the ports that `key` of the set-up lists: at one address, or, where it is NULL, at every one. */
static void listen_on_ports(struct cbor setup, const char *key, const void *v4, const void *v6, bool six)
{
	struct cbor item;
	uint64_t n = 0, port;
	if (cbor_get(setup, key, &item) && !cbor_array(item, &n, &item))
		errno = EINVAL, fail(key, NULL);
	for (; n--; cbor_next(&item)) {
		if (!cbor_uint(item, &port) || !port || port > 65535 || place.nsockets + 4 > FDS_OUT)
			errno = EINVAL, fail(key, NULL);
		keep(open_socket(AF_INET, SOCK_STREAM, v4, (unsigned)port), v4 ? "lo4" : "tcp4", (unsigned)port);
		if (six)
			keep(open_socket(AF_INET6, SOCK_STREAM, v6, (unsigned)port), v6 ? "lo6" : "tcp6", (unsigned)port);
	}
}

void network(struct cbor setup)
{
	bool tap = make_tap(setup);
	loopback_up(); /* bubblewrap may have done so; whoever did, the routes below need it and tell */
	place.have_low_ports = sysctl("net/ipv4/ip_unprivileged_port_start", "0");
	sysctl("net/ipv6/conf/all/disable_ipv6", "0");
	sysctl("net/ipv6/conf/lo/disable_ipv6", "0");
	if (fresh >= 0)
		close(fresh); /* a writable /proc/sys */
	if (!place.network)
		return;
	if (place.framed && !place.carried)
		errno = EOPNOTSUPP, fail("network", NULL); /* sockets cannot cross a serial line */
	int probe = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool six = probe >= 0;
	close(probe);
	if (all_local(AF_INET) || (six && all_local(AF_INET6)))
		fail("routes", NULL);
	place.have_nft = !nft_tproxy(GATE_PORT, gate4, GATE_PORT, gate6);
	if (place.have_nft) {
		keep(open_socket(AF_INET, SOCK_STREAM, gate4, GATE_PORT), "tcp4", 0);
		if (six)
			keep(open_socket(AF_INET6, SOCK_STREAM, gate6, GATE_PORT), "tcp6", 0);
		/* tproxy leaves the loopback to tenants; of it, these ports are the host's. */
		listen_on_ports(setup, "loopback_ports", tap ? room4 : loopback4, tap ? room6 : loopback6, six);
	} else {
		/* A port that has no listener is refused by the kernel itself: less is seen, nothing gets out. */
		listen_on_ports(setup, "ports", NULL, NULL, six);
		listen_on_ports(setup, "loopback_ports", NULL, NULL, six);
	}
	keep(open_socket(AF_INET, SOCK_DGRAM, NULL, 53), "udp4", 0);
	if (six)
		keep(open_socket(AF_INET6, SOCK_DGRAM, NULL, 53), "udp6", 0);
}
