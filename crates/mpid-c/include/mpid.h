/* Keys and values on MPI: programs of O tasks, which send pairs, and A tasks, which receive them.
 *
 *     MPI_D_Init(&argc, &argv);
 *     while (MPI_D_Next_task()) {
 *         if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL)
 *             MPI_D_Send(key, key_bytes, value, value_bytes);        any number of times
 *         else
 *             while (MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) ...
 *     }
 *     return MPI_D_Finalize();
 *
 * A program is started alone, or on ranks by mpirun, srun or mpidrun; it does not call MPI itself. Tasks are scheduled onto the
 * ranks: each rank runs its loop body once for every task that it is given, first O tasks, then A tasks. All functions are
 * called on one thread. The environment variables HARRIER_MPID_* set the knobs; see the README. Mode COM alone: rounds and streams
 * (mpidrun -mode ITER and STREAM) are there in Rust, and a C program that is started so is refused by MPI_D_Init.
 *
 * Functions return MPI_D_SUCCESS or an error; MPI_D_Error_message then says more. After an error of a task the program goes on to
 * MPI_D_Finalize, which returns the job's error, the same on every rank. */

#ifndef MPID_H
#define MPID_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MPI_D_SUCCESS 0
/* An A task has no more pairs. */
#define MPI_D_END 1
/* A call that cannot be here: before MPI_D_Init, or by a task of the other kind. The job goes on. */
#define MPI_D_ERR_USAGE 2
/* The job has failed, here or on another rank, or could not begin. */
#define MPI_D_ERR_JOB 3
/* The ranks could not meet, or one is lost. */
#define MPI_D_ERR_RANKS 4

typedef int MPI_D_Comm;

#define MPI_D_COMM_NULL 0
/* The O tasks, in an O task; else MPI_D_COMM_NULL. */
#define MPI_D_COMM_BIPARTITE_O (MPI_D_Comm_bipartite(0))
/* The A tasks, in an A task; else MPI_D_COMM_NULL. */
#define MPI_D_COMM_BIPARTITE_A (MPI_D_Comm_bipartite(1))

MPI_D_Comm MPI_D_Comm_bipartite(int a_side);

/* How A tasks get their pairs. */
#define MPI_D_PLAIN 0
#define MPI_D_GROUPED 1
#define MPI_D_SORTED 2

/* Writes what two values of a key are together over the first one, and returns how many bytes that has; at most `room` of them.
 * Returns a negative number for a value that it does not accept: it is then asked to join each of the two with itself, so that the
 * error names the record of the one that is to blame. Associative and commutative. */
typedef int64_t (*MPI_D_Combiner)(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room,
                                  const void *value, size_t value_bytes);
/* The A task of a key, less than `tasks`. */
typedef size_t (*MPI_D_Partitioner)(const void *key, size_t key_bytes, size_t tasks);
/* Less than, equal to, or greater than 0 as `left` is before, like or after `right`. */
typedef int (*MPI_D_Comparator)(const void *left, size_t left_bytes, const void *right, size_t right_bytes);

/* What the job is. Before MPI_D_Init, and the same on every rank. The functions are called on several threads at a time. */
void MPI_D_Set_arrangement(int arrangement);
void MPI_D_Set_combiner(MPI_D_Combiner combiner);
void MPI_D_Set_partitioner(MPI_D_Partitioner partitioner);
void MPI_D_Set_comparator(MPI_D_Comparator comparator);
/* Adds up values that are int64_t in the machine's byte order. */
extern int64_t MPI_D_Sum_int64(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room,
                               const void *value, size_t value_bytes);

/* Joins the ranks, and begins the job. Collective. The arguments may be null; they are left as they are. */
int MPI_D_Init(int *argc, char ***argv);

/* Ends the current task, and begins the next one of this rank. Returns 1, or 0 when there is none left or the job has failed. */
int MPI_D_Next_task(void);

/* The number of the current task, and how many there are. */
int MPI_D_Comm_rank(MPI_D_Comm comm, int *rank);
int MPI_D_Comm_size(MPI_D_Comm comm, int *size);

/* Sends a pair from an O task. Returns at once, unless the send queue is full. Bytes are copied. */
int MPI_D_Send(const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Sends `pairs` pairs whose keys all have `key_bytes`, one behind the other, and whose values all have `value_bytes`. */
int MPI_D_Send_many(size_t pairs, const void *keys, size_t key_bytes, const void *values, size_t value_bytes);

/* Say what the current O task reads from now on, such as a file, and where in it the task is, such as a byte or a line: what an error of
 * the task then names as the place of its record. MPI_D_At costs next to nothing, and is there to be called for every record.
 * `source` is a text that ends with a zero, and is copied. */
int MPI_D_Reads(const char *source);
int MPI_D_At(uint64_t position);

/* The next pair of an A task, or MPI_D_END. What the pointers point to stays until the next call. */
int MPI_D_Recv(const void **key, size_t *key_bytes, const void **value, size_t *value_bytes);

/* Up to `pairs` pairs of an A task whose keys and values have these sizes, into arrays. `*received` is how many there were; 0 at the
 * end. A pair of another size is an error. */
int MPI_D_Recv_many(size_t pairs, void *keys, size_t key_bytes, void *values, size_t value_bytes, size_t *received);

/* The current task has failed, and the job with it. */
int MPI_D_Fail(const char *message);

/* Ends the job, and leaves the ranks. Collective. Returns the job's error. */
int MPI_D_Finalize(void);

/* What the last error was; an empty text if there was none. Stays until the next call. */
const char *MPI_D_Error_message(void);

#ifdef __cplusplus
}
#endif

#endif
