/* The file server of a virtual machine. It is a tenant of the room: what it opens, a tenant there could open, and nothing
 * else. On its stream the machine's kernel speaks FUSE (the guest inside carries it from /dev/fuse); that kernel belongs to a
 * tenant, so every length, number and name it sends is checked.
 *
 * Files of the system, which nothing on the host changes while the machine lives, are remembered by its kernel for as long as it
 * likes. Of all others it is told when they change (share_watch.c). */
#define _GNU_SOURCE
#include "share.h"
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MINOR 33
#define CLOCK_SECONDS 10
#define CONTROL 2       /* where the owner asks for all that we know, if it is a socket */
#define QUIET_TRIES 5000 /* a second */
#define TRY_AGAIN_MS 20 /* for a lock that somebody else holds */

static bool system_files; /* whose files: those of the system, or of the room */
static char *data;        /* what an answer is put together in */

static void begin(const struct fuse_init_in *in)
{
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = MINOR, .max_readahead = DATA_MOST, .max_write = DATA_MOST,
				    .max_background = 64, .congestion_threshold = 48, .time_gran = 1, .max_pages = DATA_MOST / 4096};
	/* KILLPRIV: no file here has bits that a write would have to take away, so the kernel need not ask each time. */
	out.flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS |
		    FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS | FUSE_ASYNC_DIO | FUSE_HANDLE_KILLPRIV_V2;
	out.flags |= system_files ? FUSE_NO_OPEN_SUPPORT | FUSE_NO_OPENDIR_SUPPORT
				  : FUSE_ATOMIC_O_TRUNC | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS;
	out.flags &= in->flags;
	answer(0, &out, sizeof out);
}

static void forget(const struct fuse_in_header *head, const void *body, size_t size)
{
	if (head->opcode == FUSE_FORGET) {
		struct node *node = node_of(head->nodeid);
		if (node && size >= sizeof(struct fuse_forget_in))
			node_forget(node, ((const struct fuse_forget_in *)body)->nlookup);
		return;
	}
	const struct fuse_batch_forget_in *batch = body;
	const struct fuse_forget_one *each = (const void *)(batch + 1);
	for (size_t i = 0; size >= sizeof *batch && i < batch->count && sizeof *batch + (i + 1) * sizeof *each <= size; i++) {
		struct node *node = node_of(each[i].nodeid);
		if (node)
			node_forget(node, each[i].nlookup);
	}
}

/* How many bytes stand before the names of a request, and how many names there must be. */
static const struct {
	uint32_t operation;
	size_t before;
	int names;
} table[] = {
	{FUSE_LOOKUP, 0, 1}, {FUSE_UNLINK, 0, 1}, {FUSE_RMDIR, 0, 1}, {FUSE_SYMLINK, 0, 2},
	{FUSE_MKNOD, sizeof(struct fuse_mknod_in), 1}, {FUSE_MKDIR, sizeof(struct fuse_mkdir_in), 1},
	{FUSE_RENAME, sizeof(struct fuse_rename_in), 2}, {FUSE_RENAME2, sizeof(struct fuse_rename2_in), 2},
	{FUSE_LINK, sizeof(struct fuse_link_in), 1}, {FUSE_CREATE, sizeof(struct fuse_create_in), 1},
	{FUSE_INIT, 16, 0}, {FUSE_SETATTR, sizeof(struct fuse_setattr_in), 0}, {FUSE_OPEN, sizeof(struct fuse_open_in), 0},
	{FUSE_READ, sizeof(struct fuse_read_in), 0}, {FUSE_READDIR, sizeof(struct fuse_read_in), 0},
	{FUSE_READDIRPLUS, sizeof(struct fuse_read_in), 0}, {FUSE_WRITE, sizeof(struct fuse_write_in), 0},
	{FUSE_RELEASE, sizeof(struct fuse_release_in), 0}, {FUSE_RELEASEDIR, sizeof(struct fuse_release_in), 0},
	{FUSE_FSYNC, sizeof(struct fuse_fsync_in), 0}, {FUSE_FSYNCDIR, sizeof(struct fuse_fsync_in), 0},
	{FUSE_LSEEK, sizeof(struct fuse_lseek_in), 0}, {FUSE_FALLOCATE, sizeof(struct fuse_fallocate_in), 0},
	{FUSE_GETXATTR, sizeof(struct fuse_getxattr_in), 1}, {FUSE_LISTXATTR, sizeof(struct fuse_getxattr_in), 0},
	{FUSE_SETXATTR, FUSE_COMPAT_SETXATTR_IN_SIZE, 1}, {FUSE_REMOVEXATTR, 0, 1},
	{FUSE_GETLK, sizeof(struct fuse_lk_in), 0}, {FUSE_SETLK, sizeof(struct fuse_lk_in), 0},
	{FUSE_SETLKW, sizeof(struct fuse_lk_in), 0}, {FUSE_INTERRUPT, sizeof(struct fuse_interrupt_in), 0},
};

static bool well_formed(uint32_t operation, const char *body, size_t size, size_t *before, const char *names[2])
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (table[i].operation != operation)
			continue;
		*before = table[i].before;
		if (size < *before)
			return false;
		const char *at = body + *before, *end = body + size;
		for (int name = 0; name < table[i].names; name++) {
			const char *stop = memchr(at, 0, (size_t)(end - at));
			if (!stop)
				return false;
			names[name] = at;
			at = stop + 1;
		}
		/* The second word of a symbolic link is its target, which may be anything. */
		return !table[i].names || good_name(names[0]);
	}
	return true; /* without a body, or not known */
}

/* What changes a file. None of the system's can be. */
static bool change(struct node *node, uint32_t operation, char *body, size_t size, const char *names[2])
{
	switch (operation) {
	case FUSE_SETATTR: set_attributes_of(node, (void *)body); break;
	case FUSE_SYMLINK: make_link(node, names[0], names[1]); break;
	case FUSE_MKNOD: make_node(node, (void *)body, names[0]); break;
	case FUSE_MKDIR: make_directory(node, (void *)body, names[0]); break;
	case FUSE_UNLINK: remove_entry(node, names[0], 0); break;
	case FUSE_RMDIR: remove_entry(node, names[0], AT_REMOVEDIR); break;
	case FUSE_RENAME: move(node, ((struct fuse_rename_in *)(void *)body)->newdir, 0, names[0], names[1]); break;
	case FUSE_RENAME2: {
		const struct fuse_rename2_in *in = (void *)body;
		move(node, in->newdir, in->flags, names[0], names[1]);
		break;
	}
	case FUSE_LINK: hard_link(node, ((struct fuse_link_in *)(void *)body)->oldnodeid, names[0]); break;
	case FUSE_CREATE: create(node, (void *)body, names[0]); break;
	case FUSE_WRITE: do_write((void *)body, size - sizeof(struct fuse_write_in)); break;
	case FUSE_FALLOCATE: reserve((void *)body); break;
	case FUSE_SETXATTR: set_attribute(node, (void *)body, names[0], size - FUSE_COMPAT_SETXATTR_IN_SIZE); break;
	case FUSE_REMOVEXATTR: remove_attribute(node, names[0]); break;
	default: return false;
	}
	return true;
}

/* What has to do with open files, which the system's are never. */
static bool opened(struct node *node, uint32_t operation, char *body)
{
	switch (operation) {
	case FUSE_OPEN: do_open(node, (void *)body); break;
	case FUSE_OPENDIR: open_directory(node); break;
	case FUSE_RELEASE: case FUSE_RELEASEDIR: release_handle(((struct fuse_release_in *)(void *)body)->fh); break;
	case FUSE_FSYNC: case FUSE_FSYNCDIR: sync_file((void *)body); break;
	case FUSE_LSEEK: seek((void *)body); break;
	case FUSE_GETLK: get_lock((void *)body); break;
	case FUSE_SETLK: set_lock((void *)body, false); break;
	case FUSE_SETLKW: set_lock((void *)body, true); break;
	default: return false;
	}
	return true;
}

static void look_up(const struct fuse_in_header *head, struct node *node, char *body, const char *names[2])
{
	switch (head->opcode) {
	case FUSE_LOOKUP: lookup(node, names[0]); break;
	case FUSE_GETATTR: answer_attributes(node); break;
	case FUSE_READLINK: read_link(node); break;
	case FUSE_READ: do_read(head, (void *)body, data, system_files); break;
	case FUSE_READDIR: read_directory(node, (void *)body, data, false, system_files); break;
	case FUSE_READDIRPLUS: read_directory(node, (void *)body, data, true, system_files); break;
	case FUSE_STATFS: space(node); break;
	case FUSE_GETXATTR: get_attribute(node, (void *)body, names[0], data); break;
	case FUSE_LISTXATTR: list_attributes(node, (void *)body, data); break;
	case FUSE_DESTROY: answer(0, NULL, 0); break;
	default: answer(ENOSYS, NULL, 0); /* the kernel then does without, and asks no more */
	}
}

static void handle(const struct fuse_in_header *head, char *body, size_t size)
{
	size_t before = 0;
	const char *names[2] = {NULL, NULL};
	struct node *node = node_of(head->nodeid);
	bool good = well_formed(head->opcode, body, size, &before, names);
	wire_request(head->unique);
	if (head->opcode == FUSE_FORGET || head->opcode == FUSE_BATCH_FORGET)
		forget(head, body, size);
	else if (head->opcode == FUSE_INTERRUPT && good)
		stop_waiting(((struct fuse_interrupt_in *)(void *)body)->unique);
	else if (!good || (!node && head->opcode != FUSE_INIT))
		answer(node ? EINVAL : ESTALE, NULL, 0);
	else if (head->opcode == FUSE_INIT)
		begin((void *)body);
	else if (system_files ? false : change(node, head->opcode, body, size, names) || opened(node, head->opcode, body))
		;
	else
		look_up(head, node, body, names);
}

static void handle_message(char *message, size_t size)
{
	struct fuse_in_header head;
	if (size < sizeof head)
		exit(1);
	memcpy(&head, message, sizeof head);
	if (head.len < sizeof head || head.len > size)
		exit(1);
	if (!provided_request(message, head.len))
		handle(&head, message + sizeof head, head.len - sizeof head);
}

/* A stream may end in the middle of nothing only. */
static bool serve_request(int stream, char *request)
{
	struct fuse_in_header head;
	if (!wire_read(stream, request, sizeof head))
		return false;
	memcpy(&head, request, sizeof head);
	if (head.len < sizeof head || head.len > REQUEST_MOST || !wire_read(stream, request + sizeof head, head.len - sizeof head))
		return false;
	handle_message(request, head.len);
	return true;
}

#define TOP_MOST 256

/* Everything at the top but the kernel's own file systems and what belongs to QEMU. What this server is asked for by mistake, or
 * made to do by a machine that has broken it, Landlock refuses. */
static bool confine(void)
{
	static struct permission top[TOP_MOST + 1] = {{"/", LIST}};
	static char paths[TOP_MOST][260];
	size_t count = 1;
	struct statfs top_id = {0};
	DIR *root = statfs("/", &top_id) ? NULL : opendir("/");
	for (struct dirent *one; root && (one = readdir(root)) && count < TOP_MOST;) {
		struct statfs fs;
		snprintf(paths[count], sizeof *paths, "/%s", one->d_name);
		if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, "..") || is_of_qemu(one->d_name))
			continue;
		/* A provider answers when it likes: it is not asked, not even by the system's server, which has no business there. */
		if (is_provided(paths[count]) && system_files)
			continue;
		if (!is_provided(paths[count]) && !statfs(paths[count], &fs) && fs.f_fsid.__val[0] != top_id.f_fsid.__val[0] && !is_for_sharing(&fs))
			continue;
		top[count] = (struct permission){paths[count], CHANGE};
		count++;
	}
	return root && !closedir(root) && confine_files(top);
}

/* Ready when the machine must be told the time: now and then, because its clock is not the host's, and at once when the host's was
 * set, or the host slept. */
static int clock_changes(void)
{
	int timer = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	struct itimerspec every = {{CLOCK_SECONDS, 0}, {now.tv_sec + 1, now.tv_nsec}};
	timerfd_settime(timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &every, NULL);
	return timer;
}

static int tell_time(int timer)
{
	uint64_t times;
	bool set = read(timer, &times, sizeof times) < 0;
	notify_time(set);
	if (!set)
		return timer;
	close(timer); /* it was meant for the clock as it was */
	return clock_changes();
}

/* Until the machine has taken everything that we said: what a clone's server says comes after a whole message. */
static bool has_been_heard(int stream)
{
	for (int i = 0, left = 1; i < QUIET_TRIES; i++) {
		if (ioctl(stream, SIOCOUTQ, &left) || !left)
			return !left;
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
	return false;
}

/* "S": tell all that we know, and say nothing by ourselves until "G". */
static bool on_control(int stream, bool *quiet)
{
	char byte;
	if (read(CONTROL, &byte, 1) != 1)
		return false;
	*quiet = byte == 'S';
	if (!*quiet)
		return true;
	if (has_been_heard(stream))
		return share_save(CONTROL);
	uint64_t nothing = 0;
	return write(CONTROL, &nothing, sizeof nothing) == sizeof nothing;
}

static bool is_socket(int fd)
{
	struct stat st;
	return !fstat(fd, &st) && S_ISSOCK(st.st_mode);
}

static int control_end(void)
{
	return is_socket(CONTROL) ? CONTROL : -1;
}

/* In the process of one provider. */
static void serve_provided(int stream)
{
	char *request = aligned_alloc(4096, REQUEST_MOST + 4096);
	while (request && poll(&(struct pollfd){.fd = stream, .events = POLLIN}, 1, locks_waited_for() ? TRY_AGAIN_MS : -1) >= 0) {
		struct pollfd ready = {.fd = stream, .events = POLLIN};
		if (poll(&ready, 1, 0) > 0 && !serve_request(stream, request))
			return;
		if (locks_waited_for())
			locks_try_again();
	}
}

static int disk_of(int bytes)
{
	if (!is_socket(bytes))
		return -1; /* this machine has no disk for them */
	if (!bytes_begin(bytes))
		exit(0);
	return bytes;
}

static void serve_files(int stream, int bytes, bool again)
{
	bool quiet = false;
	int control = control_end();
	char *request = aligned_alloc(4096, REQUEST_MOST + 4096);
	int timer = system_files ? -1 : clock_changes();
	int changes = system_files ? -1 : watch_begin();
	umask(0);
	/* Nothing else of this user may look into us, and we hold nothing open that we were not told to. */
	if (!request || !(data = aligned_alloc(4096, REQUEST_MOST)) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || !confine() ||
	    (!system_files && !provided_begin(serve_provided)) || (again && !share_restore(CONTROL)))
		exit(1);
	wire_begin(stream);
	bytes = disk_of(bytes);
	if (again)
		share_tell();
	for (;;) {
		struct pollfd ready[5 + PROVIDERS_MOST] = {
			{.fd = stream, .events = POLLIN}, {.fd = bytes, .events = POLLIN}, {.fd = quiet ? -1 : changes, .events = POLLIN},
			{.fd = control, .events = POLLIN}, {.fd = quiet ? -1 : timer, .events = POLLIN}};
		size_t others = provided_wait(ready + 5);
		if (poll(ready, 5 + others, locks_waited_for() ? TRY_AGAIN_MS : -1) < 0)
			return;
		provided_ready(ready + 5);
		if (ready[2].revents)
			watch_events();
		if (ready[3].revents && !on_control(stream, &quiet))
			control = -1;
		if (ready[4].revents)
			timer = tell_time(timer);
		if (ready[0].revents && !serve_request(stream, request))
			return;
		if (ready[1].revents && !bytes_serve(request, data, system_files, handle_message))
			return;
		if (locks_waited_for())
			locks_try_again();
	}
}

noreturn void share(int stream, int bytes, char **fixed)
{
	bool again = *fixed && !strcmp(*fixed, SAVED);
	fixed += again;
	while (*fixed && provided_word(*fixed))
		fixed++;
	if (!nodes_begin())
		exit(1);
	names_begin(fixed, false);
	serve_files(stream, bytes, again);
	exit(0);
}

/* With the table of a template's server, or, in the making of one, leaving such a table behind. */
noreturn void share_system(int stream, int bytes, char **words)
{
	static char *none[] = {NULL};
	const char *table = *words;
	while (*++words && provided_word(*words))
		;
	bool again = !strcmp(table, SAVED);
	int empty = again ? -1 : open(table, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* now: soon it is out of reach */
	system_files = true;
	if (!nodes_begin() || (empty < 0 && !again && !table_load(table)))
		exit(1);
	names_begin(none, true);
	serve_files(stream, bytes, again);
	exit(empty >= 0 && !table_save(empty));
}
