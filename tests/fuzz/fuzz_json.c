#include "tests/fuzz/fuzz_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_reader(dp_document_parse_json, data, size); }
