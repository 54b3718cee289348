/* Loaded before libc: from the n-th change of a watched folder on, once or for ever, calls fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char watched[PATH_MAX];
static long at = -1, seen = 0;
static int code = EIO, stays = 0, armed = 0;

void faults_arm(const char *folder, long number, int error, int for_ever) {
    snprintf(watched, sizeof watched, "%s", folder);
    at = number, code = error, stays = for_ever, seen = 0, armed = 1;
}

long faults_seen(void) { return seen; }

static int fails(const char *path) {
    if (!armed || strncmp(path, watched, strlen(watched)) != 0) return 0;
    seen++;
    if (seen == at || (stays && seen > at)) {
        errno = code;
        return 1;
    }
    return 0;
}

static int descriptor_fails(int descriptor) {
    char name[64], path[PATH_MAX];
    if (!armed) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return fails(path);
}

static int name_fails(int folder, const char *name) {
    if (!armed) return 0;
    if (name[0] == '/') return fails(name);
    if (folder == AT_FDCWD) return 0;
    return descriptor_fails(folder);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CHANGES (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)
#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) {
    MODE if ((flags & CHANGES) && name_fails(AT_FDCWD, path)) return -1;
    return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE if ((flags & CHANGES) && name_fails(AT_FDCWD, path)) return -1;
    return REAL(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE if ((flags & CHANGES) && name_fails(folder, path)) return -1;
    return REAL(openat)(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE if ((flags & CHANGES) && name_fails(folder, path)) return -1;
    return REAL(openat64)(folder, path, flags, mode);
}
ssize_t write(int descriptor, const void *content, size_t size) {
    if (descriptor > 2 && descriptor_fails(descriptor)) { /* a part is written, as on a full disk */
        int failed = errno;
        if (size > 1) (void)!REAL(write)(descriptor, content, size / 2);
        errno = failed;
        return -1;
    }
    return REAL(write)(descriptor, content, size);
}
ssize_t pwrite64(int descriptor, const void *content, size_t size, off64_t place) {
    if (descriptor_fails(descriptor)) return -1;
    return REAL(pwrite64)(descriptor, content, size, place);
}
int fsync(int descriptor) { return descriptor_fails(descriptor) ? -1 : REAL(fsync)(descriptor); }
int ftruncate64(int descriptor, off64_t size) {
    return descriptor_fails(descriptor) ? -1 : REAL(ftruncate64)(descriptor, size);
}
int rename(const char *one, const char *other) {
    return name_fails(AT_FDCWD, other) ? -1 : REAL(rename)(one, other);
}
int renameat(int from, const char *one, int to, const char *other) {
    return name_fails(to, other) ? -1 : REAL(renameat)(from, one, to, other);
}
int renameat2(int from, const char *one, int to, const char *other, unsigned int flags) {
    return name_fails(to, other) ? -1 : REAL(renameat2)(from, one, to, other, flags);
}
int unlink(const char *path) { return name_fails(AT_FDCWD, path) ? -1 : REAL(unlink)(path); }
int unlinkat(int folder, const char *path, int flags) {
    return name_fails(folder, path) ? -1 : REAL(unlinkat)(folder, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    return name_fails(AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode);
}
int rmdir(const char *path) { return name_fails(AT_FDCWD, path) ? -1 : REAL(rmdir)(path); }
int linkat(int from, const char *one, int to, const char *other, int flags) {
    return name_fails(to, other) ? -1 : REAL(linkat)(from, one, to, other, flags);
}
