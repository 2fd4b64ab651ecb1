/* The machine's network: one card, at whose other end QEMU opens ordinary sockets in the room, or the room's own
 * card is (tap.c). Addresses are those of QEMU's user-mode network; every name server that the room has is reached through it. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#define CARD "eth0"
#define LOOPBACK 1
#define NOWHERE 100 /* a table of routes */

/* Nobody there knows better than we what the routes are. */
static void no_advertisements(void)
{
	int fd = open("/proc/sys/net/ipv6/conf/" CARD "/accept_ra", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "0", 1) != 1)
			fail("network", "accept_ra");
		close(fd);
	}
}

/* QEMU's network says nothing when the room refuses a datagram over IPv6, and whoever sent it would wait. Nothing but a question to
 * a name server has anywhere to go: it is refused here, as in the room, where every address is local and has no listener. */
static void refuse_datagrams(void)
{
	link_all_local(AF_INET6, NOWHERE);
	link_rule(AF_INET6, 1, IPPROTO_UDP, 53, RT_TABLE_MAIN);
	link_rule(AF_INET6, 2, IPPROTO_UDP, 0, NOWHERE);
}

void machine_network(void)
{
	unsigned card = if_nametoindex(CARD);
	no_advertisements();
	link_set(LOOPBACK, IFF_UP);
	if (!card)
		errno = ENODEV, fail("network", CARD);
	link_set(card, IFF_UP);
	link_address(card, AF_INET, MACHINE4, 24);
	link_gateway(card, AF_INET, ROOM4);
	link_address(card, AF_INET6, MACHINE6, 64);
	link_gateway(card, AF_INET6, ROOM6);
	refuse_datagrams();
}

void machine_network_off(void)
{
	link_set(if_nametoindex(CARD), 0);
}
