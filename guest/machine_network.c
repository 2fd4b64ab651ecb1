/* The machine's network: one card, at whose other end QEMU opens ordinary sockets in the room. Addresses are those of its user-mode
 * network; every name server that the room has is reached through it. */
#define _GNU_SOURCE
#include "machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
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
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	request->head.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	if (s < 0 || send(s, request, request->head.nlmsg_len, 0) < 0 || recv(s, &answer, sizeof answer, 0) < 0)
		fail("network", step);
	close(s);
	errno = answer.head.nlmsg_type == NLMSG_ERROR ? -answer.error.error : EPROTO;
	if (errno)
		fail("network", step);
}

static void up(unsigned index)
{
	struct request request = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.link), .nlmsg_type = RTM_NEWLINK},
				  .link = {.ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP}};
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

void machine_network(void)
{
	unsigned card = if_nametoindex(CARD);
	up(LOOPBACK);
	if (!card || !place.network)
		return;
	up(card);
	address(card, AF_INET, "10.0.2.15", 24);
	gateway(card, AF_INET, "10.0.2.2");
	address(card, AF_INET6, "fec0::15", 64);
	gateway(card, AF_INET6, "fec0::2");
}
