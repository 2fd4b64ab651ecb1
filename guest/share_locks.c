/* Locks of programs in the machine, which programs on the host see: each owner of a lock has a descriptor of its own here, whose
 * locks stand for the owner's. Whoever waits is tried again; nobody else waits for that. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define OWNERS_MOST 1024
#define WAITING_MOST 256

struct owner {
	uint64_t handle; /* its number: the table of handles moves when it grows */
	struct node *node;
	uint64_t id;
	bool whole; /* flock(2): of the whole file */
	int fd;
};
static struct owner owners[OWNERS_MOST];
static size_t nowners;

static struct {
	uint64_t unique;
	struct fuse_lk_in in;
} waiting[WAITING_MOST];
static size_t nwaiting;

static struct owner *owner_of(const struct fuse_lk_in *in)
{
	struct handle *handle = handle_of(in->fh);
	bool whole = in->lk_flags & FUSE_LK_FLOCK;
	if (!handle || handle->fd < 0)
		return NULL;
	for (size_t i = 0; i < nowners; i++)
		if (owners[i].node == handle->node && owners[i].id == in->owner && owners[i].whole == whole)
			return &owners[i];
	if (nowners == OWNERS_MOST) {
		errno = ENOLCK;
		return NULL;
	}
	int fd = open_file(handle->node, fcntl(handle->fd, F_GETFL) & O_ACCMODE);
	if (fd < 0)
		return NULL;
	owners[nowners] = (struct owner){in->fh, handle->node, in->owner, whole, fd};
	return &owners[nowners++];
}

static struct flock range(const struct fuse_file_lock *lock)
{
	return (struct flock){.l_type = (short)lock->type, .l_whence = SEEK_SET, .l_start = (off_t)lock->start,
			      .l_len = lock->end >= INT64_MAX ? 0 : (off_t)(lock->end - lock->start + 1)};
}

static bool try(const struct fuse_lk_in *in)
{
	struct owner *owner = owner_of(in);
	if (!owner)
		return false;
	if (owner->whole) {
		int how = in->lk.type == F_UNLCK ? LOCK_UN : in->lk.type == F_RDLCK ? LOCK_SH : LOCK_EX;
		return !flock(owner->fd, how | LOCK_NB);
	}
	struct flock lock = range(&in->lk);
	return !fcntl(owner->fd, F_OFD_SETLK, &lock);
}

void get_lock(const struct fuse_lk_in *in)
{
	struct owner *owner = owner_of(in);
	struct flock lock = range(&in->lk);
	if (!owner || fcntl(owner->fd, F_OFD_GETLK, &lock)) {
		failed();
		return;
	}
	struct fuse_lk_out out = {.lk = {.type = (uint32_t)lock.l_type, .start = (uint64_t)lock.l_start}};
	out.lk.end = lock.l_len ? (uint64_t)(lock.l_start + lock.l_len - 1) : INT64_MAX;
	answer(0, &out, sizeof out);
}

void set_lock(const struct fuse_lk_in *in, bool wait)
{
	bool good = try(in);
	if (good || !wait || (errno != EAGAIN && errno != EACCES)) {
		done(good);
	} else if (nwaiting == WAITING_MOST) {
		answer(ENOLCK, NULL, 0);
	} else {
		waiting[nwaiting].unique = wire_current();
		waiting[nwaiting++].in = *in;
	}
}

void stop_waiting(uint64_t unique)
{
	for (size_t i = 0; i < nwaiting; i++)
		if (waiting[i].unique == unique) {
			wire_request(unique);
			waiting[i] = waiting[--nwaiting];
			answer(EINTR, NULL, 0);
			return;
		}
}

bool locks_waited_for(void)
{
	return nwaiting;
}

void locks_try_again(void)
{
	for (size_t i = 0; i < nwaiting;) {
		bool good = try(&waiting[i].in);
		if (!good && (errno == EAGAIN || errno == EACCES)) {
			i++;
			continue;
		}
		int problem = errno;
		wire_request(waiting[i].unique);
		waiting[i] = waiting[--nwaiting];
		errno = problem;
		done(good);
	}
}

/* The kernel says when an open file is let go; the locks that were made by way of it go with it. */
void locks_released(uint64_t handle)
{
	for (size_t i = 0; i < nowners;)
		if (owners[i].handle == handle) {
			close(owners[i].fd);
			owners[i] = owners[--nowners];
		} else {
			i++;
		}
}
