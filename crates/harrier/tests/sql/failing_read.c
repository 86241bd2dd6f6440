/* A disk that breaks while a file is read: the second read() of the file that $FAILING_READ names fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int reads;

ssize_t read(int file, void *buffer, size_t bytes) {
    const char *name = getenv("FAILING_READ");
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = name ? readlink(link, path, sizeof path - 1) : -1;
    if (length > 0) {
        path[length] = 0;
        if (strcmp(path, name) == 0 && reads++ > 0) {
            errno = EIO;
            return -1;
        }
    }
    return syscall(SYS_read, file, buffer, bytes);
}
