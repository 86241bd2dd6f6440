/* Ends its process by SIGKILL at one of its calls that change files: preloaded, so that there is a fault at every step of a program
 * that knows nothing of it. Calls of all threads are counted, from 0.
 *
 * HARRIER_CRASH_BELOW=P   only calls on files whose path has P in it
 * HARRIER_CRASH_AT=N      the call before which the process ends; without it none
 * HARRIER_CRASH_RANK=R    only in the process whose rank by MPI's launcher is R
 * HARRIER_CRASH_COUNT=F   at its end the process writes the number of its calls into the file F
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;
static long crash_at = -1;
static const char *count_file;
static const char *below = "";

__attribute__((constructor)) static void begin(void) {
    const char *rank = getenv("HARRIER_CRASH_RANK");
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    if (rank && (!own || strcmp(rank, own) != 0)) return;
    if (getenv("HARRIER_CRASH_BELOW")) below = getenv("HARRIER_CRASH_BELOW");
    const char *at = getenv("HARRIER_CRASH_AT");
    if (at) crash_at = atol(at);
    count_file = getenv("HARRIER_CRASH_COUNT");
}

__attribute__((destructor)) static void end(void) {
    if (!count_file) return;
    FILE *file = fopen(count_file, "w");
    if (!file) return;
    fprintf(file, "%ld\n", (long)atomic_load(&calls));
    fclose(file);
}

static void step(const char *path) {
    if (strstr(path, below) && atomic_fetch_add(&calls, 1) == crash_at) kill(getpid(), SIGKILL);
}

static void step_of(int fd) {
    struct stat status;
    if (fd <= 2 || fstat(fd, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    step(path);
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
            step(path);                                              \
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
    step(path);
    return NEXT(mkdir)(path, mode);
}

int rename(const char *from, const char *to) {
    step(to);
    return NEXT(rename)(from, to);
}

int unlink(const char *path) {
    step(path);
    return NEXT(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    step(path);
    return NEXT(unlinkat)(folder, path, flags);
}

int rmdir(const char *path) {
    step(path);
    return NEXT(rmdir)(path);
}
