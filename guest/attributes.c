/* Extended attributes of files, the `user.` ones alone: with a tenant's rights, in the process of a helper. */
#define _GNU_SOURCE
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES_MOST 65536 /* as the kernel has it */
#define VALUE_MOST 4096  /* a longer value is left out */
#define FILE_MOST 65536  /* bytes of one file's, then the rest is left out */
#define ANSWER_MOST (FRAME_MOST - 2 * FILE_MOST)
#define OURS "user."

/* The calls for attributes take no descriptor that only names a file; the link in /proc is this process's own. */
struct link {
	char path[32];
};

static struct link link_of(int fd)
{
	struct link found;
	snprintf(found.path, sizeof found.path, "/proc/self/fd/%d", fd);
	return found;
}

/* Appends [name, value] for each attribute whose name begins with `prefix`; how many those were. A file system without
 * attributes has none. */
static uint64_t put_attributes(struct out *out, int fd, const char *prefix)
{
	static char names[NAMES_MOST];
	char value[VALUE_MOST];
	struct link file = link_of(fd);
	uint64_t n = 0;
	ssize_t size = listxattr(file.path, names, sizeof names);
	size_t most = out->size + FILE_MOST;
	for (char *name = names; size > 0 && name < names + size && out->size < most; name += strlen(name) + 1) {
		if (strncmp(name, prefix, strlen(prefix)))
			continue;
		ssize_t got = getxattr(file.path, name, value, sizeof value);
		if (got < 0)
			continue;
		put_array(out, 2);
		put_bytes(out, name, strlen(name));
		put_bytes(out, value, (size_t)got);
		n++;
	}
	return n;
}

/* Appends [file, [[name, value], …]] for each regular file in a directory that has any; how many those were. */
static uint64_t put_below(struct out *out, DIR *dir, const char *prefix, bool *cut)
{
	uint64_t n = 0;
	for (struct dirent *e; !*cut && (e = readdir(dir));) {
		struct stat st;
		struct out found = {0};
		int fd = openat(dirfd(dir), e->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			continue;
		uint64_t count = fstat(fd, &st) || !S_ISREG(st.st_mode) ? 0 : put_attributes(&found, fd, prefix);
		close(fd);
		if (!count)
			continue;
		put_array(out, 2);
		put_bytes(out, e->d_name, strlen(e->d_name));
		put_array(out, count);
		put_raw(out, found.data, found.size);
		out->failed |= found.failed;
		free(found.data);
		n++;
		*cut = out->size > ANSWER_MOST;
	}
	return n;
}

bool do_attributes(struct cbor q, const char *path, struct answer *a)
{
	struct out found = {0};
	uint64_t n;
	bool below, cut = false;
	char *prefix = cbor_get_cstring(q, "prefix");
	if (!prefix || !cbor_get_bool(q, "below", false, &below))
		return false;
	if (strncmp(prefix, OURS, strlen(OURS))) {
		errno = EPERM;
		return false;
	}
	int fd = below ? open_path(path, O_RDONLY | O_DIRECTORY, 0) : open_name(path, 0);
	DIR *dir = fd >= 0 && below ? fdopendir(fd) : NULL;
	if (fd < 0 || (below && !dir))
		return false;
	n = below ? put_below(&found, dir, prefix, &cut) : put_attributes(&found, fd, prefix);
	answer_begin(a, 2);
	put_text(&a->done, "attributes");
	put_array(&a->done, n);
	put_raw(&a->done, found.data, found.size);
	put_key_bool(&a->done, "cut", cut);
	return !found.failed;
}

bool do_set_attribute(struct cbor q, const char *path, struct answer *a)
{
	struct cbor item;
	const uint8_t *value;
	size_t size;
	char *name = cbor_get_cstring(q, "name");
	if (!name)
		return false;
	if (strncmp(name, OURS, strlen(OURS))) {
		errno = EPERM;
		return false;
	}
	bool given = cbor_get(q, "value", &item);
	if (given && (!cbor_string(item, &value, &size) || size > VALUE_MOST)) {
		errno = EINVAL;
		return false;
	}
	int fd = open_name(path, 0);
	if (fd < 0)
		return false;
	struct link file = link_of(fd);
	if (given ? setxattr(file.path, name, value, size, 0) : removexattr(file.path, name))
		return false;
	answer_begin(a, 0);
	return true;
}
