/* A small libnvidia-ml.so.1 whose state is scripted through the file named by FAKE_NVML_STATE, read at every call.
 * One setting a line:
 *   gpus N | lost I | gone I | mig I | unsupported SYMBOL | slow SYMBOL MILLISECONDS | crash SYMBOL | init CODE
 *   used I MEBIBYTES | util I PERCENT | xid I CODE (given once per line number) | throttle I BITS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct { int index; int mig; } Device;
typedef Device *nvmlDevice_t;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char busId[32]; } Pci;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
typedef struct { unsigned fieldId, scopeId; int64_t timestamp, latency; unsigned type; nvmlReturn_t code; union { double d; unsigned u; unsigned long long ull; } value; } Field;
typedef struct { nvmlDevice_t device; unsigned long long type, data; unsigned gi, ci; } EventData;

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };

static Device devices[16], instances[16];
static int xids_given[64];

/* The last value of `key [index]` in the state file, or `otherwise`. */
static long state(const char *key, int index, long otherwise) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[256];
    long found = otherwise;
    while (f && fgets(line, sizeof line, f)) {
        char word[64]; long a, b;
        int n = sscanf(line, "%63s %ld %ld", word, &a, &b);
        if (n < 2 || strcmp(word, key)) continue;
        if (index < 0) found = a;
        else if (a == index) found = n == 3 ? b : 1;
    }
    if (f) fclose(f);
    return found;
}

/* Whether the file says `key symbol`; *value takes a number behind it. */
static int told(const char *key, const char *symbol, long *value) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[256];
    int found = 0;
    while (f && fgets(line, sizeof line, f)) {
        char word[64], name[128]; long a = 0;
        int n = sscanf(line, "%63s %127s %ld", word, name, &a);
        if (n >= 2 && !strcmp(word, key) && !strcmp(name, symbol)) { found = 1; if (value) *value = a; }
    }
    if (f) fclose(f);
    return found;
}

static nvmlReturn_t enter(const char *symbol, nvmlDevice_t device) {
    long wait = 0;
    if (told("crash", symbol, NULL)) abort();
    if (told("slow", symbol, &wait)) usleep(wait * 1000);
    if (told("unsupported", symbol, NULL)) return UNSUPPORTED;
    if (device && (state("lost", device->index, 0) || state("gone", device->index, 0))) return LOST;
    return OK;
}
#define ENTER(device) do { nvmlReturn_t r = enter(__func__, device); if (r) return r; } while (0)

nvmlReturn_t nvmlInit_v2(void) { ENTER(NULL); return (nvmlReturn_t)state("init", -1, OK); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(NULL); return (nvmlReturn_t)state("init", -1, OK); }
nvmlReturn_t nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(nvmlReturn_t code) { return code == LOST ? "GPU is lost" : "scripted error"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "999.01"); return OK; }

static int live(int wanted) { /* the nth GPU that is still enumerated */
    int total = (int)state("gpus", -1, 1), seen = 0;
    for (int i = 0; i < total; i++) if (!state("gone", i, 0) && seen++ == wanted) return i;
    return -1;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) { ENTER(NULL); for (*n = 0; live((int)*n) >= 0; ++*n) {} return OK; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) {
    int which = live((int)i);
    if (which < 0) return INVALID;
    devices[which].index = which;
    *d = &devices[which];
    return OK;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, Pci *p) {
    memset(p, 0, sizeof *p);
    snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", 0x10 + d->index);
    return OK;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *t, unsigned n) { snprintf(t, n, "%s-%d", d->mig ? "MIG" : "GPU", d->index); return OK; }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *t, unsigned n) { (void)d; snprintf(t, n, "Fake H200"); return OK; }
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, Utilization *u) {
    ENTER(d); if (d->mig) return UNSUPPORTED; u->gpu = (unsigned)state("util", d->index, 90); u->memory = 40; return OK; }
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, Memory *m) {
    ENTER(d);
    m->total = (d->mig ? 10240ull : 81920ull) << 20;
    m->used = (unsigned long long)state("used", d->index, 8192) << 20;
    m->free = m->total - m->used;
    return OK;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, Process *p) {
    ENTER(d);
    if (*n < 1) { *n = 1; return TOO_SMALL; }
    *n = 1; p[0].pid = 4242; p[0].used = 4096ull << 20; p[0].gi = p[0].ci = 0xFFFFFFFF;
    return OK;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *v) { ENTER(d); *v = 650500; return OK; }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *v) { ENTER(d); *v = 700000; return OK; }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned s, unsigned *v) { (void)s; ENTER(d); *v = 61; return OK; }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned k, unsigned *v) { ENTER(d); *v = k == 2 ? 2619 : 1980; return OK; }
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *v) { ENTER(d); *v = (unsigned long long)state("throttle", d->index, 0); return OK; }
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, unsigned t, unsigned c, unsigned long long *v) { (void)c; ENTER(d); *v = t == 1 ? 3 : 0; return OK; }
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) { ENTER(d); *c = 0; *u = 1; *p = 1; *f = 0; return OK; }
nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned *v) { ENTER(d); *v = 7; return OK; }
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, unsigned c, unsigned *v) { ENTER(d); *v = c ? 200 : 100; return OK; }
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, unsigned *v) { ENTER(d); *v = 1; return OK; }
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t d, unsigned *v) { ENTER(d); *v = 0; return OK; }
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, Field *f) {
    ENTER(d);
    for (int i = 0; i < n; i++) {
        f[i].code = OK; f[i].type = 1;
        if (f[i].fieldId == 82) f[i].value.u = 72;
        else if (f[i].fieldId == 138) { f[i].type = 3; f[i].value.ull = 5000000000ull; }
        else if (f[i].fieldId == 139) f[i].code = UNSUPPORTED;
        else f[i].value.u = 0;
    }
    return OK;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *now, unsigned *later) { ENTER(d); *now = *later = (unsigned)state("mig", d->index, 0); return OK; }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *n) { (void)d; *n = 7; return OK; }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned i, nvmlDevice_t *m) {
    if (i > 0) return NOT_FOUND;
    instances[d->index].index = d->index; instances[d->index].mig = 1;
    *m = &instances[d->index];
    return OK;
}
nvmlReturn_t nvmlEventSetCreate(void **set) { static int one; *set = &one; return OK; }
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long t, void *s) { (void)d; (void)t; (void)s; return OK; }
nvmlReturn_t nvmlEventSetWait_v2(void *set, EventData *data, unsigned ms) {
    (void)set; (void)ms;
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[256];
    for (int number = 0; f && fgets(line, sizeof line, f) && number < 64; number++) {
        long gpu, code;
        if (sscanf(line, "xid %ld %ld", &gpu, &code) == 2 && !xids_given[number]) {
            xids_given[number] = 1;
            memset(data, 0, sizeof *data);
            data->device = &devices[gpu]; data->type = 8; data->data = (unsigned long long)code;
            fclose(f);
            return OK;
        }
    }
    if (f) fclose(f);
    return TIMEOUT;
}
