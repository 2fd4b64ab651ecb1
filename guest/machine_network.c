/* The machine's network: one card, at whose other end QEMU opens ordinary sockets in the room. Addresses are those of its user-mode
 * network; every name server that the room has is reached through it. */
#define _GNU_SOURCE
#include "machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#define CARD "eth0"
#define LOOPBACK 1

struct request {
	struct nlmsghdr head;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg address;
		struct rtmsg route;
	};
	char attributes[128];
};

static void add_attribute(struct request *request, unsigned short type, const void *data, size_t size)
{
	struct rtattr *attribute = (void *)((char *)request + NLMSG_ALIGN(request->head.nlmsg_len));
	*attribute = (struct rtattr){(unsigned short)RTA_LENGTH(size), type};
	memcpy(RTA_DATA(attribute), data, size);
	request->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(request->head.nlmsg_len) + RTA_ALIGN(attribute->rta_len));
}

static void ask(struct request *request, const char *step)
{
	if (netlink_ask(&request->head, request->head.nlmsg_len))
		fail("network", step);
}

static void set_link(unsigned index, unsigned flags)
{
	struct request request = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.link), .nlmsg_type = RTM_NEWLINK},
				  .link = {.ifi_index = (int)index, .ifi_flags = flags, .ifi_change = IFF_UP}};
	ask(&request, "link");
}

static void address(unsigned index, int family, const char *text, unsigned char prefix)
{
	uint8_t bytes[16];
	size_t size = family == AF_INET ? 4 : 16;
	struct request request = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.address), .nlmsg_type = RTM_NEWADDR, .nlmsg_flags = NLM_F_CREATE},
		/* NODAD: nobody else is there, and waiting for them takes two seconds. */
		.address = {.ifa_family = (unsigned char)family, .ifa_prefixlen = prefix, .ifa_flags = IFA_F_NODAD, .ifa_index = index}};
	inet_pton(family, text, bytes);
	add_attribute(&request, IFA_LOCAL, bytes, size);
	add_attribute(&request, IFA_ADDRESS, bytes, size);
	ask(&request, text);
}

static void gateway(unsigned index, int family, const char *text)
{
	uint8_t bytes[16];
	uint32_t out = index;
	struct request request = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.route), .nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = NLM_F_CREATE},
		.route = {.rtm_family = (unsigned char)family, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT,
			  .rtm_scope = RT_SCOPE_UNIVERSE, .rtm_type = RTN_UNICAST}};
	inet_pton(family, text, bytes);
	add_attribute(&request, RTA_GATEWAY, bytes, family == AF_INET ? 4 : 16);
	add_attribute(&request, RTA_OIF, &out, sizeof out);
	ask(&request, text);
}

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

void machine_network(void)
{
	unsigned card = if_nametoindex(CARD);
	no_advertisements();
	set_link(LOOPBACK, IFF_UP);
	if (!card)
		errno = ENODEV, fail("network", CARD);
	set_link(card, IFF_UP);
	address(card, AF_INET, "10.0.2.15", 24);
	gateway(card, AF_INET, "10.0.2.2");
	address(card, AF_INET6, "fec0::15", 64);
	gateway(card, AF_INET6, "fec0::2");
}

void machine_network_off(void)
{
	set_link(if_nametoindex(CARD), 0);
}
