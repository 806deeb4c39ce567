/* The C interface, used by a C program: writes a file and loads it in every way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <safeshuffle/safeshuffle.h>

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

/* The call succeeds. */
#define OK(call)                                                  \
  do {                                                            \
    safeshuffle_error* error_of_call = (call);                    \
    if (error_of_call != NULL) {                                  \
      fprintf(stderr, "%s: %s\n", #call, error_of_call->message); \
      exit(1);                                                    \
    }                                                             \
  } while (0)

/* w is [[0, 1, 2], [3, 4, 5]], b is [10, 11]. */
static const float stored[] = {0, 1, 2, 3, 4, 5, 10, 11};

static void write_model(const char* path) {
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
  const size_t length = sizeof header - 1;
  FILE* const file = fopen(path, "wb");
  int i;
  for (i = 0; i < 8; ++i) fputc((int)((uint64_t)length >> (8 * i) & 0xff), file);
  fwrite(header, 1, length, file);
  fwrite(stored, sizeof stored[0], 8, file);
  fclose(file);
}

static int holds(const safeshuffle_set* set, const char* name, const void* data, size_t bytes) {
  size_t count = 0, i;
  const safeshuffle_tensor* const tensors = safeshuffle_set_tensors(set, &count);
  for (i = 0; i < count; ++i) {
    if (strcmp(tensors[i].name, name) != 0) continue;
    return tensors[i].bytes == bytes && memcmp(tensors[i].data, data, bytes) == 0;
  }
  return 0;
}

static int32_t note_progress(void* context, uint64_t bytes, uint64_t total_bytes) {
  ((uint64_t*)context)[0] = bytes;
  ((uint64_t*)context)[1] = total_bytes;
  return 0;
}

static int32_t stop_at_once(void* context, uint64_t bytes, uint64_t total_bytes) {
  (void)context, (void)bytes, (void)total_bytes;
  return 42;
}

static int32_t count_tensors(void* context, const safeshuffle_tensor* tensor, uint64_t layer,
                             int32_t everywhere) {
  (void)layer, (void)everywhere;
  if (tensor != NULL) ++*(int*)context;
  return 0;
}

static safeshuffle_session* opened(const char* path, const safeshuffle_pair* options, size_t count,
                                   const safeshuffle_callbacks* callbacks) {
  safeshuffle_session* session = NULL;
  OK(safeshuffle_session_new(NULL, options, count, callbacks, &session));
  OK(safeshuffle_session_open(session, &path, 1));
  return session;
}

static void check_catalog(const char* path) {
  safeshuffle_session* const session = opened(path, NULL, 0, NULL);
  size_t count = 0;
  const safeshuffle_tensor* const tensors = safeshuffle_session_tensors(session, &count);
  const safeshuffle_pair* metadata;
  CHECK(count == 2);
  CHECK(strcmp(tensors[0].name, "w") == 0 && strcmp(tensors[0].dtype, "F32") == 0);
  CHECK(tensors[0].dims == 2 && tensors[0].shape[1] == 3 && tensors[0].bytes == 24);
  CHECK(tensors[0].data == NULL && strcmp(tensors[0].file, path) == 0);
  metadata = safeshuffle_session_metadata(session, &count);
  CHECK(count == 1 && strcmp(metadata[0].name, "format") == 0);
  CHECK(strcmp(metadata[0].value, "pt") == 0);
  safeshuffle_session_warnings(session, &count);
  CHECK(count == 0);
  safeshuffle_session_free(session);
}

static void check_loads(const char* path) {
  uint64_t progress[2] = {0, 0};
  const safeshuffle_callbacks callbacks = {progress, &note_progress, NULL};
  const safeshuffle_pair options[] = {{"only", "w"}, {"dtype", "keep"}};
  safeshuffle_session* const session = opened(path, options, 2, &callbacks);
  safeshuffle_plan* plan = NULL;
  safeshuffle_plan_summary summary;
  safeshuffle_set* set = NULL;
  size_t count = 0;
  OK(safeshuffle_session_plan(session, &plan));
  OK(safeshuffle_plan_summarize(plan, 0, &summary));
  CHECK(summary.read == 24 && summary.kept == 24 && summary.sent == 0);
  OK(safeshuffle_plan_run(plan, &set));
  safeshuffle_plan_free(plan);
  safeshuffle_session_free(session); /* the set outlives it */
  safeshuffle_set_tensors(set, &count);
  CHECK(count == 1 && holds(set, "w", stored, 24));
  CHECK(strstr(safeshuffle_set_report(set), "\"tensor_bytes\"") != NULL);
  CHECK(progress[0] == 24 && progress[1] == 24);
  safeshuffle_set_free(set);
}

static void check_on_demand(const char* path) {
  static const uint64_t begins[] = {0, 1}, lengths[] = {2, 2};
  static const float slice[] = {1, 2, 4, 5};
  const char* const names[] = {"w"};
  safeshuffle_session* const session = opened(path, NULL, 0, NULL);
  safeshuffle_set* set = NULL;
  OK(safeshuffle_session_get(session, "b", &set));
  CHECK(holds(set, "b", stored + 6, 8));
  safeshuffle_set_free(set);
  OK(safeshuffle_session_get_slice(session, "w", 2, begins, lengths, &set));
  CHECK(holds(set, "w", slice, sizeof slice));
  safeshuffle_set_free(set);
  OK(safeshuffle_session_get_sharded(session, names, 1, 0, &set));
  CHECK(holds(set, "w", stored, 24));
  safeshuffle_set_free(set);
  OK(safeshuffle_session_push(session, "w", 0, &set));
  CHECK(holds(set, "w", stored, 24));
  safeshuffle_set_free(set);
  safeshuffle_session_free(session);
}

static void check_streams(const char* path) {
  int ready = 0, groups = 0;
  const safeshuffle_callbacks callbacks = {&ready, NULL, &count_tensors};
  safeshuffle_session* const session = opened(path, NULL, 0, &callbacks);
  safeshuffle_stream* stream = NULL;
  safeshuffle_set* set = NULL;
  OK(safeshuffle_session_stream(session, NULL, 0, 512, 2, &stream));
  for (;;) {
    OK(safeshuffle_stream_next(stream, &set));
    if (set == NULL) break;
    ++groups;
    safeshuffle_set_free(set);
  }
  CHECK(groups >= 1 && ready == 2);
  safeshuffle_stream_free(stream);
  safeshuffle_session_free(session);
}

static void note_release(void* context) {
  *(int*)context = 1;
}

static void check_own_memory(const char* path) {
  /* w transposed, and b, in one matrix of three columns. */
  static const uint64_t sizes[] = {2, 3}, strides[] = {3, 1}, to[] = {1, 3};
  static const uint64_t two = 2, one = 1, three = 3;
  static const float expected[] = {0, 3, 10, 1, 4, 11, 2, 5, -1};
  float memory[9] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
  float again[6];
  int released = 0;
  const safeshuffle_lender lender = {&released, &note_release};
  const safeshuffle_binding bindings[] = {
      {"w", 0, 2, sizes, strides, memory, "F32", to, "matrix"},
      {"b", 0, 1, &two, &one, memory + 2, "F32", &three, "column"}};
  const safeshuffle_parameter parameter = {"w", again, "F32", 2, sizes, NULL};
  safeshuffle_session* const session = opened(path, NULL, 0, NULL);
  OK(safeshuffle_session_load_into(session, bindings, 2, &lender));
  CHECK(memcmp(memory, expected, sizeof expected) == 0);
  CHECK(released);
  CHECK(strstr(safeshuffle_session_report(session), "\"ranks\"") != NULL);
  OK(safeshuffle_session_load_parameters(session, &parameter, 1, NULL));
  CHECK(memcmp(again, stored, sizeof again) == 0);
  safeshuffle_session_free(session);
}

/* The beginning of what DLPack 1.0 declares. */
struct managed {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct managed* self);
  uint64_t flags;
  struct {
    void* data;
    int32_t device_type, device_id, dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
  } tensor;
};

static void check_dlpack(const char* path) {
  safeshuffle_session* const session = opened(path, NULL, 0, NULL);
  safeshuffle_set* set = NULL;
  void* exported = NULL;
  struct managed* managed;
  uint64_t shape[2], strides[2];
  safeshuffle_parameter parameter;
  OK(safeshuffle_session_get(session, "w", &set));
  OK(safeshuffle_set_to_dlpack(set, 0, 1, 0, &exported));
  managed = exported;
  CHECK(managed->major == 1 && managed->tensor.dims == 2 && managed->tensor.bits == 32);
  safeshuffle_set_free(set);
  CHECK(memcmp(managed->tensor.data, stored, 24) == 0); /* the tensor outlives its set */
  memset(managed->tensor.data, 0, 24);
  OK(safeshuffle_parameter_from_dlpack(&managed->tensor, "w", shape, strides, &parameter));
  CHECK(strcmp(parameter.dtype, "F32") == 0 && shape[0] == 2 && strides[0] == 3);
  OK(safeshuffle_session_load_parameters(session, &parameter, 1, NULL));
  CHECK(memcmp(managed->tensor.data, stored, 24) == 0);
  managed->deleter(managed);
  safeshuffle_session_free(session);
}

/* What a call failed with; frees the error. */
static uint32_t kind_of(safeshuffle_error* error) {
  const uint32_t kind = error == NULL ? 0 : error->kind;
  safeshuffle_error_free(error);
  return kind;
}

static void check_errors(const char* path) {
  static const safeshuffle_pair unknown = {"no-such-option", "1"}, bad = {"dtype", "f17"};
  static const char* const nowhere = "/nowhere/model.safetensors";
  const safeshuffle_callbacks callbacks = {NULL, &stop_at_once, NULL};
  safeshuffle_session* session = NULL;
  safeshuffle_set* set = NULL;
  safeshuffle_error* error;
  CHECK(kind_of(safeshuffle_session_new(NULL, &unknown, 1, NULL, &session)) == SAFESHUFFLE_CONFIG);
  error = safeshuffle_session_new(NULL, &bad, 1, NULL, &session);
  CHECK(strstr(error->message, "keep, f16") != NULL && error->rank == -1);
  safeshuffle_error_free(error);
  OK(safeshuffle_session_new(NULL, NULL, 0, &callbacks, &session));
  CHECK(kind_of(safeshuffle_session_load(session, &set)) == SAFESHUFFLE_CONFIG);
  error = safeshuffle_session_open(session, &nowhere, 1);
  CHECK(error->kind == SAFESHUFFLE_IO && strcmp(error->file, nowhere) == 0);
  CHECK(error->offset == UINT64_MAX);
  safeshuffle_error_free(error);
  OK(safeshuffle_session_open(session, &path, 1));
  CHECK(kind_of(safeshuffle_session_get(session, "x", &set)) == SAFESHUFFLE_CONFIG);
  error = safeshuffle_session_load(session, &set);
  CHECK(error->kind == SAFESHUFFLE_CANCELLED && error->code == 42);
  safeshuffle_error_free(error);
  safeshuffle_session_cancel(session, 7);
  error = safeshuffle_session_get(session, "w", &set);
  CHECK(error->kind == SAFESHUFFLE_CANCELLED && error->code == 7);
  safeshuffle_error_free(error);
  CHECK(set == NULL);
  safeshuffle_session_free(session);
  safeshuffle_session_free(NULL);
  safeshuffle_set_free(NULL);
  safeshuffle_error_free(NULL);
}

static void gather_nothing(void* context, const void* mine, size_t bytes, double timeout_seconds,
                           safeshuffle_gathered* all) {
  (void)mine, (void)bytes, (void)timeout_seconds;
  ++*(int*)context;
  safeshuffle_gathered_fail(all, SAFESHUFFLE_TIMEOUT, 1, "rank 1 is asleep");
}

static void check_groups(void) {
  int calls = 0;
  safeshuffle_bootstrap bootstrap = {0, 2, 0, "host", -1, &gather_nothing, &calls, NULL, 1};
  safeshuffle_group* group = NULL;
  safeshuffle_error* const error = safeshuffle_group_open(&bootstrap, &group);
  CHECK(error->kind == SAFESHUFFLE_TIMEOUT && error->rank == 1 && calls == 1);
  CHECK(strstr(error->message, "asleep") != NULL);
  safeshuffle_error_free(error);
  bootstrap.size = 1;
  OK(safeshuffle_group_open(&bootstrap, &group));
  safeshuffle_group_free(group);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  CHECK(safeshuffle_abi_version() == SAFESHUFFLE_ABI_VERSION);
  CHECK(strchr(safeshuffle_version(), '.') != NULL);
  write_model(argv[1]);
  check_catalog(argv[1]);
  check_loads(argv[1]);
  check_on_demand(argv[1]);
  check_streams(argv[1]);
  check_own_memory(argv[1]);
  check_dlpack(argv[1]);
  check_errors(argv[1]);
  check_groups();
  return failures == 0 ? 0 : 1;
}
