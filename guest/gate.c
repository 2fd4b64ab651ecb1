/* Where no socket can cross to the host: the guest accepts tenants' connections for the gate, and carries them as it carries those
 * that the host dials. Datagrams (DNS) go one by one. All of it is bounded: a tenant who opens too many connections loses them. */
#define _GNU_SOURCE
#include "job.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FIRST_ID (1ull << 48) /* the host counts its requests from 1 */
#define DATAGRAM_MOST 4096
#define BACKLOG (1u << 20)    /* of the main stream: above it, datagrams are lost */

/* Whom an answer goes to, and the address it must come from. The host sends it back as it got it. */
struct peer {
	struct sockaddr_in6 from; /* or a sockaddr_in */
	uint32_t size;
	uint8_t to[16];
};

static struct watch listeners[FDS_OUT];
static uint64_t last_id = FIRST_ID;

static void put_address(struct out *out, const char *key, const char *port_key, const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;
	char text[INET6_ADDRSTRLEN] = "";
	bool six = address->ss_family == AF_INET6;
	inet_ntop(address->ss_family, six ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, text, sizeof text);
	put_key_text(out, key, text);
	put_key_uint(out, port_key, ntohs(six ? v6->sin6_port : v4->sin_port));
}

static bool say_accepted(struct job *job, const char *name, int fd, const struct sockaddr_storage *from)
{
	struct sockaddr_storage to;
	socklen_t size = sizeof to;
	struct out out;
	if (getsockname(fd, (struct sockaddr *)&to, &size))
		return false;
	job_frame(job, &out, "accepted", 5);
	put_key_text(&out, "socket", name);
	put_address(&out, "address", "port", &to);
	put_address(&out, "from", "from_port", from);
	job_say(job, &out, NULL, 0);
	return true;
}

static void accept_ready(struct watch *w, uint32_t events)
{
	struct sockaddr_storage from;
	socklen_t size = sizeof from;
	(void)events;
	int fd = accept4(w->fd, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	struct job *job = host.queued < BACKLOG ? job_accepted(++last_id) : NULL;
	if (job && streams_dial(job, fd) && say_accepted(job, place.names[w - listeners], fd, &from)) {
		streams_start(job);
	} else if (job) {
		job->said = true; /* the host has not heard of it */
		dial_cancel(job);
	}
	close(fd);
}

/* The address that the query was sent to: all that the kernel adds, because nothing else was asked for. */
static void read_target(struct msghdr *msg, struct peer *peer)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	if (c && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
		memcpy(peer->to, &((struct in_pktinfo *)CMSG_DATA(c))->ipi_addr, 4);
	else if (c && c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
		memcpy(peer->to, &((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_addr, 16);
}

static void datagram_ready(struct watch *w, uint32_t events)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control;
	uint8_t data[DATAGRAM_MOST];
	struct peer peer = {0};
	struct iovec iov = {data, sizeof data};
	struct msghdr msg = {.msg_name = &peer.from, .msg_namelen = sizeof peer.from, .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = &control, .msg_controllen = sizeof control};
	struct out out;
	(void)events;
	ssize_t n = recvmsg(w->fd, &msg, MSG_DONTWAIT);
	if (n <= 0 || msg.msg_flags & MSG_TRUNC || host.queued >= BACKLOG)
		return;
	peer.size = msg.msg_namelen;
	read_target(&msg, &peer);
	frame_begin(&out);
	put_map(&out, 4);
	put_key_text(&out, "t", "datagram");
	put_key_text(&out, "socket", place.names[w - listeners]);
	put_text(&out, "peer");
	put_bytes(&out, &peer, sizeof peer);
	put_text(&out, "data");
	put_bytes(&out, data, (size_t)n);
	if (channel_send(&host, &out, NULL, 0))
		leave(1);
}

static void answer_from(int fd, struct peer *peer, const uint8_t *data, size_t size)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control = {0};
	bool six = peer->from.sin6_family == AF_INET6;
	struct iovec iov = {(void *)data, size};
	struct msghdr msg = {.msg_name = &peer->from, .msg_namelen = peer->size, .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_SPACE(six ? sizeof(struct in6_pktinfo) : sizeof(struct in_pktinfo))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = six ? IPPROTO_IPV6 : IPPROTO_IP;
	c->cmsg_type = six ? IPV6_PKTINFO : IP_PKTINFO;
	c->cmsg_len = CMSG_LEN(six ? sizeof(struct in6_pktinfo) : sizeof(struct in_pktinfo));
	if (six)
		memcpy(&((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_addr, peer->to, 16);
	else
		memcpy(&((struct in_pktinfo *)CMSG_DATA(c))->ipi_spec_dst, peer->to, 4);
	sendmsg(fd, &msg, MSG_DONTWAIT); /* a datagram may be lost */
}

/* The host's answer to a datagram. One that makes no sense is dropped. */
void gate_answer(struct cbor frame)
{
	struct cbor item;
	const uint8_t *raw, *data;
	size_t raw_size, size;
	struct peer peer;
	char *name = cbor_get_cstring(frame, "socket");
	if (name && cbor_get(frame, "peer", &item) && cbor_string(item, &raw, &raw_size) && raw_size == sizeof peer &&
	    cbor_get(frame, "data", &item) && cbor_string(item, &data, &size)) {
		memcpy(&peer, raw, sizeof peer);
		for (size_t i = 0; i < place.nsockets; i++)
			if (!strcmp(place.names[i], name) && !strncmp(name, "udp", 3) && peer.size <= sizeof peer.from)
				answer_from(listeners[i].fd, &peer, data, size);
	}
	free(name);
}

void gate_serve(void)
{
	for (size_t i = 0; i < place.nsockets; i++) {
		bool datagrams = !strncmp(place.names[i], "udp", 3);
		listeners[i] = (struct watch){.fd = place.sockets[i], .ready = datagrams ? datagram_ready : accept_ready};
		watch_set(&listeners[i], EPOLLIN);
		if (!listeners[i].events)
			leave(1);
	}
}
