/* Extended attributes. Those of users only: what the system keeps in such (capabilities of programs, access lists) is the host's. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MOST 65536

/* By way of the working directory: no call takes a directory and a name, and a descriptor would need the right to read. */
static const char *go_to(struct node *node)
{
	const char *name = ".";
	int directory = node == node_root() ? node_directory(node) : node_place(node, &name);
	return directory < 0 || fchdir(directory) ? NULL : name;
}

static bool is_users(const char *name)
{
	errno = EOPNOTSUPP;
	return !strncmp(name, "user.", 5);
}

static void answer_sized(ssize_t got, size_t wanted, const char *buffer)
{
	struct fuse_getxattr_out out = {.size = (uint32_t)got};
	if (got < 0)
		failed();
	else if (wanted)
		answer(0, buffer, (size_t)got);
	else
		answer(0, &out, sizeof out);
}

void get_attribute(struct node *node, const struct fuse_getxattr_in *in, const char *name, char *buffer)
{
	const char *file = is_users(name) ? go_to(node) : NULL;
	answer_sized(file ? lgetxattr(file, name, buffer, in->size < MOST ? in->size : MOST) : -1, in->size, buffer);
}

void list_attributes(struct node *node, const struct fuse_getxattr_in *in, char *buffer)
{
	const char *file = go_to(node);
	ssize_t got = file ? llistxattr(file, buffer, MOST) : -1, kept = 0;
	for (ssize_t at = 0; at < got;) {
		size_t size = strlen(buffer + at) + 1;
		if (is_users(buffer + at)) {
			memmove(buffer + kept, buffer + at, size);
			kept += (ssize_t)size;
		}
		at += (ssize_t)size;
	}
	if (in->size && kept > (ssize_t)in->size)
		got = -1, errno = ERANGE;
	answer_sized(got < 0 ? -1 : kept, in->size, buffer);
}

void set_attribute(struct node *node, const struct fuse_setxattr_in *in, const char *name, size_t size)
{
	size_t before = strlen(name) + 1;
	const char *file = is_users(name) ? go_to(node) : NULL;
	if (file && (size < before || in->size > size - before))
		file = NULL, errno = EINVAL;
	done(file && !lsetxattr(file, name, name + before, in->size, (int)in->flags));
}

void remove_attribute(struct node *node, const char *name)
{
	const char *file = is_users(name) ? go_to(node) : NULL;
	done(file && !lremovexattr(file, name));
}
