/* Checks of the C API by the contract in its header. Prints one line for each A task, which the test adds up. argv[1] is the check. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <mpid.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static size_t by_last_byte(const void *key, size_t bytes, size_t tasks) {
    return bytes == 0 ? 0 : ((const unsigned char *)key)[bytes - 1] % tasks;
}

static int backwards(const void *left, size_t left_bytes, const void *right, size_t right_bytes) {
    size_t bytes = left_bytes < right_bytes ? left_bytes : right_bytes;
    int order = memcmp(right, left, bytes);
    return order != 0 ? order : (left_bytes < right_bytes) - (left_bytes > right_bytes);
}

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s (%s)\n", what, MPI_D_Error_message());
        abort();
    }
}

/* Rounds: each of three rounds sends the kept numbers on, incremented. */
static int iteration(const char *fails) {
    const void *key, *value;
    size_t key_bytes, value_bytes;
    uint64_t kept = 0, sum = 0;
    double numbers[2] = {0, 0};
    must(MPI_D_Next_round() == 0, "no round before the beginning");
    MPI_D_Set_mode(MPI_D_ITERATION), MPI_D_Set_arrangement(MPI_D_SORTED);
    int begun = MPI_D_Init(NULL, NULL);
    if (begun != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    must(begun != MPI_D_SUCCESS || MPI_D_Sum(numbers, 2) == MPI_D_ERR_USAGE, "tasks are left");
    must(MPI_D_Kept(&key, &key_bytes, &value, &value_bytes) == MPI_D_ERR_USAGE, "nothing is kept for nobody");
    int goes_on;
    do {
        uint64_t round = MPI_D_Round();
        kept = sum = 0;
        while (MPI_D_Next_task()) {
            int rank, size;
            if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
                MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank), MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_O, &size);
                must(size == (round == 0 ? 4 : 5), "as many tasks as parts");
                must(MPI_D_Keep("a", 1, "b", 1) == MPI_D_ERR_USAGE, "O tasks keep nothing");
                must(MPI_D_Send_at(1, "a", 1, "b", 1) == MPI_D_ERR_USAGE && MPI_D_Advance(1) == MPI_D_ERR_USAGE, "no times");
                for (uint32_t at = 0; round == 0 && at < 100; at++) {
                    uint32_t number = (uint32_t)rank * 100 + at, swapped = __builtin_bswap32(number);
                    must(MPI_D_Send(&swapped, 4, &number, 4) == MPI_D_SUCCESS, "a pair");
                }
                for (int at = 0; MPI_D_Kept(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS; at++) {
                    must(round > 0 && key_bytes == 4 && value_bytes == 4, "a pair that was kept");
                    uint32_t number, swapped;
                    memcpy(&number, value, 4);
                    swapped = __builtin_bswap32(++number);
                    if (MPI_D_Send(&swapped, 4, &number, 4) != MPI_D_SUCCESS) break;
                    if (strcmp(fails, "fail") == 0 && round == 2 && rank == 3 && at == 4) MPI_D_Fail("on purpose");
                }
            } else {
                MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_A, &rank);
                for (int at = 1; MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS; at++) {
                    uint32_t number;
                    memcpy(&number, value, 4);
                    /* The last round keeps nothing, and the pairs kept before stay. */
                    if (round < 4) must(MPI_D_Keep(key, key_bytes, value, value_bytes) == MPI_D_SUCCESS, "a pair is kept");
                    if (strcmp(fails, "fail A") == 0 && round == 2 && rank == 3 && at == 5) MPI_D_Fail("on purpose");
                }
                while (MPI_D_Kept(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) {
                    uint32_t number;
                    memcpy(&number, value, 4);
                    kept++, sum += number;
                }
            }
        }
        numbers[0] = 1, numbers[1] = (double)kept;
        goes_on = MPI_D_Sum(numbers, 2) == MPI_D_SUCCESS;
        must(!goes_on || numbers[0] >= 1, "a rank at least");
        must(!goes_on || numbers[1] == (round == 0 ? 0 : 400), "all that is kept");
    } while (goes_on && MPI_D_Round() < 4 && MPI_D_Next_round());
    printf("kept %" PRIu64 "\nsum %" PRIu64 "\n", kept, sum);
    return MPI_D_Finalize();
}

/* 10000 pairs from each rank in windows of 100, and one that is late. */
static int streaming(const char *fails) {
    static uint64_t time, inputs, pairs, late;
    MPI_D_Set_mode(MPI_D_STREAMING), MPI_D_Set_window(100);
    if (MPI_D_Init(NULL, NULL) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    int64_t last = -1;
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            must(MPI_D_Send("a", 1, "b", 1) == MPI_D_ERR_USAGE, "pairs of a stream have times");
            must(MPI_D_Window(NULL, NULL) == MPI_D_ERR_USAGE, "O tasks have no window");
            must(MPI_D_Kept(NULL, NULL, NULL, NULL) == MPI_D_ERR_USAGE, "streams keep nothing");
            /* More than one window at a time, so that some wait. */
            for (int at = 0; at < 1000; at++, time++) {
                uint32_t key = (uint32_t)time % 10;
                if (MPI_D_Advance(time) != MPI_D_SUCCESS || MPI_D_Send_at(time, &key, 4, &time, 8) != MPI_D_SUCCESS) break;
            }
            if (time < 10000) continue;
            inputs++;
            late += MPI_D_Send_at(5, "late", 4, "late", 4) == MPI_D_LATE;
            must(MPI_D_End_input() == MPI_D_SUCCESS, "the end of the input");
            must(MPI_D_Send_at(time, "a", 1, "b", 1) == MPI_D_ERR_USAGE, "no pair behind the end of the input");
            must(strstr(MPI_D_Error_message(), "MPI_D_End_input") != NULL, "why there is none");
            must(MPI_D_Advance(time + 1000) == MPI_D_ERR_USAGE, "nothing is behind the end of the input");
            must(MPI_D_End_input() == MPI_D_SUCCESS, "it has ended");
        } else {
            uint64_t begin, end, number;
            int rank, size;
            const void *key, *value;
            size_t key_bytes, value_bytes;
            MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_A, &rank), MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_A, &size);
            must(MPI_D_Window(&begin, &end) == MPI_D_SUCCESS && end == begin + 100, "a window");
            /* A rank has several A tasks, of which each has its windows in order. */
            must(size > 1 || (int64_t)begin > last, "windows in order");
            last = (int64_t)begin;
            while (MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) {
                memcpy(&number, value, 8);
                must(key_bytes == 4 && value_bytes == 8 && number >= begin && number < end, "a pair of the window");
                pairs++;
                if (strcmp(fails, "fail A") == 0 && begin == 300) {
                    MPI_D_Fail("on purpose");
                    break;
                }
            }
        }
    }
    printf("inputs %" PRIu64 "\npairs %" PRIu64 "\nlate %" PRIu64 "\n", inputs, pairs, late);
    return MPI_D_Finalize();
}

static atomic_long refusals;

/* Every function of the library, called by one that the library has called. */
static void call_back(void) {
    const void *bytes;
    size_t length;
    int number;
    uint64_t time;
    double sum = 0;
    char own[8] = "", other[8] = "";
    int codes[] = {
        MPI_D_Init(NULL, NULL), MPI_D_Send("a", 1, "b", 1), MPI_D_Send_many(1, "a", 1, "b", 1), MPI_D_Send_at(1, "a", 1, "b", 1),
        MPI_D_Advance(1), MPI_D_End_input(), MPI_D_Window(&time, &time), MPI_D_Recv(&bytes, &length, &bytes, &length),
        MPI_D_Recv_many(1, own, 1, other, 1, &length), MPI_D_Keep("a", 1, "b", 1), MPI_D_Kept(&bytes, &length, &bytes, &length),
        MPI_D_Reads("a"), MPI_D_At(1), MPI_D_Comm_rank(1, &number), MPI_D_Comm_size(1, &number), MPI_D_Sum(&sum, 1), MPI_D_Finalize(),
    };
    for (size_t at = 0; at < sizeof codes / sizeof codes[0]; at++) must(codes[at] == MPI_D_ERR_USAGE, "a call within a call");
    must(strstr(MPI_D_Error_message(), "no combiner, partitioner or comparator") != NULL, "who may not call");
    must(MPI_D_Next_task() == 0 && MPI_D_Next_round() == 0 && MPI_D_COMM_BIPARTITE_O == MPI_D_COMM_NULL, "nothing begins");
    MPI_D_Set_combiner(NULL);
    refusals++;
}

static int64_t calling_sum(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room, const void *value,
                           size_t value_bytes) {
    call_back();
    return MPI_D_Sum_int64(key, key_bytes, held, held_bytes, room, value, value_bytes);
}

static size_t calling_partitioner(const void *key, size_t bytes, size_t tasks) {
    call_back();
    return by_last_byte(key, bytes, tasks);
}

static int calling_comparator(const void *left, size_t left_bytes, const void *right, size_t right_bytes) {
    call_back();
    return backwards(left, left_bytes, right, right_bytes);
}

/* Reentrant calls of the library in callbacks are errors, and the job goes on. */
static int calling(void) {
    const void *key, *value;
    size_t key_bytes, value_bytes;
    int64_t sum = 0, number;
    MPI_D_Set_arrangement(MPI_D_SORTED), MPI_D_Set_combiner(calling_sum);
    MPI_D_Set_partitioner(calling_partitioner), MPI_D_Set_comparator(calling_comparator);
    must(MPI_D_Init(NULL, NULL) == MPI_D_SUCCESS, "the beginning");
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            for (uint32_t at = 0; at < 100; at++) {
                uint32_t swapped = __builtin_bswap32(at % 10);
                must(MPI_D_Send(&swapped, 4, &(int64_t){1}, 8) == MPI_D_SUCCESS, "a pair");
            }
        } else
            while (MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) sum += *(int64_t *)memcpy(&number, value, 8);
    }
    printf("sum %" PRId64 "\nrefusals %ld\n", sum, refusals);
    return MPI_D_Finalize();
}

static int64_t failing_combiner(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room, const void *value,
                                size_t value_bytes) {
    MPI_D_Fail("on purpose");
    return MPI_D_Sum_int64(key, key_bytes, held, held_bytes, room, value, value_bytes);
}

static size_t failing_partitioner(const void *key, size_t bytes, size_t tasks) {
    MPI_D_Fail("on purpose");
    return by_last_byte(key, bytes, tasks);
}

static int failing_comparator(const void *left, size_t left_bytes, const void *right, size_t right_bytes) {
    MPI_D_Fail("on purpose");
    return backwards(left, left_bytes, right, right_bytes);
}

/* A function of the program that says that it has failed fails the job with its message. */
static int failing(const char *which) {
    MPI_D_Set_arrangement(MPI_D_SORTED);
    if (strcmp(which, "combiner") == 0) MPI_D_Set_combiner(failing_combiner);
    if (strcmp(which, "partitioner") == 0) MPI_D_Set_partitioner(failing_partitioner);
    if (strcmp(which, "both") == 0) MPI_D_Set_combiner(MPI_D_Sum_int64), MPI_D_Set_partitioner(failing_partitioner);
    if (strcmp(which, "comparator") == 0) MPI_D_Set_comparator(failing_comparator);
    must(MPI_D_Init(NULL, NULL) == MPI_D_SUCCESS, "the beginning");
    while (MPI_D_Next_task())
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            MPI_D_Reads("numbers");
            for (uint64_t at = 0; at < 100 && MPI_D_At(at) == MPI_D_SUCCESS; at++)
                if (MPI_D_Send(&(char){(char)('a' + at % 10)}, 1, &(int64_t){1}, 8) != MPI_D_SUCCESS) break;
        } else
            while (MPI_D_Recv(NULL, NULL, NULL, NULL) == MPI_D_SUCCESS) must(0, "a pair");
    int code = MPI_D_Finalize();
    printf("failed: %s\n", MPI_D_Error_message());
    return code == MPI_D_ERR_JOB ? 0 : 1;
}

/* What is said to have bytes, and is null, is refused and not read. */
static void nothing_is_not_read(void) {
    size_t much = SIZE_MAX / 4 + 2;
    must(MPI_D_Send(NULL, 4, "b", 1) == MPI_D_ERR_USAGE && MPI_D_Send("a", 1, NULL, 4) == MPI_D_ERR_USAGE, "a pair of nothing");
    must(MPI_D_Send_many(3, NULL, 4, "abc", 1) == MPI_D_ERR_USAGE, "pairs of nothing");
    must(MPI_D_Send_many(much, "abcd", 4, "", 0) == MPI_D_ERR_USAGE, "more pairs than there can be");
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static int is_there(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Adds a line to a file of the folder, in one piece. */
static void note(const char *folder, const char *name, long number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "a");
    must(file != NULL && fprintf(file, "%ld\n", number) > 0 && fclose(file) == 0, "a note");
}

/* As tests/killed_ranks/mod.rs has it: O task 0 waits to be killed when it runs for the first time. */
static int killed(const char *folder) {
    const void *key, *value;
    size_t key_bytes, value_bytes;
    MPI_D_Set_combiner(MPI_D_Sum_int64);
    if (MPI_D_Init(NULL, NULL) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    while (MPI_D_Next_task()) {
        int rank;
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank);
            if (rank == 0 && !is_there(folder, "victim")) {
                note(folder, "victim", (long)getpid());
                for (;;) nap();
            }
            while (!is_there(folder, "go")) nap();
            for (uint32_t at = 0; at < 1000; at++) {
                uint32_t swapped = __builtin_bswap32(at % 100);
                if (MPI_D_Send(&swapped, 4, &(int64_t){rank + 1}, 8) != MPI_D_SUCCESS) break;
            }
            note(folder, "ran", rank);
        } else {
            int64_t keys = 0, sum = 0, number;
            MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_A, &rank);
            for (; MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS; keys++)
                sum += *(int64_t *)memcpy(&number, value, 8);
            char line[100];
            /* In one piece: ranks share the output. */
            int bytes = snprintf(line, sizeof line, "A %d %" PRId64 " %" PRId64 "\n", rank, keys, sum);
            must(write(STDOUT_FILENO, line, (size_t)bytes) == bytes, "a line");
        }
    }
    return MPI_D_Finalize();
}

/* As launchers tell it; 0 alone. */
static int launched_rank(void) {
    const char *open_mpi = getenv("OMPI_COMM_WORLD_RANK"), *mpich = getenv("PMI_RANK");
    return atoi(open_mpi != NULL ? open_mpi : mpich != NULL ? mpich : "0");
}

/* What every rank prints, to be the same. */
static int told(int code) {
    printf("told %s\n", code == MPI_D_ERR_JOB ? MPI_D_Error_message() : "nothing");
    return code;
}

/* The program goes out of its loop in a task, or before there is one. */
static int early(const char *how) {
    const void *key, *value;
    size_t key_bytes, value_bytes;
    int rank, goes_on = 1, is_stream = strcmp(how, "window") == 0;
    must(MPI_D_Next_task() == 0 && strstr(MPI_D_Error_message(), "MPI_D_Init was not called") != NULL, "no task before the beginning");
    if (strcmp(how, "round") == 0) MPI_D_Set_mode(MPI_D_ITERATION);
    if (is_stream) MPI_D_Set_mode(MPI_D_STREAMING), MPI_D_Set_window(10);
    must(MPI_D_Init(NULL, NULL) == MPI_D_SUCCESS, "the beginning");
    if (strcmp(how, "at once") == 0) goes_on = launched_rank() != 0;
    while (goes_on && MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank);
            MPI_D_Reads("numbers");
            for (uint32_t at = 0; goes_on && at < 1000; at++) {
                MPI_D_At(at);
                int sent = is_stream ? MPI_D_Send_at(at, &at, 4, "v", 1) : MPI_D_Send(&at, 4, "v", 1);
                goes_on = sent == MPI_D_SUCCESS && !(strcmp(how, "A") != 0 && rank == 0 && at == 500);
            }
        } else
            while (goes_on && MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) goes_on = strcmp(how, "A") != 0;
    }
    if (strcmp(how, "round") == 0) must(MPI_D_Next_round() == 0, "no other round");
    return told(MPI_D_Finalize());
}

/* What cannot be set, or not any more. */
static int settings(const char *how) {
    int is_late = strncmp(how, "late", 4) == 0;
    if (strcmp(how, "mode") == 0) MPI_D_Set_mode(17);
    if (strcmp(how, "arrangement") == 0) MPI_D_Set_arrangement(99);
    int code = MPI_D_Init(NULL, NULL);
    must(code == (is_late ? MPI_D_SUCCESS : MPI_D_ERR_JOB), "the beginning");
    if (strcmp(how, "late") == 0) MPI_D_Set_arrangement(MPI_D_SORTED);
    if (strcmp(how, "late mode") == 0) MPI_D_Set_mode(MPI_D_ITERATION);
    if (is_late && strcmp(how, "late task") != 0) must(strstr(MPI_D_Error_message(), "before MPI_D_Init") != NULL, "why it is not set");
    while (MPI_D_Next_task()) MPI_D_Set_combiner(MPI_D_Sum_int64);
    /* Of MPI_D_Init, if it is that one which has failed: MPI_D_Finalize has nothing to add. */
    code = MPI_D_Finalize();
    told(code);
    return code;
}

/* Ranks that do not say the same. */
static int different(const char *how) {
    int other = launched_rank() != 0;
    if (strcmp(how, "mode") == 0 && other) MPI_D_Set_mode(MPI_D_ITERATION);
    if (strcmp(how, "partitioner") == 0 && other) MPI_D_Set_partitioner(by_last_byte);
    if (strcmp(how, "comparator") == 0 && other) MPI_D_Set_comparator(backwards);
    if (strcmp(how, "window") == 0) MPI_D_Set_mode(MPI_D_STREAMING), MPI_D_Set_window(other ? 10 : 20);
    must(MPI_D_Init(NULL, NULL) == MPI_D_ERR_JOB, "no beginning");
    must(strstr(MPI_D_Error_message(), "were given different jobs or knobs") != NULL, "what is different");
    /* Before they part: a launcher ends the others when the first one has exited. */
    printf("told %s\n", MPI_D_Error_message()), fflush(stdout);
    while (MPI_D_Next_task()) must(0, "no task");
    return MPI_D_Finalize();
}

/* Sends a pair from each O task, and receives it. Returns how many pairs came. */
static int small_job(void) {
    int pairs = 0;
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL)
            must(MPI_D_Send("a", 1, "b", 1) == MPI_D_SUCCESS, "a pair");
        else
            while (MPI_D_Recv(NULL, NULL, NULL, NULL) == MPI_D_SUCCESS) pairs++;
    }
    return pairs;
}

/* Two jobs in one process. */
static int twice(void) {
    must(MPI_D_Init(NULL, NULL) == MPI_D_SUCCESS, "the beginning");
    small_job();
    must(MPI_D_Finalize() == MPI_D_SUCCESS, "the end");
    int code = MPI_D_Init(NULL, NULL);
    printf("second %d %s\n", code, MPI_D_Error_message());
    printf("pairs %d\n", small_job());
    return MPI_D_Finalize();
}

/* The program goes without MPI_D_Finalize. */
static int leaving(const char *how) {
    must(MPI_D_Init(NULL, NULL) == MPI_D_SUCCESS, "the beginning");
    printf("a line that is not lost\n");
    if (strcmp(how, "at once") == 0) return 0;
    if (strcmp(how, "after all") == 0) return small_job(), 0;
    while (MPI_D_Next_task()) {
        int rank;
        if (MPI_D_COMM_BIPARTITE_O == MPI_D_COMM_NULL) continue;
        MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank);
        if (rank == 0 && strcmp(how, "exit") == 0) exit(0);
        if (rank == 0 && strcmp(how, "exit 7") == 0) exit(7);
        if (rank == 0) {
            MPI_D_Fail("on purpose");
            if (strcmp(how, "fail") == 0) return 0;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *asked = argc > 1 ? argv[1] : "";
    must(MPI_D_Send("a", 1, "b", 1) == MPI_D_ERR_USAGE, "a pair before the beginning");
    must(MPI_D_Finalize() == MPI_D_ERR_USAGE, "an end before the beginning");
    must(MPI_D_At(1) == MPI_D_ERR_USAGE, "a place before the beginning");
    if (strcmp(asked, "iteration") == 0) return iteration(argc > 2 ? argv[2] : "");
    if (strcmp(asked, "streaming") == 0) return streaming(argc > 2 ? argv[2] : "");
    if (strcmp(asked, "calling") == 0) return calling();
    if (strcmp(asked, "failing") == 0) return failing(argv[2]);
    if (strcmp(asked, "killed") == 0) return killed(argv[2]);
    if (strcmp(asked, "early") == 0) return early(argv[2]);
    if (strcmp(asked, "settings") == 0) return settings(argv[2]);
    if (strcmp(asked, "twice") == 0) return twice();
    if (strcmp(asked, "leaving") == 0) return leaving(argv[2]);
    if (strcmp(asked, "different") == 0) return different(argv[2]);
    int overflows = strcmp(asked, "overflow") == 0;
    if (strcmp(asked, "wrong") == 0 || overflows) MPI_D_Set_combiner(MPI_D_Sum_int64);
    MPI_D_Set_arrangement(MPI_D_SORTED);
    if (strcmp(asked, "backwards") == 0) {
        MPI_D_Set_partitioner(by_last_byte);
        MPI_D_Set_comparator(backwards);
    }
    if (strcmp(asked, "mode") == 0) {
        int code = MPI_D_Init(NULL, NULL);
        fprintf(stderr, "%s\n", MPI_D_Error_message());
        must(code == MPI_D_ERR_JOB && MPI_D_Next_task() == 0, "no task");
        return MPI_D_Finalize();
    }
    must(MPI_D_Init(NULL, NULL) == MPI_D_SUCCESS, "the beginning");
    must(MPI_D_Init(&argc, &argv) == MPI_D_ERR_USAGE, "a second beginning");
    while (MPI_D_Next_task()) {
        int rank, size;
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            must(MPI_D_COMM_BIPARTITE_A == MPI_D_COMM_NULL, "one side at a time");
            must(MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank) == MPI_D_SUCCESS, "the rank");
            must(MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_O, &size) == MPI_D_SUCCESS, "the size");
            must(rank >= 0 && rank < size, "a rank below the size");
            must(MPI_D_Recv(NULL, NULL, NULL, NULL) == MPI_D_ERR_USAGE, "O tasks receive nothing");
            must(MPI_D_Kept(NULL, NULL, NULL, NULL) == MPI_D_ERR_USAGE, "jobs without rounds keep nothing");
            uint32_t keys[100];
            int64_t values[100];
            for (int at = 0; at < 100; at++) {
                /* The most significant byte first, so that the order of the bytes is that of the numbers. */
                uint32_t key = (uint32_t)(rank * 100 + at);
                keys[at] = __builtin_bswap32(key);
                values[at] = key;
            }
            nothing_is_not_read();
            must(MPI_D_Send_many(50, keys, 4, values, 8) == MPI_D_SUCCESS, "many pairs");
            for (int at = 50; at < 100; at++)
                must(MPI_D_Send(&keys[at], 4, &values[at], 8) == MPI_D_SUCCESS, "a pair");
            must(MPI_D_Reads("numbers") == MPI_D_SUCCESS && MPI_D_At(7) == MPI_D_SUCCESS, "the place");
            if (strcmp(asked, "wrong") == 0 || overflows) { /* Of one key, O task 2 sends what no combiner of numbers accepts. */
                for (int at = 100; at < 110; at++) {
                    int is_wrong = rank == 2 && at == 104;
                    int64_t number = is_wrong && overflows ? INT64_MAX : 1;
                    if (MPI_D_At(at) != MPI_D_SUCCESS || MPI_D_Send("key", 3, &number, is_wrong && !overflows ? 3 : 8) != MPI_D_SUCCESS) break;
                }
            }
            if (strcmp(asked, "sizes") == 0 && rank == 2) MPI_D_Send("odd", 3, &(int64_t){1}, 8);
            if (strcmp(asked, "fail") == 0 && rank == 1) must(MPI_D_Fail("on purpose") == MPI_D_SUCCESS, "a failure");
        } else {
            must(MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_A, &rank) == MPI_D_SUCCESS, "the rank");
            must(MPI_D_Send("a", 1, "b", 1) == MPI_D_ERR_USAGE, "A tasks send nothing");
            must(MPI_D_At(1) == MPI_D_ERR_USAGE && MPI_D_Reads("a") == MPI_D_ERR_USAGE, "A tasks read nothing");
            must(MPI_D_Recv_many(0, NULL, 0, NULL, 0, NULL) == MPI_D_SUCCESS, "no pairs");
            must(MPI_D_Recv_many(1, NULL, 4, NULL, 8, NULL) == MPI_D_ERR_USAGE, "no room for pairs");
        }
        if (MPI_D_COMM_BIPARTITE_A != MPI_D_COMM_NULL && strcmp(asked, "backwards") != 0) {
            uint32_t keys[7];
            int64_t values[7], sum = 0;
            size_t received, pairs = 0;
            int64_t last = -1;
            do {
                int code = MPI_D_Recv_many(7, keys, 4, values, 8, &received);
                must(code == MPI_D_SUCCESS || (strcmp(asked, "sizes") == 0 && code == MPI_D_ERR_JOB), "pairs");
                for (size_t at = 0; at < received; at++) {
                    must((int64_t)__builtin_bswap32(keys[at]) == values[at] && values[at] > last, "pairs in order");
                    last = values[at];
                    sum += values[at];
                }
                pairs += received;
            } while (received > 0);
            printf("A %d: %zu pairs, sum %" PRId64 "\n", rank, pairs, sum);
        } else if (MPI_D_COMM_BIPARTITE_A != MPI_D_COMM_NULL) {
            const void *key, *value;
            size_t key_bytes, value_bytes, pairs = 0;
            int64_t sum = 0, number, last = INT64_MAX;
            int code;
            while ((code = MPI_D_Recv(&key, &key_bytes, &value, &value_bytes)) == MPI_D_SUCCESS) {
                must(key_bytes == 4 && value_bytes == 8, "the sizes");
                memcpy(&number, value, 8);
                must(number < last, "pairs backwards");
                MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_A, &size);
                must((int)(by_last_byte(key, 4, (size_t)size)) == rank, "the partitioner's A task");
                last = number;
                sum += number;
                pairs++;
            }
            must(code == MPI_D_END, "the end");
            printf("A %d: %zu pairs, sum %" PRId64 "\n", rank, pairs, sum);
        }
    }
    int code = MPI_D_Finalize();
    if (code != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    return code;
}
