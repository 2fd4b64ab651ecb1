/* The nftables rules, said to the kernel directly:
 *
 *   table inet gate { chain prerouting { type filter hook prerouting priority mangle;
 *     ip daddr 127.0.0.0/8 accept                      loopback is the tenant's own
 *     ip6 daddr ::1 accept
 *     meta l4proto tcp socket wildcard 0 accept        a connection that exists, or a listener on that very address
 *     meta nfproto ipv4 meta l4proto tcp tproxy ip to 192.0.2.1:1 accept
 *     meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [2001:db8::ff01]:1 accept
 *   } }
 */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define INET 1          /* NFPROTO_INET; <linux/netfilter.h> does not mix with <netinet/in.h> */
#define IPV4 2
#define IPV6 10
#define PREROUTING 0
#define MANGLE (-150)
#define ACCEPT 1        /* NF_ACCEPT */
#define TCP 6

struct batch {
	char data[4096];
	size_t size;
	uint32_t messages;
};

/* Room for `size` bytes, padded to four as netlink wants it. The batch is a constant and fits; one that did not, after a
 * change here, ends the set-up instead of writing beyond the buffer. */
static void *room(struct batch *b, size_t size)
{
	if (size > sizeof b->data || NLMSG_ALIGN(size) > sizeof b->data - b->size)
		errno = ENOBUFS, fail("nft", NULL);
	void *at = b->data + b->size;
	b->size += NLMSG_ALIGN(size);
	return at;
}

static size_t message(struct batch *b, uint16_t type, uint16_t flags, uint8_t family, uint16_t resource)
{
	size_t start = b->size;
	struct nlmsghdr *head = room(b, sizeof *head);
	*head = (struct nlmsghdr){.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = b->messages++};
	struct nfgenmsg *generic = room(b, sizeof *generic);
	*generic = (struct nfgenmsg){.nfgen_family = family, .res_id = htons(resource)};
	return start;
}

static void message_end(struct batch *b, size_t start)
{
	((struct nlmsghdr *)(void *)(b->data + start))->nlmsg_len = (uint32_t)(b->size - start);
}

static void attribute(struct batch *b, uint16_t type, const void *data, size_t size)
{
	struct nlattr *a = room(b, NLA_HDRLEN);
	*a = (struct nlattr){.nla_len = (uint16_t)(NLA_HDRLEN + size), .nla_type = type};
	memcpy(room(b, size), data, size);
}

static void text(struct batch *b, uint16_t type, const char *s) { attribute(b, type, s, strlen(s) + 1); }
static void number(struct batch *b, uint16_t type, uint32_t n) { attribute(b, type, &(uint32_t){htonl(n)}, 4); }

static size_t nest(struct batch *b, uint16_t type)
{
	size_t start = b->size;
	attribute(b, type | NLA_F_NESTED, "", 0);
	return start;
}

static void nest_end(struct batch *b, size_t start)
{
	((struct nlattr *)(void *)(b->data + start))->nla_len = (uint16_t)(b->size - start);
}

/* One expression of a rule is open between these two; `data` is its inner nest. */
struct expression { size_t element, data; };

static struct expression expression(struct batch *b, const char *name)
{
	struct expression e;
	e.element = nest(b, NFTA_LIST_ELEM);
	text(b, NFTA_EXPR_NAME, name);
	e.data = nest(b, NFTA_EXPR_DATA);
	return e;
}

static void expression_end(struct batch *b, struct expression e)
{
	nest_end(b, e.data);
	nest_end(b, e.element);
}

static void value(struct batch *b, uint16_t type, const void *data, size_t size)
{
	size_t inner = nest(b, type);
	attribute(b, NFTA_DATA_VALUE, data, size);
	nest_end(b, inner);
}

static void equals(struct batch *b, const void *data, size_t size)
{
	struct expression e = expression(b, "cmp");
	number(b, NFTA_CMP_SREG, NFT_REG_1);
	number(b, NFTA_CMP_OP, NFT_CMP_EQ);
	value(b, NFTA_CMP_DATA, data, size);
	expression_end(b, e);
}

static void meta(struct batch *b, uint32_t key, uint8_t wanted)
{
	struct expression e = expression(b, "meta");
	number(b, NFTA_META_KEY, key);
	number(b, NFTA_META_DREG, NFT_REG_1);
	expression_end(b, e);
	equals(b, &wanted, 1);
}

static void destination(struct batch *b, uint32_t offset, const void *wanted, uint32_t size)
{
	struct expression e = expression(b, "payload");
	number(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
	number(b, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
	number(b, NFTA_PAYLOAD_OFFSET, offset);
	number(b, NFTA_PAYLOAD_LEN, size);
	expression_end(b, e);
	equals(b, wanted, size);
}

static void load(struct batch *b, uint32_t reg, const void *data, size_t size)
{
	struct expression e = expression(b, "immediate");
	number(b, NFTA_IMMEDIATE_DREG, reg);
	value(b, NFTA_IMMEDIATE_DATA, data, size);
	expression_end(b, e);
}

static void accept_it(struct batch *b)
{
	struct expression e = expression(b, "immediate");
	number(b, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	size_t data = nest(b, NFTA_IMMEDIATE_DATA), verdict = nest(b, NFTA_DATA_VERDICT);
	number(b, NFTA_VERDICT_CODE, ACCEPT);
	nest_end(b, verdict);
	nest_end(b, data);
	expression_end(b, e);
}

static void tproxy(struct batch *b, uint32_t family, const uint8_t *address, size_t size, uint16_t port)
{
	load(b, NFT_REG_1, address, size);
	load(b, NFT_REG_2, &(uint16_t){htons(port)}, 2);
	struct expression e = expression(b, "tproxy");
	number(b, NFTA_TPROXY_FAMILY, family);
	number(b, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
	number(b, NFTA_TPROXY_REG_PORT, NFT_REG_2);
	expression_end(b, e);
}

static uint16_t kind(int type) { return (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type); }

struct rule { size_t message, expressions; };

static struct rule rule(struct batch *b)
{
	struct rule r;
	r.message = message(b, kind(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, INET, 0);
	text(b, NFTA_RULE_TABLE, "gate");
	text(b, NFTA_RULE_CHAIN, "prerouting");
	r.expressions = nest(b, NFTA_RULE_EXPRESSIONS);
	return r;
}

static void rule_end(struct batch *b, struct rule r)
{
	accept_it(b);
	nest_end(b, r.expressions);
	message_end(b, r.message);
}

static void table_and_chain(struct batch *b)
{
	size_t m = message(b, kind(NFT_MSG_NEWTABLE), NLM_F_CREATE | NLM_F_ACK, INET, 0);
	text(b, NFTA_TABLE_NAME, "gate");
	message_end(b, m);
	m = message(b, kind(NFT_MSG_NEWCHAIN), NLM_F_CREATE | NLM_F_ACK, INET, 0);
	text(b, NFTA_CHAIN_TABLE, "gate");
	text(b, NFTA_CHAIN_NAME, "prerouting");
	size_t hook = nest(b, NFTA_CHAIN_HOOK);
	number(b, NFTA_HOOK_HOOKNUM, PREROUTING);
	number(b, NFTA_HOOK_PRIORITY, (uint32_t)MANGLE);
	nest_end(b, hook);
	text(b, NFTA_CHAIN_TYPE, "filter");
	message_end(b, m);
}

static void rules(struct batch *b, uint16_t port4, const uint8_t *address4, uint16_t port6, const uint8_t *address6)
{
	struct rule r = rule(b);
	meta(b, NFT_META_NFPROTO, IPV4);
	destination(b, 16, &(uint8_t){127}, 1);
	rule_end(b, r);

	r = rule(b);
	meta(b, NFT_META_NFPROTO, IPV6);
	destination(b, 24, (uint8_t[16]){[15] = 1}, 16);
	rule_end(b, r);

	r = rule(b);
	meta(b, NFT_META_L4PROTO, TCP);
	struct expression e = expression(b, "socket");
	number(b, NFTA_SOCKET_KEY, NFT_SOCKET_WILDCARD);
	number(b, NFTA_SOCKET_DREG, NFT_REG_1);
	expression_end(b, e);
	equals(b, &(uint8_t){0}, 1);
	rule_end(b, r);

	r = rule(b);
	meta(b, NFT_META_NFPROTO, IPV4);
	meta(b, NFT_META_L4PROTO, TCP);
	tproxy(b, IPV4, address4, 4, port4);
	rule_end(b, r);

	r = rule(b);
	meta(b, NFT_META_NFPROTO, IPV6);
	meta(b, NFT_META_L4PROTO, TCP);
	tproxy(b, IPV6, address6, 16, port6);
	rule_end(b, r);
}

/* Waits until every message that asked for it is acknowledged. */
static int acknowledged(int s, uint32_t wanted)
{
	while (wanted) {
		char answer[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
		ssize_t n = recv(s, answer, sizeof answer, 0);
		if (n <= 0)
			return -1;
		size_t left = (size_t)n;
		for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			int error = ((struct nlmsgerr *)NLMSG_DATA(h))->error;
			if (error) {
				errno = -error;
				return -1;
			}
			wanted--;
		}
	}
	return 0;
}

int nft_tproxy(uint16_t port4, const uint8_t address4[4], uint16_t port6, const uint8_t address6[16])
{
	struct batch b = {0};
	message_end(&b, message(&b, NFNL_MSG_BATCH_BEGIN, 0, 0, NFNL_SUBSYS_NFTABLES));
	table_and_chain(&b);
	rules(&b, port4, address4, port6, address6);
	uint32_t wanted = b.messages - 1;
	message_end(&b, message(&b, NFNL_MSG_BATCH_END, 0, 0, NFNL_SUBSYS_NFTABLES));

	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	if (s < 0)
		return -1;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 5}, sizeof(struct timeval));
	int result = send(s, b.data, b.size, 0) < 0 ? -1 : acknowledged(s, wanted);
	close(s);
	return result;
}
