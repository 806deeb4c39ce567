/* The C interface, for other languages and for engines that open the library at run time. C99.
 *
 *   safeshuffle_session* session = NULL;
 *   safeshuffle_set* set = NULL;
 *   const char* paths[] = {"path/to/checkpoint"};
 *   safeshuffle_error* error = safeshuffle_session_new(NULL, NULL, 0, NULL, &session);
 *   if (error == NULL) error = safeshuffle_session_open(session, paths, 1);
 *   if (error == NULL) error = safeshuffle_session_load(session, &set);
 *
 * Functions that can fail return NULL, or an error that the caller frees; what they would have
 * stored is then left as it was. Nothing is thrown, printed or ended. Objects are freed by the
 * function of their name, which takes NULL too; in any order: a set outlives its session, and a
 * session its group. Text is UTF-8 and ends with a zero; what a function returns without further
 * words belongs to the object, and is valid until that is freed.
 *
 * Threads: one call at a time for each session and what was made of it, except
 * safeshuffle_session_cancel. "Collective" means that all ranks of the group make these calls in
 * the same order with the same arguments; all succeed, or all get the same error, but for
 * SAFESHUFFLE_TRANSPORT and SAFESHUFFLE_TIMEOUT, after which the group is of no more use.
 *
 * What the functions mean in detail is described in session.hpp and bootstrap.hpp, which they
 * follow. */
#ifndef SAFESHUFFLE_SAFESHUFFLE_H
#define SAFESHUFFLE_SAFESHUFFLE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SAFESHUFFLE_EXPORT __attribute__((visibility("default")))
#else
#define SAFESHUFFLE_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. Grows when a function or a struct changes or goes; new functions leave it. */
#define SAFESHUFFLE_ABI_VERSION 1

/* Of the library: a program works with libraries that have the version of its header. */
SAFESHUFFLE_EXPORT uint32_t safeshuffle_abi_version(void);

/* Such as "0.1.0". */
SAFESHUFFLE_EXPORT const char* safeshuffle_version(void);

/* ---- Errors ---- */

/* Numbers are the exit codes of the command. */
typedef enum safeshuffle_error_kind {
  SAFESHUFFLE_INTERNAL = 1,
  SAFESHUFFLE_CONFIG = 2,       /* usage, options, rules */
  SAFESHUFFLE_IO = 3,           /* a file cannot be opened, read or written */
  SAFESHUFFLE_FORMAT = 4,       /* a file is not valid safetensors */
  SAFESHUFFLE_PLAN = 5,         /* a tensor cannot be placed as asked */
  SAFESHUFFLE_TRANSPORT = 6,    /* CUDA, NCCL, MPI or the caller's all-gather failed */
  SAFESHUFFLE_MEMORY = 7,       /* the budget, or an allocation */
  SAFESHUFFLE_VERIFICATION = 8, /* loaded bytes differ from the files */
  SAFESHUFFLE_TIMEOUT = 9,      /* a peer was lost or made no progress */
  SAFESHUFFLE_FALLBACK = 10,    /* a fallback was needed with the option strict */
  SAFESHUFFLE_CANCELLED = 11    /* somebody asked for it */
} safeshuffle_error_kind;

typedef struct safeshuffle_error {
  uint32_t kind;       /* safeshuffle_error_kind */
  int32_t code;        /* errno of SAFESHUFFLE_IO, FormatErrc of SAFESHUFFLE_FORMAT, the native code
                          of a library, or what the call was cancelled with */
  int32_t rank;        /* first failing rank; -1 outside of collective calls */
  const char* file;    /* at fault; empty if unknown, like the next */
  const char* tensor;  /* at fault */
  uint64_t offset;     /* of the byte in the file; UINT64_MAX if unknown */
  const char* cause;   /* one sentence without what is above */
  const char* message; /* one line with all of it */
} safeshuffle_error;

SAFESHUFFLE_EXPORT void safeshuffle_error_free(safeshuffle_error* error);

/* ---- Groups of ranks ---- */

typedef struct safeshuffle_group safeshuffle_group;

/* What an all-gather has collected. */
typedef struct safeshuffle_gathered safeshuffle_gathered;

/* Stores what one rank has sent; the bytes are copied. To be called once for each rank. */
SAFESHUFFLE_EXPORT void safeshuffle_gathered_set(safeshuffle_gathered* all, uint32_t rank,
                                                 const void* data, size_t bytes);

/* Says instead that the all-gather failed: SAFESHUFFLE_TIMEOUT if `rank` did not come (-1: it is
 * not known which), or SAFESHUFFLE_TRANSPORT. `cause` is copied. */
SAFESHUFFLE_EXPORT void safeshuffle_gathered_fail(safeshuffle_gathered* all, uint32_t kind,
                                                  int32_t rank, const char* cause);

/* Takes this rank's bytes and waits, up to the time-out, for those of all ranks. Called on the
 * threads of collective calls, in the same order on all ranks; after a failure, not again. */
typedef void (*safeshuffle_all_gather)(void* context, const void* mine, size_t bytes,
                                       double timeout_seconds, safeshuffle_gathered* all);

/* How this rank joins its group. */
typedef struct safeshuffle_bootstrap {
  uint32_t rank;
  uint32_t size;       /* number of ranks, at least 1 */
  uint32_t local_rank; /* among the ranks of this node; selects the GPU */
  const char* device;  /* "host", "cuda", or "auto": a GPU if every rank can have its own */
  int32_t ordinal;     /* CUDA ordinal of the GPU; -1: by local_rank */

  /* Either: carries all control messages. */
  safeshuffle_all_gather all_gather;
  void* context;

  /* Or: where rank 0 waits for the others, "tcp://HOST:PORT" or "tcp://HOST:PORT/JOB". A group of
   * one rank needs neither. */
  const char* address;

  double timeout_seconds; /* for all to join; 0: 5 minutes */
} safeshuffle_bootstrap;

/* On GPUs, data is sent over NCCL; on the host, each rank reads all that it keeps. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_group_open(const safeshuffle_bootstrap* bootstrap,
                                                             safeshuffle_group** group);
SAFESHUFFLE_EXPORT void safeshuffle_group_free(safeshuffle_group* group);

/* ---- Sessions ---- */

typedef struct safeshuffle_session safeshuffle_session;

/* A name and a value. */
typedef struct safeshuffle_pair {
  const char* name;
  const char* value;
} safeshuffle_pair;

/* A tensor as it is stored, or this rank's part of one that was loaded. */
typedef struct safeshuffle_tensor {
  const char* name;
  const char* dtype; /* safetensors' name, such as "BF16" */
  size_t dims;
  const uint64_t* shape;
  uint64_t bytes;
  void* data;       /* device address, contiguous, row-major; NULL if stored, or empty */
  const char* file; /* where it is stored; NULL if loaded */
  uint32_t order;   /* of those of one load: ascending in the order of the model */
} safeshuffle_tensor;

/* Called during loads, on their thread; must not use the session, but for its cancel. Anything but
 * 0 as a result cancels the load, with that code. */
typedef struct safeshuffle_callbacks {
  void* context;

  /* How far it is. May be NULL. */
  int32_t (*progress)(void* context, uint64_t bytes, uint64_t total_bytes);

  /* What is there: a tensor; or, without one, all that this rank has of a layer, or, if
   * `everywhere` is not 0, all that any rank has of it. The tensor is valid until the load fails or
   * its set is freed. May be NULL. */
  int32_t (*ready)(void* context, const safeshuffle_tensor* tensor, uint64_t layer,
                   int32_t everywhere);
} safeshuffle_callbacks;

/* A session without a checkpoint. `group` NULL: this process alone, on the host. `options` are
 * those of the command (docs/command.md), without the dashes, and numbers of bytes and seconds
 * without a unit: {"dtype", "f16"}, {"only", "model.layers.0.*"}, {"window", "1048576"}, {"strict",
 * "true"}; "tp-plan" may also be the text of a rule file. `callbacks` may be NULL. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_new(
    const safeshuffle_group* group, const safeshuffle_pair* options, size_t option_count,
    const safeshuffle_callbacks* callbacks, safeshuffle_session** session);

/* Waits for reads in progress. */
SAFESHUFFLE_EXPORT void safeshuffle_session_free(safeshuffle_session* session);

/* Opens a checkpoint: a directory, files, or an index. If one was open, it takes its place, and
 * what the session told of it is no longer valid; but if this fails, nothing has changed.
 * Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_open(safeshuffle_session* session,
                                                               const char* const* paths,
                                                               size_t path_count);

/* The stored tensors, by file and offset. This and the next two tell of the open checkpoint: there
 * is nothing before. */
SAFESHUFFLE_EXPORT const safeshuffle_tensor* safeshuffle_session_tensors(
    const safeshuffle_session* session, size_t* count);

/* The `__metadata__` of its files; where they differ, that of the first. */
SAFESHUFFLE_EXPORT const safeshuffle_pair* safeshuffle_session_metadata(
    const safeshuffle_session* session, size_t* count);

/* What is noteworthy about it, one line each. */
SAFESHUFFLE_EXPORT const char* const* safeshuffle_session_warnings(
    const safeshuffle_session* session, size_t* count);

/* Ends the collective call that is in progress, or else the next one, on all ranks, with
 * SAFESHUFFLE_CANCELLED and this code; with 0, takes back a cancel that no call has obeyed. Any
 * thread and signal handlers may call it at any time. */
SAFESHUFFLE_EXPORT void safeshuffle_session_cancel(safeshuffle_session* session, int32_t code);

/* ---- Loads ---- */

/* Loaded tensors. */
typedef struct safeshuffle_set safeshuffle_set;
SAFESHUFFLE_EXPORT void safeshuffle_set_free(safeshuffle_set* set);

/* By name. Their memory is valid until the set and all tensors exported from it are freed. */
SAFESHUFFLE_EXPORT const safeshuffle_tensor* safeshuffle_set_tensors(const safeshuffle_set* set,
                                                                     size_t* count);

/* Where the tensors are: DLPack's type of device (1: CPU, 2: CUDA), and which one. */
SAFESHUFFLE_EXPORT int32_t safeshuffle_set_device(const safeshuffle_set* set, int32_t* ordinal);

/* The report of the load as JSON (docs/report.md). */
SAFESHUFFLE_EXPORT const char* safeshuffle_set_report(const safeshuffle_set* set);

/* Exports the tensor of this index without a copy: with `versioned`, as a
 * DLManagedTensorVersioned, else as the DLManagedTensor of DLPack before 1.0, which has no types of
 * fewer than 8 bits and none of F8. With `as_bytes`, as its bytes: one dimension of U8. The caller,
 * or who takes it over, calls its deleter once, on any thread. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_set_to_dlpack(const safeshuffle_set* set,
                                                                size_t index, int32_t versioned,
                                                                int32_t as_bytes, void** managed);

/* The destructor for a Python capsule that holds an exported tensor: frees it, unless a consumer
 * has taken it and so renamed the capsule. Needs the interpreter's lock. */
SAFESHUFFLE_EXPORT void safeshuffle_release_capsule(void* capsule);

/* A load in two steps. */
typedef struct safeshuffle_plan safeshuffle_plan;
SAFESHUFFLE_EXPORT void safeshuffle_plan_free(safeshuffle_plan* plan);

/* Plans a load of the tensors that options select, by the rules that they select, and compares the
 * plans of all ranks. Reads nothing, and allocates nothing on the device. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_plan(safeshuffle_session* session,
                                                               safeshuffle_plan** plan);

/* In bytes. */
typedef struct safeshuffle_plan_summary {
  uint64_t read;        /* from storage, at most */
  uint64_t sent;        /* to other ranks */
  uint64_t received;    /* from other ranks */
  uint64_t kept;        /* of the tensors that the rank then has */
  uint64_t peak_device; /* device memory, at most */
} safeshuffle_plan_summary;

/* Of a rank of the group. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_plan_summarize(const safeshuffle_plan* plan,
                                                                 uint32_t rank,
                                                                 safeshuffle_plan_summary* summary);

/* Loads. Once for each plan. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_plan_run(safeshuffle_plan* plan,
                                                           safeshuffle_set** set);

/* Plans and loads. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_load(safeshuffle_session* session,
                                                               safeshuffle_set** set);

/* Single stored tensors, whatever the rules say. All are collective; sets have one tensor, or none
 * on ranks that have no part. */

/* Whole, on every rank. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_get(safeshuffle_session* session,
                                                              const char* name,
                                                              safeshuffle_set** set);

/* `lengths[i]` indices from `begins[i]` on of each of the first `dims` dimensions, and all of the
 * others; on every rank. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_get_slice(safeshuffle_session* session,
                                                                    const char* name, size_t dims,
                                                                    const uint64_t* begins,
                                                                    const uint64_t* lengths,
                                                                    safeshuffle_set** set);

/* Split along a dimension: ceil(extent / ranks) indices for each rank, fewer or none for the last
 * ones; of several tensors, the parts are joined along it. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_get_sharded(safeshuffle_session* session,
                                                                      const char* const* names,
                                                                      size_t name_count,
                                                                      uint32_t dim,
                                                                      safeshuffle_set** set);

/* Whole, on one rank. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_push(safeshuffle_session* session,
                                                               const char* name, uint32_t rank,
                                                               safeshuffle_set** set);

/* ---- Streams ---- */

/* A load in groups of tensors, in the order of the model. */
typedef struct safeshuffle_stream safeshuffle_stream;
SAFESHUFFLE_EXPORT void safeshuffle_stream_free(safeshuffle_stream* stream);

/* Of the tensors that match one of `only` (as the option of that name; none: those that options
 * select). The caller may hold `alive` groups at once, of at most `group_bytes` of device memory
 * each. Until the stream has ended or is freed, the session can load nothing else. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_stream(
    safeshuffle_session* session, const char* const* only, size_t only_count, uint64_t group_bytes,
    uint32_t alive, safeshuffle_stream** stream);

/* Stores the next group, or NULL at the end. SAFESHUFFLE_MEMORY if a rank holds too many groups: it
 * can then be called again. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_stream_next(safeshuffle_stream* stream,
                                                              safeshuffle_set** set);

/* ---- Loads into memory of the caller ---- */

/* Elements of a stored tensor, and where they go: element (i0, i1, ...) is element offset + i0 *
 * strides[0] + i1 * strides[1] + ... of the tensor, in row-major order, and is written to element
 * i0 * data_strides[0] + i1 * data_strides[1] + ... behind `data`. */
typedef struct safeshuffle_binding {
  const char* tensor; /* NULL: zeros */
  uint64_t offset;
  size_t dims;
  const uint64_t* sizes;
  const uint64_t* strides;
  void* data;        /* on the rank's device; any alignment */
  const char* dtype; /* as stored; or else both are F16, BF16 or F32 */
  const uint64_t* data_strides;
  const char* name; /* of the destination, for errors */
} safeshuffle_binding;

/* A tensor of the caller, for what this rank has of the target of that name. */
typedef struct safeshuffle_parameter {
  const char* name;
  void* data;        /* on the rank's device; any alignment */
  const char* dtype; /* as stored; or else both are F16, BF16 or F32 */
  size_t dims;
  const uint64_t* shape;
  const uint64_t* strides; /* in elements; NULL: dense */
} safeshuffle_parameter;

/* Memory that the caller lends to a call: after SAFESHUFFLE_TIMEOUT and SAFESHUFFLE_TRANSPORT, it
 * may be written to at any later time. `release` says that it no longer is: before the call
 * returns, or later, on any thread, or never. */
typedef struct safeshuffle_lender {
  void* context;
  void (*release)(void* context);
} safeshuffle_lender;

/* Each stored byte that any rank needs is read once. Bindings may differ between ranks. `lender`
 * may be NULL. Collective. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_load_into(
    safeshuffle_session* session, const safeshuffle_binding* bindings, size_t count,
    const safeshuffle_lender* lender);
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_session_load_parameters(
    safeshuffle_session* session, const safeshuffle_parameter* parameters, size_t count,
    const safeshuffle_lender* lender);

/* The report, as JSON, of the last of these two that succeeded; empty before. Valid until the next
 * one. */
SAFESHUFFLE_EXPORT const char* safeshuffle_session_report(const safeshuffle_session* session);

/* Describes a tensor that DLPack describes (a DLTensor), with its memory, under that name. What is
 * stored is valid as long as the DLTensor; `*strides` must have room for its dimensions, as must
 * `*shape`. SAFESHUFFLE_CONFIG for types that safetensors lacks, and negative strides. */
SAFESHUFFLE_EXPORT safeshuffle_error* safeshuffle_parameter_from_dlpack(
    const void* dl_tensor, const char* name, uint64_t* shape, uint64_t* strides,
    safeshuffle_parameter* parameter);

#ifdef __cplusplus
}
#endif

#endif /* SAFESHUFFLE_SAFESHUFFLE_H */
