/* Providers' files. A provider is a program of the owner's that answers for a directory of the room, and it may be slow, or never
 * answer: then whoever asks it waits in the kernel. So each has a server of its own, a child of the room's, and what the machine asks
 * about its files is passed on: a provider holds up those who use it and nobody else.
 *
 * The machine's kernel sees one server. Numbers of a child's nodes and open files have the child's own in their upper bits. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TAG_BITS 40
#define UNTAGGED ((1ull << TAG_BITS) - 1)
#define WORD "--provided="
#define ASKED_MOST 4096          /* that one provider has not answered yet */
#define QUEUED_MOST (64u << 20)  /* bytes that it has not read yet */
#define LONG 3600                /* seconds: where a provider is, nothing else will be */

struct queued {
	struct queued *next;
	size_t at, size;
	char bytes[];
};

struct provider {
	const char *path;
	int stream;
	struct queued *first, **last;
	size_t queued;
	struct {
		uint64_t unique;
		uint32_t opcode;
	} asked[ASKED_MOST];
	size_t nasked;
};

static struct provider *providers;
static size_t nproviders;
static char *reply;

bool provided_word(const char *word)
{
	if (strncmp(word, WORD, sizeof WORD - 1) || nproviders == PROVIDERS_MOST)
		return false;
	struct provider *grown = realloc(providers, (nproviders + 1) * sizeof *grown);
	if (!grown)
		exit(1);
	providers = grown;
	providers[nproviders++] = (struct provider){.path = word + sizeof WORD - 1, .stream = -1};
	return true;
}

bool is_provided(const char *path)
{
	for (size_t i = 0; i < nproviders; i++)
		if (!strcmp(providers[i].path, path))
			return true;
	return false;
}

/* Which of them is `name` in `parent`; 0: none. */
static uint64_t provider_at(const struct node *parent, const char *name)
{
	char buffer[4096];
	const char *path = nproviders ? node_path(parent, name, buffer, sizeof buffer) : NULL;
	for (size_t i = 0; path && i < nproviders; i++)
		if (!strcmp(providers[i].path, path))
			return i + 1;
	return 0;
}

/* A provider's directory, without asking it: nobody answers yet while the machine is set up. Its kernel asks for the attributes when
 * somebody wants them. */
bool provided_entry(const struct node *parent, const char *name, struct fuse_entry_out *out)
{
	uint64_t number = provider_at(parent, name);
	if (!number)
		return false;
	*out = (struct fuse_entry_out){0};
	if (providers[number - 1].stream < 0)
		return true; /* this server only knows whom not to ask */
	*out = (struct fuse_entry_out){
		.nodeid = number << TAG_BITS | FUSE_ROOT_ID, .generation = 1, .entry_valid = LONG,
		.attr = {.ino = number << TAG_BITS | 1, .mode = S_IFDIR | 0755, .nlink = 2, .uid = getuid(), .gid = getgid(), .blksize = 4096}};
	return true;
}

/* ---- what is asked */

static void push(struct provider *p)
{
	while (p->first) {
		struct queued *one = p->first;
		ssize_t sent = send(p->stream, one->bytes + one->at, one->size - one->at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN)
			return;
		if (sent < 0)
			exit(1);
		one->at += (size_t)sent;
		if (one->at < one->size)
			continue;
		p->first = one->next;
		p->queued -= one->size;
		free(one);
	}
	p->last = &p->first;
}

static bool has_room(const struct provider *p, size_t size)
{
	return p->nasked < ASKED_MOST && p->queued + size <= QUEUED_MOST;
}

static void pass_on(struct provider *p, const char *message, size_t size)
{
	struct queued *one = malloc(sizeof *one + size);
	if (!one)
		exit(1);
	*one = (struct queued){.size = size};
	memcpy(one->bytes, message, size);
	*p->last = one;
	p->last = &one->next;
	p->queued += size;
	push(p);
}

static void remember(struct provider *p, const struct fuse_in_header *head)
{
	if (!head->unique || head->opcode == FUSE_FORGET)
		return; /* nobody answers these */
	p->asked[p->nasked].unique = head->unique;
	p->asked[p->nasked++].opcode = head->opcode;
}

/* Where a request has the number of an open file; 0: nowhere. */
static size_t handle_offset(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_READ: case FUSE_WRITE: case FUSE_RELEASE: case FUSE_RELEASEDIR: case FUSE_FLUSH: case FUSE_FSYNC: case FUSE_FSYNCDIR:
	case FUSE_READDIR: case FUSE_READDIRPLUS: case FUSE_GETLK: case FUSE_SETLK: case FUSE_SETLKW: case FUSE_LSEEK: case FUSE_FALLOCATE:
		return sizeof(struct fuse_in_header);
	case FUSE_GETATTR: case FUSE_SETATTR:
		return sizeof(struct fuse_in_header) + 8;
	default:
		return 0;
	}
}

/* Where it has the number of a second node. */
static size_t other_offset(uint32_t opcode)
{
	bool has = opcode == FUSE_RENAME || opcode == FUSE_RENAME2 || opcode == FUSE_LINK;
	return has ? sizeof(struct fuse_in_header) : 0;
}

static uint64_t number_at(const char *message, size_t size, size_t offset)
{
	uint64_t number = 0;
	if (offset && offset + sizeof number <= size)
		memcpy(&number, message + offset, sizeof number);
	return number;
}

static void untag(char *message, size_t size, size_t offset)
{
	uint64_t number = number_at(message, size, offset) & UNTAGGED;
	if (offset && offset + sizeof number <= size)
		memcpy(message + offset, &number, sizeof number);
}

/* Several at once, of any of us: each provider's are passed on one by one. */
static void pass_on_forgotten(const char *message, size_t size)
{
	const struct fuse_in_header *head = (const void *)message;
	const struct fuse_batch_forget_in *batch = (const void *)(head + 1);
	const struct fuse_forget_one *each = (const void *)(batch + 1);
	size_t have = sizeof *head + sizeof *batch;
	for (size_t i = 0; size >= have && i < batch->count && have + (i + 1) * sizeof *each <= size; i++) {
		uint64_t tag = each[i].nodeid >> TAG_BITS;
		struct {
			struct fuse_in_header head;
			struct fuse_forget_in body;
		} one = {{.len = sizeof one, .opcode = FUSE_FORGET, .nodeid = each[i].nodeid & UNTAGGED}, {each[i].nlookup}};
		if (tag && tag <= nproviders && has_room(&providers[tag - 1], sizeof one))
			pass_on(&providers[tag - 1], (char *)&one, sizeof one);
	}
}

static void pass_on_interrupt(const char *message, size_t size)
{
	uint64_t unique = number_at(message, size, sizeof(struct fuse_in_header));
	for (size_t i = 0; i < nproviders; i++)
		for (size_t j = 0; j < providers[i].nasked; j++)
			if (providers[i].asked[j].unique == unique && has_room(&providers[i], size))
				pass_on(&providers[i], message, size);
}

/* Whether a request is a provider's, and has been passed on or refused. */
bool provided_request(char *message, size_t size)
{
	struct fuse_in_header *head = (void *)message;
	uint64_t tag = head->nodeid >> TAG_BITS, other = number_at(message, size, other_offset(head->opcode)) >> TAG_BITS;
	if (!nproviders)
		return false;
	if (head->opcode == FUSE_BATCH_FORGET)
		pass_on_forgotten(message, size);
	if (head->opcode == FUSE_INTERRUPT)
		pass_on_interrupt(message, size);
	if (!tag && !other)
		return false;
	struct provider *p = tag && tag <= nproviders ? &providers[tag - 1] : NULL;
	wire_request(head->opcode == FUSE_FORGET ? 0 : head->unique);
	if (other_offset(head->opcode) && other != tag) {
		answer(EXDEV, NULL, 0);
	} else if (!p) {
		answer(ESTALE, NULL, 0);
	} else if (!has_room(p, size)) {
		answer(EIO, NULL, 0); /* it has not answered so many that it never will */
	} else {
		head->nodeid &= UNTAGGED;
		untag(message, size, handle_offset(head->opcode));
		untag(message, size, other_offset(head->opcode));
		remember(p, head);
		pass_on(p, message, size);
	}
	return true;
}

/* ---- what is answered */

static uint32_t answers_what(struct provider *p, uint64_t unique)
{
	for (size_t i = 0; i < p->nasked; i++)
		if (p->asked[i].unique == unique) {
			uint32_t opcode = p->asked[i].opcode;
			p->asked[i] = p->asked[--p->nasked];
			return opcode;
		}
	exit(1);
}

static void tag_at(size_t offset, size_t size, uint64_t tag)
{
	uint64_t number = number_at(reply, size, offset);
	if (!number)
		return; /* there is nothing by that name */
	number |= tag << TAG_BITS;
	memcpy(reply + offset, &number, sizeof number);
}

static void tag_listed(size_t size, uint64_t tag)
{
	size_t at = sizeof(struct fuse_out_header);
	while (at + FUSE_NAME_OFFSET_DIRENTPLUS <= size) {
		struct fuse_direntplus entry;
		memcpy(&entry, reply + at, FUSE_NAME_OFFSET_DIRENTPLUS);
		tag_at(at, size, tag); /* of all that it says, the node's number comes first */
		at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + entry.dirent.namelen);
	}
}

static void tag_answer(uint32_t opcode, size_t size, uint64_t tag)
{
	size_t body = sizeof(struct fuse_out_header);
	switch (opcode) {
	case FUSE_LOOKUP: case FUSE_MKDIR: case FUSE_MKNOD: case FUSE_SYMLINK: case FUSE_LINK:
	case FUSE_OPEN: case FUSE_OPENDIR: /* that of the open file comes first */
		tag_at(body, size, tag);
		break;
	case FUSE_CREATE:
		tag_at(body, size, tag);
		tag_at(body + sizeof(struct fuse_entry_out), size, tag);
		break;
	case FUSE_READDIRPLUS:
		tag_listed(size, tag);
		break;
	default:
		break;
	}
}

/* One answer, or something that nobody asked for: all of those begin with the number of a node. */
static void bring_back(struct provider *p)
{
	struct fuse_out_header head;
	uint64_t tag = (uint64_t)(p - providers) + 1;
	if (!wire_read(p->stream, &head, sizeof head) || head.len < sizeof head || head.len > REQUEST_MOST ||
	    !wire_read(p->stream, reply + sizeof head, head.len - sizeof head))
		exit(1);
	memcpy(reply, &head, sizeof head);
	if (!head.unique)
		tag_at(sizeof head, head.len, tag);
	else
		tag_answer(answers_what(p, head.unique), head.error ? sizeof head : head.len, tag);
	wire_raw(reply, head.len);
}

/* ---- their processes */

static noreturn void serve_provider(struct provider *p, int stream, void (*serve)(int stream))
{
	static char *none[] = {NULL};
	struct node *root = node_root();
	size_t number = (size_t)(p - providers);
	struct stat st;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(root->directory);
	watch_none();
	names_begin(none, false);
	devices_from(255 - (unsigned)number);
	root->directory = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	nproviders = 0; /* ours are no business of theirs */
	if (root->directory < 0)
		exit(1);
	poll(&(struct pollfd){.fd = stream, .events = POLLIN}, 1, -1);
	if (!look_into(root->directory, &st)) /* only now: it answers when it likes */
		root->device = st.st_dev, root->inode = st.st_ino;
	wire_begin(stream);
	serve(stream);
	exit(0);
}

bool provided_begin(void (*serve)(int stream))
{
	if (nproviders && !(reply = aligned_alloc(4096, REQUEST_MOST + 4096)))
		return false;
	for (size_t i = 0; i < nproviders; i++) {
		int ends[2];
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
			return false;
		pid_t pid = fork();
		if (pid < 0)
			return false;
		if (!pid) {
			for (int fd = 0; fd < 3; fd++)
				close(fd); /* the machine's streams, and the owner's */
			serve_provider(&providers[i], ends[1], serve);
		}
		close(ends[1]);
		providers[i].stream = ends[0];
		providers[i].last = &providers[i].first;
	}
	return true;
}

size_t provided_wait(struct pollfd *ready)
{
	for (size_t i = 0; i < nproviders; i++)
		ready[i] = (struct pollfd){.fd = providers[i].stream, .events = POLLIN | (providers[i].first ? POLLOUT : 0)};
	return nproviders;
}

void provided_ready(const struct pollfd *ready)
{
	for (size_t i = 0; i < nproviders; i++) {
		if (ready[i].revents & POLLOUT)
			push(&providers[i]);
		if (ready[i].revents & (POLLIN | POLLHUP | POLLERR))
			bring_back(&providers[i]);
	}
}
