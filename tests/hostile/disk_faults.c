/* Preloaded into a process: kills it, or fails its disk, at the n-th operation that changes files below a folder.
 *
 *   VSE_FAULT_UNDER  the folder; operations elsewhere are neither counted nor changed
 *   VSE_FAULT_AT     the number of the operation, from 1; 0 or nothing counts only
 *   VSE_FAULT_KIND   kill: SIGKILL before the operation; torn: a write does half of it, then SIGKILL;
 *                    full: this and all later writes fail with ENOSPC; error: this one fails with EIO
 *   VSE_FAULT_LOG    a file to which every counted operation is appended, one line each
 *
 * disk_faults_arm() changes these at run time, in a process that was forked from one that has loaded everything.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char under[PATH_MAX], kind[16];
static long at, count;
static int log_file = -1, ready;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

void disk_faults_arm(const char *folder, long number, const char *how, const char *log) {
    snprintf(under, sizeof under, "%s", folder ? folder : "");
    snprintf(kind, sizeof kind, "%s", how ? how : "kill");
    at = number;
    count = 0;
    if (log_file >= 0) syscall(SYS_close, log_file);
    log_file = log && *log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    ready = 1;
}

long disk_faults_count(void) { return count; }

static void prepare(void) {
    if (ready) return;
    const char *number = getenv("VSE_FAULT_AT");
    disk_faults_arm(getenv("VSE_FAULT_UNDER"), number ? atol(number) : 0, getenv("VSE_FAULT_KIND"), getenv("VSE_FAULT_LOG"));
}

static int inside(const char *path) {
    size_t length = strlen(under);
    return length && strncmp(path, under, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static const char *path_of(int fd, char *buffer) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, (long)PATH_MAX - 1);
    buffer[length < 0 ? 0 : length] = 0;
    return buffer;
}

static const char *resolved(int folder, const char *path, char *buffer) {
    if (path[0] == '/') return path;
    char base[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (syscall(SYS_getcwd, base, (long)sizeof base) < 0) return path;
    } else {
        path_of(folder, base);
    }
    if (snprintf(buffer, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return path;
    return buffer;
}

static void die(void) {
    syscall(SYS_kill, (long)syscall(SYS_getpid), (long)SIGKILL);
    for (;;) pause();
}

/* Returns 0 to go on, 1 for half of a write and then death, otherwise an errno to fail with. */
static int counted(const char *name, const char *path, int grows, const char *from) {
    prepare();
    if (!inside(path)) return 0;
    pthread_mutex_lock(&guard);
    long number = ++count;
    pthread_mutex_unlock(&guard);
    if (log_file >= 0) {
        char line[2 * PATH_MAX + 64];
        if (from) from = strrchr(from, '/') ? strrchr(from, '/') + 1 : from;
        int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", name, path + strlen(under), from ? from : "");
        syscall(SYS_write, log_file, line, (long)length);
    }
    if (at <= 0 || number < at) return 0;
    if (!strcmp(kind, "full")) return grows ? ENOSPC : 0;
    if (number > at) return 0;
    if (!strcmp(kind, "error")) return EIO;
    if (!strcmp(kind, "torn") && grows == 2) return 1;
    die();
    return 0;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define WRITES(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) { \
        REAL(ssize_t, name, int, const void *, size_t, offset_type); \
        char buffer[PATH_MAX]; \
        int failed = counted("write", path_of(fd, buffer), 2, NULL); \
        if (failed == 1) { real(fd, data, size / 2, offset); die(); } \
        if (failed) { errno = failed; return -1; } \
        return real(fd, data, size, offset); \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    char buffer[PATH_MAX];
    int failed = counted("write", path_of(fd, buffer), 2, NULL);
    if (failed == 1) { real(fd, data, size / 2); die(); }
    if (failed) { errno = failed; return -1; }
    return real(fd, data, size);
}

#define ON_DESCRIPTOR(name, label, grows, parameters, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
        char buffer[PATH_MAX]; \
        int failed = counted(label, path_of(fd, buffer), grows, NULL); \
        if (failed) { errno = failed; return -1; } \
        return real arguments; \
    }
ON_DESCRIPTOR(fsync, "fsync", 0, (int fd), (fd))
ON_DESCRIPTOR(fdatasync, "fsync", 0, (int fd), (fd))
ON_DESCRIPTOR(ftruncate, "truncate", 0, (int fd, off_t size), (fd, size))
ON_DESCRIPTOR(ftruncate64, "truncate", 0, (int fd, off64_t size), (fd, size))

#define ON_PATH(name, label, grows, shown, from_name, parameters, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
        char buffer[PATH_MAX]; \
        int failed = counted(label, shown, grows, from_name); \
        (void)buffer; \
        if (failed) { errno = failed; return -1; } \
        return real arguments; \
    }
ON_PATH(rename, "rename", 1, resolved(AT_FDCWD, to, buffer), from, (const char *from, const char *to), (from, to))
ON_PATH(renameat, "rename", 1, resolved(other, to, buffer), from,
        (int folder, const char *from, int other, const char *to), (folder, from, other, to))
ON_PATH(unlink, "unlink", 0, resolved(AT_FDCWD, path, buffer), NULL, (const char *path), (path))
ON_PATH(unlinkat, "unlink", 0, resolved(folder, path, buffer), NULL, (int folder, const char *path, int flags), (folder, path, flags))
ON_PATH(mkdir, "mkdir", 1, resolved(AT_FDCWD, path, buffer), NULL, (const char *path, mode_t mode), (path, mode))
ON_PATH(mkdirat, "mkdir", 1, resolved(folder, path, buffer), NULL, (int folder, const char *path, mode_t mode), (folder, path, mode))
ON_PATH(rmdir, "unlink", 0, resolved(AT_FDCWD, path, buffer), NULL, (const char *path), (path))
