/* The conversation with the sandbox's owner: protocol.md. */
#define _GNU_SOURCE
#include "launcher.h"

#include "../cbor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROOM = PATH_MAX + 4096 }; /* for everything in a request but its variables; a longer command makes it grow */

extern char **environ;

/* By the directory's descriptor: the path itself may be longer than an address. */
int reach(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *name = strrchr(path, '/');
	char directory[PATH_MAX];
	if (!name || (size_t)(name - path) >= sizeof directory)
		give_up("the socket's path makes no sense");
	memcpy(directory, path, (size_t)(name - path));
	directory[name - path] = 0;
	int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/%.64s", at, name + 1);
	if (at < 0 || server < 0 || connect(server, (struct sockaddr *)&to, sizeof to))
		give_up("the sandbox is not there any more");
	close(at);
	return server;
}

static void put_strings(struct out *out, const char *key, char **strings)
{
	uint64_t count = 0;
	while (strings[count])
		count++;
	put_text(out, key);
	put_array(out, count);
	for (; *strings; strings++)
		put_bytes(out, *strings, strlen(*strings));
}

/* All variables as one string, each ended by a NUL: most launches have the same, and one comparison shows it. */
static size_t environment_size(void)
{
	size_t size = 0;
	for (char **each = environ; *each; each++)
		size += strlen(*each) + 1;
	return size;
}

/* In one step: growing it would take as many system calls as all the rest. */
static struct out room_for(size_t size)
{
	struct out made = {.data = malloc(size), .room = size};
	if (!made.data)
		give_up("out of memory");
	return made;
}

static void put_environment(struct out *out, size_t size)
{
	put_text(out, "env");
	put_bytes_head(out, size);
	for (char **each = environ; *each; each++)
		put_raw(out, *each, strlen(*each) + 1);
}

static void put_key_bytes(struct out *out, const char *key, const char *value)
{
	put_text(out, key);
	put_bytes(out, value, strlen(value));
}

/* Of all descriptors a tenant may get only an anonymous pipe: through any other it could reach something of the host's. And it
 * should: we must not read lines that are meant for whoever reads after the command. */
static bool anonymous_pipe(const struct stat *st)
{
	char target[16];
	ssize_t size = readlink("/proc/self/fd/0", target, sizeof target);
	return S_ISFIFO(st->st_mode) && size > 5 && !memcmp(target, "pipe:", 5);
}

static bool null_device(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* On a terminal whose foreground we are; in the background, reading it would stop us. */
static bool on_terminal(bool *behind)
{
	*behind = isatty(0) && tcgetpgrp(0) != getpgrp();
	return isatty(0) && isatty(1) && !*behind;
}

static void put_terminal(struct out *out)
{
	struct winsize size = {0};
	ioctl(0, TIOCGWINSZ, &size);
	put_text(out, "pty");
	put_map(out, 2);
	put_key_uint(out, "rows", size.ws_row ? size.ws_row : 24);
	put_key_uint(out, "cols", size.ws_col ? size.ws_col : 80);
}

static void send_frame(int server, struct out *body, int fd)
{
	uint32_t size = (uint32_t)body->size;
	struct iovec parts[] = {{&size, sizeof size}, {body->data, body->size}};
	union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {0};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	if (fd >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof control.room;
		struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(rights), &fd, sizeof fd);
	}
	ssize_t sent = sendmsg(server, &message, MSG_NOSIGNAL);
	for (size_t done = sent < 4 ? SIZE_MAX : (size_t)sent - 4; done < body->size; done += (size_t)sent)
		if ((sent = send(server, body->data + done, body->size - done, MSG_NOSIGNAL)) < 0)
			break;
	if (sent < 0)
		give_up("the sandbox has ended");
}

/* Asks for the command, and says in `streams` what will come back. */
void ask(int server, const char *label, char **argv, struct streams *streams)
{
	size_t variables = environment_size();
	struct out body = room_for(variables + ROOM);
	struct stat in, out, err;
	char cwd[PATH_MAX];
	bool behind;
	mode_t mask = umask(0);
	umask(mask);
	if (fstat(0, &in))
		give_up("there is no standard input");
	if (!getcwd(cwd, sizeof cwd))
		give_up("the working directory is gone");
	streams->terminal = on_terminal(&behind);
	bool given = anonymous_pipe(&in);
	bool nothing = behind || null_device(&in);
	bool merged = !fstat(1, &out) && !fstat(2, &err) && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
	put_map(&body, 8 + (streams->terminal ? 1 : 0) + (given ? 1 : 0));
	put_key_text(&body, "t", "launch");
	put_key_bytes(&body, "label", label);
	put_strings(&body, "argv", argv);
	put_environment(&body, variables);
	put_key_bytes(&body, "cwd", cwd);
	put_key_uint(&body, "umask", mask);
	put_key_text(&body, "stdin", nothing ? "null" : given ? "given" : "relayed");
	put_key_bool(&body, "merged", merged);
	if (streams->terminal)
		put_terminal(&body);
	if (given)
		put_key_uint(&body, "fds", 1);
	if (body.failed)
		give_up("out of memory");
	send_frame(server, &body, given ? 0 : -1);
	free(body.data);
	/* In this order on the wire; 0 stands for "one will come". */
	streams->in = streams->terminal || given || nothing ? -1 : 0;
	streams->out = 0;
	streams->err = streams->terminal || merged ? -1 : 0;
}

static bool exactly(int server, void *to, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = recv(server, (char *)to + got, size - got, 0);
		if (n <= 0 && !(n < 0 && errno == EINTR))
			return false;
		got += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* The next answer; false at the end of the connection. Why a command never ran is printed here. */
bool hear(int server, struct answer *answer, int fds[3], int *count)
{
	struct { char kind, zero[3]; int32_t value; } said;
	union { char room[CMSG_SPACE(3 * sizeof(int))]; struct cmsghdr align; } control;
	struct iovec part = {&said, sizeof said};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	ssize_t n;
	while ((n = recvmsg(server, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	if (n <= 0 || ((size_t)n < sizeof said && !exactly(server, (char *)&said + n, sizeof said - (size_t)n)))
		return false;
	*count = 0;
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	if (rights && rights->cmsg_type == SCM_RIGHTS) {
		*count = (int)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(rights), (size_t)*count * sizeof(int));
	}
	*answer = (struct answer){said.kind, said.value};
	uint32_t size;
	char text[4096];
	if (said.kind == 'F' && exactly(server, &size, sizeof size) && size <= sizeof text && exactly(server, text, size))
		fprintf(stderr, "sandbox: %.*s\n", (int)size, text);
	return true;
}

void tell_signal(int server, int number)
{
	struct { char kind, zero[3]; int32_t value; } said = {'G', {0}, number};
	send(server, &said, sizeof said, MSG_NOSIGNAL);
}
