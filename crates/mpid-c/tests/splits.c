/* O tasks that share an input. argv[1] is the way: lines, bytes, part; argv[2] the size of splits; then files and folders. A tasks print every key (a
 * line, a byte or a number) with its count. */
#include <inttypes.h>
#include <mpid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s (%s)\n", what, MPI_D_Error_message());
        abort();
    }
}

/* Splits are about as large as was asked for; 0: whatever the library takes. */
static uint64_t asked;

static void fits(uint64_t begin, uint64_t end) { must(asked == 0 || end - begin < 2 * asked, "a split is about as large as was asked for"); }

static void send(const void *key, size_t bytes) { MPI_D_Send(key, bytes, &(int64_t){1}, sizeof(int64_t)); }

/* Each line, where the library says that it begins. */
static void lines(void) {
    const char *path;
    const void *line;
    size_t bytes;
    uint64_t begin, end, at;
    must(MPI_D_Next_line(&line, &bytes, &at) == MPI_D_END, "no line before a split");
    while (MPI_D_Next_split(&path, &begin, &end) == MPI_D_SUCCESS) {
        fits(begin, end);
        while (MPI_D_Next_line(&line, &bytes, &at) == MPI_D_SUCCESS) {
            char *read = malloc(bytes + 1);
            FILE *file = fopen(path, "rb");
            must(at >= begin && at < end, "a line begins in its split");
            must(file != NULL && fseek(file, (long)at, SEEK_SET) == 0 && fread(read, 1, bytes, file) == bytes, "the file");
            must(memcmp(read, line, bytes) == 0, "the line is where it is said to be");
            fclose(file), free(read);
            if (bytes == 3 && memcmp(line, "bad", 3) == 0) MPI_D_Fail("on purpose");
            send(line, bytes);
        }
    }
    must(MPI_D_Next_split(NULL, NULL, NULL) == MPI_D_END && MPI_D_Next_line(NULL, NULL, NULL) == MPI_D_END, "the end");
}

/* Each byte, read by the program itself. */
static void bytes(void) {
    const char *path;
    uint64_t begin, end;
    while (MPI_D_Next_split(&path, &begin, &end) == MPI_D_SUCCESS) {
        FILE *file = fopen(path, "rb");
        fits(begin, end);
        must(file != NULL && fseek(file, (long)begin, SEEK_SET) == 0, "the file");
        for (; begin < end; begin++) {
            unsigned char byte = (unsigned char)fgetc(file);
            send(&byte, 1);
        }
        fclose(file);
    }
}

static void part(void) {
    uint64_t begin, end;
    char key[32];
    must(MPI_D_Part(2, 1, &begin, &end) == MPI_D_ERR_USAGE, "a range does not end before it begins");
    must(MPI_D_Part(1000, 1100, &begin, &end) == MPI_D_SUCCESS, "a part");
    for (; begin < end; begin++) send(key, (size_t)snprintf(key, sizeof key, "%" PRIu64, begin));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    must(MPI_D_Splits(NULL, 0, 0) == MPI_D_ERR_USAGE && MPI_D_Part(0, 1, NULL, NULL) == MPI_D_ERR_USAGE, "there is no task yet");
    MPI_D_Set_combiner(MPI_D_Sum_int64);
    if (MPI_D_Init(&argc, &argv) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            must(MPI_D_Splits(NULL, 1, 0) == MPI_D_ERR_USAGE && MPI_D_Splits(&(const char *){NULL}, 1, 0) == MPI_D_ERR_USAGE, "no names");
            must(MPI_D_Next_split(NULL, NULL, NULL) == MPI_D_END, "nothing was given");
            asked = strtoull(argv[2], NULL, 10);
            int code = MPI_D_Splits((const char *const *)argv + 3, (size_t)argc - 3, asked);
            must(code == MPI_D_SUCCESS || code == MPI_D_ERR_JOB, "the share");
            if (strcmp(argv[1], "lines") == 0) lines();
            if (strcmp(argv[1], "bytes") == 0) bytes();
            if (strcmp(argv[1], "part") == 0) part();
        } else {
            const void *key, *value;
            size_t key_bytes, value_bytes;
            must(MPI_D_Splits(NULL, 0, 0) == MPI_D_ERR_USAGE && MPI_D_Next_split(NULL, NULL, NULL) == MPI_D_ERR_USAGE, "A tasks have no input");
            must(MPI_D_Next_line(NULL, NULL, NULL) == MPI_D_ERR_USAGE && MPI_D_Part(0, 1, NULL, NULL) == MPI_D_ERR_USAGE, "A tasks have no part");
            for (int64_t count; MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS;) {
                memcpy(&count, value, sizeof count);
                printf("%" PRId64 " ", count), fwrite(key, 1, key_bytes, stdout), putchar('\n');
            }
        }
    }
    return MPI_D_Finalize();
}
