/* A rank that exits, aborts or is killed after the ranks have met. argv[1] is the way, argv[2] a file to which each start adds a line. */
#define _POSIX_C_SOURCE 200809L
#include <mpid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (MPI_D_Init(NULL, NULL) != MPI_D_SUCCESS) {
        fprintf(stderr, "%s\n", MPI_D_Error_message());
        return MPI_D_Finalize();
    }
    FILE *starts = fopen(argv[2], "a");
    if (starts == NULL || fprintf(starts, "x\n") < 0 || fclose(starts) != 0) abort();
    if (strcmp(argv[1], "exit") == 0) return 143;
    if (strcmp(argv[1], "abort") == 0) abort();
    while (MPI_D_Next_task()) {
        const void *key;
        size_t bytes;
        while (MPI_D_COMM_BIPARTITE_A != MPI_D_COMM_NULL && MPI_D_Recv(&key, &bytes, NULL, NULL) == MPI_D_SUCCESS) {}
        if (strcmp(argv[1], "fail") == 0) MPI_D_Fail("on purpose");
    }
    return MPI_D_Finalize();
}
