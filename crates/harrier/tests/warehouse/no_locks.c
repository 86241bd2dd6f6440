// A file system whose locks are not there, as Lustre's without -o flock: fcntl() fails with the number in NO_LOCKS for files whose names have
// "catalog" in them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_catalog(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "catalog") != NULL;
}

static int locked(const char *name, int fd, int command, void *argument) {
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
    const char *number = getenv("NO_LOCKS");
    if (number && (command == F_SETLK || command == F_SETLKW) && is_catalog(fd)) {
        errno = atoi(number);
        return -1;
    }
    return real(fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return locked("fcntl", fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return locked("fcntl64", fd, command, argument);
}
