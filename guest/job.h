/* A job is a request that takes a while: a command, a helper for one file operation or dial, a framed connection. */
#ifndef GUEST_JOB_H
#define GUEST_JOB_H

#include "child.h"

#include <sys/resource.h>
#include <sys/socket.h>

#define CREDIT (256u << 10)    /* bytes of a framed stream that may be under way */
#define GRACE_US 100000        /* how long a framed `exit` waits for more output of a terminal */
#define NEVER INT64_MAX

struct job;

/* What epoll points at. */
struct watch {
	int fd;
	uint32_t events; /* 0: not registered */
	void (*ready)(struct watch *watch, uint32_t events);
	struct job *job;
};

/* One of a framed command's streams. */
struct stream {
	struct watch watch;
	unsigned number;  /* 0, 1 or 2 */
	uint64_t credit;  /* 1, 2: what we may send. 0: what the host may */
	uint64_t left;    /* 1, 2: what is still to be sent, of a command that has ended */
	uint8_t *pending; /* 0: what the tenant has not taken yet */
	size_t size;
	bool ended;       /* 0: the host said so */
	bool terminal;
	bool half;        /* 0: a socket, whose end of input is a shutdown */
};

struct job {
	struct job *next;
	bool command;        /* or a helper */
	bool dialled;        /* or a framed connection, which has no process */
	bool accepted;       /* one that a tenant made */
	pid_t pid;
	pid_t group;         /* the command's process group: its own pid, or on a terminal that of the keeper's child */
	bool terminal;
	int64_t began, deadline, ended, quiet; /* quiet: since the last output, after the end */
	/* the line: a channel of its own, or `id` on the main stream */
	struct channel own;
	struct watch line;
	uint64_t id;
	bool line_gone;
	bool orphan;         /* in a clone: nobody knows of it, and what it says is discarded */
	/* the start: end-of-file says that exec succeeded. For a framed helper: its answer. */
	struct watch report;
	struct child child;
	struct out answer;
	bool failed;
	int master;
	struct stream streams[3];
	/* the end */
	bool end_session;    /* the others of its session end with the command */
	bool vital;          /* nothing here works without it: when it fails, everything ends */
	bool reaped, timed_out, killing, survivors, said;
	bool counted;        /* what its streams hold at the end */
	int status;
	struct rusage usage;
};

int64_t now_us(void);
void watch_set(struct watch *watch, uint32_t events); /* loop.c */
void watch_close(struct watch *watch);
noreturn void leave(int status);

/* job.c */
extern struct job *jobs;
struct job *job_new(struct cbor request, bool command);
struct job *job_accepted(uint64_t id); /* a tenant's connection to the gate; NULL when there are too many */
void job_say(struct job *job, struct out *out, const int *fds, size_t nfds);
void job_frame(struct job *job, struct out *out, const char *t, unsigned more_keys);
void job_fail(struct job *job, const char *step, int error);
void job_refuse(struct job *job, const char *step, int error);
void job_cancel(struct job *job);
void job_settle(struct job *job);
void jobs_reap(void);
int64_t jobs_tick(int64_t now);
struct job *job_find(uint64_t id);
void jobs_orphan(void);
void line_opened(struct job *job);

void kill_sessions(void);                                  /* kill.c */
void kill_descendants(void);
void each_state(void (*visit)(pid_t pid, char state)); /* of every living process but ourselves */

void pause_start(struct cbor request, bool stop);          /* pause.c */
bool place_paused(void);

void command_start(struct cbor request);                   /* command.c */
void command_frame(struct job *job, struct cbor frame);
void command_exit(struct job *job);
void command_stopped(struct job *job);
void helper_start(struct cbor request);                    /* helper.c */
void helper_exit(struct job *job);

socklen_t dial_address(struct cbor request, struct sockaddr_storage *to); /* dial.c */
void dial_start(struct cbor request);
bool dial_over(const struct job *job);
void dial_cancel(struct job *job);
void dial_exit(struct job *job);

/* What a helper says: an operation fills `done` after the keys it announced, or returns false with errno. */
struct answer {
	struct out done;
	struct job *job;
	int fd;
};
bool file_operation(struct cbor request, struct answer *answer); /* files.c */
void answer_begin(struct answer *answer, unsigned keys);
int open_path(const char *path, uint64_t flags, uint64_t mode);
int open_name(const char *path, uint64_t flags);
bool do_attributes(struct cbor request, const char *path, struct answer *answer); /* attributes.c */
bool do_set_attribute(struct cbor request, const char *path, struct answer *answer);

bool streams_open(struct job *job, int theirs[3], int terminal, bool joined); /* stdio.c */
bool streams_dial(struct job *job, int fd);
void streams_start(struct job *job);
bool streams_flowing(struct job *job, int64_t now);
void streams_close(struct job *job);
void streams_orphan(struct job *job);
void streams_pump_all(void);
bool stream_input(struct job *job, struct cbor frame);
bool stream_credit(struct job *job, struct cbor frame);
bool stream_closed(struct job *job, struct cbor frame);

#endif
