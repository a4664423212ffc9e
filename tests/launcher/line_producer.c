/* line_producer LINES: writes lines of 80 bytes as fast as it can, and one of 10 MB in the middle.
 * Line i of a worker: its rank, i, and a filling that both determine, so that a torn line shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLineBytes = 80, kLongBytes = 10 * 1000 * 1000 };

static void fill(char* to, size_t bytes, int rank, long line) {
  memset(to, 'a' + (int)((rank + line) % 26), bytes);
}

int main(int argc, char** argv) {
  const char* rank_text = getenv("PUSHPULL_RANK");
  const int rank = rank_text != NULL ? atoi(rank_text) : 0;
  const long lines = argc > 1 ? atol(argv[1]) : 1000;
  char* text = malloc(kLongBytes + 1);
  if (text == NULL) return 1;
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  for (long i = 0; i < lines; ++i) {
    const size_t bytes = i == lines / 2 ? kLongBytes : kLineBytes;
    const int head = snprintf(text, 64, "%d %09ld ", rank, i);
    fill(text + head, bytes - 1 - (size_t)head, rank, i);
    text[bytes - 1] = '\n';
    if (fwrite(text, 1, bytes, stdout) != bytes) return 1;
  }
  free(text);
  return fflush(stdout) != 0;
}
