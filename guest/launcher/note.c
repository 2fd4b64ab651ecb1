/* A note for a command that was wrapped before somebody knew where it would run: protocol.md has its forms. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 60 }; /* seconds that a sandbox may take to start */

/* Its text; NULL when there is no note. */
static const char *read_note(const char *note)
{
	static char text[PATH_MAX + 1];
	int fd = open(note, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno != ENOENT)
		give_up("where this command is to run cannot be read");
	if (fd < 0)
		return NULL;
	ssize_t size = read(fd, text, PATH_MAX);
	if (size < 0)
		give_up("where this command is to run cannot be read");
	text[size] = 0;
	close(fd);
	return text;
}

/* Notes change by a rename onto them, and disappear with their directory at the latest. */
static int watch_directory_of(const char *note)
{
	char directory[PATH_MAX];
	const char *name = strrchr(note, '/');
	int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (!name || (size_t)(name - note) >= sizeof directory)
		give_up("the note's path makes no sense");
	memcpy(directory, note, (size_t)(name - note));
	directory[name - note] = 0;
	if (changes < 0)
		give_up("this command has to wait for its sandbox, and cannot: no inotify instance is left (fs.inotify.max_user_instances)");
	if (inotify_add_watch(changes, directory, IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF) < 0 && errno != ENOENT)
		give_up("this command has to wait for its sandbox, and cannot: no inotify watch is left (fs.inotify.max_user_watches)");
	return changes;
}

static long milliseconds_until(const struct timespec *end)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
}

/* Returns its text once there is one; NULL when the note was taken away. */
static const char *await_text(const char *note, int parent)
{
	char events[4096];
	const char *text;
	struct timespec end;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += PATIENCE;
	int changes = watch_directory_of(note);
	while ((text = read_note(note)) && !*text) {
		struct pollfd polls[] = {{changes, POLLIN, 0}, {parent, POLLIN, 0}};
		long left = milliseconds_until(&end);
		if (left <= 0)
			give_up("the sandbox for this command alone did not start within 60 seconds");
		poll(polls, 2, (int)left);
		if (polls[1].revents)
			_exit(OUR_ERROR);
		while (read(changes, events, sizeof events) > 0)
			;
	}
	close(changes);
	return text;
}

/* The socket that the note leads to, or `socket` when there is no note. */
const char *follow(const char *note, const char *socket, int parent)
{
	const char *text = note ? read_note(note) : NULL;
	if (text && !*text)
		text = await_text(note, parent);
	if (!text)
		return socket;
	if (*text != '/')
		give_up(text);
	return text;
}
