/* Network cards, their addresses and routes: what `ip` does, said to the kernel directly. What does not work ends the set-up. */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

struct request {
	struct nlmsghdr head;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg address;
		struct rtmsg route;
		struct fib_rule_hdr rule;
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

void link_set(unsigned index, unsigned flags)
{
	struct request request = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.link), .nlmsg_type = RTM_NEWLINK},
				  .link = {.ifi_index = (int)index, .ifi_flags = flags, .ifi_change = IFF_UP}};
	ask(&request, "link");
}

void link_address(unsigned index, int family, const char *text, unsigned char prefix)
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

void link_gateway(unsigned index, int family, const char *text)
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

/* A single address beyond a card. In the local table: there, in a room, every address is the room's own. */
void link_neighbour(unsigned index, int family, const char *text)
{
	uint8_t bytes[16];
	uint32_t out = index;
	size_t size = family == AF_INET ? 4 : 16;
	struct request request = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.route), .nlmsg_type = RTM_NEWROUTE,
			 .nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE},
		.route = {.rtm_family = (unsigned char)family, .rtm_dst_len = (unsigned char)(size * 8), .rtm_table = RT_TABLE_LOCAL,
			  .rtm_protocol = RTPROT_BOOT, .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST}};
	inet_pton(family, text, bytes);
	add_attribute(&request, RTA_DST, bytes, size);
	add_attribute(&request, RTA_OIF, &out, sizeof out);
	ask(&request, text);
}

/* Every address is this machine's own, for what is sent to this table. */
void link_all_local(int family, unsigned char table)
{
	uint32_t loopback = 1;
	struct request request = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.route), .nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = NLM_F_CREATE},
		.route = {.rtm_family = (unsigned char)family, .rtm_table = table, .rtm_protocol = RTPROT_BOOT,
			  .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL}};
	add_attribute(&request, RTA_OIF, &loopback, sizeof loopback);
	ask(&request, "local");
}

/* Where a protocol's packets are looked up, to one port or (0) to all; a rule with a smaller `priority` comes first. */
void link_rule(int family, uint32_t priority, uint8_t protocol, uint16_t port, unsigned char table)
{
	struct fib_rule_port_range ports = {port, port};
	struct request request = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.rule), .nlmsg_type = RTM_NEWRULE, .nlmsg_flags = NLM_F_CREATE},
		.rule = {.family = (unsigned char)family, .table = table, .action = FR_ACT_TO_TBL}};
	add_attribute(&request, FRA_PRIORITY, &priority, sizeof priority);
	add_attribute(&request, FRA_IP_PROTO, &protocol, sizeof protocol);
	if (port)
		add_attribute(&request, FRA_DPORT_RANGE, &ports, sizeof ports);
	ask(&request, "rule");
}
