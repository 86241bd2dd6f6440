// A file system as an NFS client shows it: a file that is removed, or replaced, while this process has it open gets a name `.nfs…` in its
// folder, which goes when the file is closed; until then the folder cannot be removed. LIKE_NFS is a file that the names of processes are added
// to, and of files that they have removed so.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT_MAX 1024
static struct { dev_t device; ino_t inode; char path[PATH_MAX]; } kept[KEPT_MAX];
static int keeps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int real_unlinkat(int folder, const char *path, int flags) {
    return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, path, flags);
}

static int real_close(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "close");
    return real(fd);
}

static void tell(const char *above, const char *name) {
    FILE *told = getenv("LIKE_NFS") ? fopen(getenv("LIKE_NFS"), "a") : NULL;
    if (told) {
        fprintf(told, "%s%s\n", above, name);
        fclose(told);
    }
}

__attribute__((constructor)) static void begin(void) {
    tell("process ", program_invocation_short_name);
}

// By any descriptor of this process.
static int is_open(dev_t device, ino_t inode) {
    DIR *all = opendir("/proc/self/fd");
    int found = 0;
    for (struct dirent *entry; all && !found && (entry = readdir(all));) {
        struct stat status;
        found = fstat(atoi(entry->d_name), &status) == 0 && status.st_dev == device && status.st_ino == inode
            && entry->d_name[0] != '.';
    }
    if (all) closedir(all);
    return found;
}

// Whether the name is taken away by giving the file another one.
static int keep(int folder, const char *path) {
    struct stat status;
    char above[PATH_MAX], link[64], to[PATH_MAX];
    if (!getenv("LIKE_NFS") || fstatat(folder, path, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)
        || !is_open(status.st_dev, status.st_ino))
        return 0;
    above[0] = 0;
    if (path[0] != '/' && folder != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, above, sizeof above - 2);
        if (length < 0) return 0;
        strcpy(above + length, "/");
    }
    const char *name = strrchr(path, '/');
    pthread_mutex_lock(&lock);
    static int number;
    snprintf(to, sizeof to, "%s%.*s.nfs%016lx%08x", above, name ? (int)(name - path) + 1 : 0, path,
             (unsigned long)status.st_ino, number++);
    int is_kept = keeps < KEPT_MAX && renameat(folder, path, AT_FDCWD, to) == 0;
    if (is_kept) {
        kept[keeps].device = status.st_dev;
        kept[keeps].inode = status.st_ino;
        strcpy(kept[keeps++].path, to);
        tell(above, path);
    }
    pthread_mutex_unlock(&lock);
    return is_kept;
}

int unlinkat(int folder, const char *path, int flags) {
    const char *name = strrchr(path, '/');
    if (!strncmp(name ? name + 1 : path, ".nfs", 4)) {
        errno = EBUSY;
        return -1;
    }
    return !(flags & AT_REMOVEDIR) && keep(folder, path) ? 0 : real_unlinkat(folder, path, flags);
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rename(const char *from, const char *to) {
    keep(AT_FDCWD, to);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int close(int fd) {
    struct stat status;
    int is_known = keeps > 0 && fstat(fd, &status) == 0;
    int result = real_close(fd);
    if (is_known) {
        pthread_mutex_lock(&lock);
        for (int at = 0; at < keeps; at++) {
            if (kept[at].device != status.st_dev || kept[at].inode != status.st_ino) continue;
            if (is_open(status.st_dev, status.st_ino)) break;
            real_unlinkat(AT_FDCWD, kept[at].path, 0);
            kept[at--] = kept[--keeps];
        }
        pthread_mutex_unlock(&lock);
    }
    return result;
}
