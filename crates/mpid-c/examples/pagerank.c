/* PageRank: mpirun -n 2 pagerank ROUNDS FILE... of edges (two numbers with a tab between them) prints every node and its rank. A node is
 * kept between rounds as its rank and the nodes that it leads to. */
#include <inttypes.h>
#include <mpid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAMPING 0.85

static double sums[2]; /* The nodes, and the ranks of those that lead nowhere, which go to all alike. */
static double everybody = 1; /* What every node has before it gets something. */
static int last;

static void big_endian(uint64_t node, unsigned char key[8]) {
    for (int at = 7; at >= 0; at--, node >>= 8) key[at] = (unsigned char)node;
}

static uint64_t node_of(const unsigned char *key) {
    uint64_t node = 0;
    for (int at = 0; at < 8; at++) node = node << 8 | key[at];
    return node;
}

static int64_t add(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room, const void *value, size_t value_bytes) {
    double left, right;
    (void)key, (void)key_bytes, (void)room;
    if (held_bytes != sizeof left || value_bytes != sizeof right) return -1;
    memcpy(&left, held, sizeof left), memcpy(&right, value, sizeof right);
    left += right;
    memcpy(held, &left, sizeof left);
    return sizeof left;
}

static void read_edges(int argc, char **argv) {
    int rank, size;
    MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank), MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_O, &size);
    for (int file = rank + 2; file < argc; file += size) {
        char line[256];
        uint64_t number = 0, from, to;
        unsigned char key[8];
        FILE *edges = fopen(argv[file], "r");
        MPI_D_Reads(argv[file]); /* Errors name it, and the line. */
        if (edges == NULL) MPI_D_Fail("a file cannot be read");
        while (edges != NULL && fgets(line, sizeof line, edges) != NULL) {
            MPI_D_At(++number);
            if (sscanf(line, "%" SCNu64 "\t%" SCNu64, &from, &to) != 2) {
                MPI_D_Fail("an edge is two numbers");
                break;
            }
            big_endian(from, key), MPI_D_Send(key, 8, &to, 8);
            big_endian(to, key), MPI_D_Send(key, 8, NULL, 0); /* Without bytes it says only that the node is there. */
        }
        if (edges != NULL) fclose(edges);
    }
}

/* Keeps a node: its rank, and the nodes that it leads to behind that. */
static void keep(const void *key, double rank, const void *edges, size_t bytes) {
    static char *value;
    value = realloc(value, sizeof rank + bytes);
    memcpy(value, &rank, sizeof rank), memcpy(value + sizeof rank, edges, bytes);
    MPI_D_Keep(key, 8, value, sizeof rank + bytes);
    sums[0]++;
    if (bytes == 0) sums[1] += rank;
    if (last) printf("%" PRIu64 "\t%.6f\n", node_of(key), rank);
}

/* The edges of a node come one behind the other. */
static void gather_edges(void) {
    static uint64_t *edges;
    static size_t room;
    size_t count = 0, key_bytes, value_bytes;
    unsigned char node[8];
    int more, first = 1;
    const void *key, *value;
    do {
        more = MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS;
        if (!first && (!more || memcmp(node, key, 8) != 0)) keep(node, 1, edges, count * 8), count = 0;
        if (!more) break;
        first = 0;
        memcpy(node, key, 8);
        if (count == room) edges = realloc(edges, 8 * (room = room * 2 + 16));
        if (value_bytes == 8) memcpy(&edges[count++], value, 8);
    } while (more);
}

static void share_ranks(void) {
    const void *key, *value;
    size_t key_bytes, value_bytes;
    while (MPI_D_Kept(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) {
        size_t count = value_bytes / 8 - 1;
        double share;
        memcpy(&share, value, 8);
        share /= (double)count;
        for (size_t at = 1; at <= count; at++) {
            unsigned char to[8];
            uint64_t node;
            memcpy(&node, (const char *)value + at * 8, 8);
            big_endian(node, to), MPI_D_Send(to, 8, &share, 8);
        }
    }
}

/* What is kept and what is received are both in the order of the nodes. */
static void add_shares(void) {
    const void *key, *value, *node, *held;
    size_t key_bytes, value_bytes, node_bytes, held_bytes;
    int more = MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS;
    while (MPI_D_Kept(&node, &node_bytes, &held, &held_bytes) == MPI_D_SUCCESS) {
        double received = 0;
        if (more && memcmp(node, key, 8) == 0) {
            memcpy(&received, value, 8);
            more = MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS;
        }
        keep(node, everybody + DAMPING * received, (const char *)held + 8, held_bytes - 8);
    }
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    int goes_on;
    setvbuf(stdout, NULL, _IOLBF, 0); /* Other ranks print, too: in whole lines. */
    MPI_D_Set_mode(MPI_D_ITERATION), MPI_D_Set_arrangement(MPI_D_SORTED);
    if (MPI_D_Init(&argc, &argv) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    do {
        last = MPI_D_Round() == rounds;
        sums[0] = sums[1] = 0;
        while (MPI_D_Next_task()) {
            int is_first = MPI_D_Round() == 0;
            if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL)
                is_first ? read_edges(argc, argv) : share_ranks();
            else
                is_first ? gather_edges() : add_shares();
        }
        goes_on = MPI_D_Sum(sums, 2) == MPI_D_SUCCESS && !last;
        everybody = 1 - DAMPING + DAMPING * sums[1] / sums[0];
        MPI_D_Set_combiner(add);
    } while (goes_on && MPI_D_Next_round());
    return MPI_D_Finalize();
}
