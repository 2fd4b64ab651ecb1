/* Changes to the shared files. What this server does itself it need not be told of: each leaves the node as the kernel knows it. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool set_times(struct node *node, const struct fuse_setattr_in *in)
{
	const char *name;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
	if (in->valid & FATTR_ATIME)
		times[0] = (struct timespec){(time_t)in->atime, in->valid & FATTR_ATIME_NOW ? UTIME_NOW : (long)in->atimensec};
	if (in->valid & FATTR_MTIME)
		times[1] = (struct timespec){(time_t)in->mtime, in->valid & FATTR_MTIME_NOW ? UTIME_NOW : (long)in->mtimensec};
	int directory = node_place(node, &name);
	if (directory >= 0 && !utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW))
		return true;
	return node->open >= 0 && !futimens(node->open, times);
}

static bool set_size(struct node *node, const struct fuse_setattr_in *in)
{
	struct handle *handle = in->valid & FATTR_FH ? handle_of(in->fh) : NULL;
	if (handle && handle->fd >= 0)
		return !ftruncate(handle->fd, (off_t)in->size);
	int fd = open_file(node, O_WRONLY);
	bool good = fd >= 0 && !ftruncate(fd, (off_t)in->size);
	if (fd >= 0)
		close(fd);
	return good;
}

/* True with errno. The machine's setuid and setgid bits mean nothing outside, and nobody may leave them there. */
bool sets_id(uint32_t mode)
{
	errno = EPERM;
	return mode & (S_ISUID | S_ISGID);
}

static bool set_mode(struct node *node, uint32_t mode)
{
	const char *name;
	if (sets_id(mode) && node->file)
		return false;
	int directory = node_place(node, &name);
	if (directory < 0)
		return node->open >= 0 && !fchmod(node->open, mode & 0777);
	return !fchmodat(directory, name, mode & 01777, 0);
}

static bool set_owner(struct node *node, const struct fuse_setattr_in *in)
{
	const char *name;
	int directory = node_place(node, &name);
	uid_t uid = in->valid & FATTR_UID ? in->uid : (uid_t)-1;
	gid_t gid = in->valid & FATTR_GID ? in->gid : (gid_t)-1;
	return directory >= 0 && !fchownat(directory, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

void set_attributes_of(struct node *node, const struct fuse_setattr_in *in)
{
	errno = ENOENT;
	if ((in->valid & (FATTR_UID | FATTR_GID) && !set_owner(node, in)) ||
	    (in->valid & FATTR_MODE && !set_mode(node, in->mode)) || (in->valid & FATTR_SIZE && !set_size(node, in)) ||
	    (in->valid & (FATTR_ATIME | FATTR_MTIME) && !set_times(node, in)))
		failed();
	else
		answer_attributes(node);
}

static void made(struct node *parent, const char *name)
{
	node_changing(parent);
	answer_entry(parent, name);
}

void make_directory(struct node *parent, const struct fuse_mkdir_in *in, const char *name)
{
	int directory = node_directory(parent);
	if (directory < 0 || mkdirat(directory, name, in->mode & 01777 & ~in->umask))
		failed();
	else
		made(parent, name);
}

void make_node(struct node *parent, const struct fuse_mknod_in *in, const char *name)
{
	int directory = node_directory(parent);
	if (sets_id(in->mode)) {
		failed();
		return;
	}
	errno = EPERM;
	if (directory < 0 || !(S_ISREG(in->mode) || S_ISFIFO(in->mode) || S_ISSOCK(in->mode)) ||
	    mknodat(directory, name, (in->mode & (S_IFMT | 0777)) & ~in->umask, 0))
		failed();
	else
		made(parent, name);
}

void make_link(struct node *parent, const char *name, const char *target)
{
	int directory = node_directory(parent);
	if (directory < 0 || symlinkat(target, directory, name))
		failed();
	else
		made(parent, name);
}

void hard_link(struct node *parent, uint64_t old, const char *name)
{
	const char *from;
	struct node *node = node_of(old);
	errno = ENOENT;
	int there = node ? node_place(node, &from) : -1, here = there < 0 ? -1 : node_directory(parent);
	if (there < 0 || here < 0 || linkat(there, from, here, name, 0)) {
		failed();
		return;
	}
	/* We find it by its new name from now on, and the kernel has to look the old one up. */
	notify_entry(node->parent, from);
	made(parent, name);
}

void move(struct node *parent, uint64_t to, unsigned flags, const char *name, const char *new_name)
{
	struct node *there = node_of(to);
	int from = node_directory(parent), into = there ? node_directory(there) : -1;
	if (from < 0 || into < 0 || !good_name(new_name) ||
	    (flags ? syscall(SYS_renameat2, from, name, into, new_name, flags) : renameat(from, name, into, new_name))) {
		failed();
		return;
	}
	node_changing(parent), node_changing(there);
	if (flags & RENAME_EXCHANGE) {
		node_changing(parent), node_changing(there);
		node_moved(there, new_name, parent, name);
	} else {
		node_removed(there, new_name);
	}
	node_moved(parent, name, there, new_name);
	answer(0, NULL, 0);
}

void remove_entry(struct node *parent, const char *name, int flags)
{
	int directory = node_directory(parent);
	bool good = directory >= 0 && !unlinkat(directory, name, flags);
	int problem = errno;
	if (good) {
		node_changing(parent);
		node_removed(parent, name);
	}
	errno = problem;
	done(good);
}
