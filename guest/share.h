/* Sharing files with a virtual machine: the room's files, by the kernel's own FUSE protocol, over a stream.
 *
 * One server has one stream and one kind of files: those of the room, which change under its hands, or those of the system, which
 * nothing changes while a machine lives. */
#ifndef SHARE_H
#define SHARE_H

#include <dirent.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/stat.h>

#define DATA_MOST (1u << 19)            /* of one read or write: so that the machine's disk carries it as one request */
#define REQUEST_MOST (DATA_MOST + 4096) /* with what stands before the data */

/* A file or directory that the machine's kernel knows. It is found again by its directory and its name; a descriptor for
 * each would need more descriptors than a process may have. */
struct node {
	struct node *next;     /* in its hash chain, or of the free ones */
	struct node *next_name; /* in the chain of its directory and name */
	uint64_t number;       /* what the kernel calls it */
	struct node *parent;   /* NULL: the root, or one whose name is gone */
	char *name;
	uint64_t lookups;      /* what the kernel has not forgotten yet */
	uint32_t children;     /* nodes that have us as parent: we outlive them */
	uint32_t handles;      /* open files */
	int open;              /* one of them, or -1: all that leads to a file without a name */
	int directory;         /* a descriptor of this directory, or -1 */
	int watch;             /* of this directory; 0: not tried, -1: cannot be had */
	uint64_t used;         /* when it was last needed */
	dev_t device;
	ino_t inode;
	struct timespec changed; /* as the kernel was told last: what differs from it, somebody else has changed */
	off_t size;
	bool closed;           /* nobody looks into this directory */
	bool fixed;            /* nothing on the host changes it: the machine's kernel may remember it for long */
	bool missing;          /* the kernel was told that something is not in this directory */
	bool file;             /* not a directory */
	bool wired;            /* a tripwire of the room's stands there */
	bool linked;           /* has several names: a change by another one is not seen */
	uint8_t asked;         /* how many names of this directory were looked up, up to a few */
	struct timespec given; /* when it was changed last, of a file whose content the kernel was given */
	uint32_t own;          /* changes of ours to this directory of which we shall be told */
};

/* share_nodes.c */
bool nodes_begin(void);
struct node *node_root(void);
struct node *node_of(uint64_t id);
uint64_t node_id(const struct node *node);
/* The node of what `name` in `parent` is, with one more look-up. NULL with errno. */
struct node *node_enter(struct node *parent, const char *name, const struct stat *st);
/* The path of `name` in `node` (NULL: of `node` itself), written to the end of `buffer`; NULL when it is too long or lost. */
const char *node_path(const struct node *node, const char *name, char *buffer, size_t size);
struct node *node_named(struct node *parent, const char *name); /* NULL: the kernel knows none by that name */
struct node *node_restore(uint64_t id, struct node *parent, const char *name, uint64_t lookups, const struct stat *st);
void node_each(void (*visit)(struct node *));
void node_forget(struct node *node, uint64_t lookups);
void node_moved(struct node *parent, const char *name, struct node *new_parent, const char *new_name);
void node_removed(struct node *parent, const char *name);
void node_opened(struct node *node, int fd);
void node_closed(struct node *node, int fd);
void node_told(struct node *node, const struct stat *st);
void node_changing(struct node *directory); /* we are the ones */

/* share_directories.c */
/* A directory's descriptor, good until the next call but two. -1 with errno. */
int node_directory(struct node *node);
/* The directory and name by which `node` is reached; -1 with errno. */
int node_place(struct node *node, const char **name);
void directory_close(struct node *node);

/* share_wire.c: answers to the request at hand */
void wire_begin(int stream);
bool wire_read(int from, void *buffer, size_t size);
void wire_send(int to, const void *head, size_t head_size, const void *body, size_t size);
void wire_raw(const char *message, size_t size);
void wire_request(uint64_t unique);
uint64_t wire_current(void);
void answer(int error, const void *body, size_t size);
void failed(void);
void done(bool good);
void notify_entry(const struct node *parent, const char *name);
void notify_time(bool was_set);
void notify_list(const struct node *directory);
void notify_content(const struct node *node, const char *content, size_t size);
void notify_inode(const struct node *node, bool content);

/* share_names.c: what is where */
int look_at(int directory, const char *name, struct stat *st); /* 0, or -1 with errno */
int look_into(int fd, struct stat *st);
void names_begin(char **fixed, bool system);
bool is_of_qemu(const char *name); /* of an entry of `/` */
bool good_name(const char *name);
struct statfs;
bool is_for_sharing(const struct statfs *fs);
/* The entry of `name` in `parent`, with one look-up more for the kernel to forget. False with errno. */
bool enter(struct node *parent, const char *name, struct fuse_entry_out *out);
/* The same, of what was found in that directory to be `st`. */
bool enter_found(struct node *parent, int directory, const char *name, struct stat st, struct fuse_entry_out *out);
void answer_entry(struct node *parent, const char *name);
void answer_attributes(struct node *node);
void lookup(struct node *parent, const char *name);
void read_link(struct node *node);
void space(struct node *node);

/* share_open.c: open files and directories */
struct handle {
	struct node *node;
	int fd;
	DIR *list;
	bool lost; /* of a clone: it was open when the machine was saved, and could not be opened again */
};
extern struct handle *handles;
extern size_t nhandles;
bool handle_used(const struct handle *handle);
struct handle *handle_of(uint64_t number); /* NULL with errno */
int open_file(struct node *node, int flags);
int readable(uint64_t key, bool system);   /* a descriptor to read from, by handle or (system) by node */
void do_open(struct node *node, const struct fuse_open_in *in);
void create(struct node *parent, const struct fuse_create_in *in, const char *name);
void do_read(const struct fuse_in_header *head, const struct fuse_read_in *in, char *buffer, bool system);
void do_write(const struct fuse_write_in *in, size_t size);
void release_handle(uint64_t number);
void open_directory(struct node *node);
void read_directory(struct node *node, const struct fuse_read_in *in, char *buffer, bool plus, bool system);
void seek(const struct fuse_lseek_in *in);
void reserve(const struct fuse_fallocate_in *in);
void sync_file(const struct fuse_fsync_in *in);

/* share_changes.c */
bool sets_id(uint32_t mode);
void set_attributes_of(struct node *node, const struct fuse_setattr_in *in);
void make_directory(struct node *parent, const struct fuse_mkdir_in *in, const char *name);
void make_node(struct node *parent, const struct fuse_mknod_in *in, const char *name);
void make_link(struct node *parent, const char *name, const char *target);
void hard_link(struct node *parent, uint64_t old, const char *name);
void move(struct node *parent, uint64_t to, unsigned flags, const char *name, const char *new_name);
void remove_entry(struct node *parent, const char *name, int flags);

/* share_attributes.c: extended attributes */
void get_attribute(struct node *node, const struct fuse_getxattr_in *in, const char *name, char *buffer);
void list_attributes(struct node *node, const struct fuse_getxattr_in *in, char *buffer);
void set_attribute(struct node *node, const struct fuse_setxattr_in *in, const char *name, size_t size);
void remove_attribute(struct node *node, const char *name);

/* share_locks.c: locks that programs on the host see, too */
void get_lock(const struct fuse_lk_in *in);
void set_lock(const struct fuse_lk_in *in, bool wait);
void stop_waiting(uint64_t unique);
void locks_released(uint64_t handle);
bool locks_waited_for(void);
void locks_try_again(void);

/* share_watch.c */
int watch_begin(void);                  /* a descriptor to poll, or -1 */
void watch_none(void);
void watch_directory(struct node *node, int directory);
void watch_end(struct node *node);
void watch_events(void);
bool is_watched(const struct node *node);

/* share_bytes.c: large reads and writes, over a disk */
bool bytes_begin(int stream);
bool bytes_serve(char *request, char *buffer, bool system, void (*handle)(char *message, size_t size));

/* share_table.c: what the system's server of a template told its kernel */
bool table_load(const char *path);
bool table_save(int file);

/* share_saved.c: a clone takes up what the server of the machine it was made from knew */
#define SAVED "--saved"
bool share_save(int to);
bool share_restore(int control);
void share_tell(void);                          /* then, what is different now */
struct node *node_next(struct node *node);      /* all that are in use: after NULL the first */
struct node *node_any(uint64_t id);             /* also one that the kernel has forgotten */
struct node *node_again(uint64_t id);           /* takes the place of that number; NULL when it is impossible */
void node_found(struct node *node, const struct stat *st);
void nodes_again(void);                         /* afterwards */
bool handle_again(uint64_t number, struct node *node, int flags, bool directory, bool lost);
unsigned device_number(dev_t device);           /* a small one, for each file system outside */
void device_again(dev_t device, unsigned number);
void devices_from(unsigned number);

/* share_provided.c: files of providers, each by a server of its own */
#define PROVIDERS_MOST 64
struct pollfd;
bool provided_word(const char *word);                    /* one of the words that we were started with */
bool provided_begin(void (*serve)(int stream));          /* `serve`: for their processes, until the stream ends */
bool provided_request(char *message, size_t size);       /* whether it was one of theirs */
bool provided_entry(const struct node *parent, const char *name, struct fuse_entry_out *out); /* false: there is none */
bool is_provided(const char *path);
size_t provided_wait(struct pollfd *ready);              /* how many, at most PROVIDERS_MOST */
void provided_ready(const struct pollfd *ready);

noreturn void share(int stream, int bytes, char **fixed); /* share.c */
noreturn void share_system(int stream, int bytes, char **words);

#endif
