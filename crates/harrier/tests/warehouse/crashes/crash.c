/* Ends its process, or that of a server, by SIGKILL at one of the steps of its process: preloaded, so that there is a fault at every step of
 * a program that knows nothing of it. Steps are calls that change files, and messages to servers and answers of theirs; those of all
 * threads are counted, from 0. A file is changed, and a message sent, after its step; an answer has come before its step, and is lost by it.
 *
 * HARRIER_CRASH_BELOW=P   only calls on files whose path has P in it
 * HARRIER_CRASH_PORTS=N,M messages to and answers from these ports of TCP; without it none
 * HARRIER_CRASH_AT=N      the step at which a process ends; without it none
 * HARRIER_CRASH_VICTIM=P  instead of this process, process P and its children end; this one goes on
 * HARRIER_CRASH_RANK=R    only in the process whose rank by MPI's launcher is R
 * HARRIER_CRASH_COUNT=F   at its end the process writes its steps into the file F, in their order and as a letter each: a dot for a file,
 *                         A, B, … for a message to the first, the second, … of the ports, a, b, … for an answer from it
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PORTS_MAX = 8, CHILDREN_BYTES_MAX = 1 << 14, STEPS_MAX = 1 << 20 };

static atomic_long steps;
/* Of those behind the last one, which are more than anybody tries, none is told. */
static char letters[STEPS_MAX];
static long crash_at = -1;
static const char *count_file;
static const char *below = "";
static long victim;
static int ports[PORTS_MAX];
static int ports_count;

__attribute__((constructor)) static void begin(void) {
    const char *rank = getenv("HARRIER_CRASH_RANK");
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    if (rank && (!own || strcmp(rank, own) != 0)) return;
    if (getenv("HARRIER_CRASH_BELOW")) below = getenv("HARRIER_CRASH_BELOW");
    const char *at = getenv("HARRIER_CRASH_AT");
    if (at) crash_at = atol(at);
    const char *killed = getenv("HARRIER_CRASH_VICTIM");
    if (killed) victim = atol(killed);
    const char *rest = getenv("HARRIER_CRASH_PORTS");
    while (rest && *rest && ports_count < PORTS_MAX) {
        char *end;
        ports[ports_count++] = (int)strtol(rest, &end, 10);
        rest = *end ? end + 1 : end;
    }
    count_file = getenv("HARRIER_CRASH_COUNT");
}

__attribute__((destructor)) static void end(void) {
    if (!count_file) return;
    FILE *file = fopen(count_file, "w");
    if (!file) return;
    long count = atomic_load(&steps);
    fwrite(letters, 1, (size_t)(count < STEPS_MAX ? count : STEPS_MAX), file);
    fclose(file);
}

/* The process and its children at once, as a machine does that loses power: none of them hears of the end of another. */
static void end_victim(void) {
    char list[64], children[CHILDREN_BYTES_MAX];
    snprintf(list, sizeof list, "/proc/%ld/task/%ld/children", victim, victim);
    FILE *file = fopen(list, "r");
    size_t length = file ? fread(children, 1, sizeof children - 1, file) : 0;
    if (file) fclose(file);
    children[length] = 0;
    kill((pid_t)victim, SIGKILL);
    char *rest = children;
    for (long child; (child = strtol(rest, &rest, 10)) > 1;) kill((pid_t)child, SIGKILL);
}

/* Whether this was the step. */
static int step(char letter) {
    long at = atomic_fetch_add(&steps, 1);
    if (at < STEPS_MAX) letters[at] = letter;
    if (at != crash_at) return 0;
    if (victim > 1) end_victim();
    else kill(getpid(), SIGKILL);
    return 1;
}

static void step_on(const char *path) {
    if (strstr(path, below)) step('.');
}

/* To which of the servers this is a connection, or -1. */
static int server_of(int fd) {
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (!ports_count || getpeername(fd, (struct sockaddr *)&peer, &length) != 0) return -1;
    int port = 0;
    if (peer.ss_family == AF_INET) port = ntohs(((struct sockaddr_in *)&peer)->sin_port);
    if (peer.ss_family == AF_INET6) port = ntohs(((struct sockaddr_in6 *)&peer)->sin6_port);
    for (int at = 0; at < ports_count; at++)
        if (port == ports[at]) return at;
    return -1;
}

static void step_of(int fd) {
    struct stat status;
    if (fd <= 2 || fstat(fd, &status) != 0) return;
    int server = S_ISSOCK(status.st_mode) ? server_of(fd) : -1;
    if (server >= 0) step((char)('A' + server));
    if (!(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    step_on(path);
}

/* What a call has got that reads. */
static ssize_t heard(int fd, ssize_t got) {
    if (got <= 0) return got;
    int server = server_of(fd);
    if (server < 0 || !step((char)('a' + server))) return got;
    errno = ECONNRESET;
    return -1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A call of the family of open, which changes files if it may make one. */
#define OPENING(name, parameters, arguments)                         \
    int name parameters {                                            \
        mode_t mode = 0;                                             \
        if (flags & O_CREAT) {                                       \
            va_list rest;                                            \
            va_start(rest, flags);                                   \
            mode = va_arg(rest, mode_t);                             \
            va_end(rest);                                            \
            step_on(path);                                              \
        }                                                            \
        return NEXT(name) arguments;                                 \
    }
OPENING(open, (const char *path, int flags, ...), (path, flags, mode))
OPENING(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPENING(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

ssize_t write(int fd, const void *bytes, size_t count) {
    step_of(fd);
    return NEXT(write)(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    step_of(fd);
    return NEXT(writev)(fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    step_of(fd);
    return NEXT(pwrite)(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    step_of(fd);
    return NEXT(pwrite64)(fd, bytes, count, at);
}

int fsync(int fd) {
    step_of(fd);
    return NEXT(fsync)(fd);
}

int fdatasync(int fd) {
    step_of(fd);
    return NEXT(fdatasync)(fd);
}

int ftruncate(int fd, off_t length) {
    step_of(fd);
    return NEXT(ftruncate)(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    step_of(fd);
    return NEXT(ftruncate64)(fd, length);
}

int mkdir(const char *path, mode_t mode) {
    step_on(path);
    return NEXT(mkdir)(path, mode);
}

int rename(const char *from, const char *to) {
    step_on(to);
    return NEXT(rename)(from, to);
}

int unlink(const char *path) {
    step_on(path);
    return NEXT(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    step_on(path);
    return NEXT(unlinkat)(folder, path, flags);
}

int rmdir(const char *path) {
    step_on(path);
    return NEXT(rmdir)(path);
}

ssize_t send(int fd, const void *bytes, size_t count, int flags) {
    step_of(fd);
    return NEXT(send)(fd, bytes, count, flags);
}

ssize_t sendto(int fd, const void *bytes, size_t count, int flags, const struct sockaddr *to, socklen_t length) {
    step_of(fd);
    return NEXT(sendto)(fd, bytes, count, flags, to, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    step_of(fd);
    return NEXT(sendmsg)(fd, message, flags);
}

ssize_t recv(int fd, void *bytes, size_t count, int flags) {
    return heard(fd, NEXT(recv)(fd, bytes, count, flags));
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    return heard(fd, NEXT(recvmsg)(fd, message, flags));
}
