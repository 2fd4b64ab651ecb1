/* Large reads and writes. A serial port moves four kilobytes at a time; a disk moves a request as a whole. So the machine has a
 * disk, whose server we are (the NBD protocol, of which QEMU speaks the other half): what is read at a place of that disk is
 * the content of an open file, and what is written to it, wherever, is a request. */
#define _GNU_SOURCE
#include "share.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPTION_MAGIC 0x49484156454f5054ull /* "IHAVEOPT" */
#define REPLY_MAGIC 0x0003e889045565a9ull
#define REQUEST_MAGIC 0x25609513u
#define ANSWER_MAGIC 0x67446698u
#define OPTION_GO 7
#define REPLY_DONE 1
#define REPLY_INFO 3
#define REPLY_UNKNOWN 0x80000001u
#define READ 0
#define WRITE 1
#define END 2
#define OPTION_MOST 4096
#define DISK_SIZE (1ull << 62)
#define OFFSET_BITS 42 /* also machine_files.c: above them the number of the open file */

static int disk;

struct packed {
	uint32_t high, low;
} __attribute__((packed));

static struct packed wide(uint64_t value)
{
	return (struct packed){htobe32((uint32_t)(value >> 32)), htobe32((uint32_t)value)};
}

static uint64_t value(struct packed from)
{
	return (uint64_t)be32toh(from.high) << 32 | be32toh(from.low);
}

static void reply_option(uint32_t option, uint32_t type, const void *body, uint32_t size)
{
	struct {
		struct packed magic;
		uint32_t option, type, size;
	} __attribute__((packed)) head = {wide(REPLY_MAGIC), htobe32(option), htobe32(type), htobe32(size)};
	wire_send(disk, &head, sizeof head, body, size);
}

/* Until QEMU is content: of what it may ask for, only the size of the disk is known here. */
static bool agree(void)
{
	struct {
		char magic[16];
		uint16_t flags;
	} __attribute__((packed)) hello = {.flags = htobe16(3)}; /* as of today; no padding */
	memcpy(hello.magic, "NBDMAGICIHAVEOPT", sizeof hello.magic);
	wire_send(disk, &hello, sizeof hello, NULL, 0);
	uint32_t flags;
	if (!wire_read(disk, &flags, sizeof flags))
		return false;
	for (;;) {
		char data[OPTION_MOST];
		struct {
			struct packed magic;
			uint32_t option, size;
		} __attribute__((packed)) asked;
		if (!wire_read(disk, &asked, sizeof asked) || value(asked.magic) != OPTION_MAGIC || be32toh(asked.size) > sizeof data ||
		    !wire_read(disk, data, be32toh(asked.size)))
			return false;
		if (be32toh(asked.option) != OPTION_GO) {
			reply_option(be32toh(asked.option), REPLY_UNKNOWN, NULL, 0);
			continue;
		}
		struct {
			uint16_t type;
			struct packed size;
			uint16_t flags;
		} __attribute__((packed)) export = {htobe16(0), wide(DISK_SIZE), htobe16(1)};
		struct {
			uint16_t type;
			uint32_t least, preferred, most;
		} __attribute__((packed)) sizes = {htobe16(3), htobe32(512), htobe32(4096), htobe32(REQUEST_MOST)};
		reply_option(OPTION_GO, REPLY_INFO, &export, sizeof export);
		reply_option(OPTION_GO, REPLY_INFO, &sizes, sizeof sizes);
		reply_option(OPTION_GO, REPLY_DONE, NULL, 0);
		return true;
	}
}

bool bytes_begin(int stream)
{
	disk = stream;
	return agree();
}

static void serve_read(uint64_t cookie, uint64_t offset, uint32_t size, char *buffer, bool system)
{
	struct {
		uint32_t magic, error;
		uint64_t cookie;
	} __attribute__((packed)) head = {htobe32(ANSWER_MAGIC), 0, cookie};
	uint64_t key = offset >> OFFSET_BITS;
	size_t have = 0;
	if (key) {
		int fd = readable(key, system);
		ssize_t got = fd < 0 ? -1 : pread(fd, buffer, size, (off_t)(offset & ((1ull << OFFSET_BITS) - 1)));
		if (got < 0) {
			head.error = htobe32(EIO); /* the machine then asks by a request, and is told more */
			wire_send(disk, &head, sizeof head, NULL, 0);
			return;
		}
		have = (size_t)got;
	} /* else the kernel looks for partitions */
	memset(buffer + have, 0, size - have);
	wire_send(disk, &head, sizeof head, buffer, size);
}

/* One request of QEMU's. False when there is none any more. */
bool bytes_serve(char *request, char *buffer, bool system, void (*handle)(char *message, size_t size))
{
	struct {
		uint32_t magic;
		uint16_t flags, type;
		uint64_t cookie;
		struct packed offset;
		uint32_t size;
	} __attribute__((packed)) asked;
	if (!wire_read(disk, &asked, sizeof asked) || be32toh(asked.magic) != REQUEST_MAGIC)
		return false;
	uint16_t type = be16toh(asked.type);
	uint32_t size = be32toh(asked.size);
	if (type == END || size > REQUEST_MOST)
		return false;
	struct {
		uint32_t magic, error;
		uint64_t cookie;
	} __attribute__((packed)) good = {htobe32(ANSWER_MAGIC), 0, asked.cookie};
	if (type == READ) {
		serve_read(asked.cookie, value(asked.offset), size, buffer, system);
	} else if (type == WRITE) {
		if (!wire_read(disk, request, size))
			return false;
		wire_send(disk, &good, sizeof good, NULL, 0);
		handle(request, size);
	} else {
		good.error = htobe32(EINVAL);
		wire_send(disk, &good, sizeof good, NULL, 0);
	}
	return true;
}
