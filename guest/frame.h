/* Frames on a stream, in both directions, without ever blocking. */
#ifndef GUEST_FRAME_H
#define GUEST_FRAME_H

#include "cbor.h"

#define FRAME_MOST (4u << 20)  /* bytes of one frame */
#define FDS_OUT 250            /* descriptors of one frame sent; the kernel's own bound is 253 */
#define FDS_IN 8               /* and of one received: no request has more than four */
#define QUEUE_MOST (12u << 20) /* bytes waiting for a host that does not read */

struct queued;

struct channel {
	int fd;
	int out;      /* where we write: `fd`, but for a pair of pipes */
	bool crosses; /* descriptors can cross: a Unix socket */
	/* the frame that is coming in */
	uint8_t head[4];
	size_t got; /* bytes of head and body so far */
	size_t size;
	uint8_t *body;
	size_t room;
	int fds[FDS_IN];
	size_t nfds;
	/* the frames that are going out */
	struct queued *first, **last;
	size_t queued;
};

void channel_open(struct channel *ch, int fd, bool crosses);
void channel_close(struct channel *ch);
void channel_write_to(struct channel *ch, int fd); /* framed: for pipes, which have one direction each */

/* 1: `frame` is there, until channel_done(); 0: not yet; -1: the end, or a broken frame. */
int channel_read(struct channel *ch, struct cbor *frame);
void channel_done(struct channel *ch);

/* Makes descriptor number `i` of the frame the caller's own. */
int channel_take(struct channel *ch, size_t i);

/* Begins and sends a frame. Sending owns the buffer but not the descriptors. -1 when the other side is gone, or
 * has let more than QUEUE_MOST pile up. */
void frame_begin(struct out *out);
int channel_send(struct channel *ch, struct out *out, const int *fds, size_t nfds);
int channel_flush(struct channel *ch);

#endif
