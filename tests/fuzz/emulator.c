/* Runs libraries that weft wrote, as they are asked for on its input; tests/fuzz/emulator.py speaks with it.

   All numbers are 64-bit. A request: the length and the bytes of a path, the number of sizes and these, the
   number of inputs, of each its bytes and its data, the number of outputs. An answer: a status; then of each
   output its bytes and its data if that is 0, otherwise the length of a message and the message. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, GUARD = 256, POISON = 0xA5, OUTSIDE = 100, CHANGED = 101, NO_LIBRARY = 102 };

typedef int64_t word;
typedef int (*create_function)(const void *, void **);
typedef int (*run_function)(void *, const word *, const void *const *, void *const *);
typedef word (*bytes_function)(const word *, int);
typedef const char *(*error_function)(void *);
typedef const char *(*status_function)(int);
typedef void (*free_function)(void *);

typedef struct {
  char path[MOST];
  void *code, *model;
} library;

static void take(void *data, size_t bytes) {
  if (bytes && fread(data, 1, bytes, stdin) != bytes) exit(0);
}

static word take_word(void) {
  word w;
  take(&w, sizeof w);
  return w;
}

static void give(const void *data, size_t bytes) {
  if (bytes && fwrite(data, 1, bytes, stdout) != bytes) exit(1);
}

static void give_word(word w) { give(&w, sizeof w); }

static void answer(word status, const char *message) {
  give_word(status);
  give_word((word)strlen(message));
  give(message, strlen(message));
}

static void *find(library *l, const char *name) {
  char full[64];
  snprintf(full, sizeof full, "model_%s", name);
  return dlsym(l->code, full);
}

/* Memory with a guard before and after it, aligned as malloc aligns. */
static unsigned char *guarded(size_t bytes) {
  unsigned char *all = malloc(bytes + 2 * GUARD);
  memset(all, POISON, bytes + 2 * GUARD);
  return all + GUARD;
}

static int is_whole(const unsigned char *data, size_t bytes) {
  for (int i = 0; i < GUARD; i++)
    if (data[-1 - i] != POISON || data[bytes + i] != POISON) return 0;
  return 1;
}

/* Opens the library of a path, unless it is the one before. */
static const char *open_library(library *l, const char *path) {
  if (l->model && strcmp(l->path, path) == 0) return NULL;
  if (l->model) ((free_function)find(l, "free"))(l->model);
  l->model = NULL;
  l->code = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!l->code) return dlerror();
  strcpy(l->path, path);
  int status = ((create_function)find(l, "create"))(NULL, &l->model);
  return status ? ((status_function)find(l, "status"))(status) : NULL;
}

int main(void) {
  static library l;
  static char path[MOST];
  static word sizes[64], in_bytes[256], out_bytes[256];
  static unsigned char *inputs[256], *copies[256], *outputs[256];
  for (;;) {
    word length = take_word();
    take(path, (size_t)length);
    path[length] = 0;
    word count = take_word();
    take(sizes, (size_t)count * sizeof *sizes);
    word taken = take_word();
    for (word i = 0; i < taken; i++) {
      in_bytes[i] = take_word();
      inputs[i] = guarded((size_t)in_bytes[i]);
      take(inputs[i], (size_t)in_bytes[i]);
      copies[i] = malloc((size_t)in_bytes[i] + 1);
      memcpy(copies[i], inputs[i], (size_t)in_bytes[i]);
    }
    word given = take_word();
    const char *wrong = open_library(&l, path);
    if (wrong) {
      answer(NO_LIBRARY, wrong);
    } else {
      for (word i = 0; i < given; i++) {
        out_bytes[i] = ((bytes_function)find(&l, "output_bytes"))(sizes, (int)i);
        outputs[i] = guarded((size_t)out_bytes[i]);
      }
      int status =
          ((run_function)find(&l, "run"))(l.model, sizes, (const void *const *)inputs, (void *const *)outputs);
      int outside = 0, changed = 0;
      for (word i = 0; i < given; i++) outside |= !is_whole(outputs[i], (size_t)out_bytes[i]);
      for (word i = 0; i < taken; i++) {
        outside |= !is_whole(inputs[i], (size_t)in_bytes[i]);
        changed |= memcmp(copies[i], inputs[i], (size_t)in_bytes[i]) != 0;
      }
      if (outside || changed) {
        answer(outside ? OUTSIDE : CHANGED, outside ? "wrote outside of arrays" : "wrote to an input");
      } else if (status) {
        answer(status, ((error_function)find(&l, "error"))(l.model));
      } else {
        give_word(0);
        for (word i = 0; i < given; i++) {
          give_word(out_bytes[i]);
          give(outputs[i], (size_t)out_bytes[i]);
        }
      }
      for (word i = 0; i < given; i++) free(outputs[i] - GUARD);
    }
    for (word i = 0; i < taken; i++) {
      free(inputs[i] - GUARD);
      free(copies[i]);
    }
    fflush(stdout);
  }
}
